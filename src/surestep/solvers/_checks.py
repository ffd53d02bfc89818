"""What solvers ask of their arguments, and the error they share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep.problem import Problem
from surestep.trace import Result

Array = NDArray[np.float64]


class BoundViolationError(RuntimeError):
    """A bound does not contain the truth: an interval its gradient entry, or the norms of gradients theirs."""


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise an error that lists the choices, unless the value is one of them."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_run(problem: Any, max_epochs: float, tol: float, trace_every: float, limit: str = "max_epochs") -> None:
    """Check what every solver hands to the loop; ``limit`` is what it calls the largest number of epochs."""
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a surestep.Problem, got {type(problem).__name__}")
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}")
    if not max_epochs >= 0.0:
        raise ValueError(f"{limit} must not be negative, got {max_epochs}")
    if not trace_every > 0.0:
        raise ValueError(f"trace_every must be positive, got {trace_every}")
    if max_epochs == trace_every == np.inf:
        raise ValueError("trace_every and max_epochs must not both be infinite: the run would never look up")


def starting_point(problem: Problem, warm_start: Result | ArrayLike | None) -> Array:
    """Return an array of its own, within the bounds."""
    if warm_start is None:
        return np.zeros(problem.n_coordinates)
    if isinstance(warm_start, Result):
        x = warm_start.coef
        if x.size != problem.n_features:
            raise ValueError(f"warm_start has {x.size} coefficients, the problem has {problem.n_features} features")
        x = np.append(x, warm_start.intercept) if problem.fit_intercept else x.copy()
    else:
        x = np.array(warm_start, dtype=np.float64)
        if x.shape != (problem.n_coordinates,):
            raise ValueError(f"warm_start must have shape ({problem.n_coordinates},), got {x.shape}")
        if not np.isfinite(x).all():
            raise ValueError(f"warm_start[{np.argmin(np.isfinite(x))}] is not finite")
    return np.clip(x, problem.penalty.lower, problem.penalty.upper)
