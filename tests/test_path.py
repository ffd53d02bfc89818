"""The warm-started path, and the estimators that choose from it by cross-validation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.preprocessing import scale

import surestep as ss
from surestep.estimators import ElasticNetCV, Lasso, LassoCV, LogisticRegressionCV
from surestep.solvers._on_working_set import OnWorkingSet

DIABETES = load_diabetes(return_X_y=True)
CANCER = scale(load_breast_cancer().data)[:, :10], load_breast_cancer().target
WEIGHTS = np.random.default_rng(0).uniform(0.1, 2.0, DIABETES[1].size)
TIGHT = 1e-12


def lasso(**options):
    return ss.Problem(*DIABETES, regularizer=ss.L1(1.0), fit_intercept=True, **options)


# --- path


@settings(max_examples=25)
@given(
    loss=st.sampled_from(["squared", "logistic", "squared_hinge"]),
    seed=st.integers(0, 1000),
    factor=st.floats(1.0, 10.0),
    fit_intercept=st.booleans(),
)
def test_the_null_point_is_optimal_from_alpha_max_on(loss, seed, factor, fit_intercept):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(1.0, 1.0, (12, 3)), np.append(rng.integers(0, 2, 10), [0, 1]).astype(float)
    problem = ss.Problem(X, y, loss, ss.L1(1.0), rng.uniform(0.1, 1.0, 12), fit_intercept)
    weaker, stronger = (problem.with_regularizer(ss.L1(problem.alpha_max() * f)) for f in (0.9, factor))
    null = stronger.null_point()
    assert not null[:3].any()
    assert stronger.duality_gap(null).gap <= 1e-14
    assert stronger.optimality(null).max() <= 1e-12
    assert weaker.optimality(null).max() > 1e-12


def test_a_path_is_its_single_solves():
    found = ss.path(lasso(), n_alphas=6, eps=0.05, tol=TIGHT)
    assert found.coefs.shape == (10, 6)
    assert (np.diff(found.alphas) < 0.0).all()
    assert all(status.success for status in found.statuses)
    assert not found.coefs[:, 0].any()
    for k, alpha in enumerate(found.alphas):
        alone = Lasso(alpha, tol=TIGHT).fit(*DIABETES)
        np.testing.assert_allclose(found.coefs[:, k], alone.coef_, atol=1e-3)
        np.testing.assert_allclose(found.intercepts[k], alone.intercept_, rtol=1e-6)
    assert found.gaps.max() <= TIGHT * 0.5 * np.var(DIABETES[1])


def test_a_path_keeps_ratio_weights_and_bounds():
    weights = np.linspace(0.5, 2.0, 10)
    problem = ss.Problem(*DIABETES, regularizer=ss.ElasticNet(3.0, 0.7, weights) + ss.NonNegative(), fit_intercept=True)
    found = ss.path(problem, [0.001, 0.01], tol=TIGHT)
    np.testing.assert_array_equal(found.alphas, [0.01, 0.001])
    for alpha, result in zip(found.alphas, found.results, strict=True):
        one = problem.with_regularizer(ss.ElasticNet(alpha, 0.7, weights) + ss.NonNegative())
        assert one.objective(np.append(result.coef, result.intercept)) == pytest.approx(result.objective, rel=1e-12)
        assert one.duality_gap(np.append(result.coef, result.intercept)).gap <= 1e-11 * np.var(DIABETES[1])
        assert result.coef.min() == 0.0


def test_a_path_starts_each_solve_where_the_last_ended():
    alphas = [0.1, 0.1, 0.1]
    found = ss.path(lasso(), alphas, tol=1e-6)
    assert [result.trace.n_rows for result in found.results[1:]] == [1, 1]


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)], ids=["over features", "over samples"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_path_without_kinks_is_its_single_solves(shape, loss):
    rng = np.random.default_rng(0)
    problem = ss.Problem(rng.standard_normal(shape), rng.permutation(shape[0]) % 2, loss, ss.L2(1.0))
    path = ss.path(problem, [1.0, 0.1, 0.01], tol=TIGHT)
    for alpha, result in zip(path.alphas, path.results, strict=True):
        alone = ss.minimize(problem.with_regularizer(ss.L2(alpha)), tol=TIGHT)
        assert result.status.success
        np.testing.assert_allclose(result.coef, alone.coef, atol=1e-5)  # sqrt(2 gap / alpha), about


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(("shape", "density"), [((100, 500), 1.0), ((300, 80), 1.0), ((300, 600), 0.1)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_round_for_a_strength_is_nearly_always_enough(shape, density, fit_intercept, tol):
    """The gap, small where a solve begins, must not say that steps need not be found well."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape) * (rng.random(shape) < density)
    y = X[:, :9].sum(axis=1) + rng.normal(size=shape[0])
    data = X if density == 1.0 else scipy.sparse.csc_array(X)
    problem = ss.Problem(data, y, regularizer=ss.L1(1.0), fit_intercept=fit_intercept)
    found = ss.path(problem, n_alphas=50, eps=0.01, tol=tol)
    assert all(status.success for status in found.statuses)
    assert sum(result.n_epochs for result in found.results) <= 1.25 * 50


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("shape", [ss.L1(1.0), ss.ElasticNet(1.0, 0.9), ss.L1(1.0) + ss.NonNegative()], ids=str)
def test_where_the_next_strength_leads_is_foreseen(shape, fit_intercept, monkeypatch):
    """It takes fewer steps, the model falls, its gradient follows, and the end is the same."""
    rng, foresee, falls = np.random.default_rng(0), OnWorkingSet._foresee, []
    X = rng.normal(size=(200, 600)) + 0.5 * rng.normal(size=(200, 1))
    problem = ss.Problem(X, X[:, :150].sum(axis=1), regularizer=shape, fit_intercept=fit_intercept)

    def watched(self, reg, x, g, matrix):
        x0, g0 = x.copy(), g.copy()
        foresee(self, reg, x, g, matrix)
        np.testing.assert_allclose(g, g0 + matrix[:, : x.size] @ (x - x0), atol=1e-10)
        assert np.all((reg.lower <= x) & (x <= reg.upper))
        penalties = [np.sum(reg.l1 * np.abs(v) + 0.5 * reg.l2 * v * v) for v in (x0, x)]
        falls.append(0.5 * (x - x0) @ (g0 + g) + penalties[1] - penalties[0])

    monkeypatch.setattr(OnWorkingSet, "_foresee", watched)
    alphas = problem.alpha_max() * np.array([0.3, *np.geomspace(0.2, 0.05, 40), 0.05])  # the last one twice
    paths = [ss.path(problem, alphas, tol=1e-8)]
    monkeypatch.setattr(OnWorkingSet, "_foresee", lambda *_: None)
    paths.append(ss.path(problem, alphas, tol=1e-8))
    assert max(falls) <= 0.0 > min(falls)
    assert all(status.success for path in paths for status in path.statuses)
    steps, without = (sum(result.n_steps for result in path.results) for path in paths)
    assert steps < 0.9 * without
    for one, other in zip(*(path.results for path in paths), strict=True):
        assert one.objective == pytest.approx(other.objective, abs=2e-8 * problem.objective_at_zero)


