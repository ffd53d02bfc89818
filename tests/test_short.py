"""Dense columns that are few entries long: a solve on all that promise anything, in one call."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep.solvers import _local, _short
from surestep.solvers._local import LocalSamples

LOSSES = "squared", "huber", "logistic", "squared_hinge"
SHAPES = ss.L1(1.0), ss.ElasticNet(1.0, 0.7), ss.L1(1.0) + ss.NonNegative(), ss.L1(1.0) + ss.Box(-0.02, 0.01)


def short(seed, loss="squared", shape=SHAPES[0], fraction=0.1, n=15, d=400, **more):
    """Make a problem with few samples, in columns that depend on each other and are not centred."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + rng.standard_normal(d)
    y = X[:, :4] @ rng.standard_normal(4) + rng.standard_normal(n)
    y = y if loss in ("squared", "huber") else np.where(y > np.median(y), 1.0, -1.0)
    problem = ss.Problem(X, y, loss, ss.L1(1.0), **more)
    return problem.with_regularizer(shape.scaled(fraction * problem.alpha_max()))


def minimised(problem, members, x, enough=0.0, near=0.0):
    """Return x with what `minimise_on` made of some of its coordinates."""
    samples, after = LocalSamples(problem), x.copy()
    samples.restart(x)
    z = samples._z.copy()
    found = samples.minimise_on(problem.penalty.at(members), members, x[members], 1e-10, 1.0, enough, near)
    after[members] = found[0]
    assert np.array_equal(samples._z, z)  # it is moved by who asked
    return after


def gain(problem, x, members):
    """Largest L_j d_j^2 of the steps d_j on some coordinates."""
    reg, L = problem.penalty, problem.smoothness + problem.penalty.l2
    to = x - (problem.gradient(x) + reg.l2 * x) / L
    to = np.clip(np.sign(to) * np.maximum(np.abs(to) - reg.l1 / L, 0.0), reg.lower, reg.upper)
    return np.max((L * (to - x) ** 2)[members])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(LOSSES),
    st.sampled_from(SHAPES),
    st.sampled_from([0.5, 0.1, 0.01]),
    st.booleans(),
    st.booleans(),
)
def test_it_ends_where_f_is_lowest_on_the_working_set(seed, loss, shape, fraction, fit_intercept, is_warm):
    """Of which the pool is a part; from zero or elsewhere, with weights of zero."""
    rng = np.random.default_rng(seed)
    weights = np.append([1.0, 1.0], rng.random(13) * (rng.random(13) < 0.8))
    problem = short(seed, loss, shape, fraction, sample_weight=weights, fit_intercept=fit_intercept)
    members = rng.permutation(400)[:350]
    members = np.append(members, 400) if fit_intercept else members
    x = np.zeros(problem.n_coordinates)
    if is_warm:
        x[members[:20]] = np.clip(0.1 * rng.standard_normal(20), problem.penalty.lower[0], problem.penalty.upper[0])
    tiny = 1e-18 * problem.objective_at_zero
    after = minimised(problem, members, x, enough=tiny)
    others = np.setdiff1d(np.arange(problem.n_coordinates), members)
    assert np.array_equal(after[others], x[others])
    assert gain(problem, after, members) <= 2.0 * tiny


def test_it_ends_when_the_gap_on_the_working_set_is_near():
    problem = short(3, fraction=0.01)
    everything, x = np.arange(400), np.zeros(400)
    near = 1e-3 * problem.objective_at_zero
    rough, fine = (minimised(problem, everything, x, 1e-30, gap) for gap in (near, 0.0))
    assert problem.duality_gap(fine).gap < 1e-9 * near < 1e-3 * problem.duality_gap(rough).gap
    assert problem.duality_gap(rough).gap <= near


