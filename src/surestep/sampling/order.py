"""Weighted items in the order of a key, with sums over any range of keys in O(log n).

Items lie in buckets of a few dozen; each bucket spans a range of keys, and a binary tree over the buckets holds, for
each of its nodes, the weight of the items below it, their mean key and their spread:

    mass = sum w_i,     mean = sum w_i k_i / mass,     spread = sum w_i (k_i - mean)^2 .

From these the sums of w (k + s) and w (k + s)^2 follow for any offset s as sums of non-negative terms, so nothing is
lost by cancellation however far the offset has moved. A query adds up whole nodes and looks at the members of the one
bucket that the end of its range cuts through: it is exact.

Items belong to classes; a class has its own buckets, side by side with those of the others under one tree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Items a bucket holds when it is made, which is also the size of the chunks that its members are stored in.
FILL = 32

# Places in `Order.counters`: first free chunk, members looked at beyond a bucket's worth, insertions; since the last build.
FREE, EXTRA, INSERTED = 0, 1, 2

MASS, MEAN, SPREAD = 0, 1, 2


class Order(NamedTuple):
    """The arrays of the structure. Item i is in slot ``place[i]`` of bucket ``bucket[i]``; -1 if it is not there."""

    weight: Array
    key: Array
    kind: Integers  # class of each item
    place: Integers
    bucket: Integers
    slot_key: Array
    slot_weight: Array
    slot_item: Integers
    following: Integers  # next chunk of the same bucket, or of the free list
    head: Integers  # first chunk of each bucket, the only one that may not be full
    count: Integers
    least: Array  # no key of the bucket is below this, none above ``greatest``
    greatest: Array
    edge: Array  # keys of bucket b lie between edge[b - 1] and edge[b]
    first: Integers  # class k owns the buckets first[k] to first[k + 1]
    tree: Array
    counters: Integers


def make_order(weight: Array, n_classes: int) -> Order:
    """Make room for all items; none is there yet."""
    n = weight.size
    n_buckets = 2 * (n // FILL) + 4 * n_classes
    n_leaves = 1 << (n_buckets - 1).bit_length()
    n_chunks = n // FILL + n_buckets + 1

    def integers(size: int) -> Integers:
        return np.full(size, -1, np.int64)

    order = Order(
        weight=weight,
        key=np.zeros(n),
        kind=np.zeros(n, np.int64),
        place=integers(n),
        bucket=integers(n),
        slot_key=np.zeros(n_chunks * FILL),
        slot_weight=np.zeros(n_chunks * FILL),
        slot_item=integers(n_chunks * FILL),
        following=integers(n_chunks),
        head=integers(n_buckets),
        count=np.zeros(n_buckets, np.int64),
        least=np.zeros(n_buckets),
        greatest=np.zeros(n_buckets),
        edge=np.zeros(n_buckets),
        first=np.zeros(n_classes + 1, np.int64),
        tree=np.zeros((2 * n_leaves, 3)),
        counters=np.zeros(3, np.int64),
    )
    build(order, integers(n), np.zeros(n_classes), np.zeros(n_classes))
    return order


@jit
def bucket_of(order: Order, kind: int, key: float) -> int:
    """Return the first bucket of a class whose edge is not below the key. All buckets before it lie below the key."""
    low, high = order.first[kind], order.first[kind + 1] - 1
    while low < high:
        middle = (low + high) >> 1
        if order.edge[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _merge(order: Order, node: int) -> None:
    """Combine the two children of a node."""
    tree, left, right = order.tree, 2 * node, 2 * node + 1
    a, b = tree[left, MASS], tree[right, MASS]
    if b == 0.0:
        tree[node, MASS], tree[node, MEAN], tree[node, SPREAD] = a, tree[left, MEAN], tree[left, SPREAD]
    elif a == 0.0:
        tree[node, MASS], tree[node, MEAN], tree[node, SPREAD] = b, tree[right, MEAN], tree[right, SPREAD]
    else:
        mass = a + b
        apart = tree[right, MEAN] - tree[left, MEAN]
        share = b / mass
        tree[node, MASS] = mass
        # Infinite keys make sums infinite, never NaN: they are beyond the end of every range.
        tree[node, MEAN] = tree[left, MEAN] + apart * share if apart < np.inf else np.inf
        tree[node, SPREAD] = tree[left, SPREAD] + tree[right, SPREAD] + apart * apart * a * share


@jit
def _sum_bucket(order: Order, b: int) -> None:
    """Compute the leaf of a bucket from its members."""
    mass = first = 0.0
    chunk, end = order.head[b], order.count[b]
    size = (end - 1) % FILL + 1  # members in the first chunk
    origin = order.least[b] if order.least[b] > -np.inf else order.greatest[b]
    while chunk >= 0:
        for slot in range(chunk * FILL, chunk * FILL + size):
            mass += order.slot_weight[slot]
            first += order.slot_weight[slot] * (order.slot_key[slot] - origin)
        chunk, size = order.following[chunk], FILL
    leaf = order.tree.shape[0] // 2 + b
    order.tree[leaf, MASS] = mass
    if mass == 0.0 or order.greatest[b] == np.inf:
        order.tree[leaf, MEAN] = order.greatest[b]
        order.tree[leaf, SPREAD] = 0.0
        return
    mean = origin + first / mass
    spread = 0.0
    chunk, size = order.head[b], (end - 1) % FILL + 1
    while chunk >= 0:
        for slot in range(chunk * FILL, chunk * FILL + size):
            apart = order.slot_key[slot] - mean
            spread += order.slot_weight[slot] * apart * apart
        chunk, size = order.following[chunk], FILL
    order.tree[leaf, MEAN], order.tree[leaf, SPREAD] = mean, spread


@jit
def _update(order: Order, b: int) -> None:
    """Bring the leaf of a bucket and all nodes above it up to date."""
    _sum_bucket(order, b)
    order.counters[EXTRA] += max(order.count[b] - FILL, 0)
    node = (order.tree.shape[0] // 2 + b) >> 1
    while node >= 1:
        _merge(order, node)
        node >>= 1


@jit
def _append(order: Order, i: int, b: int) -> None:
    """Put an item into a bucket, without touching the tree."""
    chunk, size = order.head[b], order.count[b] % FILL
    if size == 0:  # all chunks are full, or there is none
        fresh = order.counters[FREE]
        order.counters[FREE] = order.following[fresh]
        order.following[fresh] = chunk
        order.head[b] = chunk = fresh
    slot = chunk * FILL + size
    key = order.key[i]
    order.slot_key[slot], order.slot_weight[slot], order.slot_item[slot] = key, order.weight[i], i
    order.place[i], order.bucket[i] = slot, b
    if order.count[b] == 0:
        order.least[b] = order.greatest[b] = key
    else:
        order.least[b], order.greatest[b] = min(order.least[b], key), max(order.greatest[b], key)
    order.count[b] += 1


@jit
def insert(order: Order, i: int, kind: int, key: float) -> None:
    """Add an item that is not there."""
    order.key[i], order.kind[i] = key, kind
    b = bucket_of(order, kind, key)
    _append(order, i, b)
    _update(order, b)
    order.counters[INSERTED] += 1


@jit
def remove(order: Order, i: int) -> None:
    """Take an item out, if it is there: the last member of the bucket fills its place."""
    b = order.bucket[i]
    if b < 0:
        return
    chunk = order.head[b]
    last = chunk * FILL + (order.count[b] - 1) % FILL
    slot, other = order.place[i], order.slot_item[last]
    order.slot_key[slot], order.slot_weight[slot] = order.slot_key[last], order.slot_weight[last]
    order.slot_item[slot], order.place[other] = other, slot
    order.place[i] = order.bucket[i] = -1
    order.count[b] -= 1
    if order.count[b] % FILL == 0:
        order.head[b] = order.following[chunk]
        order.following[chunk] = order.counters[FREE]
        order.counters[FREE] = chunk
    _update(order, b)


@jit
def _range_of_bucket(order: Order, b: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the members of one bucket with low < k < high."""
    zeroth = first = second = 0.0
    chunk, size = order.head[b], (order.count[b] - 1) % FILL + 1
    while chunk >= 0:
        for slot in range(chunk * FILL, chunk * FILL + size):
            key = order.slot_key[slot]
            inside = (key > low) & (key < high)
            weight = order.slot_weight[slot] if inside else 0.0
            shifted = key + offset if inside else 0.0
            zeroth += weight
            first += weight * shifted
            second += weight * shifted * shifted
        chunk, size = order.following[chunk], FILL
    order.counters[EXTRA] += max(order.count[b] - FILL, 0)
    return zeroth, first, second


