"""Problems whose features all have an L2 penalty, over their samples, where these are few.

With Lambda = diag(l2_j) the minimiser is x = Lambda^-1 X^T beta for some beta, one number a sample, and with
K = X Lambda^-1 X^T

    f = sum_i s_i loss(z_i, y_i) + beta^T K beta / 2,    z = K beta + b.

At the minimiser beta = -r, and Newton's step solves (I + D K) step = -(r + beta): nothing is as long as the features
but for the making of K, and of x in the end. The gap is (r + beta)^T K (r + beta) / 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from surestep.bounds.tracker import EPS
from surestep.problem import Problem
from surestep.solvers._gram import Gram, Products
from surestep.solvers._look import curvatures, loss_terms, residuals, slope
from surestep.solvers._sparse_products import CACHED
from surestep.solvers._steps import step_along

Array = NDArray[np.float64]

# Newton steps in a row, at most; and the least curvature, as a part of the smoothness.
_STEPS, _LEAST_CURVATURE = 50, 1e-6


class OverSamples:
    """A problem over its samples; K is computed once."""

    def __init__(self, problem: Problem, l2: Array) -> None:
        self._problem, self._l2 = problem, l2[: problem.n_features]
        n, design = problem.n_samples, problem.design
        if design.is_sparse:
            self._kernel = Gram(Products(design.rows, problem.n_features, 1.0 / self._l2)).of(np.arange(n))[:, :n]
            return
        # In the layout that is there: to make the other takes longer than all the rest.
        values = design.columns.values.T if design.has_columns else design.rows.values
        if values.dtype == np.float64 and np.all(self._l2 == self._l2[0]):  # no other factor than X itself
            self._kernel = values @ values.T / self._l2[0]
            return
        self._kernel = np.zeros((n, n))
        size = max(1, CACHED // n)
        for begin in range(0, problem.n_features, size):
            part = slice(begin, begin + size)
            lines = values[:, part] / np.sqrt(self._l2[part])
            self._kernel += lines @ lines.T

    def serves(self, l2: Array) -> bool:
        """Whether it is that of this penalty."""
        return np.array_equal(self._l2, l2[: self._l2.size])

    def minimise(self, r: Array, enough: float) -> Array:
        """Minimise f until the gap is at most ``enough``, or f does not fall any more; r is that of where one stands.

        Rounding is that of K, which is large where penalties are weak: `step` does better, near the minimiser.
        """
        problem, kernel, n = self._problem, self._kernel, r.size
        loss, y, weights = problem.loss, problem.y, problem.weights
        u, now, d, zero = np.zeros((4, n))

        def value(z: Array, beta: Array) -> float:
            return float(loss_terms(loss, z, zero, y, weights, 0.0)[0] + 0.5 * beta @ z)

        # From where -r leads, if that is lower than zero.
        beta, b, z = -r, 0.0, -(kernel @ r)
        at_zero = value(zero, zero)
        if value(z, beta) > at_zero:
            beta, z = np.zeros(n), np.zeros(n)
        for _ in range(_STEPS):
            residuals(loss, z, y, weights, u, now)
            c = now + beta
            if 0.5 * c @ kernel @ c + problem.fit_intercept * abs(np.sum(now)) <= enough:
                break
            curvatures(loss, z, y, weights, _LEAST_CURVATURE, 0.0, 0.0, d)
            solve = self._solver(d)
            step, shift = solve(-c), 0.0
            if problem.fit_intercept:  # it has no penalty: by elimination
                across = solve(d)
                shift = float((np.sum(beta) + np.sum(step)) / np.sum(across))
                step -= shift * across
            change = kernel @ step
            move, linear, quadratic = change + shift, float(beta @ change), float(step @ change)

            slope_at = partial(self._slope, z, move, linear, quadratic)
            steepest = slope_at(0.0)
            if not steepest < -EPS * at_zero:
                break
            t = step_along(slope_at, steepest, slope_at(1.0))
            beta, b = beta + t * step, b + t * shift
            z = kernel @ beta + b
        x = problem.design.transposed_times(beta) / self._l2
        return np.append(x, b) if problem.fit_intercept else x

    def _slope(self, z: Array, move: Array, linear: float, quadratic: float, t: float) -> float:
        """Derivative of f in t, where z moves and the penalty is a parabola."""
        problem = self._problem
        return float(slope(problem.loss, z, move, t, problem.y, problem.weights) + linear + t * quadratic)

    def _solver(self, d: Array) -> Callable[[Array], Array]:
        """v -> (I + D K)^-1 v."""
        root = np.sqrt(d)
        matrix = root[:, None] * self._kernel * root
        matrix[np.diag_indices(d.size)] += 1.0
        factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)
        return lambda v: v - root * scipy.linalg.cho_solve(factor, root * (self._kernel @ v), check_finite=False)

    def step(self, weights: Array, c: Array) -> Array:
        """Return Newton's step at any point, with these d_i and this gradient of f, by Woodbury's formula."""
        d, design = self._problem.n_features, self._problem.design
        solved = self._solver(weights)

        def solve(v: Array) -> Array:
            """(X^T D X + Lambda)^-1 v = Lambda^-1 (v - X^T (I + D K)^-1 D X Lambda^-1 v)."""
            v = v / self._l2
            return v - design.transposed_times(solved(weights * design.times(v))) / self._l2

        step = solve(-c[:d])
        if not self._problem.fit_intercept:
            return step
        border = design.transposed_times(weights)
        across = solve(border)
        b = (-c[-1] - border @ step) / (weights.sum() - border @ across)
        return np.append(step - b * across, b)
