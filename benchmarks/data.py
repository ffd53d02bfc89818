"""Data for the benchmarks: real sets where there are any, a generated bag of words where there are none."""

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("SURESTEP_DATA", ROOT.parent / "shared" / "data"))
CACHE = ROOT / ".cache" / "data"


def rcv1_subset() -> tuple[sp.csc_array, np.ndarray]:
    return _cached("rcv1_subset", lambda: load_svmlight_file(FOLDER / "rcv1_subset.binary.bz2", n_features=47236))


def a9a() -> tuple[sp.csc_array, np.ndarray]:
    return _cached("a9a", lambda: load_svmlight_file(FOLDER / "a9a.bz2", n_features=123))


def imdb_counts() -> tuple[sp.csc_array, np.ndarray]:
    path = FOLDER / "imdb_counts.npz"
    return sp.csc_array(sp.load_npz(path), dtype=float), np.load(path)["y"].astype(float)


def news20_bigram() -> tuple[sp.csc_array, np.ndarray]:
    path = FOLDER / "news20_bigram.binary.npz"
    return sp.csc_array(sp.load_npz(path), dtype=float), np.load(path)["y"].astype(float)


def madelon() -> tuple[np.ndarray, np.ndarray]:
    """Columns centred and scaled, as one would: their means are ten times their deviations."""
    X, y = _cached("madelon", lambda: load_svmlight_file(FOLDER / "madelon.bz2", n_features=500))
    X = X.toarray()
    return np.asfortranarray((X - X.mean(axis=0)) / X.std(axis=0)), y


def dense_gaussian(n_samples: int = 20_000, n_features: int = 2_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make columns with correlations 0.6^|i - j|, and targets from 50 of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_features, n_samples))
    for j in range(1, n_features):
        X[j] = 0.6 * X[j - 1] + 0.8 * X[j]
    rule = np.zeros(n_features)
    rule[rng.choice(n_features, 50, replace=False)] = rng.normal(size=50)
    score = rule @ X
    return X.T, score + 0.5 * score.std() * rng.normal(size=n_samples)


def most_frequent(X: sp.csc_array, y: np.ndarray, n_features: int) -> tuple[sp.csc_array, np.ndarray]:
    """Keep the columns with the most entries."""
    return X[:, np.sort(np.argsort(-np.diff(X.indptr))[:n_features])], y


def with_ones(X: sp.csc_array, y: np.ndarray) -> tuple[sp.csc_array, np.ndarray]:
    """Set all non-zeros to 1, as the paper does."""
    X = X.copy()
    X.data[:] = 1.0
    return X, y


def bag_of_words(n_samples: int = 10_000, n_features: int = 10_000, seed: int = 0) -> tuple[sp.csc_array, np.ndarray]:
    """Make documents of about 30 words drawn by Zipf's law, labelled by a sparse linear rule with noise."""
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(10, n_features + 10)
    lengths = rng.poisson(30, n_samples) + 1
    columns = rng.choice(n_features, lengths.sum(), p=p / p.sum())
    rows = np.repeat(np.arange(n_samples), lengths)
    X = sp.csc_array((np.ones(rows.size), (rows, columns)), shape=(n_samples, n_features))
    X.sum_duplicates()
    rule = np.where(rng.random(n_features) < 0.05, rng.normal(size=n_features), 0.0)
    score = X @ rule
    return X, np.where(score + score.std() * rng.normal(size=n_samples) > np.median(score), 1.0, -1.0)


def primed(X: sp.csc_array, y: np.ndarray, seed: int = 0) -> tuple[sp.csc_array, np.ndarray]:
    """Make the paper's primed version: 10,000 random rows and columns, all non-zeros set to 1."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(X.shape[0], min(10_000, X.shape[0]), replace=False)
    columns = rng.choice(X.shape[1], min(10_000, X.shape[1]), replace=False)
    X = sp.csc_array(sp.csr_array(X)[rows][:, columns])
    X.data[:] = 1.0
    return X, y[rows]


def named() -> dict[str, tuple[sp.csc_array, np.ndarray]]:
    """Primed versions of the bag-of-words sets at hand; the name says what they are."""
    if not (FOLDER / "rcv1_subset.binary.bz2").exists():
        print(f"No data in {FOLDER} (set SURESTEP_DATA): a generated bag of words stands in.\n")
        return {"generated": primed(*bag_of_words())}
    return {"rcv1_subset'": primed(*rcv1_subset()), "imdb_counts'": primed(*imdb_counts())}


def _cached(name: str, load) -> tuple[sp.csc_array, np.ndarray]:
    """Keep what parsing a compressed text file gave: it takes seconds."""
    path = CACHE / f"{name}.npz"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        X, y = load()
        sp.save_npz(path, sp.csc_array(X))
        np.save(path.with_suffix(".npy"), y)
    return sp.csc_array(sp.load_npz(path)), np.load(path.with_suffix(".npy"))
