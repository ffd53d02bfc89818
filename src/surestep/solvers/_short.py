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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.tracker import EPS
from surestep.lines import add, dense_dot
from surestep.regularizers import Separable, signed_distance
from surestep.solvers._columns import dots
from surestep.solvers._look import curvatures, loss_terms, penalty_terms, residuals, slope
from surestep.solvers._on_gram import add_line, gains_on, n_nonzero, solve_at_once
from surestep.solvers._steps import FLAT, between, penalty_change

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rounds, and rounds on a pool, at most; models of a curved loss in one of these, at most.
_ROUNDS, _ON_POOL, _MODELS = 50, 50, 5

# Coordinates of a pool that are zero: so many, about, or so many times as many as are not. To find those that come
# nearest to moving, every so many of W are looked at first, and where the line is drawn is halved so often.
_POOL, _TIMES, _SAMPLED, _HALVINGS = 256, 4, 8, 16

# Coordinates at zero that are solved for at once, at most, if no more are not; they promise this part of the most that
# one does; so many times as much, until they are few.
_FEWEST, _LEAST, _STEEPER = 32, 0.075, 1.5

# A stronger penalty is so many times weaker than the one under which no other coordinate would join, and solved until
# coordinates promise this part of what they did. So is a pool.
_WEAKER, _ROUGH = 3.0, 0.01

# Models of a round end when their coordinates promise this part of what they did; each is solved to that part of it.
_PART, _ACCURACY = 0.1, 0.01

# Curvature of a centred line, as a part of what it has by its mean, at least.
_ROUNDING = 1e-13

# How much less cautious a model is than the last one, if that was right.
_COURAGE = 0.1


class Mean(NamedTuple):
    """The mean loss, and what does not change while it is minimised.

    ``total`` is the curvature of an intercept, infinite where there is none; ``least`` that of a model, see
    `curvatures`. A loss that is not ``is_curved`` is its own model.
    """

    loss: Any
    y: Array
    weights: Array
    lines: Any
    total: float
    is_curved: bool
    least: float


class Point(NamedTuple):
    """Predictions z, and u and r as `residuals` has them."""

    z: Array
    u: Array
    r: Array


@jit
def _slope(mean: Mean, z: Array, move: Array, t: float) -> float:
    return float(slope(mean.loss, z, move, t, mean.y, mean.weights))


@jit
def _step_along(mean: Mean, z: Array, move: Array, steepest: float, more: float) -> float:
    """See `step_along`, for the mean loss at z + t move, and t more."""
    low, high, at_low, at_high = 0.0, 1.0, steepest, _slope(mean, z, move, 1.0) + more
    if not at_high > 0.0 or _slope(mean, z, move, 0.5) + more + at_high <= 0.0:
        return 1.0
    while at_low < FLAT * steepest and high - low > EPS:
        t = between(low, high, at_low, at_high)
        at = _slope(mean, z, move, t) + more
        if at > 0.0:
            high, at_high = t, at
        else:
            low, at_low = t, at
    return low


@jit
def _promising(x: Array, gains: Array, floor: float) -> Integers:
    """List the places of coordinates that are not zero, and of some that promise most: if many, few others.

    Where too many promise nearly the same, the first of these will do.
    """
    places, n, n_moving, largest = np.empty(x.size, np.int64), 0, n_nonzero(x), 0.0
    n_others = max(_FEWEST, n_moving)
    for k in range(x.size):
        places[n] = k
        n += (x[k] != 0.0) | (gains[k] >= floor)
        largest = max(largest, gains[k]) if x[k] == 0.0 else largest
    while n > n_moving + n_others and 0.0 < floor < math.inf and _STEEPER * floor <= largest:
        floor, before, n = _STEEPER * floor, n, 0
        for t in range(before):
            k = places[t]
            places[n] = k
            n += (x[k] != 0.0) | (gains[k] >= floor)
    before, n = n, 0
    for t in range(before):
        k = places[t]
        places[n] = k
        n_others -= x[k] == 0.0
        n += (x[k] != 0.0) | (n_others >= 0)
    return places[:n].copy()


