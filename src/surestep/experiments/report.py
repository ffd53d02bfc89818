"""From specifications to a report: runs, tables and pictures in a folder, and one page that shows them all."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

import surestep as ss
from surestep.experiments import page
from surestep.experiments.beyond import Study, studies
from surestep.experiments.cases import SUMMARY, Case, run_figure, write_table
from surestep.experiments.figures import FIGURES, Scale
from surestep.experiments.findings import YES, Finding, findings
from surestep.experiments.pictures import convergence
from surestep.experiments.runs import Watch, unwatched


def write_report(
    numbers: Sequence[int], scale: Scale, folder: Path, watch: Watch = unwatched, *, with_studies: bool = False
) -> Path:
    """Run figures and write what they give to a folder.

    Parameters
    ----------
    numbers : sequence of int
        Figures of the paper, 2 to 9.
    scale : Scale
    folder : Path
        Runs (``runs/``), tables (``figure-2.csv``), pictures (``figure-2-1-epoch.svg``) and ``report.html`` go there;
        runs that are there are not done again.
    watch : callable
        See `run_methods`.
    with_studies : bool
        Add what goes beyond the paper.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    InterruptedRunsError
        If a watcher asked to stop: complete runs are kept, and the page shows the figures that are complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):  # two threads of BLAS on a busy processor took twenty times as long as one
        return _write_report(numbers, scale, folder, watch, with_studies)


def _write_report(numbers: Sequence[int], scale: Scale, folder: Path, watch: Watch, with_studies: bool) -> Path:
    cases: list[Case] = []
    sections, beyond = [], []
    try:
        for number in numbers:
            figure_cases = run_figure(FIGURES[number], scale, folder, watch)
            write_table(figure_cases, folder / f"figure-{number}.csv")
            cases += figure_cases
            sections.append(_section(figure_cases, folder))
        if with_studies:
            beyond = [_study(study, folder) for study in studies(scale, watch)]
    finally:
        path = folder / "report.html"
        path.write_text(_page(scale, cases, sections, beyond), encoding="utf-8")
    return path


def _page(scale: Scale, cases: list[Case], sections: list[str], beyond: list[str]) -> str:
    data = sorted({f"{case.panel.data}: {case.data}" for case in cases})
    answers = findings(cases)
    limit = f" or {scale.budget:g} seconds a run" * math.isfinite(scale.budget)
    parts = [
        page.paragraph(
            "The experiments of Stich, Raj and Jaggi, Safe Adaptive Importance Sampling (NIPS 2017), run with surestep "
            f"{ss.__version__} on {platform.machine()}, Python {platform.python_version()}. Scale: {scale.name}, "
            f"{scale.epochs:g} epochs ({scale.sgd_epochs:g} of SGD){limit}, {scale.n_seeds} seeds, one thread. "
            "Lines are medians over the seeds, bands lie between the quartiles. Seconds do not count compiling, and "
            "looking at the objective."
        ),
        page.paragraph(
            "Data, by the paper's name: " + "; ".join(data) + ". Non-zeros are 1, as in the paper. Sets that stand in "
            "for the paper's are reported under their own names, and numbers on them are not those of the paper."
            if cases
            else "No figure is complete yet: run the same command again, and it goes on where it stopped."
        ),
        _navigation(cases, bool(answers), bool(beyond)),
    ]
    if answers:
        parts += ["<h2 id='findings'>The paper's findings, measured again</h2>", *map(_finding, answers)]
    parts += sections
    if beyond:
        parts += ["<h2 id='beyond'>Beyond the paper</h2>", *beyond]
    return page.page("Safe adaptive importance sampling: the paper's figures", parts)


def _navigation(cases: Iterable[Case], answers: bool, beyond: bool) -> str:
    numbers = dict.fromkeys(case.figure.number for case in cases)
    links = [("findings", "Findings")] * answers + [(f"figure-{n}", f"Figure {n}") for n in numbers]
    links += [("beyond", "Beyond the paper")] * beyond
    return "<nav>" + "".join(f"<a href='#{at}'>{name}</a>" for at, name in links) + "</nav>"


def _finding(finding: Finding) -> str:
    head, rows = finding.table
    table = page.table(head, rows) if rows else ""
    why = page.paragraph(finding.why) if finding.why else ""
    disagrees = " The paper says yes." if finding.is_claimed and finding.verdict != YES else ""
    verdict = f"<span class='verdict'>{finding.verdict.capitalize()}.{disagrees}</span>"
    answer = f"<p>{verdict} {page.text(finding.numbers)}</p>"
    return f"<div class='finding {finding.verdict}'><h3>{page.text(finding.question)}</h3>{answer}{table}{why}</div>"


def _section(cases: list[Case], folder: Path) -> str:
    figure = cases[0].figure
    parts = [f"<h2 id='figure-{figure.number}'>Figure {figure.number}</h2>", page.paragraph(figure.title + ".")]
    for panel in figure.panels:
        first, *others = [k for k, case in enumerate(cases) if case.panel == panel]
        parts.append(_case(cases[first], first, folder))
        parts += [
            page.folded(cases[k].title, _case(cases[k], k, folder, title=False), is_open=k == first + 1) for k in others
        ]
    parts.append(f"<p>Every row of every run: <code>figure-{figure.number}.csv</code></p>")
    return "\n".join(parts)


def _case(case: Case, k: int, folder: Path, *, title: bool = True) -> str:
    share = "" if case.panel.penalty == "L2" else f", {case.alpha / case.alpha_max:.3g} of lambda_max"
    parts = [f"<h3>{page.text(case.title)}</h3>"] * title
    parts.append(
        page.paragraph(
            f"Penalty {case.problem.regularizer!r}{share}; {case.nonzeros:,} of {case.problem.n_features:,} "
            f"coefficients are not zero at the optimum; f falls from {case.at_zero:.4g} to {case.best:.4g}."
        )
    )
    if case.is_trivial:
        return "".join([*parts, page.paragraph("Zero is optimal: there is nothing to solve, and nothing to draw.")])
    name = f"figure-{case.figure.number}-{k + 1}"
    parts.append(
        page.pictures(
            page.picture(
                convergence(case.runs, case.best, x, value_ratio=x == "epoch"),
                f"Figure {case.figure.number}: {case.title}, by {told}",
                folder / f"{name}-{x}.svg",
            )
            for x, told in (("epoch", "epochs"), ("seconds", "seconds"))
            if x in case.figure.axes
        )
    )
    parts.append(page.folded("The numbers", page.table(SUMMARY, case.summary())))
    return "".join(parts)


def _study(study: Study, folder: Path) -> str:
    name = study.title.lower().replace(" ", "-")
    return "".join(
        [
            f"<h3>{page.text(study.title)}</h3>",
            page.paragraph(study.text),
            page.table(study.head, study.rows),
            page.pictures(
                page.picture(figure, caption, folder / f"beyond-{name}-{k + 1}.svg")
                for k, (caption, figure) in enumerate(study.figures)
            ),
        ]
    )
