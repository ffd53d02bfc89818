"""Seconds to a given accuracy: Algorithm 2 (safe sampling) against Algorithm 3 (uniform, and L_i-based) of the paper.

Squared loss; one thread; all in one run. One step rule for all samplings: 1/L_i, the minimiser along the coordinate,
where L_i is that of each coordinate; the paper's alpha / p where it is the largest for all. Safe sampling has all its
choices (bounds, blocks, units) on "auto". The clock counts set-up
(tables, Gram matrices, snapshots) and stands still while the objective is looked at, about every thousand steps.
"""

import sys

import numpy as np
from data import dense_gaussian, madelon, most_frequent, ones, real

import surestep as ss

TARGETS = (1e-3, 1e-5)

DATA = {
    # A coordinate step is real work.
    "gaussian": dense_gaussian,
    "madelon": madelon,
    "imdb_2000": lambda: most_frequent(*real("imdb_counts"), 2_000),
    # Columns are short.
    "rcv1_subset": lambda: ones("rcv1_subset.binary"),
    "imdb_counts": lambda: ones("imdb_counts"),
    "news20_bigram": lambda: ones("news20_bigram.binary"),
}

# By the smoothness that is used; "fixed" ones are what the others are measured against.
FIXED = {
    "coordinate": {
        "uniform": {"sampling": "uniform", "step": "exact"},
        "importance, p ~ L_i": {"sampling": "importance", "step": "exact"},
    },
    "constant": {"uniform": {"sampling": "uniform", "smoothness": "constant"}},
}
SAFE = {
    "coordinate": {"safe": {"sampling": "safe", "step": "exact"}},
    "constant": {"safe": {"sampling": "safe", "smoothness": "constant"}},
}

MOST_SECONDS, WARM_SECONDS = 10.0, 4.0


def measure(problem: ss.Problem, best: float, start: float, every: int, **options) -> tuple[list[float], float]:
    """Return the seconds to relative suboptimality (f - f*) / (f(0) - f*) of each target, and those of a step."""
    warm_up(problem, **options)
    reached = [np.inf] * len(TARGETS)

    def look(progress: ss.Progress) -> None:
        row = progress.row
        for k, target in enumerate(TARGETS):
            if row["objective"] - best <= target * (start - best):
                reached[k] = min(reached[k], row["seconds"])
        progress.stop = np.isfinite(reached[-1]) or row["seconds"] > MOST_SECONDS

    n_active = np.count_nonzero(problem.smoothness)
    result = ss.coordinate_descent(
        problem, max_epochs=1e6, tol=1e-15, trace_every=every / n_active, callbacks=[look], **options
    )
    return reached, result.seconds / result.n_steps


def warm_up(problem: ss.Problem, **options) -> None:
    """Run until all is compiled: past the first look at all coordinates, which comes after some epochs."""

    def look(progress: ss.Progress) -> None:
        progress.stop = progress.row["seconds"] > WARM_SECONDS

    ss.coordinate_descent(problem, max_epochs=12, tol=1e-15, trace_every=0.5, callbacks=[look], **options)


def optimum(problem: ss.Problem) -> float:
    return ss.minimize(problem, tol=1e-10).objective


def report(problem: ss.Problem, name: str) -> None:
    start, best = problem.objective(np.zeros(problem.n_coordinates)), optimum(problem)
    for smoothness in FIXED:
        # A look at the objective flushes the caches: not too often, where steps are short or coordinates many.
        every = max(1000 if smoothness == "coordinate" else 5000, problem.n_coordinates // 25)
        print(f"{name}  {problem.regularizer}  L: {smoothness}")
        found = {
            method: measure(problem, best, start, every, **options)
            for method, options in (FIXED[smoothness] | SAFE[smoothness]).items()
        }
        fixed = np.min([found[method][0] for method in FIXED[smoothness]], axis=0)
        for method, (seconds, per_step) in found.items():
            cells = "".join(
                f"{s:>10.3f}{s / f if np.isfinite(f) else np.nan:>8.2f}" for s, f in zip(seconds, fixed, strict=True)
            )
            print(f"  {method:<24}{cells}{1e6 * per_step:>12.2f}")
        print(flush=True)


def main(names: list[str]) -> None:
    print(
        f"Seconds to relative suboptimality {TARGETS[0]:g} and {TARGETS[1]:g}, each with its ratio to the better fixed"
    )
    print("sampling, and microseconds a step (all costs included)\n")
    for name, load in DATA.items():
        if names and name not in names:
            continue
        try:
            plain = ss.Problem(*load())
        except FileNotFoundError as missing:
            print(f"{missing}\n")
            continue
        print(f"{name}: {plain.design!r}\n")
        alpha = plain.with_regularizer(ss.L1(1.0)).alpha_max()
        for regularizer in (ss.L1(alpha / 10), ss.L1(alpha / 100), ss.L2(0.02)):
            report(plain.with_regularizer(regularizer), name)


if __name__ == "__main__":
    main(sys.argv[1:])
