"""Pictures of runs, by the displays of the package; no window and no global state of matplotlib is used."""

from __future__ import annotations

from typing import Any

import surestep as ss
from surestep.experiments.runs import Runs

FLOOR = 1e-9  # relative suboptimality below which f* itself is not known


def convergence(runs: Runs, best: float, x: str, *, value_ratio: bool = False) -> Any:
    """Return a figure: how far the objective is from its minimum, against epochs, or seconds on a log scale."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'surestep[plot]'") from error
    figure = Figure(figsize=(5.6, 5.0), layout="constrained")
    n = 2 if value_ratio else 1
    axes = figure.subplots(n, sharex=True, squeeze=False, height_ratios=(3.0, 1.2)[:n])[:, 0]
    ss.ConvergenceDisplay.from_results(
        runs, x=x, y="relative_suboptimality", best=best, value_ratio=value_ratio, ax=list(axes)
    )
    axes[0].set_ylim(bottom=max(FLOOR, axes[0].get_ylim()[0]))
    if x == "seconds":
        axes[0].set_xscale("log")  # steps of some samplings take a hundred times as long as those of others
    return figure
