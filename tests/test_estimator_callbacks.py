"""Callbacks of scikit-learn on our estimators."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.callback import ScoringMonitor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV

from surestep import Status
from surestep.estimators import Lasso, LassoCV, LogisticRegression

DIABETES = load_diabetes(return_X_y=True)


class Recorder:
    """Notes every task that ends, and asks to stop after some."""

    def __init__(self, stop_after=np.inf):
        self.stop_after = stop_after
        self.begun, self.ended, self.errors = [], [], []

    def setup(self, estimator, context):
        self.set_up = True

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.ended.append(context.task_name)
        if context.task_name == "iteration":
            self.errors.append(np.mean((fitted_estimator.predict(X) - y) ** 2))
        return self.ended.count("iteration") >= self.stop_after


def test_every_row_of_the_trace_is_a_task():
    recorder = Recorder()
    model = Lasso(0.1, sampling="cyclic", tol=1e-8).set_callbacks(recorder).fit(*DIABETES)
    assert recorder.set_up
    assert recorder.torn_down
    assert recorder.ended == ["iteration"] * model.trace_.n_rows + ["fit"]
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert recorder.errors[0] == pytest.approx(np.var(DIABETES[1]))
    assert recorder.errors[-1] == pytest.approx(np.mean((model.predict(DIABETES[0]) - DIABETES[1]) ** 2), rel=1e-6)


def test_a_callback_can_stop_the_fit():
    recorder = Recorder(stop_after=2)
    model = Lasso(0.01, sampling="cyclic", tol=1e-12).set_callbacks(recorder).fit(*DIABETES)
    assert model.status_ is Status.STOPPED
    assert recorder.ended.count("iteration") == 2


def test_several_classes_are_several_tasks():
    recorder = Recorder()
    LogisticRegression().set_callbacks(recorder).fit(*load_iris(return_X_y=True))
    assert recorder.ended.count("target") == 3
    assert recorder.ended[-1] == "fit"


def test_folds_are_tasks():
    recorder = Recorder()
    LassoCV(alphas=3, cv=3, n_jobs=2).set_callbacks(recorder).fit(*DIABETES)
    assert recorder.ended.count("fold") == 3
    assert recorder.ended[-2:] == ["refit", "fit"]


def test_the_monitors_of_scikit_learn_work():
    monitor = ScoringMonitor(scoring="r2")
    model = Lasso(0.1, sampling="cyclic").set_callbacks(monitor).fit(*DIABETES)
    log = monitor.get_logs()
    scores = log.data_as_pandas["r2"].dropna()
    assert len(scores) >= model.trace_.n_rows
    assert scores.iloc[-1] == pytest.approx(model.score(*DIABETES))


def test_a_progress_bar_of_a_search_reaches_our_estimator(capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    GridSearchCV(Lasso(), {"alpha": [0.1, 1.0]}, cv=2).set_callbacks(ProgressBar()).fit(*DIABETES)
    assert "Lasso" in capsys.readouterr().out
