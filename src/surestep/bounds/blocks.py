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
Integers = NDArray[np.int64]

# Columns of `Blocks.table`, a cache line for each member: the alias table of the start of the block (how much of its
# own place it keeps, and who has the rest); the L t that it proposes, and the present one; the present bounds on c; L
# and the scale.
KEEP, OTHER, PROPOSED, MASS, LOWER, UPPER, WEIGHT, SCALE = 0, 1, 2, 3, 4, 5, 6, 7

# Places in `Blocks.totals`: the level m (0 where no lower bound is positive: then p ~ L among those that may move); T;
# m F(1 / m); Q; T at the start; the distances from the snapshot that end the block, in the two norms of `Snapshot`;
# what rounding may have added to them; whether the block is over; how many members there are, and who was drawn last.
LEVEL, TOTAL, PHI, SQUARES, START, BUDGET, LARGEST_BUDGET, ROUNDING, ENDED, N_MEMBERS, DRAWN = range(11)

# A block is over when so little of its sampling is left: rejected proposals would then take longer than a new block.
_LEAST_LEFT = 0.02
_REJECTIONS = 100_000

# Lengths of a block that are looked into, in units of the steps that take as long as starting one; and that of a
# stretch without bounds, where they would tell too little: they may be worth something later.
_LENGTHS = (64.0, 16.0, 4.0, 1.0)
_LENGTH_WITHOUT_BOUNDS = 16.0

# What keeping bounds adds to the cost of a step, in units of the time that one entry of a column takes (measured).
_BOUNDS = 400.0

# Following the largest entry of r pays if it makes the value so much better.
_WORTH_FOLLOWING = 1.05

# r is expected to get as far as in the last block, in proportion to the square root of the number of steps; and a bit.
_MARGIN = 1.2


class Blocks(NamedTuple):
    """The sampling of a block, and what is known since; bounds on c are multiplied by the scale of the coordinate.

    Its members are the coordinates that may move during the block, often few of very many: only their lines of the
    table are used.
    """

    smoothness: Array
    scale: Array
    members: Integers
    table: Array
    totals: Array


def make_blocks(smoothness: Array, scale: Array) -> Blocks:
    """Make room; nothing is known yet. Coordinates with L_i = 0 are never drawn."""
    n, totals = smoothness.size, np.zeros(DRAWN + 1)
    totals[BUDGET] = np.inf
    return Blocks(smoothness, scale, np.empty(n, np.int64), np.empty((n, 8)), totals)


def knows_bounds(sampler: Blocks) -> bool:
    """Whether there is anything to draw from; else p ~ L, the best without bounds."""
    return bool(sampler.totals[BUDGET] < np.inf)


@looks_at_bounds.register(Blocks)
def _(sampler):
    return False


