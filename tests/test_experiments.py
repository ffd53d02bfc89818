"""The paper's figures at a tiny scale: what is run, resumed, told and drawn."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest

import surestep as ss
from surestep.experiments import page
from surestep.experiments.beyond import fast_solver
from surestep.experiments.cases import Case, InterruptedRunsError, run_figure
from surestep.experiments.comparison import is_solved_at_zero
from surestep.experiments.figures import FIGURES, FULL, QUICK, Panel, Scale, data_of, problem_of, readings
from surestep.experiments.findings import findings, is_like_the_paper
from surestep.experiments.report import write_report
from surestep.experiments.runs import Method, is_cut_short, run_methods
from surestep.solvers.coordinate import CoordinateDescent

pytest.importorskip("matplotlib")

TINY = Scale("tiny", 100, 4.0, 2.0, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Figure 2 at the tiny scale; its runs are those of Figures 5 and 6 as well."""
    folder = tmp_path_factory.mktemp("figures")
    write_report([2], TINY, folder)
    return folder


def result(objectives, *, ratio=1.0, seconds=1.0) -> ss.Result:
    """A run with given objectives, a row an epoch."""
    trace = ss.Trace()
    for k, value in enumerate(objectives):
        trace.append(
            {
                "epoch": k,
                "steps": 10.0 * k,
                "seconds": seconds * k,
                "objective": value,
                "gap": value,
                "value_ratio": ratio,
            }
        )
    n = len(objectives) - 1
    return ss.Result(np.zeros(2), 0.0, value, value, ss.Status.MAX_EPOCHS, "", trace, n, 10 * n, seconds * n)


def case(number=3, reading="lambda = 0.1", penalty="L1", **runs) -> Case:
    """A case with f(0) = 0.5 and f* = 0, and the given objectives of its methods."""
    problem = ss.Problem(np.eye(2), [1.0, -1.0], "squared", ss.L1(0.1))
    made = {name: [result(objectives)] for name, objectives in runs.items()}
    return Case(FIGURES[number], Panel("rcv1'", penalty), reading, "a set", problem, 0.1, 0.5, 0.0, 1, made)


# Specifications


def test_figures_are_those_of_the_paper():
    assert list(FIGURES) == list(range(2, 10))
    panels = {number: [(p.data, p.penalty) for p in figure.panels] for number, figure in FIGURES.items()}
    assert panels[3] == [("rcv1'", "L1"), ("real-sim'", "L2")]
    assert panels[6] == [("real-sim", "L1"), ("real-sim", "L2")]
    assert panels[9] == [("news20'", "L1")]
    assert [figure.loss for figure in FIGURES.values()] == ["squared", "squared_hinge", "logistic"] + 5 * ["squared"]
    for figure in FIGURES.values():
        assert figure.is_stochastic == (figure.number >= 7)
        for method in figure.methods:
            if not figure.is_stochastic:
                assert method.options["smoothness"] == "constant"  # L_i = L, as in the paper
            if method.options["sampling"] == "safe" and not figure.is_stochastic:
                assert method.options["bounds"] == "cauchy-schwarz"  # from 0 and infinity
    assert "optimal" not in [method.name for method in FIGURES[6].methods]


def test_readings_of_lambda():
    X, y, name = data_of("rcv1'", TINY)
    assert set(np.unique(X.data)) == {1.0}
    assert name == "bag_of_words, seed 0"
    problem = problem_of(X, y, "squared", "L1")
    found = readings(problem, "L1")
    assert found["lambda = 0.1"] == 0.1
    assert found["lambda = 0.1 / N (summed loss)"] == 0.001
    above = problem.with_regularizer(ss.L1(10 * found["lambda_max / 10"] * 1.0001))
    assert is_solved_at_zero(above, ss.minimize(above).objective)
    assert readings(problem, "L2") == {"lambda = 0.1": 0.2}  # lambda ||x||^2 is our L2(2 lambda)


def test_generated_data_is_reported_under_its_own_name(monkeypatch):
    monkeypatch.delenv("SURESTEP_DATA", raising=False)
    monkeypatch.setenv("SURESTEP_CACHE", "/nowhere")
    for figure in FIGURES.values():
        for panel in figure.panels:
            assert "bag_of_words" in data_of(panel.data, QUICK)[2]
    assert "bag_of_words" in data_of("rcv1'", FULL)[2]
    assert data_of("rcv1'", FULL)[0].shape == (10_000, 10_000)


