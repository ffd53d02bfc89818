"""Weighted items in the order of a key, with sums over any range of keys in O(log n).

Items lie in buckets of a dozen or two; each bucket spans a range of keys, and a tree over the buckets holds, for each
of its nodes, sums over the items below it, relative to a key at the left end of the node, its pivot:

    mass = sum w_i,     first = sum w_i (k_i - pivot),     second = sum w_i (k_i - pivot)^2 .

From these the sums of w (k + s) and w (k + s)^2 follow for any offset s. As sums of non-negative terms they lose
nothing to cancellation, unless keys have come to lie far to the left of a pivot since the last build. A query adds up
whole nodes and looks at the members of the buckets that the ends of its range cut through: no key is rounded.

Items belong to classes; a class has its own buckets, side by side with those of the others under one tree.

What takes time is memory that is not in the cache. Insertions go anywhere, so the tree is wide and its records small.
Queries come back to nearly the same range: the sums over its whole buckets are remembered, and kept up to date.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import lean

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)

# Items a bucket holds when it is made, which is also the size of the chunks that its members are stored in.
FILL = 16

# A node has 2^BITS children.
BITS = 3
FAN = 1 << BITS

# Places in `Order.state`: the first free chunk; members looked at beyond a bucket's worth, and insertions, since the
# last build; how many levels the tree has, and where in `Order.nodes` each of them begins, leaves first.
FREE, EXTRA, INSERTED, DEPTH, LEVELS = 0, 1, 2, 3, 4

# Then KIND places for each class: its first bucket; first and last but one of the whole buckets that `range_sums` used
# last; first of those that `mass_from` used last. In the end the bucket after the last.
FIRST, BEGIN, END, ABOVE, KIND = 20, 21, 22, 23, 4

ITEM = np.dtype([("weight", "f8"), ("bucket", "i4"), ("slot", "i4")])
SLOT = np.dtype([("key", "f8"), ("weight", "f8"), ("item", "i4"), ("kind", "i4")])
BUCKET = np.dtype([("edge", "f8"), ("head", "i4"), ("count", "i4")])
NODE = np.dtype([("mass", "f8"), ("first", "f8"), ("second", "f8"), ("pivot", "f8")])


class Order(NamedTuple):
    """The arrays of the structure: few, because Numba hands every one of them over in every call.

    Attributes
    ----------
    items : array of ITEM
        Weight of each item, and where it is; bucket -1 if it is not there.
    slots : array of SLOT
        Chunks of FILL members each.
    chunks : array of int
        The next chunk of the same bucket, or of the free list; -1 at the end.
    buckets : array of BUCKET
        The keys of bucket b lie between the edges of b - 1 and b. ``head`` is its first chunk, the only one that may
        not be full.
    nodes : array of NODE
        The tree, see `node_of`. Before it comes one whose ``second`` bounds what rounding may have done to that of any
        other since the last build. After it come two for each class, the spans: sums over the whole buckets that
        `range_sums` and `mass_from` used last.
    state : array of int
    """

    items: Any
    slots: Any
    chunks: Integers
    buckets: Any
    nodes: Any
    state: Integers


@lean
def node_of(order: Order, b: int, d: int) -> int:
    """Return the node of bucket b in level d: the leaf if d is 0, then those above it."""
    return int(order.state[LEVELS + d] + (b >> (BITS * d)))


@lean
def bucket_of(order: Order, kind: int, key: float, hint: int) -> int:
    """Return the first bucket of a class whose edge is not below the key. All buckets before it lie below the key.

    It is found at once if it is ``hint``, any number.
    """
    buckets = order.buckets
    low, high = order.state[FIRST + KIND * kind], order.state[FIRST + KIND * (kind + 1)] - 1
    if low <= hint <= high and key <= buckets[hint]["edge"] and (hint == low or buckets[hint - 1]["edge"] < key):
        return hint
    while low < high:
        middle = (low + high) >> 1
        if buckets[middle]["edge"] < key:
            low = middle + 1
        else:
            high = middle
    return int(low)


@lean
def _add(node: Any, weight: float, key: float) -> float:
    """Add a weight at a key to the sums of a node; return what rounding may have done to ``second``.

    Of infinite keys only the weight counts: they are beyond the end of every range.
    """
    apart = key - node["pivot"] if key < np.inf else 0.0
    node["mass"] += weight
    node["first"] += weight * apart
    node["second"] += weight * apart * apart
    return EPS * abs(weight) * apart * apart


@lean
def _adjust(order: Order, kind: int, b: int, weight: float, key: float) -> None:
    """Add a weight at a key to all nodes above a bucket, and to spans; the weight is negative to take it away."""
    nodes, state, c = order.nodes, order.state, KIND * kind
    lost = 0.0
    for d in range(state[DEPTH]):
        lost = _add(nodes[node_of(order, b, d)], weight, key)
    if state[BEGIN + c] <= b < state[END + c]:
        lost += _add(nodes[span_of(order, kind)], weight, key)
    if state[ABOVE + c] <= b:
        lost += _add(nodes[span_of(order, kind) + 1], weight, key)
    nodes[0]["second"] += lost
    if order.buckets[b]["count"] == 0:
        _wipe(order, kind, b)


@lean
def span_of(order: Order, kind: int) -> int:
    """Return the node that is the span of `range_sums` in a class; that of `mass_from` comes next."""
    return int(order.nodes.size - 2 * (kind + 1))


@lean
def forget_spans(order: Order, kind: int) -> None:
    """Let the spans of a class hold no buckets."""
    order.state[BEGIN + KIND * kind] = order.state[END + KIND * kind] = 0
    order.state[ABOVE + KIND * kind] = order.buckets.size


@lean
def _wipe(order: Order, kind: int, b: int) -> None:
    """Forget what rounding has left of the sums of an empty bucket, and of nodes above it that are empty now."""
    nodes = order.nodes
    forget_spans(order, kind)
    leaf = nodes[node_of(order, b, 0)]
    leaf["mass"] = leaf["first"] = leaf["second"] = 0.0
    for d in range(1, order.state[DEPTH]):
        first = node_of(order, b >> (BITS * d) << (BITS * d), d - 1)
        for child in range(first, first + FAN):
            if nodes[child]["mass"] != 0.0:
                return
        node = nodes[node_of(order, b, d)]
        node["mass"] = node["first"] = node["second"] = 0.0


@lean
def append(order: Order, i: int, kind: int, key: float, b: int) -> None:
    """Put an item into a bucket, without touching the tree."""
    item, bucket = order.items[i], order.buckets[b]
    count = bucket["count"]
    if count % FILL == 0:  # all chunks are full, or there is none
        chunk = order.state[FREE]
        order.state[FREE] = order.chunks[chunk]
        order.chunks[chunk] = bucket["head"]
        bucket["head"] = chunk
    s = bucket["head"] * FILL + count % FILL
    slot = order.slots[s]
    slot["key"], slot["weight"], slot["item"], slot["kind"] = key, item["weight"], i, kind
    item["slot"], item["bucket"] = s, b
    bucket["count"] = count + 1


@lean
def insert(order: Order, i: int, kind: int, key: float) -> None:
    """Add an item that is not there. Cost O(log n)."""
    hint: Any = np.int64(0)
    b = bucket_of(order, kind, key, hint)
    append(order, i, kind, key, b)
    _adjust(order, kind, b, order.items[i]["weight"], key)
    order.state[INSERTED] += 1


@lean
def remove(order: Order, i: int) -> None:
    """Take an item out, if it is there: the last member of the bucket fills its place. Cost O(log n)."""
    item = order.items[i]
    b: Any = np.int64(item["bucket"])  # the kernels called from here know but one kind of integer
    if b < 0:
        return
    bucket = order.buckets[b]
    chunk, count = bucket["head"], bucket["count"] - 1
    hole, last = order.slots[item["slot"]], order.slots[chunk * FILL + count % FILL]
    kind: Any = np.int64(hole["kind"])
    key = hole["key"]
    order.items[last["item"]]["slot"] = item["slot"]
    hole["key"], hole["weight"], hole["item"] = last["key"], last["weight"], last["item"]
    item["slot"], item["bucket"] = -1, -1
    bucket["count"] = count
    if count % FILL == 0:
        bucket["head"] = order.chunks[chunk]
        order.chunks[chunk] = order.state[FREE]
        order.state[FREE] = chunk
    _adjust(order, kind, b, -item["weight"], key)


@lean
def sums_in_bucket(order: Order, b: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the members of one bucket with low < k < high."""
    slots, bucket = order.slots, order.buckets[b]
    zeroth = first = second = 0.0
    chunk, size = np.int64(bucket["head"]), (bucket["count"] - 1) % FILL + 1
    while chunk >= 0:
        for s in range(chunk * FILL, chunk * FILL + size):
            key = slots[s]["key"]
            if low < key < high:
                weight, shifted = slots[s]["weight"], key + offset
                zeroth += weight
                first += weight * shifted
                second += weight * shifted * shifted
        chunk, size = order.chunks[chunk], FILL
    order.state[EXTRA] += max(bucket["count"] - FILL, 0)
    return zeroth, first, second


