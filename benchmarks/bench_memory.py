"""Peak memory of a fit, above the data that it is given: at most twice the data and the Gram matrix of the working set.

Every fit has a process of its own, which reads prepared arrays; the peak of another process is subtracted, which reads
the same arrays but fits a corner of them only, so that it has loaded the same code. One thread, lambda_max / 100.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from data import dense_gaussian, imdb_tfidf, real

import surestep as ss

DATA = {
    "rcv1_subset": lambda: real("rcv1_subset.binary"),
    "imdb_tfidf": imdb_tfidf,
    "a9a": lambda: real("a9a"),
    "bag_of_words": lambda: real("bag_of_words"),
    "dense_100000x200": lambda: dense_gaussian(100_000, 200),
}
# By rows, as most data come; and by columns, which is what the solver reads.
LAYOUTS = {"rows": (sp.csr_array, np.ascontiguousarray), "columns": (sp.csc_array, np.asfortranarray)}
PARTS = ("data", "indices", "indptr")
TASKS = ("lasso", "logistic L1", "ridge")
CORNER = 500


def model_of(task: str, X: Any, y: Any) -> Any:
    if task == "ridge":
        return ss.Ridge()
    loss = "squared" if task == "lasso" else "logistic"
    alpha = ss.Problem(X, y, loss, ss.L1(1.0), fit_intercept=True).alpha_max() / 100
    return ss.Lasso(alpha) if task == "lasso" else ss.LogisticRegression(C=1 / (alpha * y.size), l1_ratio=1)


def save(X: Any, y: Any, folder: Path) -> None:
    arrays = {part: getattr(X, part) for part in PARTS} if sp.issparse(X) else {"dense": X}
    for name, array in {**arrays, "y": y}.items():
        np.save(folder / f"{name}.npy", array)


def load(folder: Path, layout: str, shape: tuple[int, int]) -> tuple[Any, Any]:
    def read(name: str) -> Any:
        return np.load(folder / f"{name}.npy")

    if (folder / "dense.npy").exists():
        return read("dense"), read("y")
    return LAYOUTS[layout][0](tuple(map(read, PARTS)), shape=shape), read("y")


def fit(folder: Path, layout: str, shape: tuple[int, int], task: str, options: dict[str, Any], whole: bool) -> None:
    """Fit in this process, and print the largest Gram matrix's side and the peak memory in bytes."""
    X, y = load(folder, layout, shape)
    model = model_of(task, X[:CORNER, :CORNER].copy(), y[:CORNER]).set_params(**options)
    model.fit(X[:CORNER, :CORNER].copy(), y[:CORNER])
    if whole:
        model.fit(X, y)
    side = (
        max(model.trace_["gram"] * model.trace_["working_set"]) if task == "lasso" else X.shape[1] * (task == "ridge")
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"side": float(side), "peak": peak}))


def measure(*arguments: Any) -> tuple[float, float]:
    """Return the bytes that a fit takes above its data, and those of its largest Gram matrix."""
    answers = []
    for whole in (False, True, False, True):  # the first of each may compile
        done = subprocess.run(
            [sys.executable, __file__, json.dumps([*arguments, whole])],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        answers.append(json.loads(done.stdout))
    return answers[3]["peak"] - answers[2]["peak"], 8.0 * answers[3]["side"] ** 2


def main(names: list[str]) -> None:
    print(f"{'data':<20}{'given by':<10}{'task':<14}{'data':>8}{'Gram':>8}{'fit':>8}{'allowed':>9}   (MB)")
    n_over = 0
    for name, make in DATA.items():
        if names and name not in names:
            continue
        try:
            X, y = make()
        except FileNotFoundError as missing:
            print(missing)
            continue
        y = np.where(y > np.median(y), 1.0, -1.0) if np.unique(y).size > 2 else y
        for layout, (sparse, dense) in LAYOUTS.items():
            X = sparse(X) if sp.issparse(X) else dense(X)
            size = sum(getattr(X, part).nbytes for part in PARTS) if sp.issparse(X) else X.nbytes
            for task in TASKS:
                wanted = model_of(task, X, y).get_params()
                options = {key: wanted[key] for key in ("alpha", "C") if key in wanted}
                with tempfile.TemporaryDirectory() as folder:
                    save(X, y, Path(folder))
                    peak, gram = measure(folder, layout, X.shape, task, options)
                allowed = 2 * size + gram
                n_over += peak > allowed
                numbers = "".join(f"{number / 1e6:>8.0f}" for number in (size, gram, peak))
                over = "   over" * (peak > allowed)
                print(f"{name:<20}{layout:<10}{task:<14}{numbers}{allowed / 1e6:>9.0f}{over}", flush=True)
    print(f"\nMore than twice the data and the Gram matrix: {n_over} rows")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):
        place, *others = json.loads(sys.argv[1])
        fit(Path(place), *others)
    else:
        main(sys.argv[1:])
