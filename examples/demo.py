"""Safe adaptive importance sampling at work: the paper's own example, a few thousand coordinates, and a Lasso."""

import time

import numpy as np
import scipy.sparse as sp

import surestep as ss


def paper_example() -> None:
    lower, upper, truth = np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([2.0, 2.0])
    print("Example 3.1 of the paper: all we know of two gradient entries is 1 <= c1 <= 2 and 2 <= c2 <= 3.")
    print("How good is a sampling p?  V(p, c) / |c|^2, the smaller the better:\n")
    print(f"  {'sampling':<28}{'p':<18}{'if c = (2, 2)':>14}{'in the worst case':>20}")
    corners = [np.array([a, b]) for a in (lower[0], upper[0]) for b in (lower[1], upper[1])]
    safe = ss.safe_sampling(lower, upper)
    for name, p in (
        ("by the lower bounds", lower / lower.sum()),
        ("by the upper bounds", upper / upper.sum()),
        ("safe (provably the best)", safe.probabilities),
    ):
        at_truth = ss.progress_model(p, truth) / (truth @ truth)
        worst = max(ss.progress_model(p, c) / (c @ c) for c in corners)
        print(f"  {name:<28}{f'({p[0]:.3f}, {p[1]:.3f})':<18}{at_truth:>14.2f}{worst:>20.2f}")
    print(f"\nThe promise was made before c was known: value = {safe.value:.2f}, stepsize = {safe.stepsize:.2f}.\n")


def tightening_bounds(n: int = 5000, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    gradient = rng.standard_t(2, n)  # a few large entries, many small ones
    smoothness = rng.uniform(0.5, 2.0, n)
    magnitude = np.abs(gradient)
    print(f"{n:,} coordinates: what bounds of different quality are worth.\n")
    print(f"  {'what is known of |gradient|':<34}{'gain over fixed':>16}{'from the best':>16}{'time':>12}")
    known = [
        ("nothing", np.zeros(n), np.full(n, np.inf)),
        *((f"to within {w}", np.maximum(magnitude - w, 0), magnitude + w) for w in (2.0, 1.0, 0.5, 0.1)),
        ("everything", magnitude, magnitude),
    ]
    ss.safe_sampling(*known[0][1:]), ss.safe_sampling(magnitude, magnitude)  # load the compiled kernels
    for name, lower, upper in known:
        begin = time.perf_counter()
        s = ss.safe_sampling(lower, upper, smoothness)
        microseconds = 1e6 * (time.perf_counter() - begin)
        ratio = s.competitive_ratio
        distance = f"{'<= ' if ratio > 1 else ''}{ratio:.2f} times" if ratio < 1000 else "no bound"
        print(f"  {name:<34}{s.gain:>15.2f}x{distance:>16}{microseconds:>9.0f} us")
    print("\n  gain           guaranteed progress of one step, over that of fixed importance sampling")
    print("  from the best  how much better a sampling that knows the whole gradient could be")


def lasso(n_samples: int = 2000, n_features: int = 4000, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(10, n_features + 10)  # words by Zipf's law, 30 a document
    words = rng.choice(n_features, (n_samples, 30), p=frequency / frequency.sum())
    X = sp.csc_array((np.ones(words.size), (np.repeat(np.arange(n_samples), 30), words.ravel())))
    y = X[:, :50] @ rng.normal(size=50) + rng.normal(size=n_samples)
    problem = ss.Problem(X, y, regularizer=ss.L1(0.01))
    size = f"{n_samples:,} documents x {X.shape[1]:,} words"
    print(f"\nCoordinate descent on a Lasso, {size}, until a duality gap of 1e-4 f(0) is certified:\n")
    print(f"  {'how the next coordinate is drawn':<52}{'epochs, median':>15}{'9 seeds':>14}")
    for name, options in (
        ("fixed importance sampling", {"sampling": "importance"}),
        ("safe sampling, bounds as in the paper", {"bounds": "cauchy-schwarz"}),
        ("safe sampling, bounds from one gradient an epoch", {"bounds": "snapshot"}),
        ("safe sampling, every gradient entry kept exact", {"bounds": "exact"}),
    ):
        # Which coordinates come first is luck: a single run tells little.
        runs = [ss.coordinate_descent(problem, tol=1e-4, trace_every=0.1, random_state=s, **options) for s in range(9)]
        assert all(run.status.success for run in runs)
        epochs = [run.n_epochs for run in runs]
        print(f"  {name:<52}{np.median(epochs):>15.1f}{f'{min(epochs):.1f} to {max(epochs):.1f}':>14}")


if __name__ == "__main__":
    paper_example()
    tightening_bounds()
    lasso()
