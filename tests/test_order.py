"""The order of weighted items against brute force, whatever has been put in and taken out."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

from surestep.sampling.layout import build, line_up, make_order, sort_items
from surestep.sampling.order import (
    BITS,
    DEPTH,
    FILL,
    FIRST,
    FREE,
    INSERTED,
    KIND,
    bucket_of,
    insert,
    mass_from,
    node_of,
    pick,
    range_sums,
    remove,
    span_of,
)


class Model:
    """An order, and beside it what should be in there."""

    def __init__(self, weight, n_classes):
        self.weight = np.asarray(weight, float)
        self.order, self.line = make_order(self.weight, n_classes)
        self.kind = np.full(self.weight.size, -1)
        self.key = np.zeros(self.weight.size)
        self.n_classes = n_classes
        self.farthest = 0.0  # |key| of any finite key that was ever there

    def insert(self, i, kind, key):
        remove(self.order, i)
        insert(self.order, i, kind, key)
        self.kind[i], self.key[i] = kind, key
        if key < np.inf:
            self.farthest = max(self.farthest, abs(key))

    def remove(self, i):
        remove(self.order, i)
        self.kind[i] = -1

    def build(self, width):
        """Lay all out anew: from the order itself, or from the classes and keys that should be there."""
        self.line.widths[:], end = width, 0
        if width == 0.0:
            end = sort_items(self.order, self.line, self.kind, self.key)
        else:
            for k in range(self.n_classes):
                end = line_up(self.order, self.line, k, 0.0, end)
        build(self.order, self.line, end)

    def members(self, kind):
        """Keys and weights of a class."""
        there = self.kind == kind
        return self.key[there], self.weight[there]

    def history(self, rng, length, keys):
        """Random operations; half of them insert, or insert again."""
        for _ in range(length):
            i, what = int(rng.integers(self.weight.size)), rng.random()
            if what < 0.6:
                self.insert(i, int(rng.integers(self.n_classes)), keys(rng))
            elif what < 0.97:
                self.remove(i)
            else:
                self.build(float(rng.choice([0.0, 1e-3, 0.3, 5.0])))


def chain(order, chunk):
    found = []
    while chunk >= 0:
        found.append(int(chunk))
        assert len(found) <= order.chunks.size, "a chain of chunks runs in a circle"
        chunk = order.chunks[chunk]
    return found


def check_structure(model):
    """Every item is where its key belongs, nothing is lost, and what is counted is there."""
    order, buckets = model.order, model.order.buckets
    used, seen = chain(order, order.state[FREE]), []
    starts = order.state[FIRST::KIND]
    assert (np.diff(starts) >= 1).all()
    assert 0 == starts[0] < starts[-1] <= buckets.size
    for k, (begin, end) in enumerate(pairwise(starts)):
        edges = buckets["edge"][begin:end]
        assert (edges[1:] >= edges[:-1]).all()
        assert edges[-1] == np.inf
        for b in range(begin, end):
            chunks, count = chain(order, buckets[b]["head"]), int(buckets[b]["count"])
            assert len(chunks) == -(-count // FILL)
            used += chunks
            slots = [c * FILL + s for c in chunks[1:] for s in range(FILL)]
            slots += [chunks[0] * FILL + s for s in range((count - 1) % FILL + 1)] if chunks else []
            members = order.slots["item"][slots]
            seen += members.tolist()
            keys = model.key[members]
            assert (model.kind[members] == k).all()
            np.testing.assert_array_equal(order.slots["key"][slots], keys)
            np.testing.assert_array_equal(order.slots["weight"][slots], model.weight[members])
            np.testing.assert_array_equal(order.items["slot"][members], slots)
            assert (order.slots["kind"][slots] == k).all()
            assert (order.items["bucket"][members] == b).all()
            assert (keys <= edges[b - begin]).all()
            assert b == begin or (keys >= edges[b - begin - 1]).all()
    assert (buckets["count"][starts[-1] :] == 0).all()
    assert sorted(seen) == np.flatnonzero(model.kind >= 0).tolist()
    assert (order.items["bucket"][model.kind < 0] == -1).all()
    assert sorted(used) == list(range(order.chunks.size))


def check_nodes(model, rtol):
    """Every node holds the sums over the items below it; those with keys only where no bucket reaches to infinity."""
    order, n_buckets, n = model.order, model.order.buckets.size, 0
    for d in range(order.state[DEPTH]):
        for b in range(0, n_buckets, 1 << BITS * d):
            check_node(model, node_of(order, b, d), b, min(b + (1 << BITS * d), n_buckets), rtol)
            n += 1
    assert n >= n_buckets + (n_buckets > 1)
    for k in range(model.n_classes):
        first, begin, end, above, last = order.state[FIRST + KIND * k : FIRST + KIND * (k + 1) + 1]
        if begin < end:
            assert first <= begin < end <= last
            check_node(model, span_of(order, k), begin, end, rtol)
        if above < last:
            assert first < above
            check_node(model, span_of(order, k) + 1, above, last, rtol)


def check_node(model, j, begin, end, rtol):
    """A node holds the sums over the buckets from ``begin`` to before ``end``."""
    node, where = model.order.nodes[j], model.order.items["bucket"]
    below = np.flatnonzero((begin <= where) & (where < end))
    weight, key = model.weight[below], model.key[below]
    apart = np.where(key < np.inf, key - node["pivot"], 0.0)
    span = 2.0 * model.farthest  # as large as the terms that have come and gone
    assert abs(node["mass"] - weight.sum()) <= rtol * weight.sum()
    if below.size == 0:
        assert (node["mass"], node["first"], node["second"]) == (0.0, 0.0, 0.0)
    if model.order.buckets["edge"][begin:end].max() == np.inf:
        return
    assert abs(node["first"] - weight @ apart) <= rtol * weight.sum() * span
    assert abs(node["second"] - weight @ apart**2) <= rtol * weight.sum() * span**2


def check_queries(model, rng, keys, count=6):
    """Sums and masses over random ranges, whose ends are often keys themselves."""
    for k in range(model.n_classes):
        key, weight = model.members(k)
        for _ in range(count):
            low, high = sorted(keys(rng) if rng.random() < 0.8 else rng.choice([-np.inf, np.inf]) for _ in range(2))
            offset = float(rng.choice([0.0, -low, -high, 3.7, 1e4]))
            offset = offset if abs(offset) < np.inf else 0.0
            inside = (low < key) & (key < high)
            shifted = key[inside] + offset
            scale = weight.sum()
            reach = abs(offset) + 2.0 * model.farthest
            found = range_sums(model.order, k, low, high, offset)
            assert abs(found[0] - weight[inside].sum()) <= 1e-12 * scale, (low, high)
            assert abs(found[1] - weight[inside] @ shifted) <= 1e-12 * scale * reach, (low, high)
            assert abs(found[2] - weight[inside] @ shifted**2) <= 1e-12 * scale * reach**2, (low, high)
            assert abs(mass_from(model.order, k, low) - weight[key >= low].sum()) <= 1e-12 * scale, low


def check_picks(model, kind, low, high, offset, by_key, n_targets=200):
    """Of evenly spaced targets every item gets as many as its share, but for one."""
    key, weight = np.where(model.kind == kind, model.key, np.nan), model.weight
    inside = (low < key) & (key < high) if by_key else key >= low
    share = np.where(inside, weight * np.abs(key + offset) if by_key else weight, 0.0)
    total = share.sum()
    if total == 0.0:
        return
    step = total / n_targets
    targets = (np.arange(n_targets) + 0.5) * step
    picked = [pick(model.order, kind, low, high, offset, by_key, target) for target in targets]
    assert min(picked) >= 0
    counts = np.bincount(picked, minlength=weight.size)
    assert (counts[~inside] == 0).all()
    assert np.abs(counts * step - share).max() <= step * (1.0 + 1e-9)


KEYS = {
    "few": lambda rng: float(rng.integers(-3, 4)),
    "few or infinite": lambda rng: float(rng.choice([-1.0, 0.0, 0.5, np.inf])),
    "many": lambda rng: float(rng.normal()),
    "to the left": lambda rng: -float(rng.exponential(4.0)),
    "mixed": lambda rng: float(rng.choice([rng.normal(), rng.integers(-2, 3), np.inf])),
}


@given(
    st.integers(1, 150),
    st.integers(1, 5),
    st.sampled_from(sorted(KEYS)),
    st.integers(0, 300),
    st.integers(0, 2**32 - 1),
)
@example(100, 1, "few", 300, 0)
@example(100, 1, "few or infinite", 300, 1)
@example(1, 5, "few", 20, 2)
@example(40, 3, "mixed", 0, 3)
@settings(max_examples=30)
def test_queries_agree_with_brute_force_after_any_history(n, n_classes, name, length, seed):
    rng, keys = np.random.default_rng(seed), KEYS[name]
    model = Model(rng.uniform(0.1, 3.0, n), n_classes)
    for _ in range(2):
        model.history(rng, length // 2, keys)
        check_structure(model)
        check_nodes(model, 1e-12)
        check_queries(model, rng, keys)
    k = int(rng.integers(n_classes))
    low, high = sorted(keys(rng) for _ in range(2))
    if low < np.inf:
        check_picks(model, k, low, high, -low, True)  # w (k - low): positive
        if high < np.inf:
            check_picks(model, k, low, high, -high, True)  # and negative
        check_picks(model, k, -np.inf, high, -high if high < np.inf else -9.0 - model.farthest, True)
    check_picks(model, k, low, np.inf, 0.0, False)


def test_ties_by_the_hundred_span_many_buckets_and_none_is_counted_beyond_the_end_of_a_range():
    model = Model(np.ones(200), 1)
    for i in range(200):
        model.insert(i, 0, float(i // 80))  # 80 zeros, 80 ones, 40 twos
    model.build(0.0)
    check_structure(model)
    for low, high, expected in [(0, 1, 0), (-1, 1, 80), (0, 2, 80), (-1, 2, 160), (0, 3, 120), (1, 1, 0), (2, 1, 0)]:
        assert range_sums(model.order, 0, float(low), float(high), 0.0)[0] == expected, (low, high)
    assert [mass_from(model.order, 0, x) for x in (-1.0, 0.0, 0.5, 1.0, 2.0, 2.5)] == [200, 200, 120, 120, 40, 0]
    check_picks(model, 0, 0.0, 2.0, 5.0, True)
    check_picks(model, 0, 1.0, np.inf, 0.0, False)


def test_infinite_keys_count_by_their_weight_alone():
    rng = np.random.default_rng(0)
    model = Model(rng.uniform(0.5, 2.0, 120), 2)
    for i in range(120):
        model.insert(i, i % 2, np.inf if i >= 60 else float(rng.normal()))
    for width in (0.0, 0.1):
        model.build(width)
        check_structure(model)
        for k in range(2):
            key, weight = model.members(k)
            infinite = key == np.inf
            assert mass_from(model.order, k, np.inf) == pytest.approx(weight[infinite].sum(), rel=1e-13)
            assert mass_from(model.order, k, -np.inf) == pytest.approx(weight.sum(), rel=1e-13)
            sums = range_sums(model.order, k, -np.inf, np.inf, 2.0)
            shifted = key[~infinite] + 2.0
            expected = weight[~infinite].sum(), weight[~infinite] @ shifted, weight[~infinite] @ shifted**2
            assert sums == pytest.approx(expected, rel=1e-12)
            check_picks(model, k, np.inf, np.inf, 0.0, False)
            check_picks(model, k, -np.inf, np.inf, 0.0, False)


@pytest.mark.parametrize("offset", [1e2, 1e5, 1e8, -1e2, -1e5, -1e8])
def test_an_offset_far_from_the_keys_loses_nothing(offset):
    rng = np.random.default_rng(1)
    model = Model(10.0 ** rng.uniform(-3, 3, 300), 1)
    for i in range(300):
        model.insert(i, 0, float(rng.random()))
    model.build(0.0)
    for i in range(0, 300, 7):
        model.insert(i, 0, float(rng.random()))
    key, weight = model.key.astype(np.longdouble), model.weight.astype(np.longdouble)
    for low, high in [(-1.0, 2.0), (0.25, 0.75), (0.9, 0.901), (-np.inf, 0.5)]:
        inside = (low < key) & (key < high)
        shifted = key[inside] + np.longdouble(offset)
        found = range_sums(model.order, 0, low, high, offset)
        for power in range(3):
            expected = float(weight[inside] @ shifted**power)
            assert found[power] == pytest.approx(expected, rel=1e-12), (low, high, power)


@pytest.mark.parametrize("shift", [0.0, 1e8])
def test_keys_far_from_zero_lose_nothing_where_the_offset_brings_them_back(shift):
    """k + s is a small difference of large numbers, and exact: all of the sums should be as good."""
    rng = np.random.default_rng(2)
    small = rng.integers(1, 2**20, 300) / 2.0**20  # multiples of 2^-20, so that k - shift is exact
    model = Model(rng.uniform(0.5, 2.0, 300), 2)
    for i in range(300):
        model.insert(i, i % 2, (small[i] if i % 2 == 0 else -small[i]) - shift)
    model.build(0.0)
    for k, (low, high) in enumerate([(-shift, 0.5 - shift), (-np.inf, -0.25 - shift)]):
        key, weight = model.members(k)
        inside = (low < key) & (key < high)
        shifted = key[inside] + shift
        found = range_sums(model.order, k, low, high, shift)
        for power in range(3):
            assert found[power] == pytest.approx(weight[inside] @ shifted**power, rel=1e-12), (k, power)


def test_a_hundred_thousand_operations_leave_sums_as_good_as_new():
    rng = np.random.default_rng(3)
    n = 500
    model = Model(rng.uniform(0.1, 3.0, n), 3)
    for i in range(n):
        model.insert(i, i % 3, float(rng.normal()))
    model.build(0.05)
    items, kinds, removals = rng.integers(n, size=100_000), rng.integers(3, size=100_000), 0
    draws = rng.normal(size=100_000)
    for i, kind, key in zip(items.tolist(), kinds.tolist(), draws.tolist(), strict=True):
        if key > 1.2 and model.kind[i] >= 0:
            model.remove(i)
            removals += 1
        else:
            model.insert(i, kind, key)
    assert model.order.state[INSERTED] == 100_000 - removals
    check_structure(model)
    check_nodes(model, 1e-9)
    check_queries(model, rng, KEYS["many"], count=30)


def test_emptied_it_holds_nothing_but_zeros():
    rng = np.random.default_rng(4)
    model = Model(rng.uniform(0.1, 3.0, 90), 2)
    for i in range(90):
        model.insert(i, i % 2, float(rng.normal()) / 3.0)
    for i in rng.permutation(90):
        model.remove(i)
    remove(model.order, 0)  # once more: nothing happens
    check_structure(model)
    check_nodes(model, 0.0)
    for field in ("mass", "first", "second"):
        assert not model.order.nodes[1:][field].any()
    assert mass_from(model.order, 0, -np.inf) == 0.0
    assert pick(model.order, 0, -np.inf, np.inf, 0.0, False, 0.0) == -1


def test_edges_are_prepared_for_keys_that_come_from_the_left():
    model = Model(np.ones(320), 1)
    for i in range(160):
        model.insert(i, 0, float(i))
    model.build(0.5)
    buckets = {bucket_of(model.order, 0, -0.5 * step + 0.25, 0) for step in range(1, 11)}
    assert len(buckets) == 10  # a bucket of its own for every width
    for i in range(160, 320):
        model.insert(i, 0, -0.5 * (i - 160) / FILL)
    assert model.order.buckets["count"].max() <= 2 * FILL
    check_structure(model)
