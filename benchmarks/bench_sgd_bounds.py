"""How much plain SGD could save if its draws were from ever-tight bounds, as an incremental index would keep them.

On rows of unit norm, where drift rates are equal and the index applies. Every sixteenth of an epoch, along one run with
uniform draws, the variance term sum_i c_i^2 / p_i of Appendix A.2 in the worst case within the bounds, relative to that
of uniform sampling, averaged by epoch:

    truth      optimal sampling: every gradient known;
    fresh      every row bounded by its distance from x at its last visit or at the last look at all rows, whichever is
               nearer, for the present x: the most that any index could know (it adds up paths, which are longer);
    distance   the same without visits;
    blocks     for the largest distance of the half epoch from its look at all rows: what `stochastic_gradient_descent`
               draws from, with an alias table, where it is below 0.7.

A draw from the index takes 1.4 to 4 microseconds (`bench_safe_sampler.py`); a step of either kind is timed below.
"""

import numpy as np
import scipy.sparse as sp
from data import real
from sklearn.preprocessing import normalize

import surestep as ss
from surestep.bounds.margins import fill_norm_bounds, margins, row_norms, safe_shares

PARTS = 16  # of an epoch
EPOCHS = (1, 2, 4, 8, 16)


def unit_rows(n: int = 20_000, d: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    score = X @ rng.normal(size=d) / np.sqrt(d)
    return normalize(X), np.where(score + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def unit_rows_of(name: str) -> tuple[sp.csc_array, np.ndarray]:
    X, y = real(name)
    return sp.csc_array(normalize(sp.csr_matrix(X))), np.where(y > 0, 1.0, -1.0)


def visited_points(problem: ss.Problem) -> np.ndarray:
    points = []
    options = {"sampling": "uniform", "variance_reduction": False, "tol": 1e-15, "trace_every": 1.0 / PARTS}
    keep = [lambda progress: points.append(progress.x)]
    ss.stochastic_gradient_descent(problem, max_epochs=max(EPOCHS) + 1, callbacks=keep, **options)
    return np.array(points)


def ratio(problem: ss.Problem, norms: np.ndarray, known: np.ndarray, distances: np.ndarray) -> float:
    """Worst case of the safe sampling where margins were known at these distances."""
    n = problem.n_samples
    lower, upper = np.empty(n), np.empty(n)
    for distance in np.unique(distances):
        rows = distances == distance
        low, high = np.empty(rows.sum()), np.empty(rows.sum())
        given = (problem.y[rows], problem.weights[rows], norms[rows], known[rows], np.zeros(low.size))
        fill_norm_bounds(problem.loss, *given, distance, low, high)
        lower[rows], upper[rows] = low, high
    return safe_shares(lower, upper, problem.weights * norms)[1]


def report(name: str, loss: str, X, y: np.ndarray) -> None:
    problem = ss.Problem(X, y, loss, ss.L2(1.0 / X.shape[0]))
    n, rng, rows = problem.n_samples, np.random.default_rng(0), problem.design.rows
    norms, points = row_norms(rows, False), visited_points(problem)
    print(f"{name}, {loss}: {problem.design!r}\n{'epoch':>8}{'truth':>10}{'fresh':>10}{'distance':>10}{'blocks':>10}")
    for epoch in EPOCHS:
        found = []
        for first in (epoch * PARTS, epoch * PARTS + PARTS // 2):
            block = points[first : first + PARTS // 2 + 1]
            at_start, last_seen = margins(rows, False, block[0]), np.zeros(n, np.int64)
            known = at_start.copy()
            away = np.linalg.norm(block - block[0], axis=1)
            whole = ratio(problem, norms, at_start, np.full(n, away.max()))
            for k, x in enumerate(block[1:], 1):
                now = margins(rows, False, x)
                since = np.linalg.norm(block[: k + 1] - x, axis=1)
                fresher = np.where(since[last_seen] < since[0], known, at_start)
                nearest = np.minimum(since[last_seen], since[0])
                found.append(
                    (
                        ratio(problem, norms, now, np.zeros(n)),
                        ratio(problem, norms, fresher, nearest),
                        ratio(problem, norms, at_start, np.full(n, away[k])),
                        whole,
                    )
                )
                visited = rng.integers(0, n, n // PARTS)
                known[visited], last_seen[visited] = now[visited], k
        print(f"{epoch:>8}" + "".join(f"{value:>10.2f}" for value in np.mean(found, axis=0)), flush=True)
    costs = []
    for sampling in ("uniform", "safe"):
        options = {"sampling": sampling, "variance_reduction": False, "tol": 1e-15, "trace_every": 16}
        result = ss.stochastic_gradient_descent(problem, max_epochs=16, **options)
        costs.append(1e6 * result.seconds / result.n_steps)
    print("   microseconds a step: uniform {:.2f}, safe {:.2f}\n".format(*costs))


def main() -> None:
    for loss in ("logistic", "squared_hinge"):
        report("dense", loss, *unit_rows())
        report("dense, long rows", loss, *unit_rows(d=2_000))
        for name in ("a9a", "rcv1_subset.binary"):
            try:
                report(name, loss, *unit_rows_of(name))
            except FileNotFoundError as missing:
                print(f"{name}: {missing.filename} is not there (set SURESTEP_DATA)\n")


if __name__ == "__main__":
    main()
