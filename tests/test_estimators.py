"""The estimators: the coefficients of scikit-learn, and what they add to it."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import sklearn.linear_model
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import surestep as ss
from plain import uncompiled
from surestep import estimators
from surestep.estimators import ElasticNet, Lasso, LinearSVC, LogisticRegression, Ridge, SGDClassifier, SGDRegressor

TIGHT = 1e-12
DIABETES = load_diabetes(return_X_y=True)
CANCER = scale(load_breast_cancer().data), load_breast_cancer().target
IRIS = load_iris(return_X_y=True)
WEIGHTS = np.random.default_rng(0).uniform(0.0, 2.0, DIABETES[1].size)
DATA = Path(os.environ.get("SURESTEP_DATA", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


def assert_same(ours, theirs, rtol=1e-5):
    size = np.max(np.abs(theirs.coef_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=rtol * size)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=rtol, atol=rtol * size)
    assert np.shape(ours.coef_) == np.shape(theirs.coef_)
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)


def real(name):
    """A data set that stands beside the project, or that SURESTEP_DATA names."""
    found = DATA / f"{name}.bz2"
    if not found.exists():
        pytest.skip(f"no {found}; set SURESTEP_DATA to the folder of the data sets")
    X, y = load_svmlight_file(str(found))
    return X.toarray(), y


# --- The parameters of scikit-learn

NAMES = [name for name in dir(estimators) if name[0].isupper()]
DIFFERENT_DEFAULTS = {
    "LogisticRegression": {"tol", "max_iter"},
    "LogisticRegressionCV": {"tol", "max_iter", "l1_ratios", "scoring", "use_legacy_attributes"},
    "SGDClassifier": {"loss"},
    "SGDRegressor": {"learning_rate"},
}


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_scikit_learn(name):
    peer = getattr(sklearn.linear_model, name, None) or getattr(sklearn.svm, name)
    ours, theirs = (inspect.signature(kind).parameters for kind in (getattr(estimators, name), peer))
    assert set(theirs) <= set(ours)
    assert set(ours) - set(theirs) <= {"sampling", "positive", "penalty_weights", "multi_class"}
    assert all(ours[each].kind == theirs[each].kind for each in theirs)
    different = {each for each in theirs if ours[each].default != theirs[each].default}
    assert different == DIFFERENT_DEFAULTS.get(name, {"tol"})


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_differences_names_every_option_that_is_treated_otherwise(name):
    page = (Path(__file__).resolve().parent.parent / "docs" / "differences.md").read_text()
    section = page.partition("## Everywhere")[2].partition("\n## ")[0]
    section += next(part for part in page.split("\n## ") if name in part.partition("\n")[0].split(", "))
    as_in_scikit_learn = {"refit", "penalty"}
    treated = {*getattr(estimators, name)._options, *DIFFERENT_DEFAULTS.get(name, {"tol"})}
    assert [option for option in treated - as_in_scikit_learn if f"`{option}`" not in section] == []


# --- The coefficients of scikit-learn


REGRESSORS = {
    "lasso": (Lasso(0.1, tol=TIGHT), sklearn.linear_model.Lasso(0.1, tol=TIGHT, max_iter=100000)),
    "lasso-positive": (
        Lasso(0.1, positive=True, tol=TIGHT),
        sklearn.linear_model.Lasso(0.1, positive=True, tol=TIGHT, max_iter=100000),
    ),
    "elastic-net": (
        ElasticNet(0.01, l1_ratio=0.7, tol=TIGHT),
        sklearn.linear_model.ElasticNet(0.01, l1_ratio=0.7, tol=TIGHT, max_iter=100000),
    ),
    "ridge": (Ridge(0.5, tol=TIGHT), sklearn.linear_model.Ridge(0.5)),
    "ridge-positive": (
        Ridge(0.5, positive=True, tol=TIGHT),
        sklearn.linear_model.Ridge(0.5, positive=True, tol=TIGHT, max_iter=100000),
    ),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", ""])
@pytest.mark.parametrize("name", REGRESSORS)
def test_regression_is_that_of_scikit_learn(name, fit_intercept, weighted):
    ours, theirs = (clone(model).set_params(fit_intercept=fit_intercept) for model in REGRESSORS[name])
    fit_params = {"sample_weight": WEIGHTS} if weighted else {}
    assert_same(ours.fit(*DIABETES, **fit_params), theirs.fit(*DIABETES, **fit_params))
    assert ours.status_.success


@pytest.mark.parametrize("name", ["lasso", "ridge"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_several_targets_are_fitted_column_by_column(name, n_targets):
    X, y = DIABETES
    Y = np.stack([y, X[:, 0] - y], axis=1)[:, :n_targets]
    ours, theirs = (clone(model).fit(X, Y) for model in REGRESSORS[name])
    assert_same(ours, theirs)
    assert ours.predict(X).shape == theirs.predict(X).shape
    assert np.shape(ours.dual_gap_) == (() if n_targets == 1 else (2,))


def test_ridge_takes_an_alpha_for_each_target():
    X, y = DIABETES
    Y = np.stack([y, -y], axis=1)
    both = Ridge([0.1, 1.0]).fit(X, Y)
    np.testing.assert_allclose(both.coef_[1], Ridge(1.0).fit(X, -y).coef_)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 0.5}], ids=["", "balanced", "dict"])
def test_logistic_regression_is_that_of_scikit_learn(l1_ratio, class_weight):
    options = {"C": 0.05, "l1_ratio": l1_ratio, "class_weight": class_weight}
    solver = {"solver": "newton-cholesky", "tol": 1e-9} if l1_ratio == 0.0 else {"solver": "saga", "tol": 1e-7}
    ours = LogisticRegression(**options, tol=1e-11).fit(*CANCER)
    theirs = sklearn.linear_model.LogisticRegression(**options, **solver, max_iter=100000).fit(*CANCER)
    assert_same(ours, theirs, rtol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(CANCER[0]), theirs.predict_proba(CANCER[0]), atol=1e-4)


def test_logistic_regression_without_a_penalty():
    X, y = CANCER[0][:, :2], CANCER[1]
    ours = LogisticRegression(C=np.inf, tol=1e-9).fit(X, y)
    theirs = sklearn.linear_model.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(X, y)
    assert_same(ours, theirs)
    assert ours.status_ is ss.Status.CONVERGED_WITHOUT_CERTIFICATE


def test_several_classes_are_one_against_the_rest():
    X, y = IRIS
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    ours = LogisticRegression(C=0.5, tol=1e-13).fit(X, names)
    theirs = OneVsRestClassifier(
        sklearn.linear_model.LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10)
    ).fit(X, names)
    np.testing.assert_allclose(ours.coef_, np.vstack([one.coef_ for one in theirs.estimators_]), atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert ours.dual_gap_.shape == ours.n_iter_.shape == (3,)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 3.0, 2: 0.5}], ids=["", "weighted"])
def test_linear_svc_is_that_of_scikit_learn(penalty, class_weight):
    # without an intercept: that of liblinear is penalised
    X, y = scale(IRIS[0]), IRIS[1]
    options = {"penalty": penalty, "C": 0.1, "fit_intercept": False, "class_weight": class_weight}
    ours = LinearSVC(**options, tol=TIGHT).fit(X, y)
    theirs = sklearn.svm.LinearSVC(**options, dual=False, tol=1e-9, max_iter=100000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_lasso_on_real_data():
    X, y = real("leu")
    alpha = ss.Problem(X, y, regularizer=ss.L1(1.0), fit_intercept=True).alpha_max() / 10
    ours = Lasso(alpha, tol=1e-10).fit(X, y)
    theirs = sklearn.linear_model.Lasso(alpha, tol=1e-10, max_iter=100000).fit(X, y)
    assert_same(ours, theirs, rtol=1e-3)


def test_ridge_on_real_data():
    X, y = real("abalone_scale")
    assert_same(Ridge(1.0, tol=TIGHT).fit(X, y), sklearn.linear_model.Ridge(1.0, tol=1e-10).fit(X, y), rtol=1e-4)


def test_logistic_regression_on_real_data():
    X, y = real("colon-cancer")
    ours = LogisticRegression(C=1.0, l1_ratio=1.0, tol=1e-10, fit_intercept=False).fit(X, y)
    theirs = sklearn.linear_model.LogisticRegression(
        C=1.0, l1_ratio=1.0, solver="liblinear", tol=1e-8, fit_intercept=False, max_iter=10000
    ).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3 * np.max(np.abs(theirs.coef_)))


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet"])
def test_sgd_regression_has_the_objective_of_scikit_learn(penalty):
    X, y = scale(DIABETES[0]), DIABETES[1]
    ours = SGDRegressor(penalty=penalty, alpha=0.5, l1_ratio=0.3, tol=1e-8, random_state=0).fit(X, y)
    l1_ratio = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.3}[penalty]
    theirs = ElasticNet(0.5, l1_ratio=l1_ratio, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.05)
    assert ours.intercept_.shape == (1,)
    assert ours.dual_gap_ <= 1e-8 * np.var(y)


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
def test_sgd_classification_has_the_objective_of_scikit_learn(loss):
    X, y = CANCER
    ours = SGDClassifier(loss, alpha=0.05, tol=1e-8, random_state=0).fit(X, y)
    C = 1 / (0.05 * y.size)
    same = LogisticRegression(C=C, tol=1e-9) if loss == "log_loss" else LinearSVC(C=C, tol=1e-9)
    np.testing.assert_allclose(ours.coef_, same.fit(X, y).coef_, atol=1e-3)
    assert hasattr(ours, "predict_proba") == (loss == "log_loss")


def test_sgd_with_the_huber_loss():
    X, y = scale(DIABETES[0]), scale(DIABETES[1])
    ours = SGDRegressor("huber", epsilon=0.5, alpha=0.1, tol=1e-8, random_state=0).fit(X, y)
    problem = ss.Problem(X, y, loss=ss.Huber(0.5), regularizer=ss.L2(0.1), fit_intercept=True)
    gap = problem.duality_gap(np.append(ours.coef_, ours.intercept_))
    assert gap.gap <= 1e-8 * problem.objective(np.zeros(11))


# --- What the data may be


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array])
def test_sparse_is_dense(kind):
    X, y = DIABETES
    X = np.where(np.abs(X) > 0.03, X + 1.0, 0.0)
    dense, sparse = Lasso(0.1, tol=1e-11).fit(X, y), Lasso(0.1, tol=1e-11).fit(kind(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-3)
    np.testing.assert_allclose(sparse.predict(kind(X)), dense.predict(X), atol=1e-3)


@pytest.mark.parametrize("model", [Lasso(0.1), LogisticRegression()], ids=["lasso", "logistic"])
def test_float32_is_kept(model):
    X, y = CANCER
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    assert single.decision_function(X[:5].astype(np.float32)).dtype == np.float32 if hasattr(model, "C") else True
    np.testing.assert_allclose(single.coef_, clone(model).fit(X, y).coef_, atol=1e-3)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_names_of_features_are_kept(package):
    frames = pytest.importorskip(package)
    X, y = DIABETES
    names = [f"feature {j}" for j in range(X.shape[1])]
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    model = Lasso(0.1).fit(frame, frames.Series(y))
    assert list(model.feature_names_in_) == names
    np.testing.assert_allclose(model.coef_, Lasso(0.1).fit(X, y).coef_, rtol=1e-9)
    np.testing.assert_allclose(model.predict(frame), X @ model.coef_ + model.intercept_, rtol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[names[::-1]])


# --- Tolerance, status, warnings


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e6, 1.7e9])
def test_the_tolerance_does_not_depend_on_where_y_lies(shift):
    X, y = DIABETES
    model = Lasso(0.1, tol=1e-6).fit(X, y + shift)
    assert model.dual_gap_ <= 1e-6 * 0.5 * np.var(y)
    reference = Lasso(0.1, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=0.02 * np.max(np.abs(reference.coef_)))


def test_the_tolerance_of_a_rare_class():
    X, y = CANCER
    rare = (np.arange(y.size) % 40 == 0).astype(int)
    share = np.mean(rare)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    model = LogisticRegression(C=0.1, tol=1e-4).fit(X, rare)
    assert model.dual_gap_ <= 1e-4 * entropy


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_zeros_at_once_from_alpha_max_on(fit_intercept):
    X, y = DIABETES
    alpha = ss.Problem(X, y, regularizer=ss.L1(1.0), fit_intercept=fit_intercept).alpha_max()
    model = Lasso(alpha * (1 + 1e-12), fit_intercept=fit_intercept).fit(X, y)
    assert not model.coef_.any()
    assert model.n_iter_ == 1
    assert model.trace_.n_rows == 1
    assert model.status_.success
    assert Lasso(0.99 * alpha, fit_intercept=fit_intercept).fit(X, y).coef_.any()


def test_a_warning_one_can_act_on():
    X, y = DIABETES
    with pytest.warns(ConvergenceWarning) as caught:
        model = Lasso(1e-4, tol=1e-14, max_iter=1, sampling="cyclic").fit(X, y)
    message = str(caught[0].message)
    assert caught[0].filename == __file__
    assert not model.status_.success
    for said in ("Lasso", f"{model.dual_gap_:.2g}", "max_iter=1 ", "tol=1e-14", "Raise max_iter or tol"):
        assert said in message


def test_a_warning_that_rounding_is_in_the_way_does_not_ask_for_more_iterations():
    """A feature that is hardly penalised leaves next to no dual point."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    y = X @ np.arange(8.0) + rng.normal(size=60)
    with pytest.warns(ConvergenceWarning, match="rounding ended it after") as caught:
        model = Lasso(0.1, tol=1e-12, penalty_weights=[1e-9] + [1.0] * 7, fit_intercept=False).fit(X, y)
    assert model.status_ is ss.Status.PRECISION
    assert "max_iter" not in str(caught[0].message)


