"""Quadratic models on a working set W by its columns, where W is too large for its Gram matrix to pay.

    q(x) = <r0, A_W (x - x0)> + |A_W (x - x0)|_d^2 / 2 + psi(x)

The columns are copied, next to each other and times the roots of d, B_W = diag(d)^(1/2) A_W: so steps need no d, and
read one array less. The model's own residual rho = d^(-1/2) r0 + B_W (x - x0) is kept; a step reads a column twice.
Sweeps go over the columns in a new random order each time, which took a sixth of the sweeps of a fixed order (measured,
Lasso on 5,000 words): a fixed one, random or not, meets correlated columns in the same order again and again. Some
neighbours stay together, though: to jump to a new place in memory takes as long as a short column. Where sweeps are
slow, conjugate gradients go for the minimiser among the coordinates that are not zero; and when all this has taken the
time of a Gram matrix of the coordinates that move, that is what finds it: sweeps may take for ever where columns nearly
depend on each other.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.lines import Dense, Lines, Sparse, WithIntercept, add, dot, entry, n_entries
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._gram import Gram, Products, block_of
from surestep.solvers._on_gram import Orthant, orthant_of, solve_on_gram
from surestep.solvers._prices import Price
from surestep.solvers._smooth import conjugate_gradients
from surestep.solvers._steps import gain_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Sweeps between two jumps, and steps of conjugate gradients in a jump: not where twice as many sweeps will do, at the
# pace of the last ones.
_SWEEPS, _ITERATIONS, _WATCHED = 15, 25, 5

# Parts of the way of a jump that are tried.
_WAYS = 1.0, 0.3, 0.1, 0.03

# Columns that stay together in a sweep, at most; and groups of these, at least.
_NEIGHBOURS, _GROUPS = 8, 500

# Sweeps over those that moved are repeated until the largest gain is this part of that among all of W.
_PART = 0.1


@jit
def dots(columns: Any, members: Integers, v: Array, out: Array) -> None:
    """<a_j, v> of some columns."""
    for t in range(members.size):
        out[t] = dot(columns, members[t], v)


@jit
def combine(columns: Any, members: Integers, x: Array, out: Array) -> None:
    """Add sum_j x_j a_j of some columns to ``out``."""
    for t in range(members.size):
        if x[t] != 0.0:
            add(columns, members[t], x[t], out)


@jit
def _lengths(columns: Any, members: Integers) -> Integers:
    """Return the numbers of entries of some columns."""
    out = np.empty(members.size, np.int64)
    for t in range(members.size):
        out[t] = n_entries(columns, members[t])
    return out


@jit
def _copy_places(columns: Any, members: Integers, places: NDArray[np.uint32]) -> None:
    """Write where the entries of some columns are, one after the other."""
    at = 0
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            places[at], _ = entry(columns, members[t], k)
            at += 1


@jit
def _copy_values(columns: Any, members: Integers, roots: Array, values: Array, squares: Array) -> None:
    """Write the entries of some columns one after the other, times the roots; and the sums of their squares."""
    at = 0
    for t in range(members.size):
        squares[t] = 0.0
        for k in range(n_entries(columns, members[t])):
            i, value = entry(columns, members[t], k)
            values[at] = roots[i] * value
            squares[t] += values[at] * values[at]
            at += 1


class Copy:
    """B_W, the columns of W next to each other, as columns of their own; extended as members join W.

    All columns together have ``n_entries``.
    """

    def __init__(self, columns: Lines, n_entries: int) -> None:
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        self._columns, self._is_dense, self._n_entries = columns, isinstance(inner, Dense), n_entries
        self._values, self._places = np.empty(0), np.empty(0, np.uint32)
        self._starts, self._squares, self._weights = np.zeros(1, np.uint64), np.empty(0), np.empty(0)

    def of(self, members: Integers, weights: Array) -> tuple[Dense | Sparse, Array]:
        """Return the columns of these members, those of the last time first, and their squared norms."""
        n_old, begin = self._squares.size, int(self._starts[-1])
        new = members[n_old:]
        lengths = _lengths(self._columns, new)
        ends = self._starts[-1] + np.cumsum(lengths, dtype=np.uint64)
        self._starts, end = np.concatenate([self._starts, ends]), begin + int(np.sum(lengths))
        self._squares = np.concatenate([self._squares, np.empty(new.size)])
        first, at = n_old, begin  # values from here on are to be written
        if not np.array_equal(weights, self._weights):
            self._weights, first, at = weights.copy(), 0, 0
        if end > self._values.size:
            room = min(2 * end, self._n_entries)
            self._values = _extended(self._values[:at], room)
            if not self._is_dense:
                self._places = _extended(self._places[:begin], room)
        if not self._is_dense:
            _copy_places(self._columns, new, self._places[begin:])
        values, roots = self._values[:end], np.sqrt(weights)
        _copy_values(self._columns, members[first:], roots, values[at:], self._squares[first:])
        places, starts = self._places[: values.size], self._starts[:]
        for array in (starts, places, values):
            array.flags.writeable = False  # as those of a design: one compiled version of what reads them
        if self._is_dense:
            return Dense(values.reshape(members.size, roots.size)), self._squares
        return Sparse(values, places, starts, roots.size), self._squares


def _extended(array: Any, size: int) -> Any:
    out = np.empty(size, array.dtype)
    out[: array.size] = array
    return out


@jit
def _sweep(
    columns: Any,
    reg: Any,
    places: Integers,
    curvature: Array,
    x: Array,
    rho: Array,
    floor: float,
    by_slope: bool,
    active: Integers,
) -> tuple[int, float]:
    """Step on the coordinates at some places of W in turn, where that gains more than ``floor``.

    Lists those that are not zero, or gained, in ``active``; returns how many these are, and the largest gain, twice.
    """
    n_active, largest = 0, 0.0
    for t in range(places.size):
        k = places[t]
        if curvature[k] == 0.0:
            continue
        g = dot(columns, k, rho)
        change = gradient_step(reg, k, x[k], g, 1.0 / curvature[k]) - x[k]
        gain = gain_of(reg, k, x[k], g, curvature[k], change, by_slope)
        largest = max(largest, gain)
        if gain > floor:
            x[k] += change
            add(columns, k, change, rho)
        if x[k] != 0.0 or gain > floor:
            active[n_active] = k
            n_active += 1
    return n_active, largest


@jit
def _sweep_on(
    columns: Any,
    reg: Any,
    places: Integers,
    curvature: Array,
    x: Array,
    rho: Array,
    floor: float,
    inner: float,
    by_slope: bool,
    state: NDArray[np.uint64],
    gains: Array,
) -> int:
    """Sweep over some places of W, in a new random order each time, until no coordinate gains more than ``inner``.

    Or until ``gains``, the largest of each sweep, are full. Returns the number of sweeps.
    """
    scratch = np.empty_like(places)
    for sweep in range(gains.size):
        order = _shuffled(places, state)
        _, gains[sweep] = _sweep(columns, reg, order, curvature, x, rho, floor, by_slope, scratch)
        if gains[sweep] <= inner:
            return sweep + 1
    return gains.size


@jit
def _shuffled(places: Integers, state: NDArray[np.uint64]) -> Integers:
    """Return rising places in a random order, in which some neighbours stay together; which, differs each time.

    By xorshift: to hand over a generator of NumPy takes as long as a short sweep.
    """
    n, s = places.size, state[0]
    size = max(1, min(_NEIGHBOURS, n // _GROUPS))
    shift = np.int64(s % np.uint64(size))  # the first group may be shorter, and so may the last
    n_groups = -(-(n + shift) // size)
    groups, order, at = np.arange(n_groups), np.empty_like(places), 0
    for left in range(n_groups, 0, -1):
        s ^= s << np.uint64(13)
        s ^= s >> np.uint64(7)
        s ^= s << np.uint64(17)
        chosen = np.int64(s % np.uint64(left))
        begin = groups[chosen] * size - shift
        groups[chosen] = groups[left - 1]
        for t in range(max(begin, 0), min(begin + size, n)):
            order[at] = places[t]
            at += 1
    state[0] = s
    return order


def descend_by_columns(
    copy: Copy,
    reg: Separable,
    members: Integers,
    per_row: Array,
    weights: Array,
    x: Array,
    residual: Array,
    enough: float,
    rng: np.random.Generator,
    max_sweeps: int,
    rent: float = 0.0,
    by_slope: bool = False,
) -> tuple[int, float, float]:
    """Minimise the model until no coordinate gains more than ``enough``, or for a number of sweeps.

    Sweeps over all of W, and then over those that moved or are not zero. ``per_row`` are the numbers of entries of W in
    the rows. x and the residual r0 + d * A_W (x - x0) are changed in place. ``rent`` is the time, in nanoseconds, that
    sweeps have taken since the last Gram matrix, in this model and others. ``by_slope``: see `gain_of`. Returns how
    many steps were tried, the rent, and the time that all of this takes.
    """
    n, roots = members.size, np.sqrt(weights)
    columns, squares = copy.of(members, weights)
    curvature = squares + reg.l2
    rho = np.divide(residual, roots, out=np.zeros_like(residual), where=roots > 0.0)
    held, everywhere, room = _Held(columns, rho.size), np.arange(n), np.empty(n, np.int64)
    price = Price.of(n, per_row, isinstance(columns, Dense))
    n_steps, spent, gains, n_since = 0, price.entries, [math.inf] * _WATCHED, 0
    floor, n_left, state = 0.01 * enough, max_sweeps, rng.integers(1, 2**63, size=1, dtype=np.uint64)
    while n_left > 0:
        order = _shuffled(everywhere, state)
        n_active, largest = _sweep(columns, reg, order, curvature, x, rho, floor, by_slope, room)
        n_left, n_steps, cost = n_left - 1, n_steps + n, n * price.step
        rent, spent = rent + cost, spent + cost
        if largest <= enough:
            break
        places, inner = np.sort(room[:n_active]), max(_PART * largest, enough)
        of_sweep, of_gram = places.size * price.step, price.of_gram(places.size)
        while n_left > 0 and largest > inner:
            # Pay rent until it has come to the price: whatever is to follow, that is at most twice the best.
            affordable = max((of_gram - rent) / of_sweep, 1.0)
            found = np.empty(math.ceil(min(affordable, _SWEEPS - n_since, n_left)))
            n_done = _sweep_on(columns, reg, places, curvature, x, rho, floor, inner, by_slope, state, found)
            n_left, n_steps, cost = n_left - n_done, n_steps + n_done * places.size, n_done * of_sweep
            rent, spent, n_since, largest = rent + cost, spent + cost, n_since + n_done, found[n_done - 1]
            gains.extend(found[:n_done])
            if rent > of_gram:
                _solve_on_gram(columns, reg, places, held, x, rho, enough, by_slope)
                rent, spent, n_since = 0.0, spent + of_gram, 0
                break
            if n_since == _SWEEPS:
                n_since = 0
                if _n_sweeps_left(gains, enough) > 2 * _ITERATIONS:
                    _go_towards(columns, orthant_of(reg, x), curvature, x, rho)
                    cost = _ITERATIONS * of_sweep
                    rent, spent = rent + cost, spent + cost
    np.multiply(roots, rho, out=residual)
    return n_steps, rent, spent


def _n_sweeps_left(gains: list[float], enough: float) -> float:
    """How many sweeps it takes until the largest gain is ``enough``, at the pace of the last ones."""
    before, now = gains[-1 - _WATCHED], gains[-1]
    if now <= enough:
        return 0.0
    return _WATCHED * math.log(now / enough) / math.log(before / now) if now < before else math.inf


class _Held:
    """The Gram matrix of the columns that were asked for so far."""

    def __init__(self, columns: Dense | Sparse, n_samples: int) -> None:
        self._gram = Gram(Products(columns, n_samples, np.ones(n_samples)))
        self._held = np.empty(0, np.int64)

    def block(self, places: Integers) -> Array:
        """Return that of some columns."""
        self._held = np.concatenate([self._held, np.setdiff1d(places, self._held, assume_unique=True)])
        order = np.argsort(self._held)
        return block_of(self._gram.of(self._held), order[np.searchsorted(self._held, places, sorter=order)])


def _solve_on_gram(
    columns: Dense | Sparse,
    reg: Separable,
    places: Integers,
    held: _Held,
    x: Array,
    rho: Array,
    enough: float,
    by_slope: bool,
) -> None:
    """Minimise the model over the coordinates at some places of W by their own Gram matrix."""
    chosen, at, matrix = reg.at(places), x[places], held.block(places)
    g = np.empty(places.size)
    dots(columns, places, rho, g)
    solve_on_gram(chosen, at, g, matrix, enough, by_slope)
    combine(columns, places, at - x[places], rho)
    x[places] = at


def _go_towards(columns: Dense | Sparse, orthant: Orthant, curvature: Array, x: Array, rho: Array) -> None:
    """Go towards the minimiser over the coordinates that are not zero, as if signs were given, without a matrix.

    Coordinates that would change their sign stop at zero; where that does not lower the model, it goes a part of the
    way, and at last only as far as the first coordinate can, which always does.
    """
    places = orthant.places
    c, image, move = np.empty(places.size), np.empty(places.size), np.empty(rho.size)
    dots(columns, places, rho, c)
    c += orthant.slope

    def times(v: Array) -> Array:
        move[:] = 0.0
        combine(columns, places, v, move)
        dots(columns, places, move, image)
        return image + orthant.l2 * v

    step = conjugate_gradients(times, -c, 1.0 / curvature[places], 1e-3, _ITERATIONS)
    moving = step != 0.0
    rooms = (np.where(step > 0.0, orthant.high, orthant.low) - orthant.x)[moving] / step[moving]
    for t in (*_WAYS, np.min(rooms, initial=1.0)):
        after = np.clip(orthant.x + t * step, orthant.low, orthant.high)
        change = after - orthant.x
        if change @ (c + 0.5 * times(change)) < 0.0:
            x[places] = after
            rho += move
            return
