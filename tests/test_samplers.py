"""Samplers: the coordinate, its probability and its value, with random numbers made up by the test."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

import surestep as ss
from surestep.sampling.samplers import Cyclic, Greedy, draw, looks_at_bounds, make_fixed, make_safe
from zoo import problems

EPS = np.finfo(float).eps


class Shares:
    """A random generator that returns what it is told."""

    def __init__(self, *shares):
        self.shares = iter(shares)

    def random(self):
        return next(self.shares)


# Fixed


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e3), st.sampled_from([1.0, 2.0])), min_size=1, max_size=30))
@example([1.0])
@example([0.0, 0.0, 1.0])
@example([1 / 3] * 3)
@example([0.0, *[0.1] * 29])
@example([1e-20, 1.0, 1.0])
def test_the_alias_table_stands_for_the_distribution(weights):
    weights = np.array(weights)
    if not weights.any():
        weights[0] = 1.0
    p, n = weights / weights.sum(), weights.size
    sampler = make_fixed(p, 7.0)
    keep = np.minimum(sampler.keep, 1.0)  # a draw compares it with a number below 1
    share = keep / n
    np.add.at(share, sampler.other, (1.0 - keep) / n)
    np.testing.assert_allclose(share, p, rtol=1e-13, atol=2 * EPS)
    assert (share[p == 0.0] == 0.0).all()  # never drawn, not even by a bit of rounding
    assert keep.min() >= 0.0
    np.testing.assert_array_equal(sampler.probabilities, p)


def test_a_draw_reads_the_alias_table():
    p = np.array([0.0, 0.1, 0.2, 0.7])
    sampler = make_fixed(p, 7.0)
    for k in range(4):
        for inside in (1e-9, 0.25, 0.5, 0.75, 1.0 - 1e-9):
            i = k if inside < sampler.keep[k] else sampler.other[k]
            assert draw(sampler, None, None, Shares((k + inside) / 4)) == (i, p[i], 7.0)
    assert draw(sampler, None, None, Shares(1.0 - 2.0**-53))[0] in (sampler.other[3], 3)
    assert not looks_at_bounds(sampler)


def test_the_largest_random_number_stays_within_the_table():
    n = 3 * 2**20 + 1  # so large that (1 - 2^-53) * n rounds to n
    sampler = make_fixed(np.full(n, 1.0 / n), 1.0)
    i, p, _ = draw(sampler, None, None, Shares(np.nextafter(1.0, 0.0)))
    assert 0 <= i < n
    assert p == 1.0 / n


# Cyclic and greedy


def test_cyclic_visits_in_order():
    L = np.array([1.0, 0.0, 2.0, 3.0])
    sampler = Cyclic(np.array([0, 2, 3]), L, np.zeros(1, np.int64))
    drawn = [draw(sampler, None, None, None) for _ in range(7)]
    assert drawn == [(i, 1.0, L[i]) for i in (0, 2, 3, 0, 2, 3, 0)]
    assert not looks_at_bounds(sampler)


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=10))
def test_greedy_takes_the_largest_guaranteed_progress(pairs):
    c, L = np.array(pairs).T
    i, p, value = draw(Greedy(L), c, c, None)
    if not c.any():
        assert i == -1
        return
    assert c[i] ** 2 / L[i] >= (c**2 / L).max() * (1 - 4 * EPS)
    assert (p, value) == (1.0, L[i])
    assert looks_at_bounds(Greedy(L))


def test_greedy_passes_over_empty_columns():
    L, c = np.array([0.0, 4.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.9, 0.0])
    assert draw(Greedy(L), c, c, None) == (2, 1.0, 1.0)
    assert draw(Greedy(L), 0 * c, 0 * c, None)[0] == -1


# Safe


@st.composite
def boxes(draw, n=None):
    """(lower, upper, smoothness), with zeros and infinities, and coordinates without curvature or gradient."""
    n = draw(st.integers(1, 8)) if n is None else n
    size = st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.sampled_from([1.0, 2.0]))
    a = np.array(draw(st.lists(size, min_size=n, max_size=n)))
    b = np.array(draw(st.lists(st.one_of(size, st.just(np.inf)), min_size=n, max_size=n)))
    L = np.array(draw(st.lists(st.one_of(st.floats(1e-3, 1e3), st.just(0.0)), min_size=n, max_size=n)))
    lower, upper = np.minimum(a, b), np.maximum(a, b)
    if draw(st.booleans()):
        upper = lower.copy()
    return np.where(L > 0, lower, 0.0), np.where(L > 0, upper, 0.0), L


@given(boxes(), st.floats(0, 1, exclude_max=True))
@example((np.zeros(3), np.full(3, np.inf), np.array([1.0, 2.0, 5.0])), 0.5)
@example((np.zeros(3), np.array([0.0, 1.0, np.inf]), np.array([1.0, 2.0, 5.0])), 0.0)
@example((np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([1.0, 2.0])), 0.0)
def test_safe_draws_as_the_safe_sampling_says(box, share):
    lower, upper, L = box
    sampler = make_safe(L)
    for _ in range(2):  # the second time it starts from the level of the first
        i, p, value = draw(sampler, lower, upper, Shares(share))
        if not upper.any():
            assert i == -1
            return
        curved = L > 0.0
        s = ss.safe_sampling(lower[curved], upper[curved], L[curved])
        expected = np.zeros(L.size)
        expected[curved] = s.probabilities
        assert p > 0.0
        assert p == pytest.approx(expected[i], rel=1e-12)
        assert value == pytest.approx(s.value, rel=1e-12)
        np.testing.assert_allclose(sampler.buffer, expected, rtol=1e-12, atol=0)
        below = expected[:i].sum()  # i is where the sum of the probabilities passes the share
        assert below - 1e-12 <= share <= below + expected[i] + 1e-12


@given(boxes(n=5), boxes(n=5))
def test_a_safe_draw_does_not_depend_on_the_one_before(first, second):
    lower, upper, L = second
    fresh, used = make_safe(L), make_safe(L)
    draw(used, np.where(L > 0, first[0], 0.0), np.where(L > 0, first[1], 0.0), Shares(0.5))
    one, two = draw(fresh, lower, upper, Shares(0.3)), draw(used, lower, upper, Shares(0.3))
    assert two == pytest.approx(one, rel=1e-12)


def test_every_share_of_the_line_belongs_to_some_coordinate():
    L = np.array([1.0, 2.0, 0.5, 3.0])
    lower, upper = np.array([0.1, 0.0, 0.0, 2.0]), np.array([0.2, 0.0, np.inf, 3.0])
    sampler = make_safe(L)
    shares = (np.arange(20000) + 0.5) / 20000
    drawn = np.array([draw(sampler, lower, upper, Shares(share))[0] for share in shares])
    p = ss.safe_sampling(lower, upper, L).probabilities
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 20000, p, atol=2 / 20000)
    assert 1 not in drawn
    assert draw(sampler, lower, upper, Shares(np.nextafter(1.0, 0.0)))[0] == 3


# One of the user's own


class Backwards(NamedTuple):
    """From the last coordinate to the first, and again; never asks for bounds."""

    smoothness: np.ndarray
    position: np.ndarray


@draw.register(Backwards)
def _(sampler, lower, upper, rng):
    sampler.position[0] -= 1
    if sampler.position[0] < 0:
        sampler.position[0] = sampler.smoothness.size - 1
    i = sampler.position[0]
    return i, 1.0, sampler.smoothness[i]


@looks_at_bounds.register(Backwards)
def _(sampler):
    return False


def test_a_sampler_of_the_users_own():
    problem = dict(problems())["squared-l1-sample_weight"]
    seen = []
    mine = Backwards(problem.smoothness, np.zeros(1, np.int64))
    callbacks = [lambda progress: seen.append(progress.x.copy())]
    result = ss.coordinate_descent(problem, sampling=mine, tol=1e-10, trace_every=1 / 8, callbacks=callbacks)
    assert result.status is ss.Status.CONVERGED
    moved = [np.flatnonzero(after != before).tolist() for before, after in pairwise(seen[:9])]
    assert moved == [[7], [6], [5], [4], [3], [2], [1], [0]]
    plain = ss.coordinate_descent(problem, sampling="cyclic", tol=1e-10)
    np.testing.assert_allclose(result.coef, plain.coef, atol=1e-5)