@given(st.integers(0, 10_000), st.integers(0, 200), st.sampled_from([0.0, 1.0, math.inf]))
def test_those_that_promise_most_are_few(seed, n_nonzero, floor):
    rng = np.random.default_rng(seed)
    x, gains = np.zeros(500), rng.random(500) ** rng.integers(1, 20)
    x[rng.permutation(500)[:n_nonzero]] = 1.0
    gains[rng.permutation(500)[:5]] = math.inf if floor == math.inf else 1.0
    places = _short._promising(x, gains, floor or 1e-3)
    assert np.all(np.diff(places) > 0)
    others = np.setdiff1d(places, np.flatnonzero(x))
    assert places.size == n_nonzero + others.size <= n_nonzero + max(32, n_nonzero)
    left_out = np.setdiff1d(np.arange(500), places)
    assert np.max(gains[left_out], initial=0.0) <= np.min(gains[others], initial=math.inf)


@given(st.integers(0, 10_000), st.sampled_from([0, 10, 200]), st.sampled_from([0.0, 1e-9, 0.3]))
def test_of_many_that_promise_nearly_the_same_some_are_taken(seed, n_nonzero, spread):
    rng = np.random.default_rng(seed)
    x, gains = np.zeros(500), 1.0 - spread * rng.random(500)
    x[rng.permutation(500)[:n_nonzero]] = 1.0
    places = _short._promising(x, gains, 0.075)
    assert np.all(np.diff(places) > 0)
    assert set(np.flatnonzero(x)) <= set(places)
    assert 1 <= places.size - n_nonzero <= max(32, n_nonzero)


@pytest.mark.parametrize("spread", [0.0, 0.05])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_short_columns_that_are_all_nearly_alike(fit_intercept, loss, spread):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 1)) + spread * rng.standard_normal((20, 100))
    y = X[:, 0] + 0.1 * rng.standard_normal(20)
    y = y if loss in ("squared", "huber") else np.where(y > 0.0, 1.0, -1.0)
    result = ss.minimize(ss.Problem(X, y, loss, ss.L1(1e-3), fit_intercept=fit_intercept))
    assert result.status is ss.Status.CONVERGED


@pytest.mark.parametrize("loss", LOSSES)
def test_short_columns_that_bounds_make_gain_alike(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1_200))
    y = X @ (rng.standard_normal(1_200) * (rng.random(1_200) < 0.02))
    y = y if loss in ("squared", "huber") else np.sign(y)
    problem = ss.Problem(X, y, loss, ss.Box(-0.1, 0.2))
    result = ss.minimize(problem, tol=1e-9)
    assert result.status is ss.Status.CONVERGED
    again = ss.minimize(problem, tol=1e-14, warm_start=result, max_rounds=20)
    assert again.objective <= result.objective


@pytest.mark.parametrize("n_nonzero", [0, 10, 300])
def test_a_pool_has_those_that_move_or_come_nearest_to_it(n_nonzero):
    rng, problem = np.random.default_rng(0), short(0, d=4000)
    x, g = np.zeros(4000), problem.penalty.l1 * rng.uniform(-1.0, 1.0, 4000)
    x[rng.permutation(4000)[:n_nonzero]] = 1.0
    curvature = problem.smoothness * rng.uniform(0.5, 2.0, 4000)
    g[::1000] *= 30.0
    places = _short._nearest(problem.penalty, curvature, x, g)
    slack = (problem.penalty.l1 - np.abs(g)) / np.sqrt(curvature)
    others = np.setdiff1d(places, np.flatnonzero(x))
    left_out = np.setdiff1d(np.arange(4000), places)
    assert places.size == n_nonzero + others.size
    assert np.max(slack[others]) < np.min(slack[left_out])
    expected = max(256, 4 * n_nonzero) - n_nonzero
    assert 0.6 * expected < others.size < 1.5 * expected
    assert {0, 1000, 2000, 3000} <= set(places)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_short_columns_do_not_change_the_answer(loss, fit_intercept, monkeypatch):
    problem = short(7, loss, fraction=0.02, fit_intercept=fit_intercept)
    at_once = ss.minimize(problem, tol=1e-10)
    monkeypatch.setattr(_local, "_SHORT", 0)
    monkeypatch.setattr(_local, "_SHORT_CURVED", 0)
    otherwise = ss.minimize(problem, tol=1e-10)
    assert at_once.status.success
    assert at_once.n_steps > 0
    assert at_once.objective == pytest.approx(otherwise.objective, abs=2e-10 * problem.objective_at_zero)
    assert problem.duality_gap(np.append(at_once.coef, [at_once.intercept] * fit_intercept)).gap <= (
        2e-10 * problem.objective_at_zero
    )


