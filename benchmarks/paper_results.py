"""The paper's figures at full size on real data, as they stand in docs/results: run, then written there.

    python benchmarks/paper_results.py [--out DIR]

Takes half an hour or more on an idle machine, and goes on where it was interrupted: runs are kept in
.cache/paper_results.
"""

import argparse
import base64
import csv
import gzip
import os
import platform
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
from data import FOLDER, ROOT

import surestep as ss
from surestep.cli.progress import Watcher
from surestep.experiments import page
from surestep.experiments.cases import SUMMARY, Case, InterruptedRunsError, run_figure
from surestep.experiments.figures import FIGURES, FULL
from surestep.experiments.findings import findings
from surestep.experiments.report import write_report

SCALE = replace(FULL, n_seeds=3, budget=4.0)
RUNS = ROOT / ".cache" / "paper_results"
MOST_BYTES = 6e6
SHOWN = "lambda_max / 10"  # the reading of which README.md has pictures


def processor() -> str:
    """What the machine calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def read_me(cases: list[Case], command: str) -> str:
    parts = [
        "# The paper's figures, measured",
        f"Made by `{command}` with surestep {ss.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Numba {numba.__version__}, on one thread of {processor()} ({os.cpu_count()} "
        f"processors, {platform.system()}). {SCALE.n_seeds} seeds; a run ends after {SCALE.epochs:g} epochs "
        f"({SCALE.sgd_epochs:g} of SGD) or {SCALE.budget:g} seconds.",
        "Data, by the paper's name: "
        + "; ".join(sorted({f"{case.panel.data} is {case.data}" for case in cases}))
        + ". Sets that stand in for the paper's are other data: numbers on them are not those of the paper.",
        "[report.html](report.html) has all pictures and tables, `summary.csv` a row for each method of each panel, "
        "`figure-2.csv.gz` and its like every row of every run.",
        "## The paper's findings",
    ]
    for finding in findings(cases):
        parts += [f"**{finding.question}** {finding.verdict.capitalize()}. {finding.numbers}", finding.why]
    parts.append("## Pictures")
    for figure in FIGURES.values():
        own = [case for case in cases if case.figure == figure]
        shown = [k for k, case in enumerate(own) if case.reading in (SHOWN, "lambda = 0.1") and not case.is_trivial]
        k = next((k for k in shown if own[k].reading == SHOWN), shown[0])
        file = f"figure-{figure.number}-{k + 1}-{figure.axes[0]}.svg"
        parts += [f"Figure {figure.number}: {figure.title}; {own[k].title}.", f"![Figure {figure.number}]({file})"]
    return "\n\n".join(filter(None, parts)) + "\n"


def write(out: Path, cases: list[Case], command: str) -> None:
    """Write what was run to a folder that is emptied before; pictures stand beside the page, not in it."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    text = (RUNS / "report.html").read_text(encoding="utf-8")
    for picture in sorted(RUNS.glob("*.svg")):
        inline = "data:image/svg+xml;base64," + base64.b64encode(picture.read_bytes()).decode()
        if inline in text:
            text = text.replace(inline, picture.name)
            (out / picture.name).write_text(_short(picture.read_text(encoding="utf-8")), encoding="utf-8")
    text = re.sub(r"(figure-\d\.csv)\b", r"\1.gz", text)
    (out / "report.html").write_text(text, encoding="utf-8")
    for number in FIGURES:
        table = (RUNS / f"figure-{number}.csv").read_bytes()
        (out / f"figure-{number}.csv.gz").write_bytes(gzip.compress(table, mtime=0))
    with (out / "summary.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["figure", "data", "loss", "penalty", "reading", *SUMMARY])
        for case in cases:
            about = (case.figure.number, case.data, case.figure.loss, case.panel.penalty, case.reading)
            writer.writerows([*about, *map(page.number, row)] for row in case.summary())
    (out / "README.md").write_text(read_me(cases, command), encoding="utf-8")


def _short(svg: str) -> str:
    """Write paths to a hundredth of a point: that is enough, and half as long."""
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path.group()), svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results", help="a folder, which is replaced")
    out = parser.parse_args().out
    os.environ.setdefault("SURESTEP_DATA", str(FOLDER))
    with Watcher(SCALE.epochs) as watch:
        try:
            write_report(list(FIGURES), SCALE, RUNS, watch, with_studies=True)
        except InterruptedRunsError:
            sys.exit("Interrupted; the same command goes on from here.")
        cases = [case for figure in FIGURES.values() for case in run_figure(figure, SCALE, RUNS, watch)]
    write(out, cases, "python benchmarks/paper_results.py")
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {len(list(out.iterdir()))} files, {size / 1e6:.1f} MB")
    if size > MOST_BYTES:
        sys.exit(f"That is more than {MOST_BYTES / 1e6:g} MB: too much for a repository.")


if __name__ == "__main__":
    main()
