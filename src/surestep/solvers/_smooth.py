"""Newton's method for problems without kinks: no L1 part and no bounds.

    (A^T D A + Lambda) step = -c,    D = diag(s_i loss''(z_i)),    Lambda = diag(l2_j),    c = gradient of f

is solved by conjugate gradients and, when these have taken the time of a matrix, directly: over the features or the
samples, whichever are fewer, if these are not too many. Dual coordinate descent goes before where it may be all it
takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from surestep import losses
from surestep.problem import Problem

if TYPE_CHECKING:
    from surestep.solvers._samples import Samples

Array = NDArray[np.float64]

# So many unknowns are still solved for directly: n^3 / 3 operations at the speed of BLAS.
_MOST_DIRECT = 4000

# Steps of conjugate gradients for a Newton step, at most; and so few that a matrix of their price is made at once.
_MOST_ITERATIONS, _FEWEST_ITERATIONS = 500, 20

# Times that what is expected to be the rest of them may be more.
_SPARE = 2.0

# What Newton's method is expected to take, for a quadratic loss and for others (measured): matrices or factors; or
# products, so many times a power of the mean c_i of `_dual`, which is large for weak penalties; and nanoseconds for
# each sample besides.
_MATRICES, _PRODUCTS, _POWER, _PER_SAMPLE = (1, 4), (33, 66), 0.3, (0.0, 400.0)

# Dual coordinate descent: nanoseconds to set up, more than some problems are worth; sweeps that Newton's method must
# cost for it to be tried, a few more than a good problem takes; and sweeps after which it is known what it is worth.
_SET_UP, _FEWEST_SWEEPS, _TRIED = 1e6, 8, 5


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
    """Newton steps of one problem; what does not change from step to step is computed once.

    ``is_fresh``: no steps over the samples were done yet for this regularizer. ``n_sweeps``: those of dual coordinate
    descent that may go before. ``n_expected``: products with the Hessian until the target is reached, as far as one can
    tell.
    """

    def __init__(self, problem: Problem, samples: Samples, from_zero: bool) -> None:
        self._samples = samples
        self.n_products, self._rent, self.n_sweeps = 0, 0.0, math.inf if from_zero else 0.0
        self.take_up(problem)

    def take_up(self, problem: Problem) -> None:
        """Go on with a problem that differs in its regularizer."""
        self._problem, samples, self.is_fresh, self.n_expected = problem, self._samples, True, math.inf
        n, d, l2 = problem.n_samples, problem.n_coordinates, problem.penalty.l2
        self._penalised = l2 > 0.0
        if d <= min(n, _MOST_DIRECT):
            self._matrix = "features"
        elif samples.whole and n <= _MOST_DIRECT and np.all(self._penalised[: problem.n_features]):
            self._matrix = "samples"
        else:
            self._matrix = ""
        self._of_product, at_least = samples.prices(self._matrix, False)
        vars(self).pop("_of_matrix", None)
        if self.n_sweeps > 0.0:
            self.n_sweeps = self._sweeps_that_may_pay(at_least if self._matrix else math.inf)

    @cached_property
    def _of_matrix(self) -> float:
        """Nanoseconds of the matrix, infinite where there is none."""
        return self._samples.prices(self._matrix, True)[1] if self._matrix else math.inf

    def _sweeps_that_may_pay(self, at_least: float) -> float:
        """Return how many sweeps of dual coordinate descent may be tried; none where Newton's method should win.

        If they pay for what the matrix costs ``at_least``, the matrix need not be priced.
        """
        problem, samples = self._problem, self._samples
        l2, curved = problem.penalty.l2[: problem.n_features], not isinstance(problem.loss, losses.Squared)
        if not (samples.whole and l2[0] > 0.0 and np.all(l2 == l2[0])):
            return 0.0
        of_sweep, of_rows, square = samples.dual_prices()
        size = losses.smoothness(problem.loss) * square / (problem.n_samples * float(l2[0]))
        by_products = float(_PRODUCTS[curved] * size**_POWER * self._of_product)
        n_matrices = 1 if self._matrix == "samples" else _MATRICES[curved]  # K serves all steps

        def affordable(of_matrix: float) -> float:
            by_newton = min(n_matrices * of_matrix, by_products) + _PER_SAMPLE[curved] * problem.n_samples
            return (by_newton - of_rows - _SET_UP) / of_sweep

        found = affordable(at_least)
        if found < _FEWEST_SWEEPS <= affordable(math.inf):
            found = affordable(self._of_matrix)
        return found + _TRIED if found >= _FEWEST_SWEEPS else 0.0

    @property
    def is_by_features(self) -> bool:
        """Whether the next step is found over the features."""
        return self._matrix == "features" and self.way == "features"

    @property
    def way(self) -> str:
        """How the next step is found: "conjugate gradients", or directly over the "features" or "samples"."""
        is_bought = self._left <= 0.0 or self._of_matrix < _FEWEST_ITERATIONS * self._of_product
        return self._matrix if self._matrix and is_bought else "conjugate gradients"

    @property
    def _left(self) -> float:
        """Nanoseconds that conjugate gradients may take from now on.

        Pay rent until it has come to the price: whatever is to follow, that is at most twice the best. Some more, where
        it should soon be over.
        """
        left, more = self._of_matrix - self._rent, _SPARE * self.n_expected * self._of_product
        return max(left, more) if more < self._of_matrix and left > -self._of_matrix else left

    def buy(self) -> None:
        """Do without conjugate gradients from now on, if that is possible: they do not get anywhere."""
        self._rent = math.inf

    def step(self, c: Array, accuracy: Callable[[], float]) -> Array:
        """Return the step for this gradient of f, exactly or, where it is asked for, to a relative accuracy."""
        if self.way == "features":
            return self._over_features(c)
        if self.way == "samples":
            return self._samples.solve_over_samples(self._problem.penalty.l2, c)
        return self._by_conjugate_gradients(c, accuracy())

    def _over_features(self, c: Array) -> Array:
        problem, n = self._problem, self._problem.n_coordinates
        matrix = self._samples.model_matrix(np.arange(n))[:, :n].copy()
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
            self.n_products += 1
            self._rent += self._of_product
            return self._samples.curved(v) + l2 * v

        most = _MOST_ITERATIONS
        if self._matrix:
            most = min(most, math.ceil(self._left / self._of_product))
        return conjugate_gradients(times, -c, inverse, accuracy, most)


def _solved(matrix: Array, right: Array) -> Array:
    try:
        factor = scipy.linalg.cho_factor(matrix, check_finite=False)
    except scipy.linalg.LinAlgError:
        return np.asarray(scipy.linalg.lstsq(matrix, right, check_finite=False)[0])
    return np.asarray(scipy.linalg.cho_solve(factor, right, check_finite=False))
