"""Problem: objective, gradient, certificates, on the zoo, by hand, and against scikit-learn."""

import inspect
import math
import pickle
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import linear_model, svm

from surestep import losses
from surestep.losses import Huber, Logistic, Squared, SquaredHinge
from surestep.problem import Problem
from surestep.problem import certified as certificate
from surestep.regularizers import L1, L2, Box, ElasticNet, NonNegative, NoPenalty
from surestep.solvers.minimizer import minimize
from zoo import PseudoHuber, data, problems, reference_optimum, reference_solution

ZOO = dict(problems())
each_problem = pytest.mark.parametrize("name", ZOO)
each_loss = pytest.mark.parametrize("loss", [Squared(), Huber(0.7), Logistic(), SquaredHinge()], ids=str)


def random_points(problem, n_points=4, seed=0):
    """Points within the bounds: zero, and others of several sizes, in units of the columns."""
    rng = np.random.default_rng(seed)
    yield np.zeros(problem.n_coordinates)
    for size in np.logspace(-2, 1, n_points):
        x = size * rng.standard_normal(problem.n_coordinates) / np.maximum(problem.norms, 0.1)
        x[rng.random(x.size) < 0.3] = 0.0
        yield np.clip(x, problem.penalty.lower, problem.penalty.upper)


# --- The zoo


@each_problem
def test_the_zoo_has_reference_optima(name):
    problem = ZOO[name]
    x, best = reference_solution(problem), reference_optimum(problem)
    assert problem.objective(x) == pytest.approx(best, rel=1e-13)
    for other in random_points(problem):
        assert best <= problem.objective(other) * (1 + 1e-14)
    assert np.max(problem.optimality(x)) < 1e-12 * max(1.0, np.max(problem.norms))
    assert best > 1e-3  # so that relative gaps mean something


def test_the_zoo_has_one_of_everything():
    assert len(ZOO) >= 30
    problems_ = ZOO.values()
    assert {type(p.loss) for p in problems_} == {Squared, Huber, Logistic, SquaredHinge}
    assert {(type(p.loss), p.design.is_sparse) for p in problems_} == {
        (kind, sparse) for kind in (Squared, Huber, Logistic, SquaredHinge) for sparse in (False, True)
    }
    assert any(p.design.dtype == np.float32 for p in problems_)
    assert any(p.n_features == 1 for p in problems_)
    assert any(p.n_features > p.n_samples for p in problems_)
    assert any(np.any(p.weights == 0.0) for p in problems_)
    assert any(np.min(p.norms[p.norms > 0]) * 900 < np.max(p.norms) for p in problems_)
    for name, p in ZOO.items():
        if name.endswith("-sparse"):
            assert p.design.is_sparse
            assert np.any(p.norms == 0.0)


# --- Objective and gradient


@each_problem
def test_gradient_is_the_slope_of_the_objective(name):
    problem = ZOO[name]
    smooth = problem.with_regularizer(None)
    for x in random_points(problem):
        gradient = problem.gradient(x)
        for j in range(problem.n_coordinates):
            h = 1e-5 / max(problem.norms[j], 0.1)
            step = np.zeros_like(x)
            step[j] = h
            slope = (smooth.objective(x + step) - smooth.objective(x - step)) / (2 * h)
            scale = max(problem.norms[j], 1e-3)
            assert gradient[j] == pytest.approx(slope, rel=1e-5, abs=2e-5 * scale * (1.0 + abs(smooth.objective(x))))


