"""Peak memory of a fit beyond the data that it is given: at most twice the data and the Gram matrix of the working set.

Every fit has a process of its own, which reads prepared arrays and fits them once, so that all code is loaded. What is
freed goes back to the system at once there; then the highest memory during a second fit is compared to that before it
(Linux). One thread, lambda_max / 100.
"""

import ctypes
import json
import os
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
# One thread; and arrays from the system directly, so that a second fit finds nothing that the first has left, in pages
# of 4 kB: where the system has such of 2 MB, it rounds every large array up to these, by some MB in all.
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}


def strength(task: str, X: Any, y: Any) -> float:
    if task == "ridge":
        return 1.0
    loss = "squared" if task == "lasso" else "logistic"
    return ss.Problem(X, y, loss, ss.L1(1.0), fit_intercept=True).alpha_max() / 100


def model_of(task: str, alpha: float, n_samples: int) -> Any:
    if task == "logistic L1":
        return ss.LogisticRegression(C=1 / (alpha * n_samples), l1_ratio=1)
    return ss.Lasso(alpha) if task == "lasso" else ss.Ridge(alpha)


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


def memory(kind: str) -> int:
    """Bytes of this process: VmRSS, those now; VmHWM, the most since `forget`."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in status if line.startswith(kind))


def forget() -> None:
    """Give what is free back to the system, and let the highest memory be that of now."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def fit(folder: Path, layout: str, shape: tuple[int, int], task: str, alpha: float) -> None:
    """Fit in this process; print the bytes of the fit, and the side of the largest Gram matrix that it used."""
    X, y = load(folder, layout, shape)
    model_of(task, alpha, y.size).fit(X, y)
    forget()
    before = memory("VmRSS")
    model = model_of(task, alpha, y.size).fit(X, y)
    used = memory("VmHWM") - before
    trace = model.trace_
    side = max(trace["gram"] * trace["working_set"]) if task != "ridge" else 0.0
    print(json.dumps([used, float(side)]))


def measure(*arguments: Any) -> tuple[float, float]:
    """Return the bytes that a fit takes beyond its data, and those of its largest Gram matrix."""
    for _ in range(2):  # the first may compile
        done = subprocess.run(
            [sys.executable, __file__, json.dumps(arguments)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **SETTINGS},
        )
    used, side = json.loads(done.stdout)
    return used, 8.0 * side**2


def main(names: list[str]) -> None:
    if sys.platform != "linux":
        sys.exit("the highest memory of a part of a process is known on Linux only")
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
                with tempfile.TemporaryDirectory() as folder:
                    save(X, y, Path(folder))
                    used, gram = measure(folder, layout, X.shape, task, strength(task, X, y))
                allowed = 2 * size + gram
                n_over += used > allowed
                numbers = "".join(f"{number / 1e6:>8.1f}" for number in (size, gram, used))
                over = "   over" * (used > allowed)
                print(f"{name:<20}{layout:<10}{task:<14}{numbers}{allowed / 1e6:>9.1f}{over}", flush=True)
    print(f"\nRows with more than twice the data and the Gram matrix: {n_over}")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):
        place, *others = json.loads(sys.argv[1])
        fit(Path(place), *others)
    else:
        main(sys.argv[1:])
