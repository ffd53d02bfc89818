"""Data that needs no file: a seeded bag of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray


def make_bag_of_words(
    n_samples: int = 10_000,
    n_features: int = 10_000,
    *,
    n_words: float = 30.0,
    noise: float = 1.0,
    random_state: int | np.random.Generator = 0,
) -> tuple[Any, NDArray[np.float64]]:
    """Make documents of words drawn by Zipf's law, labelled by a sparse linear rule with noise.

    The k-th word has probability in proportion to 1 / (k + 10); a word in twenty counts for the label, which is the
    sign of the document's score, noise added, against the median score.

    Parameters
    ----------
    n_samples, n_features : int
        Documents, and words there are.
    n_words : float
        Mean length of a document, less one: lengths are 1 and a Poisson number, repeated words counted.
    noise : float
        Standard deviation of the noise, in those of the scores; 0 makes the labels a function of the counts.
    random_state : int or numpy Generator
        The same number gives the same data.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features)
        Counts of words, float64.
    y : ndarray of shape (n_samples,)
        Labels -1 and +1.
    """
    rng = np.random.default_rng(random_state)
    p = 1.0 / np.arange(10, n_features + 10)
    lengths = rng.poisson(n_words, n_samples) + 1
    columns = rng.choice(n_features, lengths.sum(), p=p / p.sum())
    rows = np.repeat(np.arange(n_samples), lengths)
    entries = np.ones(rows.size), (rows.astype(np.int32), columns.astype(np.int32))  # what scikit-learn accepts
    X = scipy.sparse.csr_array(entries, shape=(n_samples, n_features))
    X.sum_duplicates()
    rule = np.where(rng.random(n_features) < 0.05, rng.normal(size=n_features), 0.0)
    score = X @ rule
    noisy = score + noise * score.std() * rng.normal(size=n_samples)
    return X, np.where(noisy > np.median(score), 1.0, -1.0)
