"""`SafeSampler`: the safe sampling for any algorithm, one call a step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep._jit import jit, lean
from surestep.sampling.distribution import as_vector, check_entries
from surestep.sampling.index import (
    FRESH,
    TOTAL,
    TRIES,
    VALUE,
    Index,
    draw_from,
    make_index,
    normalized_bounds,
    place,
    probability,
    solve,
    try_to_draw,
)

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST_CLASSES = 16


class SafeSampler:
    """Draw coordinates by the safe sampling of bounds that change from step to step.

    It knows no losses and no matrices: tell it what you observe and how far things drift, and it draws from the exact
    safe sampling (eq. 7 of the paper) of what is then known, with the probability and the stepsize to go with it. A
    draw, an observation and a drift together cost one to a few microseconds, whatever the number of coordinates, in a
    compiled loop that calls the functions of `surestep.sampling.index`; from Python the calls themselves take some 20
    more.

    Parameters
    ----------
    smoothness : array-like of shape (n,)
        L_i > 0.
    drift : array-like of shape (n,), optional
        How fast the bounds of each coordinate widen, relative to the others: >= 0. By default sqrt(L_i), which is right
        for Cauchy-Schwarz bounds with L_i proportional to the squared norm of column i. Where drift_i / sqrt(L_i) takes
        more than 16 different values, coordinates are put into 16 classes of nearly equal ones, each of which widens
        as fast as the fastest of its members: still safe, a little looser.
    rng : int, numpy Generator or None
        Seed or source of randomness.

    Attributes
    ----------
    n : int
        Number of coordinates.

    Notes
    -----
    At the start nothing is known: every c_i lies between 0 and infinity, and the sampling is p_i = L_i / Tr(L).
    A sampler pickles, and goes on from there bit for bit.

    Examples
    --------
    >>> import surestep as ss
    >>> sampler = ss.SafeSampler([1.0, 1.0, 2.0], rng=0)
    >>> i, p = sampler.draw()
    >>> p in (0.25, 0.5)
    True
    >>> sampler.observe([0, 1, 2], [3.0, 0.0, 1.0])
    >>> sampler.probabilities().round(3)
    array([0.68, 0.  , 0.32])
    >>> sampler.widen(0.5)
    >>> [bound.round(3) for bound in sampler.bounds()]
    [array([2.5  , 0.   , 0.293]), array([3.5  , 0.5  , 1.707])]
    """

    def __init__(
        self, smoothness: ArrayLike, drift: ArrayLike | None = None, rng: int | np.random.Generator | None = 0
    ) -> None:
        curvature = as_vector("smoothness", smoothness)
        valid = (curvature > 0.0) & np.isfinite(curvature)
        check_entries("smoothness", curvature, valid, "must be positive and finite")
        self.n = curvature.size
        self._roots = np.sqrt(curvature)
        speed = self._roots if drift is None else as_vector("drift", drift)
        if speed.size != self.n:
            raise ValueError(f"drift has {speed.size} entries, smoothness has {self.n}; they must be as many")
        check_entries("drift", speed, (speed >= 0.0) & np.isfinite(speed), "must be finite and not negative")
        self._rates, self._kind = _classes(speed / self._roots)
        self._index = make_index(curvature, self._kind, self._rates.size)
        self._rng = np.random.default_rng(rng)
        self._travelled = 0.0  # the sum of all amounts of `widen`, less those of `narrow`
        self._nearest = 0.0  # `narrow` may not go below this

    def __repr__(self) -> str:
        return f"SafeSampler(n={self.n}, value={self.value:.6g})"

    def draw(self, size: int | None = None) -> tuple[Any, Any]:
        """Draw a coordinate: return it with its probability; with ``size``, arrays of as many independent draws.

        Raises
        ------
        ValueError
            If every upper bound is zero: there is nothing to draw. `converged` tells beforehand.
        """
        if size is not None and size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        if size is None:
            # To hand the generator itself to a kernel would take longer than all the rest.
            for _ in range(TRIES):
                i, p = _try_once(self._index, self._rng.random())
                if i >= 0:
                    return i, p
                if self._index.found[TOTAL] == 0.0:
                    break
        count = 1 if size is None else size
        indices, probabilities = np.empty(count, np.int64), np.empty(count)
        if not _draw_many(self._index, self._rng, indices, probabilities):
            raise ValueError("every upper bound is zero: the gradient is zero, and there is nothing to draw")
        return (int(indices[0]), float(probabilities[0])) if size is None else (indices, probabilities)

    def observe(
        self,
        i: int | ArrayLike,
        value: float | ArrayLike | None = None,
        *,
        lower: float | ArrayLike | None = None,
        upper: float | ArrayLike | None = None,
    ) -> None:
        """Take note that c_i is now known: exactly (``value``), or to lie between ``lower`` and ``upper``.

        ``i`` may be one coordinate or an array of them, the others alike. A negative value -d says that c_i is zero and
        stays so until the bounds of i have been widened by d: a certificate that the coordinate does not matter for a
        while. Cost O(log n) each.
        """
        if value is not None:
            if lower is not None or upper is not None:
                raise ValueError("give either value, or lower and upper, not both")
            lower = upper = value
        elif lower is None or upper is None:
            raise ValueError("give value, or both lower and upper")
        indices = np.array(i, ndmin=1)
        if indices.dtype.kind not in "iu":
            raise ValueError(f"i must hold whole numbers, got dtype {indices.dtype}")
        low = _as_many(lower, indices)
        high = low if upper is lower else _as_many(upper, indices)
        wrong, room = _place_many(
            self._index, indices.astype(np.int64, copy=False), self._kind, self._roots, self._rates, low, high
        )
        if wrong >= 0:
            j = indices[wrong]
            if not 0 <= j < self.n:
                raise ValueError(f"i holds {j}; coordinates are 0 to {self.n - 1}")
            raise ValueError(f"the bounds of coordinate {j} are {low[wrong]} and {high[wrong]}; they must be in order")
        self._nearest = max(self._nearest, self._travelled - room)

    def widen(self, amount: float) -> None:
        """Let every bound loosen: upper_i rises by amount * drift_i and lower_i falls by as much. Cost O(1)."""
        if not 0.0 <= amount < np.inf:
            raise ValueError(f"amount must be finite and not negative, got {amount}; to tighten bounds, use narrow")
        self._drift(amount)

    def narrow(self, amount: float) -> None:
        """Take back what `widen` did, by an amount: for bounds that depend on a distance which can shrink again.

        Only as far as no lower bound passes its upper bound. Cost O(1).
        """
        if not 0.0 <= amount < np.inf:
            raise ValueError(f"amount must be finite and not negative, got {amount}")
        room = max(self._travelled - self._nearest, 0.0)
        if amount > room + 1e-12 * self._travelled:  # `_travelled` is a sum, and rounded
            raise ValueError(f"amount is {amount}, but bounds can be narrowed by {room} at most: then they meet")
        self._drift(-amount)

    def _drift(self, amount: float) -> None:
        self._travelled += amount
        self._index.classes["offset"] += amount * self._rates
        self._index.found[FRESH] = 0.0

    @property
    def value(self) -> float:
        """The v of eq. 7 for the present bounds; 0 if all upper bounds are zero."""
        solve(self._index)
        return float(self._index.found[VALUE])

    @property
    def stepsize(self) -> float:
        """1 / v, the alpha of eq. 7: the step along the drawn coordinate is alpha / p times the gradient entry."""
        value = self.value
        return 1.0 / value if value > 0.0 else 0.0

    @property
    def converged(self) -> bool:
        """Whether every upper bound is zero."""
        solve(self._index)
        return bool(self._index.found[TOTAL] == 0.0)

    def bounds(self) -> tuple[Array, Array]:
        """Return the present bounds (lower, upper) of all coordinates. Cost O(n)."""
        low, high = np.empty(self.n), np.empty(self.n)
        _fill_bounds(self._index, low, high)
        return low * self._roots, high * self._roots

    def probabilities(self) -> Array:
        """Return the probabilities of all coordinates; zeros if all upper bounds are zero. Cost O(n)."""
        out = np.zeros(self.n)
        if not self.converged:
            _fill_probabilities(self._index, out)
        return out


def _classes(rates: Array) -> tuple[Array, Integers]:
    """Group rates into classes on a logarithmic scale; return the rate of each class and the class of each coordinate.

    No rate is above that of its class.
    """
    distinct = np.unique(rates)
    if distinct.size <= _MOST_CLASSES:
        return distinct, np.searchsorted(distinct, rates)
    positive = distinct[distinct > 0.0]
    edges = np.geomspace(positive[0], positive[-1], _MOST_CLASSES)
    edges[-1] = positive[-1]
    return edges, np.searchsorted(edges, rates)


def _as_many(bounds: ArrayLike | None, indices: NDArray[Any]) -> Array:
    """Return an array of as many bounds as indices: its own, so that kernels see but one kind of array."""
    found = np.array(bounds, np.float64, ndmin=1)
    return found if found.shape == indices.shape else np.array(np.broadcast_to(found, indices.shape))


@jit
def _draw_many(index: Index, rng: Any, indices: Integers, probabilities: Array) -> bool:
    """Fill both arrays; False if there is nothing to draw."""
    for k in range(indices.size):
        indices[k] = draw_from(index, rng)
        if indices[k] < 0:
            return False
        probabilities[k] = probability(index, indices[k])
    return True


@lean
def _try_once(index: Index, u: float) -> tuple[int, float]:
    """Return the coordinate that `try_to_draw` finds, if any, and its probability."""
    i = try_to_draw(index, u)
    return i, (probability(index, i) if i >= 0 else 0.0)


@lean
def _place_many(
    index: Index, indices: Integers, kind: Integers, roots: Array, rates: Array, low: Array, high: Array
) -> tuple[int, float]:
    """Set bounds, unless some are wrong. Return the place of the first wrong one, or -1, and how far to narrow them."""
    for k in range(indices.size):
        if not (0 <= indices[k] < kind.size and low[k] <= high[k] and low[k] < np.inf):
            return k, 0.0
    room = np.inf
    for k in range(indices.size):
        i = indices[k]
        place(index, i, kind[i], low[k] / roots[i], high[k] / roots[i])
        rate = rates[kind[i]] * roots[i]
        if rate > 0.0 and high[k] > -np.inf:
            room = min(room, (high[k] - low[k]) / (2.0 * rate))
    return -1, room


@lean
def _fill_bounds(index: Index, low: Array, high: Array) -> None:
    for i in range(low.size):
        low[i], high[i] = normalized_bounds(index, i)


@lean
def _fill_probabilities(index: Index, out: Array) -> None:
    for i in range(out.size):
        out[i] = probability(index, i)
