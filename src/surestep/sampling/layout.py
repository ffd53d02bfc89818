"""How an `Order` is laid out, and laid out anew when buckets no longer fit the keys or rounding blurs the sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import lean
from surestep.sampling.order import (
    BITS,
    BUCKET,
    DEPTH,
    EXTRA,
    FAN,
    FILL,
    FIRST,
    FREE,
    INSERTED,
    ITEM,
    KIND,
    LEVELS,
    NODE,
    SLOT,
    Order,
    add_node,
    append,
    forget_spans,
    mass_in_bucket,
    node_of,
    sums_in_bucket,
)

Integers = NDArray[np.int64]
Array = NDArray[np.float64]


class Line(NamedTuple):
    """Items in a line by classes and keys, from which an `Order` is built; all that a build needs room for.

    ``widths`` is, for each class, the range of keys that FILL new ones are expected in.
    """

    members: Integers
    keys: Array
    widths: Array


def make_order(weight: Array, n_classes: int) -> tuple[Order, Line]:
    """Make room for all items, and for builds; none is there yet."""
    n = weight.size
    n_buckets = 2 * (n // FILL) + 4 * n_classes
    n_chunks = n // FILL + n_buckets + 1
    levels, width = [FAN], n_buckets
    while width > 1:
        width = -(-width // FAN)
        levels.append(levels[-1] + width * FAN)
    order = Order(
        items=np.zeros(n, ITEM),
        slots=np.zeros(n_chunks * FILL, SLOT),
        chunks=np.zeros(n_chunks, np.int64),
        buckets=np.zeros(n_buckets, BUCKET),
        nodes=np.zeros(levels[-1] + 1 + 2 * n_classes, NODE),
        state=np.zeros(FIRST + KIND * n_classes + 1, np.int64),
    )
    order.items["weight"] = weight
    order.state[DEPTH] = len(levels)
    order.state[LEVELS : LEVELS + len(levels)] = levels
    line = Line(np.zeros(n, np.int64), np.zeros(n), np.zeros(n_classes))
    build(order, line, sort_items(order, line, np.full(n, -1), np.zeros(n)))
    return order, line


def sort_items(order: Order, line: Line, kind: Integers, key: Array) -> int:
    """Line up all items anew, by these classes and keys; those of class -1 are not there. Return how many are.

    To be followed by `build`. Cost O(n log n).
    """
    order.items["bucket"] = -1
    there = np.flatnonzero(kind >= 0)
    members = there[np.lexsort((key[there], kind[there]))]
    line.members[: members.size], line.keys[: members.size] = members, key[members]
    order.state[FIRST::KIND] = np.searchsorted(kind[members], np.arange(line.widths.size + 1))
    return members.size


@lean
def line_up(order: Order, line: Line, kind: int, shift: float, end: int) -> int:
    """Line up the items of a class by their keys plus a shift, from place ``end`` on; return where they end.

    Only buckets have to be sorted. To be followed by `build`, when it has been done for all classes in turn. Cost O(n).
    """
    members, keys, slots, c = line.members, line.keys, order.slots, FIRST + KIND * kind
    first, order.state[c] = order.state[c], end
    for b in range(first, order.state[c + KIND]):
        begin, bucket = end, order.buckets[b]
        chunk, size = np.int64(bucket["head"]), (bucket["count"] - 1) % FILL + 1
        while chunk >= 0:
            for s in range(chunk * FILL, chunk * FILL + size):
                members[end], keys[end] = slots[s]["item"], slots[s]["key"] + shift
                end += 1
            chunk, size = order.chunks[chunk], FILL
        _sort(members, keys, begin, end)
    return end


@lean
def _sort(members: Integers, keys: Array, begin: int, end: int) -> None:
    """Sort a part of both by the keys: Shell's method, which is quick for a dozen and still good for a million."""
    gap = end - begin
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for first in range(begin + gap, end):
            m, member, key = first, members[first], keys[first]
            while m >= begin + gap and keys[m - gap] > key:
                members[m], keys[m] = members[m - gap], keys[m - gap]
                m -= gap
            members[m], keys[m] = member, key


@lean
def build(order: Order, line: Line, total: int) -> None:
    """Lay out anew all items that have been lined up; ``state`` says where those of each class begin. Cost O(n).

    Each bucket gets FILL items. Keys to come are expected at 0 and further and further to the left of it, about FILL of
    them in every width of their class: finer edges are prepared there.
    """
    members, keys, state, n_classes = line.members, line.keys, order.state, line.widths.size
    for b in range(order.buckets.size):
        order.buckets[b]["head"], order.buckets[b]["count"] = -1, 0
    for chunk in range(order.chunks.size):
        order.chunks[chunk] = chunk + 1
    order.chunks[order.chunks.size - 1] = -1
    state[FREE] = state[EXTRA] = state[INSERTED] = 0
    state[FIRST + KIND * n_classes] = total
    spare = order.buckets.size - total // FILL - 2 * n_classes
    b = m = 0
    for k in range(n_classes):
        end, width = state[FIRST + KIND * (k + 1)], line.widths[k]
        # Edges are at the last of every FILL members, and at -extra * width, ..., -2 * width, -width.
        extra = (spare * (end - m + 1)) // (total + n_classes) if width > 0.0 else 0
        state[FIRST + KIND * k] = b
        forget_spans(order, k)
        while m < end or extra > 0:
            if extra > 0 and (m == end or -extra * width < keys[m]):
                order.buckets[b]["edge"] = -extra * width
                b += 1
                extra -= 1
            else:
                if order.buckets[b]["count"] == FILL:
                    order.buckets[b]["edge"] = keys[m - 1]
                    b += 1
                append(order, members[m], k, keys[m], b)
                m += 1
        order.buckets[b]["edge"] = np.inf
        b += 1
    state[FIRST + KIND * n_classes] = b
    _sum_nodes(order)


@lean
def _sum_nodes(order: Order) -> None:
    """Compute all nodes from the members of the buckets, which lie in order."""
    nodes = order.nodes
    for j in range(nodes.size):
        nodes[j]["mass"] = nodes[j]["first"] = nodes[j]["second"] = 0.0
    for b in range(order.buckets.size):
        node, bucket = nodes[node_of(order, b, 0)], order.buckets[b]
        # The first bucket of a class has no edge to its left.
        pivot = order.buckets[b - 1]["edge"] if b > 0 else np.inf
        if pivot == np.inf and bucket["count"] > 0:
            pivot = order.slots[bucket["head"] * FILL]["key"]
        if pivot == np.inf:
            pivot = bucket["edge"] if bucket["edge"] < np.inf else 0.0
        node["pivot"] = pivot
        _, node["first"], node["second"] = sums_in_bucket(order, b, -np.inf, np.inf, -pivot)
        node["mass"] = mass_in_bucket(order, b, -np.inf)
    for d in range(1, order.state[DEPTH]):
        for b in range(0, order.buckets.size, 1 << (BITS * d)):
            node, first = nodes[node_of(order, b, d)], node_of(order, b, d - 1)
            node["pivot"] = nodes[first]["pivot"]
            for child in range(first, first + FAN):
                add_node(node, nodes[child])
