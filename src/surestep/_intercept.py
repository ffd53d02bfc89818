"""The best intercept on top of given predictions, from sums over samples that may be anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from surestep import losses
from surestep._jit import VECTORIZE, jit


@jit(fastmath=VECTORIZE)
def shift_sums(loss: Any, z: Any, y: Any, weights: Any, b: Any) -> Any:
    """Sums over samples of s_i times loss'(z_i + b), its absolute value, and loss''(z_i + b)."""
    slope, size, curvature = 0.0, 0.0, 0.0
    for i in range(y.size):
        if weights[i] > 0.0:
            u = losses.derivative(loss, z[i] + b, y[i])
            slope += weights[i] * u
            size += weights[i] * abs(u)
            curvature += weights[i] * losses.second_derivative(loss, z[i] + b, y[i])
    return slope, size, curvature


def best_shift(loss: Any, n_samples: int, sums: Callable[[float], Iterable[float]]) -> float:
    """Find the b that minimises sum_i s_i loss(z_i + b, y_i), by Newton's method within a bracket.

    ``sums`` gives the :func:`shift_sums` at any b. Where the loss falls for ever (logistic, with one class only), the
    search ends far out, where it is flat.
    """
    lower, upper, b = -math.inf, math.inf, 0.0
    for _ in range(100):
        slope, size, curvature = sums(b)
        if abs(slope) <= 2.0**-52 * math.sqrt(n_samples) * size:  # zero, as far as rounding lets the sum tell
            break
        if slope > 0.0:
            upper = b
        else:
            lower = b
        if upper - lower == math.inf:  # the minimiser is at least the first step away, then go on in ever larger steps
            b = 4.0 * b if b != 0.0 else -slope / losses.smoothness(loss)
            continue
        middle = 0.5 * (lower + upper)
        newton = b - slope / curvature if curvature > 0.0 else middle
        b = newton if lower < newton < upper else middle
    return b
