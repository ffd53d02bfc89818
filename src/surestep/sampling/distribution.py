"""From bounds on the gradient to a sampling distribution and its certificates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep.sampling import safe
from surestep.sampling.competitive import hindsight_bound

Array = NDArray[np.float64]

# A lower bound may exceed its upper bound by this factor, from rounding; both then become their midpoint.
_CROSSING = 1.0 + 8.0 * np.finfo(np.float64).eps

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, eq=False, repr=False)
class Sampling:
    """A sampling distribution over coordinates, with what is certain about it.

    The quantities are those of eq. 7 of the paper: with V(p, c) = sum_i L_i c_i^2 / p_i and C the box of all c with
    lower <= c <= upper,

        v = min_p max_{c in C} V(p, c) / ||c||^2 .

    Where a number is beyond the largest float, that float stands for it in `level` and `worst_case`.

    Attributes
    ----------
    lower, upper, smoothness : ndarray of shape (n,)
        The bounds and the L_i that the sampling was made from; read-only copies.
    """

    _solution: safe.Solution
    lower: Array
    upper: Array
    smoothness: Array

    def __repr__(self) -> str:
        return (
            f"Sampling(n={self.lower.size}, value={self.value:.6g}, gain={self.gain:.6g}, converged={self.converged})"
        )

    @property
    def probabilities(self) -> Array:
        """The distribution p. Zero only where the upper bound is zero, or where p_i is below the smallest float."""
        return self._solution.probabilities

    @property
    def value(self) -> float:
        """The v of eq. 7, the worst case of V(p, c) / ||c||^2 over the box; between min(L) and Tr(L) = sum L_i."""
        return self._solution.value

    @property
    def level(self) -> float:
        """The m of Theorem 3.4: c_i = sqrt(L_i) m wherever the bounds allow it.

        Where every level in an interval gives the same distribution, it is one of them.
        """
        with np.errstate(over="ignore"):
            level = float(np.ldexp(self._solution.level, self._solution.level_exponent))
        return min(level, _LARGEST)

    @cached_property
    def worst_case(self) -> Array:
        """The c in the box for which V(p, c) / ||c||^2 attains v, and for which p is the optimal sampling."""
        with np.errstate(over="ignore"):
            free = np.ldexp(np.sqrt(self.smoothness) * self._solution.level, self._solution.level_exponent)
        return np.clip(np.minimum(free, _LARGEST), self.lower, self.upper)

    @property
    def converged(self) -> bool:
        """Whether every upper bound is zero: the gradient is zero and there is nothing to sample.

        The distribution is then fixed importance sampling, so that code that does not look still works.
        """
        return not self.upper.any()

    @property
    def stepsize(self) -> float:
        """1 / v, the alpha of eq. 7: the step along coordinate i is alpha / p_i times the gradient entry."""
        return 1.0 / self.value

    @property
    def gain(self) -> float:
        """Tr(L) / v >= 1: the factor by which the guaranteed progress exceeds that of fixed importance sampling."""
        with np.errstate(over="ignore"):
            return max(float(np.sum(self.smoothness / self.value)), 1.0)

    @cached_property
    def competitive_ratio(self) -> float:
        """An upper bound on rho, the factor to the best sampling in hindsight, whatever c in the box is the true one.

        rho = max_{c in C} V(p, c) / min_q V(q, c). The bound is 1 at full information, never above value / min(L), and
        never above those of Lemmas 3.5 and 3.6. Computed on first use, in O(n).
        """
        if self.converged:
            return 1.0
        hindsight: float = hindsight_bound(self.probabilities, self.worst_case, self.lower, self.upper)
        smallest = float(np.min(self.smoothness, where=self.upper > 0.0, initial=np.inf))
        return max(min(hindsight, self.value / smallest), 1.0)


def safe_sampling(lower: ArrayLike, upper: ArrayLike, smoothness: ArrayLike | None = None) -> Sampling:
    """Compute the provably best sampling for gradient magnitudes known only to lie between bounds (eq. 7).

    Parameters
    ----------
    lower, upper : array-like of shape (n,)
        0 <= lower_i <= c_i <= upper_i <= inf, where c_i is the absolute value of the i-th gradient entry (coordinate
        descent) or the norm of the i-th gradient (SGD). A lower bound that exceeds its upper bound by a few ulp is
        taken for rounding, and both become their midpoint.
    smoothness : array-like of shape (n,), optional
        Coordinate-wise Lipschitz constants L_i > 0 of the gradient; ones by default.

    Returns
    -------
    Sampling
        The distribution, the stepsize that goes with it, and their certificates.

    Notes
    -----
    Exact to a few ulp and solved without a sort, in O(n): see `surestep.sampling.safe`. Theorem 3.2: in the worst case
    over all c within the bounds no distribution is better, and for none of them is it worse than fixed importance
    sampling.

    Examples
    --------
    The bounds of the paper's Example 3.1:

    >>> import surestep as ss
    >>> s = ss.safe_sampling([1, 2], [2, 3])
    >>> s.probabilities
    array([0.5, 0.5])
    >>> s.value, s.stepsize, s.gain
    (2.0, 0.5, 1.0)

    The more is known, the larger the steps:

    >>> s = ss.safe_sampling([0, 0, 9], [1, 1, 10])
    >>> s.probabilities.round(3)
    array([0.091, 0.091, 0.818])
    >>> round(s.gain, 2)
    2.06
    """
    low, high, curvature = _checked(lower=lower, upper=upper, smoothness=smoothness)
    return _solved(low, high, curvature)


def optimal_sampling(gradient: ArrayLike, smoothness: ArrayLike | None = None) -> Sampling:
    """Compute the best sampling when the whole gradient is known: p_i ~ sqrt(L_i) |gradient_i| (Example 2.3).

    Examples
    --------
    >>> import surestep as ss
    >>> ss.optimal_sampling([3, 0, -1]).probabilities
    array([0.75, 0.  , 0.25])
    """
    magnitude = np.abs(as_vector("gradient", gradient))
    _, _, curvature = _checked(gradient=magnitude, upper=magnitude, smoothness=smoothness)
    return _solved(magnitude, magnitude, curvature)


def importance_sampling(smoothness: ArrayLike) -> Sampling:
    """Compute fixed importance sampling, p_i = L_i / Tr(L) (Example 2.2): the best when nothing is known.

    Examples
    --------
    >>> import surestep as ss
    >>> ss.importance_sampling([1, 3]).probabilities
    array([0.25, 0.75])
    """
    curvature = as_vector("smoothness", smoothness)
    nothing, anything = np.zeros_like(curvature), np.full_like(curvature, np.inf)
    return _solved(*_checked(lower=nothing, upper=anything, smoothness=curvature))


def uniform_sampling(n: int) -> Sampling:
    """Compute uniform sampling over n coordinates, p_i = 1/n: importance sampling when all L_i are one.

    Examples
    --------
    >>> import surestep as ss
    >>> ss.uniform_sampling(4).probabilities
    array([0.25, 0.25, 0.25, 0.25])
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return importance_sampling(np.ones(n))


