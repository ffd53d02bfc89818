"""Quadratic models from a sample of the rows, and what they learn from the steps that were taken by them."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep.solvers import _local, _sampled
from surestep.solvers._copies import DenseCopy
from surestep.solvers._local import LocalSamples
from surestep.solvers._look import loss_terms
from surestep.solvers._sampled import SampledGram, restricted


def tall(loss="logistic", regularizer=None, layout="dense", n=4000, d=12, seed=0, fit_intercept=False, **more):
    """Make a problem with many more rows than columns; some of these are rare."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    if layout != "dense":
        X *= rng.random((n, d)) < np.geomspace(0.5, 0.01, d)
    y = X @ rng.standard_normal(d) + rng.standard_normal(n) + 1.0
    if loss in ("squared_hinge", "logistic"):
        y = np.where(y > 0.0, 1.0, -1.0)
    X = {"dense": np.asfortranarray, "rows": scipy.sparse.csr_array, "columns": scipy.sparse.csc_array}[layout](X)
    return ss.Problem(X, y, loss, regularizer or ss.L1(0.01), fit_intercept=fit_intercept, **more)


def whole(problem):
    """X with a column of ones, if there is an intercept, as an array."""
    X = np.column_stack([problem.design.times(e) for e in np.eye(problem.n_features)])
    return np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_after_an_update_the_matrix_maps_the_step_to_the_change_of_the_gradient_and_is_positive(seed, n_updates):
    rng = np.random.default_rng(seed)
    problem = tall(n=1000, d=6, seed=seed)
    sampled, members = SampledGram(problem), np.arange(6)
    sampled.of(members, rng.random(1000))
    hessian = np.cov(rng.standard_normal((6, 20)))
    for _ in range(n_updates):
        step = rng.standard_normal(6) * 10.0 ** rng.uniform(-6, 3)
        sampled.learn(step, hessian @ step)
        np.testing.assert_allclose(sampled._matrix @ step, hessian @ step, atol=1e-9 * np.abs(hessian @ step).max())
    assert np.array_equal(sampled._matrix, sampled._matrix.T)
    assert np.linalg.eigvalsh(sampled._matrix)[0] > 0.0


def test_a_step_that_shows_nothing_teaches_nothing():
    sampled = SampledGram(tall())
    matrix = sampled.of(np.arange(12), np.full(4000, 1.0)).copy()
    sampled.learn(np.zeros(12), np.zeros(12))
    sampled.learn(np.ones(12), -np.ones(12))  # no convex function has that
    sampled.learn(np.ones(5), np.ones(5))  # a step on another W
    assert np.array_equal(sampled._matrix, matrix)