@jit
def range_sums(order: Order, kind: int, low: float, high: float, offset: float) -> tuple[float, float, float]:
    """Sums of w, w (k + s) and w (k + s)^2 over the items of a class with low < k < high; s is the offset."""
    begin, end = bucket_of(order, kind, low), bucket_of(order, kind, high)
    zeroth, first, second = _range_of_bucket(order, begin, low, high, offset)
    if begin == end:
        return zeroth, first, second
    a, b, c = _range_of_bucket(order, end, low, high, offset)
    zeroth, first, second = zeroth + a, first + b, second + c
    tree = order.tree
    left, right = begin + 1 + tree.shape[0] // 2, end + tree.shape[0] // 2
    while left < right:
        if left & 1:
            if tree[left, MASS] > 0.0:
                mean = tree[left, MEAN] + offset
                zeroth += tree[left, MASS]
                first += tree[left, MASS] * mean
                second += tree[left, MASS] * mean * mean + tree[left, SPREAD]
            left += 1
        if right & 1:
            right -= 1
            if tree[right, MASS] > 0.0:
                mean = tree[right, MEAN] + offset
                zeroth += tree[right, MASS]
                first += tree[right, MASS] * mean
                second += tree[right, MASS] * mean * mean + tree[right, SPREAD]
        left >>= 1
        right >>= 1
    return zeroth, first, second