def _solved(lower: Array, upper: Array, smoothness: Array) -> Sampling:
    solution = safe.solve(lower, upper, smoothness)
    for array in (solution.probabilities, lower, upper, smoothness):
        array.flags.writeable = False
    return Sampling(solution, lower, upper, smoothness)


def _checked(**arguments: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Return (lower, upper, smoothness) as float64 arrays of their own, or say what is wrong with them.

    The keywords name the arguments as the caller knows them, in this order.
    """
    names = list(arguments)
    lower, upper = (as_vector(name, arguments[name]) for name in names[:2])
    smoothness = np.ones_like(lower) if arguments[names[2]] is None else as_vector(names[2], arguments[names[2]])
    for name, vector in zip(names[1:], (upper, smoothness), strict=True):
        if vector.size != lower.size:
            raise ValueError(f"{name} has {vector.size} entries, {names[0]} has {lower.size}; they must be as many")
    invalid, crossed = safe.check(lower, upper, smoothness, _CROSSING)
    if invalid >= 0:
        raise ValueError(_what_is_wrong(names, lower[invalid], upper[invalid], smoothness[invalid], invalid))
    if crossed:
        middle = lower + 0.5 * (upper - lower)
        lower, upper = np.where(lower > upper, middle, lower), np.where(lower > upper, middle, upper)
    return lower, upper, smoothness


def _what_is_wrong(names: list[str], lower: float, upper: float, smoothness: float, i: int) -> str:
    """Say which rule the coordinate i breaks."""
    for name, number in zip(names, (lower, upper, smoothness), strict=True):
        if np.isnan(number):
            return f"{name}[{i}] is NaN"
    if not 0.0 < smoothness < np.inf:
        return f"{names[2]}[{i}] is {smoothness}; it must be positive and finite"
    if lower < 0.0 or upper < 0.0:
        name, number = (names[0], lower) if lower < 0.0 else (names[1], upper)
        return f"{name}[{i}] is {number}; bounds on an absolute value cannot be negative"
    if lower == np.inf:
        return f"{names[0]}[{i}] is inf; it must be finite"
    return f"{names[0]}[{i}] is {lower} and exceeds {names[1]}[{i}], {upper}, by more than rounding"


def as_vector(name: str, values: Any) -> Array:
    """Return a float64 copy of a one-dimensional array-like of real numbers."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "fiubO":
            raise TypeError(f"its dtype is {given.dtype}")
        vector = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from error
    if vector.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {vector.shape}")
    if vector.size == 0:
        raise ValueError(f"{name} is empty")
    return vector


def check_entries(name: str, vector: Array, valid: NDArray[np.bool_], rule: str) -> None:
    """Raise a ValueError that names the first entry that is not valid."""
    if not valid.all():
        i = int(np.argmin(valid))
        raise ValueError(f"{name}[{i}] is {vector[i]}; it {rule}")
