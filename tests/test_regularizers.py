"""Regularizers: prox, subgradients, bounds and conjugates against brute force; sums, names, errors."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surestep as ss
from surestep import regularizers as r
from surestep._jit import jit
from surestep.regularizers import L1, L2, Box, ElasticNet, NonNegative, NoPenalty, Regularizer

INF = math.inf
strengths = st.one_of(st.just(0.0), st.floats(0.01, 3.0))
lower_bounds = st.one_of(st.just(-INF), st.just(0.0), st.floats(-3.0, -0.01))
upper_bounds = st.one_of(st.just(INF), st.just(0.0), st.floats(0.01, 3.0))
numbers = st.floats(-5.0, 5.0)
regularizers = st.builds(Regularizer, l1=strengths, l2=strengths, lower=lower_bounds, upper=upper_bounds)


def points(reg):
    """Where x may lie: anywhere within the bounds, with its corners more often than by chance."""
    lower, upper = max(reg.lower[0], -5.0), min(reg.upper[0], 5.0)
    return st.one_of(st.just(0.0), st.just(float(lower)), st.just(float(upper)), st.floats(lower, upper))


def psi(reg, x):
    """psi_0(x), with the indicator of the bounds, for arrays too."""
    x = np.asarray(x)
    value = reg.l1[0] * abs(x) + reg.l2[0] * x**2 / 2
    return np.where((x >= reg.lower[0]) & (x <= reg.upper[0]), value, INF)


def subdifferential(reg, x):
    """Ends of the subdifferential of psi_0 at x, an interval."""
    l1, l2 = reg.l1[0], reg.l2[0]
    least = l2 * x + (l1 if x > 0 else -l1)
    greatest = l2 * x + (-l1 if x < 0 else l1)
    return (-INF if x == reg.lower[0] else least), (INF if x == reg.upper[0] else greatest)


@jit
def compiled(reg, j, x, v, step, lo, hi):
    return (
        r.penalty(reg, j, x),
        r.prox(reg, j, v, step),
        r.min_subgradient(reg, j, x, v),
        r.magnitude_bounds(reg, j, x, lo, hi),
        r.penalty_conjugate(reg, j, v),
        r.feasible_scale(reg, j, v),
    )


@given(regularizers, numbers, st.floats(0.01, 10.0), st.data())
def test_compiled_equals_python(regularizer, v, step, data):
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    lo, hi = sorted([v, data.draw(numbers)])
    plain = (
        r.penalty(reg, 0, x),
        r.prox(reg, 0, v, step),
        r.min_subgradient(reg, 0, x, v),
        r.magnitude_bounds(reg, 0, x, lo, hi),
        r.penalty_conjugate(reg, 0, v),
        r.feasible_scale(reg, 0, v),
    )
    for fast, slow in zip(compiled(reg, 0, x, v, step, lo, hi), plain, strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-14, atol=1e-14)


@given(regularizers, numbers, st.floats(0.01, 10.0))
def test_prox_minimises(regularizer, v, step):
    reg = regularizer.bind(1, False)
    x = r.prox(reg, 0, v, step)

    def objective(t):
        return psi(reg, t) + (np.asarray(t) - v) ** 2 / (2 * step)

    around = np.concatenate([np.linspace(-6.0, 6.0, 2001), x + np.array([-1e-3, 1e-3, -1e-5, 1e-5])])
    assert math.isfinite(objective(x))
    assert objective(x) <= np.min(objective(around)) + 1e-12
    least, greatest = subdifferential(reg, x)
    assert least - 1e-9 <= (v - x) / step <= greatest + 1e-9
    assert math.copysign(1.0, x) == 1.0 or x < 0.0  # never -0.0


@given(regularizers, numbers, numbers, st.floats(0.01, 10.0))
def test_prox_does_not_expand(regularizer, v, w, step):
    reg = regularizer.bind(1, False)
    assert abs(r.prox(reg, 0, v, step) - r.prox(reg, 0, w, step)) <= abs(v - w) + 1e-14


@given(regularizers, numbers, st.data())
def test_min_subgradient_is_the_nearest_to_zero(regularizer, g, data):
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    least, greatest = subdifferential(reg, x)
    expected = min(max(0.0, least + g), greatest + g)
    assert r.min_subgradient(reg, 0, x, g) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(regularizers, numbers, st.floats(0.01, 10.0), st.data())
def test_min_subgradient_vanishes_exactly_where_a_prox_step_stays(regularizer, g, step, data):
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    c, moved = r.min_subgradient(reg, 0, x, g), r.prox(reg, 0, x - step * g, step) - x
    if c == 0.0:
        assert moved == pytest.approx(0.0, abs=1e-13)
    elif abs(c) > 1e-9:
        assert moved * c < 0.0
        assert abs(moved) <= step * abs(c) * (1 + 1e-9) + 1e-13


@given(regularizers, numbers, st.floats(0.05, 10.0), st.data())
def test_a_gradient_step_is_a_prox_step_with_the_ridge_term_on_the_other_side(regularizer, g, curvature, data):
    """1 / step = 1 / (step of the prox) + l2: the same quadratic model, written in two ways."""
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    moved = r.gradient_step(reg, 0, x, g, 1.0 / (curvature + reg.l2[0]))
    assert moved == pytest.approx(r.prox(reg, 0, x - g / curvature, 1.0 / curvature), rel=1e-9, abs=1e-9)
    c = r.min_subgradient(reg, 0, x, g)
    if c == 0.0:
        assert moved == pytest.approx(x, abs=1e-13)
    elif abs(c) > 1e-9:
        assert (moved - x) * c < 0.0


ends = st.one_of(st.just(-INF), st.just(INF), numbers)


@given(regularizers, ends, ends, st.data())
def test_magnitude_bounds_are_safe_and_sharp(regularizer, a, b, data):
    reg = regularizer.bind(1, False)
    lo, hi = sorted([a, b])
    x = data.draw(points(reg))
    lower, upper = r.magnitude_bounds(reg, 0, x, lo, hi)
    assert 0.0 <= lower <= upper
    span = np.linspace(max(lo, -50.0), min(hi, 50.0), 301) if lo < hi else np.array([lo])
    corners = np.clip([-e for e in subdifferential(reg, x)], lo, hi)  # where the magnitude may turn
    seen = [abs(r.min_subgradient(reg, 0, x, g)) for g in np.concatenate([span, corners, [lo, hi]])]
    assert lower <= min(seen)
    assert max(seen) <= upper
    assert min(seen) == pytest.approx(lower, abs=1e-12)
    assert max(seen) == upper


def test_a_zero_upper_bound_certifies_rest():
    reg = L1(1.0).bind(1, False)
    assert r.magnitude_bounds(reg, 0, 0.0, -1.0, 0.5) == (0.0, 0.0)
    assert r.magnitude_bounds(reg, 0, 0.0, -1.5, 0.5) == (0.0, 0.5)
    assert r.magnitude_bounds(reg, 0, 2.0, -1.5, 0.5) == (0.0, 1.5)
    assert r.magnitude_bounds(NonNegative().bind(1, False), 0, 0.0, 0.0, INF) == (0.0, 0.0)
    assert r.magnitude_bounds(NoPenalty().bind(1, False), 0, 0.0, -INF, INF) == (0.0, INF)


@given(regularizers, numbers, st.data())
def test_conjugate_fenchel_young(regularizer, v, data):
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    conjugate = r.penalty_conjugate(reg, 0, v)
    assert conjugate >= 0.0
    assert psi(reg, x) + conjugate - v * x >= -1e-12
    assert r.penalty(reg, 0, x) == pytest.approx(psi(reg, x), rel=1e-14)


@given(regularizers, st.data())
def test_conjugate_is_attained_where_v_is_a_subgradient(regularizer, data):
    reg = regularizer.bind(1, False)
    x = data.draw(points(reg))
    least, greatest = subdifferential(reg, x)
    if least == -INF:
        least = min(greatest, 0.0) - 9.0
    if greatest == INF:
        greatest = max(least, 0.0) + 9.0
    v = data.draw(st.floats(least, greatest) if least < greatest else st.just(least))
    assert r.penalty_conjugate(reg, 0, v) == pytest.approx(v * x - psi(reg, x), rel=1e-9, abs=1e-9)


@given(regularizers, numbers)
def test_conjugate_is_infinite_exactly_where_feasible_scale_says(regularizer, v):
    reg = regularizer.bind(1, False)
    scale = r.feasible_scale(reg, 0, v)
    assert 0.0 <= scale <= 1.0
    assert math.isfinite(r.penalty_conjugate(reg, 0, scale * v))
    assert math.isfinite(r.penalty_conjugate(reg, 0, 0.5 * scale * v))
    if scale < 1.0:
        assert r.penalty_conjugate(reg, 0, (scale + 1e-6) * v) == INF or abs(v) < 1e-3


def test_feasible_scale_by_hand():
    assert r.feasible_scale(NoPenalty().bind(1, False), 0, 2.0) == 0.0
    assert r.feasible_scale(NoPenalty().bind(1, False), 0, 0.0) == 1.0
    assert r.feasible_scale(NonNegative().bind(1, False), 0, 2.0) == 0.0
    assert r.feasible_scale(NonNegative().bind(1, False), 0, -2.0) == 1.0
    assert r.feasible_scale(L1(0.5).bind(1, False), 0, -2.0) == 0.25
    assert r.feasible_scale(L2(0.5).bind(1, False), 0, -2.0) == 1.0
    assert r.feasible_scale(Box(-1, 1).bind(1, False), 0, -2.0) == 1.0


def test_named_forms_by_hand():
    weights = [1.0, 0.0, 3.0]
    x = np.array([-1.0, 2.0, 0.5])

    def total(regularizer):
        reg = regularizer.bind(3, False)
        return sum(r.penalty(reg, j, x[j]) for j in range(3))

    assert total(NoPenalty()) == 0.0
    assert total(L1(0.1)) == pytest.approx(0.1 * 3.5)
    assert total(L1(0.1, weights=weights)) == pytest.approx(0.1 * 2.5)
    assert total(L2(0.1)) == pytest.approx(0.05 * 5.25)
    assert total(L2(0.1, weights=weights)) == pytest.approx(0.05 * 1.75)
    assert total(ElasticNet(0.1, 0.3)) == pytest.approx(0.1 * (0.3 * 3.5 + 0.35 * 5.25))
    assert total(ElasticNet(0.1, 0.3, weights)) == pytest.approx(0.1 * (0.3 * 2.5 + 0.35 * 1.75))


def test_bind():
    reg = (ElasticNet(0.1, 0.3, weights=[1, 2]) + Box(-1, [2, 3])).bind(2, True)
    np.testing.assert_allclose(reg.l1, [0.03, 0.06, 0.0])
    np.testing.assert_allclose(reg.l2, [0.07, 0.14, 0.0])
    np.testing.assert_array_equal(reg.lower, [-1.0, -1.0, -INF])
    np.testing.assert_array_equal(reg.upper, [2.0, 3.0, INF])
    for array in reg:
        assert array.dtype == np.float64
        assert not array.flags.writeable
    with pytest.raises(ValueError, match="has weights or bounds for 2 features, but X has 5 features"):
        L1(1.0, weights=[1, 2]).bind(5, False)


def test_sums_add_penalties_and_intersect_bounds():
    reg = (L1(0.1, weights=[1, 2]) + L2(0.5) + L1(0.3, weights=[2, 0]) + Box(-1, 2) + NonNegative()).bind(2, False)
    np.testing.assert_allclose(reg.l1, [0.1 + 0.6, 0.2])
    np.testing.assert_allclose(reg.l2, [0.5, 0.5])
    np.testing.assert_array_equal(reg.lower, [0.0, 0.0])
    np.testing.assert_array_equal(reg.upper, [2.0, 2.0])
    with pytest.raises(ValueError, match=r"is for 2 features, .* for 3: they cannot be added"):
        L1(0.1, weights=[1, 2]) + Box([-1, -1, -1], 1)
    with pytest.raises(TypeError):
        L1(0.1) + 1.0


def test_alpha_l1_ratio_and_scaled():
    regularizer = ElasticNet(0.4, 0.25, weights=[1, 2]) + NonNegative()
    assert (regularizer.alpha, regularizer.l1_ratio) == pytest.approx((0.4, 0.25))
    assert (NoPenalty().alpha, NoPenalty().l1_ratio) == (0.0, 0.0)
    scaled = regularizer.scaled(3.0)
    before, after = regularizer.bind(2, False), scaled.bind(2, False)
    np.testing.assert_allclose(after.l1, 3.0 * before.l1)
    np.testing.assert_allclose(after.l2, 3.0 * before.l2)
    np.testing.assert_array_equal(after.lower, before.lower)
    with pytest.raises(ValueError, match="factor must be a finite number >= 0, but is -1"):
        regularizer.scaled(-1)


def test_repr():
    assert repr(NoPenalty()) == "NoPenalty()"
    assert repr(L1(0.1)) == "L1(0.1)"
    assert repr(L2(2)) == "L2(2)"
    assert repr(ElasticNet(0.3, 0.7)) == "ElasticNet(0.3, l1_ratio=0.7)"
    assert repr(L1(0.1) + NonNegative()) == "L1(0.1) + NonNegative()"
    assert repr(Box(-1, [1, 2])) == "Box(-1, <2 values>)"
    assert repr(L1(0.1, weights=[1, 2]) + L2(0.2)) == "L1(0.1, weights=<2 values>) + L2(0.2)"


def test_a_regularizer_is_frozen_and_keeps_its_own_arrays():
    weights, upper = np.ones(2), np.ones(2)
    regularizer = L1(1.0, weights=weights) + Box(0, upper)
    weights[0] = upper[0] = 7.0
    reg = regularizer.bind(2, False)
    assert reg.l1[0] == reg.upper[0] == 1.0
    with pytest.raises(AttributeError):
        regularizer.l1 = 2.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: L1(-0.1), r"alpha must be a finite number >= 0, but is -0.1"),
        (lambda: L2(math.nan), "alpha must be a finite number >= 0, but is nan"),
        (lambda: L1(INF), "alpha must be a finite number"),
        (lambda: L1([1.0, 2.0]), "alpha must be a finite number"),
        (lambda: L1("0.1"), "alpha must be a finite number"),
        (lambda: ElasticNet(1.0, 1.5), "l1_ratio must lie between 0 and 1, but is 1.5"),
        (lambda: ElasticNet(1.0, math.nan), "l1_ratio must lie between 0 and 1"),
        (lambda: L1(1.0, weights=[1.0, -2.0]), r"weights\[1\] is -2.0; weights must be finite and >= 0"),
        (lambda: L2(1.0, weights=[math.nan]), r"weights\[0\] is nan"),
        (lambda: L2(1.0, weights=[[1.0]]), r"weights must be of shape \(n_features,\), but have shape \(1, 1\)"),
        (lambda: Box(1, 2), "lower is 1.0; lower must be <= 0, because solvers start at x = 0"),
        (lambda: Box(-1, [1, -2]), r"upper\[1\] is -2.0; upper must be >= 0"),
        (lambda: Box(-1, math.nan), "upper is nan"),
        (lambda: Box([[0]], 1), "lower must be a number or of shape"),
        (lambda: Box([0, 0], [1, 1, 1]), "one number of features, but are: lower for 2, upper for 3"),
    ],
)
def test_errors_name_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_arrays_that_stay_the_same_are_shared(fit_intercept):
    """By a problem with another regularizer; whatever that is, it is as if it were the first."""
    w = np.arange(1.0, 4.0)
    kinds = [L1(1.0), L1(2.0), L1(1.0, w), L1(2.0, w), L1(1.0, w[::-1]), L2(1.0, w), ElasticNet(1.0, 0.5, w)]
    kinds += [NonNegative(), L1(1.0) + NonNegative(), L1(1.0) + Box(-w, w), Box(-1.0, w), NoPenalty()]
    problem = ss.Problem(np.eye(3), np.arange(3.0), fit_intercept=fit_intercept)
    for one, other in itertools.product(kinds, kinds):
        rebound = problem.with_regularizer(one).with_regularizer(other).penalty
        for array, alone in zip(rebound, other.bind(3, fit_intercept), strict=True):
            np.testing.assert_array_equal(array, alone)
            assert not array.flags.writeable
    before = problem.with_regularizer(L1(1.0, w) + Box(-1.0, w))
    after = before.with_regularizer(before.regularizer.scaled(2.0))
    assert [a is b for a, b in zip(before.penalty, after.penalty, strict=True)] == [False, True, True, True]