@draw.register(Blocks)
def _(sampler, lower, upper, rng):
    totals, table = sampler.totals, sampler.table
    n = int(totals[N_MEMBERS])
    if totals[ENDED] == 1.0:
        return OVER, 1.0, 1.0
    if totals[START] == 0.0:
        return NONE, 1.0, 1.0
    for _ in range(_REJECTIONS):
        place = rng.random() * n
        k = min(int(place), n - 1)
        if place - k >= table[k, KEEP]:
            k = int(table[k, OTHER])
        mass, proposed = table[k, MASS], table[k, PROPOSED]
        if mass == proposed or rng.random() * proposed < mass:
            totals[DRAWN] = k
            return sampler.members[k], mass / totals[TOTAL], _worst_case(totals)
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
    k = int(totals[DRAWN])
    distance, largest = tracker.totals[DISTANCE], tracker.totals[LARGEST]
    totals[ROUNDING] += step.rounding
    if distance > totals[BUDGET] or largest > totals[LARGEST_BUDGET]:
        totals[ENDED] = 1.0
        return
    # By the triangle inequality: from where it was seen to the snapshot, and from there to anywhere in the budget.
    distance, largest = distance + totals[BUDGET], largest + totals[LARGEST_BUDGET]
    radius = radius_within(tracker, j, distance, largest, totals[ROUNDING]) + 8.0 * EPS * abs(step.gradient)
    lower, upper = magnitude_bounds(penalty, j, x, step.gradient - radius, step.gradient + radius)
    lower, upper = lower * table[k, SCALE], upper * table[k, SCALE]
    level, weight = totals[LEVEL], table[k, WEIGHT]
    old_mass, old_lower = table[k, MASS], table[k, LOWER]
    mass = min(_mass(weight, lower, upper, level), table[k, PROPOSED])  # no more than what is proposed
    totals[TOTAL] += mass - old_mass
    totals[PHI] += _excess(weight, lower, upper, mass, level)
    totals[PHI] -= _excess(weight, old_lower, table[k, UPPER], old_mass, level)
    totals[SQUARES] += lower * lower - old_lower * old_lower
    table[k, MASS], table[k, LOWER], table[k, UPPER] = mass, lower, upper
    if totals[TOTAL] < _LEAST_LEFT * totals[START] or (totals[PHI] > 0.0 and totals[SQUARES] <= 0.0):
        totals[ENDED] = 1.0


@jit
def _bounds_within(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, budget: Array, j: int
) -> tuple[float, float]:
    """Return bounds that hold as long as r is within the given distances from the snapshot."""
    gradient, scale = point.gradient[j], sampler.scale[j]
    radius = radius_within(tracker, j, budget[0], budget[1], point.rounding) + 8.0 * EPS * abs(gradient)
    lower, upper = magnitude_bounds(penalty, j, point.x[j], gradient - radius, gradient + radius)
    return lower * scale, upper * scale


@jit
def _who_may_move(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, budget: Array, candidates: Integers
) -> tuple[Integers, Array, Array, Array]:
    """Return those of the candidates that may move within the budget, their bounds, and their L."""
    n, members = 0, np.empty_like(candidates)
    lower, upper, weight = np.empty(candidates.size), np.empty(candidates.size), np.empty(candidates.size)
    for k in range(candidates.size):
        j = candidates[k]
        low, high = _bounds_within(sampler, tracker, penalty, point, budget, j)
        if high > 0.0:
            members[n], lower[n], upper[n], weight[n] = j, low, high, sampler.smoothness[j]
            n += 1
    return members[:n], lower[:n], upper[:n], weight[:n]


class _Plan(NamedTuple):
    """The safe sampling of the bounds within a budget: of the coordinates that may move, if there are any."""

    budget: Array
    members: Integers
    lower: Array
    upper: Array
    weight: Array
    solution: Solution | None

    def promise(self, n_steps: float, start: float, costs: Array) -> float:
        """Progress for the money, 1 / v per step, of a block of that many steps."""
        if self.solution is None:
            return np.inf
        per_step = float(self.solution.probabilities @ costs[self.members]) + _BOUNDS
        return 1.0 / (self.solution.value * (start / n_steps + per_step))


def _promise_without_bounds(total: float, per_step: float) -> float:
    """Progress for the money of the fixed sampling, as if it went on for as long as the longest block."""
    return 1.0 / (total * (1.0 / _LENGTHS[0] + 1.0) * per_step)


def _plan(sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, budget: Array, candidates: Integers) -> _Plan:
    """Plan with those of the candidates that may move within the budget."""
    members, lower, upper, weight = _who_may_move(sampler, tracker, penalty, point, budget, candidates)
    return _Plan(budget, members, lower, upper, weight, solve(lower, upper, weight) if members.size else None)


