"""Pictures, in the manner of scikit-learn's displays: ``from_...`` computes and draws, ``plot`` draws again elsewhere.

What is drawn is kept: ``figure_``, ``ax_`` and the artists are attributes after ``plot``. The colours are those of
Okabe and Ito, which colour-blind readers can tell apart, and every line has a dash pattern and a marker of its own
besides, so that nothing is lost in grey print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep.sampling.distribution import Sampling
from surestep.trace import Result

Array = NDArray[np.float64]
Results: TypeAlias = Result | Sequence[Result] | Mapping[str, Result | Sequence[Result]]

BLUE, VERMILION, GREEN, BLACK, PURPLE, SKY, ORANGE = (
    "#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#E69F00",
)  # fmt: skip
GREY = "#8C8C8C"
COLORS = (BLUE, VERMILION, GREEN, BLACK, PURPLE, SKY, ORANGE)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

AXIS_LABELS = {
    "epoch": "epochs",
    "seconds": "seconds",
    "steps": "steps",
    "gap": "duality gap",
    "objective": "objective",
    "suboptimality": r"suboptimality $f(x) - f^\star$",
    "relative_suboptimality": r"$(f(x) - f^\star)\ /\ (f(x_0) - f^\star)$",
    "value_ratio": r"$v\,/\,\mathrm{Tr}\,\mathbf{L}$",
}


class Curve(NamedTuple):
    """The quartiles, over runs, of a quantity at every x; of a single run, three times the same."""

    x: Array
    lower: Array
    median: Array
    upper: Array
    n_runs: int


class ConvergenceDisplay:
    """How fast runs converge; with a band between the quartiles where there are several runs of one kind.

    Made by :meth:`from_results`.

    Attributes
    ----------
    curves : dict of str to Curve
        What is drawn.
    ax_, figure_ : matplotlib Axes and Figure
    lines_, bands_ : dict of str to artist
    ratio_ax_ : matplotlib Axes or None
        The lower panel, where there is one.
    ratio_lines_ : dict of str to artist
        Its lines; those of the optimal sampling have the name "optimal for ...".
    """

    def __init__(self, curves: dict[str, Curve], x: str, y: str, ratios: dict[str, Curve] | None = None) -> None:
        self.curves = curves
        self.x = x
        self.y = y
        self.ratios = ratios

    @classmethod
    def from_results(
        cls,
        results: Results,
        *,
        x: str = "epoch",
        y: str = "gap",
        best: float | None = None,
        value_ratio: bool = False,
        ax: Any = None,
    ) -> ConvergenceDisplay:
        """Draw runs of solvers.

        Parameters
        ----------
        results : Result, sequence of Result, or dict
            A dict gives each line a name; its values are results, or sequences of results that differ by the seed only.
            Of those the median is drawn, and a band between the quartiles; a run that is over keeps its last value.
        x : "epoch", "seconds", "steps" or another column of the trace
        y : "gap", "suboptimality", "relative_suboptimality", "objective" or another column of the trace
        best : float, optional
            The optimal objective f*, for suboptimality. By default the least objective of all runs, and then that run
            seems to reach the optimum at its end: to see curves rightly down to there, give that of a longer run.
        value_ratio : bool
            Add the paper's lower panel: v / Tr(L), how much less than fixed importance sampling a sampling promises to
            need, and that of the optimal sampling where it was tracked (``track_optimal=True``).
        ax : matplotlib Axes, or a pair of them for two panels, optional

        Returns
        -------
        ConvergenceDisplay
        """
        groups = _groups(results)
        runs = [run for group in groups.values() for run in group]
        if best is None:
            best = min(float(np.min(run.trace["objective"])) for run in runs)
        curves = {
            name: _curve([(run.trace[x], _column(run, y, best)) for run in runs]) for name, runs in groups.items()
        }
        for name, curve in curves.items():
            if np.isnan(curve.median).all():
                raise ValueError(
                    f"{y!r} of {name or 'this run'} is nowhere finite"
                    + ("; the problem has no certificate: take y='suboptimality'" if y == "gap" else "")
                )
        return cls(curves, x, y, _ratios(groups, x) if value_ratio else None).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw; on new axes, or on the axes given (a pair of them, if there are two panels)."""
        n_panels = 1 if self.ratios is None else 2
        self.figure_, axes = _panels(ax, n_panels, heights=(3.0, 1.2)[:n_panels])
        self.ax_: Any = axes[0]
        self.ratio_ax_: Any = axes[1] if n_panels == 2 else None
        self.lines_: dict[str, Any] = {}
        self.bands_: dict[str, Any] = {}
        logarithmic = self._is_logarithmic()
        for k, (name, curve) in enumerate(self.curves.items()):
            lower, median, upper = (
                np.where(values > 0.0, values, np.nan) if logarithmic else values for values in curve[1:4]
            )
            if curve.n_runs > 1:
                # Where the lower quartile is zero, the band ends at the median.
                lower = np.where(np.isnan(lower), median, lower)
                self.bands_[name] = self.ax_.fill_between(
                    curve.x, lower, upper, color=_color(k), alpha=0.2, linewidth=0.0
                )
            (self.lines_[name],) = self.ax_.plot(curve.x, median, label=name, **_style(k, curve.x.size))
        self.ax_.set_ylabel(AXIS_LABELS.get(self.y, self.y))
        if logarithmic:
            self.ax_.set_yscale("log")
        if any(self.lines_):
            self.ax_.legend(handlelength=3.5, frameon=False)
        axes[-1].set_xlabel(AXIS_LABELS.get(self.x, self.x))
        if self.ratios is not None:
            self._plot_ratios()
        for panel in axes:
            _tidy(panel)
        return self

    def _is_logarithmic(self) -> bool:
        if self.y != "objective":
            return self.y in ("gap", "suboptimality", "relative_suboptimality")
        values = np.concatenate([curve.median for curve in self.curves.values()])
        return bool(np.nanmax(values) > 10.0 * np.nanmin(values) > 0.0)

    def _plot_ratios(self) -> None:
        assert self.ratios is not None
        names = list(self.curves)
        self.ratio_lines_: dict[str, Any] = {}
        for name, curve in self.ratios.items():
            of = name.removeprefix("optimal for ")
            if name == of:
                style = _style(names.index(of), curve.x.size)
            else:
                style = {"color": BLACK, "linestyle": ":", "linewidth": 1.2}
            (self.ratio_lines_[name],) = self.ratio_ax_.plot(curve.x, curve.median, **style)
        self.ratio_ax_.axhline(1.0, color=GREY, linewidth=0.8, zorder=0)
        self.ratio_ax_.set_ylabel(AXIS_LABELS["value_ratio"])
        optimal = [line for name, line in self.ratio_lines_.items() if name.startswith("optimal for ")]
        if optimal:
            self.ratio_ax_.legend(
                optimal[:1], ["best possible at the same points"], handlelength=3.5, frameon=False, loc="upper right"
            )
        largest = max((float(np.nanmax(curve.median)) for curve in self.ratios.values()), default=1.0)
        if largest > 2.0:  # uniform sampling may be worse than importance sampling by orders of magnitude
            self.ratio_ax_.set_yscale("log")
        else:
            self.ratio_ax_.set_ylim(0.0, (1.45 if optimal else 1.08) * max(largest, 1.0))  # room for the legend
        self.ax_.tick_params(labelbottom=False)


