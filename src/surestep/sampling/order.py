"""Weighted items in the order of a key, with sums over any range of keys in O(log n).

Items lie in buckets of a dozen or two; each bucket spans a range of keys, and a binary tree over the buckets holds, for
each of its nodes, sums over the items below it, relative to a key at the left end of the node, its pivot:

    mass = sum w_i,     first = sum w_i (k_i - pivot),     second = sum w_i (k_i - pivot)^2 .

From these the sums of w (k + s) and w (k + s)^2 follow for any offset s. As sums of non-negative terms they lose
nothing to cancellation, unless keys have come to lie far to the left of a pivot since the last build. A query adds up
whole nodes and looks at the members of the buckets that the ends of its range cut through: no key is rounded.

Items belong to classes; a class has its own buckets, side by side with those of the others under one tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit

Integers = NDArray[np.int64]
Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)

# Items a bucket holds when it is made, which is also the size of the chunks that its members are stored in.
FILL = 16

# Places in `Order.state`: the first free chunk; members looked at beyond a bucket's worth, and insertions, since the
# last build; then, for each class, its first bucket, and the bucket after the last.
FREE, EXTRA, INSERTED, FIRST = 0, 1, 2, 3

ITEM = np.dtype([("weight", "f8"), ("key", "f8"), ("kind", "i8"), ("bucket", "i8"), ("slot", "i8")])
SLOT = np.dtype([("key", "f8"), ("weight", "f8"), ("item", "i8")])
BUCKET = np.dtype([("edge", "f8"), ("least", "f8"), ("greatest", "f8"), ("head", "i8"), ("count", "i8")])
NODE = np.dtype([("mass", "f8"), ("first", "f8"), ("second", "f8"), ("pivot", "f8"), ("count", "i8")])


class Order(NamedTuple):
    """The arrays of the structure: few, because Numba hands every one of them over in every call.

    Attributes
    ----------
    items : array of ITEM
        Weight, key and class of each item, and where it is; bucket -1 if it is not there.
    slots : array of SLOT
        Chunks of FILL members each.
    chunks : array of int
        The next chunk of the same bucket, or of the free list; -1 at the end.
    buckets : array of BUCKET
        The keys of bucket b lie between the edges of b - 1 and b, and between ``least`` and ``greatest``. ``head`` is
        its first chunk, the only one that may not be full.
    nodes : array of NODE
        The tree: children of node j are 2j and 2j + 1, leaves are in the second half. Node 0 is none of them: its
        ``second`` bounds what rounding may have done to any other's since the last build.
    state : array of int
    """

    items: Any
    slots: Any
    chunks: Integers
    buckets: Any
    nodes: Any
    state: Integers


def make_order(weight: Array, n_classes: int) -> Order:
    """Make room for all items; none is there yet."""
    n = weight.size
    n_buckets = 2 * (n // FILL) + 4 * n_classes
    n_chunks = n // FILL + n_buckets + 1
    order = Order(
        items=np.zeros(n, ITEM),
        slots=np.zeros(n_chunks * FILL, SLOT),
        chunks=np.zeros(n_chunks, np.int64),
        buckets=np.zeros(n_buckets, BUCKET),
        nodes=np.zeros(2 << (n_buckets - 1).bit_length(), NODE),
        state=np.zeros(FIRST + n_classes + 1, np.int64),
    )
    order.items["weight"] = weight
    build(order, np.full(n, -1), np.zeros(n_classes))
    return order


@jit
def bucket_of(order: Any, kind: int, key: float) -> int:
    """Return the first bucket of a class whose edge is not below the key. All buckets before it lie below the key."""
    buckets = order.buckets
    low, high = order.state[FIRST + kind], order.state[FIRST + kind + 1] - 1
    while low < high:
        middle = (low + high) >> 1
        if buckets[middle]["edge"] < key:
            low = middle + 1
        else:
            high = middle
    return int(low)


@jit
def _adjust(order: Any, b: int, weight: float, key: float) -> None:
    """Add a weight at a key to the leaf of a bucket and to all nodes above it; the weight is negative to take it away.

    Of infinite keys only the weight counts: they are beyond the end of every range.
    """
    nodes = order.nodes
    finite = key < np.inf
    j = nodes.size // 2 + b
    while j >= 1:
        node = nodes[j]
        apart = key - node["pivot"] if finite else 0.0
        node["mass"] += weight
        node["first"] += weight * apart
        node["second"] += weight * apart * apart
        node["count"] += 1 if weight > 0.0 else -1
        if node["count"] == 0:  # what rounding has left of the sums goes too
            node["mass"] = node["first"] = node["second"] = 0.0
        j >>= 1
    lost = key - nodes[1]["pivot"] if finite else 0.0
    nodes[0]["second"] += EPS * abs(weight) * lost * lost


@jit
def _append(order: Any, i: int, b: int) -> None:
    """Put an item into a bucket, without touching the tree."""
    item, bucket = order.items[i], order.buckets[b]
    count = bucket["count"]
    if count % FILL == 0:  # all chunks are full, or there is none
        chunk = order.state[FREE]
        order.state[FREE] = order.chunks[chunk]
        order.chunks[chunk] = bucket["head"]
        bucket["head"] = chunk
    key = item["key"]
    s = bucket["head"] * FILL + count % FILL
    slot = order.slots[s]
    slot["key"], slot["weight"], slot["item"] = key, item["weight"], i
    item["slot"], item["bucket"] = s, b
    bucket["least"] = min(bucket["least"], key) if count > 0 else key
    bucket["greatest"] = max(bucket["greatest"], key) if count > 0 else key
    bucket["count"] = count + 1


@jit
def insert(order: Any, i: int, kind: int, key: float) -> None:
    """Add an item that is not there. Cost O(log n)."""
    item = order.items[i]
    item["key"], item["kind"] = key, kind
    b = bucket_of(order, kind, key)
    _append(order, i, b)
    _adjust(order, b, item["weight"], key)
    order.state[INSERTED] += 1


@jit
def remove(order: Any, i: int) -> None:
    """Take an item out, if it is there: the last member of the bucket fills its place. Cost O(log n)."""
    item = order.items[i]
    b = item["bucket"]
    if b < 0:
        return
    bucket = order.buckets[b]
    chunk = bucket["head"]
    hole, last = order.slots[item["slot"]], order.slots[chunk * FILL + (bucket["count"] - 1) % FILL]
    order.items[last["item"]]["slot"] = item["slot"]
    hole["key"], hole["weight"], hole["item"] = last["key"], last["weight"], last["item"]
    item["slot"], item["bucket"] = -1, -1
    bucket["count"] -= 1
    if bucket["count"] % FILL == 0:
        bucket["head"] = order.chunks[chunk]
        order.chunks[chunk] = order.state[FREE]
        order.state[FREE] = chunk
    _adjust(order, b, -item["weight"], item["key"])


@jit
def _sums_in_bucket(order: Any, b: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the members of one bucket with low < k < high."""
    slots, bucket = order.slots, order.buckets[b]
    zeroth = first = second = 0.0
    chunk, size = bucket["head"], (bucket["count"] - 1) % FILL + 1
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


