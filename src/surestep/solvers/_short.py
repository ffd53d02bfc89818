"""Dense columns that are few entries long: few samples, many features.

Here a Gram matrix of a working set W would be larger than its columns, and calls from Python take longer than most of
what is done in them. So a solve on W is one call, and W has all columns that promise anything. In it a pool is drawn
from W, of those that move or come nearest to it; and in a round on the pool, those that are not zero or promise most,
hardly ever more than there are samples, are solved for together, by their Gram matrix and direct solves. It begins with
penalties that are stronger, as in `OnWorkingSet`, solved roughly: it is near their minimisers that one can tell which
coordinates matter.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.tracker import EPS
from surestep.lines import add
from surestep.regularizers import Separable, signed_distance
from surestep.solvers._columns import dots
from surestep.solvers._look import curvatures, loss_terms, penalty_terms, residuals, slope
from surestep.solvers._on_gram import gains_on, solve_at_once
from surestep.solvers._steps import FLAT, between, penalty_change

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rounds, and rounds on a pool, at most; models of a curved loss in one of these, at most.
_ROUNDS, _ON_POOL, _MODELS = 50, 50, 5

# Coordinates of a pool that are zero: so many, about, or so many times as many as are not. To find those that come
# nearest to moving, every so many of W are looked at first.
_POOL, _TIMES, _SAMPLED = 256, 4, 8

# Coordinates at zero that are solved for at once, at most, if no more are not; they promise this part of the most that
# one does; so many times as much, until they are few.
_FEWEST, _LEAST, _STEEPER = 32, 0.075, 1.5

# A stronger penalty is so many times weaker than the one under which no other coordinate would join, and solved until
# coordinates promise this part of what they did. So is a pool.
_WEAKER, _ROUGH = 3.0, 0.01

# Models of a round end when their coordinates promise this part of what they did; each is solved to that part of it.
_PART, _ACCURACY = 0.1, 0.01

# How much less cautious a model is than the last one, if that was right.
_COURAGE = 0.1


@jit
def _step_along(loss: Any, z: Array, move: Array, y: Array, weights: Array, steepest: float, more: float) -> float:
    """See `step_along`, for the mean loss at z + t move, and t more."""
    low, high, at_low = 0.0, 1.0, steepest
    at_high = slope(loss, z, move, 1.0, y, weights) + more
    if not at_high > 0.0 or slope(loss, z, move, 0.5, y, weights) + more + at_high <= 0.0:
        return 1.0
    while at_low < FLAT * steepest and high - low > EPS:
        t = between(low, high, at_low, at_high)
        at = slope(loss, z, move, t, y, weights) + more
        if at > 0.0:
            high, at_high = t, at
        else:
            low, at_low = t, at
    return low


@jit
def _promising(x: Array, gains: Array, floor: float) -> Integers:
    """List the places of coordinates that are not zero, and of some that promise most: if many, few others."""
    n_nonzero = int(np.count_nonzero(x))
    places, promises, n, most = np.empty(x.size, np.int64), np.empty(x.size), 0, n_nonzero + max(_FEWEST, n_nonzero)
    for k in range(x.size):
        places[n], promises[n] = k, gains[k] if x[k] == 0.0 else math.inf
        n += (x[k] != 0.0) | (gains[k] >= floor)
    while n > most and floor < math.inf:
        floor, before, n = _STEEPER * floor, n, 0
        for t in range(before):
            places[n], promises[n] = places[t], promises[t]
            n += promises[t] >= floor
    return places[:n].copy()


@jit
def _pool(reg: Any, curvature: Array, x: Array, g: Array) -> Integers:
    """List the places of coordinates that are not zero, and of those that move or come nearest to it."""
    most = max(_POOL, _TIMES * int(np.count_nonzero(x)))
    if x.size <= most:
        return np.arange(x.size)
    near = np.empty(x.size)
    for k in range(x.size):
        near[k] = signed_distance(reg, k, x[k], g[k]) / math.sqrt(curvature[k]) if x[k] == 0.0 else math.inf
    some = near[::_SAMPLED].copy()
    rank = max(some.size - most // _SAMPLED, 0)
    floor, places, n = np.partition(some, rank)[rank], np.empty(x.size, np.int64), 0
    for k in range(x.size):
        places[n] = k
        n += near[k] >= floor
    return places[:n].copy()


@jit
def _strength_of_rest(reg: Any, x: Array, g: Array) -> float:
    """Return how many times as strong a penalty must be for no coordinate at zero to move; 1 if that cannot be."""
    strength = 1.0
    for k in range(x.size):
        if x[k] == 0.0 and abs(g[k]) > strength * reg.l1[k]:
            if reg.l1[k] == 0.0:
                return 1.0
            strength = abs(g[k]) / reg.l1[k]
    return strength


@jit
def _scaled(reg: Any, strength: float) -> Separable:
    return Separable(strength * reg.l1, strength * reg.l2, reg.lower, reg.upper)


@jit
def _minimise_on_pool(
    loss: Any,
    y: Array,
    weights: Array,
    lines: Any,
    names: Integers,
    reg: Any,
    curvature: Array,
    x: Array,
    z: Array,
    total: float,
    is_curved: bool,
    least: float,
    caution: float,
    enough: float,
) -> tuple[float, int, float]:
    """See `minimise_on_short`; a round takes the coordinates that promise most, by their Gram matrix."""
    n = names.size
    g, gains, u, r, d, shift, n_steps = (
        np.empty(n),
        np.empty(n),
        np.zeros(y.size),
        np.zeros(y.size),
        weights.copy(),
        0.0,
        0,
    )
    for _ in range(_ON_POOL):
        residuals(loss, z, y, weights, u, r)
        dots(lines, names, r, g)
        largest = gains_on(reg, x, g, curvature, False, gains)
        excess = np.sum(r) if total < math.inf else 0.0
        largest = max(largest, excess * excess / total)
        if largest <= enough:
            break
        places = _promising(x, gains, _LEAST * largest)
        m = places.size
        A = np.zeros((m, y.size))
        for k in range(m):
            add(lines, names[places[k]], 1.0, A[k])
        part = Separable(reg.l1[places], reg.l2[places], reg.lower[places], reg.upper[places])
        for model in range(_MODELS if is_curved else 1):
            if model > 0:
                residuals(loss, z, y, weights, u, r)
            wanted = max(_ACCURACY * largest, enough)
            at, slopes = x[places], A @ r
            if is_curved:
                here = gains_on(part, at, slopes, curvature[places], False, np.empty(m))
                if model > 0 and here <= max(_PART * largest, enough):
                    break
                curvatures(loss, z, y, weights, least, caution, 0.0, d)
                wanted = max(_ACCURACY * here, 0.1 * enough)
            B = A * d
            matrix = B @ A.T
            excess, bent, sums = 0.0, math.inf, np.zeros(m)
            if total < math.inf:
                excess, bent, sums = np.sum(r), np.sum(d), A @ d
                slopes -= excess / bent * sums
                matrix -= np.outer(sums, sums / bent)
            before = at.copy()
            n_steps += solve_at_once(part, at, slopes, matrix, wanted, is_curved)
            change = at - before
            b = -(excess + np.sum(sums * change)) / bent
            move = change @ A + b
            t, more = 1.0, penalty_change(part, before, at)
            if is_curved:
                t = _step_along(loss, z, move, y, weights, np.sum(r * move) + more, more)
                caution = _COURAGE * caution if t == 1.0 else 1.0
            if t == 0.0:
                break
            x[places] = at if t == 1.0 else before + t * change
            z += t * move
            shift += t * b
    return shift, n_steps, caution


@jit
def minimise_on_short(
    loss: Any,
    y: Array,
    weights: Array,
    lines: Any,
    names: Integers,
    reg: Any,
    curvature: Array,
    x: Array,
    z: Array,
    total: float,
    is_curved: bool,
    least: float,
    caution: float,
    enough: float,
    near: float,
) -> tuple[float, int, float]:
    """Minimise on W, the lines of these names, until no coordinate gains more than ``enough``; x and z are changed.

    Or until the duality gap on W is ``near``.

    A quadratic loss is its own model. ``total`` is the curvature of an intercept, infinite where there is none. Returns
    what the intercept has changed by, the steps, and the ``caution`` of the next model.
    """
    everywhere, g, gains = np.arange(names.size), np.empty(names.size), np.empty(names.size)
    u, r, shift, n_steps = np.zeros(y.size), np.zeros(y.size), 0.0, 0
    strength, present, first = math.inf, _scaled(reg, 1.0), 0.0
    for _ in range(_ROUNDS):
        residuals(loss, z, y, weights, u, r)
        dots(lines, names, r, g)
        if strength == math.inf:
            strength = max(_strength_of_rest(reg, x, g) / _WEAKER, 1.0)
            present = _scaled(reg, strength)
        while True:
            largest = gains_on(present, x, g, curvature, False, gains)
            excess = np.sum(r) if total < math.inf else 0.0
            largest = max(largest, excess * excess / total)
            first = max(first, largest)
            if strength == 1.0 or largest > _ROUGH * first:
                break
            strength, first = max(strength / _WEAKER, 1.0), 0.0
            present = _scaled(reg, strength)
        if largest <= enough:
            break
        if strength == 1.0 and largest <= 2.0 * near:
            tau, _, gap = penalty_terms(reg, x, g, everywhere)
            if gap + loss_terms(loss, z, u, y, weights, tau)[1] <= near:
                break
        pool = _pool(present, curvature, x, g)
        part = Separable(present.l1[pool], present.l2[pool], present.lower[pool], present.upper[pool])
        at = x[pool]
        moved, done, caution = _minimise_on_pool(
            loss,
            y,
            weights,
            lines,
            names[pool],
            part,
            curvature[pool],
            at,
            z,
            total,
            is_curved,
            least,
            caution,
            max(_ROUGH * largest, enough),
        )
        x[pool] = at
        shift += moved
        n_steps += done
    return shift, n_steps, caution