def _groups(results: Results) -> dict[str, list[Result]]:
    """Results by name, always in lists; a name is empty where none was given."""
    named = results if isinstance(results, Mapping) else {"": results}
    groups = {str(name): [runs] if isinstance(runs, Result) else list(runs) for name, runs in named.items()}
    if not groups or not all(groups.values()):
        raise ValueError("there are no results to draw" + "".join(f" for {n!r}" for n, g in groups.items() if not g))
    return groups


def _column(run: Result, y: str, best: float) -> Array:
    if y not in ("suboptimality", "relative_suboptimality"):
        return run.trace[y]
    above: Array = run.trace["objective"] - best
    return above if y == "suboptimality" else above / above[0]


def _curve(columns: list[tuple[Array, Array]]) -> Curve:
    """Quartiles over runs at every x that a run has a row for; between its rows a run has the value of the last."""
    grid = np.unique(np.concatenate([x for x, _ in columns]))
    values = np.array([y[np.maximum(np.searchsorted(x, grid, side="right") - 1, 0)] for x, y in columns])
    values[~np.isfinite(values)] = np.nan
    lower, median, upper = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return Curve(grid, lower, median, upper, len(columns))


def _ratios(groups: dict[str, list[Result]], x: str) -> dict[str, Curve]:
    ratios = {}
    for column, prefix in (("value_ratio", ""), ("optimal_value_ratio", "optimal for ")):
        for name, runs in groups.items():
            if all(column in run.trace for run in runs):
                curve = _curve([(run.trace[x], run.trace[column]) for run in runs])
                if not np.isnan(curve.median).all():  # as of a sampling that has no distribution
                    ratios[prefix + name] = curve
    return ratios


