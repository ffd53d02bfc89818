"""Rounds of the fast solver: what is the same whether a problem has kinks, and so a working set, or has none."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._intercept import best_shift
from surestep.bounds.tracker import EPS
from surestep.problem import Gap, Problem, certified
from surestep.solvers._samples import Samples
from surestep.solvers._steps import step_along
from surestep.trace import Status

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rounds without any progress after which rounding must be what is in the way.
_PATIENCE = 5


class Rounds(ABC):
    """Where the solver stands, and a round of it."""

    smooth: bool

    def __init__(self, problem: Problem, x: Array, samples: Samples, n_entries: int) -> None:
        self.x, self._samples, self._n_entries = x, samples, n_entries  # stored entries of X
        samples.restart(x)
        self._curved = not isinstance(problem.loss, losses.Squared)

    def _begin(self, problem: Problem, target: float, moved: bool) -> None:
        self._problem, self._target = problem, target
        self.n_steps, self._n_read, self._n_idle = 0, 0, 0
        self._look(moved)
        self._best = self._gap.objective, self._error

    @abstractmethod
    def take_up(self, problem: Problem, target: float) -> None:
        """Go on with another regularizer, with kinks if the last had any."""

    def evaluate(self) -> tuple[Gap, float]:
        """Return what the last look found."""
        return self._gap, self._violation

    def support(self) -> Integers | slice:
        """See `run`."""
        return slice(None)

    def columns(self) -> dict[str, float]:
        """Return the size of the working set, how it is worked on, and what has been read."""
        n_members, by_gram = self._working_set()
        return {
            "working_set": float(n_members),
            "gram": float(by_gram),
            "passes": self._n_read / max(self._n_entries, 1),
            **self._samples.columns(),
        }

    def advance(self, n_epochs: float) -> Status | None:
        """Do a round."""
        n_members, _ = self._working_set()
        if self._go():
            self._look()
        # Against the best so far: where rounding is all that moves, either falls every now and then.
        objective, error = self._best
        falls = self._gap.objective < objective - 4.0 * EPS * abs(objective) or self._error < 0.5 * error
        self._n_idle = 0 if falls or self._working_set()[0] > n_members else self._n_idle + 1
        self._best = min(objective, self._gap.objective), min(error, self._error)
        if self._optimal:
            return Status.OPTIMAL
        return Status.PRECISION if self._n_idle == _PATIENCE else None

    # --- What the two kinds differ in

    @abstractmethod
    def _go(self) -> bool:
        """Change x, and z with it; return whether there is anything to look at that has not been looked at."""

    @abstractmethod
    def _look(self, moved: bool = True) -> None:
        """Find out where x stands: the gradient, the gap, and what else the next round goes by."""

    @abstractmethod
    def _working_set(self) -> tuple[int, bool]:
        """Return its size, and whether it is worked on by its Gram matrix."""

    @property
    @abstractmethod
    def _violation(self) -> float:
        """Largest c_j / sqrt(L_j)."""

    @property
    @abstractmethod
    def _optimal(self) -> bool:
        """Whether all c_j are zero."""

    # --- Parts of both

    @property
    def _error(self) -> float:
        """What has to become small."""
        return self._gap.gap if self._gap.gap < np.inf else self._violation

    def _balance(self) -> None:
        """Move to the best intercept: a dual point needs residuals that add up to nothing."""
        if self._problem.fit_intercept:
            shift = best_shift(self._problem.loss, self._problem.n_samples, self._samples.shift_sums)
            self.x[-1] += shift
            self._samples.shift(shift)

    def _loss_terms(self, tau: float) -> Sequence[float] | Array:
        """See `_look.loss_terms`."""
        return self._samples.loss_terms(tau)

    def _put_gap(self, tau: float, penalties: float, gap: float) -> None:
        """Take the gap of the dual point tau u, given what the penalties add to f and to it."""
        mean, more = self._loss_terms(tau)
        objective = mean + penalties
        if tau == 0.0:
            self._gap = Gap(math.inf, objective, -math.inf, self._problem.certificate_reason)
        else:
            self._gap = certified(self._problem, objective, gap + more)

    def _step_along(self, slope: float, more: float) -> float:
        """Return how far to go along the move aimed at, at most 1, where a whole step changes the penalty by ``more``.

        The objective along the step lies below the mean loss, whose ``slope`` at 0 is known, plus t * more, a convex
        function of t that falls at 0.
        """

        def slope_at(t: float) -> float:
            return float(self._samples.slopes(t)[0] + more)

        return step_along(slope_at, slope + more, slope_at(1.0))