def begin_block(
    sampler: Blocks,
    tracker: Snapshot,
    penalty: Any,
    point: Point,
    reached: Array,
    steps: int,
    start: float,
    costs: Array,
) -> int:
    """Begin a block at the snapshot that the tracker has just taken; return how many steps it is to last.

    Before, r got as far as ``reached`` in ``steps``; starting a block costs ``start``, and a step ``costs``. Longer
    blocks need larger budgets and so know less; shorter ones spend more on starting; and those who may move may have
    longer columns than others. The block is taken that promises the most progress for the money, or none, if steps
    without bounds promise more; see `knows_bounds`.
    """
    totals, total = sampler.totals, float(sampler.smoothness.sum())
    per_step = float(sampler.smoothness @ costs) / total
    unit = start / per_step
    length, plan = _LENGTH_WITHOUT_BOUNDS * unit, None
    best = _promise_without_bounds(total, per_step)
    everybody = candidates = np.flatnonzero(sampler.smoothness)
    for multiple in _LENGTHS:
        budget = _MARGIN * reached * np.sqrt(multiple * unit / steps)
        trial = _plan(sampler, tracker, penalty, point, budget, candidates)
        candidates = trial.members  # who stays where he is in a longer block does so in a shorter one
        promise = trial.promise(multiple * unit, start, costs)
        if promise > best:
            best, length, plan = promise, multiple * unit, trial
    totals[:] = 0.0
    totals[BUDGET] = np.inf
    if plan is None:
        return max(int(length), 1)
    if tracker.residual.size > 0:
        # Following the largest entry makes every step dearer: is it worth that?
        without = _plan(sampler, tracker, penalty, point, np.array([plan.budget[0], np.inf]), everybody)
        if without.promise(length, start, costs) >= best / _WORTH_FOLLOWING:
            plan = without
    follow_largest(tracker, plan.budget[1] < np.inf)
    totals[BUDGET], totals[LARGEST_BUDGET], totals[ROUNDING] = *plan.budget, point.rounding
    if plan.solution is not None:
        _fill_table(sampler, tracker, penalty, point, plan, plan.solution)
    return max(int(length), 1)


def _fill_table(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, plan: _Plan, solution: Solution
) -> None:
    """Write the sampling of a block, and the alias table of what it may propose."""
    totals, members, n = sampler.totals, plan.members, plan.members.size
    if np.any(plan.lower):
        totals[LEVEL] = np.ldexp(solution.level, solution.level_exponent)
    totals[TOTAL] = totals[START] = solution.value * (totals[LEVEL] if totals[LEVEL] > 0.0 else 1.0)
    totals[SQUARES], totals[N_MEMBERS] = plan.lower @ plan.lower, n
    mass, more = solution.probabilities * totals[TOTAL], np.empty(n)
    _fill_later_masses(sampler, tracker, penalty, point, plan.budget, members, more)
    # No more than as much again, or most proposals would be in vain.
    more = np.maximum(more - mass, 0.0)
    if more.sum() > totals[TOTAL]:
        more *= totals[TOTAL] / more.sum()
    proposed = mass + more
    keep, other = proposed * (n / proposed.sum()), np.arange(n)
    fill_alias(keep, other)
    sampler.members[:n] = members
    table = sampler.table[:n]
    table[:, KEEP], table[:, OTHER], table[:, PROPOSED], table[:, MASS] = keep, other, proposed, mass
    table[:, LOWER], table[:, UPPER], table[:, WEIGHT] = plan.lower, plan.upper, plan.weight
    table[:, SCALE] = sampler.scale[members]


@jit
def _fill_later_masses(
    sampler: Blocks, tracker: Snapshot, penalty: Any, point: Point, budget: Array, members: Integers, masses: Array
) -> None:
    """Write the largest L t that a visit can lead to: after it, bounds are up to twice the budget wide."""
    for k in range(members.size):
        root = np.sqrt(sampler.smoothness[members[k]])
        _, upper = _bounds_within(sampler, tracker, penalty, point, 2.0 * budget, members[k])
        masses[k] = root * min(root * sampler.totals[LEVEL], upper)