class SamplingDisplay:
    """A safe sampling (eq. 7 of the paper): bounds, level, and the probabilities that follow from them.

    The upper panel shows the intervals [lower_i, upper_i] / sqrt(L_i) and in each the worst case c_i / sqrt(L_i), which
    is the level m clipped to it (Theorem 3.4): so the level is a line. An arrow stands for an upper bound of infinity.
    The lower panel shows the probabilities, and those of fixed importance sampling, L_i / Tr(L). More than 60
    coordinates are sorted by their worst case, else they stand in their own order.

    Attributes
    ----------
    sampling : Sampling
    ax_, probability_ax_, figure_ : matplotlib Axes and Figure
    bounds_, level_, worst_case_, probabilities_, importance_ : artists
    """

    IN_OWN_ORDER = 60

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling

    @classmethod
    def from_sampling(cls, sampling: Sampling, *, ax: Any = None) -> SamplingDisplay:
        """Draw a sampling, as `safe_sampling` and its kin return it; `ax` is a pair of axes, if given."""
        return cls(sampling).plot(ax)

    def plot(self, ax: Any = None) -> SamplingDisplay:
        """Draw; on a new figure, or on the pair of axes given."""
        s = self.sampling
        self.figure_, (self.ax_, self.probability_ax_) = _panels(ax, 2, heights=(2.0, 1.4))
        roots = np.sqrt(s.smoothness)
        lower, upper, worst = s.lower / roots, s.upper / roots, s.worst_case / roots
        n = lower.size
        few = n <= self.IN_OWN_ORDER
        order = np.arange(n) if few else np.lexsort((-upper, -worst))
        lower, upper, worst = lower[order], upper[order], worst[order]
        place = np.arange(n)
        finite = np.concatenate([upper[np.isfinite(upper)], worst, [s.level]])
        top = 1.15 * float(np.max(finite)) or 1.0
        unbounded = np.isinf(upper)
        width = float(np.clip(300.0 / n, 0.5, 9.0))
        self.bounds_ = self.ax_.vlines(
            place, lower, np.minimum(upper, top), color=SKY, linewidth=width, label="between the bounds"
        )
        self.level_ = self.ax_.axhline(s.level, color=VERMILION, linestyle="--", linewidth=1.4, label="level $m$")
        (self.worst_case_,) = self.ax_.plot(
            place, worst, linestyle="", marker="o", markersize=4.5 if few else 2.0, color=BLACK, label="worst case"
        )
        if unbounded.any():
            self.ax_.plot(
                place[unbounded], np.full(unbounded.sum(), top), "^", color=BLUE, clip_on=False, label="no upper bound"
            )
        self.ax_.set_ylim(0.0, top)
        self.ax_.set_ylabel(r"$c_i\,/\,\sqrt{L_i}$")
        self.ax_.tick_params(labelbottom=False)
        self.ax_.legend(frameon=False, ncols=4, loc="lower right", bbox_to_anchor=(1.0, 1.0), handletextpad=0.5)

        importance = s.smoothness / s.smoothness.sum()
        self.probabilities_ = self.probability_ax_.vlines(
            place, 0.0, s.probabilities[order], color=SKY, linewidth=width, label="this sampling"
        )
        (self.importance_,) = self.probability_ax_.plot(
            place,
            importance[order],
            linestyle="",
            marker="_" if few else ".",
            markersize=width + 3.0 if few else 2.0,
            markeredgewidth=1.8 if few else 0.5,
            color=BLACK,
            label=r"importance sampling, $L_i\,/\,\mathrm{Tr}\,\mathbf{L}$",
        )
        self.probability_ax_.set_ylim(0.0, 1.3 * max(float(s.probabilities.max()), float(importance.max())))
        self.probability_ax_.set_ylabel("probability")
        self.probability_ax_.set_xlabel("coordinate" if few else "coordinates, by falling worst case")
        self.probability_ax_.xaxis.get_major_locator().set_params(integer=True)
        self.probability_ax_.legend(frameon=False, ncols=2, loc="upper right")
        for panel in (self.ax_, self.probability_ax_):
            _tidy(panel)
            panel.grid(visible=False, axis="x")
        return self


