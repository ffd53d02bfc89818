"""Safe adaptive importance sampling at work: the paper's own example, then a few thousand coordinates."""

import time

import numpy as np

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


if __name__ == "__main__":
    paper_example()
    tightening_bounds()