@each_problem
def test_parts_fit_together(name):
    problem = ZOO[name]
    for x in random_points(problem):
        z = problem.predictor(x)
        assert problem.objective_at(x, z) == problem.objective(x)
        np.testing.assert_array_equal(problem.residual(z), problem.weights * problem.derivative(z))
        full = np.column_stack([problem.predictor(e) for e in np.eye(problem.n_coordinates)])
        np.testing.assert_allclose(z, full @ x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(problem.gradient(x), full.T @ problem.residual(z), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(problem.norms, np.sqrt(problem.weights @ full**2), rtol=1e-14)
        bound = losses.smoothness(problem.loss)
        np.testing.assert_allclose(problem.smoothness, bound * problem.norms**2, rtol=1e-14)


@each_problem
def test_smoothness_bounds_the_change_of_a_gradient_entry(name):
    problem = ZOO[name]
    rng = np.random.default_rng(3)
    for x in random_points(problem):
        for j in range(problem.n_coordinates):
            y = x.copy()
            y[j] += rng.standard_normal() / max(problem.norms[j], 0.1)
            change = abs(problem.gradient(y)[j] - problem.gradient(x)[j])
            assert change <= problem.smoothness[j] * abs(y[j] - x[j]) * (1 + 1e-9) + 1e-12 * problem.norms[j]


# --- Certificates


@each_problem
def test_gap_is_never_less_than_the_suboptimality(name):
    problem = ZOO[name]
    best = reference_optimum(problem)
    points = list(random_points(problem, n_points=8))
    points += [reference_solution(problem) * (1 + t) for t in (1e-1, 1e-3, 1e-6)]
    for x in points:
        x = np.clip(x, problem.penalty.lower, problem.penalty.upper)
        certificate = problem.duality_gap(x)
        assert certificate.objective == problem.objective(x)
        assert certificate.gap >= certificate.objective - best - 1e-13 * best
        assert certificate.dual_objective <= best * (1 + 1e-13)
        if problem.has_certificate:
            assert certificate.kind == "fenchel"
            assert math.isfinite(certificate.gap)
            assert certificate.dual_objective == certificate.objective - certificate.gap


@each_problem
def test_gap_closes_at_the_optimum(name):
    problem = ZOO[name]
    certificate = problem.duality_gap(reference_solution(problem))
    if problem.has_certificate:
        assert certificate.gap <= 1e-13 * certificate.objective
    else:
        assert "penalty" in problem.certificate_reason


def dual_value(problem, u):
    """The dual objective as in the docstring, summed in the plainest way."""
    full = np.column_stack([problem.predictor(e) for e in np.eye(problem.n_features)])
    v = -full.T @ (problem.weights * u)
    pairs = zip(problem.weights, u, problem.y, strict=True)
    total = -sum(s * losses.conjugate(problem.loss, a, y) for s, a, y in pairs if s > 0)
    l1, l2 = problem.penalty.l1, problem.penalty.l2
    for j in range(problem.n_features):
        scan = scipy.optimize.minimize_scalar(
            lambda x, j=j: l1[j] * abs(x) + l2[j] * x**2 / 2 - v[j] * x,
            bounds=(problem.penalty.lower[j], problem.penalty.upper[j]),
            options={"xatol": 1e-12},
        )
        total += min(scan.fun, 0.0)
    return total


@each_loss
def test_dual_objective_is_the_dual_at_a_feasible_point(loss):
    X, y = data(seed=5, loss=loss)
    problem = Problem(X, y, loss, L1(0.05) + Box(-2, 3))
    for x in random_points(problem):
        dual = dual_value(problem, problem.derivative(problem.predictor(x)))
        assert problem.duality_gap(x).dual_objective == pytest.approx(max(dual, 0.0), rel=1e-6, abs=1e-8)
        with patch.object(losses, "is_never_negative", lambda _: False):
            assert problem.duality_gap(x).dual_objective == pytest.approx(dual, rel=1e-6, abs=1e-8)


@settings(max_examples=40)
@given(
    st.sampled_from([Squared(), Huber(0.5), Logistic(), SquaredHinge()]),
    st.sampled_from([L1(0.1), L2(0.01), ElasticNet(0.1), Box(-1, 1), L1(0.1) + NonNegative()]),
    st.booleans(),
    st.floats(-3, 3),
    st.integers(0, 10**6),
)
def test_weak_duality_between_any_two_points(loss, regularizer, fit_intercept, log_size, seed):
    X, y = data(seed=7, loss=loss)
    problem = Problem(X, y, loss, regularizer, fit_intercept=fit_intercept)
    rng = np.random.default_rng(seed)
    values, duals = [], []
    for _ in range(2):
        x = 10.0**log_size * rng.standard_normal(problem.n_coordinates)
        certificate = problem.duality_gap(np.clip(x, problem.penalty.lower, problem.penalty.upper))
        values.append(certificate.objective)
        duals.append(certificate.dual_objective)
    assert max(duals) <= min(values) + 1e-12 * max(values)


@each_loss
def test_gap_with_intercept_survives_separable_classes_and_one_class_by_weight(loss):
    X = np.array([[1.0], [2.0], [-1.0], [-3.0]])
    y = [1.0, 1.0, -1.0, -1.0]
    for weights in (None, [1.0, 2.0, 0.0, 0.0]):
        problem = Problem(X, y, loss, L2(0.1), sample_weight=weights, fit_intercept=True)
        for x in ([0.0, 0.0], [0.3, 0.2], [1.0, -40.0], [0.0, 800.0], [0.0, -800.0]):
            certificate = problem.duality_gap(x)
            assert certificate.kind == "fenchel"
            assert 0.0 <= certificate.gap < math.inf
            assert certificate.dual_objective <= problem.objective([0.4, 0.0])


@each_loss
@given(st.lists(st.floats(-800, 800), min_size=6, max_size=6), st.floats(-800, 800))
def test_the_dual_point_does_not_depend_on_the_intercept_and_has_mean_zero(loss, z, shift):
    problem = Problem(np.eye(6), [-1, -1, 1, 1, 1, 1], loss, L2(0.1), [1, 2, 1, 3, 1, 1], fit_intercept=True)
    one, other = problem._balanced(np.array(z)), problem._balanced(np.array(z) + shift)
    for u in (one, other):
        assert abs(problem.weights @ u) <= 4e-16 * (problem.weights @ abs(u))
    x = np.append(z, 0.0)
    duals = [problem.duality_gap(x + np.append(np.zeros(6), b)).dual_objective for b in (0.0, shift)]
    assert duals[0] == pytest.approx(duals[1], rel=1e-9, abs=1e-9 * problem.objective(x))


def test_gap_keeps_its_digits_when_targets_are_far_from_zero():
    X, y = data(seed=8, loss=Squared())
    near = Problem(X, y, "squared", L1(0.05), fit_intercept=True)
    far = Problem(X, y + 1e4, "squared", L1(0.05), fit_intercept=True)
    x = reference_solution(near)
    shift = np.append(np.zeros(near.n_features), 1e4)
    assert far.duality_gap(x + shift).gap <= 1e-11 * near.objective(x)
    assert far.duality_gap(1.001 * x + shift).gap == pytest.approx(near.duality_gap(1.001 * x).gap, rel=1e-9)


def test_gap_is_infinite_with_a_reason_where_there_is_no_dual_point():
    X, y = data(seed=9, loss=Squared())
    free = Problem(X, y)
    certificate = free.duality_gap(np.zeros(free.n_features))
    assert certificate.gap == math.inf
    assert certificate.dual_objective == -math.inf
    assert certificate.kind.startswith("no finite dual point: feature 0 has neither a penalty nor a finite bound")
    assert not free.has_certificate
    assert "feature 0 has no penalty" in free.certificate_reason
    partly = Problem(X, y, regularizer=L1(0.1, weights=[1, 1, 0, 1, 1, 1, 1, 1]))
    assert not partly.has_certificate
    assert "feature 2" in partly.certificate_reason
    assert "feature 2" in partly.duality_gap(np.zeros(8)).kind


def test_gap_of_nonnegative_least_squares_needs_the_right_signs():
    X = np.eye(3)
    nnls = Problem(X, [-1.0, -2.0, -3.0], regularizer=NonNegative())
    assert not nnls.has_certificate
    assert nnls.duality_gap(np.zeros(3)).gap == 0.0
    assert Problem(X, [-1.0, 2.0, -3.0], regularizer=NonNegative()).duality_gap(np.zeros(3)).gap == math.inf


def test_empty_columns_do_not_spoil_the_certificate():
    X = np.array([[1.0, 0.0, 5.0], [2.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    problem = Problem(X, [1.0, 2.0, 3.0], regularizer=L1(0.1, weights=[1, 0, 0]), sample_weight=[0, 1, 1])
    np.testing.assert_array_equal(problem.norms[1:], 0.0)
    assert problem.has_certificate
    assert math.isfinite(problem.duality_gap([0.3, 0.0, 0.0]).gap)
    assert "every feature" in problem.certificate_reason


# --- Weights


@each_loss
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_weight_two_is_a_row_twice_and_weight_zero_a_row_removed(loss, fit_intercept):
    X, y = data(seed=11, loss=loss, sparse=True)
    weights = np.random.default_rng(0).integers(0, 3, y.size)
    rows = np.repeat(np.arange(y.size), weights)
    regularizer = ElasticNet(0.1)
    weighted = Problem(X, y, loss, regularizer, weights, fit_intercept)
    repeated = Problem(X.tocsr()[rows], y[rows], loss, regularizer, fit_intercept=fit_intercept)
    np.testing.assert_allclose(weighted.smoothness, repeated.smoothness, rtol=1e-13)
    assert weighted.alpha_max() == pytest.approx(repeated.alpha_max(), rel=1e-12)
    for x in random_points(weighted):
        assert weighted.objective(x) == pytest.approx(repeated.objective(x), rel=1e-13)
        np.testing.assert_allclose(weighted.gradient(x), repeated.gradient(x), rtol=1e-11, atol=1e-13)
        assert weighted.duality_gap(x).gap == pytest.approx(repeated.duality_gap(x).gap, rel=1e-9, abs=1e-13)


def test_a_row_of_weight_zero_may_hold_anything_finite():
    X, y = data(seed=12, loss=Squared())
    weights = np.ones(y.size)
    weights[3] = 0.0
    plain = Problem(X, y, regularizer=L1(0.1), sample_weight=weights, fit_intercept=True)
    X, y = X.copy(), y.copy()
    X[3], y[3] = 1e200, -1e300
    wild = Problem(X, y, regularizer=L1(0.1), sample_weight=weights, fit_intercept=True)
    x = np.linspace(-1, 1, plain.n_coordinates)
    np.testing.assert_array_equal(wild.norms, plain.norms)
    np.testing.assert_array_equal(wild.gradient(x), plain.gradient(x))
    assert wild.duality_gap(x) == plain.duality_gap(x)
    assert wild.alpha_max() == plain.alpha_max()


@given(st.floats(1e-300, 5e307))
def test_only_ratios_of_weights_matter(factor):
    X, y = data(seed=13, loss=Squared())
    weights = np.linspace(0.0, 3.0, y.size)
    one, other = Problem(X, y, sample_weight=weights), Problem(X, y, sample_weight=factor * weights)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-14)
    assert np.sum(one.weights) == pytest.approx(1.0, rel=1e-15)


# --- Layouts and precision


@each_loss
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_sparse_equals_dense_and_float32_is_near(loss, fit_intercept):
    X, y = data(seed=14, loss=loss, sparse=True)
    regularizer = L1(0.05)
    forms = {"dense": X.toarray(), "csr": X.tocsr(), "float32": X.astype(np.float32)}
    sparse = Problem(X, y, loss, regularizer, fit_intercept=fit_intercept)
    for name, form in forms.items():
        other = Problem(form, y, loss, regularizer, fit_intercept=fit_intercept)
        close = {"rtol": 1e-5, "atol": 1e-6} if name == "float32" else {"rtol": 1e-12, "atol": 1e-13}
        np.testing.assert_allclose(other.smoothness, sparse.smoothness, **close)
        for x in random_points(sparse):
            np.testing.assert_allclose(other.predictor(x), sparse.predictor(x), **close)
            np.testing.assert_allclose(other.gradient(x), sparse.gradient(x), **close)
            np.testing.assert_allclose(other.duality_gap(x).gap, sparse.duality_gap(x).gap, **close)


def test_an_intercept_is_a_column_of_ones_without_penalty():
    X, y = data(seed=15, loss=Logistic())
    implicit = Problem(X, y, "logistic", L2(0.1), fit_intercept=True)
    explicit = Problem(np.column_stack([X, np.ones(y.size)]), y, "logistic", L2(0.1, weights=[1] * 8 + [0]))
    assert implicit.n_coordinates == implicit.n_features + 1 == explicit.n_features
    for x in random_points(implicit):
        assert implicit.objective(x) == pytest.approx(explicit.objective(x), rel=1e-14)
        np.testing.assert_allclose(implicit.gradient(x), explicit.gradient(x), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(implicit.optimality(x), explicit.optimality(x), rtol=1e-12, atol=1e-14)


# --- scikit-learn: the same minimisers under the scalings the documentation states


def certified(problem, coef, intercept=None, tol=1e-6):
    x = np.ravel(coef) if intercept is None else np.append(np.ravel(coef), intercept)
    certificate = problem.duality_gap(x)
    assert certificate.gap <= tol * certificate.objective
    return certificate


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_lasso_and_elastic_net_of_scikit_learn(fit_intercept, weighted):
    X, y = data(seed=16, loss=Squared())
    weights = np.linspace(0.5, 2.0, y.size) if weighted else None
    options = {"fit_intercept": fit_intercept, "tol": 1e-12, "max_iter": 100_000}
    theirs = linear_model.Lasso(alpha=0.1, **options).fit(X, y, weights)
    ours = Problem(X, y, "squared", L1(0.1), weights, fit_intercept)
    certified(ours, theirs.coef_, theirs.intercept_ if fit_intercept else None, tol=1e-10)
    theirs = linear_model.ElasticNet(alpha=0.1, l1_ratio=0.3, **options).fit(X, y, weights)
    ours = Problem(X, y, "squared", ElasticNet(0.1, 0.3), weights, fit_intercept)
    certified(ours, theirs.coef_, theirs.intercept_ if fit_intercept else None, tol=1e-10)


def test_positive_lasso_of_scikit_learn():
    X, y = data(seed=17, loss=Squared())
    theirs = linear_model.Lasso(alpha=0.1, positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, y)
    assert np.any(theirs.coef_ == 0.0)
    certified(Problem(X, y, "squared", L1(0.1) + NonNegative()), theirs.coef_, tol=1e-10)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_logistic_regression_of_scikit_learn(fit_intercept):
    X, y = data(seed=18, loss=Logistic())
    theirs = linear_model.LogisticRegression(C=2.0, fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000).fit(X, y)
    ours = Problem(X, y, "logistic", L2(1.0 / (2.0 * y.size)), fit_intercept=fit_intercept)
    certified(ours, theirs.coef_, theirs.intercept_ if fit_intercept else None, tol=1e-8)


def test_linear_svc_of_scikit_learn():
    X, y = data(seed=19, loss=SquaredHinge())
    theirs = svm.LinearSVC(C=0.5, fit_intercept=False, tol=1e-10, max_iter=100_000, dual=False).fit(X, y)
    # scikit-learn: ||w||^2 / 2 + C sum_i max(0, 1 - y z)^2, twice our loss
    certified(Problem(X, y, "squared_hinge", L2(1.0 / (2 * 0.5 * y.size))), theirs.coef_, tol=1e-8)


# --- alpha_max


@each_loss
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "regularizer",
    [
        L1(0.3),
        ElasticNet(2.0, 0.4),
        L1(1.0, weights=np.linspace(0.5, 3.0, 8)),
        L1(1.0) + NonNegative(),
        L1(0.2) + L2(0.3),
    ],
    ids=repr,
)
def test_zero_is_optimal_from_alpha_max_on(loss, fit_intercept, regularizer):
    X, y = data(seed=20, loss=loss)
    problem = Problem(X, y, loss, regularizer, fit_intercept=fit_intercept)
    alpha = problem.alpha_max()
    for factor, optimal in ((1.0 + 1e-9, True), (1.0 - 1e-3, False)):
        at = problem.with_regularizer(regularizer.scaled(factor * alpha / regularizer.alpha))
        x = np.zeros(at.n_coordinates)
        if fit_intercept:
            only = scipy.optimize.minimize_scalar(lambda b, at=at, x=x: at.objective(np.append(x[:-1], b)), tol=1e-12)
            x[-1] = only.x
        violation = np.max(at.optimality(x)[: at.n_features])
        assert (violation < 1e-6) == optimal


def test_alpha_max_is_that_of_scikit_learn():
    X, y = data(seed=21, loss=Squared())
    problem = Problem(X, y, "squared", ElasticNet(1.0, 0.5), fit_intercept=True)
    alphas = linear_model.enet_path(X - X.mean(axis=0), y - y.mean(), l1_ratio=0.5, alphas=5)[0]
    assert problem.alpha_max() == pytest.approx(alphas[0], rel=1e-12)


def test_alpha_max_needs_an_l1_penalty_that_holds_everything():
    X, y = data(seed=22, loss=Squared())
    for regularizer in (None, L2(1.0), NonNegative(), L1(0.0)):
        with pytest.raises(ValueError, match="alpha_max needs a regularizer with an L1 part"):
            Problem(X, y, regularizer=regularizer).alpha_max()
    weights = np.ones(8)
    weights[5] = 0.0
    with pytest.raises(ValueError, match="alpha_max does not exist: feature 5 has no L1 penalty and its gradient"):
        Problem(X, y, regularizer=L1(1.0, weights=weights)).alpha_max()
    empty = X.copy()
    empty[:, 5] = 0.0
    for constant in np.linspace(0.1, 30.0, 20):  # with an intercept its gradient is 0, but for rounding
        X[:, 5] = constant
        problem = Problem(X, y, regularizer=L1(1.0, weights=weights), fit_intercept=True)
        without = Problem(empty, y, regularizer=L1(1.0), fit_intercept=True)
        assert problem.alpha_max() == without.alpha_max()


# --- The object


def test_with_regularizer_shares_what_does_not_change():
    X, y = data(seed=23, loss=Squared())
    problem = Problem(X, y, regularizer=L1(0.1))
    other = problem.with_regularizer(L2(0.2))
    assert other.design is problem.design
    assert other.norms is problem.norms
    assert other.smoothness is problem.smoothness
    assert repr(other.regularizer) == "L2(0.2)"
    x = np.ones(8)
    assert other.objective(x) == Problem(X, y, regularizer=L2(0.2)).objective(x)
    assert problem.objective(x) == Problem(X, y, regularizer=L1(0.1)).objective(x)
    assert problem.with_regularizer(None).penalty.l1.max() == 0.0


def test_defaults_repr_pickle_and_immutability():
    X, y = data(seed=24, loss=Squared())
    problem = Problem(X, y)
    assert type(problem.loss) is Squared
    assert isinstance(problem.regularizer, NoPenalty)
    assert problem.classes is None
    np.testing.assert_array_equal(problem.weights, 1 / y.size)
    expected = "Problem(<Design 30 x 8, dense, float64>, loss=Squared(), regularizer=L1(0.1), fit_intercept=True)"
    assert repr(Problem(X, y, regularizer=L1(0.1), fit_intercept=True)) == expected
    twin = pickle.loads(pickle.dumps(problem))
    assert twin.objective(np.ones(8)) == problem.objective(np.ones(8))
    with pytest.raises(AttributeError):
        problem.loss = Huber()
    with pytest.raises(ValueError, match="read-only"):
        problem.y[0] = 1.0
    y[0] = 1e9
    assert problem.y[0] != 1e9


@pytest.mark.parametrize("labels", [[3, 7], [0, 1], [-1.0, 1.0], [False, True]])
def test_classes_become_minus_and_plus_one(labels):
    y = np.array(labels)[[0, 1, 1, 0]]
    problem = Problem(np.eye(4), y, "logistic")
    np.testing.assert_array_equal(problem.y, [-1.0, 1.0, 1.0, -1.0])
    np.testing.assert_array_equal(problem.classes, labels)


def test_a_class_of_weight_zero_is_a_class():
    problem = Problem(np.eye(3), [0, 0, 5], "squared_hinge", sample_weight=[1, 1, 0])
    np.testing.assert_array_equal(problem.classes, [0, 5])


X4 = np.eye(4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1, 2, 3]}, r"y must be of shape \(4,\), but has shape \(3,\)"),
        ({"y": np.ones((4, 1))}, r"y must be of shape \(4,\), but has shape \(4, 1\)"),
        ({"y": [1, 2, np.nan, np.inf]}, r"y\[2\] is nan; targets must be finite"),
        ({"y": ["a", "b", "a", "b"]}, "y must hold real numbers, but has dtype <U1; encode labels"),
        ({"loss": "logistic", "y": [1, 1, 1, 1]}, r"exactly two classes .* has 1: 1"),
        ({"loss": "logistic", "y": [3, 1, 2, 1]}, r"exactly two classes .* has 3: 1, 2, 3"),
        ({"loss": "hinge"}, "loss='hinge' is not known"),
        ({"sample_weight": [1, 1, 1]}, r"sample_weight must be of shape \(4,\)"),
        ({"sample_weight": [1, -1, 1, 1]}, r"sample_weight\[1\] is -1.0; weights must be finite and >= 0"),
        ({"sample_weight": [1, 1, 1, np.inf]}, r"sample_weight\[3\] is inf"),
        ({"sample_weight": [0, 0, 0, 0]}, "sample_weight is 0 for every sample"),
        ({"regularizer": 0.1}, "regularizer must be one such as L1"),
        ({"regularizer": L1}, "regularizer must be one such as L1"),
        ({"regularizer": L1(1.0, weights=[1, 2])}, "for 2 features, but X has 4 features"),
    ],
)
def test_errors_name_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        Problem(**{"X": X4, "y": [1.0, 2.0, 3.0, 4.0], **options})


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_what_overflows_is_refused_rather_than_certified(loss):
    y = np.array([1.0, -1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="squares of column 2 of X"):
        minimize(Problem(X4 * [1.0, 1.0, 1e160, 1.0], y, loss, L1(0.1)))
    with pytest.raises(ValueError, match="losses of y at x = 0"):
        minimize(Problem(X4, 1e200 * y, "squared", L1(0.1)))


def test_the_gap_is_no_more_than_the_objective_where_no_loss_is_negative():
    problem = Problem(X4, np.array([1.0, -1.0, -1.0, 1.0]), "logistic", L1(1e-6))
    found = problem.duality_gap(60.0 * problem.y)
    assert found.gap == found.objective
    assert found.dual_objective == 0.0


def test_what_may_be_negative_is_no_bound_of_the_gap():
    own, other = Problem(X4, np.ones(4), PseudoHuber(), L1(1.0)), SimpleNamespace(penalty=(), loss=Logistic())
    assert certificate(own, 1.0, 5.0).gap == certificate(other, 1.0, 5.0).gap == 5.0


def test_help_shows_what_a_problem_takes():
    assert list(inspect.signature(Problem).parameters)[:4] == ["X", "y", "loss", "regularizer"]


def test_arrays_of_the_caller_stay_writeable():
    y, weights = np.ones(4), np.full(4, 0.25)
    problem = Problem.made_of(Problem(X4, y).design, y, Squared(), weights, False)
    assert y.flags.writeable
    assert weights.flags.writeable
    assert not problem.y.flags.writeable


def test_points_of_the_wrong_shape_never_reach_a_kernel():
    problem = Problem(X4, np.arange(4.0), fit_intercept=True)
    for call in (problem.predictor, problem.gradient, problem.objective, problem.optimality, problem.duality_gap):
        with pytest.raises(ValueError, match=r"x must be of shape \(5,\), but has shape \(4,\)"):
            call(np.zeros(4))
    for call in (problem.derivative, problem.residual, lambda z: problem.objective_at(np.zeros(5), z)):
        with pytest.raises(ValueError, match=r"z must be of shape \(4,\), but has shape \(3,\)"):
            call(np.zeros(3))


# --- The user's own


def test_a_loss_of_ones_own_has_a_gap():
    X, y = data(seed=25, loss=Squared())
    problem = Problem(X, y, PseudoHuber(), L2(0.1), fit_intercept=True)
    best = scipy.optimize.minimize(problem.objective, np.zeros(9), method="BFGS", options={"gtol": 1e-8})
    assert problem.duality_gap(best.x).gap < 1e-9
    assert problem.duality_gap(np.ones(9)).gap >= problem.objective(np.ones(9)) - best.fun


def test_without_a_penalty_the_first_feature_that_is_not_empty_has_no_dual_point():
    X = np.array([[0.0, 1.0, 2.0], [0.0, 3.0, -1.0]])
    free, weighted = NoPenalty(), L1(0.1, weights=[1.0, 1.0, 0.0])
    assert free.is_uniform
    assert L1(0.1).is_uniform
    assert not weighted.is_uniform
    for regularizer, feature in ((free, 1), (weighted, 2)):
        problem = Problem(X, [1.0, 2.0], regularizer=regularizer)
        assert not problem.has_certificate
        assert f"feature {feature} " in problem.certificate_reason
    assert Problem(X, [1.0, 2.0], regularizer=L1(0.1)).has_certificate