class PathDisplay:
    """Coefficients along a path of regularization strengths, from the strongest on the left to the weakest.

    The largest coefficients at the end of the path have colours and a label at their line's end; the others are grey,
    and those that stay zero are not drawn.

    Parameters
    ----------
    alphas : array-like of shape (n_alphas,)
        Positive, falling.
    coefs : array-like of shape (n_features, n_alphas)
    feature_names : sequence of str, optional
        Numbers by default.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : dict of int to artist
        The line of a feature, by its number.
    labels_ : dict of int to artist
        The labels of those that have one.
    """

    N_LABELS = len(COLORS)

    def __init__(self, alphas: ArrayLike, coefs: ArrayLike, *, feature_names: Sequence[str] | None = None) -> None:
        self.alphas = np.asarray(alphas, dtype=np.float64)
        self.coefs = np.asarray(coefs, dtype=np.float64)
        if self.alphas.ndim != 1 or self.coefs.ndim != 2 or self.coefs.shape[1] != self.alphas.size:
            raise ValueError(
                "coefs must have the shape (n_features, n_alphas), but alphas and coefs have the shapes "
                f"{self.alphas.shape} and {self.coefs.shape}"
            )
        if self.alphas.size == 0 or not (self.alphas > 0.0).all() or (np.diff(self.alphas) >= 0.0).any():
            raise ValueError("alphas must be positive and fall from each to the next")
        self.feature_names = [str(j) for j in range(len(self.coefs))] if feature_names is None else list(feature_names)
        if len(self.feature_names) != len(self.coefs):
            raise ValueError(f"there are {len(self.coefs)} features, but {len(self.feature_names)} names")

    @classmethod
    def from_path(
        cls, alphas: ArrayLike, coefs: ArrayLike, *, feature_names: Sequence[str] | None = None, ax: Any = None
    ) -> PathDisplay:
        """Draw a path; the parameters are those of the class, and axes to draw on."""
        return cls(alphas, coefs, feature_names=feature_names).plot(ax)

    def plot(self, ax: Any = None) -> PathDisplay:
        """Draw; on new axes, or on those given."""
        self.figure_, (self.ax_,) = _panels(ax, 1, heights=(1.0,))
        end = np.abs(self.coefs[:, -1])
        drawn = np.flatnonzero(self.coefs.any(axis=1))
        labelled = [int(j) for j in np.argsort(-end, kind="stable")[: self.N_LABELS] if end[j] > 0.0]
        self.lines_: dict[int, Any] = {}
        for j in drawn.tolist():
            if j in labelled:
                style = _style(labelled.index(j), self.alphas.size)
            else:
                style = {"color": GREY, "linewidth": 0.6, "alpha": 0.6, "zorder": 1}
            (self.lines_[j],) = self.ax_.plot(self.alphas, self.coefs[j], **style)
        self.ax_.axhline(0.0, color=BLACK, linewidth=0.8, zorder=0)
        self.ax_.set(xscale="log", xlabel=r"$\alpha$", ylabel="coefficient")
        left, right = self.alphas[0] * 1.02, self.alphas[-1] / 1.02
        self.ax_.set_xlim(left, right)  # inverted: the penalty falls to the right
        self.labels_ = self._write_labels(labelled)
        _tidy(self.ax_)
        return self

    def _write_labels(self, labelled: list[int]) -> dict[int, Any]:
        """Names beside the ends of the lines, moved apart where they would touch."""
        low, high = self.ax_.get_ylim()
        self.ax_.set_ylim(low, high)
        wanted = {j: (self.coefs[j, -1] - low) / (high - low) for j in labelled}
        heights = _spread([wanted[j] for j in labelled], 0.055)
        return {
            j: self.ax_.annotate(
                self.feature_names[j],
                xy=(1.0, wanted[j]),
                xytext=(1.05, height),
                xycoords="axes fraction",
                va="center",
                annotation_clip=False,
                arrowprops={"arrowstyle": "-", "color": _color(k), "linewidth": 0.7, "shrinkA": 1, "shrinkB": 0},
            )
            for k, (j, height) in enumerate(zip(labelled, heights, strict=True))
        }