@jit
def _nearest(reg: Any, curvature: Array, x: Array, g: Array) -> Integers:
    """List the places of coordinates that are not zero, and of those that move or come nearest to it."""
    places, near, n = np.empty(x.size, np.int64), np.empty(x.size), 0
    most, low, high = max(_POOL, _TIMES * n_nonzero(x)), math.inf, -math.inf
    for k in range(x.size):
        near[k] = signed_distance(reg, k, x[k], g[k]) / math.sqrt(curvature[k]) if x[k] == 0.0 else math.inf
        low = min(low, near[k])
        high = max(high, near[k]) if x[k] == 0.0 else high
    if x.size > most:
        for _ in range(_HALVINGS):
            middle, n = 0.5 * (low + high), 0
            for k in range(0, x.size, _SAMPLED):
                n += near[k] >= middle
            low, high = (middle, high) if n * _SAMPLED > most else (low, middle)
    n = 0
    for k in range(x.size):
        places[n] = k
        n += near[k] >= low
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
    return strength if strength < math.inf else 1.0


@jit
def _look(mean: Mean, point: Point, names: Integers, g: Array) -> None:
    """Compute u and r at the present z, and the gradient g on some lines."""
    residuals(mean.loss, point.z, mean.y, mean.weights, point.u, point.r)
    dots(mean.lines, names, point.r, g)


@jit
def _gains(mean: Mean, point: Point, reg: Any, x: Array, g: Array, curvature: Array, out: Array) -> float:
    """See `gains_on`; return the largest, that of an intercept among them."""
    excess = 0.0
    if mean.total < math.inf:
        for i in range(point.r.size):
            excess += point.r[i]
    return max(gains_on(reg, x, g, curvature, False, out), excess * excess / mean.total)


@jit
def _model(
    A: Array, means: Array, d: Array, r: Array, total: float, matrix: Array, slopes: Array
) -> tuple[float, float]:
    """Fill in the Gram matrix A diag(d) A^T of lines, and their slopes A r.

    Where there is an intercept, which is kept at its best, lines are centred in place, and their ``means`` grow by what
    is taken off. Returns <1, r> and <1, d>; without one 0 and infinite.
    """
    excess, bent, line = 0.0, math.inf, np.empty(d.size)
    if total < math.inf:
        excess, bent = 0.0, 0.0
        for i in range(d.size):
            excess += r[i]
            bent += d[i]
    for k in range(slopes.size):
        if total < math.inf:
            mean = dense_dot(A[k], d) / bent
            means[k] += mean
            for i in range(d.size):
                A[k, i] -= mean
        slopes[k] = dense_dot(A[k], r)
        for i in range(d.size):
            line[i] = d[i] * A[k, i]
        for p in range(k + 1):
            matrix[k, p] = matrix[p, k] = dense_dot(line, A[p])
        if total < math.inf:
            # Of a line that hardly varies nothing is left but rounding; more curvature than there is does no harm.
            matrix[k, k] = max(matrix[k, k], _ROUNDING * bent * means[k] * means[k])
    return excess, bent


@jit
def _move(A: Array, means: Array, after: Array, before: Array, excess: float, bent: float) -> tuple[Array, float]:
    """Return where z goes with the coordinates of these lines and the best intercept, and what that changes by."""
    move, b = np.zeros(A.shape[1]), -excess / bent
    for i in range(move.size):
        move[i] = b
    for k in range(after.size):
        if after[k] != before[k]:
            add_line(move, after[k] - before[k], A[k])
            b -= means[k] * (after[k] - before[k])
    return move, b


