"""What a problem asks of the vectors it is made of, and of the numbers it computes from them first."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def checked_vector(name: str, values: ArrayLike, length: int) -> Array:
    """Check that the values are real and as many as they should be; return them as contiguous float64."""
    array = np.asarray(values)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), but has shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, but has dtype {array.dtype}; encode labels as numbers first")
    return np.ascontiguousarray(array, dtype=np.float64)


def refuse(name: str, array: Array, bad: Array, reason: str) -> None:
    """Raise an error that names the first bad entry, if there is one."""
    if np.any(bad):
        at = np.flatnonzero(bad)[0]
        raise ValueError(f"{name}[{at}] is {array[at]}; {reason}")


def shares(sample_weight: ArrayLike | None, n_samples: int) -> Array:
    """Weights that sum to one."""
    if sample_weight is None:
        return np.full(n_samples, 1.0 / n_samples)
    weights = checked_vector("sample_weight", sample_weight, n_samples)
    bad = ~(np.isfinite(weights) & (weights >= 0.0))
    refuse("sample_weight", weights, bad, "weights must be finite and >= 0; a sample of weight 0 is left out")
    if not np.any(weights):
        raise ValueError("sample_weight is 0 for every sample; at least one must be positive")
    weights = weights / np.max(weights)  # first, so that the sum cannot overflow
    return np.asarray(weights / np.sum(weights))


def finite_norms(norms: Array) -> Array:
    """Refuse columns whose squares overflow: nothing could be certified of them."""
    if not np.isfinite(norms).all():
        j = int(np.argmin(np.isfinite(norms)))
        raise ValueError(f"the squares of column {j} of X add up to more than float64 holds; scale it down")
    return norms


def finite_objective(at_zero: float) -> float:
    """Refuse targets whose losses overflow: tolerances are relative to that at zero."""
    if not math.isfinite(at_zero):
        raise ValueError("the losses of y at x = 0 add up to more than float64 holds; scale y down")
    return at_zero
