"""Newton's method for problems without kinks: no L1 part and no bounds.

    (A^T D A + Lambda) step = -c,    D = diag(s_i loss''(z_i)),    Lambda = diag(l2_j),    c = gradient of f

is solved by conjugate gradients and, when these have taken the time of a matrix, directly: over the features or the
samples, whichever are fewer, if these are not too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from surestep.design import Dense, product, transposed_product
from surestep.problem import Problem
from surestep.solvers._gram import CACHED, Gram, Products

if TYPE_CHECKING:
    from surestep.solvers._samples import Samples

Array = NDArray[np.float64]

# So many unknowns are still solved for directly: n^3 / 3 operations at the speed of BLAS.
_MOST_DIRECT = 4000

# Steps of conjugate gradients for a Newton step, at most; and so few that a matrix of their price is made at once.
_MOST_ITERATIONS, _FEWEST_ITERATIONS = 500, 20


def conjugate_gradients(
    times: Callable[[Array], Array], right: Array, preconditioner: Array, accuracy: float, max_iterations: int
) -> Array:
    """Solve H x = right, given v -> H v for a positive H and a diagonal near its inverse, to a relative accuracy."""
    x, residual = np.zeros_like(right), right
    scaled = preconditioner * residual
    direction, size = scaled, residual @ scaled
    enough = accuracy**2 * size
    for _ in range(max_iterations):
        image = times(direction)
        curvature = direction @ image
        if not curvature > 0.0:
            break
        x += (size / curvature) * direction
        residual = residual - (size / curvature) * image
        scaled = preconditioner * residual
        last, size = size, residual @ scaled
        if not size > enough:
            break
        direction = scaled + (size / last) * direction
    return x


class Newton:
    """Newton steps of one problem; what does not change from step to step is computed once."""

    def __init__(self, problem: Problem, samples: Samples) -> None:
        self._samples = samples
        self.n_products, self._rent = 0, 0.0
        self.take_up(problem)

    def take_up(self, problem: Problem) -> None:
        """Go on with a problem that differs in its regularizer."""
        self._problem, samples = problem, self._samples
        n, d, l2 = problem.n_samples, problem.n_coordinates, problem.penalty.l2
        self._penalised = l2 > 0.0
        if d <= min(n, _MOST_DIRECT):
            self._matrix = "features"
        elif samples.whole and n <= _MOST_DIRECT and np.all(self._penalised[: problem.n_features]):
            self._matrix = "samples"
        else:
            self._matrix = ""
        self._of_product, self._of_matrix = samples.prices(self._matrix) if self._matrix else (0.0, math.inf)

    @property
    def way(self) -> str:
        """How the next step is found: "conjugate gradients", or directly over the "features" or "samples"."""
        # Pay rent until it has come to the price: whatever is to follow, that is at most twice the best.
        is_bought = self._rent >= self._of_matrix or self._of_matrix < _FEWEST_ITERATIONS * self._of_product
        return self._matrix if is_bought else "conjugate gradients"

    def step(self, c: Array, accuracy: float) -> Array:
        """Return the step for this gradient of f, exactly or to a relative accuracy."""
        if self.way == "features":
            return self._over_features(c)
        if self.way == "samples":
            return self._samples.solve_over_samples(self._problem.penalty.l2, c)
        return self._by_conjugate_gradients(c, accuracy)

    def _over_features(self, c: Array) -> Array:
        problem = self._problem
        matrix = self._samples.matrix(np.arange(problem.n_coordinates)).copy()
        diagonal = np.diagonal(matrix) + problem.penalty.l2
        # Columns that depend on each other, and no penalty: any of the solutions will do.
        least = 1e-14 * np.maximum(diagonal, np.max(diagonal) * 1e-14)
        matrix[np.diag_indices_from(matrix)] = diagonal + np.where(self._penalised, 0.0, least)
        return _solved(matrix, -c)

    def _by_conjugate_gradients(self, c: Array, accuracy: float) -> Array:
        l2 = self._problem.penalty.l2
        diagonal = self._samples.diagonal() + l2
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0.0)

        def times(v: Array) -> Array:
            self.n_products += 2
            self._rent += self._of_product
            return self._samples.curved(v) + l2 * v

        affordable = (self._of_matrix - self._rent) / self._of_product + 1.0 if self._matrix else math.inf
        return conjugate_gradients(times, -c, inverse, accuracy, int(min(affordable, _MOST_ITERATIONS)))


class OverSamples:
    """Newton's equations for features that are all penalised, solved over the samples by Woodbury's formula.

    With K = X Lambda^-1 X^T, which is computed once; an intercept, which has no penalty, by elimination.
    """

    def __init__(self, problem: Problem, l2: Array) -> None:
        self._problem, self._l2 = problem, l2[: problem.n_features]
        n, columns = problem.n_samples, problem.design.columns
        if isinstance(columns, Dense):  # as they are: to have them by rows takes longer than all the rest
            self._matrix = np.zeros((n, n))
            size = max(1, CACHED // n)
            for begin in range(0, problem.n_features, size):
                part = slice(begin, begin + size)
                lines = columns.values[part] / np.sqrt(self._l2[part, None])
                self._matrix += lines.T @ lines
        else:
            gram = Gram(Products(problem.design.rows, problem.n_features, 1.0 / self._l2))
            self._matrix = gram.of(np.arange(n))

    def serves(self, l2: Array) -> bool:
        """Whether it is that of this penalty."""
        return np.array_equal(self._l2, l2[: self._l2.size])

    def step(self, weights: Array, c: Array) -> Array:
        """Return the step at a point with these d_i, and this gradient of f."""
        n, d = weights.size, self._problem.n_features
        root = np.sqrt(weights)
        matrix = root[:, None] * self._matrix * root
        matrix[np.diag_indices(n)] += 1.0
        factor = scipy.linalg.cho_factor(matrix, overwrite_a=True, check_finite=False)

        def solve(v: Array) -> Array:
            """(X^T D X + Lambda)^-1 v."""
            v = v / self._l2
            inner = scipy.linalg.cho_solve(factor, root * self._times(v), check_finite=False)
            return v - self._transposed_times(root * inner) / self._l2

        step = solve(-c[:d])
        if not self._problem.fit_intercept:
            return step
        border = self._transposed_times(weights)
        across = solve(border)
        b = (-c[-1] - border @ step) / (weights.sum() - border @ across)
        return np.append(step - b * across, b)

    def _times(self, v: Array) -> Array:
        out = np.empty(self._problem.n_samples)
        product(self._problem.design.columns, v, out)
        return out

    def _transposed_times(self, v: Array) -> Array:
        out = np.empty(self._problem.n_features)
        transposed_product(self._problem.design.columns, v, out)
        return out


def _solved(matrix: Array, right: Array) -> Array:
    try:
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    except scipy.linalg.LinAlgError:
        return np.asarray(scipy.linalg.lstsq(matrix, right, check_finite=False)[0])
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
