"""Data for the benchmarks: real sets where there are any, a generated bag of words where there are none."""

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from surestep.datasets import load_dataset, with_ones

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("SURESTEP_DATA", ROOT.parent / "shared" / "data"))


def real(name: str) -> tuple[sp.csc_array, np.ndarray]:
    """A set of the folder by name; with a prime, the paper's version of it."""
    data = load_dataset(name, data=FOLDER)
    return sp.csc_array(data.X), data.y


def ones(name: str) -> tuple[sp.csc_array, np.ndarray]:
    """A set of the folder with all non-zeros set to 1, as the paper does."""
    X, y = real(name)
    return sp.csc_array(with_ones(X)), y


def imdb_tfidf() -> tuple[sp.csc_array, np.ndarray]:
    """Tf-idf of the counts, with logarithmic term frequencies and unit rows."""
    X, y = real("imdb_counts")
    return sp.csc_array(TfidfTransformer(sublinear_tf=True).fit_transform(sp.csr_matrix(X))), y


def leu() -> tuple[np.ndarray, np.ndarray]:
    X, y = real("leu")
    return np.asfortranarray(X.toarray()), y


def madelon() -> tuple[np.ndarray, np.ndarray]:
    """Columns centred and scaled, as one would: their means are ten times their deviations."""
    X, y = real("madelon")
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


def named() -> dict[str, tuple[sp.csc_array, np.ndarray]]:
    """Primed versions of the bag-of-words sets at hand; the name says what they are."""
    if not (FOLDER / "rcv1_subset.binary.bz2").exists():
        print(f"No data in {FOLDER} (set SURESTEP_DATA): a generated bag of words stands in.\n")
        return {"generated": real("bag_of_words'")}
    return {"rcv1_subset'": real("rcv1_subset.binary'"), "imdb_counts'": real("imdb_counts'")}
