"""Regularizers: what a coefficient costs, and where it may lie.

All of them are one thing, a separable function of the coefficients,

    psi(x) = sum_j psi_j(x_j),    psi_j(x) = l1_j |x| + l2_j / 2 x^2,    lower_j <= x <= upper_j,

so there is one class, :class:`Regularizer`, with a few named ways to make it, and regularizers can be added:
``L1(0.1) + NonNegative()``. Kernels work with its bound form, the NamedTuple :class:`Separable`, through the generics
below. A regularizer of your own is a NamedTuple with the same generics registered, and a ``bind`` method that makes it.
"""

# mypy: allow-untyped-defs
# (Numba wants a registered implementation to have the signature of its generic's template, which has no annotations.)

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surestep._jit import generic, jit
from surestep.losses import EDGE

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Separable(NamedTuple):
    """A regularizer bound to its coordinates: four float64 arrays of length n_coordinates, lower <= 0 <= upper."""

    l1: Array
    l2: Array
    lower: Array
    upper: Array

    def at(self, members: Any) -> Separable:
        """Return that of some coordinates, not to be written to as the whole is not: one compiled version for both."""
        part = Separable(*(array[members] for array in self))
        for array in part:
            array.flags.writeable = False
        return part


@dataclass(frozen=True, eq=False, repr=False)
class Regularizer:
    """Separable penalty l1 * sum_j v_j |x_j| + l2 / 2 * sum_j w_j x_j^2, with bounds lower <= x <= upper.

    Usually made by one of its named forms, and by adding those.

    Parameters
    ----------
    l1, l2 : float
        Strengths, finite and >= 0.
    l1_weights, l2_weights : array of shape (n_features,), optional
        The weights v and w of the single coefficients, finite and >= 0; all ones by default. A coefficient of weight 0
        is not penalised.
    lower, upper : float or array of shape (n_features,)
        Bounds, lower <= 0 <= upper: solvers start at x = 0, so 0 must be allowed.
    """

    l1: float = 0.0
    l2: float = 0.0
    l1_weights: Array | None = None
    l2_weights: Array | None = None
    lower: float | Array = -math.inf
    upper: float | Array = math.inf

    def __post_init__(self) -> None:
        self._set("l1", _strength("l1", self.l1))
        self._set("l2", _strength("l2", self.l2))
        self._set("l1_weights", _weights(self.l1_weights))
        self._set("l2_weights", _weights(self.l2_weights))
        self._set("lower", _bound("lower", self.lower, -1.0))
        self._set("upper", _bound("upper", self.upper, 1.0))
        _ = self._length  # is there one?

    @property
    def alpha(self) -> float:
        """Total strength l1 + l2: the ``alpha`` of L1, of L2 and of ElasticNet."""
        return self.l1 + self.l2

    @property
    def l1_ratio(self) -> float:
        """Share of l1 in the total strength (0 without a penalty)."""
        return self.l1 / self.alpha if self.alpha > 0.0 else 0.0

    @property
    def is_uniform(self) -> bool:
        """Whether it is the same for all coefficients."""
        return self._length is None

    def __add__(self, other: Regularizer) -> Regularizer:
        if not isinstance(other, Regularizer):
            return NotImplemented
        lengths = self._length, other._length
        if None not in lengths and lengths[0] != lengths[1]:
            raise ValueError(f"{self!r} is for {lengths[0]} features, {other!r} for {lengths[1]}: they cannot be added")
        l1, l1_weights = _sum_of(self.l1, self.l1_weights, other.l1, other.l1_weights)
        l2, l2_weights = _sum_of(self.l2, self.l2_weights, other.l2, other.l2_weights)
        return Regularizer(
            l1, l2, l1_weights, l2_weights, np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper)
        )

    def scaled(self, factor: float) -> Regularizer:
        """Return the same regularizer with l1 and l2 multiplied by a factor >= 0; the bounds stay."""
        factor, other = _strength("factor", factor), copy.copy(self)  # its weights and bounds are known to be good
        other._set("l1", _strength("l1", factor * self.l1))
        other._set("l2", _strength("l2", factor * self.l2))
        return other

    def bind(
        self, n_features: int, fit_intercept: bool, other: tuple[Regularizer, Separable] | None = None
    ) -> Separable:
        """Spread the regularizer over its coordinates; an intercept, the last of them, is free.

        Arrays that are the same as those of an ``other`` regularizer, spread over the same coordinates, are shared.
        """
        length = self._length
        if length not in (None, n_features):
            raise ValueError(
                f"regularizer {self!r} has weights or bounds for {length} features, but X has {n_features} features"
            )

        def spread(name: str, value: float | Array, of_intercept: float) -> Array:
            if other is not None and self._has(name, other[0]):
                return np.asarray(getattr(other[1], name))
            array = np.empty(n_features + fit_intercept)
            array[:n_features], array[n_features:] = value, of_intercept
            array.flags.writeable = False
            return array

        return Separable(
            spread("l1", self.l1 * _ones(self.l1_weights), 0.0),
            spread("l2", self.l2 * _ones(self.l2_weights), 0.0),
            spread("lower", self.lower, -math.inf),
            spread("upper", self.upper, math.inf),
        )

    def _has(self, name: str, other: Regularizer) -> bool:
        """Whether it has the same strength with the same weights, or the same bound, as another."""
        own, others = getattr(self, name), getattr(other, name)
        if name in ("l1", "l2") and getattr(self, f"{name}_weights") is not getattr(other, f"{name}_weights"):
            return False
        return own is others or (np.ndim(own) == np.ndim(others) == 0 and bool(own == others))

    def __repr__(self) -> str:
        parts = []
        if self.l1 > 0.0 and self.l2 > 0.0 and _same(self.l1_weights, self.l2_weights):
            parts.append(
                f"ElasticNet({self.alpha:.12g}, l1_ratio={self.l1_ratio:.12g}{_shown_weights(self.l1_weights)})"
            )
        else:
            if self.l1 > 0.0:
                parts.append(f"L1({self.l1:.12g}{_shown_weights(self.l1_weights)})")
            if self.l2 > 0.0:
                parts.append(f"L2({self.l2:.12g}{_shown_weights(self.l2_weights)})")
        if np.ndim(self.lower) == np.ndim(self.upper) == 0 and self.lower == 0.0 and self.upper == math.inf:
            parts.append("NonNegative()")
        elif np.any(np.isfinite(self.lower)) or np.any(np.isfinite(self.upper)):
            parts.append(f"Box({_shown_bound(self.lower)}, {_shown_bound(self.upper)})")
        return " + ".join(parts) or "NoPenalty()"

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @cached_property
    def _length(self) -> int | None:
        """Return the one length of the arrays among the fields, None without arrays."""
        fields = {name: getattr(self, name) for name in ("l1_weights", "l2_weights", "lower", "upper")}
        lengths = {name: len(field) for name, field in fields.items() if np.ndim(field) == 1}
        if len(set(lengths.values())) > 1:
            described = ", ".join(f"{name} for {length}" for name, length in lengths.items())
            raise ValueError(f"weights and bounds must be for one number of features, but are: {described}")
        return next(iter(lengths.values()), None)


