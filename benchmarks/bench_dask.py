"""The same solver on row partitions: two workers against one process, and against dask-glm on the same cluster.

Lasso at lambda_max / 100, to a certified gap of 1e-6 of the objective at zero. All in one run; every fit is done once
before it is timed, so that nothing is compiled on the clock. dask-glm (the solvers behind dask-ml) does not take sparse
partitions here: it is given some of the columns, dense, and a number of iterations, and what it has reached is shown.
"""

import importlib.util
import logging
import os
import statistics
import time
import warnings

import dask.array as da
import numpy as np
import scipy.sparse
from data import most_frequent, real

import surestep as ss
from surestep.distributed import cluster

N_WORKERS = 2
TOL = 1e-6
REPEATS = 3

# Of SGD.
EPOCHS = 5

# Iterations that take dask-glm some ten times as long as a whole fit takes here.
PEERS = {"proximal_grad": 20, "admm": 5}


def lasso(X, y) -> ss.Problem:
    problem = ss.Problem(X, y, regularizer=ss.L1(1.0))
    return problem.with_regularizer(ss.L1(problem.alpha_max() / 100))


def timed(problem: ss.Problem) -> tuple[ss.Result, float]:
    """Return a result, and the median of the seconds it took."""
    ss.minimize(problem, tol=TOL)
    seconds = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        result = ss.minimize(problem, tol=TOL)
        seconds.append(time.perf_counter() - begin)
    return result, statistics.median(seconds)


def in_partitions(X, y, n_parts: int):
    """Return dask arrays whose partitions are on the workers."""
    n = -(-X.shape[0] // n_parts)
    parts = da.from_array(X, chunks=(n, X.shape[1]), asarray=False), da.from_array(y, chunks=n)
    return tuple(part.persist() for part in parts)


def report(name: str, X, y, times: int = 1) -> None:
    """Compare one process and two workers, on all rows, or on all rows several times."""
    X_, y_ = in_partitions(X, y, N_WORKERS)
    problem = lasso(scipy.sparse.vstack([X] * times), np.tile(y, times))
    local, seconds = timed(problem)
    print(
        f"{name}: {problem.n_samples} x {problem.n_features}, {np.count_nonzero(local.coef)} of the solution not zero"
    )
    print(f"  {'one process':<14}{local.n_epochs:>4.0f} rounds {seconds:>8.3f} s")
    parts = ss.Problem(da.concatenate([X_] * times), da.concatenate([y_] * times), regularizer=problem.regularizer)
    result, seconds = timed(parts)
    row = result.trace.last
    assert abs(result.objective - local.objective) <= 2 * TOL * problem.objective(np.zeros(X.shape[1]))
    each = 1e3 * row["communication"] / row["exchanges"]
    print(
        f"  {parts.partitions.n_parts:>2} partitions {result.n_epochs:>4.0f} rounds {seconds:>8.3f} s, "
        f"{row['communication']:.3f} s of them communication: {row['exchanges']:.0f} exchanges of {each:.1f} ms, "
        f"{row['bytes_sent'] / 1e6:.2f} MB sent, {row['bytes_received'] / 1e6:.2f} MB received; "
        f"working set {row['working_set']:.0f}, passes {row['passes']:.1f}\n",
        flush=True,
    )


def by_rows(name: str, X, y) -> None:
    """Compare SGD over rows that workers draw with SGD over rows that are here, for a number of epochs."""
    problem = ss.Problem(X, np.where(y > np.median(y), 1.0, -1.0), "squared_hinge", ss.L2(1e-3))
    start, best = problem.objective(np.zeros(X.shape[1])), ss.minimize(problem, tol=1e-10).objective
    X_, y_ = in_partitions(X, problem.y, N_WORKERS)
    parts = ss.Problem(X_, y_, problem.loss, problem.regularizer)
    options = dict(variance_reduction=False, average="weighted", tol=1e-12, max_epochs=EPOCHS, trace_every=EPOCHS)
    print(f"{name}: {X.shape[0]} x {X.shape[1]}, SGD, {EPOCHS} epochs; suboptimality over the objective at zero")
    for what, where, more in (
        ("importance, here", problem, {"sampling": "importance"}),
        ("safe, here", problem, {}),
        ("safe, drawn by workers", parts, {"bounds": "delegated"}),
    ):
        ss.stochastic_gradient_descent(where, **options, **more)
        row = ss.stochastic_gradient_descent(where, **options, **more).trace.last
        print(f"  {what:<24}{row['seconds']:>9.3f} s  {(row['objective'] - best) / start:.1e}", end="")
        if where is parts:
            print(
                f"  {row['communication']:.3f} s of them waiting, {row['bytes_received'] / 1e6:.1f} MB received", end=""
            )
        print(flush=True)
    print()


def against_peers(name: str, X, y) -> None:
    problem = lasso(X, y)
    start = problem.objective(np.zeros(X.shape[1]))
    best = ss.minimize(problem, tol=1e-10).objective
    X_, y_ = in_partitions(X, y, N_WORKERS)
    parts = ss.Problem(X_, y_, regularizer=problem.regularizer)
    result, seconds = timed(parts)
    print(
        f"{name}: {X.shape[0]} x {X.shape[1]}, dense, {N_WORKERS} partitions; suboptimality over the objective at zero"
    )
    print(f"  {'surestep':<24}{seconds:>9.3f} s  {max(result.objective - best, 0.0) / start:.1e}")
    if importlib.util.find_spec("dask_glm") is None:
        print("  dask-glm is not installed: pip install dask-ml dask-glm\n")
        return
    from dask_glm import algorithms, families

    for solver, n_iterations in PEERS.items():
        # Its objective is a sum; with its default rho of 1 ADMM would stay at zero for thousands of iterations.
        options = {"rho": X.shape[0]} if solver == "admm" else {}
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = np.asarray(
                getattr(algorithms, solver)(
                    X_,
                    y_,
                    regularizer="l1",
                    lamduh=problem.regularizer.alpha * X.shape[0],
                    family=families.Normal,
                    max_iter=n_iterations,
                    **options,
                )
            )
        seconds = time.perf_counter() - begin
        reached = (problem.objective(x) - best) / start
        print(f"  {f'dask-glm {solver}':<24}{seconds:>9.3f} s  {reached:.1e}  after {n_iterations} iterations")
    print(flush=True)


def main() -> None:
    logging.getLogger("distributed.scheduler").setLevel(logging.ERROR)  # of the graphs of dask-glm
    warnings.filterwarnings("ignore", message="Sending large graph")
    print(f"{N_WORKERS} workers of one thread on {os.cpu_count()} processors; medians of {REPEATS}\n")
    with cluster(n_workers=N_WORKERS):
        for name in ("rcv1_subset.binary", "imdb_counts"):
            X, y = real(name)
            for times in (1, 8):
                report(f"{name}, rows {times} times" if times > 1 else name, scipy.sparse.csr_array(X), y, times)
            by_rows(name, scipy.sparse.csr_array(X), y)
        X, y = most_frequent(*real("imdb_counts"), 500)
        against_peers("imdb_counts, 500 most frequent columns", X.toarray(), y)


if __name__ == "__main__":
    main()