def test_an_objective_that_is_nearly_zero_certifies_itself():
    """Separable classes and hardly any penalty: a dual point would take hundreds of rounds to say as much."""
    X = np.random.default_rng(0).normal(size=(60, 8))
    model = LogisticRegression(C=1e12).fit(X, X @ np.arange(8.0) > 0.0)
    assert model.status_ is ss.Status.CONVERGED
    assert model.n_iter_ < 100


def test_a_mean_over_folds_has_no_certificate_of_a_fit_before():
    X, y = CANCER[0][:, :5], CANCER[1]
    model = estimators.LogisticRegressionCV(Cs=2).fit(X, y)
    assert model.dual_gap_ >= 0.0
    model.set_params(refit=False).fit(X, y)
    assert not any(hasattr(model, name) for name in ("dual_gap_", "status_", "trace_"))


def test_a_warning_without_a_certificate_says_so():
    with pytest.warns(ConvergenceWarning, match="has no penalty"):
        model = Lasso(0.0, tol=1e-14, max_iter=1, sampling="cyclic").fit(*DIABETES)
    assert model.dual_gap_ == np.inf


@pytest.mark.parametrize("kind", [Lasso, estimators.LassoCV])
def test_an_interrupt_is_heard_outside(kind, monkeypatch):
    def interrupted(self, n_epochs):
        raise KeyboardInterrupt

    monkeypatch.setattr("surestep.solvers.coordinate.CoordinateDescent.advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kind(sampling="cyclic").fit(*DIABETES)


def test_the_gap_is_a_bound():
    X, y = DIABETES
    problem = ss.Problem(X, y, regularizer=ss.L1(0.05), fit_intercept=True)
    exact = Lasso(0.05, tol=1e-13).fit(X, y)
    best = problem.objective(np.append(exact.coef_, exact.intercept_))
    for tol in (1e-2, 1e-4):
        model = Lasso(0.05, tol=tol).fit(X, y)
        reached = problem.objective(np.append(model.coef_, model.intercept_))
        assert reached - best <= model.dual_gap_ * (1 + 1e-6)


# --- What is added


@pytest.mark.parametrize("sampling", ["safe", "optimal", "importance", "uniform", "cyclic", "greedy"])
def test_any_sampling_finds_the_same(sampling):
    X, y = scale(DIABETES[0][:60, :6]), DIABETES[1][:60]
    with uncompiled():
        model = Lasso(2.0, sampling=sampling, tol=1e-10, random_state=3).fit(X, y)
    np.testing.assert_allclose(model.coef_, Lasso(2.0, tol=1e-10).fit(X, y).coef_, atol=0.01)
    assert model.trace_["gap"][-1] == model.dual_gap_


def test_penalty_weights_are_scales_of_the_columns():
    X, y = DIABETES
    v = np.linspace(0.5, 2.0, X.shape[1])
    ours = Lasso(0.1, penalty_weights=v, tol=TIGHT).fit(X, y)
    theirs = sklearn.linear_model.Lasso(0.1, tol=TIGHT, max_iter=100000).fit(X / v, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_ / v, atol=1e-4)


@pytest.mark.parametrize(
    "model", [LogisticRegression(positive=True), LinearSVC(positive=True)], ids=["logistic", "svc"]
)
def test_classifiers_can_be_positive(model):
    X, y = CANCER
    fitted = clone(model).fit(X, 1 - y)
    assert fitted.coef_.min() >= 0.0
    assert fitted.coef_.max() > 0.0
    assert fitted.score(X, 1 - y) > 0.9


def test_a_warm_start_begins_where_the_last_fit_ended():
    X, y = DIABETES
    model = Lasso(0.01, warm_start=True, tol=1e-8).fit(X, y)
    first = model.coef_
    assert model.fit(X, y).n_iter_ == 1
    np.testing.assert_array_equal(model.coef_, first)
    classifier = LogisticRegression(warm_start=True, C=0.1).fit(*CANCER).sparsify()
    assert classifier.fit(*CANCER).n_iter_ == 1


REFUSED = [
    (Lasso(precompute=np.eye(10)), "precompute"),
    (Lasso(selection="best"), "selection"),
    (Lasso(sampling="best"), "sampling"),
    (Lasso(tol=0.0), "tol"),
    (Lasso(max_iter=0), "max_iter"),
    (Lasso(alpha=-1.0), "alpha"),
    (Lasso(penalty_weights=[1.0, 2.0]), "features"),
    (ElasticNet(l1_ratio=2.0), "l1_ratio"),
    (Ridge(solver="best"), "solver"),
    (Ridge(alpha=-1.0), "alpha"),
    (Ridge(alpha=[1.0, 2.0, 3.0]), "3 for 1 targets"),
    (LogisticRegression(multi_class="multinomial"), "one-vs-rest"),
    (LogisticRegression(dual=True), "dual"),
    (LogisticRegression(intercept_scaling=2.0), "intercept_scaling"),
    (LogisticRegression(C=0.0), "C"),
    (LogisticRegression(C=np.nan), "C must be"),
    (LogisticRegression(class_weight={0: -1.0}), "class_weight must be .* class 0"),
    (LinearSVC(loss="hinge"), "hinge"),
    (LinearSVC(C=np.nan), "C must be"),
    (LinearSVC(multi_class="crammer_singer"), "multi_class"),
    (LinearSVC(intercept_scaling=2.0), "intercept_scaling"),
    (estimators.LassoCV(precompute=np.eye(10)), "precompute"),
    (estimators.ElasticNetCV(l1_ratio=[0.0]), "L1 part.* give alphas"),
    (estimators.LassoCV(penalty_weights=[0.0] + [1.0] * 9), "give it a positive weight, or alphas"),
    (estimators.LogisticRegressionCV(use_legacy_attributes=True), "use_legacy_attributes"),
    (estimators.LogisticRegressionCV(Cs=[-1.0]), "Cs"),
    (SGDRegressor("epsilon_insensitive"), "loss"),
    (SGDClassifier("hinge"), "hinge"),
    (SGDClassifier(learning_rate="constant"), "learning_rate"),
    (SGDClassifier(early_stopping=True), "early_stopping"),
    (SGDClassifier(shuffle=False), "shuffle"),
]


@pytest.mark.parametrize(("model", "named"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_is_not_supported_is_refused(model, named):
    with pytest.raises(ValueError, match=named):
        model.fit(CANCER[0][:, :10], CANCER[1])


def test_the_deprecated_penalty_still_works():
    with pytest.warns(FutureWarning, match="penalty is deprecated") as caught:
        old = LogisticRegression(penalty="l1", C=0.1).fit(*CANCER)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(old.coef_, LogisticRegression(l1_ratio=1.0, C=0.1).fit(*CANCER).coef_)
    X, y = CANCER[0][:, :2], CANCER[1]
    with pytest.warns(FutureWarning, match="penalty=None"):
        old = LogisticRegression(penalty=None).fit(X, y)
    np.testing.assert_array_equal(old.coef_, LogisticRegression(C=np.inf).fit(X, y).coef_)


# --- In the company of scikit-learn


def test_clone_pickle_pipeline_and_grid_search():
    X, y = CANCER
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression()), {"logisticregression__C": [0.01, 0.1]}, cv=3
    )
    search.fit(X, y)
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))
    assert again.best_estimator_[-1].status_.success


def test_sample_weights_are_routed():
    X, y = CANCER
    weights = np.linspace(0.1, 2.0, y.size)
    with sklearn.config_context(enable_metadata_routing=True):
        model = LogisticRegression(C=0.1).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        out = cross_validate(model, X, y, params={"sample_weight": weights}, cv=3, return_estimator=True)
        plain = cross_validate(LogisticRegression(C=0.1), X, y, cv=3, return_estimator=True)
    assert not np.allclose(out["estimator"][0].coef_, plain["estimator"][0].coef_)


def test_estimators_are_names_of_the_package_that_cost_nothing_until_used():
    code = (
        "import sys, surestep\n"
        "assert 'sklearn' not in sys.modules\n"
        "assert 'Lasso' in dir(surestep)\n"
        "assert surestep.Lasso is surestep.estimators.Lasso\n"
        "assert callable(surestep.path)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    for name in ss._ESTIMATORS:
        assert getattr(ss, name) is getattr(estimators, name)
        assert getattr(ss, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'Laso'"):
        _ = ss.Laso