def test_a_path_that_ends_without_a_penalty():
    X, y = DIABETES
    problem = ss.Problem(X, y, regularizer=ss.L1(1.0))
    path = ss.path(problem, [1.0, 0.1, 0.0], tol=1e-10)
    np.testing.assert_allclose(path.coefs[:, -1], np.linalg.lstsq(X, y)[0], rtol=1e-5)


def test_a_callback_ends_a_path():
    def stop(progress):
        progress.stop = np.count_nonzero(progress.x[:-1]) >= 2

    found = ss.path(lasso(), n_alphas=50, tol=1e-10, callbacks=[stop])
    assert 1 < len(found.results) == found.alphas.size < 50
    assert found.statuses[-1] is ss.Status.STOPPED
    assert all(status.success for status in found.statuses[:-1])


def test_a_path_of_a_constant_target_is_zero():
    X = DIABETES[0]
    found = ss.path(ss.Problem(X, np.full(X.shape[0], 0.1), regularizer=ss.L1(1.0), fit_intercept=True), n_alphas=3)
    assert not found.coefs.any()
    np.testing.assert_allclose(found.intercepts, 0.1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alphas": []}, "alphas"),
        ({"alphas": [-1.0]}, "alphas"),
        ({"alphas": [np.nan]}, "alphas"),
        ({"alphas": 0.5}, "alphas"),
        ({"n_alphas": 0}, "n_alphas"),
        ({"n_alphas": 2.5}, "n_alphas"),
        ({"tol": 0.0}, "tol"),
        ({"eps": 0.0}, "eps"),
    ],
)
def test_a_path_refuses_a_grid_that_is_none(options, said):
    with pytest.raises(ValueError, match=said):
        ss.path(lasso(), **options)


def test_a_path_needs_something_to_scale():
    with pytest.raises(ValueError, match="positive strength"):
        ss.path(ss.Problem(*DIABETES))
    with pytest.raises(ValueError, match="L1 part"):
        ss.path(ss.Problem(*DIABETES, regularizer=ss.L2(1.0)))


# --- Cross-validation


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_lasso_cv_is_that_of_scikit_learn(weighted):
    fit_params = {"sample_weight": WEIGHTS} if weighted else {}
    options = {"alphas": 12, "eps": 0.01, "cv": KFold(3)}
    ours = LassoCV(**options, tol=1e-10).fit(*DIABETES, **fit_params)
    theirs = sklearn.linear_model.LassoCV(**options, tol=1e-10, max_iter=100000).fit(*DIABETES, **fit_params)
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_, rtol=1e-10)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-5)
    assert ours.alpha_ == pytest.approx(theirs.alpha_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.1)