def bound(regularizer: Any, n_features: int, fit_intercept: bool, before: tuple[Any, Any]) -> Any:
    """Spread a regularizer over its coordinates; what it has in common with the one ``before`` is shared."""
    if not hasattr(regularizer, "bind") or isinstance(regularizer, type):
        raise ValueError(f"regularizer must be one such as L1(0.1), or None, but is {regularizer!r}")
    if isinstance(regularizer, Regularizer) and isinstance(before[0], Regularizer):
        return regularizer.bind(n_features, fit_intercept, before)
    return regularizer.bind(n_features, fit_intercept)


class NoPenalty(Regularizer):
    """No penalty and no bounds: psi(x) = 0."""

    def __init__(self) -> None:
        super().__init__()


class L1(Regularizer):
    """alpha * ||x||_1; with weights, alpha * sum_j weights_j |x_j|."""

    def __init__(self, alpha: float, weights: ArrayLike | None = None) -> None:
        super().__init__(l1=_strength("alpha", alpha), l1_weights=_weights(weights))


class L2(Regularizer):
    """alpha / 2 * ||x||^2; with weights, alpha / 2 * sum_j weights_j x_j^2."""

    def __init__(self, alpha: float, weights: ArrayLike | None = None) -> None:
        super().__init__(l2=_strength("alpha", alpha), l2_weights=_weights(weights))


class ElasticNet(Regularizer):
    """alpha * (l1_ratio * ||x||_1 + (1 - l1_ratio) / 2 * ||x||^2), as in scikit-learn; weights multiply both terms."""

    def __init__(self, alpha: float, l1_ratio: float = 0.5, weights: ArrayLike | None = None) -> None:
        alpha, shared = _strength("alpha", alpha), _weights(weights)
        if not 0.0 <= l1_ratio <= 1.0:
            raise ValueError(f"l1_ratio must lie between 0 and 1, but is {l1_ratio}")
        super().__init__(alpha * l1_ratio, alpha * (1.0 - l1_ratio), shared, shared)


