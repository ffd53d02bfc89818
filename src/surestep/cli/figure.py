"""``surestep figure`` and ``surestep bench``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from surestep.cli.progress import Watcher
from surestep.cli.shared import INTERRUPTED, as_json, lines, tell
from surestep.experiments import page
from surestep.experiments.beyond import fast_solver, microsecond_step
from surestep.experiments.cases import InterruptedRunsError
from surestep.experiments.figures import FIGURES, FULL, QUICK
from surestep.experiments.report import write_report


@click.command()
@click.argument("number", type=click.Choice([*map(str, FIGURES), "all"]))
@click.option("--quick", is_flag=True, help="Small generated data: minutes instead of hours.")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="surestep-figures",
    show_default=True,
    help="Folder for runs, tables, pictures and the report; what is there already is not run again.",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Runs of each method.  [default: 5; 3 if quick]")
@click.option(
    "--budget", type=click.FloatRange(min=0, min_open=True), help="Most seconds of a run.  [default: no limit]"
)
@as_json
@click.pass_context
def figure(
    ctx: click.Context, number: str, quick: bool, out: str, seeds: int | None, budget: float | None, as_json: bool
) -> None:
    """Run figures of the paper, and write a report.

    Data sets are the paper's, or those that stand in for them, where SURESTEP_DATA has them; generated else.

    \b
    surestep figure 2 --quick --out figures
    surestep figure all --quick --out figures
    surestep figure 8 --quick --seeds 2 --budget 1 --out figures
    """
    scale = QUICK if quick else FULL
    scale = replace(scale, n_seeds=seeds or scale.n_seeds, budget=budget or scale.budget)
    numbers = list(FIGURES) if number == "all" else [int(number)]
    interrupted = False
    with Watcher(scale.epochs) as watch:
        try:
            write_report(numbers, scale, Path(out), watch, with_studies=number == "all")
        except InterruptedRunsError:
            interrupted = True
    report = Path(out) / "report.html"
    told = "Interrupted; the same command goes on from here. " if interrupted else ""
    facts = {"figures": numbers, "scale": scale.name, "report": report, "complete": not interrupted}
    tell(as_json, facts, lambda console: console.print(f"{told}Report: {report.resolve()}", highlight=False))
    ctx.exit(INTERRUPTED if interrupted else 0)


@click.command()
@as_json
def bench(as_json: bool) -> None:
    """Measure what matters on this machine: a step, and the fast solver.

    \b
    surestep bench
    """
    with Watcher() as watch:
        found = [study(QUICK, watch) for study in (microsecond_step, fast_solver)]

    def show(console: Console) -> None:
        for study in found:
            console.print(f"{study.title}. {study.text}", highlight=False)
            console.print(lines(study.head, [[page.number(cell) for cell in row] for row in study.rows]))
            console.print()

    tell(as_json, {s.title: [dict(zip(s.head, row, strict=True)) for row in s.rows] for s in found}, show)
