"""A case is one panel under one reading of lambda, with its runs: what tables, pictures and findings are made of."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import surestep as ss
from surestep.experiments.comparison import is_solved_at_zero
from surestep.experiments.figures import Figure, Panel, Scale, data_of, problem_of, readings
from surestep.experiments.runs import Method, Runs, Watch, is_cut_short, least_objective, run_methods, unwatched

OPTIMUM = (Method("optimum", "minimize"),)
FINEST = 1e-6  # relative suboptimality below which nobody looks


@dataclass(frozen=True)
class Case:
    """One panel of a figure under one reading of lambda.

    Attributes
    ----------
    figure : Figure
    panel : Panel
    reading : str
    data : str
        Name of the data that was used.
    problem : Problem
    alpha, alpha_max : float
        The latter is NaN without an L1 penalty.
    best : float
        f*.
    nonzeros : int
        Coefficients that are not zero at the optimum.
    runs : dict
    """

    figure: Figure
    panel: Panel
    reading: str
    data: str
    problem: ss.Problem
    alpha: float
    alpha_max: float
    best: float
    nonzeros: int
    runs: Runs

    @property
    def title(self) -> str:
        """Name of the panel."""
        p = self.problem
        return f"{self.data} ({p.n_samples:,} x {p.n_features:,}), {self.panel.penalty}, {self.reading}"

    @property
    def at_zero(self) -> float:
        """f(0), where runs start."""
        return self.problem.objective(np.zeros(self.problem.n_coordinates))

    @property
    def is_trivial(self) -> bool:
        """Whether zero is optimal, so that there is nothing to solve."""
        return is_solved_at_zero(self.problem, self.best)

    def final(self, method: str) -> float:
        """Relative suboptimality at the end of the runs; median over the seeds."""
        span = self.at_zero - self.best
        return float(np.median([(run.trace.last["objective"] - self.best) / span for run in self.runs[method]]))

    def speedup(self, method: str, over: str, column: str = "epoch") -> float:
        """How many times sooner a method gets as far as both get; over 1 means that it is faster.

        NaN where one of them ends no lower than it began, as SGD does where f(0) is close to the minimum.
        """
        level = max(self.final(method), self.final(over), FINEST)
        if level >= 1.0:
            return float("nan")
        return self._when(over, level, column) / self._when(method, level, column)

    def _when(self, method: str, level: float, column: str) -> float:
        """When the objective comes to a level; between rows of the trace interpolated, on a logarithmic scale."""
        span, times = self.at_zero - self.best, []
        for run in self.runs[method]:
            heights = np.maximum((run.trace["objective"] - self.best) / span, 1e-2 * FINEST)
            at = run.trace[column]
            below = np.flatnonzero(heights <= level)
            k = below[0] if below.size else heights.size - 1
            if k == 0 or heights[k] >= heights[k - 1]:
                times.append(at[k])
                continue
            share = np.log(heights[k - 1] / max(level, heights[k])) / np.log(heights[k - 1] / heights[k])
            times.append(at[k - 1] + share * (at[k] - at[k - 1]))
        return max(float(np.median(times)), 1e-9)

    def value_ratio(self, method: str) -> float:
        """Mean of v / Tr(L) over the last half of the runs: how much less than fixed sampling it promised to need."""
        return float(np.mean([np.mean(run.trace["value_ratio"][run.trace.n_rows // 2 :]) for run in self.runs[method]]))

    def microseconds(self, method: str) -> float:
        """Microseconds a step; median over the seeds."""
        return 1e6 * float(np.median([run.seconds / max(run.n_steps, 1) for run in self.runs[method]]))

    def summary(self) -> list[tuple[Any, ...]]:
        """Rows for people: a method each, in the order of `SUMMARY`."""
        if self.is_trivial:
            return []
        return [
            (
                name,
                self.final(name),
                self.speedup(name, "uniform"),
                self.speedup(name, "uniform", "seconds"),
                self.value_ratio(name),
                self.microseconds(name),
            )
            for name in self.runs
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the table: every row of every trace."""
        for name, runs in self.runs.items():
            for seed, run in enumerate(runs):
                for k in range(run.trace.n_rows):
                    yield {
                        "figure": self.figure.number,
                        "data": self.data,
                        "loss": self.figure.loss,
                        "penalty": self.panel.penalty,
                        "reading": self.reading,
                        "alpha": self.alpha,
                        "best": self.best,
                        "method": name,
                        "seed": seed,
                        **{column: run.trace[column][k] for column in TRACE if column in run.trace},
                    }


SUMMARY = (
    "sampling",
    "how far from the minimum at the end",
    "times faster than uniform, epochs",
    "in seconds",
    "v / Tr(L), last half",
    "microseconds a step",
)
TRACE = ("epoch", "steps", "seconds", "objective", "gap", "nonzeros", "value_ratio", "optimal_value_ratio")


# Seconds that the search for the minimum may take, over those of a run.
_TIMES_LONGER = 10.0


class InterruptedRunsError(Exception):
    """Somebody asked to stop; what is complete is in the folder, and the next call goes on from there."""


def run_figure(figure: Figure, scale: Scale, folder: Path, watch: Watch = unwatched) -> list[Case]:
    """Run all panels of a figure under all readings, but for the runs that are in the folder already."""
    cases = []
    for panel in figure.panels:
        X, y, data = data_of(panel.data, scale)
        unit = problem_of(X, y, figure.loss, panel.penalty)
        alpha_max = unit.alpha_max() if panel.penalty == "L1" else float("nan")
        for reading, alpha in readings(unit, panel.penalty).items():
            problem = unit.with_regularizer(unit.regularizer.scaled(alpha))

            def named(name: str, about: str = f"figure {figure.number}, {data}, {panel.penalty}, {reading}") -> Any:
                return watch(f"{about}: {name}")

            runs = _runs(problem, figure, scale, folder, named)
            budget = _TIMES_LONGER * scale.budget
            optimum = run_methods(problem, OPTIMUM, folder=folder / "runs", budget=budget, tol=1e-9)["optimum"][0]
            best = least_objective(runs | {"optimum": [optimum]})
            nonzeros = int(np.count_nonzero(optimum.coef))
            cases.append(Case(figure, panel, reading, data, problem, alpha, alpha_max, best, nonzeros, runs))
    return cases


def _runs(problem: ss.Problem, figure: Figure, scale: Scale, folder: Path, watch: Watch) -> Runs:
    runs = run_methods(
        problem,
        figure.methods,
        seeds=range(scale.n_seeds),
        watch=watch,
        folder=folder / "runs",
        budget=scale.budget,
        max_epochs=scale.sgd_epochs if figure.is_stochastic else scale.epochs,
        tol=1e-9,
        trace_every=0.1 if figure.is_stochastic else 0.5,
    )
    if any(is_cut_short(run, scale.budget) for group in runs.values() for run in group):
        raise InterruptedRunsError
    return runs


def write_table(cases: Iterable[Case], path: Path) -> None:
    """Write every row of every trace as CSV."""
    rows = [row for case in cases for row in case.rows()]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
