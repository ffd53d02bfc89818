"""Problems without kinks: Newton's method, its ways, and when one gives way to another."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse

import surestep as ss
from surestep.solvers import _smooth
from surestep.solvers._everywhere import Everywhere
from surestep.solvers._local import LocalSamples
from zoo import design


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("way", ["features", "samples", "conjugate gradients"])
def test_newton_steps_solve_their_equations(loss, fit_intercept, way, monkeypatch):
    n, d = (12, 30) if way == "samples" else (30, 12)
    A, problem = design(5, n, d, True, fit_intercept)
    rng = np.random.default_rng(0)
    y, weights = np.where(np.arange(n) % 3, 1, -1), rng.random(n)
    problem = ss.Problem(A[:, :d], y, loss, ss.L2(0.1), sample_weight=weights, fit_intercept=fit_intercept)
    if way == "conjugate gradients":
        monkeypatch.setattr(_smooth, "_MOST_DIRECT", 0)
    samples = LocalSamples(problem)
    newton = _smooth.Newton(problem, samples, from_zero=False)
    assert newton.way == way
    for _ in range(2):
        c = rng.standard_normal(problem.n_coordinates)
        if loss != "squared":  # whose curvatures stay as they are
            samples._weights[:] = rng.random(n) / n
        hessian = A.T @ (samples._weights[:, None] * A) + np.diag(problem.penalty.l2)
        step = newton.step(c, lambda: 1e-12)
        np.testing.assert_allclose(hessian @ step, -c, atol=1e-8)
    result = ss.minimize(problem, tol=1e-10)
    assert result.status.success
    assert result.n_epochs < 15


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_minimisers_over_samples_and_over_features_are_the_same(loss, fit_intercept, sparse, monkeypatch):
    A, _ = design(7, 15, 40, False, False)
    X, y = scipy.sparse.csr_array(A) if sparse else A, np.where(np.arange(15) % 3, 1.0, -1.0)
    regularizer = ss.L2(0.03, weights=1.0 + np.arange(40) % 4)
    problem = ss.Problem(X, y, loss, regularizer, fit_intercept=fit_intercept)
    over_samples = ss.minimize(problem, tol=1e-12)
    assert over_samples.n_epochs <= 2
    far = ss.minimize(problem, tol=1e-12, warm_start=np.full(problem.n_coordinates, 5.0))
    monkeypatch.setattr(_smooth, "_MOST_DIRECT", 0)
    by_conjugate_gradients = ss.minimize(problem, tol=1e-12)
    assert by_conjugate_gradients.n_epochs > 2 or loss == "squared"
    for result in (over_samples, far, by_conjugate_gradients):
        assert result.status is ss.Status.CONVERGED
        np.testing.assert_allclose(result.coef, over_samples.coef, atol=1e-5)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)], ids=["features", "samples"])
def test_conjugate_gradients_are_left_when_they_have_taken_the_time_of_a_matrix(shape, monkeypatch):
    rng = np.random.default_rng(0)
    problem = ss.Problem(rng.standard_normal(shape), rng.standard_normal(shape[0]), regularizer=ss.L2(1e-4))
    monkeypatch.setattr(LocalSamples, "prices", lambda *_: (1.0, 30.0))
    samples = LocalSamples(problem)
    newton = _smooth.Newton(problem, samples, from_zero=False)
    c = rng.standard_normal(shape[1])
    assert newton.way == "conjugate gradients"
    for _ in range(30):
        newton.step(c, lambda: 0.1)
    assert newton.way == ("features" if shape[0] > shape[1] else "samples")
    assert newton.n_products == 30
    assert ss.minimize(problem, tol=1e-10).status is ss.Status.CONVERGED


@pytest.mark.parametrize("by", ["rows", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_products_with_the_hessian_are_the_same_by_rows_and_by_columns(sparse, fit_intercept, by):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 12)) * (rng.random((30, 12)) < 0.5)
    if sparse:
        X = scipy.sparse.csr_array(A) if by == "rows" else scipy.sparse.csc_array(A)
    else:
        X = np.ascontiguousarray(A) if by == "rows" else np.asfortranarray(A)
    problem = ss.Problem(X, rng.choice([-1.0, 1.0], 30), "logistic", ss.L2(0.1), fit_intercept=fit_intercept)
    assert problem.design.has_rows == (by == "rows")
    samples, v = LocalSamples(problem), rng.standard_normal(problem.n_coordinates)
    samples.bend(1e-6)
    A = np.hstack([A, np.ones((30, 1))]) if fit_intercept else A
    np.testing.assert_allclose(samples.curved(v), A.T @ (samples._weights * (A @ v)), rtol=1e-12)


def test_conjugate_gradients_go_on_where_the_end_is_near(monkeypatch):
    """After the time of a matrix, if the rest should take much less; but not for ever."""
    monkeypatch.setattr(LocalSamples, "prices", lambda *_: (1.0, 30.0))
    _, problem = design(0, 40, 10, sparse=False, intercept=False)
    problem = problem.with_regularizer(ss.L2(0.1))
    newton = _smooth.Newton(problem, LocalSamples(problem), from_zero=False)
    newton._rent = 30.0
    assert newton.way == "features"
    newton.n_expected = 5.0
    assert newton.way == "conjugate gradients"
    newton.n_expected = 20.0
    assert newton.way == "features"
    newton.n_expected, newton._rent = 5.0, 61.0
    assert newton.way == "features"


def test_what_is_expected_follows_from_the_pace():
    A, _ = design(0, 40, 10, sparse=False, intercept=False)
    problem = ss.Problem(A, np.where(np.arange(40) % 3, 1.0, -1.0), "logistic", ss.L2(0.1))
    method = Everywhere(problem, np.zeros(10), 1e-6, LocalSamples(problem))
    assert method._n_expected() == math.inf
    method._last, method._gap = (8, 1e-1), dataclasses.replace(method._gap, gap=1e-3)
    assert method._n_expected() == pytest.approx(12.0)  # 8 for two powers of ten, and three are left
    method._last = (8, 1e-4)
    assert method._n_expected() == math.inf


def test_separable_data_and_no_penalty():
    """The optimum is at infinity: the violation goes to zero all the same."""
    X = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    result = ss.minimize(ss.Problem(X, [1, 1, 0, 0], "logistic"), tol=1e-4)
    assert result.status is ss.Status.CONVERGED_WITHOUT_CERTIFICATE


def test_dependent_columns_and_no_penalty():
    X = np.random.default_rng(0).standard_normal((20, 3))
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    result = ss.minimize(ss.Problem(X, X[:, 2] + 0.1, fit_intercept=True), tol=1e-8)
    assert result.status.success
    assert result.objective < 1e-12