@lean
def _sums_in_node(node: Any, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over all items below a node."""
    pivot = node["pivot"] + offset
    first = node["first"] + node["mass"] * pivot
    return node["mass"], first, node["second"] + pivot * (node["first"] + first)


@lean
def _sum_span(order: Order, j: int, begin: int, end: int) -> None:
    """Let a span hold the sums over the buckets from ``begin`` to before ``end``, at least one, from the tree."""
    nodes, span = order.nodes, order.nodes[j]
    span["mass"] = span["first"] = span["second"] = 0.0
    span["pivot"] = nodes[node_of(order, begin, 0)]["pivot"]
    left, right, d = begin, end, 0
    while left < right:
        level = order.state[LEVELS + d]
        while left < right and left % FAN != 0:
            add_node(span, nodes[level + left])
            left += 1
        while left < right and right % FAN != 0:
            right -= 1
            add_node(span, nodes[level + right])
        left, right, d = left >> BITS, right >> BITS, d + 1


@lean
def add_node(node: Any, other: Any) -> None:
    """Add the sums of another node to those of a node."""
    x, y, z = _sums_in_node(other, -node["pivot"])
    node["mass"] += x
    node["first"] += y
    node["second"] += z


@lean
def range_sums(order: Order, kind: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the items of a class with low < k < high; s is the offset."""
    state, c = order.state, KIND * kind
    end = bucket_of(order, kind, high, state[END + c])
    zeroth, first, second = sums_in_bucket(order, end, low, high, offset)
    begin = state[FIRST + c]
    if low > -np.inf:
        # Keys equal to ``low`` may fill many buckets: begin after those that hold nothing above it.
        begin = bucket_of(order, kind, np.nextafter(low, np.inf), state[BEGIN + c] - 1) + 1
        if begin <= end:
            x, y, z = sums_in_bucket(order, begin - 1, low, high, offset)
            zeroth, first, second = zeroth + x, first + y, second + z
    if begin < end:
        if begin != state[BEGIN + c] or end != state[END + c]:
            _sum_span(order, span_of(order, kind), begin, end)
            state[BEGIN + c], state[END + c] = begin, end
        x, y, z = _sums_in_node(order.nodes[span_of(order, kind)], offset)
        zeroth, first, second = zeroth + x, first + y, second + z
    return zeroth, first, second


@lean
def mass_in_bucket(order: Order, b: int, low: float) -> float:
    """Sum of w over the members of one bucket with k >= low."""
    slots, bucket = order.slots, order.buckets[b]
    total = 0.0
    chunk, size = np.int64(bucket["head"]), (bucket["count"] - 1) % FILL + 1
    while chunk >= 0:
        for s in range(chunk * FILL, chunk * FILL + size):
            if slots[s]["key"] >= low:
                total += slots[s]["weight"]
        chunk, size = order.chunks[chunk], FILL
    return total


@lean
def mass_from(order: Order, kind: int, low: float) -> float:
    """Sum of w over the items of a class with k >= low, infinite keys among them."""
    state, c = order.state, KIND * kind
    begin, end = bucket_of(order, kind, low, state[ABOVE + c] - 1), state[FIRST + c + KIND]
    total = mass_in_bucket(order, begin, low)
    if begin + 1 < end:
        if begin + 1 != state[ABOVE + c]:
            _sum_span(order, span_of(order, kind) + 1, begin + 1, end)
            state[ABOVE + c] = begin + 1
        total += order.nodes[span_of(order, kind) + 1]["mass"]
    return total


@lean
def _node_weight(node: Any, offset: float, by_key: bool) -> float:
    return float(abs(node["first"] + node["mass"] * (node["pivot"] + offset)) if by_key else node["mass"])


@lean
def _pick_in_bucket(
    order: Order, b: int, low: float, high: float, offset: float, by_key: bool, target: float
) -> tuple[int, float, bool]:
    """Return the member where the sum passes ``target`` (or the last one met), what is left, and whether it passed."""
    slots = order.slots
    found: Any = -1
    chunk, size = np.int64(order.buckets[b]["head"]), (order.buckets[b]["count"] - 1) % FILL + 1
    while chunk >= 0:
        for s in range(chunk * FILL, chunk * FILL + size):
            key = slots[s]["key"]
            if (low < key < high) if by_key else key >= low:
                found = np.int64(slots[s]["item"])
                target -= slots[s]["weight"] * abs(key + offset) if by_key else slots[s]["weight"]
                if target < 0.0:
                    return found, target, True
        chunk, size = order.chunks[chunk], FILL
    return found, target, False


@lean
def _pick_below(order: Order, d: int, j: int, offset: float, by_key: bool, target: float) -> int:
    """Return the item where the sum over all items below node j of a level passes ``target``; -1 if it does not."""
    nodes = order.nodes
    while d > 0:
        d, j = d - 1, j * FAN
        end = j + FAN
        while j < end:
            weight = _node_weight(nodes[order.state[LEVELS + d] + j], offset, by_key)
            if target < weight:
                break
            target -= weight
            j += 1
        if j == end:
            return -1
    return _pick_in_bucket(order, j, -np.inf, np.inf, offset, by_key, target)[0]


@lean
def pick(order: Order, kind: int, low: float, high: float, offset: float, by_key: bool, target: float) -> int:
    """Return the item at which a running sum passes ``target``.

    The sum runs over the items of a class: if ``by_key``, of w |k + s| over low < k < high, a range where k + s does
    not change its sign; else of w over low <= k. Returns -1 if rounding leads to where there is none: draw again.
    """
    nodes, state, c = order.nodes, order.state, KIND * kind
    if by_key:
        begin = bucket_of(order, kind, np.nextafter(low, np.inf), state[BEGIN + c] - 1)
        end = bucket_of(order, kind, high, state[END + c])
    else:
        begin, end = bucket_of(order, kind, low, state[ABOVE + c] - 1), state[FIRST + c + KIND] - 1
    found, target, passed = _pick_in_bucket(order, begin, low, high, offset, by_key, target)
    if passed or begin == end:
        return found
    found, target, passed = _pick_in_bucket(order, end, low, high, offset, by_key, target)
    if passed:
        return found
    d: Any = np.int64(0)
    left, right = begin + 1, end
    while left < right:
        while left < right and left % FAN != 0:
            weight = _node_weight(nodes[order.state[LEVELS + d] + left], offset, by_key)
            if target < weight:
                return _pick_below(order, d, left, offset, by_key, target)
            target -= weight
            left += 1
        while left < right and right % FAN != 0:
            right -= 1
            weight = _node_weight(nodes[order.state[LEVELS + d] + right], offset, by_key)
            if target < weight:
                return _pick_below(order, d, right, offset, by_key, target)
            target -= weight
        left, right, d = left >> BITS, right >> BITS, d + 1
    return -1