@pytest.mark.parametrize("layout", ["dense", "rows", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_columns_on_some_rows(layout, fit_intercept):
    problem, rows = tall(layout=layout, n=300, d=7, fit_intercept=fit_intercept), np.array([0, 3, 4, 17, 250, 299])
    A = whole(problem)
    members = np.arange(A.shape[1])[::-1]
    if layout == "dense":
        inner = problem.columns.lines if fit_intercept else problem.columns
        copy = DenseCopy(inner, rows)
        copy.of(members[:3])
        found = copy.of(members)
        assert copy.fits
    else:
        found = restricted(problem.columns, members, rows)
    A = A.astype(found.values.dtype)
    np.testing.assert_allclose(_columns(found, rows.size), A[np.ix_(rows, members)])
    np.testing.assert_allclose(_columns(problem.design.columns_on(rows), rows.size), A[rows][:, :7])


def _columns(lines, n):
    if hasattr(lines, "starts"):
        return scipy.sparse.csc_array(
            (lines.values, lines.indices.astype(int), lines.starts.astype(int)), shape=(n, lines.starts.size - 1)
        ).toarray()
    return lines.values.T


@pytest.mark.parametrize("layout", ["dense", "rows", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_sample_of_all_rows_is_the_gram_matrix(layout, fit_intercept, monkeypatch):
    problem = tall(layout=layout, n=480, d=6, fit_intercept=fit_intercept)
    A, d = whole(problem), np.random.default_rng(1).random(480)
    monkeypatch.setattr(_sampled, "_PER_MEMBER", 480 // A.shape[1])
    monkeypatch.setattr(_sampled, "_TOGETHER", 480)
    found, expected = SampledGram(problem).of(np.arange(A.shape[1]), d), A.T @ (d[:, None] * A)
    single = 2e-5 * np.max(np.abs(expected))  # which dense columns are in
    np.testing.assert_allclose(found, expected, atol=single if layout == "dense" else 1e-10)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_matrix_of_a_sample_grows_with_the_working_set(loss):
    """On the same rows, while these are enough; what it was does not matter."""
    problem, d, rng = tall(loss, d=40), np.full(4000, 0.2), np.random.default_rng(1)
    members = rng.permutation(40)
    grown = SampledGram(problem)
    for n in (30, 32, 40):
        n_rows = grown._rows.size
        found = grown.of(members[:n], d)
        assert (grown._rows.size == n_rows) == (n == 32)
        A = whole(problem)[grown._rows][:, members[:n]]
        expected = A.T @ A * (d[0] * 4000 / grown._rows.size)
        np.testing.assert_allclose(found, expected, atol=2e-5 * np.max(expected))
        d = d * rng.uniform(1.0, 3.0) if loss == "logistic" else d


def test_the_diagonal_of_sparse_columns_is_that_of_all_rows():
    problem, d = tall(layout="columns"), np.random.default_rng(1).random(4000)
    A, members = whole(problem), np.array([11, 0, 7, 3])
    sampled = SampledGram(problem)
    found = sampled.of(members, d)
    assert sampled._rows.size < 200
    np.testing.assert_allclose(np.diagonal(found), d @ A[:, members] ** 2)
    assert np.linalg.eigvalsh(found)[0] > 0.0


def test_the_matrix_is_kept_while_curvatures_change_little_and_made_of_more_rows_when_it_learns_in_vain():
    problem, members = tall(), np.arange(12)
    sampled, d, rng = SampledGram(problem), np.full(4000, 0.2), np.random.default_rng(0)
    first = sampled.of(members, d)
    assert sampled.of(members, 1.05 * d) is first
    assert sampled.of(members, 2.0 * d) is not first
    n_rows = sampled._rows.size
    for _ in range(_sampled._UPDATES):
        step = rng.standard_normal(12)
        sampled.learn(step, step)
    sampled.of(members, 2.0 * d)
    assert sampled._rows.size >= 2 * n_rows - _sampled._TOGETHER
    assert sampled._n_updates == 0


REGULARIZERS = {"l1": ss.L1(0.01), "elastic_net": ss.ElasticNet(0.01, l1_ratio=0.5), "l2": ss.L2(0.001), "none": None}


@pytest.mark.parametrize("layout", ["dense", "rows", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", REGULARIZERS)
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
def test_minimisers_by_a_sample_are_those_without(loss, name, fit_intercept, layout, monkeypatch):
    problem = tall(loss, REGULARIZERS[name], layout, fit_intercept=fit_intercept)
    monkeypatch.setattr(_local, "_STEPS", 0.0)  # for the squared loss, too
    monkeypatch.setattr(_local, "dual_prices", lambda design, curved: (np.inf, 0.0))
    with mock.patch.object(SampledGram, "learn", autospec=True, side_effect=SampledGram.learn) as learn:
        found = ss.minimize(problem, tol=1e-10)
    assert learn.called
    monkeypatch.setattr(SampledGram, "serves", lambda self, n_members: False)
    expected = ss.minimize(problem, tol=1e-10)
    assert found.status.success
    assert expected.status.success
    assert found.n_epochs < 40
    assert abs(found.objective - expected.objective) <= 1e-9 * problem.objective_at_zero
    np.testing.assert_allclose(found.coef, expected.coef, atol=2e-4)
    assert problem.duality_gap(np.append(found.coef, found.intercept) if fit_intercept else found.coef).gap == (
        pytest.approx(found.gap, rel=0.1, abs=1e-12 * problem.objective_at_zero)
    )


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("regularizer", [ss.L1(0.01), ss.L2(0.01)])
def test_rows_that_a_sample_misses_and_that_count_most(loss, regularizer, monkeypatch):
    problem = tall(loss, regularizer)
    monkeypatch.setattr(_local, "_STEPS", 0.0)
    X = problem.design.columns.values.T.copy()
    X[[7, 1234]] *= 300.0
    problem = ss.Problem(X, problem.y, loss, regularizer)
    result = ss.minimize(problem, tol=1e-8)
    assert result.status.success


@pytest.mark.parametrize("uneven", [False, True])
def test_weights_that_a_sample_must_not_miss(uneven):
    weights = np.ones(4000)
    weights[17] = 500.0 if uneven else 5.0
    problem = tall(sample_weight=weights)
    with mock.patch.object(SampledGram, "of", autospec=True, side_effect=SampledGram.of) as of:
        assert ss.minimize(problem, tol=1e-8).status.success
    assert of.called != uneven


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
def test_the_gap_of_the_losses_is_nothing_at_their_own_slopes(loss):
    problem = tall(loss, n=200)
    samples, x = LocalSamples(problem), np.random.default_rng(3).standard_normal(12)
    samples.restart(x)
    samples.residuals()
    mean, gap = samples.loss_terms(1.0)
    expected = loss_terms(problem.loss, samples._z, samples._u, problem.y, problem.weights, 1.0)
    assert (mean, gap) == (pytest.approx(expected[0]), 0.0)
    assert expected[1] == pytest.approx(0.0, abs=1e-12)
    samples.go(0.0)  # z may have moved
    assert samples.loss_terms(1.0) == pytest.approx(expected, abs=1e-12)