@jit
def mass_from(order: Order, kind: int, low: float) -> float:
    """Sum of w over the items of a class with k >= low, infinite keys among them."""
    begin, end = bucket_of(order, kind, low), order.first[kind + 1]
    total = 0.0
    chunk, size = order.head[begin], (order.count[begin] - 1) % FILL + 1
    while chunk >= 0:
        for slot in range(chunk * FILL, chunk * FILL + size):
            total += order.slot_weight[slot] if order.slot_key[slot] >= low else 0.0
        chunk, size = order.following[chunk], FILL
    left, right = begin + 1 + order.tree.shape[0] // 2, end + order.tree.shape[0] // 2
    while left < right:
        if left & 1:
            total += order.tree[left, MASS]
            left += 1
        if right & 1:
            right -= 1
            total += order.tree[right, MASS]
        left >>= 1
        right >>= 1
    return total


@jit
def _node_weight(order: Order, node: int, offset: float, by_key: bool) -> float:
    mass = order.tree[node, MASS]
    return mass * (order.tree[node, MEAN] + offset) if (by_key and mass > 0.0) else mass


@jit
def pick(order: Order, kind: int, low: float, high: float, offset: float, by_key: bool, target: float) -> int:
    """Return the item at which the running sum passes ``target``.

    The sum runs over the items of a class with low < k < high, if ``by_key`` of w (k + s), else over low <= k of w.
    What rounding leaves at the end goes to the last item met; -1 if there is none.
    """
    begin, end = bucket_of(order, kind, low), bucket_of(order, kind, high)
    found = -1
    b = begin
    while b <= end:
        if b == begin or b == end or found == -2:
            found_here = -1
            chunk, size = order.head[b], (order.count[b] - 1) % FILL + 1
            while chunk >= 0:
                for slot in range(chunk * FILL, chunk * FILL + size):
                    key = order.slot_key[slot]
                    if (key > low and key < high) if by_key else key >= low:
                        found_here = order.slot_item[slot]
                        target -= order.slot_weight[slot] * (key + offset) if by_key else order.slot_weight[slot]
                        if target < 0.0:
                            return found_here
                chunk, size = order.following[chunk], FILL
            if found_here >= 0:
                found = found_here
        b += 1
        if begin < b < end:
            # Skip whole subtrees from here on; stop in front of the bucket where the sum passes the target.
            half = order.tree.shape[0] // 2
            node = b + half
            while True:
                while node & 1 == 0:
                    node >>= 1
                weight = _node_weight(order, node, offset, by_key)
                if target < weight or _last_leaf(node, half) >= end + half:
                    if node >= half:
                        break
                    node *= 2
                    while node < half or (target >= _node_weight(order, node, offset, by_key) and node - half < end):
                        weight = _node_weight(order, node, offset, by_key)
                        if target < weight or _last_leaf(node, half) >= end + half:
                            if node >= half:
                                break
                            node *= 2
                        else:
                            target -= weight
                            node += 1
                    break
                target -= weight
                node += 1
            b = node - half
            found = -2 if found < 0 else found
    return found


@jit
def _last_leaf(node: int, half: int) -> int:
    """Return the last leaf below a node."""
    while node < half:
        node = 2 * node + 1
    return node
