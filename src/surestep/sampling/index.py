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

from surestep._jit import jit
from surestep.sampling.order import (
    EXTRA,
    FILL,
    INSERTED,
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

# Bounds whose squares would leave the range of floats are loosened. Lower bounds count as zero if their squares add up
# to less than the second number.
_LARGEST, _LEAST_SQUARES = 1e150, 1e-290

# A build costs about as much as looking at this many members of buckets, for each of its items.
_BUILD_COST = 200

# A build is due when rounding may have added this much to the sums, relative to what is looked for.
_TOLERATED = 1e-10

# Otherwise it is due after as many insertions for each item that has a finite bound, and no fewer than these.
_FEWEST_INSERTIONS = 256
_INSERTIONS_PER_ITEM = 2

# offset: drift since the last build. The others belong to the solution: sqrt(L) c summed over the coordinates at their
# upper bound, over those at their lower bound; L summed over those whose upper bound is not below the level.
CLASS = np.dtype([("offset", "f8"), ("at_upper", "f8"), ("at_lower", "f8"), ("above", "f8")])

# Places in `Index.found`: whether the solution is up to date; the level (0 where no lower bound is positive); the sum
# of all sqrt(L) c (there: of all L); the value; and, not of the solution, the insertions after which a build is due.
FRESH, LEVEL, TOTAL, VALUE, PATIENCE = 0, 1, 2, 3, 4


class Index(NamedTuple):
    """Bounds of all n coordinates, and the solution for them.

    One `Order` holds both: item i is the upper bound of coordinate i, item n + i its lower bound; of K classes of
    coordinates, k is that of the upper bounds in class k and K + k that of the lower bounds. The first six fields are
    those of an `Order`, and its functions take an `Index` in its place.
    """

    items: Any
    slots: Any
    chunks: Integers
    buckets: Any
    nodes: Any
    state: Integers
    classes: Any
    found: Array


def make_index(smoothness: Array, kind: Integers, n_classes: int) -> Index:
    """Know nothing: bounds are 0 and infinity. Coordinates with L_i = 0 are left out."""
    order = make_order(np.concatenate([smoothness, smoothness]), 2 * n_classes)
    order.items["key"] = np.inf
    none = np.full(smoothness.size, -1)
    build(order, np.concatenate([np.where(smoothness > 0.0, kind, -1), none]), np.zeros(2 * n_classes))
    return Index(*order, np.zeros(n_classes, CLASS), np.array([0.0, 0.0, 0.0, 0.0, _FEWEST_INSERTIONS]))


@jit
def drift(index: Index, kind: int, amount: float) -> None:
    """Let the bounds of a class drift apart by an amount, in normalised units; together if it is negative."""
    index.classes[kind]["offset"] += amount
    index.found[FRESH] = 0.0


@jit
def _key(bound: float, offset: float) -> float:
    """Return bound - offset, rounded so that adding the offset again gives no less than the bound."""
    key = bound - offset
    return float(np.nextafter(key, np.inf)) if key + offset < bound else key


@jit
def place(index: Index, i: int, kind: int, low: float, high: float) -> None:
    """Set the bounds of coordinate i, in normalised units, as of now.

    A negative ``high`` says that the coordinate is certified to be zero, and stays so until its class has drifted by
    that much (for ever, if it is -inf); ``low`` may be negative alike.
    """
    n, n_classes = index.items.size // 2, index.classes.size
    offset = index.classes[kind]["offset"]
    remove(index, i)
    remove(index, n + i)
    if high > -np.inf:
        insert(index, i, kind, _key(max(high, -_LARGEST), offset) if high < _LARGEST else np.inf)
    if low > -_LARGEST:
        insert(index, n + i, n_classes + kind, _key(-min(low, _LARGEST), offset))
    index.found[FRESH] = 0.0
    if index.state[INSERTED] >= index.found[PATIENCE] or index.state[EXTRA] > _BUILD_COST * n:
        rebuild(index)


@jit
def _build(index: Index, kind: Integers, n_finite: int) -> None:
    """Lay the order out by the keys, which are relative to the present offsets, and let the offsets begin at zero."""
    n_classes = index.classes.size
    width = np.empty(2 * n_classes)
    for k in range(width.size):
        # The next keys go as far, in as many insertions, as they went since the last time; half were upper bounds.
        width[k] = abs(index.classes[k % n_classes]["offset"]) * (2 * FILL) / max(index.state[INSERTED], 1)
    build(index, kind, width)
    for k in range(n_classes):
        index.classes[k]["offset"] = 0.0
    index.found[PATIENCE] = max(_FEWEST_INSERTIONS, _INSERTIONS_PER_ITEM * n_finite)


@jit
def rebuild(index: Index) -> None:
    """Lay the order out anew, with keys relative to the present offsets. Cost O(n log n), after O(n) insertions."""
    n_classes, n_finite = index.classes.size, 0
    kind = np.empty(index.items.size, np.int64)
    for i in range(kind.size):
        item = index.items[i]
        kind[i] = -1
        if item["bucket"] >= 0:
            kind[i] = item["kind"]
            item["key"] += index.classes[kind[i] % n_classes]["offset"]
            n_finite += item["key"] < np.inf
    _build(index, kind, n_finite)


@jit
def refill(index: Index, kind: Integers, low: Array, high: Array) -> None:
    """Set the bounds of all coordinates at once; one whose ``high`` is -inf is left out for good. Cost O(n log n)."""
    n = kind.size
    present = np.full(2 * n, -1, np.int64)
    for i in range(n):
        if high[i] > -np.inf:
            index.items[i]["key"], present[i] = high[i], kind[i]
            if low[i] > -np.inf:
                index.items[n + i]["key"], present[n + i] = -low[i], index.classes.size + kind[i]
    _build(index, present, 2 * n)
    index.found[FRESH] = 0.0


@jit
def _clipped_sums(index: Index, level: float) -> tuple[float, float, float]:
    """S1, S2 and the sum of L at lower bounds, over the clipped coordinates; S1 also by class."""
    first = second = mass = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        _, a, b = range_sums(index, k, -offset, level - offset, offset)
        w, c, d = range_sums(index, index.classes.size + k, -np.inf, -level - offset, offset)
        index.classes[k]["at_upper"], index.classes[k]["at_lower"] = a, -c
        first += a - c
        second += b + d
        mass += w
    return first, second, mass


@jit
def _least_key(index: Index, kind: int, level: float) -> float:
    """Return the smallest key of an upper bound that is not below the level, and not zero."""
    offset = index.classes[kind]["offset"]
    return float(level - offset if level > 0.0 else np.nextafter(-offset, np.inf))


@jit
def _mass_above(index: Index, level: float) -> float:
    """Sum of L over the coordinates whose upper bound is not below the level; also by class."""
    total = 0.0
    for k in range(index.classes.size):
        index.classes[k]["above"] = mass_from(index, k, _least_key(index, k, level))
        total += index.classes[k]["above"]
    return total


@jit
def solve(index: Index) -> None:
    """Find level and value of the present bounds, unless they are known."""
    if index.found[FRESH] == 1.0:
        return
    second = _find_level(index)
    if index.nodes[0]["second"] > _TOLERATED * second > 0.0 and 16 * index.state[INSERTED] >= index.items.size:
        rebuild(index)
        _find_level(index)
    index.found[FRESH] = 1.0


@jit
def _find_level(index: Index) -> float:
    """Solve for level and value; return S2, 0 where no level is to be found."""
    found = index.found
    first = second = 0.0
    for k in range(index.classes.size):
        offset = index.classes[k]["offset"]
        _, a, b = range_sums(index, index.classes.size + k, -np.inf, -offset, offset)
        first -= a
        second += b
    if not _LEAST_SQUARES < second < np.inf:
        # Nothing is known from below: importance sampling among those that may move.
        found[LEVEL] = 0.0
        found[TOTAL] = found[VALUE] = _mass_above(index, 0.0)
        return 0.0
    low, high = 0.0, np.inf
    level = found[LEVEL] if found[LEVEL] > 0.0 else second / first
    passes = 0
    while True:
        first, second, at_lower = _clipped_sums(index, level)
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
    found[LEVEL] = level
    found[TOTAL] = first + level * max(_mass_above(index, level) - at_lower, 0.0)
    found[VALUE] = found[TOTAL] / level
    return float(second)


@jit
def normalized_bounds(index: Index, i: int) -> tuple[float, float]:
    """Return (lt_i, ut_i)."""
    upper, lower = index.items[i], index.items[index.items.size // 2 + i]
    if upper["bucket"] < 0:
        return 0.0, 0.0
    offset = index.classes[upper["kind"]]["offset"]
    high = max(0.0, upper["key"] + offset)
    low = max(0.0, -(lower["key"] + offset)) if lower["bucket"] >= 0 else 0.0
    return min(low, high), high  # they may have crossed by rounding


@jit
def probability(index: Index, i: int) -> float:
    """Return p_i of the present bounds, which must have been solved for."""
    low, high = normalized_bounds(index, i)
    level, weight = index.found[LEVEL], index.items[i]["weight"]
    if level == 0.0:
        return float(weight / index.found[TOTAL] if high > 0.0 else 0.0)
    return float(weight * min(max(level, low), high) / index.found[TOTAL])


@jit
def _is_at_level(index: Index, i: int, level: float) -> bool:
    """Whether coordinate i sits at the level; by the very comparisons of the range queries, to the last bit."""
    upper, lower = index.items[i], index.items[index.items.size // 2 + i]
    if upper["bucket"] < 0 or upper["key"] < _least_key(index, upper["kind"], level):
        return False
    return level == 0.0 or lower["bucket"] < 0 or lower["key"] >= -level - index.classes[upper["kind"]]["offset"]


@jit
def _draw_at_level(index: Index, rng: Any) -> int:
    """Draw a coordinate at the level, by L: one whose upper bound is not below, rejected if its lower bound is above.

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
        i = pick(index, kind, _least_key(index, kind, level), np.inf, 0.0, False, target)
        if i >= 0 and _is_at_level(index, i, level):
            return i
    total, best = 0.0, -1
    for i in range(index.items.size // 2):
        if _is_at_level(index, i, level):
            weight = index.items[i]["weight"]
            total += weight
            if rng.random() * total < weight:  # each newcomer takes over with probability L_i / (sum so far)
                best = i
    return best


@jit
def _draw_once(index: Index, rng: Any) -> int:
    """Draw a coordinate; -1 if the draw met with a group that is empty but for rounding."""
    level, n_classes = index.found[LEVEL], index.classes.size
    target = rng.random() * index.found[TOTAL]
    if level > 0.0:
        for k in range(n_classes):
            offset, at_upper = index.classes[k]["offset"], index.classes[k]["at_upper"]
            if target < at_upper:
                return pick(index, k, -offset, level - offset, offset, True, target)
            target -= at_upper
            at_lower = index.classes[k]["at_lower"]
            if target < at_lower:
                i = pick(index, n_classes + k, -np.inf, -level - offset, offset, True, target)
                return i - index.items.size // 2 if i >= 0 else -1
            target -= at_lower
    return _draw_at_level(index, rng)


@jit
def draw_from(index: Index, rng: Any) -> int:
    """Draw a coordinate from the safe sampling of the present bounds; -1 if all upper bounds are zero."""
    for attempt in range(_REJECTIONS):
        solve(index)
        if index.found[TOTAL] == 0.0:
            return -1
        i = _draw_once(index, rng)
        if i >= 0:
            return i
        if attempt % 10 == 9:  # so much rounding has gathered in the sums that they point where nothing is
            rebuild(index)
            index.found[FRESH] = 0.0
    return -1
