"""Quadratic models on a working set W by its columns, where W is too large for its Gram matrix to pay.

    q(x) = <g0, x - x0> + |A_W (x - x0)|_d^2 / 2 + psi(x) ,    g0 = A_W^T r0

What the residual has changed by, rho = d * A_W (x - x0), is kept; a step reads a column twice. An intercept is no
column: it is always at its best, and with E = <1, r0 + rho> it is -E / D more than it was, D = <1, d>, and all columns
are as if centred:

    g_k = g0_k + <a_k, rho> - m_k E / D ,   curvature |a_k|_d^2 - m_k^2 / D ,   m_k = <a_k, d>

Columns are copied next to each other where there is room; dense ones in single precision, which are read in half the
time. What that loses is a part of the change, not of the gradient, which is computed anew for the next model.

Sweeps go over the columns in a new random order each time, which took a sixth of the sweeps of a fixed order (measured,
Lasso on 5,000 words): a fixed one, random or not, meets correlated columns in the same order again and again. Some
neighbours stay together, though: to jump to a new place in memory takes as long as a short column. Where sweeps are
slow, conjugate gradients go for the minimiser among the coordinates that are not zero; and when all this has taken the
time of a Gram matrix of the coordinates that move, that is what finds it: sweeps may take for ever where columns nearly
depend on each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.lines import (
    Lines,
    add,
    add_weighted,
    are_alike,
    dot,
    dot_in_order,
    squared_norm,
    sum_of_squares,
)
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._gram import Gram, Products, block_of
from surestep.solvers._look import penalty_terms
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

# Curvature of a centred column, as a part of what it has as it is, at least.
_LEAST = 1e-10

# Sweeps over those that moved are repeated until the largest gain is this part of that among all of W.
_PART = 0.1


@jit
def dots(columns: Any, members: Integers, v: Array, out: Array) -> None:
    """<a_j, v> of some columns."""
    for t in range(members.size):
        out[t] = dot(columns, members[t], v)


@jit
def dots_in_order(columns: Any, members: Integers, v: Array, out: Array) -> None:
    """<a_j, v> of some columns, see `dot_in_order`."""
    for t in range(members.size):
        out[t] = dot_in_order(columns, members[t], v)


@jit
def combine(columns: Any, members: Integers, x: Array, out: Array) -> None:
    """Add sum_j x_j a_j of some columns to ``out``."""
    for t in range(members.size):
        if x[t] != 0.0:
            add(columns, members[t], x[t], out)


class Columns(NamedTuple):
    """Those of W, lines ``names[k]``, and what a step on one changes.

    ``gradient`` is g0, ``excess`` <1, r0>. ``weights`` are d, perhaps all ``alike``; ``total`` is D, infinite where
    there is no intercept. ``sums`` are m_k and ``curvature`` the curvatures with l2_k; negative where neither is known
    yet.
    """

    lines: Any
    names: Integers
    gradient: Array
    excess: float
    weights: Array
    alike: bool
    total: float
    sums: Array
    curvature: Array


class Until(NamedTuple):
    """When a descent ends: when no coordinate gains more than ``enough``, or after so many sweeps.

    Also, where the model is the squared loss itself, of this ``mean`` at the start: when the duality gap on W is at
    most ``near``. Where sweeps are slow, gains may take long to follow.

    Also when the largest gain of a sweep is at most this ``part`` of that of the first one.
    """

    enough: float
    max_sweeps: int
    near: float = 0.0
    mean: float = math.inf
    part: float = 0.0


@jit
def _sweep(
    columns: Columns,
    reg: Any,
    places: Integers,
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
    lines, names, gradient, excess, weights, alike, total, sums, curvature = columns
    if total < math.inf:
        excess += np.sum(rho)
    for t in range(places.size):
        k = places[t]
        j = names[k]
        if curvature[k] < 0.0:
            square = weights[0] * sum_of_squares(lines, j) if alike else squared_norm(lines, j, weights)
            sums[k] = dot(lines, j, weights) if total < math.inf else 0.0
            # Of a column that hardly varies nothing is left but rounding; more curvature than there is does no harm.
            curvature[k] = max(square - sums[k] * sums[k] / total, _LEAST * square) + reg.l2[k]
        if curvature[k] == 0.0:
            continue
        g = gradient[k] + dot(lines, j, rho) - excess / total * sums[k]
        change = gradient_step(reg, k, x[k], g, 1.0 / curvature[k]) - x[k]
        gain = gain_of(reg, k, x[k], g, curvature[k], change, by_slope)
        largest = max(largest, gain)
        if gain > floor:
            x[k] += change
            if alike:
                add(lines, j, change * weights[0], rho)
            else:
                add_weighted(lines, j, change, weights, rho)
            excess += change * sums[k]
        if x[k] != 0.0 or gain > floor:
            active[n_active] = k
            n_active += 1
    return n_active, largest


@jit
def _sweep_on(
    columns: Columns,
    reg: Any,
    places: Integers,
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
        _, gains[sweep] = _sweep(columns, reg, order, x, rho, floor, by_slope, scratch)
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
    lines: Lines,
    names: Integers,
    price: Price,
    reg: Separable,
    weights: Array,
    gradient: Array,
    excess: float | None,
    x: Array,
    rho: Array,
    until: Until,
    rng: np.random.Generator,
    rent: float = 0.0,
    by_slope: bool = False,
) -> tuple[float, int, float, float]:
    """Minimise the model.

    Sweeps over all of W, the lines of these names, and then over those that moved or are not zero; again and again, but
    not for losses that bend, ``by_slope`` (see `gain_of`): whether others gain by then, the gradient for the next model
    tells in less time. x and rho, zero at first, are changed in place; there is an intercept where there is an
    ``excess``. ``rent`` is the time, in nanoseconds, that sweeps have taken since the last Gram matrix, in this model
    and others. Returns what the intercept has changed by, how many steps were tried, the rent, and the time that all of
    this takes.
    """
    n, weights = names.size, weights[:]
    weights.flags.writeable = False  # as those of a problem: one compiled version of what reads them
    total, excess = (math.inf, 0.0) if excess is None else (float(np.sum(weights)), excess)
    alike = are_alike(weights)
    columns = Columns(lines, names, gradient, excess, weights, alike, total, np.zeros(n), np.full(n, -1.0))
    held, everywhere, room = _Held(lines, weights), np.arange(n), np.empty(n, np.int64)
    n_steps, spent, gains, n_since, start = 0, 0.0, [math.inf] * _WATCHED, 0, x.copy()
    enough, n_left = until.enough, until.max_sweeps
    floor, state = 0.01 * enough, rng.integers(1, 2**63, size=1, dtype=np.uint64)
    while n_left > 0:
        order = _shuffled(everywhere, state)
        n_active, largest = _sweep(columns, reg, order, x, rho, floor, by_slope, room)
        n_left, n_steps, cost = n_left - 1, n_steps + n, n * price.step
        rent, spent = rent + cost, spent + cost
        if n_left == until.max_sweeps - 1:
            enough = max(enough, until.part * largest)
        if largest <= enough:
            break
        places, inner = np.sort(room[:n_active]), max(_PART * largest, enough)
        of_sweep, of_gram = places.size * price.step, price.of_gram(places.size)
        while n_left > 0 and largest > inner:
            # Pay rent until it has come to the price: whatever is to follow, that is at most twice the best.
            affordable = max((of_gram - rent) / of_sweep, 1.0)
            found = np.empty(math.ceil(min(affordable, _SWEEPS - n_since, n_left)))
            n_done = _sweep_on(columns, reg, places, x, rho, floor, inner, by_slope, state, found)
            n_left, n_steps, cost = n_left - n_done, n_steps + n_done * places.size, n_done * of_sweep
            rent, spent, n_since, largest = rent + cost, spent + cost, n_since + n_done, found[n_done - 1]
            gains.extend(found[:n_done])
            if rent > of_gram:
                _solve_on_gram(columns, reg, places, held, x, rho, enough, by_slope)
                rent, spent, n_since = 0.0, spent + of_gram, 0
                break
            if n_since == _SWEEPS:
                n_since = 0
                if until.near > 0.0 and _gap(columns, reg, start, x, rho, until.mean) <= until.near:
                    n_left = 0
                    break
                if _n_sweeps_left(gains, enough) > 2 * _ITERATIONS:
                    _go_towards(columns, orthant_of(reg, x), x, rho)
                    cost = _ITERATIONS * of_sweep
                    rent, spent = rent + cost, spent + cost
        if by_slope and largest <= enough:
            break
    shift = -float(excess + np.sum(rho)) / total
    rho += shift * weights
    return shift, n_steps, rent, spent


def _gradient(columns: Columns, places: Integers, rho: Array) -> Array:
    """Return the gradient entries of the model at some places of W."""
    g = np.empty(places.size)
    dots(columns.lines, columns.names[places], rho, g)
    return g + columns.gradient[places] - (columns.excess + np.sum(rho)) / columns.total * columns.sums[places]


def _gap(columns: Columns, reg: Separable, start: Array, x: Array, rho: Array, mean: float) -> float:
    """Return the duality gap on W, where the model is the squared loss, whose mean was ``mean`` at the start."""
    everywhere, counts, weights = np.arange(x.size), columns.weights > 0.0, columns.weights
    tau, _, gap = penalty_terms(reg, x, _gradient(columns, everywhere, rho), everywhere)
    mean += float(columns.gradient @ (x - start) + 0.5 * np.sum(rho[counts] ** 2 / weights[counts]))
    mean -= 0.5 * (columns.excess + float(np.sum(rho))) ** 2 / columns.total  # by the best intercept
    return gap + (1.0 - tau) ** 2 * max(mean, 0.0)


def _n_sweeps_left(gains: list[float], enough: float) -> float:
    """How many sweeps it takes until the largest gain is ``enough``, at the pace of the last ones."""
    before, now = gains[-1 - _WATCHED], gains[-1]
    if now <= enough:
        return 0.0
    return _WATCHED * math.log(now / enough) / math.log(before / now) if now < before else math.inf


class _Held:
    """The Gram matrix of the lines that were asked for so far."""

    def __init__(self, lines: Lines, weights: Array) -> None:
        self._gram = Gram(Products(lines, weights.size, weights, single=True))
        self._held = np.empty(0, np.int64)

    def block(self, names: Integers) -> Array:
        """Return that of some lines."""
        self._held = np.concatenate([self._held, np.setdiff1d(names, self._held, assume_unique=True)])
        order = np.argsort(self._held)
        return block_of(self._gram.of(self._held), order[np.searchsorted(self._held, names, sorter=order)])


def _solve_on_gram(
    columns: Columns, reg: Separable, places: Integers, held: _Held, x: Array, rho: Array, enough: float, by_slope: bool
) -> None:
    """Minimise the model over the coordinates at some places of W by their own Gram matrix."""
    names, sums, at, g = columns.names[places], columns.sums[places], x[places], _gradient(columns, places, rho)
    matrix = held.block(names)
    if columns.total < math.inf:
        matrix -= np.outer(sums, sums / columns.total)
    solve_on_gram(reg.at(places), at, g, matrix, enough, by_slope)
    change = np.zeros_like(rho)
    combine(columns.lines, names, at - x[places], change)
    rho += columns.weights * change
    x[places] = at


def _go_towards(columns: Columns, orthant: Orthant, x: Array, rho: Array) -> None:
    """Go towards the minimiser over the coordinates that are not zero, as if signs were given, without a matrix.

    Coordinates that would change their sign stop at zero; where that does not lower the model, it goes a part of the
    way, and at last only as far as the first coordinate can, which always does.
    """
    places, names, sums = orthant.places, columns.names[orthant.places], columns.sums[orthant.places]
    c, image, move = _gradient(columns, places, rho) + orthant.slope, np.empty(places.size), np.empty(rho.size)

    def times(v: Array) -> Array:
        move[:] = 0.0
        combine(columns.lines, names, v, move)
        np.multiply(move, columns.weights, out=move)
        dots(columns.lines, names, move, image)
        return image - np.sum(move) / columns.total * sums + orthant.l2 * v

    step = conjugate_gradients(times, -c, 1.0 / columns.curvature[places], 1e-3, _ITERATIONS)
    moving = step != 0.0
    rooms = (np.where(step > 0.0, orthant.high, orthant.low) - orthant.x)[moving] / step[moving]
    for t in (*_WAYS, np.min(rooms, initial=1.0)):
        after = np.clip(orthant.x + t * step, orthant.low, orthant.high)
        change = after - orthant.x
        if change @ (c + 0.5 * times(change)) < 0.0:
            x[places] = after
            rho += move
            return
