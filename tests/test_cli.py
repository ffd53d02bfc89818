"""The command line: every command does what it says, and errors are one line."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import surestep as ss
from surestep.datasets import load_dataset, load_svmlight, save_svmlight

click = pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner  # noqa: E402

from surestep.cli.commands import surestep  # noqa: E402
from surestep.cli.shared import plain  # noqa: E402


@pytest.fixture(autouse=True)
def in_an_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SURESTEP_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "120")


def run(*words: str, code: int = 0) -> str:
    """Run a command in this process; return what it writes to standard output."""
    result = CliRunner().invoke(surestep, words)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def error_of(*words: str, code: int = 1) -> str:
    """Run a command that fails; its only line on standard error, after any usage."""
    result = CliRunner().invoke(surestep, words)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    if code == 1:
        assert len(lines) == 1
    assert lines[-1].startswith("Error: ")
    return lines[-1]


def process(*words: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "surestep.cli", *words], capture_output=True, text=True, check=False, **options
    )


# Fit and predict


def test_fit_and_predict():
    out = run("fit", "breast_cancer", "--penalty", "l2", "--alpha", "0.01", "--out", "model.npz")
    assert "569 samples, 30 features" in out
    model = ss.Model.load("model.npz")
    X, y = load_dataset("breast_cancer").X, load_dataset("breast_cancer").y
    direct = ss.minimize(ss.Problem(X, y, "logistic", ss.L2(0.01), fit_intercept=True))
    np.testing.assert_array_equal(model.result.coef, direct.coef)
    assert model.result.gap == direct.gap

    run("predict", "model.npz", "breast_cancer", "--out", "labels.txt")
    labels = np.loadtxt("labels.txt")
    np.testing.assert_array_equal(labels, np.where(X @ direct.coef + direct.intercept > 0, 1.0, -1.0))
    told = json.loads(run("predict", "model.npz", "breast_cancer", "--json"))
    assert told["accuracy"] == np.mean(labels == y)
    assert told["predictions"] == labels.tolist()
    scores = run("predict", "model.npz", "breast_cancer", "--scores")
    np.testing.assert_allclose(np.fromstring(scores, sep="\n"), X @ direct.coef + direct.intercept, rtol=1e-12)


def test_fit_of_a_file_tells_the_same_as_json(tmp_path):
    X, y = load_dataset("diabetes").X, load_dataset("diabetes").y
    save_svmlight(X, y, "diabetes.svm")
    told = json.loads(run("fit", "diabetes.svm", "--alpha", "max/100", "--no-intercept", "--json"))
    again, targets = load_svmlight("diabetes.svm")
    problem = ss.Problem(again, targets, regularizer=ss.L1(1.0))
    problem = problem.with_regularizer(ss.L1(problem.alpha_max() / 100))
    assert told["objective"] == ss.minimize(problem).objective
    assert told["status"] == "CONVERGED"
    assert told["loss"] == "Squared()"
    assert told["regularizer"] == repr(problem.regularizer)


def in_two_files(name: str) -> None:
    """Half of a data set in each of two files of a folder."""
    X, y = load_dataset(name).X, load_dataset(name).y
    Path("folder").mkdir()
    half = y.size // 2
    save_svmlight(X[:half], y[:half], "folder/1.svm")
    save_svmlight(X[half:], y[half:], "folder/2.svm")


def test_fit_and_path_in_row_partitions():
    pytest.importorskip("distributed")
    in_two_files("breast_cancer")
    options = "--alpha", "max/20", "--tol", "1e-9", "--json"
    local = json.loads(run("fit", "breast_cancer", *options))
    told = json.loads(run("fit", "folder/1.svm", "folder/2.svm", "--workers", "1", *options, "--out", "model.npz"))
    assert (told["n_samples"], told["n_features"], told["loss"]) == (569, 30, "Logistic()")
    assert told["data"] == "2 files"
    assert told["objective"] == pytest.approx(local["objective"], rel=1e-8)
    assert json.loads(run("predict", "model.npz", "breast_cancer", "--json"))["accuracy"] > 0.9
    (alphas, found) = (
        [point["alpha"] for point in json.loads(run("path", *where, "--n-alphas", "3", "--json"))["path"]]
        for where in (["breast_cancer"], ["folder", "--workers", "1"])
    )
    np.testing.assert_allclose(found, alphas, rtol=1e-9)


def test_errors_of_partitions_are_one_line():
    pytest.importorskip("distributed")
    in_two_files("diabetes")
    assert "2 files are read in row partitions only" in error_of("fit", "folder/1.svm", "folder/2.svm")
    assert "there is no file 'no/*.svm'" in error_of("fit", "no/*.svm", "--workers", "1")
    both = "fit", "folder", "--workers", "1", "--cluster", "tcp://127.0.0.1:1"
    assert "exclude each other" in error_of(*both, code=2)


def test_a_tolerance_that_is_not_reached_has_a_code_of_its_own():
    told = json.loads(run("fit", "breast_cancer", "--tol", "1e-12", "--max-rounds", "1", "--json", code=3))
    assert told["status"] == "MAX_EPOCHS"


def test_empty_last_columns_of_a_file_are_no_error():
    X = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    save_svmlight(X, [1.0, 2.0, 3.0], "whole.svm")
    save_svmlight(X[1:2], [2.0], "short.svm")  # its last column is empty
    run("fit", "whole.svm", "--loss", "squared", "--alpha", "0.01", "--out", "model.npz")
    assert len(run("predict", "model.npz", "short.svm").splitlines()) == 1


# Models


def test_models_run_no_code_and_are_checked():
    with open("evil.npz", "wb") as file:
        pickle.dump(os.getcwd, file)
    assert "not a model that surestep has saved" in error_of("predict", "evil.npz", "diabetes")
    np.savez("object.npz", head=np.array([{"a": 1}], dtype=object))
    assert "not a model that surestep has saved" in error_of("predict", "object.npz", "diabetes")
    Path("empty.npz").write_bytes(b"")
    assert "not a model that surestep has saved" in error_of("predict", "empty.npz", "diabetes")
    assert "No such file" in error_of("predict", "none.npz", "diabetes")


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("support", np.array([99]), "not among"),
        ("support", np.array([0, 1]), "do not fit together"),
        ("values", np.array([np.nan]), "not finite"),
        ("classes", np.arange(3.0), "3 classes"),
        ("scalars", np.arange(3.0), "is damaged"),
        ("trace", np.zeros(7), "is damaged"),
        ("n_features", np.array(-1), "do not fit together"),
    ],
)
def test_a_damaged_model_says_so(part, value, complaint):
    X, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([1.0, 0.0, 1.0])
    problem = ss.Problem(X, y, regularizer=ss.L1(0.2))
    ss.Model.of(problem, ss.minimize(problem)).save("model.npz")
    with np.load("model.npz") as file:
        parts = dict(file)
    assert parts["support"].size == 1
    assert ss.Model.load("model.npz").n_features == 2
    np.savez("damaged.npz", **{**parts, part: value})
    with pytest.raises(ValueError, match=complaint):
        ss.Model.load("damaged.npz")
    head = json.loads(parts["head"].tobytes())
    later = np.frombuffer(json.dumps({**head, "version": 2}).encode(), np.uint8)
    np.savez("later.npz", **{**parts, "head": later})
    with pytest.raises(ValueError, match="version 2 of the format"):
        ss.Model.load("later.npz")


def test_a_model_comes_back_as_it_was():
    data = load_dataset("breast_cancer")
    problem = ss.Problem(data.X, data.y, "logistic", ss.L1(0.05), fit_intercept=True)
    result = ss.minimize(problem)
    ss.Model.of(problem, result, {"data": "breast_cancer"}).save("model.npz")
    model = ss.Model.load("model.npz")
    for name in ("intercept", "objective", "gap", "status", "message", "n_epochs", "n_steps", "seconds"):
        assert getattr(model.result, name) == getattr(result, name), name
    np.testing.assert_array_equal(model.result.coef, result.coef)
    assert list(model.result.trace) == list(result.trace)
    for column in result.trace:
        np.testing.assert_array_equal(model.result.trace[column], result.trace[column])
    assert model.about == {"data": "breast_cancer"}
    assert not list(Path().glob("*.partial"))


# Compare, path, data


def test_compare_writes_a_table_and_a_page():
    pytest.importorskip("matplotlib")
    words = ("compare", "diabetes", "--samplings", "importance,safe", "--bounds", "snapshot,exact", "--repeats", "2",
             "--tol", "0.01")  # fmt: skip
    told = json.loads(run(*words, "--out", "comparison.html", "--json"))
    assert [row["method"] for row in told["methods"]] == ["importance", "safe, snapshot", "safe, exact"]
    assert all(row["runs"] == row["reached"] == 2 for row in told["methods"])
    text = Path("comparison.html").read_text()
    assert text.count("data:image/svg+xml;base64,") == 2
    assert "safe, exact" in run(*words)


def test_path():
    told = json.loads(run("path", "diabetes", "--n-alphas", "5", "--out", "path.csv", "--json"))
    nonzeros = [row["nonzeros"] for row in told["path"]]
    assert len(nonzeros) == 5
    assert nonzeros[0] == 0
    assert nonzeros[-1] > 3
    table = np.loadtxt("path.csv", delimiter=",", skiprows=1)
    assert len(table) == sum(nonzeros)
    assert "leave --alpha out" in error_of("path", "diabetes", "--alpha", "1")


def test_demo_tells_the_example_of_the_paper_and_writes_its_report(monkeypatch):
    pytest.importorskip("matplotlib")
    from surestep.cli import demo

    monkeypatch.setattr(demo, "SIDE", 100)
    out = run("demo", "--repeats", "2", "--out", "here.html")
    assert "2.25" in out  # V for sampling by the lower bounds, over ||c||^2
    gains = [float(gain) for gain in re.findall(r"(\d+\.\d\d)x", out)]
    assert len(gains) == 6
    assert gains == sorted(gains)  # the more is known, the larger the gain
    assert gains[0] == 1.0
    assert re.search(r"Report: .*here.html", out.replace("\n", ""))
    for name in ("uniform", "importance", "safe", "optimal"):
        assert re.search(rf"^{name} +\d", out, re.MULTILINE), name
    assert Path("here.html").read_text().count("<img ") == 2
    told = json.loads(run("demo", "--repeats", "1", "--json"))
    uniform, _, _, optimal = told["methods"]
    assert optimal["gap"] < uniform["gap"]


def test_data():
    assert "bag_of_words" in run("data", "list")
    names = [row["name"] for row in json.loads(run("data", "list", "--json"))["datasets"]]
    assert "rcv1_train.binary" in names
    assert json.loads(run("data", "get", "iris", "--json"))["shape"] == [150, 4]


# Errors


def test_errors_are_one_line():
    assert "nor a data set of that name" in error_of("fit", "no-such-file")
    Path("bad.svm").write_text("1 1:2\n1 x\n")
    assert "bad.svm, line 2" in error_of("fit", "bad.svm")
    Path("none.svm").write_text("")
    assert "none.svm has no samples" in error_of("fit", "none.svm")
    assert "is a folder" in error_of("fit", ".")
    assert "exactly two classes" in error_of("fit", "iris", "--loss", "logistic")
    assert "needs a penalty with an L1 part" in error_of("fit", "diabetes", "--penalty", "l2", "--alpha", "max/10")
    assert "--loss" in error_of("fit", "diabetes", "--loss", "cubic", code=2)
    assert "neither a number" in error_of("fit", "diabetes", "--alpha", "max/0", code=2)
    assert "'best' is not one of" in error_of("compare", "diabetes", "--samplings", "best", code=2)
    assert "--nonsense" in error_of("fit", "diabetes", "--nonsense", code=2)
    assert "do you mean" in error_of("data", "get", "rcv")
    run("fit", "diabetes", "--out", "model.npz")
    assert "has 30 columns, but the model was fitted on 10" in error_of("predict", "model.npz", "breast_cancer")
    assert "No such file" in error_of("fit", "diabetes", "--out", "no/such/folder/model.npz")


def test_json_has_no_numbers_that_are_not():
    assert plain({"a": np.inf, "b": [np.float64("nan"), np.int64(1)], "c": np.array([1.0])}) == {
        "a": None,
        "b": [None, 1],
        "c": [1.0],
    }


# As programs


def test_without_click_it_says_what_to_install(tmp_path):
    (tmp_path / "click.py").write_text("raise ImportError('not here')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = process("fit", "diabetes", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 1
    assert done.stderr.strip() == "the command line needs click and rich: pip install 'surestep[cli]'"


def test_the_program_ends_with_its_exit_code():
    done = process("fit", "no-such-file", env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 1
    assert done.stderr.startswith("Error: there is no file no-such-file")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_leaves_a_valid_partial_result():
    """A run that would take for ever is interrupted: its table and page are there."""
    words = ["compare", "bag_of_words", "--samplings", "cyclic", "--tol", "1e-300", "--max-epochs", "1e9", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        assert any("started" in line for line in running.stderr)  # or it ended before
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "Stopping after this pass" in err
    (row,) = json.loads(out)["methods"]
    assert row["statuses"] == ["STOPPED"]
    assert row["gap"] > 0


PATIENT = """
import sys
from surestep.cli import progress

