"""The safe sampling kept up to date step by step: a draw, an observation and a drift cost a few microseconds.

Bounds are kept in normalised units, ut_i = upper_i / sqrt(L_i) and lt_i = lower_i / sqrt(L_i). While the gradient
drifts, all upper bounds of a class of coordinates rise by one number and all its lower bounds fall by the same number:
an offset a class. Keys relative to the offset,

    ut_i = max(key_i + offset, 0)        lt_i = max(-(key'_i + offset), 0),

do not change, nor does their order; only the observed coordinate moves. So the sums over clipped coordinates that fix
the level (see `surestep.sampling.safe`) are range queries in an `Order`, at a cost that hardly grows with the number of
coordinates, and the result is the exact safe sampling of the exact bounds: nothing is rounded to a grid.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit, lean
from surestep.sampling.layout import Line, build, line_up, make_order, sort_items
from surestep.sampling.order import EXTRA, FILL, INSERTED, Order, insert, mass_from, pick, range_sums, remove

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_NEWTON_PASSES = 12
_LEVEL_ACCURACY = 1e-13

# Bounds whose squares would leave the range of floats are loosened. Lower bounds count as zero if their squares add up
# to less than the second number.
_LARGEST, _LEAST_SQUARES = 1e150, 1e-290

# A build costs about as much as looking at this many members of buckets, for each of its items.
_BUILD_COST = 50

# At least every second try to draw succeeds: as many failures in a row are not bad luck.
TRIES = 64

# A build is due when rounding may have added this much to the sums, relative to what is looked for.
_TOLERATED = 1e-10

# Otherwise it is due after as many insertions for each item that has a finite bound, and no fewer than these.
_FEWEST_INSERTIONS = 256
_INSERTIONS_PER_ITEM = 2

# offset: drift since the last build. The others belong to the solution: sqrt(L) c summed over the coordinates at their
# upper bound, over those at their lower bound; L summed over those whose upper bound is not below the level.
CLASS = np.dtype([("offset", "f8"), ("at_upper", "f8"), ("at_lower", "f8"), ("above", "f8")])

# Places in `Index.found`: whether the solution is up to date; the level (0 where no lower bound is positive); the sum
# of all sqrt(L) c (there: of all L); the value; the sum of the shares of `try_to_draw`; and, not of the solution, the
# insertions after which a build is due.
FRESH, LEVEL, TOTAL, VALUE, SHARES, PATIENCE = 0, 1, 2, 3, 4, 5


class Index(NamedTuple):
    """Bounds of all n coordinates, and the solution for them.

    One order holds both: item 2i is the upper bound of coordinate i, item 2i + 1 its lower bound, side by side in
    memory; of K classes of coordinates, k is that of the upper bounds in class k and K + k that of the lower bounds.
    """

    order: Order
    line: Line
    classes: Any
    found: Array


def make_index(smoothness: Array, kind: Integers, n_classes: int) -> Index:
    """Know nothing: bounds are 0 and infinity. Coordinates with L_i = 0 are left out."""
    order, line = make_order(np.repeat(smoothness, 2), 2 * n_classes)
    index = Index(order, line, np.zeros(n_classes, CLASS), np.zeros(6))
    refill(index, kind, np.full(kind.size, -np.inf), np.where(smoothness > 0.0, np.inf, -np.inf))
    return index


@lean
def drift(index: Index, kind: int, amount: float) -> None:
    """Let the bounds of a class drift apart by an amount, in normalised units; together if it is negative."""
    index.classes[kind]["offset"] += amount
    index.found[FRESH] = 0.0


@lean
def _key(bound: float, offset: float) -> float:
    """Return bound - offset, rounded so that adding the offset again gives no less than the bound."""
    key = bound - offset
    return float(np.nextafter(key, np.inf)) if key + offset < bound else key


@lean
def place(index: Index, i: int, kind: int, low: float, high: float) -> None:
    """Set the bounds of coordinate i, in normalised units, as of now.

    A negative ``high`` says that the coordinate is certified to be zero, and stays so until its class has drifted by
    that much (for ever, if it is -inf); ``low`` may be negative alike.
    """
    order, n_classes = index.order, index.classes.size
    offset = index.classes[kind]["offset"]
    remove(order, 2 * i)
    remove(order, 2 * i + 1)
    if high > -np.inf:
        insert(order, 2 * i, kind, _key(max(high, -_LARGEST), offset) if high < _LARGEST else np.inf)
    if low > -_LARGEST:
        insert(order, 2 * i + 1, n_classes + kind, _key(-min(low, _LARGEST), offset))
    index.found[FRESH] = 0.0
    if order.state[INSERTED] >= index.found[PATIENCE] or order.state[EXTRA] > _BUILD_COST * order.items.size:
        rebuild(index)


@lean
def _start(index: Index, total: int) -> None:
    """Build the order from items lined up by keys relative to the present offsets, which begin at zero then."""
    order, n_classes, n_finite = index.order, index.classes.size, 0
    for k in range(2 * n_classes):
        # Keys go as far, in as many insertions, as they went since the last build; half were upper bounds.
        drifted = abs(index.classes[k % n_classes]["offset"])
        index.line.widths[k] = drifted * (2 * FILL) / max(order.state[INSERTED], 1)
    for k in range(n_classes):
        index.classes[k]["offset"] = 0.0
    for m in range(total):
        n_finite += index.line.keys[m] < np.inf
    build(order, index.line, total)
    index.found[PATIENCE] = max(_FEWEST_INSERTIONS, _INSERTIONS_PER_ITEM * n_finite)
    index.found[FRESH] = 0.0


@lean
def rebuild(index: Index) -> None:
    """Lay the order out anew, with keys relative to the present offsets. Cost O(n), after O(n) insertions."""
    # A plain 0 would be a type of its own, and all that follows be compiled for it as well.
    end: Any = np.int64(0)
    n_classes = index.classes.size
    for k in range(2 * n_classes):
        end = line_up(index.order, index.line, k, index.classes[k % n_classes]["offset"], end)
    _start(index, end)


def refill(index: Index, kind: Integers, low: Array, high: Array) -> None:
    """Set the bounds of all coordinates at once; one whose ``high`` is -inf is left out for good. Cost O(n log n)."""
    there = high > -np.inf
    key = np.column_stack([high, -low]).ravel()
    upper, lower = np.where(there, kind, -1), np.where(there & (low > -np.inf), index.classes.size + kind, -1)
    _start(index, sort_items(index.order, index.line, np.column_stack([upper, lower]).ravel(), key))


@lean
def _lower_sums(index: Index, level: float) -> tuple[float, float, float]:
    """Sums of L, L lt and L lt^2 over the coordinates with lt above the level; that of L lt also by class."""
    mass = first = second = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        x, y, z = range_sums(index.order, index.classes.size + k, -np.inf, -level - offset, offset)
        index.classes[k]["at_lower"] = -y
        mass, first, second = mass + x, first - y, second + z
    return mass, first, second


@lean
def _upper_sums(index: Index, level: float) -> tuple[float, float]:
    """Sums of L ut and L ut^2 over the coordinates with ut below the level; that of L ut also by class."""
    first = second = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        _, y, z = range_sums(index.order, k, -offset, level - offset, offset)
        index.classes[k]["at_upper"] = y
        first, second = first + y, second + z
    return first, second


@lean
def _least_key(index: Index, kind: int, level: float) -> float:
    """Return the smallest key of an upper bound that is not below the level, and not zero."""
    offset = index.classes[kind]["offset"]
    return float(level - offset if level > 0.0 else np.nextafter(-offset, np.inf))


@lean
def _mass_above(index: Index, level: float) -> float:
    """Sum of L over the coordinates whose upper bound is not below the level; also by class."""
    total = 0.0
    for k in range(index.classes.size):
        index.classes[k]["above"] = mass_from(index.order, k, _least_key(index, k, level))
        total += index.classes[k]["above"]
    return total


@lean
def solve(index: Index) -> None:
    """Find level and value of the present bounds, unless they are known."""
    if index.found[FRESH] == 1.0:
        return
    order = index.order
    second = _find_level(index)
    rounding = order.nodes[0]["second"]
    if rounding > _TOLERATED * second > 0.0 and 16 * order.state[INSERTED] >= order.items.size:
        rebuild(index)
        _find_level(index)
    index.found[FRESH] = 1.0


@lean
def _find_level(index: Index) -> float:
    """Solve for level and value; return S2, 0 where no level is to be found."""
    found = index.found
    level = found[LEVEL]
    at_lower, first, second = _lower_sums(index, level)
    if level == 0.0 or not _LEAST_SQUARES < second < np.inf:
        if level > 0.0:  # nothing is above it any more: look further down
            at_lower, first, second = _lower_sums(index, 0.0)
        if not _LEAST_SQUARES < second < np.inf:
            # Nothing is known from below: importance sampling among those that may move.
            found[LEVEL] = 0.0
            found[TOTAL] = found[VALUE] = found[SHARES] = _mass_above(index, 0.0)
            return 0.0
        level = second / first
        at_lower, first, second = _lower_sums(index, level)
    low, high = 0.0, np.inf
    passes = 0
    while True:
        below, squares = _upper_sums(index, level)
        first, second = first + below, second + squares
        if first == 0.0 or not second < np.inf:
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
        at_lower, first, second = _lower_sums(index, level)
    above = _mass_above(index, level)
    found[LEVEL] = level
    found[TOTAL] = first + level * max(above - at_lower, 0.0)
    found[VALUE] = found[TOTAL] / level
    found[SHARES] = first + level * above
    return float(second)


@lean
def normalized_bounds(index: Index, i: int) -> tuple[float, float]:
    """Return (lt_i, ut_i)."""
    items, slots = index.order.items, index.order.slots
    if items[2 * i]["bucket"] < 0:
        return 0.0, 0.0
    upper, low = slots[items[2 * i]["slot"]], 0.0
    offset = index.classes[upper["kind"]]["offset"]
    high = max(0.0, upper["key"] + offset)
    if items[2 * i + 1]["bucket"] >= 0:
        low = max(0.0, -(slots[items[2 * i + 1]["slot"]]["key"] + offset))
    return min(low, high), high  # they may have crossed by rounding


@lean
def probability(index: Index, i: int) -> float:
    """Return p_i of the present bounds, which must have been solved for."""
    low, high = normalized_bounds(index, i)
    level, weight = index.found[LEVEL], index.order.items[2 * i]["weight"]
    if level == 0.0:
        return float(weight / index.found[TOTAL] if high > 0.0 else 0.0)
    return float(weight * min(max(level, low), high) / index.found[TOTAL])


@lean
def try_to_draw(index: Index, u: float) -> int:
    """Return the coordinate upon whose share u falls, a random number from [0, 1); -1 if upon none: try another.

    Shares are L_i ut_i for coordinates at their upper bound, L_i lt_i for those at their lower bound, and L_i m for all
    whose upper bound is not below the level m. Among these are those at their lower bound again, and this second share
    of theirs is void; it is smaller than the first, so at most half of the tries fail.
    """
    solve(index)
    order, n_classes, level = index.order, index.classes.size, index.found[LEVEL]
    target = u * index.found[SHARES]
    if level > 0.0:
        for k in range(n_classes):
            offset, at_upper = index.classes[k]["offset"], index.classes[k]["at_upper"]
            if target < at_upper:
                return pick(order, k, -offset, level - offset, offset, True, target) >> 1
            target -= at_upper
            at_lower = index.classes[k]["at_lower"]
            if target < at_lower:
                return pick(order, n_classes + k, -np.inf, -level - offset, offset, True, target) >> 1
            target -= at_lower
        target /= level
    for k in range(n_classes):
        above = index.classes[k]["above"]
        if target < above:
            i = pick(order, k, _least_key(index, k, level), np.inf, 0.0, False, target) >> 1
            if i >= 0 and level > 0.0 and order.items[2 * i + 1]["bucket"] >= 0:
                lower = order.slots[order.items[2 * i + 1]["slot"]]["key"]
                if lower < -level - index.classes[k]["offset"]:  # the very comparison of the sums, to the last bit
                    return -1
            return i
        target -= above
    return -1


@jit
def draw_from(index: Index, rng: Any) -> int:
    """Draw a coordinate from the safe sampling of the present bounds; -1 if all upper bounds are zero."""
    for _ in range(2):
        for _ in range(TRIES):
            i = try_to_draw(index, rng.random())
            if i >= 0 or index.found[TOTAL] == 0.0:
                return i
        rebuild(index)  # so much rounding has gathered in the sums that they point where nothing is
    return -1
