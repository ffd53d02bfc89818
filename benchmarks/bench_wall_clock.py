"""Seconds to a given accuracy: Algorithm 2 (safe sampling) against Algorithm 3 (uniform, and L_i-based) of the paper.

Squared loss; one thread; one step rule for all samplings: 1/L_i (the minimiser along the coordinate) where L_i is that
of each coordinate, the paper's alpha / p where it is the same constant for all. The clock runs during the whole solve,
set-up of tables, indices and snapshots included, and stands still while the objective is looked at.
"""

import sys
import time

import numpy as np
from data import dense_gaussian, imdb_counts, madelon, most_frequent, news20_bigram, rcv1_subset, with_ones

import surestep as ss

TARGETS = (1e-3, 1e-5)

DATA = {
    # (a) a coordinate step is real work
    "gaussian": dense_gaussian,
    "madelon": madelon,
    "imdb_counts, 2,000 words": lambda: most_frequent(*imdb_counts(), 2_000),
    # (b) columns are short
    "rcv1_subset": lambda: with_ones(*rcv1_subset()),
    "imdb_counts": lambda: with_ones(*imdb_counts()),
    "news20_bigram": lambda: with_ones(*news20_bigram()),
}

METHODS = {
    "uniform": {"sampling": "uniform"},
    "importance": {"sampling": "importance"},
    "safe": {"sampling": "safe"},
    "safe, snapshot": {"sampling": "safe", "bounds": "snapshot", "blocks": True},
    "safe, cauchy-schwarz": {"sampling": "safe", "bounds": "cauchy-schwarz"},
}


def measure(problem: ss.Problem, best: float, start: float, max_seconds: float, **options) -> tuple[list[float], float]:
    """Return the seconds to relative suboptimality (f - f*) / (f(0) - f*) of each target, and those of a step."""
    goal = best + TARGETS[-1] * (start - best)
    reached = [np.inf] * len(TARGETS)

    def look(progress: ss.Progress) -> None:
        suboptimality = (progress.row["objective"] - best) / (start - best)
        for k, target in enumerate(TARGETS):
            if suboptimality <= target:
                reached[k] = min(reached[k], progress.row["seconds"])
        progress.stop = progress.row["objective"] <= goal or progress.row["seconds"] > max_seconds

    result = ss.coordinate_descent(
        problem,
        max_epochs=1e6,
        tol=1e-15,
        trace_every=(1000 if options["smoothness"] == "coordinate" else 4000) / np.count_nonzero(problem.smoothness),
        callbacks=[look],
        random_state=0,
        **options,
    )
    return reached, result.seconds / max(result.n_steps, 1)


def optimum(problem: ss.Problem) -> ss.Result:
    return ss.coordinate_descent(problem, sampling="cyclic", tol=1e-9, max_epochs=3000, trace_every=5)


def main(names: list[str]) -> None:
    for name, load in DATA.items():
        if names and name not in names:
            continue
        X, y = load()
        plain = ss.Problem(X, y)
        print(f"{name}: {plain.design!r}", flush=True)
        alpha_max = plain.with_regularizer(ss.L1(1.0)).alpha_max()
        regularizers = [ss.L1(alpha_max / 10), ss.L1(alpha_max / 100), ss.L2(0.02)]
        for regularizer in regularizers:
            problem = plain.with_regularizer(regularizer)
            start = problem.objective(np.zeros(problem.n_coordinates))
            begin = time.perf_counter()
            best = optimum(problem)
            print(f"   f* {best.status.name} {best.gap / start:.0e} {time.perf_counter() - begin:.1f} s")
            for smoothness, step in (("coordinate", "exact"), ("constant", "adaptive")):
                print(f"  {regularizer}, L {smoothness}")
                for method, options in METHODS.items():
                    ss.coordinate_descent(problem, smoothness=smoothness, step=step, max_epochs=0.01, **options)
                    found, per_step = measure(
                        problem, best.objective, start, 10.0, smoothness=smoothness, step=step, **options
                    )
                    print(
                        f"    {method:<24}"
                        + "".join(f"{s:>10.3f}" for s in found)
                        + f"{1e6 * per_step:>10.2f} us/step",
                        flush=True,
                    )


if __name__ == "__main__":
    main(sys.argv[1:])
