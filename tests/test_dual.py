"""Dual coordinate descent, which goes before Newton's method where penalties are L2 alone."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep import losses
from surestep.solvers import _dual, _local, _smooth
from surestep.solvers._dual import Dual

LOSSES = {"squared": ss.Squared(), "squared_hinge": ss.SquaredHinge(), "logistic": ss.Logistic(), "huber": ss.Huber()}


def problem_of(loss, fit_intercept=False, n=120, d=60, l2=0.02, seed=0, sparse=True, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.1 if sparse else 1.0)
    y = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) + 1.0
    if loss in ("squared_hinge", "logistic"):
        y = np.where(y > 0.0, 1.0, -1.0)
    weights = rng.integers(0, 3, n).astype(float) if weighted else None
    X = scipy.sparse.csr_array(X) if sparse else X
    return ss.Problem(X, y, loss, ss.L2(l2), sample_weight=weights, fit_intercept=fit_intercept)


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.floats(-100.0, 100.0),
    st.floats(-100.0, 100.0),
    st.floats(-6.0, 9.0),
    st.booleans(),
    st.booleans(),
)
@example("logistic", -3.018673090272514, 50.0, 4.935656462713297, True, True)  # went to and fro
def test_the_margin_moves_to_the_root(name, z, before, exponent, positive, compiled):
    loss, y, c = LOSSES[name], 1.0 if positive else -1.0, 10.0**exponent
    kernel = _dual._root if compiled else getattr(_dual._root, "py_func", _dual._root)
    u, slope = losses.derivative(loss, before, y), losses.derivative(loss, z, y)
    t, after = kernel(loss, z, y, u, slope, c)
    assert after == losses.derivative(loss, t, y)
    rounding = 1e-15 * c * (abs(t) + abs(u) + 1.0)
    assert abs(t - z + c * (after - u)) <= 1.01 * _dual._ACCURACY * abs(t - z) + 1e-9 * max(1.0, abs(z)) + rounding


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_sweeps_find_the_minimiser(loss, fit_intercept):
    problem = problem_of(loss, fit_intercept, weighted=True)
    x, _, n_steps, gap = Dual(problem, 0.0).minimise(0.02, 1e-12, 1000)
    assert gap <= 1e-12
    assert 2.5 <= n_steps / problem.n_samples < 1000
    assert problem.duality_gap(x).gap <= 1e-8


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_x_follows_from_u_under_every_penalty(loss, fit_intercept):
    problem = problem_of(loss, fit_intercept)
    dual, rows = Dual(problem, 0.3), problem.design.rows
    A = scipy.sparse.csr_array((rows.values, rows.indices, rows.starts.astype(int)), shape=(120, 60))
    for l2 in (0.5, 0.02, 0.1):
        dual.minimise(l2, 0.0, 4)
        x, u, *_ = dual._state
        np.testing.assert_allclose(x[:60], -A.T @ (problem.weights * u) / l2, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(LOSSES)),
    st.integers(0, 2**32 - 1),
    st.floats(-6.0, 6.0),
    st.floats(-6.0, 2.0),
    st.integers(1, 60),
)
def test_what_rounding_hides_of_the_gap_stays_within_its_bound(loss, seed, size, strength, n_sweeps):
    problem, l2 = problem_of(loss, seed=seed, weighted=True, n=30, d=10, sparse=False), 10.0**strength
    X = problem.design.rows.values * 10.0**size
    y, weights = problem.y, problem.weights
    problem = ss.Problem(X, y, loss, ss.L2(l2), sample_weight=weights)
    dual = Dual(problem, 0.0)
    for strength in (10.0 * l2, l2):  # as on a path
        dual.minimise(strength, 0.0, n_sweeps)
        x, u, _, squares = (v.astype(np.longdouble) for v in dual._state)
        assert x @ x <= squares[1] * (1.0 + 1e-9)
        e = x + X.T.astype(np.longdouble) @ (problem.weights * u) / strength
        assert strength * (e @ e) / 2 <= dual.hidden


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("loss", LOSSES)
def test_fits_with_and_without_it_end_alike(loss, sparse, fit_intercept, monkeypatch):
    problem = problem_of(loss, fit_intercept, n=50, d=80, sparse=sparse, weighted=True)
    found = {}
    for n_sweeps in (0.0, 100.0, 3.0):  # none, as many as it takes, and too few: Newton's method goes on
        monkeypatch.setattr(_smooth.Newton, "_sweeps_that_may_pay", lambda *_, n=n_sweeps: n)
        found[n_sweeps] = result = ss.minimize(problem, tol=1e-10)
        assert result.status is ss.Status.CONVERGED, result.message
        gap = max(result.gap, found[0.0].gap)
        assert result.objective == pytest.approx(found[0.0].objective, abs=gap, rel=1e-14)
    if sparse:
        # Nothing but sweeps, and half of one.
        assert found[100.0].n_steps % problem.n_samples == problem.n_samples // 2


def test_it_is_tried_where_it_should_win_and_only_there(monkeypatch):
    tried = mock.Mock(wraps=Dual)
    monkeypatch.setattr(_local, "Dual", tried)
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((5000, 20_000), density=0.002, format="csr", rng=rng)
    y = np.where(X @ rng.standard_normal(20_000) > 0.0, 1.0, -1.0)
    problem = ss.Problem(X, y, "logistic", ss.L2(1e-4))
    ss.minimize(problem, tol=1e-4)
    assert tried.called
    assert "column_lengths" not in vars(problem.design)  # what a matrix costs at least is enough to see that
    tried.reset_mock()
    weights = rng.random(20_000)
    ss.minimize(ss.Problem(X, y, "logistic", ss.L2(1e-4, weights=weights)), tol=1e-4)  # not the same for all
    ss.minimize(ss.Problem(X, y, "logistic", ss.L2(1e-4)), tol=1e-4, warm_start=0.01 * weights)  # not from zero
    ss.minimize(problem_of("logistic", n=500, d=20, sparse=False))  # dense rows that outnumber the features
    assert not tried.called


def test_a_path_goes_on_from_its_samples(monkeypatch):
    monkeypatch.setattr(_smooth.Newton, "_sweeps_that_may_pay", lambda *_: 100.0)
    problem = problem_of("logistic", fit_intercept=True)
    path = ss.path(problem, alphas=[0.5, 0.1, 0.02], tol=1e-9)
    for alpha, result in zip(path.alphas, path.results, strict=True):
        alone = ss.minimize(problem.with_regularizer(ss.L2(alpha)), tol=1e-9)
        assert result.objective == pytest.approx(alone.objective, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_problems_given_by_rows_need_no_columns(loss):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((5000, 20_000), density=0.002, format="csr", rng=rng)
    y = np.where(X @ rng.standard_normal(20_000) > 0.0, 1.0, -1.0)
    for fit_intercept in (False, True):
        problem = ss.Problem(X, y, loss, ss.L2(1e-4), fit_intercept=fit_intercept)
        assert ss.minimize(problem, tol=1e-6).status.success
        assert not problem.design.has_columns
        assert "norms" not in vars(problem)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_of_a_dual_point_bounds_the_objective(loss, monkeypatch):
    monkeypatch.setattr(_smooth.Newton, "_sweeps_that_may_pay", lambda *_: 1000.0)
    problem = problem_of(loss, weighted=True)
    least = ss.minimize(problem, tol=1e-13)
    for tol in 10.0 ** -np.arange(1, 11):
        result = ss.minimize(problem, tol=tol)
        assert result.gap <= tol * problem.objective_at_zero
        assert result.objective - result.gap <= least.objective <= result.objective + 1e-14
        assert result.objective == pytest.approx(problem.objective(result.coef), rel=1e-13)
