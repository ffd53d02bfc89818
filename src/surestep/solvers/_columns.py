"""Quadratic models on a working set W by its columns, where W is too large for its Gram matrix to pay.

    q(x) = <r0, A_W (x - x0)> + |A_W (x - x0)|_d^2 / 2 + psi(x)

The model's own residual rho = r0 + d * A_W (x - x0) is kept; a step reads a column twice. Sweeps go over the columns in
a new random order each time, which took a sixth of the sweeps of a fixed order (measured, Lasso on 5,000 words): a
fixed one, random or not, meets correlated columns in the same order again and again. Every so many sweeps, conjugate
gradients go for the minimiser among the coordinates that are not zero; and when all this has taken the time of a Gram
matrix of the coordinates that move, that is what finds it: sweeps may take for ever where columns nearly depend on each
other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.design import Lines, add, dot, entry, n_entries, squared_norm
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._gram import Orthant, Price, Products, descend_on_gram, jump
from surestep.solvers._smooth import conjugate_gradients

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Sweeps between two jumps, and steps of conjugate gradients in a jump.
_SWEEPS, _ITERATIONS = 20, 25

# Direct solves in a row, at most; and updates between two.
_JUMPS, _FEWEST_UPDATES = 20, 500

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
def _sweep(
    columns: Any,
    reg: Any,
    members: Integers,
    places: Integers,
    curvature: Array,
    weights: Array,
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
        j = members[k]
        if curvature[k] == 0.0:
            continue
        g = dot(columns, j, rho)
        change = gradient_step(reg, k, x[k], g, 1.0 / curvature[k]) - x[k]
        gain = change * change * curvature[k]
        largest = max(largest, gain)
        if gain > floor:
            x[k] += change
            for m in range(n_entries(columns, j)):
                i, value = entry(columns, j, m)
                rho[i] += change * weights[i] * value
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
    rho: Array,
    enough: float,
    rng: np.random.Generator,
    max_sweeps: int,
    rent: float = 0.0,
) -> tuple[int, float]:
    """Minimise the model until no coordinate gains more than ``enough``, or for a number of sweeps.

    x and rho are changed in place. ``rent`` is the time, in nanoseconds, that sweeps have taken since the last Gram
    matrix, in this model and others. Returns how many steps were tried, and the rent.
    """
    n = members.size
    curvature, room = np.empty(n), np.empty(n, np.int64)
    _curvatures(columns, members, weights, curvature)
    curvature += reg.l2
    places, n_steps, inner = np.arange(n), 0, enough
    price = Price.of(columns, weights.size, members)
    for sweep in range(1, max_sweeps + 1):
        n_active, largest = _sweep(
            columns, reg, members, rng.permutation(places), curvature, weights, x, rho, 0.01 * enough, room
        )
        n_steps += places.size
        rent += places.size * price.step
        if places.size == n:
            if largest <= enough:
                break
            places, inner = room[:n_active].copy(), max(_PART * largest, enough)
        elif largest <= inner:
            places = np.arange(n)
            continue
        # Pay rent until it has come to the price: whatever is to follow, that is at most twice the best.
        if sweep > 2 and rent > price.of_gram(places.size):
            _solve_on_gram(columns, reg, members, places, weights, x, rho, enough)
            places, rent = np.arange(n), 0.0
        elif sweep % _SWEEPS == 0:
            _jump(columns, reg, members, weights, curvature, x, rho)
            rent += _ITERATIONS * places.size * price.step
    return n_steps, rent


def _solve_on_gram(
    columns: Lines,
    reg: Separable,
    members: Integers,
    places: Integers,
    weights: Array,
    x: Array,
    rho: Array,
    enough: float,
) -> None:
    """Minimise the model over the coordinates at some places of W by their own Gram matrix."""
    chosen, at = members[places], x[places]
    products, matrix = Products(columns, rho.size, weights), np.zeros((places.size, places.size))
    products.join(chosen)
    products.add_lines(0, matrix)
    g = np.empty(places.size)
    dots(columns, chosen, rho, g)
    chosen_reg = Separable(*(array[places] for array in reg))
    curvature = np.maximum(np.diagonal(matrix) + chosen_reg.l2, np.finfo(float).tiny)
    for _ in range(_JUMPS):
        jump(chosen_reg, at, g, matrix)
        # As many updates as take the time of a direct solve.
        n_updates = max(_FEWEST_UPDATES, int(np.count_nonzero(at)) ** 3 // (36 * at.size))
        if descend_on_gram(chosen_reg, at, g, curvature, matrix, enough, n_updates) < n_updates:
            break
    move = np.zeros(rho.size)
    combine(columns, chosen, at - x[places], move)
    x[places] = at
    rho += weights * move


def _jump(
    columns: Lines, reg: Separable, members: Integers, weights: Array, curvature: Array, x: Array, rho: Array
) -> None:
    """Go towards the minimiser over the coordinates that are not zero, as if signs were given; as `_gram.jump`."""
    free = np.flatnonzero((x > reg.lower) & (x < reg.upper) & (x != 0.0))
    chosen, at, l2 = members[free], x[free], reg.l2[free]
    orthant = Orthant.of(reg, x, free)
    c, image = np.empty(free.size), np.empty(free.size)
    dots(columns, chosen, rho, c)
    c += l2 * at + reg.l1[free] * np.sign(at)
    move = np.empty(rho.size)

    def times(v: Array) -> Array:
        move[:] = 0.0
        combine(columns, chosen, v, move)
        dots(columns, chosen, weights * move, image)
        return image + l2 * v

    step = conjugate_gradients(times, -c, 1.0 / curvature[free], 1e-3, _ITERATIONS)
    for t in (1.0, orthant.room(at, step)):
        change = orthant.clipped(at + t * step) - at
        if change @ (c + 0.5 * times(change)) < 0.0:
            x[free] = orthant.clipped(at + t * step)
            rho += weights * move
            return
