"""Several methods on one problem, several seeds each; runs that are in a folder already are not done again."""

from __future__ import annotations

import hashlib
import math
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

    @property
    def is_random(self) -> bool:
        """Whether it depends on a seed."""
        return self.solver != "minimize"

    def compile(self, problem: ss.Problem, watch: Watch) -> None:
        """Do a few steps, so that the clock of the next run does not count compiling."""
        if self.is_random:
            # Blocks of coordinate steps look at all data after some epochs, SGD from the second epoch on; under the
            # optimal sampling in every step.
            sampling, epochs = self.options.get("sampling", "safe"), 0.01
            if self.solver == "coordinate_descent":
                in_blocks = sampling == "safe" and self.options.get("bounds", "auto") == "auto"
                epochs = 12.0 if self.options.get("blocks", in_blocks) is True else epochs
            elif sampling != "optimal":
                epochs = 4.0
            self.solve(problem, callbacks=[watch(f"{self.name}, compiling")], max_epochs=epochs, **self.options)


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
    budget: float = math.inf,
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
    budget : float
        A run ends at the first row of its trace that comes after so many seconds of its clock, and is complete then.
    options
        For the solvers, where the methods have none of their own: max_epochs, tol, trace_every.

    Returns
    -------
    dict of str to list of Result
        By name of the method, one a seed.
    """
    runs: Runs = {}
    for method in methods:
        compiled = False
        for seed in seeds if method.is_random else seeds[:1]:
            known = None if folder is None else folder / _file_name(problem, method, seed, budget, options)
            if known is not None and known.exists():
                result = ss.Model.load(known).result
            else:
                if not compiled:
                    compiled = True
                    method.compile(problem, watch)
                result = method.solve(
                    problem,
                    callbacks=[watch(f"{method.name}, seed {seed}"), _Budget(budget)],
                    **{**options, **method.options},
                    **({"random_state": seed} if method.is_random else {}),
                )
            runs.setdefault(method.name, []).append(result)
            if is_cut_short(result, budget):
                return runs
            if known is not None and not known.exists():
                known.parent.mkdir(parents=True, exist_ok=True)
                about = {"method": method.name, "seed": str(seed)}
                ss.Model.of(problem, result, about).save(known)
    return runs


@dataclass(frozen=True)
class _Budget:
    """Ends a run after so many seconds of its clock, but not before it has gone anywhere."""

    seconds: float

    def __call__(self, progress: ss.Progress) -> None:
        is_spent = progress.row["epoch"] > 0.0 and progress.row["seconds"] >= self.seconds
        progress.stop = progress.stop or is_spent


def is_cut_short(result: ss.Result, budget: float = math.inf) -> bool:
    """Whether somebody asked a run to stop before it was complete; to be out of budget is to be complete."""
    if result.status is ss.Status.STOPPED:
        return result.seconds < budget
    return result.status is ss.Status.INTERRUPTED


def _file_name(problem: ss.Problem, method: Method, seed: int, budget: float, options: dict[str, Any]) -> str:
    """Name a run by all that its result depends on: other options, another version or other data make another name."""
    numbers = problem.smoothness.tobytes() + problem.gradient(np.zeros(problem.n_coordinates)).tobytes()
    told = (
        ss.__version__,
        repr(problem),
        sorted(method.options.items()),
        method.solver,
        seed,
        budget,
        sorted(options.items()),
    )
    digest = hashlib.sha256(repr(told).encode() + numbers).hexdigest()[:16]
    return f"{digest}.npz"


def least_objective(runs: Runs) -> float:
    """Return the least objective seen: f*, if one of the runs was long enough."""
    return min(float(np.min(run.trace["objective"])) for group in runs.values() for run in group)
