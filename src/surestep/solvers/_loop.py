"""The only loop: it owns the clock, the trace, the stopping rule and the callbacks."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surestep.problem import Gap, Problem
from surestep.trace import Result, Status, Trace

logger = logging.getLogger("surestep")

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# An objective this many times the one at the start is not on its way down.
_DIVERGED = 1e6


class Method(Protocol):
    """What the loop needs of a solver."""

    @property
    def x(self) -> Array:
        """The present point."""

    @property
    def n_steps(self) -> int:
        """Coordinate updates done so far."""

    def advance(self, n_epochs: float) -> Status | None:
        """Do the work of some epochs, or of a part of one; a status says that there is nothing left to do."""

    def evaluate(self) -> tuple[Gap, float]:
        """Return the duality gap at the present point, and the largest optimality violation; see `evaluate`."""

    def columns(self) -> dict[str, float]:
        """Return what the solver adds to a row of the trace."""


@dataclass
class Progress:
    """What a callback is shown after every row of the trace; set ``stop`` to end the run.

    Attributes
    ----------
    row : dict
        The newest row of the trace.
    fraction : float
        Progress towards the tolerance on a logarithmic scale, 0 to 1.
    x : ndarray
        The present point (with the intercept as its last entry, if there is one); a view, not to be changed.
    """

    row: dict[str, float]
    fraction: float
    x: Array
    stop: bool = False


Callback = Callable[[Progress], object]


def run(
    method: Method,
    problem: Problem,
    *,
    max_epochs: float,
    target: float,
    callbacks: Iterable[Callback],
    trace_every: float,
    seconds: float,
    support: Callable[[], Integers | slice] = lambda: slice(None),
) -> Result:
    """Advance a solver to its target, see `target_of`, its last epoch, or somebody's word.

    It took ``seconds`` to set up. ``support`` returns some coordinates; all others are zero at the present point.
    """
    if callable(callbacks):
        raise TypeError("callbacks must be a list of callables, got one that is in no list")
    callbacks = tuple(callbacks)
    certified = problem.has_certificate
    trace, epoch = Trace(), 0.0
    best: tuple[Gap, float, Integers | slice, Array] | None = None
    first_error = None
    status = None
    ended = None
    while True:
        gap, violation = method.evaluate()
        error = gap.gap if certified else violation
        x, places = method.x, support()
        trace.append(
            {
                "epoch": epoch,
                "steps": float(method.n_steps),
                "seconds": seconds,
                "objective": gap.objective,
                "gap": gap.gap,
                "nonzeros": float(np.count_nonzero(x[places]) - (problem.fit_intercept and x[-1] != 0.0)),
                **method.columns(),
            }
        )
        if _diverged(problem, gap.objective, trace.first["objective"]):
            status = Status.DIVERGED
        elif error <= target:
            status = Status.CONVERGED if certified else Status.CONVERGED_WITHOUT_CERTIFICATE
        elif ended is not None:
            status = ended
        elif epoch >= max_epochs:
            status = Status.MAX_EPOCHS
        first_error = error if first_error is None else first_error
        progress = Progress(trace.last, 1.0 if status else _fraction(error, first_error, target), x)
        for callback in callbacks:
            callback(progress)
        logger.debug("epoch %g: objective %.6e, gap %.3e", epoch, gap.objective, gap.gap)
        if status is None and progress.stop:
            status = Status.STOPPED
        if not (status and status.success) and (best is None or _better(gap, best[0])):
            best = gap, violation, places, x[places].copy()
        if status is not None:
            break
        next_epoch = min(trace.n_rows * trace_every, max_epochs)
        begin = time.perf_counter()
        try:
            ended = method.advance(next_epoch - epoch)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            break
        finally:
            seconds += time.perf_counter() - begin
        epoch = next_epoch
    # The last point is the best one unless steps were not monotone or the run was cut short.
    if not status.success and best is not None:
        gap, violation, places, values = best
        x = np.zeros(problem.n_coordinates)
        x[places] = values
    if certified:
        reached = f"Certified gap {gap.gap:.3e}, asked for {target:.3e}"
    else:
        reached = f"Largest optimality violation {violation:.3e}, asked for {target:.3e}"
    return Result(
        coef=x[: problem.n_features].copy(),
        intercept=float(x[-1]) if problem.fit_intercept else 0.0,
        objective=gap.objective,
        gap=gap.gap,
        status=status,
        message=f"{status.value} {reached}, after {epoch:g} epochs and {method.n_steps} steps.",
        trace=trace,
        n_epochs=epoch,
        n_steps=method.n_steps,
        seconds=seconds,
    )


def _diverged(problem: Problem, objective: float, first: float) -> bool:
    """Whether the objective is not finite, or out of all proportion to that at zero and at the start."""
    if abs(objective) <= _DIVERGED * abs(first):
        return False
    return not (math.isfinite(objective) and objective <= _DIVERGED * (abs(problem.objective_at_zero) + abs(first)))


def _better(gap: Gap, best: Gap) -> bool:
    """Whether the objective is lower; where rounding hides that, whether the gap is."""
    rounding = 1e-14 * abs(best.objective)
    if abs(gap.objective - best.objective) > rounding or gap.gap == best.gap:
        return gap.objective < best.objective
    return gap.gap < best.gap


def target_of(problem: Problem, tol: float) -> float:
    """Return the gap to reach: ``tol`` times the objective at zero.

    Where a problem has no certificate: the violation to reach, ``tol`` times that at zero.
    """
    if problem.has_certificate:
        return tol * problem.objective_at_zero
    return tol * evaluate(problem, np.zeros(problem.n_coordinates))[1]


def evaluate(problem: Problem, x: Array) -> tuple[Gap, float]:
    """Return the duality gap at x, and max_j c_j / sqrt(L_j) over the coordinates that have any curvature.

    The violation is only looked for where it is needed, in problems without a certificate; else it is NaN.
    """
    if problem.has_certificate:
        return problem.duality_gap(x), math.nan
    curved = problem.smoothness > 0.0
    c = problem.optimality(x)[curved]
    return problem.duality_gap(x), float(np.max(c / np.sqrt(problem.smoothness[curved]), initial=0.0))


def _fraction(error: float, first: float, target: float) -> float:
    """How far the error has come from the first to the target, on a logarithmic scale."""
    if not (0.0 < target < first < math.inf) or error >= first:
        return 0.0
    return min(math.log(first / error) / math.log(first / target), 1.0)
