"""Several methods on one problem, several seeds each; runs that are in a folder already are not done again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import surestep as ss

Callback = Callable[[ss.Progress], object]
Watch = Callable[[str], Callback]
Runs = dict[str, list[ss.Result]]


@dataclass(frozen=True)
class Method:
    """A solver of surestep with its options, under the name that pictures and tables give it."""

    name: str
    solver: str = "coordinate_descent"
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def solve(self) -> Callable[..., ss.Result]:
        """The solver itself."""
        solver: Callable[..., ss.Result] = getattr(ss, self.solver)
        return solver


def unwatched(name: str) -> Callback:
    """Nobody looks at the progress."""
    return lambda progress: None


def run_methods(
    problem: ss.Problem,
    methods: Iterable[Method],
    *,
    seeds: Sequence[int] = (0,),
    watch: Watch = unwatched,
    folder: Path | None = None,
    key: str = "",
    **options: Any,
) -> Runs:
    """Run every method with every seed.

    Parameters
    ----------
    problem : Problem
    methods : iterable of Method
    seeds : sequence of int
    watch : callable
        Given the name of a run, it returns a callback for the solver; where one asks to stop, what is complete so far
        is returned, and the run that was cut short at the end of it.
    folder : Path, optional
        Every complete run is kept there, and a run that is there is read.
    key : str
        Says what the problem is, for the names of these files: runs of another key are never taken for this one's.
    options
        For the solvers, besides those of the methods: max_epochs, tol, trace_every.

    Returns
    -------
    dict of str to list of Result
        By name of the method, one a seed.
    """
    runs: Runs = {}
    for method in methods:
        for seed in seeds:
            known = None if folder is None else folder / _file_name(problem, method, seed, key, options)
            if known is not None and known.exists():
                result = ss.Model.load(known).result
            else:
                result = method.solve(
                    problem,
                    random_state=seed,
                    callbacks=[watch(f"{method.name}, seed {seed}")],
                    **{**options, **method.options},
                )
            runs.setdefault(method.name, []).append(result)
            if result.status in (ss.Status.STOPPED, ss.Status.INTERRUPTED):
                return runs
            if known is not None and not known.exists():
                known.parent.mkdir(parents=True, exist_ok=True)
                about = {"key": key, "method": method.name, "seed": str(seed)}
                ss.Model.of(problem, result, about).save(known)
    return runs


def _file_name(problem: ss.Problem, method: Method, seed: int, key: str, options: dict[str, Any]) -> str:
    """Name a run by all that its result depends on: other options, another version or other data make another name."""
    numbers = problem.smoothness.tobytes() + problem.gradient(np.zeros(problem.n_coordinates)).tobytes()
    told = (
        ss.__version__,
        key,
        repr(problem),
        sorted(method.options.items()),
        method.solver,
        seed,
        sorted(options.items()),
    )
    digest = hashlib.sha256(repr(told).encode() + numbers).hexdigest()[:16]
    return f"{digest}.npz"


def reached(result: ss.Result, best: float, accuracy: float, column: str = "epoch") -> float:
    """Return the first epoch, or second, at which f - best is at most ``accuracy`` times what it was; inf if never."""
    above = result.trace["objective"] - best
    there = np.flatnonzero(above <= accuracy * above[0])
    return float(result.trace[column][there[0]]) if there.size else float("inf")


def median_reached(results: Sequence[ss.Result], best: float, accuracy: float, column: str = "epoch") -> float:
    """Return the median over seeds of `reached`."""
    values = np.sort([reached(result, best, accuracy, column) for result in results])
    low, high = values[(values.size - 1) // 2], values[values.size // 2]
    return float(low if low == high else (low + high) / 2.0)  # of two infinite ones, too


def least_objective(problem: ss.Problem, runs: Runs) -> float:
    """Return f*: what the fast solver certifies, or the least objective seen if that is lower."""
    best = ss.minimize(problem, tol=1e-10).objective
    return min([best, *(float(np.min(r.trace["objective"])) for group in runs.values() for r in group)])
