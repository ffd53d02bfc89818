"""Displays: what they show is what they were given, and it can be read."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surestep as ss
from surestep import displays
from surestep.displays import ConvergenceDisplay, PathDisplay, SamplingDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def result(gaps, *, best=1.0, seconds=None, ratios=None, optimal=None) -> ss.Result:
    """A run with the given gaps, whose objective is best + gap / 2."""
    trace = ss.Trace()
    for k, gap in enumerate(gaps):
        row = {"epoch": k, "steps": 10 * k, "seconds": k + 0.5 if seconds is None else seconds[k]}
        row |= {"objective": best + gap / 2, "gap": gap, "nonzeros": k}
        row["value_ratio"] = np.nan if ratios is None else ratios[k]
        if optimal is not None:
            row["optimal_value_ratio"] = optimal[k]
        trace.append(row)
    last = trace.last
    return ss.Result(
        np.zeros(10), 0.0, last["objective"], last["gap"], ss.Status.MAX_EPOCHS, "", trace, len(gaps) - 1, 0, 0.0
    )


def draw(display):
    """Render: what cannot be drawn fails here."""
    display.figure_.canvas.draw()
    return display


# Convergence


def test_one_run():
    display = draw(ConvergenceDisplay.from_results(result([4.0, 1.0, 0.25, 0.0])))
    (line,) = display.lines_.values()
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2, 3])
    np.testing.assert_array_equal(line.get_ydata(), [4.0, 1.0, 0.25, np.nan])  # a logarithmic scale has no zero
    assert display.ax_.get_yscale() == "log"
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("epochs", "duality gap")
    assert display.ax_.get_legend() is None
    assert display.bands_ == {}
    assert display.ratio_ax_ is None
    assert display.figure_ is display.ax_.figure


def test_several_runs_have_names_and_styles_of_their_own():
    results = {f"method {k}": result([2.0, 1.0 / (k + 1)]) for k in range(14)}
    display = draw(ConvergenceDisplay.from_results(results, x="seconds", y="objective"))
    assert list(display.lines_) == list(results)
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == list(results)
    lines = display.lines_.values()
    looks = {(line.get_color(), str(line._unscaled_dash_pattern), line.get_marker()) for line in lines}
    assert len(looks) == 14
    without_colour = {(str(line._unscaled_dash_pattern), line.get_marker()) for line in lines}
    assert len(without_colour) == 14
    np.testing.assert_array_equal(display.lines_["method 3"].get_ydata(), [2.0, 1.125])
    np.testing.assert_array_equal(display.lines_["method 3"].get_xdata(), [0.5, 1.5])


@pytest.mark.parametrize(("y", "expected"), [("suboptimality", [2.0, 0.5]), ("relative_suboptimality", [1.0, 0.25])])
def test_suboptimality_is_measured_from_the_best(y, expected):
    runs = {"a": result([4.0, 1.0]), "b": result([4.0, 0.5])}
    display = ConvergenceDisplay.from_results(runs, y=y, best=1.0)
    np.testing.assert_allclose(display.lines_["a"].get_ydata(), expected)
    display = ConvergenceDisplay.from_results(runs, y="suboptimality")  # f* is taken to be 1.25, the last of b
    np.testing.assert_allclose(display.lines_["a"].get_ydata(), [1.75, 0.25])
    np.testing.assert_allclose(display.lines_["b"].get_ydata(), [1.75, np.nan])


def test_bands_are_quartiles_over_seeds():
    runs = [result([8.0, gap]) for gap in (1.0, 2.0, 3.0, 4.0, 5.0)]
    display = draw(ConvergenceDisplay.from_results({"safe": runs}))
    curve = display.curves["safe"]
    assert curve.n_runs == 5
    np.testing.assert_array_equal([curve.lower, curve.median, curve.upper], [[8, 2], [8, 3], [8, 4]])
    corners = display.bands_["safe"].get_paths()[0].vertices
    assert {2.0, 4.0} <= set(corners[:, 1])
    np.testing.assert_array_equal(display.lines_["safe"].get_ydata(), [8.0, 3.0])
    assert ConvergenceDisplay.from_results(runs).curves.keys() == {""}  # a list alone is one kind of run


def test_a_run_that_is_over_keeps_its_last_value():
    runs = [result([4.0, 1.0]), result([4.0, 2.0, 1.5]), result([4.0, 3.0, 2.0, 0.5])]
    curve = ConvergenceDisplay.from_results({"a": runs}).curves["a"]
    np.testing.assert_array_equal(curve.x, [0, 1, 2, 3])
    np.testing.assert_array_equal(curve.median, [4.0, 2.0, 1.5, 1.0])


def test_between_its_rows_a_run_has_the_value_of_the_last():
    runs = [result([4.0, 1.0], seconds=[1.0, 3.0]), result([4.0, 2.0], seconds=[2.0, 4.0])]
    curve = ConvergenceDisplay.from_results({"a": runs}, x="seconds").curves["a"]
    np.testing.assert_array_equal(curve.x, [1, 2, 3, 4])
    np.testing.assert_array_equal(curve.median, [4.0, 4.0, 2.5, 1.5])


@given(st.lists(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), min_size=2, max_size=5))
def test_quartiles_are_those_of_the_values_held(columns):
    curve = displays._curve([(np.arange(len(column), dtype=float), np.array(column)) for column in columns])
    assert curve.x.tolist() == list(range(max(len(column) for column in columns)))
    for k, found in enumerate(zip(curve.lower, curve.median, curve.upper, strict=True)):
        held = [column[min(k, len(column) - 1)] for column in columns]
        assert found == pytest.approx(statistics.quantiles(held, n=4, method="inclusive"))


def test_lower_panel_of_the_paper():
    safe = result([4.0, 1.0, 0.5], ratios=[np.nan, 0.8, 0.5], optimal=[0.3, 0.2, 0.1])
    runs = {"safe": safe, "importance": result([4.0, 2.0, 1.0], ratios=[np.nan, 1, 1]), "cyclic": result([4.0, 2, 1])}
    display = draw(ConvergenceDisplay.from_results(runs, value_ratio=True))
    assert set(display.ratio_lines_) == {"safe", "importance", "optimal for safe"}  # cyclic has no distribution
    np.testing.assert_array_equal(display.ratio_lines_["safe"].get_ydata(), [np.nan, 0.8, 0.5])
    np.testing.assert_array_equal(display.ratio_lines_["optimal for safe"].get_ydata(), [0.3, 0.2, 0.1])
    assert display.ratio_lines_["importance"].get_color() == display.lines_["importance"].get_color()
    assert display.ratio_ax_.get_ylim()[0] == 0.0
    assert display.ratio_ax_.get_yscale() == "linear"
    assert (display.ax_.get_xlabel(), display.ratio_ax_.get_xlabel()) == ("", "epochs")
    runs["uniform"] = result([4.0, 2.0, 1.0], ratios=[np.nan, 50.0, 50.0])
    assert ConvergenceDisplay.from_results(runs, value_ratio=True).ratio_ax_.get_yscale() == "log"
    nothing = draw(ConvergenceDisplay.from_results(runs["cyclic"], value_ratio=True))
    assert nothing.ratio_lines_ == {}


def test_on_axes_of_ones_own():
    figure, axes = plt.subplots(2)
    display = ConvergenceDisplay.from_results(result([2.0, 1.0]), ax=axes[0])
    assert display.ax_ is axes[0]
    assert display.figure_ is figure
    both = ConvergenceDisplay.from_results(result([2.0, 1.0], ratios=[1.0, 0.5]), value_ratio=True, ax=axes)
    assert (both.ax_, both.ratio_ax_) == tuple(axes)
    assert len(axes[0].get_lines()) == 2
    again = both.plot()
    assert again is both
    assert again.figure_ is not figure
    with pytest.raises(ValueError, match="this display has 2 panels, but ax holds 1 axes"):
        both.plot(axes[0])


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"'gap' of a is nowhere finite; .* take y='suboptimality'"):
        ConvergenceDisplay.from_results({"a": result([np.inf, np.inf])})
    with pytest.raises(KeyError, match="the trace has no column 'gaps'; it has epoch"):
        ConvergenceDisplay.from_results(result([1.0]), y="gaps")
    with pytest.raises(ValueError, match="there are no results to draw for 'b'"):
        ConvergenceDisplay.from_results({"a": result([1.0]), "b": []})
    with pytest.raises(ValueError, match="there are no results to draw"):
        ConvergenceDisplay.from_results({})


def test_scales():
    def scale(best, y="objective"):
        return ConvergenceDisplay.from_results(result([4.0, 1.0], best=best), y=y).ax_.get_yscale()

    assert scale(1.0) == "linear"  # from 3 to 1.5
    assert scale(0.001, y="nonzeros") == "linear"
    assert scale(-1.0) == "linear"
    wide = ConvergenceDisplay.from_results(result([400.0, 1.0], best=0.0), y="objective")
    assert wide.ax_.get_yscale() == "log"


def test_results_of_a_solver():
    X, y = np.random.default_rng(0).normal(size=(20, 5)), np.ones(20)
    run = ss.coordinate_descent(ss.Problem(X, y, regularizer=ss.L1(0.01)), sampling="cyclic", step="exact")
    display = draw(ConvergenceDisplay.from_results(run, value_ratio=True))
    assert display.lines_[""].get_xdata().size == run.trace.n_rows


# A sampling


def test_a_sampling_and_its_bounds():
    lower, upper, L = np.array([0.0, 1.0, 2.0, 0.5]), np.array([1.0, 3.0, np.inf, 0.5]), np.array([1.0, 4.0, 1.0, 2.0])
    sampling = ss.safe_sampling(lower, upper, L)
    display = draw(SamplingDisplay.from_sampling(sampling))
    top = display.ax_.get_ylim()[1]
    segments = np.array(display.bounds_.get_segments())
    np.testing.assert_array_equal(segments[:, 0, 0], [0, 1, 2, 3])
    np.testing.assert_allclose(segments[:, 0, 1], lower / np.sqrt(L))
    np.testing.assert_allclose(segments[:, 1, 1], np.minimum(upper / np.sqrt(L), top))
    assert display.level_.get_ydata()[0] == sampling.level
    np.testing.assert_allclose(display.worst_case_.get_ydata(), sampling.worst_case / np.sqrt(L))
    np.testing.assert_allclose(np.array(display.probabilities_.get_segments())[:, 1, 1], sampling.probabilities)
    np.testing.assert_allclose(display.importance_.get_ydata(), L / L.sum())
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["between the bounds", "level $m$", "worst case", "no upper bound"]
    without = SamplingDisplay.from_sampling(ss.safe_sampling([0.0], [1.0]))
    assert "no upper bound" not in [text.get_text() for text in without.ax_.get_legend().get_texts()]


def test_many_coordinates_are_sorted():
    rng = np.random.default_rng(0)
    lower, L = rng.exponential(size=300), rng.uniform(0.5, 2.0, 300)
    sampling = ss.safe_sampling(lower, lower + 1.0, L)
    display = draw(SamplingDisplay.from_sampling(sampling))
    worst = display.worst_case_.get_ydata()
    assert (np.diff(worst) <= 0.0).all()
    np.testing.assert_allclose(np.sort(worst), np.sort(sampling.worst_case / np.sqrt(L)))
    heights = np.array(display.probabilities_.get_segments())[:, 1, 1]
    importance = display.importance_.get_ydata()
    # p_i is in proportion to sqrt(L_i) c_i: the three orders are the same.
    np.testing.assert_allclose(heights / (worst * importance), (heights / (worst * importance))[0])


@pytest.mark.parametrize("bounds", [([0.0, 0.0], [0.0, 0.0]), ([0.0, 0.0], [np.inf, np.inf]), ([1.0], [1.0])])
def test_degenerate_samplings_are_drawn_too(bounds):
    display = draw(SamplingDisplay.from_sampling(ss.safe_sampling(*bounds)))
    assert np.isfinite(display.ax_.get_ylim()).all()


# A path


def test_a_path():
    alphas = np.geomspace(1.0, 0.01, 5)
    coefs = np.zeros((12, 5))
    coefs[:10] = np.arange(-4.0, 6.0)[:, None] * np.linspace(0.0, 1.0, 5)  # the 5th is zero, as are the last two
    names = [f"f{j}" for j in range(12)]
    display = draw(PathDisplay.from_path(alphas, coefs, feature_names=names))
    assert set(display.lines_) == {0, 1, 2, 3, 5, 6, 7, 8, 9}
    np.testing.assert_array_equal(display.lines_[9].get_ydata(), coefs[9])
    assert set(display.labels_) == {9, 8, 0, 7, 1, 6, 2}  # the largest seven at the end
    assert display.labels_[9].get_text() == "f9"
    assert display.lines_[3].get_color() == displays.GREY
    left, right = display.ax_.get_xlim()
    assert left > 1.0 > 0.01 > right
    assert display.ax_.get_xscale() == "log"
    own = plt.subplots()[1]
    assert display.plot(own).ax_ is own


def test_labels_do_not_touch():
    coefs = np.outer([1.0, 1.001, 1.002, 1.003, -0.5, -0.501, 0.999], [0.0, 1.0])
    display = draw(PathDisplay.from_path([1.0, 0.1], coefs))
    renderer = display.figure_.canvas.get_renderer()
    boxes = [matplotlib.text.Text.get_window_extent(label, renderer) for label in display.labels_.values()]
    assert len(boxes) == 7
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b)


@given(st.lists(st.floats(-2.0, 2.0), max_size=8))
def test_spread_keeps_the_order_and_the_distance(wanted):
    heights = displays._spread(wanted, 0.1)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(np.array(heights)[order]) >= 0.1 - 1e-12).all()
    if len(wanted) < 2 or (np.diff(np.sort(wanted)) >= 0.1).all():
        np.testing.assert_allclose(heights, wanted, atol=1e-12)
    assert np.mean(heights or [0.0]) == pytest.approx(np.mean(wanted or [0.0]), abs=1e-9)


@pytest.mark.parametrize(
    ("alphas", "coefs", "names", "message"),
    [
        ([1.0, 0.5], np.zeros((2, 3)), None, r"shape \(n_features, n_alphas\), .* \(2,\) and \(2, 3\)"),
        ([0.5, 1.0], np.zeros((3, 2)), None, "alphas must be positive and fall"),
        ([1.0, 0.0], np.zeros((3, 2)), None, "alphas must be positive and fall"),
        ([1.0, np.nan], np.zeros((3, 2)), None, "alphas must be positive and fall"),
        ([1.0, 0.5], np.zeros((3, 2)), ["a"], "3 features, but 1 names"),
    ],
)
def test_a_path_that_is_none_is_refused(alphas, coefs, names, message):
    with pytest.raises(ValueError, match=message):
        PathDisplay(alphas, coefs, feature_names=names)


# Matplotlib is optional


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"displays need matplotlib: pip install 'surestep\[plot\]'"):
        PathDisplay([1.0], np.ones((1, 1))).plot()


def test_matplotlib_is_imported_when_something_is_drawn():
    script = "import sys, surestep.displays; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