@jit
def _minimise_on_pool(
    mean: Mean,
    point: Point,
    names: Integers,
    reg: Any,
    curvature: Array,
    x: Array,
    g: Array,
    caution: float,
    enough: float,
) -> tuple[float, int, float]:
    """See `minimise_on_short`; a round takes the coordinates that promise most, by their Gram matrix.

    The point and the gradient g there change with x.
    """
    loss, y, weights, lines, total, is_curved, least = mean
    z, u, r = point
    gains, d, shift, n_steps = np.empty(names.size), weights.copy(), 0.0, 0
    for _ in range(_ON_POOL):
        largest = _gains(mean, point, reg, x, g, curvature, gains)
        if largest <= enough:
            break
        places = _promising(x, gains, _LEAST * largest)
        m = places.size
        A, matrix, slopes, means = np.zeros((m, y.size)), np.empty((m, m)), np.empty(m), np.zeros(m)
        for k in range(m):
            add(lines, names[places[k]], 1.0, A[k])
        part, is_still = Separable(reg.l1[places], reg.l2[places], reg.lower[places], reg.upper[places]), True
        for model in range(_MODELS if is_curved else 1):
            if model > 0:
                residuals(loss, z, y, weights, u, r)
            wanted = max(_ACCURACY * largest, enough)
            at = x[places]
            if is_curved:
                for k in range(m):
                    slopes[k] = dense_dot(A[k], r)
                here = gains_on(part, at, slopes, curvature[places], False, np.empty(m))
                if model > 0 and here <= max(_PART * largest, enough):
                    break
                curvatures(loss, z, y, weights, least, caution, 0.0, d)
                wanted = max(_ACCURACY * here, 0.1 * enough)
            excess, bent = _model(A, means, d, r, total, matrix, slopes)
            before = at.copy()
            done = solve_at_once(part, at, slopes, matrix, wanted, is_curved)
            if excess == 0.0 and n_nonzero(at - before) == 0:
                break
            move, b = _move(A, means, at, before, excess, bent)
            t, more = 1.0, penalty_change(part, before, at)
            if is_curved:
                t = _step_along(mean, z, move, dense_dot(r, move) + more, more)
                caution = _COURAGE * caution if t == 1.0 else 1.0
            if t == 0.0:
                break
            for k in range(m):
                x[places[k]] = at[k] if t == 1.0 else before[k] + t * (at[k] - before[k])
            add_line(z, t, move)
            shift, n_steps, is_still = shift + t * b, n_steps + done, False
        if is_still:  # and so it would be the next time
            break
        _look(mean, point, names, g)
    return shift, n_steps, caution


@jit
def _draw(
    mean: Mean, point: Point, names: Integers, reg: Any, curvature: Array, x: Array, strength: float, first: float
) -> tuple[Array, Integers, float, float, float]:
    """Return the gradient on W, a pool, the largest gain, the strength of the penalty, and the first gain under it.

    The penalty, so many times as strong as that asked for, is weakened until coordinates do gain, or it is that.
    """
    g, gains, largest = np.empty(names.size), np.empty(names.size), 0.0
    dots(mean.lines, names, point.r, g)
    if strength == math.inf:
        strength = max(_strength_of_rest(reg, x, g) / _WEAKER, 1.0)
    while True:
        # In arrays of its own, as in `_part`.
        present = Separable(strength * reg.l1, strength * reg.l2, reg.lower.copy(), reg.upper.copy())
        largest = _gains(mean, point, present, x, g, curvature, gains)
        first = max(first, largest)
        if strength == 1.0 or largest > _ROUGH * first:
            return g, _nearest(present, curvature, x, g), largest, strength, first
        strength, first = max(strength / _WEAKER, 1.0), 0.0


def _part(reg: Separable, places: Integers | slice, strength: float) -> Separable:
    """Return the penalty of some coordinates, so many times as strong: in arrays of its own, as kernels make them.

    Those that cannot be written to would have everything compiled for them, too.
    """
    part = Separable(*(np.array(array[places]) for array in reg))
    return part._replace(l1=strength * part.l1, l2=strength * part.l2)


def minimise_on_short(
    mean: Mean,
    point: Point,
    names: Integers,
    reg: Separable,
    curvature: Array,
    x: Array,
    caution: float,
    enough: float,
    near: float,
) -> tuple[float, int, float]:
    """Minimise on W, the lines of these names, until no coordinate gains more than ``enough``.

    Or until the duality gap on W is ``near``. x and the point are changed in place. Returns what the intercept has
    changed by, the steps, and the ``caution`` of the next model.
    """
    shift, n_steps, strength, first = 0.0, 0, math.inf, 0.0
    for _ in range(_ROUNDS):
        g, pool, largest, strength, first = _draw(mean, point, names, reg, curvature, x, strength, first)
        if largest <= enough:
            break
        if strength == 1.0 and largest <= 2.0 * near:
            tau, _, gap = penalty_terms(reg, x, g, np.arange(x.size))
            if gap + loss_terms(mean.loss, point.z, point.u, mean.y, mean.weights, tau)[1] <= near:
                break
        is_last = pool.size == x.size and strength == 1.0
        places = slice(None) if pool.size == x.size else pool
        part, at, wanted = _part(reg, places, strength), x[places], enough if is_last else max(_ROUGH * largest, enough)
        moved, done, caution = _minimise_on_pool(
            mean, point, names[places], part, curvature[places], at, g[places], caution, wanted
        )
        is_still = done == 0 and moved == 0.0
        x[places] = at
        shift += moved
        n_steps += done
        if is_last or (is_still and strength == 1.0):
            break
        if is_still:
            strength, first = max(strength / _WEAKER, 1.0), 0.0
    return shift, n_steps, caution
