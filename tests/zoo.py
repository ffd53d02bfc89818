"""Small problems that every solver must solve, and their solutions by an independent slow method.

``problems()`` gives the same objects in every call of a process, so results can be cached by problem.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy.sparse

from surestep import losses
from surestep.losses import Huber, Logistic, Squared, SquaredHinge
from surestep.problem import Problem
from surestep.regularizers import L1, L2, Box, ElasticNet, NonNegative, NoPenalty

LOSSES = {"squared": Squared(), "huber": Huber(0.7), "logistic": Logistic(), "squared_hinge": SquaredHinge()}

N, D = 30, 8  # rows and columns of most

REGULARIZERS = {
    "none": NoPenalty(),
    "l1": L1(0.05),
    "l2": L2(0.1),
    "elastic_net": ElasticNet(0.1, l1_ratio=0.6),
    "l1_nonnegative": L1(0.03) + NonNegative(),
    "box": Box(-0.1, np.linspace(0.05, 0.4, D)),
    "weights": ElasticNet(0.1, l1_ratio=0.8, weights=np.linspace(0.2, 2.0, D)),
}


@cache
def problems() -> tuple[tuple[str, Problem], ...]:
    """All problems of the zoo as (name, problem)."""
    zoo = {}
    for i, (loss_name, loss) in enumerate(LOSSES.items()):
        for k, (name, regularizer) in enumerate(REGULARIZERS.items()):
            layout = "sparse" if (i + k) % 2 else "dense"
            scaled = name != "none" and k % 3 != 1
            X, y = data(seed=10 * i + k, loss=loss, sparse=layout == "sparse", badly_scaled=scaled)
            zoo[f"{loss_name}-{name}-{layout}"] = Problem(X, y, loss, regularizer)

    weights = np.random.default_rng(1).integers(0, 4, N).astype(float)
    X, y = data(seed=101, loss=Squared())
    zoo["squared-l1-sample_weight"] = Problem(X, y, "squared", L1(0.05), sample_weight=weights)
    zoo["squared-l1-intercept"] = Problem(X, y + 3.0, "squared", L1(0.05), fit_intercept=True)
    zoo["squared-l1-float32"] = Problem(X.astype(np.float32), y, "squared", L1(0.05))
    zoo["squared-l1-duplicated_column"] = Problem(np.column_stack([X, X[:, 0]]), y, "squared", L1(0.05))
    zoo["huber-elastic_net-intercept-badly_scaled"] = Problem(
        data(seed=102, loss=Huber(), badly_scaled=True)[0], y - 2.0, Huber(), ElasticNet(0.05), fit_intercept=True
    )
    X, y = data(seed=103, loss=Logistic(), sparse=True)
    zoo["logistic-l2-sample_weight-intercept-sparse"] = Problem(
        X, y, "logistic", L2(0.05), sample_weight=weights, fit_intercept=True
    )
    zoo["logistic-l1-one_feature"] = Problem(X[:, [1]], y, "logistic", L1(0.01))
    zoo["logistic-none-intercept"] = Problem(X[:, 1:4], y, "logistic", None, fit_intercept=True)
    zoo["squared_hinge-l1-intercept-sparse"] = Problem(X, y, "squared_hinge", L1(0.03), fit_intercept=True)
    X, y = data(seed=104, loss=Squared(), n=20, d=40)
    zoo["squared-l1-wide"] = Problem(X, y, "squared", L1(0.1))
    zoo["logistic-elastic_net-wide"] = Problem(X, y > 0, "logistic", ElasticNet(0.1))
    return tuple(zoo.items())


def data(seed, loss, sparse=False, badly_scaled=False, n=N, d=D):
    """X, with one empty column if sparse, and y for the loss; noisy, so that classes are never separable by few."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if sparse:
        X *= rng.random((n, d)) < 0.4
        X[:, d // 2] = 0.0
    signal = X @ rng.standard_normal(d) * (d / 8) ** -0.5 + 1.5 * rng.standard_normal(n)
    if badly_scaled:
        X *= np.logspace(-1.5, 1.5, d)[rng.permutation(d)]
    y = np.where(signal > 0, 1.0, -1.0) if isinstance(loss, Logistic | SquaredHinge) else signal
    return (scipy.sparse.csc_array(X) if sparse else X), y


class PseudoHuber(NamedTuple):
    """sqrt(1 + (z - y)^2) - 1: a loss as a user would add it, the example in the docstring of `surestep.losses`."""


@losses.value.register(PseudoHuber)
def _(loss, z, y):
    return math.hypot(1.0, z - y) - 1.0


@losses.derivative.register(PseudoHuber)
def _(loss, z, y):
    return (z - y) / math.hypot(1.0, z - y)


@losses.second_derivative.register(PseudoHuber)
def _(loss, z, y):
    return math.hypot(1.0, z - y) ** -3


@losses.smoothness.register(PseudoHuber)
def _(loss):
    return 1.0


@losses.conjugate.register(PseudoHuber)
def _(loss, u, y):
    if abs(u) > 1.0:
        return math.inf
    return 1.0 - math.sqrt(1.0 - u * u) + u * y


@losses.is_classification.register(PseudoHuber)
def _(loss):
    return False


def reference_optimum(problem: Problem) -> float:
    """Objective at the optimum, to a relative 1e-12."""
    return _objective(problem, _dense(problem), reference_solution(problem))


@cache
def reference_solution(problem: Problem) -> np.ndarray:
    """Solution by coordinate descent and Newton steps on the free coordinates, in plain NumPy.

    Only the canonical arrays of the problem are used, none of its mathematics.
    """
    A, reg, s = _dense(problem), problem.penalty, problem.weights
    diagonal = _smoothness(problem) * (s @ A**2) + reg.l2
    moving = np.flatnonzero(s @ A**2 > 0.0)  # the rest of an optimum is 0
    x = np.zeros(A.shape[1])
    for _ in range(200):
        for _ in range(5):
            for j in moving:
                g = A[:, j] @ (s * _derivatives(problem, A @ x)[0])
                v = x[j] * diagonal[j] - g - reg.l2[j] * x[j]
                shrunk = np.sign(v) * max(abs(v) - reg.l1[j], 0.0) / diagonal[j]
                x[j] = min(max(shrunk, reg.lower[j]), reg.upper[j])
        for _ in range(20):
            if _violation(problem, A, x, diagonal) < 1e-13:
                return x
            x = _newton_step(problem, A, x)
    raise AssertionError(f"no reference solution: violation {_violation(problem, A, x, diagonal)}")


def _newton_step(problem, A, x):
    """Newton's step on the coordinates that are neither 0 nor at a bound, cut to keep signs and bounds."""
    reg, s = problem.penalty, problem.weights
    free = (x != 0.0) & (x > reg.lower) & (x < reg.upper)
    u, h = _derivatives(problem, A @ x)
    gradient = A.T @ (s * u) + reg.l2 * x + reg.l1 * np.sign(x)
    hessian = (A.T * (s * h)) @ A + np.diag(reg.l2)
    scale = np.sqrt(np.diag(hessian)[free]) + 1e-150
    step = np.zeros_like(x)
    scaled = hessian[np.ix_(free, free)] / np.outer(scale, scale)
    step[free] = -np.linalg.lstsq(scaled, gradient[free] / scale, rcond=1e-12)[0] / scale
    lower = np.where(reg.l1 > 0.0, np.where(x > 0.0, np.maximum(reg.lower, 0.0), reg.lower), reg.lower)
    upper = np.where(reg.l1 > 0.0, np.where(x < 0.0, np.minimum(reg.upper, 0.0), reg.upper), reg.upper)
    before = _objective(problem, A, x)
    for t in 0.5 ** np.arange(30):
        candidate = np.where(free, np.clip(x + t * step, lower, upper), x)
        if _objective(problem, A, candidate) <= before + 1e-15 * abs(before):
            return candidate
    return x


def _violation(problem, A, x, diagonal):
    """Largest |smallest subgradient|, each in units of the root of its curvature."""
    reg = problem.penalty
    g = A.T @ (problem.weights * _derivatives(problem, A @ x)[0]) + reg.l2 * x
    least = np.where(x <= reg.lower, -np.inf, np.where(x > 0.0, g + reg.l1, g - reg.l1))
    greatest = np.where(x >= reg.upper, np.inf, np.where(x < 0.0, g - reg.l1, g + reg.l1))
    violation = np.maximum(np.maximum(least, -greatest), 0.0)
    return np.max(violation / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0)))