class NonNegative(Regularizer):
    """The bound x >= 0."""

    def __init__(self) -> None:
        super().__init__(lower=0.0)


class Box(Regularizer):
    """The bounds lower <= x <= upper, numbers or arrays of shape (n_features,), which must contain 0."""

    def __init__(self, lower: ArrayLike, upper: ArrayLike) -> None:
        super().__init__(lower=_bound("lower", lower, -1.0), upper=_bound("upper", upper, 1.0))


def _strength(name: str, value: Any) -> float:
    is_number = isinstance(value, float) or (np.ndim(value) == 0 and np.isreal(value))
    if not (is_number and 0.0 <= value < math.inf):
        raise ValueError(f"{name} must be a finite number >= 0, but is {value!r}")
    return float(value)


def _weights(weights: ArrayLike | None) -> Array | None:
    if weights is None:
        return None
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 1:
        raise ValueError(f"weights must be of shape (n_features,), but have shape {weights.shape}")
    _refuse("weights", weights, ~(np.isfinite(weights) & (weights >= 0.0)), "weights must be finite and >= 0")
    return _frozen(weights)


def _bound(name: str, bound: ArrayLike, side: float) -> float | Array:
    bound = np.asarray(bound, dtype=np.float64)
    if bound.ndim > 1:
        raise ValueError(f"{name} must be a number or of shape (n_features,), but has shape {bound.shape}")
    relation = "<=" if side < 0.0 else ">="
    _refuse(name, bound, ~(side * bound >= 0.0), f"{name} must be {relation} 0, because solvers start at x = 0")
    return _frozen(bound) if bound.ndim == 1 else float(bound)


def _refuse(name: str, array: Array, bad: Any, reason: str) -> None:
    """Raise an error that names the first bad entry, if there is one."""
    if np.any(bad):
        at = np.flatnonzero(bad)[0]
        where = f"{name}[{at}]" if array.ndim else name
        raise ValueError(f"{where} is {array.flat[at]}; {reason}")


def _frozen(array: Array) -> Array:
    """Return a read-only copy, or the array itself if it is read-only already."""
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _ones(weights: Array | None) -> float | Array:
    return 1.0 if weights is None else weights


def _same(v: Array | None, w: Array | None) -> bool:
    return bool(np.array_equal(_ones(v), _ones(w)))


def _sum_of(a: float, v: Array | None, b: float, w: Array | None) -> tuple[float, Array | None]:
    """Strength and weights of a * v + b * w."""
    if b == 0.0 or _same(v, w):
        return a + b, v
    if a == 0.0:
        return b, w
    return a + b, np.asarray((a * _ones(v) + b * _ones(w)) / (a + b))


def _shown_weights(weights: Array | None) -> str:
    return "" if weights is None else f", weights=<{weights.size} values>"


def _shown_bound(bound: float | Array) -> str:
    return f"<{bound.size} values>" if isinstance(bound, np.ndarray) else f"{bound:.12g}"


# --- Kernel form


@generic
def penalty(reg: Any, j: Any, x: Any) -> Any:
    """psi_j(x) for an x within the bounds; the bounds are not looked at, since solvers never leave them."""


@generic
def prox(reg: Any, j: Any, v: Any, step: Any) -> Any:
    """argmin_x psi_j(x) + (x - v)^2 / (2 step), for a finite step > 0."""


@generic
def gradient_step(reg: Any, j: Any, x: Any, g: Any, step: Any) -> Any:
    """argmin_y phi_j(y) + (y - x + step (g + psi'_j(x)))^2 / (2 step), where psi' is the quadratic part, phi the rest.

    The ridge term counts as smooth: with step = 1 / (L_j + l2_j) this is the minimiser along the coordinate.
    """


@generic
def min_subgradient(reg: Any, j: Any, x: Any, g: Any) -> Any:
    """Element of g + subdifferential of psi_j at x that is smallest in absolute value, with its sign.

    Its absolute value is the c_j of the paper: zero if and only if coordinate j is optimal. It never falls as g rises.
    """