def test_a_stand_in_is_reported_under_its_own_name(tmp_path, monkeypatch):
    import scipy.sparse

    entries = np.arange(20_000)
    X = scipy.sparse.csr_array((np.full(20_000, 3.0), (entries, entries)), shape=(50_000, 20_488))
    scipy.sparse.save_npz(tmp_path / "imdb_counts.npz", X)
    with np.load(tmp_path / "imdb_counts.npz") as file:
        parts = dict(file)
    np.savez(tmp_path / "imdb_counts.npz", y=np.ones(50_000), **parts)
    monkeypatch.setenv("SURESTEP_DATA", str(tmp_path))
    monkeypatch.setenv("SURESTEP_CACHE", str(tmp_path / "cache"))
    data_of.cache_clear()
    assert data_of("real-sim'", FULL)[2] == "imdb_counts'"
    assert data_of("real-sim'", FULL)[0].shape == (10_000, 10_000)
    data_of.cache_clear()


# Runs


def test_runs_are_resumed_and_told_apart(tmp_path):
    X, y, _ = data_of("rcv1'", TINY)
    problem = problem_of(X, y, "squared", "L1").with_regularizer(ss.L1(0.01))
    methods = [Method("uniform", options={"sampling": "uniform"})]
    done = []

    def watch(name):
        return lambda progress: done.append(name)

    options = {"seeds": (0, 1), "folder": tmp_path, "watch": watch, "max_epochs": 2.0, "tol": 1e-9, "trace_every": 1.0}
    first = run_methods(problem, methods, **options)
    assert len(list(tmp_path.glob("*.npz"))) == 2
    done.clear()
    again = run_methods(problem, methods, **options)
    assert done == []  # nothing was run
    for one, other in zip(first["uniform"], again["uniform"], strict=True):
        np.testing.assert_array_equal(one.trace["objective"], other.trace["objective"])
        np.testing.assert_array_equal(one.coef, other.coef)
    run_methods(problem.with_regularizer(ss.L1(0.02)), methods, **options)
    run_methods(problem, methods, **{**options, "max_epochs": 3.0})
    assert len(list(tmp_path.glob("*.npz"))) == 6


def test_an_interrupted_figure_goes_on_where_it_stopped(tmp_path, folder):
    asked = []

    def stop_after_some(name):
        asked.append(name)

        def callback(progress):
            progress.stop = len(asked) > 12

        return callback

    with pytest.raises(InterruptedRunsError):
        write_report([2], TINY, tmp_path, stop_after_some)
    kept = {path.name for path in (tmp_path / "runs").iterdir()}
    assert 0 < len(kept) < 12
    assert "No figure is complete yet" in (tmp_path / "report.html").read_text()
    asked.clear()
    cases = run_figure(FIGURES[2], TINY, tmp_path)
    assert kept < {path.name for path in (tmp_path / "runs").iterdir()}
    whole = run_figure(FIGURES[2], TINY, folder)
    for one, other in zip(cases, whole, strict=True):
        for name in one.runs:
            for a, b in zip(one.runs[name], other.runs[name], strict=True):
                np.testing.assert_array_equal(a.trace["objective"], b.trace["objective"])


def test_warming_up_goes_on_until_blocks_have_looked_at_their_bounds(monkeypatch):
    """What is compiled only at the first look at all coordinates must not be on the clock of the run that counts."""
    n_looks, look = [], CoordinateDescent._begin_block
    monkeypatch.setattr(CoordinateDescent, "_begin_block", lambda *a: n_looks.append(1) or look(*a))
    X, y, _ = data_of("rcv1'", Scale("small", 400, 4.0, 2.0, 1))
    problem = problem_of(X, y, "squared", "L1")
    problem = problem.with_regularizer(ss.L1(problem.alpha_max() / 100))
    Method("safe", options={"sampling": "safe", "step": "exact"}).compile(problem, lambda name: lambda progress: None)
    assert n_looks


def test_a_run_that_is_out_of_budget_is_complete(tmp_path):
    X, y, _ = data_of("rcv1'", TINY)
    problem = problem_of(X, y, "squared", "L1").with_regularizer(ss.L1(0.01))
    method = Method("uniform", options={"sampling": "uniform", "trace_every": 0.25})
    options = {"folder": tmp_path, "max_epochs": 3.0, "tol": 1e-9, "trace_every": 1.0}
    (short,) = run_methods(problem, [method], budget=1e-9, **options)["uniform"]
    assert short.status is ss.Status.STOPPED
    assert short.n_epochs == 0.25  # the first row after the start; the method's own trace_every
    assert not is_cut_short(short, 1e-9)
    assert is_cut_short(short, 60.0)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    (long,) = run_methods(problem, [method], **options)["uniform"]  # another budget, another run
    assert long.n_epochs == 3.0