def _objective(problem, A, x):
    reg, z, y = problem.penalty, A @ x, problem.y
    match problem.loss:
        case Squared():
            values = (z - y) ** 2 / 2
        case Huber(delta):
            values = np.where(abs(z - y) <= delta, (z - y) ** 2 / 2, delta * abs(z - y) - delta**2 / 2)
        case Logistic():
            values = np.logaddexp(0.0, -y * z)
        case SquaredHinge():
            values = np.maximum(1 - y * z, 0.0) ** 2 / 2
    return float(problem.weights @ values + reg.l1 @ abs(x) + reg.l2 @ x**2 / 2)


def _derivatives(problem, z):
    y = problem.y
    match problem.loss:
        case Squared():
            return z - y, np.ones_like(z)
        case Huber(delta):
            return np.clip(z - y, -delta, delta), (abs(z - y) <= delta) * 1.0
        case Logistic():
            p = 1.0 / (1.0 + np.exp(y * z))
            return -y * p, p * (1.0 - p)
        case SquaredHinge():
            return -y * np.maximum(1 - y * z, 0.0), (y * z < 1) * 1.0


def _smoothness(problem):
    return 0.25 if isinstance(problem.loss, Logistic) else 1.0


def _dense(problem):
    """X in full, in float64, with the column of the intercept."""
    columns = problem.design.columns
    if problem.design.is_sparse:
        arrays = columns.values, columns.indices.astype(np.int64), columns.starts.astype(np.int64)
        X = scipy.sparse.csc_array(arrays, shape=problem.design.shape).toarray()
    else:
        X = columns.values.T
    X = X.astype(np.float64)
    return np.column_stack([X, np.ones(problem.n_samples)]) if problem.fit_intercept else X


def design(seed, n, d, sparse, intercept):
    """A random matrix, with ones for the intercept, and a problem with these data."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    problem = Problem(scipy.sparse.csc_array(X) if sparse else X, np.ones(n), fit_intercept=intercept)
    return (np.column_stack([X, np.ones(n)]) if intercept else X), problem
