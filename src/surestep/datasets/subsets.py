"""The paper's versions of a data set (section 6): non-zeros set to 1, random rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike


def with_ones(X: Any) -> Any:
    """Return a copy of X with all non-zeros set to 1, as the paper does with every data set (bag of words)."""
    if not scipy.sparse.issparse(X):
        return (np.asarray(X) != 0.0).astype(np.float64)
    X = scipy.sparse.csr_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    X.data = np.ones(X.nnz)
    return X


def subset(
    X: Any,
    y: ArrayLike,
    n_samples: int | float = 10_000,
    n_features: int | float = 10_000,
    *,
    random_state: int | np.random.Generator = 0,
) -> tuple[Any, Any]:
    """Choose rows and columns at random, in the order they are drawn.

    The defaults make the paper's real-sim' and rcv1' of these sets; news20' is ``subset(X, y, 0.15, 0.15)``. In all of
    them the non-zeros are 1: see `with_ones`.

    Parameters
    ----------
    X : array-like or sparse, shape (n, d)
    y : array-like of shape (n,)
    n_samples, n_features : int or float
        How many rows and columns, all if there are not as many; a float between 0 and 1 is a part of them.
    random_state : int or numpy Generator
        The same number gives the same subset.

    Returns
    -------
    X : csr_array or ndarray
    y : ndarray
    """
    rng = np.random.default_rng(random_state)
    X = scipy.sparse.csr_array(X) if scipy.sparse.issparse(X) else np.asarray(X)
    rows = rng.choice(X.shape[0], _count("n_samples", n_samples, X.shape[0]), replace=False)
    columns = rng.choice(X.shape[1], _count("n_features", n_features, X.shape[1]), replace=False)
    return X[rows][:, columns], np.asarray(y)[rows]


def _count(name: str, wanted: int | float, available: int) -> int:
    if isinstance(wanted, float):
        if not 0.0 < wanted <= 1.0:
            raise ValueError(f"{name} must be a count (int) or a part between 0 and 1 (float), but is {wanted}")
        return round(wanted * available)
    if wanted < 1:
        raise ValueError(f"{name} must be at least 1, but is {wanted}")
    return min(wanted, available)
