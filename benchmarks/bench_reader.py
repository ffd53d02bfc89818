"""Seconds to read svmlight files: surestep's reader against scikit-learn's, in turns, the best of five; one thread."""

import bz2
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from data import FOLDER
from sklearn.datasets import load_svmlight_file

from surestep.datasets import load_svmlight, make_bag_of_words, save_svmlight


def best(*functions: Callable[[], object], repeats: int = 5) -> list[float]:
    """Least seconds of each function; in turns, as the machine may be busy at any moment."""
    seconds = np.full(len(functions), np.inf)
    for _ in range(repeats):
        for k, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            seconds[k] = min(seconds[k], time.perf_counter() - begin)
    return seconds.tolist()


def compare(what: str, path: Path) -> None:
    ours, theirs = load_svmlight(path), load_svmlight_file(str(path))  # compiles, and warms the disk
    assert (ours[0] != theirs[0]).nnz == 0
    assert (ours[1] == theirs[1]).all()
    load_svmlight(path, cache=True)
    mine, sklearn, cached = best(
        lambda: load_svmlight(path), lambda: load_svmlight_file(str(path)), lambda: load_svmlight(path, cache=True)
    )
    size = path.stat().st_size / 1e6
    print(
        f"{what:<34}{size:>8.1f}{sklearn:>14.3f}{mine:>10.3f}{sklearn / mine:>8.1f}{size / mine:>8.0f}{cached:>10.3f}"
    )


def main() -> None:
    print(f"{'file':<34}{'MB':>8}{'scikit-learn':>14}{'surestep':>10}{'ratio':>8}{'MB/s':>8}{'cached':>10}   (seconds)")
    with tempfile.TemporaryDirectory() as folder:
        compressed, plain = FOLDER / "rcv1_subset.binary.bz2", Path(folder) / "plain"
        if compressed.exists():
            plain.write_bytes(bz2.decompress(compressed.read_bytes()))
            compare("rcv1_subset, plain", plain)
            compare("rcv1_subset, bz2", compressed)
        X, y = make_bag_of_words(20_000, 50_000, n_words=75)
        save_svmlight(X, y, plain)
        compare("generated counts, plain", plain)
        X.data = np.random.default_rng(0).random(X.nnz)
        save_svmlight(X, y, plain)
        compare("generated, 17 digits, plain", plain)


if __name__ == "__main__":
    main()
