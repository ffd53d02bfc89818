"""What a run leaves behind: trace, result and the sentence that says why it stopped."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import surestep as ss
from surestep.solvers import _loop
from surestep.solvers.coordinate import CoordinateDescent
from zoo import problems

COLUMNS = ["epoch", "steps", "seconds", "objective", "gap", "nonzeros", "value_ratio", "still"]


@pytest.fixture(scope="module")
def problem():
    return dict(problems())["squared-l1-sample_weight"]


@pytest.fixture(scope="module")
def result(problem):
    return ss.coordinate_descent(problem, tol=1e-9)


def solve(problem, **options):
    return ss.coordinate_descent(problem, sampling="cyclic", step="exact", **options)


# Trace


def test_columns_of_the_trace(result, problem):
    trace = result.trace
    assert list(trace) == COLUMNS
    assert len(trace) == len(COLUMNS)
    assert dict(trace).keys() == set(COLUMNS)
    n = trace.n_rows
    assert all(trace[name].shape == (n,) and trace[name].dtype == np.float64 for name in trace)
    np.testing.assert_array_equal(trace["epoch"], np.arange(n))
    np.testing.assert_array_equal(trace["steps"], 8 * np.arange(n))
    assert trace["seconds"][0] > 0.0  # setting up takes time too
    assert (np.diff(trace["seconds"]) > 0.0).all()
    assert trace["objective"][0] == problem.objective(np.zeros(8))
    assert trace["gap"][0] == problem.duality_gap(np.zeros(8)).gap
    assert (trace["gap"] >= trace["objective"] - trace["objective"].min()).all()
    assert trace["nonzeros"][0] == 0
    assert trace["nonzeros"][-1] == np.count_nonzero(result.coef)
    assert np.isnan(trace["value_ratio"][0])
    assert (problem.smoothness.min() <= trace["value_ratio"][1:] * problem.smoothness.sum()).all()
    assert (trace["value_ratio"][1:] <= 1.0 + 1e-12).all()
    assert trace["still"].min() >= 0
    assert trace["still"].max() <= 8
    assert trace.last == {name: trace[name][-1] for name in trace}
    assert repr(trace) == f"Trace({n} rows: {', '.join(COLUMNS)})"


def test_value_ratio_of_fixed_distributions(problem):
    importance = ss.coordinate_descent(problem, sampling="importance", max_epochs=2)
    np.testing.assert_allclose(importance.trace["value_ratio"][1:], 1.0)
    uniform = ss.coordinate_descent(problem, sampling="uniform", max_epochs=2)
    L = problem.smoothness
    np.testing.assert_allclose(uniform.trace["value_ratio"][1:], 8 * L.max() / L.sum())
    assert np.isnan(solve(problem, max_epochs=2).trace["value_ratio"]).all()
    assert np.isnan(uniform.trace["still"]).all()


def test_the_optimal_value_is_recorded_on_request(problem):
    run = ss.coordinate_descent(problem, sampling="optimal", track_optimal=True, max_epochs=3, trace_every=1 / 8)
    assert list(run.trace) == [*COLUMNS, "optimal_value_ratio"]
    optimal, value = run.trace["optimal_value_ratio"], run.trace["value_ratio"]
    # With one step a row, the value of a step is the optimal one at the point before.
    np.testing.assert_allclose(value[1:], optimal[:-1], rtol=1e-9)
    L = problem.smoothness
    assert optimal[0] == ss.optimal_sampling(problem.optimality(np.zeros(8)), L).value / L.sum()


def test_a_missing_column_names_those_there_are(result):
    with pytest.raises(KeyError, match=r"the trace has no column 'gaps'; it has epoch, steps, seconds, objective, gap"):
        result.trace["gaps"]
    with pytest.raises(KeyError, match="no column 'gap'"):
        ss.Trace()["gap"]
    assert len(ss.Trace()) == ss.Trace().n_rows == 0
    assert list(ss.Trace()) == []


def test_to_frame(result):
    frame = result.trace.to_frame()
    assert list(frame.columns) == COLUMNS
    assert len(frame) == result.trace.n_rows
    np.testing.assert_array_equal(frame["objective"], result.trace["objective"])


def test_plot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    trace = ss.Trace()
    for epoch, gap in enumerate([1.0, 0.1, 0.0]):
        trace.append({"epoch": epoch, "seconds": 2.0 * epoch, "gap": gap})
    ax = trace.plot(label="mine")
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
    np.testing.assert_array_equal(line.get_ydata(), [1.0, 0.1, np.nan])  # a logarithmic scale has no zero
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale(), line.get_label()) == ("epoch", "gap", "log", "mine")
    assert trace.plot(x="seconds", ax=ax) is ax
    np.testing.assert_array_equal(ax.get_lines()[1].get_xdata(), [0, 2, 4])
    plt.close(ax.figure)


# Result and status


def test_the_result_says_what_its_point_is_worth(result, problem):
    assert result.status is ss.Status.CONVERGED
    assert result.objective == problem.objective(result.coef)
    assert result.gap == problem.duality_gap(result.coef).gap
    assert 0.0 <= result.gap <= 1e-9 * problem.objective(np.zeros(8))
    assert result.intercept == 0.0
    assert result.n_epochs == result.trace["epoch"][-1]
    assert result.n_steps == result.trace["steps"][-1]
    assert result.seconds == result.trace["seconds"][-1]
    assert result.message == (
        f"{ss.Status.CONVERGED.value} Certified gap {result.gap:.3e}, asked for "
        f"{1e-9 * problem.objective(np.zeros(8)):.3e}, after {result.n_epochs:g} epochs and {result.n_steps} steps."
    )
    assert "coef" not in repr(result)
    assert "CONVERGED" in repr(result)


def test_every_status_is_a_sentence():
    for status in ss.Status:
        assert status.value[0].isupper()
        assert status.value.endswith(".")
    assert {s.name for s in ss.Status if s.success} == {"CONVERGED", "CONVERGED_WITHOUT_CERTIFICATE", "OPTIMAL"}


def test_without_a_certificate_the_violation_is_reported():
    problem = dict(problems())["squared-none-dense"]
    result = ss.coordinate_descent(problem, sampling="cyclic", tol=1e-7)
    assert result.status is ss.Status.CONVERGED_WITHOUT_CERTIFICATE
    scale = np.sqrt(problem.smoothness)
    start, end = ((problem.optimality(x) / scale).max() for x in (np.zeros(8), result.coef))
    assert end <= 1e-7 * start
    assert f"Largest optimality violation {end:.3e}, asked for {1e-7 * start:.3e}, after" in result.message
    assert result.gap == np.inf


def test_too_few_epochs(problem):
    result = solve(problem, max_epochs=2, tol=1e-12)
    assert result.status is ss.Status.MAX_EPOCHS
    assert not result.status.success
    assert result.n_epochs == 2
    assert result.n_steps == 16
    assert "raise max_epochs" in result.message


def test_no_epochs_return_the_start(problem):
    result = solve(problem, max_epochs=0)
    np.testing.assert_array_equal(result.coef, np.zeros(8))
    assert result.status is ss.Status.MAX_EPOCHS
    assert (result.trace.n_rows, result.n_steps) == (1, 0)
    start = np.linspace(-1, 1, 8)
    result = solve(problem, max_epochs=0, warm_start=start)
    np.testing.assert_array_equal(result.coef, start)
    assert result.objective == problem.objective(start)


# Parts of an epoch


@pytest.mark.parametrize("trace_every", [0.1, 0.3, 0.5, 1 / 7, 0.02, 3, np.inf])
def test_parts_of_an_epoch_add_up(trace_every, problem):
    """With 7 coordinates no part of an epoch but a seventh is a whole number of steps."""
    seven = ss.Problem(np.array(problem.design.columns.values.T[:, :7]), problem.y, "squared", ss.L1(0.05))
    whole, parts = (solve(seven, max_epochs=6, tol=1e-15, trace_every=every) for every in (1, trace_every))
    np.testing.assert_array_equal(whole.coef, parts.coef)
    assert (parts.n_epochs, parts.n_steps) == (6, 42)
    trace = parts.trace
    assert trace.n_rows == max(np.ceil(round(6 / trace_every, 9)), 1) + 1
    np.testing.assert_allclose(trace["steps"], 7 * trace["epoch"], atol=0.5 + 1e-9)
    assert (np.diff(trace["seconds"]) >= 0.0).all()


# Callbacks


def test_callbacks_see_the_progress(problem):
    seen = []
    result = solve(problem, tol=1e-9, callbacks=[seen.append, lambda progress: None])
    assert [progress.row for progress in seen] == [
        {name: result.trace[name][k] for name in COLUMNS}
        | {"value_ratio": pytest.approx(np.nan, nan_ok=True)}
        | {"still": pytest.approx(np.nan, nan_ok=True)}
        for k in range(result.trace.n_rows)
    ]
    fractions = [progress.fraction for progress in seen]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert all(0.0 <= fraction <= 1.0 for fraction in fractions)
    gaps = result.trace["gap"]
    expected = np.log(gaps[0] / gaps[1]) / np.log(gaps[0] / (1e-9 * problem.objective(np.zeros(8))))
    assert fractions[1] == pytest.approx(expected)
    np.testing.assert_array_equal(seen[-1].x, result.coef)


def test_a_callback_can_stop(problem):
    def stop_at_three(progress):
        progress.stop = progress.row["epoch"] == 3

    result = solve(problem, tol=1e-12, callbacks=[stop_at_three])
    assert result.status is ss.Status.STOPPED
    assert not result.status.success
    assert result.n_epochs == 3
    np.testing.assert_array_equal(result.coef, solve(problem, max_epochs=3, tol=1e-12).coef)


def test_to_stop_at_the_goal_is_to_arrive(problem):
    result = solve(problem, tol=1e-6, callbacks=[lambda progress: setattr(progress, "stop", progress.fraction == 1.0)])
    assert result.status is ss.Status.CONVERGED


def test_errors_of_a_callback_are_not_swallowed(problem):
    def fail(progress):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        solve(problem, callbacks=[fail])


def test_an_interrupted_run_returns_its_best_point(problem, monkeypatch):
    plain, calls = CoordinateDescent._steps, []

    def interrupted(self, n_steps):
        calls.append(n_steps)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(self, n_steps)

    monkeypatch.setattr(CoordinateDescent, "_steps", interrupted)
    result = solve(problem, tol=1e-12)
    assert result.status is ss.Status.INTERRUPTED
    assert not result.status.success
    assert result.message.startswith(ss.Status.INTERRUPTED.value)
    assert result.objective == result.trace["objective"].min()
    assert result.objective < problem.objective(np.zeros(8))
    assert result.gap == problem.duality_gap(result.coef).gap
    assert result.seconds >= result.trace["seconds"][-1]


def test_a_debug_message_a_row(problem, caplog):
    with caplog.at_level(logging.DEBUG, logger="surestep"):
        result = solve(problem, max_epochs=3, tol=1e-12)
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("epoch")]
    assert len(lines) == result.trace.n_rows
    assert lines[2] == f"epoch 2: objective {result.trace['objective'][2]:.6e}, gap {result.trace['gap'][2]:.3e}"


# The clock


def test_the_clock_stands_still_while_the_gap_is_computed(problem, monkeypatch):
    """Each look at the clock adds a second: only the two around the steps count, and those the solver itself takes."""

    class Clock:
        now = 0.0

        def perf_counter(self):
            self.now += 1.0
            return self.now

    clock = Clock()
    monkeypatch.setattr(_loop, "time", clock)
    gaps = []
    plain = type(problem).duality_gap

    def slow(self, x):
        clock.now += 100.0
        gaps.append(0)
        return plain(self, x)

    monkeypatch.setattr(type(problem), "duality_gap", slow)
    result = solve(problem, max_epochs=5, tol=1e-12)
    set_up = result.trace["seconds"][0]
    np.testing.assert_allclose(result.trace["seconds"] - set_up, np.arange(6.0), rtol=1e-12)
    assert result.seconds - set_up == pytest.approx(5.0)
    assert len(gaps) >= 6
