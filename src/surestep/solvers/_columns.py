"""Quadratic models on a working set W by its columns, where W is too large for its Gram matrix to pay.

    q(x) = <r0, A_W (x - x0)> + |A_W (x - x0)|_d^2 / 2 + psi(x)

The columns are copied, next to each other and times the roots of d, B_W = diag(d)^(1/2) A_W: so steps need no d, and
read one array less. The model's own residual rho = d^(-1/2) r0 + B_W (x - x0) is kept; a step
reads a column twice. Sweeps go over the columns in a new random order each time, which took a sixth of the sweeps of a
fixed order (measured, Lasso on 5,000 words): a fixed one, random or not, meets correlated columns in the same order
again and again. Every so many sweeps, conjugate gradients go for the minimiser among the coordinates that are not zero;
and when all this has taken the time of a Gram matrix of the coordinates that move, that is what finds it: sweeps may
take for ever where columns nearly depend on each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.choose import lengths
from surestep.lines import Dense, Lines, Sparse, WithIntercept, add, dot, entry, n_entries, squared_norm
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._gram import Gram, Orthant, Products, block_of, orthant_of, solve_on_gram
from surestep.solvers._prices import Price, RowCounts
from surestep.solvers._smooth import conjugate_gradients

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Sweeps between two jumps, and steps of conjugate gradients in a jump.
_SWEEPS, _ITERATIONS = 15, 25

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
def _curvatures(columns: Any, members: Integers, weights: Array, out: Array) -> None:
    """|a_j|_d^2 of some columns."""
    for t in range(members.size):
        out[t] = squared_norm(columns, members[t], weights)


@jit
def _copy(columns: Any, members: Integers, roots: Array, indices: NDArray[np.uint32], values: Array) -> None:
    """Write the entries of some columns one after the other, times the roots."""
    at = 0
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            i, value = entry(columns, members[t], k)
            indices[at], values[at] = i, roots[i] * value
            at += 1


def scaled(columns: Lines, members: Integers, roots: Array) -> Dense | Sparse:
    """Return some columns, their entries times the roots, as columns of their own."""
    starts = np.concatenate([[0], np.cumsum(lengths(columns)[members])]).astype(np.uint64)
    indices, values = np.empty(int(starts[-1]), np.uint32), np.empty(int(starts[-1]))
    _copy(columns, members, roots, indices, values)
    for array in (starts, indices, values):
        array.flags.writeable = False  # as those of a design: one compiled version of what reads them
    if isinstance(columns.lines if isinstance(columns, WithIntercept) else columns, Dense):
        return Dense(values.reshape(members.size, roots.size))
    return Sparse(values, indices, starts, roots.size)


@jit
def _sweep(
    columns: Any,
    reg: Any,
    places: Integers,
    curvature: Array,
    x: Array,
    rho: Array,
    floor: float,
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
        gain = change * change * curvature[k]
        largest = max(largest, gain)
        if gain > floor:
            x[k] += change
            add(columns, k, change, rho)
        if x[k] != 0.0 or gain > floor:
            active[n_active] = k
            n_active += 1
    return n_active, largest


def descend_by_columns(
    columns: Lines,
    reg: Separable,
    members: Integers,
    weights: Array,
    x: Array,
    residual: Array,
    enough: float,
    rng: np.random.Generator,
    max_sweeps: int,
    rent: float = 0.0,
) -> tuple[int, float, float]:
    """Minimise the model until no coordinate gains more than ``enough``, or for a number of sweeps.

    x and the residual r0 + d * A_W (x - x0) are changed in place. ``rent`` is the time, in nanoseconds, that sweeps
    have taken since the last Gram matrix, in this model and others. Returns how many steps were tried, the rent, and
    the time that all of this takes.
    """
    n = members.size
    curvature, room = np.empty(n), np.empty(n, np.int64)
    _curvatures(columns, members, weights, curvature)
    curvature += reg.l2
    roots = np.sqrt(weights)
    columns = scaled(columns, members, roots)
    rho = np.divide(residual, roots, out=np.zeros_like(residual), where=roots > 0.0)
    held, places = _Held(columns, rho.size), np.arange(n)
    price = Price.of(n, RowCounts(columns, rho.size).of(places), isinstance(columns, Dense))
    n_steps, inner, spent = 0, enough, price.entries
    for sweep in range(1, max_sweeps + 1):
        n_active, largest = _sweep(columns, reg, rng.permutation(places), curvature, x, rho, 0.01 * enough, room)
        n_steps += places.size
        cost = places.size * price.step
        rent, spent = rent + cost, spent + cost
        if places.size == n:
            if largest <= enough:
                break
            places, inner = room[:n_active].copy(), max(_PART * largest, enough)
        elif largest <= inner:
            places = np.arange(n)
            continue
        # Pay rent until it has come to the price: whatever is to follow, that is at most twice the best.
        if sweep > 2 and rent > price.of_gram(places.size):
            _solve_on_gram(columns, reg, places, held, x, rho, enough)
            spent += price.of_gram(places.size)
            places, rent = np.arange(n), 0.0
        elif sweep % _SWEEPS == 0:
            _go_towards(columns, orthant_of(reg, x), curvature, x, rho)
            cost = _ITERATIONS * places.size * price.step
            rent, spent = rent + cost, spent + cost
    np.multiply(roots, rho, out=residual)
    return n_steps, rent, spent


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
    columns: Dense | Sparse, reg: Separable, places: Integers, held: _Held, x: Array, rho: Array, enough: float
) -> None:
    """Minimise the model over the coordinates at some places of W by their own Gram matrix."""
    chosen, at, matrix = reg.at(places), x[places], held.block(places)
    g = np.empty(places.size)
    dots(columns, places, rho, g)
    solve_on_gram(chosen, at, g, matrix, enough)
    combine(columns, places, at - x[places], rho)
    x[places] = at


def _go_towards(columns: Dense | Sparse, orthant: Orthant, curvature: Array, x: Array, rho: Array) -> None:
    """Go towards the minimiser over the coordinates that are not zero, as if signs were given, without a matrix.

    Coordinates that would change their sign stop at zero; where that does not lower the model, it goes only as far as
    the first coordinate can, which always does.
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
    with np.errstate(divide="ignore", invalid="ignore"):
        rooms = (np.where(step > 0.0, orthant.high, orthant.low) - orthant.x) / step
    for t in (1.0, min(1.0, np.nanmin(rooms, initial=1.0))):
        after = np.clip(orthant.x + t * step, orthant.low, orthant.high)
        change = after - orthant.x
        if change @ (c + 0.5 * times(change)) < 0.0:
            x[places] = after
            rho += move
            return
