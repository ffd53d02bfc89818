"""The model of progress that all samplings are judged by (eq. 3 of the paper), for any distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from surestep.sampling.distribution import as_vector, check_entries


def progress_model(probabilities: ArrayLike, gradient: ArrayLike, smoothness: ArrayLike | None = None) -> float:
    """Compute V(p, c) = sum_i L_i c_i^2 / p_i (Lemma 2.4): the smaller, the faster.

    A step alpha / p_i along coordinate i ~ p changes the objective, in expectation, by at most
    -alpha ||c||^2 + alpha^2 / 2 V(p, c) (eq. 3). An entry with c_i = 0 adds nothing; one with c_i != 0 that is never
    drawn makes V infinite.

    Parameters
    ----------
    probabilities : array-like of shape (n,)
        The distribution p: non-negative, summing to 1.
    gradient : array-like of shape (n,)
        The gradient c; signs do not matter.
    smoothness : array-like of shape (n,), optional
        Coordinate-wise Lipschitz constants L_i > 0; ones by default.

    Examples
    --------
    Example 3.1 of the paper: sampling by the upper bounds (2, 3) when the gradient is (2, 2).

    >>> import surestep as ss
    >>> ss.progress_model([0.4, 0.6], [2, 2]) / 8 == 25 / 12
    True
    """
    scaled, exponent = _model(probabilities, gradient, smoothness)[1:]
    with np.errstate(over="ignore"):
        return float(np.ldexp(scaled, 2 * exponent))


def progress_stepsize(probabilities: ArrayLike, gradient: ArrayLike, smoothness: ArrayLike | None = None) -> float:
    """Compute alpha = ||c||^2 / V(p, c), the stepsize with the best guaranteed progress for p (Lemma 2.1).

    The expected decrease of the objective is then at least alpha / 2 ||c||^2. Where the gradient is zero, or V is
    infinite, no step is guaranteed to help, and alpha is 0.

    Examples
    --------
    >>> import surestep as ss
    >>> ss.progress_stepsize([0.5, 0.5], [2, 2])
    0.5
    """
    squared_norm, scaled, _ = _model(probabilities, gradient, smoothness)
    return squared_norm / scaled if scaled > 0.0 else 0.0


def _model(probabilities: ArrayLike, gradient: ArrayLike, smoothness: ArrayLike | None) -> tuple[float, float, int]:
    """Return ||c||^2 and V(p, c) for c scaled by 2^-exponent to a largest entry near 1, and the exponent."""
    p, c = as_vector("probabilities", probabilities), as_vector("gradient", gradient)
    curvature = np.ones_like(p) if smoothness is None else as_vector("smoothness", smoothness)
    for name, vector in (("gradient", c), ("smoothness", curvature)):
        if vector.size != p.size:
            raise ValueError(f"{name} has {vector.size} entries, probabilities has {p.size}; they must be as many")
    check_entries("probabilities", p, (p >= 0.0) & (p <= 1.0 + 1e-6), "must be between 0 and 1")
    check_entries("gradient", c, np.isfinite(c), "must be finite")
    check_entries("smoothness", curvature, (curvature > 0.0) & np.isfinite(curvature), "must be positive and finite")
    if abs(p.sum() - 1.0) > 1e-6:
        raise ValueError(f"probabilities sum to {p.sum()}; they must sum to 1")
    exponent = int(np.frexp(np.abs(c).max())[1])
    moving = c != 0.0
    c, p, curvature = np.ldexp(c[moving], -exponent), p[moving], curvature[moving]
    with np.errstate(divide="ignore", over="ignore"):
        return float(c @ c), float(np.sum(curvature / p * c * c)), exponent