def _spread(wanted: list[float], least: float) -> list[float]:
    """Heights in the same order as those wanted and close to them, at least so far apart.

    Subtracting k * least from the k-th in order leaves heights that need only not fall: the nearest such sequence
    pools neighbours that do, and takes their mean.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    pools: list[list[float]] = []
    for k, i in enumerate(order):
        pools.append([wanted[i] - k * least])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    level = [float(np.mean(pool)) for pool in pools for _ in pool]
    heights = [0.0] * len(wanted)
    for k, i in enumerate(order):
        heights[i] = level[k] + k * least
    return heights


def _panels(ax: Any, n: int, heights: Sequence[float]) -> tuple[Any, list[Any]]:
    """Figure and axes, one below the other with a common x."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("displays need matplotlib: pip install 'surestep[plot]'") from error
    if ax is None:
        figure, axes = plt.subplots(
            n,
            sharex=True,
            squeeze=False,
            figsize=(6.4, 4.4 if n == 1 else 5.2),
            gridspec_kw={"height_ratios": heights},
            layout="constrained",
        )
        return figure, list(axes[:, 0])
    given = list(np.ravel(np.array(ax, dtype=object)))
    if len(given) != n:
        raise ValueError(f"this display has {n} panel{'s' * (n > 1)}, but ax holds {len(given)} axes")
    return given[0].figure, given


def _color(k: int) -> str:
    return COLORS[k % len(COLORS)]


def _style(k: int, n_points: int) -> dict[str, Any]:
    """Style of the k-th line: colour, dashes and marker its own, and some eight markers, not where others have them."""
    every = max(n_points // 8, 1)
    again = k // len(COLORS)  # a colour that comes again has other dashes and another marker
    return {
        "color": _color(k),
        "linestyle": DASHES[(k + again) % len(DASHES)],
        "marker": MARKERS[(k + 2 * again) % len(MARKERS)],
        "markevery": (k * every // 3 % every, every),
        "markersize": 5.0,
        "linewidth": 1.6,
    }


def _tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