KINDS = {
    "nearly alike": lambda rng, n, d: rng.standard_normal((n, 1)) + 0.01 * rng.standard_normal((n, d)),
    "sums": lambda rng, n, d: np.cumsum(rng.standard_normal((n, d)), axis=1),
    "zeros and ones": lambda rng, n, d: (rng.standard_normal((n, d)) > 0.5).astype(float),
    "copies": lambda rng, n, d: rng.standard_normal((n, d))[:, rng.integers(0, d // 5, d)],
}


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(LOSSES),
    st.sampled_from(SHAPES),
    st.floats(-4.0, -0.1),
    st.booleans(),
)
def test_short_columns_of_any_kind_are_fitted(seed, kind, loss, shape, decades, fit_intercept):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 100))
    X = KINDS[kind](rng, n, int(rng.integers(2 * n, 6 * n)))
    y = X @ (rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < 0.1)) + 0.1 * rng.standard_normal(n)
    y = y if loss in ("squared", "huber") else np.where(np.argsort(np.argsort(y)) < n // 2, 1.0, -1.0)
    problem = ss.Problem(X, y, loss, ss.L1(1.0), fit_intercept=fit_intercept)
    problem = problem.with_regularizer(shape.scaled(problem.alpha_max() * 10.0**decades))
    assert ss.minimize(problem, tol=1e-6, max_rounds=100).status is ss.Status.CONVERGED


def test_which_columns_are_short():
    def are_short(*shape, loss="squared", sparse=False):
        X = np.random.default_rng(0).standard_normal(shape)
        y = np.where(np.arange(shape[0]) % 2, 1.0, -1.0)
        return LocalSamples(ss.Problem(scipy.sparse.csc_array(X) if sparse else X, y, loss)).are_short()

    assert are_short(50, 100)
    assert not are_short(50, 99)
    assert not are_short(50, 100, sparse=True)
    assert not are_short(120, 300)
    assert are_short(120, 300, loss="logistic")
    assert not are_short(50, 20_001)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("size", [1e-130, 1e-10, 1e10, 1e130])
def test_short_columns_of_any_size(loss, size):
    problem = short(1, loss)
    X = size * problem.design.columns.values.T
    scaled = ss.Problem(X, problem.y, loss, ss.L1(size * problem.regularizer.alpha))
    result, plain = ss.minimize(scaled, tol=1e-9), ss.minimize(problem, tol=1e-9)
    assert result.status.success
    assert result.objective == pytest.approx(plain.objective, abs=1e-9 * problem.objective_at_zero)


@pytest.mark.parametrize("loss", LOSSES)
def test_short_columns_far_from_zero_are_as_if_centred(loss):
    """With an intercept: their means, a million times their deviations, are taken off before anything is multiplied."""
    problem = short(5, loss, fraction=0.02, fit_intercept=True)
    X, steps = problem.design.columns.values.T, []
    for far in (0.0, 1e3, 1e6):
        moved = ss.Problem(X + far, problem.y, loss, problem.regularizer, fit_intercept=True)
        result = ss.minimize(moved, tol=1e-7)
        assert result.status is ss.Status.CONVERGED
        steps.append(result.n_steps)
        assert result.objective == pytest.approx(ss.minimize(problem, tol=1e-9).objective, rel=1e-6)
    assert max(steps) < 3 * steps[0]
