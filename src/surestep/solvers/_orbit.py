"""Steps put off: what many proximal steps without data do to one coordinate, in O(1).

A step of SGD is x <- T(x - data), T(v) = prox_{eta psi}(v - eta g), where data touches the coordinates of one row only
and T, with its dense vector g (0, or the gradient at the anchor of a variance-reduced method), all of them. A
coordinate is brought up to date when a row that has it is drawn: T is applied to it as often as there were steps since.

T_j never falls and never expands distances. So its orbits are monotone; between zero and the bounds they are affine,

    T^m(v) = q^m v - G eta (q + ... + q^m),    q = 1 / (1 + eta l2),    G = g + l1 for v > 0, g - l1 for v < 0,

with a table of both powers and sums. Where an orbit crosses zero or comes to a bound, the step is counted at which it
does, and taken by itself.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import generic, inlined, lean
from surestep.regularizers import prox

Array = NDArray[np.float64]

# Columns of the table of coordinates, a cache line each: the coordinate and the step up to which it is up to date; the
# dense vector g; where the block began; the penalty.
X, SEEN, DENSE, REFERENCE, PENALTY_L1, PENALTY_L2, LOWER, UPPER = 0, 1, 2, 3, 4, 5, 6, 7

# Columns of the table of powers, by m: q^m, eta (q + ... + q^m), and both summed over 1..m.
POWER, SUM, POWERS, SUMS = 0, 1, 2, 3


class Powers(NamedTuple):
    """q^m and its sums for m = 0, 1, ..., for the l2 that most coordinates have."""

    table: Array
    step: float
    l2: float
    common: bool  # whether all features have it


def make_powers(step: float, l2: float, common: bool, most: int) -> Powers:
    """Fill the table for up to ``most`` steps."""
    table = np.zeros((most + 1, 4))
    _fill_powers(table, step, l2)
    return Powers(table, step, l2, common)


@lean
def _fill_powers(table: Array, step: float, l2: float) -> None:
    q = 1.0 / (1.0 + step * l2)
    table[0, POWER] = 1.0
    for m in range(1, table.shape[0]):
        table[m, POWER] = table[m - 1, POWER] * q
        table[m, SUM] = (table[m - 1, SUM] + step) * q
        table[m, POWERS] = table[m - 1, POWERS] + table[m, POWER]
        table[m, SUMS] = table[m - 1, SUMS] + table[m, SUM]


class Packed(NamedTuple):
    """The penalty of `Separable`, which kernels find in the table of coordinates."""


@generic
def orbit(penalty: Any, table: Any, j: Any, v: Any, begin: Any, end: Any, powers: Any) -> Any:
    """T^m(v) for coordinate j, where m is the number of steps from ``begin`` to ``end``."""


@generic
def is_quick(penalty: Any, powers: Any) -> Any:
    """Whether `usual_orbit` is to be tried for features."""


@is_quick.register(tuple)
def _(penalty, powers):
    return False


@is_quick.register(Packed)
def _(penalty, powers):
    return powers.common


@generic
def orbit_sum(penalty: Any, table: Any, j: Any, v: Any, begin: Any, end: Any, powers: Any) -> Any:
    """T(v) + T^2(v) + ... + T^m(v), for averages of the iterates."""


@orbit.register(tuple)
def _(penalty, table, j, v, begin, end, powers):
    # A regularizer of a user's own: step by step.
    for _ in range(end - begin):
        v = prox(penalty, j, v - powers.step * table[j, DENSE], powers.step)
    return v


@orbit_sum.register(tuple)
def _(penalty, table, j, v, begin, end, powers):
    total = 0.0
    for _ in range(end - begin):
        v = prox(penalty, j, v - powers.step * table[j, DENSE], powers.step)
        total += v
    return total


@inlined
def usual_orbit(table: Array, j: int, v: float, power: float, sums: float) -> tuple[float, float, bool]:
    """Return T^m(v), given q^m and its sum, the G by which it goes, and whether it is right: no crossing on the way.

    In line, for speed. Where it ends at zero, only the first is meant.
    """
    g, l1 = table[j, DENSE], table[j, PENALTY_L1]
    pull = g
    if l1 > 0.0:
        pull = g + l1 if v > 0.0 or (v == 0.0 and g < 0.0) else g - l1
    after = power * v - sums * pull
    if l1 > 0.0 and after * v <= 0.0 and abs(g) <= l1:
        return 0.0, pull, True  # zero is where such orbits end, and they do not jump over it
    same_side = l1 == 0.0 or v == 0.0 or after * v > 0.0
    within = table[j, LOWER] <= min(v, after) and max(v, after) <= table[j, UPPER]
    return after, pull, same_side and within


@orbit.register(Packed)
def _(penalty, table, j, v, begin, end, powers):
    m = end - begin
    if m == 0:
        return v
    power, sums = _geometric(m, table[j, PENALTY_L2], powers)[:2]
    after, _, right = usual_orbit(table, j, v, power, sums)
    return after if right else _walk(table, j, v, m, powers)[0]


@orbit_sum.register(Packed)
def _(penalty, table, j, v, begin, end, powers):
    return _walk(table, j, v, end - begin, powers)[1]


@lean
def _walk(table: Array, j: int, v: float, m: int, powers: Powers) -> tuple[float, float]:
    """Return T^m(v) and the sum of the orbit, piece by piece between zero and the bounds."""
    g, l1, l2 = table[j, DENSE], table[j, PENALTY_L1], table[j, PENALTY_L2]
    lower, upper = table[j, LOWER], table[j, UPPER]
    eta = powers.step
    total = 0.0
    while m > 0:
        if lower <= v <= upper:
            pull = g + l1 if v > 0.0 or (v == 0.0 and g < 0.0) else g - l1
            slope = pull + l2 * v  # its sign says where the orbit goes
            if (
                slope == 0.0
                or (v == 0.0 and abs(g) <= l1)
                or (v == upper and slope < 0.0)
                or (v == lower and slope > 0.0)
            ):
                return v, total + m * v
            target = lower if slope > 0.0 else upper
            if l1 > 0.0 and v * slope > 0.0:  # towards zero
                target = max(target, 0.0) if slope > 0.0 else min(target, 0.0)
            few = min(m, _steps_before(v, target, pull, l2, eta))
            if few > 0:
                power, sums, powers_sum, sums_sum = _geometric(few, l2, powers)
                total += powers_sum * v - sums_sum * pull
                v = power * v - sums * pull
                m -= few
                if m == 0:
                    break
        # One step by itself: into the bounds, onto zero or across it.
        v -= eta * g
        size = max(abs(v) - eta * l1, 0.0) / (1.0 + eta * l2)
        v = min(max(size if v > 0.0 else 0.0 - size, lower), upper)
        total += v
        m -= 1
    return v, total


@lean
def _steps_before(v: float, target: float, pull: float, l2: float, eta: float) -> int:
    """Count steps that surely do not pass the target; at least two fewer than those that do, for rounding."""
    if abs(target) == np.inf:
        return 1 << 40
    if l2 == 0.0:
        steps = (v - target) / (eta * pull)
    else:
        ratio = (pull + l2 * target) / (pull + l2 * v)
        if ratio <= 0.0:  # the orbit ends before
            return 1 << 40
        steps = -math.log(ratio) / math.log1p(eta * l2)
    return int(min(max(steps * (1.0 - 1e-9) - 2.0, 0.0), 1e12))


@lean
def _geometric(m: int, l2: float, powers: Powers) -> tuple[float, float, float, float]:
    """Return the row m of the table of powers for any l2."""
    if l2 == powers.l2:
        row = powers.table[m]
        return row[POWER], row[SUM], row[POWERS], row[SUMS]
    eta = powers.step
    if l2 == 0.0:
        return 1.0, m * eta, float(m), 0.5 * m * (m + 1) * eta
    power = math.exp(-m * math.log1p(eta * l2))
    sums = -math.expm1(-m * math.log1p(eta * l2)) / l2
    powers_sum = sums / eta
    if eta * l2 * m < 1e-5:  # the difference below would cancel
        return power, sums, powers_sum, 0.5 * eta * m * (m + 1.0) * (1.0 - eta * l2 * (m + 2.0) / 3.0)
    return power, sums, powers_sum, (m - powers_sum) / l2


class Ball(NamedTuple):
    """A ridge term, or none, and projection onto a ball around zero: every step shrinks all features alike.

    ``growth[t]`` has the product of all factors up to step t of the block, and the sum of these products over 1..t;
    ``norm[0]`` is the squared norm of the features. The intercept, if there is one, is free.
    """

    radius: float
    growth: Array
    norm: Array
    n_features: int


def make_ball(radius: float, features: Array, most: int) -> Ball:
    """Begin a block of up to so many steps."""
    ball = Ball(radius, np.zeros((most + 1, 2)), np.array([features @ features]), features.size)
    ball.growth[0, 0] = 1.0
    return ball


@orbit.register(Ball)
def _(penalty, table, j, v, begin, end, powers):
    if j >= penalty.n_features:
        return v
    return v * (penalty.growth[end, 0] / penalty.growth[begin, 0])


@orbit_sum.register(Ball)
def _(penalty, table, j, v, begin, end, powers):
    if j >= penalty.n_features:
        return v * (end - begin)
    return v * ((penalty.growth[end, 1] - penalty.growth[begin, 1]) / penalty.growth[begin, 0])


@generic
def end_step(penalty: Any, t: Any, gained: Any, powers: Any) -> Any:
    """Close step t, in which data have added ``gained`` to the squared norm of the features.

    Return kappa and tau of `surestep.solvers._stochastic.follow`, and whether the block must end.
    """


@end_step.register(tuple)
def _(penalty, t, gained, powers):
    return 1.0 / (1.0 + powers.step * powers.l2), powers.step, False


@end_step.register(Ball)
def _(penalty, t, gained, powers):
    shrink = 1.0 / (1.0 + powers.step * powers.l2)
    squared = max(penalty.norm[0] + gained, 0.0) * shrink * shrink
    if squared > penalty.radius * penalty.radius:
        shrink *= penalty.radius / math.sqrt(squared)
        squared = penalty.radius * penalty.radius
    penalty.norm[0] = squared
    growth = penalty.growth[t, 0] * shrink
    penalty.growth[t + 1, 0] = growth
    penalty.growth[t + 1, 1] = penalty.growth[t, 1] + growth
    return shrink, 1.0 / shrink - 1.0, growth < 1e-100