# Measures


def test_speedup_is_the_ratio_of_times_to_a_level_that_both_reach():
    fast = [0.5 * 0.1**k for k in range(7)]
    slow = [0.5 * 0.1 ** (k / 2) for k in range(7)]
    both = case(safe=fast, uniform=slow)
    assert both.speedup("safe", "uniform") == pytest.approx(2.0)
    assert both.speedup("uniform", "safe") == pytest.approx(0.5)
    assert both.speedup("safe", "safe") == 1.0
    assert both.final("uniform") == pytest.approx(1e-3)
    assert both.microseconds("safe") == pytest.approx(1e5)
    nowhere = case(safe=[0.5, 0.6, 0.55], uniform=slow)
    assert math.isnan(nowhere.speedup("safe", "uniform"))
    assert findings([nowhere]) == []  # there is nothing to compare


def test_verdicts_follow_the_numbers():
    fast, slow = [0.5 * 0.1**k for k in range(5)], [0.5 * 0.5**k for k in range(5)]

    def verdicts(**runs):
        return {f.question.split()[0]: f.verdict for f in reversed(findings([case(**runs)]))}

    assert verdicts(safe=fast, uniform=slow, optimal=fast)["Does"] == "yes"
    assert verdicts(safe=slow, uniform=fast, optimal=fast)["Does"] == "no"
    assert verdicts(safe=fast, uniform=slow, optimal=fast)["Is"] == "yes"
    assert verdicts(safe=slow, uniform=slow, optimal=fast)["Is"] == "no"
    assert verdicts(safe=fast, uniform=slow, optimal=fast)["Are"] == "no"  # v is Tr(L)
    steps = {"safe, big steps": fast, "safe, small steps": slow, "optimal, big steps": fast, "uniform": slow}
    found = findings([case(number=2, **steps, **{"optimal, small steps": slow})])
    assert found[0].verdict == "yes"
    sgd = findings([case(number=7, safe=slow, uniform=slow, optimal=slow)])
    assert [f.verdict for f in sgd] == ["yes"]
    assert findings([case(number=7, safe=slow, uniform=slow, optimal=fast)])[0].verdict == "no"


def test_what_is_like_the_paper():
    fast, slow = [0.5 * 0.1**k for k in range(5)], [0.5 * 0.5**k for k in range(5)]
    like = case(uniform=slow)
    like.runs["safe"] = [result(fast, ratio=0.2)]
    assert is_like_the_paper(like)
    like.runs["safe"] = [result(fast, ratio=0.95)]
    assert not is_like_the_paper(like)
    like.runs["safe"] = [result(slow, ratio=0.2)]
    assert not is_like_the_paper(like)


# The report


def test_the_report_has_pictures_tables_and_verdicts(folder):
    text = (folder / "report.html").read_text()
    assert text.count("<img ") == 10  # five cases, by epochs and by seconds
    assert len(list(folder.glob("figure-2-*.svg"))) == 10
    assert "http" not in re.sub(r"base64,[^']*", "", text)  # nothing is fetched
    assert "<script" not in text
    assert "need adaptive stepsizes?" in text
    with open(folder / "figure-2.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["reading"] for row in rows} == {
        "lambda = 0.1",
        "lambda_max / 10",
        "lambda_max / 100",
        "lambda = 0.1 / N (summed loss)",
    }
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert all(float(row["objective"]) >= float(row["best"]) for row in rows)
    assert all(0.0 <= float(row["value_ratio"]) <= 1.0 + 1e-12 for row in rows if row["value_ratio"] not in ("", "nan"))


def test_figures_of_sgd(tmp_path):
    cases = run_figure(FIGURES[8], TINY, tmp_path)
    assert len(cases) == 4
    assert all(run.n_epochs <= 2.0 for c in cases for runs in c.runs.values() for run in runs)


def test_the_fast_solver_is_held_to_the_same_gap():
    study = fast_solver(TINY, lambda name: lambda progress: None)
    assert len(study.rows) == 6
    assert all(row[-1] < 1e-5 for row in study.rows)


def test_numbers_for_people():
    assert page.number(math.inf) == "not reached"
    assert page.number(0.123456) == "0.123"
    assert page.number(12345.6) == "12,346"
    assert page.number("as it is") == "as it is"
    assert "&lt;b&gt;" in page.table(["a"], [["<b>"]])
