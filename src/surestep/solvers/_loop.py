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

from surestep.problem import Problem
from surestep.trace import Result, Status, Trace

logger = logging.getLogger("surestep")

Array = NDArray[np.float64]

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

    def advance(self, n_epochs: float) -> bool:
        """Do the work of some epochs, or of a part of one; False says that no step can improve the objective."""

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
    tol: float,
    callbacks: Iterable[Callback],
    trace_every: float,
    seconds: float,
) -> Result:
    """Advance a solver until its tolerance, its last epoch, or somebody's word; it took ``seconds`` to set up.

    The tolerance is on the duality gap, relative to the objective at zero. Where a problem has no certificate it is on
    the largest optimality violation c_j / sqrt(L_j), relative to that at zero.
    """
    callbacks = tuple(callbacks)
    zero = np.zeros(problem.n_coordinates)
    at_zero = problem.objective(zero)
    target = tol * (at_zero if problem.has_certificate else _violation(problem, zero))
    trace, epoch = Trace(), 0.0
    best_objective, best = math.inf, method.x.copy()
    first_error = None
    status = None
    improvable = True
    while True:
        gap = problem.duality_gap(method.x)
        error = gap.gap if problem.has_certificate else _violation(problem, method.x)
        trace.append(
            {
                "epoch": epoch,
                "steps": float(method.n_steps),
                "seconds": seconds,
                "objective": gap.objective,
                "gap": gap.gap,
                "nonzeros": float(np.count_nonzero(method.x[: problem.n_features])),
                **method.columns(),
            }
        )
        if gap.objective < best_objective:
            best_objective, best = gap.objective, method.x.copy()
        if not (
            np.isfinite(gap.objective) and gap.objective <= _DIVERGED * (abs(at_zero) + abs(trace["objective"][0]))
        ):
            status = Status.DIVERGED
        elif error <= target:
            status = Status.CONVERGED if problem.has_certificate else Status.CONVERGED_WITHOUT_CERTIFICATE
        elif not improvable:
            status = Status.OPTIMAL
        elif epoch >= max_epochs:
            status = Status.MAX_EPOCHS
        first_error = error if first_error is None else first_error
        progress = Progress(trace.last, 1.0 if status else _fraction(error, first_error, target), method.x)
        for callback in callbacks:
            callback(progress)
        logger.debug("epoch %g: objective %.6e, gap %.3e", epoch, gap.objective, gap.gap)
        if status is None and progress.stop:
            status = Status.STOPPED
        if status is not None:
            break
        next_epoch = min(trace.n_rows * trace_every, max_epochs)
        begin = time.perf_counter()
        try:
            improvable = method.advance(next_epoch - epoch)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
            break
        finally:
            seconds += time.perf_counter() - begin
        epoch = next_epoch
    # The last point is the best one unless steps were not monotone or the run was cut short.
    x = best if status in (Status.INTERRUPTED, Status.DIVERGED) or not status.success else method.x
    return _result(problem, x, status, target, trace, epoch, method.n_steps, seconds)


def _result(
    problem: Problem, x: Array, status: Status, target: float, trace: Trace, epoch: float, n_steps: int, seconds: float
) -> Result:
    gap = problem.duality_gap(x)
    if problem.has_certificate:
        reached = f"Certified gap {gap.gap:.3e}, asked for {target:.3e}"
    else:
        reached = f"Largest optimality violation {_violation(problem, x):.3e}, asked for {target:.3e}"
    return Result(
        coef=x[: problem.n_features].copy(),
        intercept=float(x[-1]) if problem.fit_intercept else 0.0,
        objective=gap.objective,
        gap=gap.gap,
        status=status,
        message=f"{status.value} {reached}, after {epoch:g} epochs and {n_steps} steps.",
        trace=trace,
        n_epochs=epoch,
        n_steps=n_steps,
        seconds=seconds,
    )


def _violation(problem: Problem, x: Array) -> float:
    """max_j c_j / sqrt(L_j) over the coordinates that have any curvature."""
    curved = problem.smoothness > 0.0
    return float(np.max(problem.optimality(x)[curved] / np.sqrt(problem.smoothness[curved]), initial=0.0))


def _fraction(error: float, first: float, target: float) -> float:
    """How far the error has come from the first to the target, on a logarithmic scale."""
    if not (0.0 < target < first < math.inf) or error >= first:
        return 0.0
    return min(math.log(first / error) / math.log(first / target), 1.0)
