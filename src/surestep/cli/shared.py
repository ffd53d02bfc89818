"""What the commands share: errors in one line, data and problems from options, output for people and for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table

import surestep as ss
from surestep.datasets import list_datasets, load_dataset, load_svmlight

NOT_REACHED = 3
INTERRUPTED = 130

LOSSES = ("squared", "squared_hinge", "logistic", "huber")
PENALTIES = ("l1", "l2", "elasticnet", "none")

F = TypeVar("F", bound=Callable[..., Any])


class OneLine(click.Group):
    """Commands whose errors are one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, ImportError, MemoryError) as error:
            raise click.ClickException(" ".join(str(error).split()) or type(error).__name__) from error
        except (KeyboardInterrupt, click.Abort):
            click.echo("Interrupted before there was a result.", err=True)
            ctx.exit(INTERRUPTED)


class Strength(click.ParamType[Any]):
    """A number, or a part of the least strength at which all coefficients are zero: max/10."""

    name = "number|max/N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float, or what is to divide alpha_max as a string max/N."""
        try:
            number = float(str(value).removeprefix("max/"))
        except ValueError:
            number = math.nan
        relative = str(value).startswith("max/")
        if not (0.0 < number < math.inf or (number == 0.0 and not relative)):
            self.fail(f"{value!r} is neither a number >= 0 nor max/N, such as max/10", param, ctx)
        return f"max/{number:g}" if relative else number


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Write the result as JSON, for programs.")

positive = click.FloatRange(min=0.0, min_open=True)

problem_options = options(
    click.option("--loss", type=click.Choice(("auto", *LOSSES)), default="auto", show_default=True,
                 help="auto: logistic where there are two labels, else squared."),
    click.option("--penalty", type=click.Choice(PENALTIES), default="l1", show_default=True),
    click.option("--alpha", type=Strength(), help="Strength of the penalty. max/10 is a tenth of the least strength at "
                 "which all coefficients are zero.  [default: max/10 with an L1 part, else 0.001]"),
    click.option("--l1-ratio", type=click.FloatRange(0.0, 1.0), default=0.5, show_default=True,
                 help="Of the elastic net: 1 is l1, 0 is l2."),
    click.option("--intercept/--no-intercept", default=True, show_default=True),
    click.option("--n-features", type=click.IntRange(min=1), help="Columns of the file; the largest index by default."),
)  # fmt: skip


def load(data: str, n_features: int | None = None) -> tuple[Any, Any, str]:
    """Return X, y and a name: of a file in svmlight format, of a SciPy .npz with labels y, or of a set by its name."""
    if Path(data).is_dir():
        raise ValueError(f"{data} is a folder: name a file in it")
    if Path(data).is_file():
        if data.endswith(".npz"):
            X = scipy.sparse.csr_array(scipy.sparse.load_npz(data), dtype=np.float64)
            with np.load(data, allow_pickle=False) as arrays:
                if "y" not in arrays.files:
                    raise ValueError(f"{data} has no array y with the targets")
                y = arrays["y"].astype(np.float64)
        else:
            X, y = load_svmlight(data, n_features=n_features)
        if n_features is not None and X.shape[1] != n_features:
            raise ValueError(f"{data} has {X.shape[1]} columns, not {n_features}")
        if X.shape[0] == 0:
            raise ValueError(f"{data} has no samples")
        return X, y, Path(data).name
    if data.removesuffix("'") not in [info.name for info in list_datasets()]:
        raise FileNotFoundError(f"there is no file {data}, nor a data set of that name: see 'surestep data list'")
    dataset = load_dataset(data)
    if n_features is not None and dataset.X.shape[1] != n_features:
        raise ValueError(f"{data} has {dataset.X.shape[1]} columns, not {n_features}")
    return dataset.X, dataset.y, dataset.name


cluster_options = options(
    click.option("--cluster", "address", help="Address of a Dask scheduler, such as tcp://10.0.0.1:8786: its workers "
                 "read DATA, svmlight files that they all see, and each keeps its part."),
    click.option("--workers", type=click.IntRange(min=1), help="The same with that many processes on this machine, "
                 "started and stopped by the command."),
)  # fmt: skip


@contextmanager
def loaded(
    data: Sequence[str], n_features: int | None, address: str | None = None, workers: int | None = None
) -> Iterator[tuple[Any, Any, str]]:
    """Yield X, y and a name: in one place, or in row partitions on a cluster that is there meanwhile."""
    if address is None and workers is None:
        if len(data) > 1:
            raise ValueError(f"{len(data)} files are read in row partitions only: add --workers or --cluster")
        yield load(data[0], n_features)
        return
    from surestep.distributed import cluster, read_svmlight

    if address is not None and workers is not None:
        raise click.UsageError("--cluster and --workers exclude each other")
    with cluster(address, n_workers=workers):
        X, y = read_svmlight(data, n_features=n_features)
        yield X, y, data[0] if len(data) == 1 else f"{len(data)} files"


def make_problem(
    X: Any, y: Any, loss: str, penalty: str, alpha: float | str | None, l1_ratio: float, intercept: bool
) -> ss.Problem:
    """Return the problem that the options tell."""
    if loss == "auto":
        labels = np.unique(y)  # of a dask array: found by the workers
        labels = labels.compute() if hasattr(labels, "compute") else labels
        loss = "logistic" if labels.size == 2 else "squared"
    problem = ss.Problem(X, y, loss, regularizer_of(penalty, 1.0, l1_ratio), fit_intercept=intercept)
    has_l1 = penalty == "l1" or (penalty == "elasticnet" and l1_ratio > 0.0)
    if alpha is None:
        alpha = "max/10" if has_l1 else 1e-3
    if isinstance(alpha, str):
        if not has_l1:
            raise ValueError(f"--alpha {alpha} needs a penalty with an L1 part, but it is {penalty}")
        alpha = problem.alpha_max() / float(alpha.removeprefix("max/"))
    return problem.with_regularizer(regularizer_of(penalty, alpha, l1_ratio))


def regularizer_of(penalty: str, alpha: float, l1_ratio: float) -> Any:
    """Return the regularizer of that name and strength."""
    if penalty == "none":
        return ss.NoPenalty()
    return ss.ElasticNet(alpha, l1_ratio) if penalty == "elasticnet" else {"l1": ss.L1, "l2": ss.L2}[penalty](alpha)


def tell(as_json: bool, facts: dict[str, Any], show: Callable[[Console], None]) -> None:
    """Write JSON, or what `show` writes, to standard output."""
    if as_json:
        click.echo(json.dumps(plain(facts)))
    else:
        show(Console())


def plain(value: Any) -> Any:
    """Return what JSON has a word for; numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def lines(head: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    """Return a table for the terminal, the first column to the left and numbers to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for k, name in enumerate(head):
        table.add_column(name, justify="left" if k == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def leave(ctx: click.Context, interrupted: bool, successful: bool) -> NoReturn:
    """End with the exit code that says how it went."""
    ctx.exit(INTERRUPTED if interrupted else 0 if successful else NOT_REACHED)