@jit
def _sums_in_node(nodes: Any, j: int, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over all items below a node."""
    node = nodes[j]
    pivot = node["pivot"] + offset
    first = node["first"] + node["mass"] * pivot
    return node["mass"], first, node["second"] + pivot * (node["first"] + first)


@jit
def range_sums(order: Any, kind: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the items of a class with low < k < high; s is the offset."""
    nodes = order.nodes
    # Keys equal to ``low`` may fill many buckets: begin after those that hold nothing above it.
    begin, end = bucket_of(order, kind, np.nextafter(low, np.inf)), bucket_of(order, kind, high)
    zeroth, first, second = _sums_in_bucket(order, end, low, high, offset)
    if begin < end and order.buckets[begin]["least"] <= low:
        a, b, c = _sums_in_bucket(order, begin, low, high, offset)
        zeroth, first, second = zeroth + a, first + b, second + c
        begin += 1
    left, right = begin + nodes.size // 2, end + nodes.size // 2
    while left < right:
        if left & 1:
            a, b, c = _sums_in_node(nodes, left, offset)
            zeroth, first, second = zeroth + a, first + b, second + c
            left += 1
        if right & 1:
            right -= 1
            a, b, c = _sums_in_node(nodes, right, offset)
            zeroth, first, second = zeroth + a, first + b, second + c
        left >>= 1
        right >>= 1
    return zeroth, first, second


@jit
def _mass_in_bucket(order: Any, b: int, low: float) -> float:
    """Sum of w over the members of one bucket with k >= low."""
    slots, bucket = order.slots, order.buckets[b]
    total = 0.0
    chunk, size = bucket["head"], (bucket["count"] - 1) % FILL + 1
    while chunk >= 0:
        for s in range(chunk * FILL, chunk * FILL + size):
            if slots[s]["key"] >= low:
                total += slots[s]["weight"]
        chunk, size = order.chunks[chunk], FILL
    return total


@jit
def mass_from(order: Any, kind: int, low: float) -> float:
    """Sum of w over the items of a class with k >= low, infinite keys among them."""
    nodes = order.nodes
    begin, end = bucket_of(order, kind, low), order.state[FIRST + kind + 1]
    total = _mass_in_bucket(order, begin, low)
    left, right = begin + 1 + nodes.size // 2, end + nodes.size // 2
    while left < right:
        if left & 1:
            total += nodes[left]["mass"]
            left += 1
        if right & 1:
            right -= 1
            total += nodes[right]["mass"]
        left >>= 1
        right >>= 1
    return total


@jit
def _node_weight(nodes: Any, j: int, offset: float, by_key: bool) -> float:
    node = nodes[j]
    return float(abs(node["first"] + node["mass"] * (node["pivot"] + offset)) if by_key else node["mass"])


@jit
def _pick_in_bucket(
    order: Any, b: int, low: float, high: float, offset: float, by_key: bool, target: float
) -> tuple[int, float, bool]:
    """Return the member where the sum passes ``target`` (or the last one met), what is left, and whether it passed."""
    slots = order.slots
    found = -1
    chunk, size = order.buckets[b]["head"], (order.buckets[b]["count"] - 1) % FILL + 1
    while chunk >= 0:
        for s in range(chunk * FILL, chunk * FILL + size):
            key = slots[s]["key"]
            if (low < key < high) if by_key else key >= low:
                found = slots[s]["item"]
                target -= slots[s]["weight"] * abs(key + offset) if by_key else slots[s]["weight"]
                if target < 0.0:
                    return found, target, True
        chunk, size = order.chunks[chunk], FILL
    return found, target, False


@jit
def _pick_below(order: Any, j: int, offset: float, by_key: bool, target: float) -> int:
    """Return the item where the sum over all items below a node passes ``target``; -1 if rounding leads astray."""
    nodes = order.nodes
    half = nodes.size // 2
    while j < half:
        j *= 2
        weight = _node_weight(nodes, j, offset, by_key)
        if target >= weight:
            target -= weight
            j += 1
    return _pick_in_bucket(order, j - half, -np.inf, np.inf, offset, by_key, target)[0]


@jit
def pick(order: Any, kind: int, low: float, high: float, offset: float, by_key: bool, target: float) -> int:
    """Return the item at which a running sum passes ``target``.

    The sum runs over the items of a class: if ``by_key``, of w |k + s| over low < k < high, a range where k + s does
    not change its sign; else of w over low <= k. Returns -1 if rounding leads to where there is none: draw again.
    """
    nodes = order.nodes
    begin = bucket_of(order, kind, np.nextafter(low, np.inf) if by_key else low)
    end = bucket_of(order, kind, high) if by_key else order.state[FIRST + kind + 1] - 1
    found, target, passed = _pick_in_bucket(order, begin, low, high, offset, by_key, target)
    if passed or begin == end:
        return found
    found, target, passed = _pick_in_bucket(order, end, low, high, offset, by_key, target)
    if passed:
        return found
    left, right = begin + 1 + nodes.size // 2, end + nodes.size // 2
    while left < right:
        if left & 1:
            weight = _node_weight(nodes, left, offset, by_key)
            if target < weight:
                return _pick_below(order, left, offset, by_key, target)
            target -= weight
            left += 1
        if right & 1:
            right -= 1
            weight = _node_weight(nodes, right, offset, by_key)
            if target < weight:
                return _pick_below(order, right, offset, by_key, target)
            target -= weight
        left >>= 1
        right >>= 1
    return -1


@jit
def build(order: Any, kind: Integers, width: Array) -> None:
    """Lay all items out anew by their keys; ``kind`` is the class of each, -1 for those that are not there.

    Each bucket gets FILL items. Keys to come are expected at 0 and further and further to the left of it, about FILL of
    them in every ``width`` of their class: finer edges are prepared there. Cost O(n log n).
    """
    items, state, n_classes = order.items, order.state, width.size
    for b in range(order.buckets.size):
        order.buckets[b]["head"], order.buckets[b]["count"], order.buckets[b]["least"] = -1, 0, np.inf
    for chunk in range(order.chunks.size):
        order.chunks[chunk] = chunk + 1
    order.chunks[order.chunks.size - 1] = -1
    state[FREE] = state[EXTRA] = state[INSERTED] = 0
    total = 0
    for i in range(kind.size):
        items[i]["bucket"], items[i]["kind"] = -1, kind[i]
        total += kind[i] >= 0
    spare = order.buckets.size - total // FILL - 2 * n_classes
    b = 0
    for k in range(n_classes):
        members, keys = _sorted_members(items, k)
        n_extra = (spare * (members.size + 1)) // (total + n_classes) if width[k] > 0.0 else 0
        state[FIRST + k] = b
        b = _lay_out(order, members, keys, width[k], n_extra, b)
    state[FIRST + n_classes] = b
    _sum_nodes(order)
    order.nodes[0]["second"] = 0.0


@jit
def _sum_nodes(order: Any) -> None:
    """Compute all nodes from the members of the buckets."""
    nodes, half = order.nodes, order.nodes.size // 2
    for b in range(half):
        node = nodes[half + b]
        node["pivot"] = 0.0
        if b < order.buckets.size:
            bucket = order.buckets[b]
            # The first bucket of a class has no edge to its left.
            before = order.buckets[b - 1]["edge"] if b > 0 else np.inf
            node["pivot"] = before if before < np.inf else (bucket["least"] if bucket["least"] < np.inf else 0.0)
            _, node["first"], node["second"] = _sums_in_bucket(order, b, -np.inf, np.inf, -node["pivot"])
            node["mass"], node["count"] = _mass_in_bucket(order, b, -np.inf), bucket["count"]
        else:
            node["mass"] = node["first"] = node["second"] = 0.0
            node["count"] = 0
    for j in range(half - 1, 0, -1):
        node, left, right = nodes[j], nodes[2 * j], nodes[2 * j + 1]
        node["pivot"], node["count"] = left["pivot"], left["count"] + right["count"]
        node["mass"], node["first"], node["second"] = left["mass"], left["first"], left["second"]
        mass, first, second = _sums_in_node(nodes, 2 * j + 1, -node["pivot"])
        node["mass"] += mass
        node["first"] += first
        node["second"] += second


@jit
def _sorted_members(items: Any, kind: int) -> tuple[Integers, Array]:
    """Return the items of a class by their keys, and the keys; infinite ones need no sorting and come last."""
    n_finite = n = 0
    for i in range(items.size):
        if items[i]["kind"] == kind:
            n += 1
            n_finite += items[i]["key"] < np.inf
    members, keys = np.empty(n, np.int64), np.full(n, np.inf)
    a, z = 0, n_finite
    for i in range(items.size):
        if items[i]["kind"] == kind:
            if items[i]["key"] < np.inf:
                members[a], keys[a] = i, items[i]["key"]
                a += 1
            else:
                members[z] = i
                z += 1
    rank = np.argsort(keys[:n_finite])
    members[:n_finite], keys[:n_finite] = members[:n_finite][rank], keys[:n_finite][rank]
    return members, keys


@jit
def _lay_out(order: Any, members: Integers, keys: Array, width: float, n_extra: int, b: int) -> int:
    """Fill the buckets of one class from ``b`` on with its sorted members; return the bucket after the last.

    Edges are at the last of every FILL members, and at -n_extra * width, ..., -2 * width, -width.
    """
    buckets, extra = order.buckets, n_extra
    for m in range(members.size):
        while extra > 0 and -extra * width < keys[m]:
            buckets[b]["edge"] = -extra * width
            b += 1
            extra -= 1
        if buckets[b]["count"] >= FILL:
            buckets[b]["edge"] = keys[m - 1]
            b += 1
        _append(order, members[m], b)
    while extra > 0:
        buckets[b]["edge"] = -extra * width
        b += 1
        extra -= 1
    buckets[b]["edge"] = np.inf
    return b + 1
