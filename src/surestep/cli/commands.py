"""The commands: fit, predict, path, compare, data, warmup; demo, figure and bench stand in files of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

import surestep as ss
from surestep.cli.demo import demo
from surestep.cli.figure import bench, figure
from surestep.cli.progress import Watcher
from surestep.cli.shared import (
    OneLine,
    as_json,
    cluster_options,
    leave,
    lines,
    load,
    loaded,
    make_problem,
    positive,
    problem_options,
    tell,
)
from surestep.datasets import list_datasets, load_dataset
from surestep.experiments.comparison import Comparison, compare_methods
from surestep.experiments.runs import Method


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ss.__version__, prog_name="surestep")
def surestep() -> None:
    """Linear models by coordinate descent and SGD under safe adaptive importance sampling.

    DATA is a file in svmlight format (plain or compressed), a SciPy .npz with labels y, or a name of
    'surestep data list'.

    Exit codes: 0 done, 1 error, 2 wrong usage, 3 tolerance not reached (the result is written), 130 interrupted (what
    there is so far is written).
    """


@surestep.command()
@click.argument("data", nargs=-1, required=True)
@problem_options
@cluster_options
@click.option("--out", type=click.Path(dir_okay=False), help="File for the model.")
@click.option("--tol", type=positive, default=1e-6, show_default=True, help="Duality gap, over the objective at zero.")
@click.option("--max-rounds", type=click.IntRange(min=1), default=1000, show_default=True)
@as_json
@click.pass_context
def fit(
    ctx: click.Context, /, data: tuple[str, ...], out: str | None, tol: float, max_rounds: int, as_json: bool,
    n_features: int | None, address: str | None, workers: int | None, **options: Any,
) -> None:  # fmt: skip
    """Fit a model, with a certificate of how close to the minimum it is.

    Several files, or a folder of them, are read in row partitions by the workers of a cluster.

    \b
    surestep fit breast_cancer --penalty l2 --alpha 0.01 --out model.npz
    surestep fit diabetes --loss squared --alpha max/100 --json
    surestep fit folder/*.svm --workers 2 --out model.npz
    """
    with loaded(data, n_features, address, workers) as (X, y, name):
        problem = make_problem(X, y, **options)
        with Watcher() as watch:
            result = ss.minimize(problem, tol=tol, max_rounds=max_rounds, callbacks=[watch(f"fit {name}")])
        n_samples = problem.n_samples
    if out is not None:
        ss.Model.of(problem, result, {"data": name}).save(out)
    facts = {
        "data": name,
        "n_samples": n_samples,
        "n_features": problem.n_features,
        "loss": repr(problem.loss),
        "regularizer": repr(problem.regularizer),
        "status": result.status.name,
        "message": result.message,
        "objective": result.objective,
        "gap": result.gap,
        "nonzeros": int(np.count_nonzero(result.coef)),
        "intercept": result.intercept,
        "seconds": result.seconds,
        "model": out,
    }

    def show(console: Console) -> None:
        console.print(f"{name}: {n_samples:,} samples, {problem.n_features:,} features", highlight=False)
        console.print(f"{problem.loss!r}, {problem.regularizer!r}", highlight=False)
        console.print(result.message, highlight=False)
        console.print(
            f"objective {result.objective:.8g}, {facts['nonzeros']:,} coefficients that are not zero, "
            f"{result.seconds:.2f} seconds" + (f"; model in {out}" if out else ""),
            highlight=False,
        )

    tell(as_json, facts, show)
    leave(ctx, watch.interrupted, result.status.success)


@surestep.command()
@click.argument("model")
@click.argument("data")
@click.option("--out", type=click.Path(dir_okay=False), help="File for the predictions, one a line.")
@click.option("--scores", is_flag=True, help="Write the value of the linear function instead of labels.")
@as_json
def predict(model: str, data: str, out: str | None, scores: bool, as_json: bool) -> None:
    """Predict with a model that 'surestep fit --out' has written.

    \b
    surestep predict model.npz breast_cancer --out predictions.txt
    """
    fitted = ss.Model.load(model)
    X, y, name = load(data)
    if X.shape[1] < fitted.n_features and Path(data).is_file() and not data.endswith(".npz"):
        X, y, name = load(data, fitted.n_features)  # the last columns of a svmlight file may be empty
    if X.shape[1] != fitted.n_features:
        raise ValueError(f"{data} has {X.shape[1]} columns, but the model was fitted on {fitted.n_features}")
    predictions = fitted.decision_function(X) if scores else fitted.predict(X)
    right = fitted.predict(X)
    measure = ("accuracy", float(np.mean(right == y))) if fitted.classes is not None else (
        "root_mean_squared_error", float(np.sqrt(np.mean((right - y) ** 2))))  # fmt: skip
    written = "".join(f"{value:.17g}\n" for value in predictions.tolist())
    if out is not None:
        Path(out).write_text(written)
    facts = {"data": name, "model": model, measure[0]: measure[1], "out": out}
    if out is None:
        facts["predictions"] = predictions.tolist()

    def show(console: Console) -> None:
        if out is None:
            click.echo(written, nl=False)
        click.echo(f"{measure[0].replace('_', ' ')} on the targets of {name}: {measure[1]:.6g}", err=True)

    tell(as_json, facts, show)


@surestep.command()
@click.argument("data", nargs=-1, required=True)
@problem_options
@cluster_options
@click.option("--n-alphas", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--eps", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), default=1e-2, show_default=True,
              help="The last strength, over the first, at which all coefficients are zero.")  # fmt: skip
@click.option("--tol", type=positive, default=1e-6, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="CSV file: a row for each coefficient that is not zero.")
@as_json
@click.pass_context
def path(
    ctx: click.Context, /, data: tuple[str, ...], n_alphas: int, eps: float, tol: float, out: str | None,
    as_json: bool, n_features: int | None, alpha: Any, address: str | None, workers: int | None, **options: Any,
) -> None:  # fmt: skip
    """Solve for falling strengths of the penalty, each from the solution before.

    \b
    surestep path diabetes --n-alphas 10 --out path.csv
    """
    if alpha is not None:
        raise ValueError("a path chooses its own strengths, by --n-alphas and --eps: leave --alpha out")
    with loaded(data, n_features, address, workers) as (X, y, name):
        problem = make_problem(X, y, alpha=1.0, **options)
        with Watcher() as watch:
            found = ss.path(problem, n_alphas=n_alphas, eps=eps, tol=tol, callbacks=[watch(f"path of {name}")])
    rows = [
        {
            "alpha": float(alpha),
            "nonzeros": int(np.count_nonzero(result.coef)),
            "objective": result.objective,
            "gap": result.gap,
            "status": result.status.name,
        }
        for alpha, result in zip(found.alphas, found.results, strict=True)
    ]
    if out is not None:
        entries = [
            f"{alpha:.17g},{j},{result.coef[j]:.17g}\n"
            for alpha, result in zip(found.alphas, found.results, strict=True)
            for j in np.flatnonzero(result.coef)
        ]
        Path(out).write_text("alpha,feature,coefficient\n" + "".join(entries))

    def show(console: Console) -> None:
        cells = [
            (f"{row['alpha']:.4g}", f"{row['nonzeros']:,}", f"{row['objective']:.6g}", f"{row['gap']:.1e}")
            for row in rows
        ]
        console.print(lines(("alpha", "not zero", "objective", "certified gap"), cells))
        if out is not None:
            console.print(f"Coefficients in {out}", highlight=False)

    tell(as_json, {"data": name, "path": rows, "out": out}, show)
    leave(ctx, watch.interrupted, all(status.success for status in found.statuses))


def _chosen(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    """A list with commas, of the choices that the parameter's help names."""
    choices = CHOICES[str(param.name)]
    chosen = [item.strip() for item in value.split(",")]
    for item in chosen:
        if item not in choices:
            raise click.BadParameter(f"{item!r} is not one of {', '.join(choices)}", ctx, param)
    return chosen


CHOICES = {
    "samplings": ("uniform", "importance", "safe", "optimal", "cyclic", "greedy"),
    "steps": ("adaptive", "fixed", "exact"),
    "bounds": ("auto", "cauchy-schwarz", "snapshot", "exact"),
}


@surestep.command()
@click.argument("data")
@problem_options
@click.option(
    "--samplings",
    default="uniform,importance,safe,optimal",
    show_default=True,
    callback=_chosen,
    help=f"Some of {', '.join(CHOICES['samplings'])}, with commas.",
)
@click.option(
    "--steps", default="adaptive", show_default=True, callback=_chosen, help=f"Some of {', '.join(CHOICES['steps'])}."
)
@click.option(
    "--bounds",
    default="auto",
    show_default=True,
    callback=_chosen,
    help=f"For safe: some of {', '.join(CHOICES['bounds'])}.",
)
@click.option(
    "--smoothness", type=click.Choice(("auto", "coordinate", "constant", "unit")), default="auto", show_default=True
)
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Seeds for each.")
@click.option("--max-epochs", type=positive, default=1000.0, show_default=True)
@click.option("--tol", type=positive, default=1e-4, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False), help="HTML report with pictures.")
@as_json
@click.pass_context
def compare(
    ctx: click.Context, /, data: str, samplings: list[str], steps: list[str], bounds: list[str], smoothness: str,
    repeats: int, max_epochs: float, tol: float, out: str | None, as_json: bool, n_features: int | None,
    **options: Any,
) -> None:  # fmt: skip
    """Compare ways to draw coordinates, on your data.

    \b
    surestep compare diabetes --samplings importance,safe,optimal --repeats 3 --out comparison.html
    surestep compare diabetes --samplings safe --bounds snapshot,exact --json
    """
    X, y, name = load(data, n_features)
    problem = make_problem(X, y, **options)
    methods = [
        Method(
            ", ".join([sampling] + [step] * (len(steps) > 1) + [bound] * (sampling == "safe" and len(bounds) > 1)),
            options={"sampling": sampling, "step": step, "smoothness": smoothness}
            | ({"bounds": bound} if sampling == "safe" else {}),
        )
        for sampling in samplings
        for step in steps
        for bound in (bounds if sampling == "safe" else bounds[:1])
    ]
    with Watcher(max_epochs) as watch:
        comparison = compare_methods(
            problem, methods, seeds=range(repeats), watch=watch, max_epochs=max_epochs, tol=tol, trace_every=0.5
        )
    report(ctx, name, comparison, out, as_json, watch.interrupted)


def report(
    ctx: click.Context, name: str, comparison: Comparison, out: str | None, as_json: bool, interrupted: bool
) -> None:
    """Show a comparison, write its page, and leave."""
    if out is not None:
        Path(out).write_text(comparison.page(f"Samplings compared on {name}"), encoding="utf-8")
    facts = {"data": name, "problem": repr(comparison.problem), "methods": comparison.rows(), "out": out}

    def show(console: Console) -> None:
        console.print(f"{name}: {comparison.problem!r}", highlight=False)
        console.print(lines(comparison.HEAD, comparison.cells()))
        if out is not None:
            console.print(f"Pictures in {out}", highlight=False)

    tell(as_json, facts, show)
    successful = all(run.status.success for runs in comparison.runs.values() for run in runs)
    leave(ctx, interrupted, successful)


@surestep.group()
def data() -> None:
    """Data sets by name."""


@data.command("list")
@as_json
def list_(as_json: bool) -> None:
    """List data sets, and whether they are here.

    \b
    surestep data list
    """
    infos = list_datasets()

    def show(console: Console) -> None:
        cells = [
            (i.name, f"{i.n_samples:,}", f"{i.n_features:,}", i.task, "yes" if i.available else "no", i.description)
            for i in infos
        ]
        table = lines(("name", "samples", "features", "task", "here", "what it is"), cells)
        table.columns[-1].justify = "left"
        console.print(table)
        console.print("Files are looked for in the folder that SURESTEP_DATA names.", highlight=False)

    tell(as_json, {"datasets": [info._asdict() for info in infos]}, show)


@data.command()
@click.argument("name")
@as_json
def get(name: str, as_json: bool) -> None:
    """Fetch a data set by its name, and check it.

    \b
    surestep data get bag_of_words
    """
    found = load_dataset(name)
    facts = {"name": found.name, "shape": list(found.X.shape), "task": found.task, "source": found.source}
    size = f"{found.X.shape[0]:,} samples, {found.X.shape[1]:,} features"
    tell(as_json, facts, lambda console: console.print(f"{found.name}: {size}, from {found.source}", highlight=False))


COMPILED = ("squared", "logistic", "squared_hinge")


@surestep.command()
@as_json
@click.pass_context
def warmup(ctx: click.Context, as_json: bool) -> None:
    """Compile what fit, predict and path use, once: later runs start at once.

    \b
    surestep warmup
    """
    seconds: dict[str, float] = {}
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 60))
    sparse = load_dataset("bag_of_words").X[:300, :400]
    with Watcher() as watch:
        for layout, X in (("dense", dense), ("sparse", sparse)):
            for loss in COMPILED:
                if watch.interrupted:
                    break
                begin = time.perf_counter()
                y = np.where(rng.random(X.shape[0]) < 0.5, -1.0, 1.0)
                problem = ss.Problem(X, y, loss, ss.L1(1.0), fit_intercept=True)
                problem = problem.with_regularizer(ss.L1(problem.alpha_max() / 10))
                for regularizer in (problem.regularizer, ss.L2(0.1)):
                    ss.minimize(problem.with_regularizer(regularizer), callbacks=[watch(f"{loss}, {layout}")])
                seconds[f"{loss}, {layout}"] = time.perf_counter() - begin
    cells = [(name, f"{value:.1f}") for name, value in seconds.items()]
    tell(as_json, {"seconds": seconds}, lambda console: console.print(lines(("compiled", "seconds"), cells)))
    leave(ctx, watch.interrupted, True)


for command in (demo, figure, bench):
    surestep.add_command(command)
