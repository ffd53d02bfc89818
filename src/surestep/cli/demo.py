"""``surestep demo``: the sampling at work, on data that needs no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

import surestep as ss
from surestep.cli.progress import Watcher
from surestep.cli.shared import as_json, leave, lines, tell
from surestep.datasets import make_bag_of_words
from surestep.experiments import page
from surestep.experiments.comparison import Comparison, compare_methods
from surestep.experiments.runs import Method

METHODS = (
    Method("uniform", options={"sampling": "uniform"}),
    Method("importance", options={"sampling": "importance"}),
    Method("safe", options={"sampling": "safe", "bounds": "cauchy-schwarz"}),
    Method("optimal", options={"sampling": "optimal"}),
)
LEGEND = (
    "uniform: every coordinate alike. importance: by smoothness, fixed. safe: by the paper's bounds on the gradient. "
    "optimal: by the whole gradient, as if it were known in every step."
)
MAX_EPOCHS = 40.0
SIDE = 2_000  # documents, and words


@click.command()
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    default="surestep-demo.html",
    show_default=True,
    help="Where the report is written.",
)
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Seeds for each sampling.")
@as_json
@click.pass_context
def demo(ctx: click.Context, out: str, repeats: int, as_json: bool) -> None:  # fmt: skip
    """See the sampling at work: four ways to draw coordinates, on one Lasso.

    \b
    surestep demo
    """
    example, bounds = paper_example(), tightening_bounds()
    if not as_json:
        console = Console()
        console.print("Example 3.1 of the paper: all we know of two gradient entries is 1 <= c1 <= 2 and 2 <= c2 <= 3.")
        console.print("How good is a sampling p?  V(p, c) / |c|^2, the smaller the better:\n")
        console.print(lines(EXAMPLE_HEAD, example))
        console.print("\n5,000 coordinates: what bounds of different quality are worth.\n")
        console.print(lines(BOUNDS_HEAD, bounds))
        console.print("\nGain: guaranteed progress of one step, over that of fixed importance sampling.")
    X, y = make_bag_of_words(SIDE, SIDE)
    problem = ss.Problem(X, y, regularizer=ss.L1(0.005))
    size = f"{X.shape[0]:,} documents, {X.shape[1]:,} words"
    if not as_json:
        console.print(f"\nA Lasso, {size}, until a duality gap of 1e-4 f(0) is certified.")
        console.print("The first run compiles; the machine code is kept.\n")
    with Watcher(MAX_EPOCHS) as watch:
        comparison = compare_methods(
            problem, METHODS, seeds=range(repeats), watch=watch, max_epochs=MAX_EPOCHS, tol=1e-4, trace_every=0.25
        )
        text = comparison.page("surestep: four ways to draw the next coordinate", _introduction(size, example, bounds))
    Path(out).write_text(text, encoding="utf-8")

    def show(console: Console) -> None:
        console.print(lines(comparison.HEAD, comparison.cells()))
        console.print(f"\n{LEGEND}\n\n{conclusion(comparison)}\nReport: {Path(out).resolve()}", highlight=False)

    tell(as_json, {"example": example, "bounds": bounds, "methods": comparison.rows(), "out": out}, show)
    leave(ctx, watch.interrupted, True)


EXAMPLE_HEAD = ("sampling", "p", "if c = (2, 2)", "in the worst case")


def paper_example() -> list[tuple[str, str, str, str]]:
    """Rows for Example 3.1: three samplings for two intervals, at one gradient and at their worst."""
    lower, upper, truth = np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([2.0, 2.0])
    corners = [np.array([a, b]) for a in (lower[0], upper[0]) for b in (lower[1], upper[1])]
    rows = []
    for name, p in (
        ("by the lower bounds", lower / lower.sum()),
        ("by the upper bounds", upper / upper.sum()),
        ("safe (provably the best)", ss.safe_sampling(lower, upper).probabilities),
    ):
        at_truth = ss.progress_model(p, truth) / (truth @ truth)
        worst = max(ss.progress_model(p, c) / (c @ c) for c in corners)
        rows.append((name, f"({p[0]:.3f}, {p[1]:.3f})", f"{at_truth:.2f}", f"{worst:.2f}"))
    return rows


BOUNDS_HEAD = ("what is known of |gradient|", "gain", "from the best possible")


def tightening_bounds(n: int = 5000, seed: int = 0) -> list[tuple[str, str, str]]:
    """Rows for bounds from none to all: the guaranteed gain, and how far it is from that of knowing everything."""
    rng = np.random.default_rng(seed)
    magnitude = np.abs(rng.standard_t(2, n))  # a few large entries, many small ones
    smoothness = rng.uniform(0.5, 2.0, n)
    rows = []
    for name, lower, upper in [
        ("nothing", np.zeros(n), np.full(n, np.inf)),
        *((f"to within {w}", np.maximum(magnitude - w, 0.0), magnitude + w) for w in (2.0, 1.0, 0.5, 0.1)),
        ("everything", magnitude, magnitude),
    ]:
        s = ss.safe_sampling(lower, upper, smoothness)
        ratio = s.competitive_ratio
        distance = f"{'<= ' if ratio > 1 else ''}{ratio:.2f} times" if ratio < 1000 else "no bound"
        rows.append((name, f"{s.gain:.2f}x", distance))
    return rows


def conclusion(comparison: Comparison) -> str:
    """Say what the numbers mean, whatever they are."""
    rows = comparison.rows()
    if len(rows) < len(METHODS):
        return "Interrupted: these are the runs so far."
    uniform, importance, safe, optimal = rows

    def times(slow: dict[str, Any], fast: dict[str, Any]) -> str:
        at_least = "" if slow["reached"] == slow["runs"] else "over "
        return f"{at_least}{slow['epochs'] / fast['epochs']:.1f}"

    return (
        f"Safe sampling took {times(importance, safe)} times fewer epochs than fixed importance sampling and "
        f"{times(uniform, safe)} times fewer than uniform; knowing the whole gradient takes "
        f"{times(importance, optimal)} and {times(uniform, optimal)} times fewer."
    )


def _introduction(size: str, example: list[tuple[str, str, str, str]], bounds: list[tuple[str, str, str]]) -> list[str]:
    return [
        page.paragraph(
            "Coordinate descent improves one coefficient at a time. Which one next? Safe sampling draws it from lower "
            "and upper bounds on the gradient, by the distribution that is provably best for what they leave open."
        ),
        page.paragraph(
            "Example 3.1 of the paper: all that is known of two gradient entries is 1 <= c1 <= 2 and 2 <= c2 <= 3. "
            "V(p, c) / |c|^2 tells how good a sampling p is, the smaller the better."
        ),
        page.table(EXAMPLE_HEAD, example),
        page.paragraph(
            "5,000 coordinates: what bounds of different quality are worth. Gain is the guaranteed progress of one "
            "step, over that of fixed importance sampling."
        ),
        page.table(BOUNDS_HEAD, bounds),
        page.paragraph(
            f"A Lasso, {size} (generated), until a duality gap of 1e-4 f(0) is certified. Seconds include setting up, "
            "but not compiling."
        ),
        page.paragraph(LEGEND),
    ]
