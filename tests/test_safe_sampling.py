"""The statements of the paper about the safe sampling, each as a property."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings

import surestep as ss
from reference import best_worst_case, exact_safe_sampling, quotient, vertices
from surestep.sampling.reference import sorted_safe_sampling

EPS = np.finfo(float).eps


def magnitudes(low, high):
    """Floats spread evenly over orders of magnitude, with values that repeat (ties)."""
    exponents = st.floats(np.log10(low), np.log10(high))
    spread = exponents.map(lambda e: float(np.clip(10.0**e, low, high)))
    return st.one_of(spread, st.sampled_from([max(low, 1.0), max(low, min(high, 2.0))]))


@st.composite
def boxes(draw, max_size=12, low=1e-3, high=1e3, zeros=True, infinities=True, positive=False):
    """(lower, upper, smoothness); with ``positive`` at least one lower bound is > 0."""
    n = draw(st.integers(1, max_size))
    size = magnitudes(low, high)
    lower_entry = st.one_of(st.just(0.0), size) if zeros else size
    upper_entry = st.one_of(size, st.just(np.inf)) if infinities else size
    if zeros:
        upper_entry = st.one_of(upper_entry, st.just(0.0))
    lower = np.array(draw(st.lists(lower_entry, min_size=n, max_size=n)))
    kind = draw(st.sampled_from(["box", "exact", "mixed"]))
    if kind == "exact":
        upper = lower.copy()
    else:
        upper = np.array(draw(st.lists(upper_entry, min_size=n, max_size=n)))
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        lower[lower == np.inf] = 1.0
        if kind == "mixed":
            known = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
            upper = np.where(known, lower, upper)
    if positive and not lower.any():
        lower[0] = upper[0] = draw(size)
    constant = draw(st.booleans())
    smoothness = np.ones(n) if constant else np.array(draw(st.lists(size, min_size=n, max_size=n)))
    return lower, upper, smoothness


def points_inside(lower, upper, seed, count=20):
    """Random members of the box, its corners among them; an infinite side is cut far out."""
    rng = np.random.default_rng(seed)
    upper = np.where(np.isfinite(upper), upper, 1e3 * (1.0 + lower.max()))
    inner = lower + rng.random((count, len(lower))) * (upper - lower)
    corners = np.where(rng.random((count, len(lower))) < 0.5, lower, upper)
    points = np.vstack([inner, corners, lower, upper])
    return points[points.any(axis=1)]


# Theorem 3.2


@given(boxes())
def test_value_lies_between_the_smallest_and_the_sum_of_the_smoothnesses(box):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    assert smoothness.min() * (1 - 4 * EPS) <= s.value <= smoothness.sum() * (1 + 4 * EPS)
    assert s.stepsize == 1 / s.value
    assert s.gain == pytest.approx(smoothness.sum() / s.value, rel=8 * EPS)
    assert s.probabilities.min() >= 0
    assert abs(s.probabilities.sum() - 1) <= 8 * EPS


@given(boxes(max_size=6, low=0.05, high=20, infinities=False))
@settings(max_examples=60)
def test_no_distribution_has_a_better_worst_case(box):
    lower, upper, smoothness = box
    if not upper.any():
        return
    s = ss.safe_sampling(lower, upper, smoothness)
    movable = upper > 0
    if not lower.any():  # the corner 0 is not in the domain of the quotient: any small box around it is
        lower = np.where(movable, 1e-6 * np.min(upper[movable]), 0.0)
    best_value = best_worst_case(lower[movable], upper[movable], smoothness[movable])
    assert s.value <= best_value * (1 + 1e-6)
    assert best_value <= s.value * (1 + 1e-3)
    worst = quotient(s.probabilities, vertices(lower, upper)[1:], smoothness).max()
    assert worst <= s.value * (1 + 64 * EPS)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_never_worse_than_importance_sampling_for_any_gradient_in_the_box(box, seed):
    lower, upper, smoothness = box
    if not upper.any():
        return
    s = ss.safe_sampling(lower, upper, smoothness)
    for c in points_inside(lower, upper, seed):
        assert quotient(s.probabilities, c, smoothness) <= s.value * (1 + 64 * EPS)
        assert ss.progress_model(s.probabilities, c, smoothness) <= smoothness.sum() * (c @ c) * (1 + 64 * EPS)
        assert ss.progress_stepsize(s.probabilities, c, smoothness) >= s.stepsize * (1 - 64 * EPS)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_remark_33_with_equal_smoothness_never_worse_than_uniform(box, seed):
    lower, upper, smoothness = box
    if not upper.any():
        return
    L, n = smoothness[0], len(lower)
    s = ss.safe_sampling(lower, upper, np.full(n, L))
    for c in points_inside(lower, upper, seed):
        assert quotient(s.probabilities, c, np.full(n, L)) <= L * n * (1 + 64 * EPS)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_minimum_and_maximum_can_be_interchanged(box, seed):
    """Lemma B.1: v = max over c of ||sqrt(L) c||_1^2 / ||c||^2, attained at the worst case."""
    lower, upper, smoothness = box
    if not upper.any():
        return
    s = ss.safe_sampling(lower, upper, smoothness)
    for c in points_inside(lower, upper, seed):
        assert (np.sqrt(smoothness) @ c) ** 2 <= s.value * (c @ c) * (1 + 64 * EPS)
    c = s.worst_case
    assert (np.sqrt(smoothness) @ c) ** 2 == pytest.approx(s.value * (c @ c), rel=64 * EPS)
    assert ss.progress_model(s.probabilities, c, smoothness) == pytest.approx(s.value * (c @ c), rel=64 * EPS)


# Theorem 3.4


@given(boxes(positive=True))
def test_optimality_conditions_of_theorem_34(box):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    roots = np.sqrt(smoothness)
    c, m = s.worst_case, s.level
    np.testing.assert_array_equal(c, np.clip(roots * m, lower, upper))
    np.testing.assert_allclose(s.probabilities, roots * c / (roots @ c), rtol=32 * EPS)
    unclipped = (lower <= roots * m) & (roots * m <= upper)
    if not unclipped.all():
        assert c @ c == pytest.approx(m * (roots @ c), rel=64 * EPS)


@given(boxes(max_size=30, positive=True))
def test_agrees_with_the_sorted_algorithm_of_the_paper(box):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    c, p, value = sorted_safe_sampling(lower, upper, smoothness)
    assert s.value == pytest.approx(value, rel=64 * EPS)
    np.testing.assert_allclose(s.probabilities, p, rtol=64 * EPS)
    if not np.isclose(smoothness.sum(), value):  # where nothing is clipped any level will do
        np.testing.assert_allclose(s.worst_case, c, rtol=64 * EPS)


@given(boxes(low=1e-300, high=1e300, positive=True))
@example((np.array([1e300, 1.0]), np.array([1e300, 1.0]), np.array([1e-300, 1e300])))
@example((np.array([1.0, 0.0]), np.array([1.0, 1e-200]), np.ones(2)))
@example((np.array([5e-324, 0.0]), np.array([1e-323, np.inf]), np.array([1.0, 2.0])))
@settings(max_examples=500)
def test_exact_to_a_few_ulp_over_the_whole_range_of_floats(box):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    p, value, _ = exact_safe_sampling(lower, upper, smoothness)
    assert s.value == pytest.approx(value, rel=32 * EPS)
    np.testing.assert_allclose(s.probabilities, p, rtol=32 * EPS, atol=1e-307)
    assert np.isfinite([s.value, s.level]).all()
    assert s.gain >= 1  # it may be beyond the largest float
    assert s.competitive_ratio >= 1
    assert (s.lower <= s.worst_case).all()
    assert (s.worst_case <= s.upper).all()


def test_large_problems_lose_nothing_to_rounding():
    rng = np.random.default_rng(0)
    n = 1_000_000
    lower = rng.pareto(1.5, n) * (rng.random(n) < 0.7)
    upper = np.where(rng.random(n) < 0.1, np.inf, lower * (1 + rng.exponential(1, n)))
    smoothness = rng.uniform(0.1, 10, n)
    s = ss.safe_sampling(lower, upper, smoothness)
    c = np.clip(np.sqrt(smoothness.astype(np.longdouble)) * s.level, lower, upper)
    total = (np.sqrt(smoothness.astype(np.longdouble)) * c).sum()
    assert s.value == pytest.approx(float(total**2 / (c * c).sum()), rel=16 * EPS)
    assert s.level == pytest.approx(float((c * c).sum() / total), rel=16 * EPS)


def test_the_number_of_passes_is_bounded_where_newton_alone_would_cycle():
    # phi is steep left of 1 and flat right of it: Newton jumps from one side to the other for ever.
    s = ss.safe_sampling([1.0, 0.0], [1.0, 1e-9])
    p, value, level = exact_safe_sampling([1.0, 0.0], [1.0, 1e-9], [1, 1])
    np.testing.assert_allclose(s.probabilities, p, rtol=8 * EPS)
    assert s.value == pytest.approx(value, rel=8 * EPS)
    assert s.level == pytest.approx(level, rel=8 * EPS)


# Lemmas 3.5 and 3.6


@given(boxes(max_size=6, infinities=False))
def test_competitive_ratio_is_an_upper_bound_within_the_lemmas(box):
    lower, upper, smoothness = box
    if not upper.any():
        return
    s = ss.safe_sampling(lower, upper, smoothness)
    corners = vertices(lower, upper)
    corners = corners[corners.any(axis=1)]
    hindsight = (corners @ np.sqrt(smoothness)) ** 2 / (corners**2).sum(axis=1)
    w = hindsight.min()  # Lemma 3.5: the minimum of a quasi-concave function is at a corner
    smallest = smoothness[upper > 0].min()
    assert smallest * (1 - 32 * EPS) <= w <= s.value * (1 + 32 * EPS)
    rho = (quotient(s.probabilities, corners, smoothness) / hindsight).max()
    assert rho <= s.competitive_ratio * (1 + 64 * EPS)
    assert 1 <= s.competitive_ratio <= s.value / smoothness.min() * (1 + 32 * EPS)
    if lower.all():
        gamma = (upper / lower).max() * (1 + EPS)
        assert s.competitive_ratio <= gamma**4 * (1 + 32 * EPS)


@given(boxes(max_size=5, low=0.1, high=10, zeros=False, infinities=False))
def test_competitive_ratio_is_close_where_bounds_are_close(box):
    """At most (gamma + 1/gamma)^2 / 4, which is 1 + O((gamma - 1)^2) where Lemma 3.6 says 1 + O(gamma - 1)."""
    lower, _, smoothness = box
    upper = 1.1 * lower
    assert ss.safe_sampling(lower, upper, smoothness).competitive_ratio <= (1.1 + 1 / 1.1) ** 2 / 4 * (1 + 1e-12)


@given(boxes())
def test_competitive_ratio_at_full_and_at_no_information(box):
    lower, _, smoothness = box
    assert ss.optimal_sampling(lower, smoothness).competitive_ratio == 1.0
    s = ss.importance_sampling(smoothness)
    assert s.competitive_ratio == pytest.approx(smoothness.sum() / smoothness.min(), rel=16 * EPS)


# Equivariance and monotonicity


@given(boxes(), st.integers(0, 2**32 - 1))
def test_permuting_coordinates_permutes_the_sampling(box, seed):
    order = np.random.default_rng(seed).permutation(len(box[0]))
    s, t = ss.safe_sampling(*box), ss.safe_sampling(*(array[order] for array in box))
    np.testing.assert_allclose(s.probabilities[order], t.probabilities, rtol=32 * EPS)
    assert s.value == pytest.approx(t.value, rel=32 * EPS)


@given(boxes(), st.integers(-900, 900), st.integers(-400, 400))
def test_powers_of_two_change_nothing_but_the_units(box, exponent, smoothness_exponent):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    t = ss.safe_sampling(
        np.ldexp(lower, exponent), np.ldexp(upper, exponent), np.ldexp(smoothness, 2 * smoothness_exponent)
    )
    np.testing.assert_allclose(t.probabilities, s.probabilities, rtol=32 * EPS)
    assert np.ldexp(t.value, -2 * smoothness_exponent) == pytest.approx(s.value, rel=32 * EPS)
    # Where no coordinate is at a bound, a whole interval of levels gives this p: the worst case is not determined.
    if lower.any() and np.any(np.abs(s.worst_case / np.sqrt(smoothness) - s.level) > 1e-9 * s.level):
        np.testing.assert_allclose(np.ldexp(t.worst_case, -exponent), s.worst_case, rtol=32 * EPS)


@given(boxes(), magnitudes(1e-3, 1e3), magnitudes(1e-3, 1e3))
def test_any_other_factor_changes_nothing_but_the_units(box, factor, smoothness_factor):
    lower, upper, smoothness = box
    s = ss.safe_sampling(lower, upper, smoothness)
    t = ss.safe_sampling(lower * factor, upper * factor, smoothness * smoothness_factor)
    np.testing.assert_allclose(t.probabilities, s.probabilities, rtol=64 * EPS)
    assert t.value == pytest.approx(s.value * smoothness_factor, rel=64 * EPS)


@given(boxes(), st.floats(0, 1), st.floats(1, 10))
def test_looser_bounds_never_promise_more(box, shrink, stretch):
    lower, upper, smoothness = box
    tight, loose = ss.safe_sampling(*box), ss.safe_sampling(lower * shrink, upper * stretch, smoothness)
    assert tight.converged or loose.value >= tight.value * (1 - 16 * EPS)


# The cases where the printed algorithm divides by zero


def test_start_of_the_paper_is_importance_sampling():
    L = np.array([1.0, 2.0, 5.0])
    s = ss.safe_sampling(np.zeros(3), np.full(3, np.inf), L)
    np.testing.assert_array_equal(s.probabilities, L / 8)
    assert (s.value, s.gain, s.stepsize, s.converged) == (8.0, 1.0, 1 / 8, False)
    assert s.level > 0
    np.testing.assert_allclose(s.worst_case, np.sqrt(L) * s.level)


def test_finite_upper_bounds_alone_tell_nothing():
    s = ss.safe_sampling([0, 0, 0], [1e-3, 7, 2], [1, 2, 5])
    np.testing.assert_array_equal(s.probabilities, np.array([1, 2, 5]) / 8)
    assert s.value == 8
    assert (s.worst_case <= s.upper).all()


def test_a_coordinate_certified_still_is_never_drawn():
    s = ss.safe_sampling([0, 0, 0], [0, 7, np.inf], [1, 2, 6])
    np.testing.assert_array_equal(s.probabilities, [0, 0.25, 0.75])
    assert s.value == 8
    s = ss.safe_sampling([0, 1, 0], [0, 7, np.inf], [1, 2, 6])
    assert s.probabilities[0] == 0
    assert s.probabilities.sum() == pytest.approx(1, abs=4 * EPS)


def test_a_zero_gradient_is_reported_and_still_gives_a_distribution():
    s = ss.safe_sampling([0, 0], [0, 0], [1, 3])
    assert s.converged
    np.testing.assert_array_equal(s.probabilities, [0.25, 0.75])
    assert (s.value, s.gain, s.competitive_ratio) == (4.0, 1.0, 1.0)
    np.testing.assert_array_equal(s.worst_case, [0, 0])
    assert ss.optimal_sampling([0.0]).converged


@given(boxes(max_size=8, positive=True))
def test_any_level_in_an_interval_gives_the_same_sampling(box):
    lower, _, smoothness = box
    roots = np.sqrt(smoothness)
    lower = np.minimum(lower, roots)  # every level between 1 and 2 satisfies all bounds
    s = ss.safe_sampling(lower, 2 * roots, smoothness)
    np.testing.assert_allclose(s.probabilities, smoothness / smoothness.sum(), rtol=16 * EPS)
    assert s.value == pytest.approx(smoothness.sum(), rel=16 * EPS)
    assert (lower <= roots * s.level * (1 + 4 * EPS)).all()


def test_bounds_crossed_by_rounding_become_their_midpoint():
    one = np.nextafter(np.nextafter(1.0, 2), 2)
    s = ss.safe_sampling([one, 0.0], [1.0, 0.5])
    assert s.lower[0] == s.upper[0] == np.nextafter(1.0, 2)
    with pytest.raises(ValueError, match=r"lower\[0\] is 1.0001 and exceeds upper\[0\], 1.0"):
        ss.safe_sampling([1.0001, 0.0], [1.0, 0.5])


def test_smoothness_whose_sum_is_beyond_the_largest_float():
    s = ss.importance_sampling([1.7e308, 1.7e308])
    np.testing.assert_array_equal(s.probabilities, [0.5, 0.5])
    s = ss.safe_sampling([1, 0, 0], [1, np.inf, np.inf], [1.7e308, 1.7e308, 1.7e308])
    np.testing.assert_allclose(s.probabilities, np.full(3, 1 / 3), rtol=8 * EPS)
    assert s.gain == 1.0