def test_elastic_net_cv_is_that_of_scikit_learn():
    options = {"l1_ratio": [0.5, 0.9], "alphas": 8, "eps": 0.01, "cv": 3}
    ours = ElasticNetCV(**options, tol=1e-10).fit(*DIABETES)
    theirs = sklearn.linear_model.ElasticNetCV(**options, tol=1e-10, max_iter=100000).fit(*DIABETES)
    np.testing.assert_allclose(ours.mse_path_, theirs.mse_path_, rtol=1e-5)
    assert (ours.alpha_, ours.l1_ratio_) == pytest.approx((theirs.alpha_, theirs.l1_ratio_))
    assert ours.alphas_.shape == theirs.alphas_.shape
    given = ElasticNetCV(l1_ratio=[0.5, 0.9], alphas=[0.01, 0.1], cv=3).fit(*DIABETES)
    np.testing.assert_array_equal(given.alphas_, [0.1, 0.01])


@pytest.mark.parametrize("refit", [True, False], ids=["refit", "averaged"])
@pytest.mark.parametrize("scoring", [None, "neg_log_loss"])
def test_logistic_regression_cv_is_that_of_scikit_learn(scoring, refit):
    options = {"Cs": [0.1, 0.001, 0.01], "l1_ratios": (0.0,), "cv": StratifiedKFold(3), "scoring": scoring}
    options |= {"refit": refit, "use_legacy_attributes": False, "class_weight": "balanced"}
    ours = LogisticRegressionCV(**options, tol=1e-11).fit(*CANCER)
    theirs = sklearn.linear_model.LogisticRegressionCV(**options, solver="newton-cholesky", tol=1e-9).fit(*CANCER)
    for name in ("Cs_", "l1_ratios_", "scores_", "coefs_paths_", "C_", "l1_ratio_", "coef_", "intercept_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)
        assert np.shape(getattr(ours, name)) == np.shape(getattr(theirs, name)), name
    assert ours.n_iter_.shape == theirs.n_iter_.shape
    assert ours.score(*CANCER) == pytest.approx(theirs.score(*CANCER), rel=1e-4)


def test_logistic_regression_cv_of_several_classes_and_ratios():
    X, y = scale(load_iris().data), load_iris().target
    model = LogisticRegressionCV(Cs=[0.1, 1.0], l1_ratios=[0.0, 1.0], cv=3, fit_intercept=False).fit(X, y)
    assert model.coefs_paths_.shape == (3, 2, 2, 3, 4)
    assert model.scores_.shape == model.n_iter_.shape == (3, 2, 2)
    assert model.coef_.shape == (3, 4)
    # the L1 path at the stronger penalty has zeros, that of L2 none
    assert (model.coefs_paths_[:, 1, 0] == 0.0).any()
    assert not (model.coefs_paths_[:, 0] == 0.0).any()
    assert model.score(X, y) > 0.8


def test_threads_change_nothing():
    one = LassoCV(alphas=5, cv=3).fit(*DIABETES)
    two = LassoCV(alphas=5, cv=3, n_jobs=2).fit(*DIABETES)
    np.testing.assert_array_equal(one.mse_path_, two.mse_path_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_sparse_folds_are_dense_folds():
    X, y = np.where(np.abs(DIABETES[0]) > 0.03, DIABETES[0], 0.0), DIABETES[1]
    dense, sparse = (LassoCV(alphas=4, eps=0.1, cv=3, tol=1e-9).fit(A, y) for A in (X, scipy.sparse.csc_array(X)))
    np.testing.assert_allclose(sparse.mse_path_, dense.mse_path_, rtol=1e-5)


def test_groups_are_routed_to_the_splitter():
    groups = np.arange(DIABETES[1].size) % 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = LassoCV(alphas=3, eps=0.1, cv=GroupKFold(4).set_split_request(groups=True)).fit(
            *DIABETES, groups=groups
        )
    assert model.mse_path_.shape == (3, 4)
    with pytest.raises(ValueError, match="groups"):
        LassoCV().fit(*DIABETES, groups=groups)


def test_weights_are_routed_to_the_scorer():
    X, y = CANCER
    weights = np.where(np.arange(y.size) % 2, 1.0, 0.0)
    scores = []
    with sklearn.config_context(enable_metadata_routing=True):
        for requested in (False, True):
            scorer = get_scorer("accuracy").set_score_request(sample_weight=requested)
            model = LogisticRegressionCV(Cs=[0.01], cv=3, scoring=scorer).set_fit_request(sample_weight=True)
            scores.append(model.fit(X, y, sample_weight=weights).scores_)
    assert not np.array_equal(*scores)


def test_a_class_that_is_missing_in_a_fold_is_named():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="class 0 does not occur in the training part"):
        LogisticRegressionCV(Cs=[1.0], cv=KFold(3)).fit(X, y)


def test_folds_that_did_not_converge_are_counted():
    with pytest.warns(ConvergenceWarning) as caught:
        LassoCV(alphas=[1e-4], cv=3, max_iter=1, tol=1e-14, sampling="cyclic").fit(*DIABETES)
    messages = [str(warning.message) for warning in caught]
    assert any("3 of 3 fits on folds" in message for message in messages)
    assert {warning.filename for warning in caught} == {__file__}


def test_several_targets_are_refused():
    with pytest.raises(ValueError, match="2 columns"):
        LassoCV().fit(DIABETES[0], np.stack([DIABETES[1]] * 2, axis=1))
