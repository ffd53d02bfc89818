"""The regularization path: one problem for falling strengths of its penalty, each solve starting where the last ended.

Here is also what a tolerance means to those who fit models: :func:`relative_tolerance`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep.problem import Problem
from surestep.solvers._loop import Callback
from surestep.solvers.coordinate import coordinate_descent
from surestep.solvers.minimizer import Minimizer
from surestep.trace import Result, Status

Array = NDArray[np.float64]

_EPSILON = float(np.finfo(np.float64).eps)
# The strength that stands in for alpha_max = 0, where every alpha gives x = 0.
_SMALLEST_ALPHA = float(np.finfo(np.float64).resolution)


@dataclass(frozen=True, eq=False)
class RegularizationPath:
    """Solutions of one problem, from the strongest penalty to the weakest.

    Attributes
    ----------
    alphas : ndarray of shape (n_alphas,)
        Strengths, falling.
    results : tuple of Result
        One for each, with its certificate, status and trace.
    """

    alphas: Array
    results: tuple[Result, ...] = field(repr=False)

    @cached_property
    def coefs(self) -> Array:
        """Coefficients, of shape (n_features, n_alphas)."""
        return np.stack([result.coef for result in self.results], axis=1)

    @cached_property
    def intercepts(self) -> Array:
        """Intercepts, of shape (n_alphas,); zeros if none was fitted."""
        return np.array([result.intercept for result in self.results])

    @cached_property
    def gaps(self) -> Array:
        """Certified duality gaps, of shape (n_alphas,)."""
        return np.array([result.gap for result in self.results])

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Why each solve stopped."""
        return tuple(result.status for result in self.results)


def path(
    problem: Problem,
    alphas: ArrayLike | None = None,
    *,
    n_alphas: int = 100,
    eps: float = 1e-3,
    sampling: Any = "auto",
    tol: float = 1e-6,
    max_iter: int = 1000,
    n_jobs: int = 1,
    random_state: int | np.random.Generator | None = 0,
    callbacks: Iterable[Callback] = (),
) -> RegularizationPath:
    """Solve a problem for every alpha of a falling grid, with warm starts.

    Parameters
    ----------
    problem : Problem
        Its regularizer is scaled to each alpha; l1_ratio, weights and bounds are kept.
    alphas : array-like, optional
        Strengths >= 0, in any order. By default ``n_alphas`` of them from `Problem.alpha_max` to ``eps`` times that,
        evenly on a logarithmic scale.
    sampling, max_iter, n_jobs, random_state, callbacks
        See :func:`solve`.
    tol : float
        See :func:`relative_tolerance`.

    Returns
    -------
    RegularizationPath
        It ends early where a callback stops a solve, or Ctrl-C does.

    Examples
    --------
    >>> import numpy as np, surestep as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=50)
    >>> path = ss.path(ss.Problem(X, y, regularizer=ss.L1(1.0)), n_alphas=4, eps=0.1)
    >>> np.count_nonzero(path.coefs, axis=0)
    array([0, 1, 2, 2])
    """
    regularizer = problem.regularizer
    if not regularizer.alpha > 0.0:
        raise ValueError(
            f"a path needs a regularizer of positive strength to scale, such as L1(1), not {regularizer!r}"
        )
    grid = alpha_grid(problem, n_alphas, eps) if alphas is None else _falling(alphas)
    tol = relative_tolerance(problem, tol)
    callbacks = tuple(callbacks)
    results: list[Result] = []
    with Minimizer(n_jobs) as minimizer:
        for alpha in grid:
            result = solve(
                problem.with_regularizer(regularizer.scaled(alpha / regularizer.alpha)),
                sampling=sampling,
                tol=tol,
                max_iter=max_iter,
                random_state=random_state,
                callbacks=callbacks,
                warm_start=results[-1] if results else None,
                minimizer=minimizer,
            )
            results.append(result)
            if result.status in (Status.STOPPED, Status.INTERRUPTED):
                break
    return RegularizationPath(grid[: len(results)], tuple(results))


def solve(
    problem: Problem,
    *,
    sampling: Any = "auto",
    tol: float,
    max_iter: int,
    n_jobs: int = 1,
    random_state: int | np.random.Generator | None = 0,
    callbacks: Iterable[Callback] = (),
    warm_start: Result | ArrayLike | None = None,
    minimizer: Minimizer | None = None,
) -> Result:
    """Solve one problem, by default from x = 0 with the best intercept: optimal at once where alpha >= alpha_max.

    ``sampling="auto"`` means :func:`minimize`, with at most ``max_iter`` rounds; any other sampling means
    :func:`coordinate_descent` under it, with exact steps, which are never worse, and at most ``max_iter`` epochs. A
    ``minimizer`` that has solved such a problem before goes on from there.
    """
    start = problem.null_point() if warm_start is None else warm_start
    if isinstance(sampling, str) and sampling == "auto":
        with nullcontext(minimizer) if minimizer else Minimizer(n_jobs) as minimizer:
            return minimizer(problem, tol=tol, max_rounds=max_iter, callbacks=callbacks, warm_start=start)
    return coordinate_descent(
        problem,
        sampling=sampling,
        step="exact",
        tol=tol,
        max_epochs=max_iter,
        random_state=random_state,
        callbacks=callbacks,
        warm_start=start,
    )


def relative_tolerance(problem: Problem, tol: float) -> float:
    """Return the solvers' ``tol`` for which the gap is at most ``tol`` times the objective of the best constant model.

    Solvers measure against the objective at zero, without an intercept. That is far too lenient a measure where the
    targets are far from zero, or where one class is rare. A violation of optimality, which stands in for the gap where
    there is none, is of the order of the square root of the objective.

    Less than rounding hides is not asked for: residuals r, which are as good as the targets y they are differences of,
    are off by eps |y|, and the gap by the product of both, of which the objectives are the squares.
    """
    if not 0.0 < tol < math.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}")
    share = 1.0
    if problem.fit_intercept:
        at_zero = problem.objective_at_zero
        share = problem.objective(problem.null_point()) / at_zero if at_zero > 0.0 else 1.0
    if not problem.has_certificate:
        return max(tol * math.sqrt(share), _EPSILON)
    return max(tol * share, _EPSILON * math.sqrt(share), _EPSILON**2)


def alpha_grid(problem: Problem, n_alphas: int = 100, eps: float = 1e-3) -> Array:
    """``n_alphas`` strengths from `Problem.alpha_max` down to ``eps`` times that, evenly on a logarithmic scale."""
    if not (isinstance(n_alphas, Integral) and n_alphas >= 1):
        raise ValueError(f"n_alphas must be a whole number, at least 1, got {n_alphas!r}")
    if not 0.0 < eps <= 1.0:
        raise ValueError(f"eps must be positive and at most 1, got {eps}")
    largest = problem.alpha_max()
    if largest <= _SMALLEST_ALPHA:
        return np.full(n_alphas, _SMALLEST_ALPHA)
    return np.geomspace(largest, largest * eps, n_alphas)


def _falling(alphas: ArrayLike) -> Array:
    grid = np.array(alphas, dtype=np.float64)
    grid = np.sort(grid)[::-1] if grid.ndim == 1 else grid
    if grid.ndim != 1 or grid.size == 0 or not (np.isfinite(grid).all() and grid[-1] >= 0.0):
        raise ValueError(f"alphas must be a sequence of finite numbers >= 0, got {alphas!r}")
    return grid
