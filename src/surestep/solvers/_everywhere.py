"""Rounds for problems without kinks: every coordinate moves, by Newton's method or by way of the dual."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.problem import Gap, Problem
from surestep.solvers._rounds import Rounds
from surestep.solvers._samples import Samples
from surestep.solvers._smooth import Newton

Array = NDArray[np.float64]

# Steps are found to this part of the accuracy that ends at the target; shorter ones than this part of them show that
# curvatures change too fast for steps which take long to find.
_NEAR, _SHORT = 0.5, 0.1

# Curvatures of the model, as a part of the smoothness, at least: where the loss is linear a Newton step has no end.
# Those that have changed by less than this part of them stay as they are in a Gram matrix.
_LEAST_CURVATURE, _SLACK = 1e-6, 0.2


class Everywhere(Rounds):
    """A fit whose penalty is l2_j x_j^2 / 2, or nothing, for every coordinate."""

    smooth = True

    def __init__(self, problem: Problem, x: Array, target: float, samples: Samples) -> None:
        super().__init__(problem, x, samples, samples.n_entries())
        self._all = np.arange(problem.n_coordinates)
        self._newton = Newton(problem, samples, from_zero=not np.any(x[: problem.n_features]))
        # u as dual coordinate descent left it, or begins with, if that is where x comes from: x follows from it, and
        # the gap is smaller than with the derivatives at z. What the last sweep saw of it, and what rounding hides.
        begins = self._newton.n_sweeps > 0.0 and not problem.fit_intercept
        self._u: Array | None = np.zeros(problem.n_samples) if begins else None
        self._follows = 0.0  # the l2 for which it does: X^T r = -l2 x, and no pass over the data is needed to know it
        self._dual_gap, self._hidden = math.inf, 0.0
        # The last step by a matrix, which learns from it: where it began, with what gradient.
        self._began: tuple[Array, Array] | None = None
        # Products with the Hessian for the last step, and the gap before it.
        self._last = 0, math.inf
        self._begin(problem, target, moved=True)

    def take_up(self, problem: Problem, target: float) -> None:
        self._newton.take_up(problem)
        self._dual_gap, self._last = math.inf, (0, math.inf)
        self._begin(problem, target, moved=False)

    def _working_set(self) -> tuple[int, bool]:
        return 0, self._newton.is_by_features

    # --- Where we stand

    @property
    def _violation(self) -> float:
        curved = self._problem.smoothness > 0.0
        c = self._gradient + self._problem.penalty.l2 * self.x
        return float(np.max(np.abs(c[curved]) / np.sqrt(self._problem.smoothness[curved]), initial=0.0))

    def evaluate(self) -> tuple[Gap, float]:
        return self._gap, math.nan if self._problem.has_certificate else self._violation

    @property
    def _optimal(self) -> bool:
        return self._u is None and self._steepest == 0.0

    def _look(self, moved: bool = True) -> None:
        l2 = self._problem.penalty.l2
        if moved and self._u is not None:
            self._samples.take(self._u)
            self._follows = float(l2[0])
            self._steepest = 0.0
            self._put_gap(1.0, 0.5 * self._follows * float(self.x @ self.x), self._hidden)
            return
        if self._u is not None:
            self._gradient = -self._follows * self.x
        elif moved:
            self._balance()
            self._samples.residuals()
            self._gradient = self._samples.gradient(self._all)
            self._n_read += self._n_entries
            if self._problem.fit_intercept:
                self._gradient[-1] = 0.0  # up to rounding it is
        self._steepest, tau, penalties, gap = _penalty_terms(l2, self.x, self._gradient)
        self._put_gap(tau, penalties, gap + (self._hidden if self._u is not None else 0.0))

    # --- A round

    def _go(self) -> bool:
        """Do a step of Newton's method; many at once, where that can be done over the samples."""
        newton, x, samples = self._newton, self.x, self._samples
        newton.n_expected = self._n_expected()
        if newton.n_sweeps > 0.0:
            self._descend_on_the_dual()
            return True
        if self._u is not None:
            self._u = None
            self._look()
        if newton.way == "samples" and newton.is_fresh:  # once: near the minimiser `Newton.step` is the more exact
            newton.is_fresh = False
            x[:] = samples.minimise_over_samples(self._problem.penalty.l2, _NEAR * self._target)
            samples.restart(x)
            self.n_steps += 1
        else:
            self._step()
        return True

    def _step(self) -> None:
        newton, x, samples, l2 = self._newton, self.x, self._samples, self._problem.penalty.l2
        if self._began is not None:
            before, gradient = self._began
            samples.learn(x - before, self._gradient - gradient)
        by_matrix = newton.is_by_features
        self._began = (x.copy(), self._gradient) if by_matrix else None
        samples.bend(_LEAST_CURVATURE, slack=_SLACK if by_matrix else 0.0)
        c = self._gradient + l2 * x
        n_before = newton.n_products
        step = newton.step(c, self._accuracy)
        self._last = newton.n_products - n_before, self._gap.gap
        self._n_read += 2 * self._last[0] * self._n_entries
        self.n_steps += 1
        samples.aim(self._all, step)
        t = self._step_along(float(self._gradient @ step), float(l2 @ (step * (x + 0.5 * step))))
        x += t * step
        samples.go(t)
        if t < _SHORT:
            newton.buy()

    def _n_expected(self) -> float:
        """Products with the Hessian until the gap is at its target, at the pace of the last step."""
        (n, before), now = self._last, self._gap.gap
        if not (n > 0 and 0.0 < self._target < now < before < math.inf):
            return math.inf
        return n * math.log(now / self._target) / math.log(before / now)

    def _accuracy(self) -> float:
        """Good enough to converge superlinearly, and no better than the target asks for: the gap is the square of c."""
        accuracy = min(0.1, math.sqrt(self._violation)) if self._curved else 0.0
        near = _NEAR * math.sqrt(self._target / self._gap.gap) if self._gap.gap < np.inf else 0.0
        return max(accuracy, near, 1e-10)

    def _descend_on_the_dual(self) -> None:
        """Do sweeps over the samples until the gap may be small enough, or for as long as they seem to pay."""
        problem, newton = self._problem, self._newton
        # What a look found after the last sweeps is more than they saw.
        enough = _NEAR * self._target * min(self._dual_gap / self._gap.gap, 1.0)
        b = float(self.x[-1]) if problem.fit_intercept else 0.0
        l2 = float(problem.penalty.l2[0])
        after, u, n_steps, self._dual_gap, self._hidden = self._samples.minimise_by_dual(l2, b, enough, newton.n_sweeps)
        n_sweeps = n_steps / problem.n_samples
        newton.n_sweeps = newton.n_sweeps - n_sweeps if self._dual_gap <= enough else 0.0
        # With an intercept u would have to add up to nothing.
        self._u = u if newton.n_sweeps > 0.0 and not problem.fit_intercept else None
        self.n_steps += n_steps
        self._n_read += round(2 * n_sweeps * self._n_entries)
        if newton.n_sweeps > 0.0 or problem.objective(after) < self._gap.objective:
            self.x[:] = after
            self._samples.restart(self.x)


@jit
def _penalty_terms(l2: Array, x: Array, gradient: Array) -> tuple[float, float, float, float]:
    """Largest |c_j|; tau, see `_look.penalty_terms`, which is 1 or 0 here; and sums of the penalty and of its gap.

    The latter is psi_j(x_j) + psi_j*(-g_j) + x_j g_j = c_j^2 / (2 l2_j).
    """
    steepest, tau, total, gap = 0.0, 1.0, 0.0, 0.0
    for j in range(x.size):
        c = gradient[j] + l2[j] * x[j]
        steepest = max(steepest, abs(c))
        total += 0.5 * l2[j] * x[j] * x[j]
        if l2[j] > 0.0:
            gap += 0.5 * c * c / l2[j]
        elif c != 0.0:
            tau = 0.0
    return steepest, tau, total, gap
