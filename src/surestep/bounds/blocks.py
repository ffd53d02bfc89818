"""Safe sampling solved once for a block of steps: for columns so short that even a microsecond a draw is dear.

At the start of a block the whole gradient is known. Its bounds are inflated by a budget, a distance that r may travel
before the block is over; the safe sampling of the inflated bounds is solved for once, in O(n), and drawn from in O(1).

Unvisited coordinates keep within the inflated bounds for the whole block. A visited one does not (its own penalty term
has moved): it gets new bounds, valid for the rest of the block, and its share of the sampling goes with them, by
rejection, though not above what the table proposes. The level m stays. In normalised units, p_i = L_i t_i / T with T =
sum L_i t_i and t_i = clip(m, lt_i, ut_i), or less. The worst case of p over the present bounds is T lambda, lambda the
root of

    F(lambda) = sum_i L_i tau_i^2 (1 / t_i - lambda),    tau_i = ut_i where t_i < 1 / lambda, else lt_i,

which is convex, with a slope of -Q or less, Q = sum L_i lt_i^2; so lambda <= 1 / m + max(F(1 / m), 0) / Q. At the start
of a block m F(1 / m) is the phi(m) = 0 of eq. 7, and the value T / m. All of it is kept up to date in O(1).
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.snapshot import DISTANCE, LARGEST, Snapshot, follow_largest, radius_within
from surestep.bounds.tracker import EPS, Point
from surestep.regularizers import magnitude_bounds
from surestep.sampling.safe import Solution, solve
from surestep.sampling.samplers import NONE, OVER, draw, fill_alias, looks_at_bounds, observe

Array = NDArray[np.float64]

# Columns of `Blocks.table`, a cache line for each coordinate: the alias table of the start of the block (how much of
# its own place a coordinate keeps, and who has the rest); the L t that it proposes, and the present one; the present
# bounds on c; L and the scale.
KEEP, OTHER, PROPOSED, MASS, LOWER, UPPER, WEIGHT, SCALE = 0, 1, 2, 3, 4, 5, 6, 7

# Places in `Blocks.totals`: the level m (0 where no lower bound is positive: then p ~ L among those that may move); T;
# m F(1 / m); Q; T at the start; the distances from the snapshot that end the block, in the two norms of `Snapshot`;
# what rounding may have added to them; whether the block is over.
LEVEL, TOTAL, PHI, SQUARES, START, BUDGET, LARGEST_BUDGET, ROUNDING, ENDED = 0, 1, 2, 3, 4, 5, 6, 7, 8

# A block is over when so little of its sampling is left: rejected proposals would then take longer than a new block.
_LEAST_LEFT = 1e-3
_REJECTIONS = 100_000

# Lengths of a block that are looked into, in units of the steps that take as long as starting one.
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

# A block without a budget, where bounds would tell nothing, is no longer than this: they may be worth something later.
_LENGTH_WITHOUT_BUDGET = 16.0
_CHEAPER_WITHOUT_BUDGET = 1.1

# Following the largest entry of r pays if it makes the value so much better.
_WORTH_FOLLOWING = 1.05

# r is expected to get as far as in the last block, in proportion to the square root of the number of steps; and a bit.
_MARGIN = 1.2


class Blocks(NamedTuple):
    """The sampling of a block, and what is known since; bounds on c are multiplied by the scale of the coordinate."""

    table: Array
    totals: Array


def make_blocks(smoothness: Array, scale: Array) -> Blocks:
    """Make room; the first block is due before the first step. Coordinates with L_i = 0 are never drawn."""
    table = np.zeros((smoothness.size, 8))
    table[:, WEIGHT], table[:, SCALE] = smoothness, scale
    return Blocks(table, np.zeros(9))


@looks_at_bounds.register(Blocks)
def _(sampler):
    return False


@draw.register(Blocks)
def _(sampler, lower, upper, rng):
    totals, table = sampler.totals, sampler.table
    n = table.shape[0]
    if totals[ENDED] == 1.0:
        return OVER, 1.0, 1.0
    if totals[START] == 0.0:
        return NONE, 1.0, 1.0
    for _ in range(_REJECTIONS):
        place = rng.random() * n
        i = min(int(place), n - 1)
        if place - i >= table[i, KEEP]:
            i = int(table[i, OTHER])
        mass, proposed = table[i, MASS], table[i, PROPOSED]
        if mass == proposed or rng.random() * proposed < mass:
            return i, mass / totals[TOTAL], _worst_case(totals)
    return OVER, 1.0, 1.0


@jit
def _worst_case(totals: Array) -> float:
    """Bound the worst case of the present sampling over the present bounds."""
    if totals[LEVEL] == 0.0:
        return float(totals[TOTAL])
    excess = max(totals[PHI], 0.0)
    return float(totals[TOTAL] / totals[LEVEL] * (1.0 + excess / totals[SQUARES] if excess > 0.0 else 1.0))


@jit
def _mass(weight: float, lower: float, upper: float, level: float) -> float:
    """L t of one coordinate."""
    if level == 0.0:
        return weight if upper > 0.0 else 0.0
    root = np.sqrt(weight)
    return float(root * min(max(root * level, lower), upper))


@jit
def _excess(weight: float, lower: float, upper: float, mass: float, level: float) -> float:
    """Return the term of m F(1 / m), which is that of phi where t = clip(m, lt, ut)."""
    at_level = weight * level
    if level == 0.0 or mass == 0.0 or mass == at_level:
        return 0.0
    bound = upper if mass < at_level else lower
    return bound * bound * (at_level / mass - 1.0)


@observe.register(Blocks)
def _(sampler, tracker, penalty, j, x, step):
    totals, table = sampler.totals, sampler.table
    distance, largest = tracker.totals[DISTANCE], tracker.totals[LARGEST]
    totals[ROUNDING] += step.rounding
    if totals[BUDGET] == np.inf:
        return
    if distance > totals[BUDGET] or largest > totals[LARGEST_BUDGET]:
        totals[ENDED] = 1.0
        return
    # By the triangle inequality: from where it was seen to the snapshot, and from there to anywhere in the budget.
    distance, largest = distance + totals[BUDGET], largest + totals[LARGEST_BUDGET]
    radius = radius_within(tracker, j, distance, largest, totals[ROUNDING]) + 8.0 * EPS * abs(step.gradient)
    lower, upper = magnitude_bounds(penalty, j, x, step.gradient - radius, step.gradient + radius)
    lower, upper = lower * table[j, SCALE], upper * table[j, SCALE]
    level, weight = totals[LEVEL], table[j, WEIGHT]
    old_mass, old_lower = table[j, MASS], table[j, LOWER]
    mass = min(_mass(weight, lower, upper, level), table[j, PROPOSED])  # no more than what is proposed
    totals[TOTAL] += mass - old_mass
    totals[PHI] += _excess(weight, lower, upper, mass, level)
    totals[PHI] -= _excess(weight, old_lower, table[j, UPPER], old_mass, level)
    totals[SQUARES] += lower * lower - old_lower * old_lower
    table[j, MASS], table[j, LOWER], table[j, UPPER] = mass, lower, upper
    if totals[TOTAL] < _LEAST_LEFT * totals[START] or (totals[PHI] > 0.0 and totals[SQUARES] <= 0.0):
        totals[ENDED] = 1.0


@jit
def _inflate(sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, distance: float, largest: float) -> None:
    """Write bounds that hold as long as r is within the given distances from the snapshot."""
    table = sampler.table
    for j in range(point.x.size):
        table[j, LOWER] = table[j, UPPER] = 0.0
        if table[j, WEIGHT] > 0.0:
            gradient = point.gradient[j]
            radius = radius_within(tracker, j, distance, largest, point.rounding) + 8.0 * EPS * abs(gradient)
            lower, upper = magnitude_bounds(penalty, j, point.x[j], gradient - radius, gradient + radius)
            table[j, LOWER], table[j, UPPER] = lower * table[j, SCALE], upper * table[j, SCALE]


def _solve(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, budget: Array
) -> tuple[NDArray[np.int64], Solution | None]:
    """Return the coordinates that may move within a budget, and the safe sampling of their inflated bounds."""
    _inflate(sampler, tracker, penalty, point, budget[0], budget[1])
    may_move = np.flatnonzero(sampler.table[:, UPPER] > 0.0)
    if may_move.size == 0:
        return may_move, None
    return may_move, solve(*(sampler.table[may_move, column] for column in (LOWER, UPPER, WEIGHT)))


def begin_block(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, reached: Array, steps: int, unit: float
) -> int:
    """Begin a block at the snapshot that the tracker has just taken; return how many steps it is to last.

    The last block got as far as ``reached`` in ``steps``; starting a block costs as much as ``unit`` steps. Longer
    blocks need larger budgets and so know less; shorter ones spend more on starting. The length is taken that promises
    the most progress for the money, 1 / v per step. Before the first block nothing is expected: it has no budget.
    """
    budget, length = np.full(2, np.inf), unit
    if steps > 0:
        # Without a budget the sampling is fixed, and steps are cheaper because there are no bounds to keep.
        length = _LENGTH_WITHOUT_BUDGET * unit
        best = _CHEAPER_WITHOUT_BUDGET / (sampler.table[:, WEIGHT].sum() * (1.0 + 1.0 / _LENGTH_WITHOUT_BUDGET))
        for multiple in _LENGTHS:
            trial = _MARGIN * reached * np.sqrt(multiple * unit / steps)
            _, solution = _solve(sampler, tracker, penalty, point, trial)
            promise = np.inf if solution is None else 1.0 / (solution.value * (1.0 + 1.0 / multiple))
            if promise > best:
                best, budget, length = promise, trial, multiple * unit
        if tracker.residual.size > 0 and budget[0] < np.inf:
            # Following the largest entry makes every step dearer: is it worth that?
            without = np.array([budget[0], np.inf])
            _, solution = _solve(sampler, tracker, penalty, point, without)
            multiple = length / unit
            if solution is None or 1.0 / (solution.value * (1.0 + 1.0 / multiple)) >= best / _WORTH_FOLLOWING:
                budget = without
    follow_largest(tracker, budget[1] < np.inf)
    may_move, solution = _solve(sampler, tracker, penalty, point, budget)
    table, totals = sampler.table, sampler.totals
    totals[:] = 0.0
    totals[BUDGET], totals[LARGEST_BUDGET], totals[ROUNDING] = budget[0], budget[1], point.rounding
    table[:, PROPOSED] = 0.0
    if solution is not None:
        if np.any(table[may_move, LOWER] > 0.0):
            totals[LEVEL] = np.ldexp(solution.level, solution.level_exponent)
        mass = solution.value * (totals[LEVEL] if totals[LEVEL] > 0.0 else 1.0)
        totals[TOTAL] = totals[START] = mass
        totals[SQUARES] = table[:, LOWER] @ table[:, LOWER]
        table[:, MASS] = 0.0
        table[may_move, MASS] = solution.probabilities * mass
        lower, upper = table[:, LOWER].copy(), table[:, UPPER].copy()
        # After a visit bounds are up to twice the budget wide, and may allow more than now: that must be proposed too.
        _inflate(sampler, tracker, penalty, point, 2.0 * budget[0], 2.0 * budget[1])
        free = np.sqrt(table[may_move, WEIGHT]) * np.minimum(
            np.sqrt(table[may_move, WEIGHT]) * totals[LEVEL], table[may_move, UPPER]
        )
        table[may_move, PROPOSED] = np.maximum(table[may_move, MASS], free)
        table[:, LOWER], table[:, UPPER] = lower, upper
        keep = table[:, PROPOSED] * (table.shape[0] / table[:, PROPOSED].sum())
        other = np.arange(table.shape[0])
        fill_alias(keep, other)
        table[:, KEEP], table[:, OTHER] = keep, other
    return max(int(length), 1)
