"""Estimators fitted on row partitions are those fitted on all rows, and as local."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse

import surestep as ss
from surestep.estimators import ElasticNet

pytest.importorskip("distributed", reason="data in row partitions need Dask, the extra [dask]")

import dask.array as da

import in_process
from surestep.distributed import _partitions


@pytest.fixture(autouse=True)
def _near(monkeypatch):
    """Let a client whose workers are in this process be the active one."""
    client = in_process.Client()
    monkeypatch.setattr(_partitions, "active_client", lambda given=None: given or client)


RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8)) + 2.0
SIGNAL = X @ RNG.standard_normal(8) + 0.5 * RNG.standard_normal(60)
WEIGHTS = RNG.integers(0, 3, 60).astype(float)
THREE = np.array(["low", "mid", "top"])[np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.6]))]
TWO = np.where(np.mean(SIGNAL) < SIGNAL, "yes", "no")

MODELS = {
    "lasso": (ss.Lasso(alpha=0.1), SIGNAL),
    "elastic net, no intercept": (ElasticNet(alpha=0.1, fit_intercept=False), SIGNAL),
    "ridge, two targets": (ss.Ridge(alpha=[0.5, 2.0]), np.column_stack([SIGNAL, -(SIGNAL**2)])),
    "ridge, positive": (ss.Ridge(alpha=0.5, positive=True), SIGNAL),
    "logistic, l1": (ss.LogisticRegression(C=2.0, l1_ratio=1.0, tol=1e-10), TWO),
    "logistic, three classes": (ss.LogisticRegression(class_weight="balanced", tol=1e-10), THREE),
    "svc": (ss.LinearSVC(C=0.5, class_weight={"low": 2.0, "mid": 1.0, "top": 0.5}, tol=1e-10), THREE),
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_fits_are_the_same(name, weights, sparse):
    model, y = MODELS[name]
    model.set_params(tol=1e-10)
    data = scipy.sparse.csr_array(X * (X > 2.0)) if sparse else X
    parts = da.from_array(data, chunks=(17, 8), asarray=False)
    expected = pickle.loads(pickle.dumps(model.fit(data, y, weights)))
    found = pickle.loads(pickle.dumps(model.fit(parts, y, weights)))  # it is an ordinary one: no futures in it
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=2e-5)
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=2e-4)
    assert np.shape(found.intercept_) == np.shape(expected.intercept_)
    assert found.coef_.dtype == expected.coef_.dtype
    assert found.n_features_in_ == 8
    assert np.all(found.dual_gap_ <= 1e-8)
    assert np.mean(found.predict(data) == expected.predict(data)) == 1.0 or y is SIGNAL or y.ndim == 2
    assert "exchanges" in (found.trace_[0] if isinstance(found.trace_, list) else found.trace_)


def test_warm_starts_and_float32():
    parts, y = da.from_array(X.astype(np.float32), chunks=(20, 8)), da.from_array(SIGNAL, chunks=20)
    model = ss.Lasso(alpha=0.1, warm_start=True).fit(parts, y)
    assert model.coef_.dtype == np.float32
    assert model.n_iter_ > 1
    assert model.fit(parts, y).n_iter_ == 1


def test_a_frame_keeps_its_names():
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe needs pyarrow")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    series = pd.Series(SIGNAL)
    parts = dd.from_pandas(frame, npartitions=4)
    model = ss.Lasso(alpha=0.1, tol=1e-10).fit(parts, dd.from_pandas(series, npartitions=4))
    expected = ss.Lasso(alpha=0.1, tol=1e-10).fit(frame, series)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_array_equal(model.feature_names_in_, expected.feature_names_in_)
    np.testing.assert_allclose(model.predict(frame), expected.predict(frame), atol=1e-5)
    with pytest.raises(ValueError, match=r"partition \d: X must hold real numbers"):
        ss.Lasso().fit(dd.from_pandas(frame.assign(x0="a"), npartitions=4), dd.from_pandas(series, npartitions=4))


@pytest.mark.parametrize("model", [ss.LassoCV(), ss.LogisticRegressionCV()])
def test_forms_with_cross_validation_refuse(model):
    with pytest.raises(TypeError, match="CV does not take data in row partitions; the estimators without CV do"):
        model.fit(da.from_array(X, chunks=(20, 8)), TWO)


def test_what_needs_all_rows_says_so():
    with pytest.raises(TypeError, match="partitions on a cluster, where minimize and path solve it"):
        ss.Lasso(sampling="safe").fit(da.from_array(X, chunks=(20, 8)), SIGNAL)


def test_labels_are_checked():
    parts = da.from_array(X, chunks=(20, 8))
    with pytest.raises(ValueError, match="at least two classes, but has one class only: 1"):
        ss.LinearSVC().fit(parts, np.ones(60, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        ss.LinearSVC().fit(parts, SIGNAL)
    with pytest.raises(ValueError, match="one-dimensional"):
        ss.LinearSVC().fit(parts, np.ones((60, 2), int))