class Told(progress.Watcher):
    def __call__(self, name):
        show = super().__call__(name)
        def told(state):
            print("started", file=sys.stderr, flush=True)
            show(state)
        return told

import surestep.cli.commands as commands
commands.Watcher = Told
commands.surestep(sys.argv[1:])
"""


# Documents


def examples_of_help() -> list[str]:
    """Every line that a help text shows as an example."""
    found = []

    def walk(command, name):
        found.extend(re.findall(r"^\s+(surestep .*)$", command.help or "", re.MULTILINE))
        for sub in getattr(command, "commands", {}).values():
            walk(sub, f"{name} {sub.name}")

    walk(surestep, "surestep")
    return found


def commands_of_the_readme() -> list[str]:
    """Every line of the README's blocks without a language that calls surestep."""
    text = (Path(__file__).resolve().parent.parent / "README.md").read_text()
    blocks = re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [
        line.split("#")[0].strip() for block in blocks for line in block.splitlines() if line.startswith("surestep ")
    ]


def test_every_example_runs(monkeypatch):
    """Those of all help texts and of the README, in order, at a smaller scale where a minute would not do."""
    from surestep.cli import commands, demo, figure
    from surestep.experiments.figures import FIGURES, Scale

    pytest.importorskip("matplotlib")
    monkeypatch.setattr(commands, "COMPILED", ("squared",))
    monkeypatch.setattr(figure, "QUICK", Scale("tiny", 20, 2.0, 1.0, 1))
    monkeypatch.setattr(figure, "FIGURES", {number: FIGURES[number] for number in (2, 8)})
    monkeypatch.setattr(demo, "SIDE", 100)
    lines = examples_of_help() + commands_of_the_readme()
    assert len(lines) >= 10
    in_two_files("breast_cancer")
    if importlib.util.find_spec("distributed") is None:
        lines = [line for line in lines if "--workers" not in line]
    for line in lines:
        words = line.split()[1:]
        result = CliRunner().invoke(surestep, words)
        assert result.exit_code in (0, 3), (line, result.output, result.exception)


def test_every_command_has_help_and_an_example():
    def walk(command, words):
        assert "Usage" in run(*words, "--help")
        assert command.help, words
        for name, sub in getattr(command, "commands", {}).items():
            walk(sub, [*words, name])
        if not hasattr(command, "commands"):
            assert any(line.split()[1 : 1 + len(words)] == words for line in examples_of_help()), words

    walk(surestep, [])