@generic
def signed_distance(reg: Any, j: Any, x: Any, g: Any) -> Any:
    """How far g lies outside the range where coordinate j is optimal at x; negative inside, by the distance to its end.

    max(signed_distance, 0) is abs(min_subgradient). It changes by no more than g does, so that minus its value is how
    far g may drift before coordinate j is no longer certified optimal.
    """


@generic
def magnitude_bounds(reg: Any, j: Any, x: Any, lo: Any, hi: Any) -> Any:
    """Range (l, u) of abs(min_subgradient(reg, j, x, g)) over lo <= g <= hi, which may be infinite.

    Both ends are attained, so nothing sharper follows from the interval. u = 0 certifies that coordinate j is optimal.
    """


@generic
def penalty_conjugate(reg: Any, j: Any, v: Any) -> Any:
    """psi_j*(v) = sup_x v x - psi_j(x): infinite outside its domain, up to a few ulp of rounding."""


@generic
def feasible_scale(reg: Any, j: Any, v: Any) -> Any:
    """Largest tau in [0, 1] for which psi_j*(tau v) is finite."""


@penalty.register(Separable)
def _(reg, j, x):
    return reg.l1[j] * abs(x) + 0.5 * reg.l2[j] * x * x


@prox.register(Separable)
def _(reg, j, v, step):
    shrunk = max(abs(v) - step * reg.l1[j], 0.0) / (1.0 + step * reg.l2[j])
    x = shrunk if v > 0.0 else 0.0 - shrunk  # a subtraction, so that zero is never -0.0
    return min(max(x, reg.lower[j]), reg.upper[j])


@gradient_step.register(Separable)
def _(reg, j, x, g, step):
    v = x - step * (g + reg.l2[j] * x)
    shrunk = max(abs(v) - step * reg.l1[j], 0.0)
    y = shrunk if v > 0.0 else 0.0 - shrunk
    return min(max(y, reg.lower[j]), reg.upper[j])


@jit
def _subdifferential(reg: Separable, j: int, x: float, g: float) -> tuple[float, float]:
    """Ends of the interval g + subdifferential of psi_j at x."""
    smooth = g + reg.l2[j] * x
    least = smooth + reg.l1[j] if x > 0.0 else smooth - reg.l1[j]
    greatest = smooth - reg.l1[j] if x < 0.0 else smooth + reg.l1[j]
    # A bound pushes back with any force: a negative one at the lower bound.
    return -math.inf if x <= reg.lower[j] else least, math.inf if x >= reg.upper[j] else greatest


@signed_distance.register(Separable)
def _(reg, j, x, g):
    least, greatest = _subdifferential(reg, j, x, g)
    return max(least, -greatest)


@min_subgradient.register(Separable)
def _(reg, j, x, g):
    least, greatest = _subdifferential(reg, j, x, g)
    if least > 0.0:
        return least
    if greatest < 0.0:
        return greatest
    return 0.0


@magnitude_bounds.register(Separable)
def _(reg, j, x, lo, hi):
    # abs(min_subgradient) is the positive part of max(least, -greatest), and both ends of the subdifferential rise with
    # g: the interval's ends tell everything. No branches, since solvers ask this of all coordinates at once.
    low_least, low_greatest = _subdifferential(reg, j, x, lo)
    high_least, high_greatest = _subdifferential(reg, j, x, hi)
    return max(low_least, -high_greatest, 0.0), max(high_least, -low_greatest, 0.0)


@jit
def _reach(reg: Separable, j: int, v: float) -> float:
    """How far x_j may go from zero in the direction of v."""
    lower, upper = reg.lower[j], reg.upper[j]  # both are read, so that it takes no branch, whose way nobody foresees
    reach: float = upper if v > 0.0 else 0.0 - lower
    return reach


@penalty_conjugate.register(Separable)
def _(reg, j, v):
    reach = _reach(reg, j, v)
    excess = abs(v) - reg.l1[j]
    if excess <= 0.0:
        return 0.0
    if reg.l2[j] > 0.0 and excess < reg.l2[j] * reach:
        return 0.5 * excess * excess / reg.l2[j]
    if reach < math.inf:  # the supremum is at the bound
        return reach * (excess - 0.5 * reg.l2[j] * reach)
    return 0.0 if excess <= EDGE * reg.l1[j] else math.inf


@feasible_scale.register(Separable)
def _(reg, j, v):
    reach = _reach(reg, j, v)
    if abs(v) <= reg.l1[j] or reg.l2[j] > 0.0 or reach < math.inf:
        return 1.0
    return reg.l1[j] / abs(v)
