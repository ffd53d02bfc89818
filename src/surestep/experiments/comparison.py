"""One problem, several methods: what each took to reach the tolerance, as a table and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import surestep as ss
from surestep.experiments import page
from surestep.experiments.pictures import convergence
from surestep.experiments.runs import Method, Runs, least_objective, run_methods


@dataclass(frozen=True)
class Comparison:
    """Runs of several methods on one problem."""

    problem: ss.Problem
    runs: Runs

    HEAD: ClassVar = ("sampling", "epochs, median", "of all seeds", "seconds", "reached", "gap")

    def rows(self) -> list[dict[str, Any]]:
        """Return what each method took, in numbers; medians over the seeds."""
        return [
            {
                "method": name,
                "epochs": float(np.median([run.n_epochs for run in runs])),
                "least_epochs": min(run.n_epochs for run in runs),
                "most_epochs": max(run.n_epochs for run in runs),
                "seconds": float(np.median([run.seconds for run in runs])),
                "reached": sum(run.status.success for run in runs),
                "runs": len(runs),
                "gap": float(np.median([run.gap for run in runs])),
                "statuses": sorted({run.status.name for run in runs}),
            }
            for name, runs in self.runs.items()
        ]

    def cells(self) -> list[tuple[str, ...]]:
        """Return the same as words, in the order of `HEAD`."""
        return [
            (
                row["method"],
                f"{row['epochs']:.1f}",
                f"{row['least_epochs']:.1f} to {row['most_epochs']:.1f}",
                f"{row['seconds']:.3f}",
                f"{row['reached']} of {row['runs']}",
                f"{row['gap']:.1e}",
            )
            for row in self.rows()
        ]

    def page(self, title: str, introduction: Iterable[str] = ()) -> str:
        """Return an HTML page with the table and pictures by epochs and seconds."""
        parts = [*introduction, page.paragraph(repr(self.problem)), page.table(self.HEAD, self.cells())]
        try:
            best = least_objective(self.runs | {"optimum": [ss.minimize(self.problem, tol=1e-10)]})
            if is_solved_at_zero(self.problem, best):
                parts.append(page.paragraph("All coefficients are zero at the optimum: there is nothing to draw."))
            else:
                parts.append(page.pictures(self._pictures(best)))
        except ImportError as error:
            parts.append(page.paragraph(str(error)))
        return page.page(title, parts)

    def _pictures(self, best: float) -> list[str]:
        caption = "How far the objective is from its minimum, by {}: median of the seeds, band between the quartiles{}"
        below = "; below, how much less than fixed importance sampling each sampling promises to need"
        return [
            page.picture(convergence(self.runs, best, "epoch", value_ratio=True), caption.format("epochs", below)),
            page.picture(convergence(self.runs, best, "seconds"), caption.format("seconds", "")),
        ]


def is_solved_at_zero(problem: ss.Problem, best: float) -> bool:
    """Whether zero is optimal, so that there is no way to go."""
    at_zero = problem.objective(np.zeros(problem.n_coordinates))
    return at_zero - best <= 1e-9 * abs(at_zero)


def compare_methods(problem: ss.Problem, methods: Iterable[Method], **options: Any) -> Comparison:
    """Run the methods, see `run_methods`."""
    return Comparison(problem, run_methods(problem, methods, **options))
