"""The safe sampling kept up to date step by step: a draw, an observation and a drift cost about a microsecond.

Bounds are kept in normalised units, ut_i = upper_i / sqrt(L_i) and lt_i = lower_i / sqrt(L_i). While the gradient
drifts, all upper bounds of a class of coordinates rise by one number and all its lower bounds fall by the same number:
an offset a class. Keys relative to the offset,

    ut_i = max(key_i + offset, 0)        lt_i = max(-(key'_i + offset), 0),

do not change, nor does their order; only the observed coordinate moves. So the sums over clipped coordinates that fix
the level (see `surestep.sampling.safe`) are range queries in two `Order` structures, at a cost that hardly grows with
the number of coordinates, and the result is the exact safe sampling of the exact bounds: nothing is rounded to a grid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.sampling.order import (
    EXTRA,
    FILL,
    INSERTED,
    Order,
    build,
    insert,
    make_order,
    mass_from,
    pick,
    range_sums,
    remove,
)

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_NEWTON_PASSES = 12
_REJECTIONS = 1000
_LEVEL_ACCURACY = 1e-13

# A build costs about as much as looking at this many members of buckets, for each of its items.
_BUILD_COST = 200
_FEWEST_INSERTIONS = 1024

# offset: drift since the last build. The others belong to the solution: sqrt(L) c summed over the coordinates at their
# upper bound, over those at their lower bound; L summed over those whose upper bound is not below the level.
CLASS = np.dtype([("offset", "f8"), ("at_upper", "f8"), ("at_lower", "f8"), ("above", "f8")])

# Places in `Index.found`: whether the solution is up to date; the level (0 where no lower bound is positive); the sum of
# all sqrt(L) c (there: of all L); the value; and, not of the solution, the insertions after which a build is due.
FRESH, LEVEL, TOTAL, VALUE, PATIENCE = 0, 1, 2, 3, 4


class Index(NamedTuple):
    """Bounds of all coordinates, and the solution for them."""

    upper: Order
    lower: Order
    classes: Any
    found: Array


def make_index(smoothness: Array, kind: Integers, n_classes: int) -> Index:
    """Know nothing: bounds are 0 and infinity. Coordinates with L_i = 0 are left out."""
    upper, lower = make_order(smoothness, n_classes), make_order(smoothness, n_classes)
    upper.items["key"] = np.inf
    build(upper, np.where(smoothness > 0.0, kind, -1), np.zeros(n_classes))
    return Index(upper, lower, np.zeros(n_classes, CLASS), np.array([0.0, 0.0, 0.0, 0.0, _FEWEST_INSERTIONS]))


@jit
def drift(index: Index, kind: int, amount: float) -> None:
    """Let the bounds of a class drift apart by an amount, in normalised units; together if it is negative."""
    index.classes[kind]["offset"] += amount
    index.found[FRESH] = 0.0


@jit
def place(index: Index, i: int, kind: int, low: float, high: float) -> None:
    """Set the bounds of coordinate i, in normalised units, as of now.

    A negative ``high`` says that the coordinate is certified to be zero, and stays so until its class has drifted by that
    much; ``low`` may be negative alike.
    """
    offset = index.classes[kind]["offset"]
    remove(index.upper, i)
    insert(index.upper, i, kind, high - offset)
    remove(index.lower, i)
    if low > -np.inf:
        insert(index.lower, i, kind, -low - offset)
    index.found[FRESH] = 0.0
    inserted = max(index.upper.state[INSERTED], index.lower.state[INSERTED])
    extra = index.upper.state[EXTRA] + index.lower.state[EXTRA]
    if inserted >= index.found[PATIENCE] or extra > _BUILD_COST * index.upper.items.size:
        rebuild(index)


@jit
def rebuild(index: Index) -> None:
    """Lay both orders out anew, with keys relative to the present offsets. Cost O(n log n), after O(n) insertions."""
    n_finite = 0
    kind, width = np.empty(index.upper.items.size, np.int64), np.empty(index.classes.size)
    for side in range(2):
        order = index.upper if side == 0 else index.lower
        for i in range(kind.size):
            item = order.items[i]
            kind[i] = -1
            if item["bucket"] >= 0:
                kind[i] = item["kind"]
                item["key"] += index.classes[kind[i]]["offset"]
                n_finite += side == 0 and item["key"] < np.inf
        # The next keys go as far, in as many insertions, as they went since the last time.
        for k in range(width.size):
            width[k] = abs(index.classes[k]["offset"]) * FILL / max(order.state[INSERTED], 1)
        build(order, kind, width)
    for k in range(width.size):
        index.classes[k]["offset"] = 0.0
    index.found[PATIENCE] = max(_FEWEST_INSERTIONS, n_finite)


@jit
def _clipped_sums(index: Index, level: float) -> tuple[float, float, float]:
    """S1, S2 and the sum of L at lower bounds, over the clipped coordinates; S1 also by class."""
    first = second = mass = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        _, a, b = range_sums(index.upper, k, -offset, level - offset, offset)
        w, c, d = range_sums(index.lower, k, -np.inf, -level - offset, offset)
        index.classes[k]["at_upper"], index.classes[k]["at_lower"] = a, -c
        first += a - c
        second += b + d
        mass += w
    return first, second, mass


@jit
def _least_key(index: Index, kind: int, level: float) -> float:
    """Return the smallest key of an upper bound that is not below the level, and not zero."""
    offset = index.classes[kind]["offset"]
    return level - offset if level > 0.0 else np.nextafter(-offset, np.inf)


@jit
def _mass_above(index: Index, level: float) -> float:
    """Sum of L over the coordinates whose upper bound is not below the level; also by class."""
    total = 0.0
    for k in range(index.classes.size):
        index.classes[k]["above"] = mass_from(index.upper, k, _least_key(index, k, level))
        total += index.classes[k]["above"]
    return total


@jit
def solve(index: Index) -> None:
    """Find level and value of the present bounds, unless they are known."""
    found = index.found
    if found[FRESH] == 1.0:
        return
    found[FRESH] = 1.0
    first = second = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        _, a, b = range_sums(index.lower, k, -np.inf, -offset, offset)
        first -= a
        second += b
    if first == 0.0:  # nothing is known from below: importance sampling among those that may move
        found[LEVEL] = 0.0
        found[TOTAL] = found[VALUE] = _mass_above(index, 0.0)
        return
    low, high = 0.0, np.inf
    level = found[LEVEL] if found[LEVEL] > 0.0 else second / first
    passes = 0
    while True:
        first, second, at_lower = _clipped_sums(index, level)
        if first == 0.0:
            break
        newton = second / first
        if abs(newton - level) <= _LEVEL_ACCURACY * level:
            break
        if newton > level:
            low = level
        else:
            high = level
        passes += 1
        if low < newton < high and (passes < _NEWTON_PASSES or passes % 2 == 0):
            level = newton
        elif high == np.inf:
            level *= 2.0
        elif low == 0.0:
            level *= 0.5
        else:
            middle = np.sqrt(low) * np.sqrt(high)
            if not low < middle < high:
                break
            level = middle
    found[LEVEL] = level
    found[TOTAL] = first + level * max(_mass_above(index, level) - at_lower, 0.0)
    found[VALUE] = found[TOTAL] / level


@jit
def normalized_bounds(index: Index, i: int) -> tuple[float, float]:
    """Return (lt_i, ut_i)."""
    upper, lower = index.upper.items[i], index.lower.items[i]
    low = high = 0.0
    if upper["bucket"] >= 0:
        high = max(upper["key"] + index.classes[upper["kind"]]["offset"], 0.0)
    if lower["bucket"] >= 0:
        low = max(-(lower["key"] + index.classes[lower["kind"]]["offset"]), 0.0)
    return low, high


@jit
def probability(index: Index, i: int) -> float:
    """Return p_i of the present bounds, which must have been solved for."""
    low, high = normalized_bounds(index, i)
    level, weight = index.found[LEVEL], index.upper.items[i]["weight"]
    if level == 0.0:
        return weight / index.found[TOTAL] if high > 0.0 else 0.0
    return weight * min(max(level, low), high) / index.found[TOTAL]


@jit
def _is_at_level(index: Index, i: int, level: float) -> bool:
    """Whether coordinate i sits at the level; by the very comparisons of the range queries, to the last bit."""
    upper, lower = index.upper.items[i], index.lower.items[i]
    if upper["bucket"] < 0 or upper["key"] < _least_key(index, upper["kind"], level):
        return False
    return level == 0.0 or lower["bucket"] < 0 or lower["key"] >= -level - index.classes[lower["kind"]]["offset"]


@jit
def _draw_at_level(index: Index, rng: Any) -> int:
    """Draw a coordinate at the level: one whose upper bound is not below it, by L, rejected if its lower bound is above.

    This group is drawn from only as often as its mass allows, so that there is less than one rejection a step on
    average. A long row of them means that the group is tiny: then it is gone through once, which settles it.
    """
    level, above = index.found[LEVEL], 0.0
    for k in range(index.classes.size):
        above += index.classes[k]["above"]
    for _ in range(_REJECTIONS):
        target = rng.random() * above
        kind = 0
        while kind < index.classes.size - 1 and target >= index.classes[kind]["above"]:
            target -= index.classes[kind]["above"]
            kind += 1
        i = pick(index.upper, kind, _least_key(index, kind, level), np.inf, 0.0, False, target)
        if i >= 0 and _is_at_level(index, i, level):
            return i
    total, best = 0.0, -1
    for i in range(index.upper.items.size):
        if _is_at_level(index, i, level):
            weight = index.upper.items[i]["weight"]
            total += weight
            if rng.random() * total < weight:  # each newcomer takes over with probability L_i / (sum so far)
                best = i
    return best


@jit
def draw_from(index: Index, rng: Any) -> int:
    """Draw a coordinate from the safe sampling of the present bounds; -1 if all upper bounds are zero."""
    solve(index)
    level, total = index.found[LEVEL], index.found[TOTAL]
    i = -1
    while total > 0.0 and i < 0:
        target = rng.random() * total
        if level > 0.0:
            for k in range(index.classes.size):
                offset, at_upper = index.classes[k]["offset"], index.classes[k]["at_upper"]
                at_lower = index.classes[k]["at_lower"]
                if target < at_upper:
                    i = pick(index.upper, k, -offset, level - offset, offset, True, target)
                elif target < at_upper + at_lower:
                    i = pick(index.lower, k, -np.inf, -level - offset, offset, True, target - at_upper)
                target -= at_upper + at_lower
                if target < 0.0:
                    break
        # None is found where rounding gave an empty group a mass of a few ulp: then it was not meant, and drawn again.
        if level == 0.0 or target >= 0.0:
            i = _draw_at_level(index, rng)
    return i
