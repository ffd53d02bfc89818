"""What a step on a coordinate gains, and how far to go along one on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.tracker import EPS

Array = NDArray[np.float64]

# A step is short enough when f falls, at its end, at most this part as fast as at its beginning.
FLAT = 0.3


@jit
def gain_of(reg: Any, k: int, x: float, g: float, curvature: float, change: float, by_slope: bool) -> float:
    """Square of the step on a coordinate times its curvature: twice what it gains, or less where it ends at a kink.

    With next to no curvature, which samples may have left, that is no sign of the gain: then ``by_slope``, the slope
    times the step. That is twice what it gains, or more than once where it ends at a kink.
    """
    smooth = g + reg.l2[k] * x
    upwards = (x if x != 0.0 else -smooth) > 0.0  # no branches, since it is asked of all coordinates at once
    slope: float = smooth + reg.l1[k] if upwards else smooth - reg.l1[k]
    return abs(change * slope) if by_slope else change * change * curvature


@jit
def penalty_change(reg: Any, x: Array, after: Array) -> float:
    """psi(after) - psi(x), from the differences: near the optimum the values are all alike."""
    total = 0.0
    for j in range(x.size):
        total += reg.l1[j] * (abs(after[j]) - abs(x[j])) + 0.5 * reg.l2[j] * (after[j] - x[j]) * (after[j] + x[j])
    return total


@jit
def between(low: float, high: float, at_low: float, at_high: float) -> float:
    """Where a line through the ends of a bracket crosses zero, but not too near to either."""
    return low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)


def step_along(slope_at: Callable[[float], float], steepest: float, at_high: float) -> float:
    """Return how far to go, at most 1, given the slopes of a convex function of t that falls at 0; those at 0 and 1.

    To go no further than where it is lowest cannot raise it; and slopes tell so where values drown in rounding.
    """
    # Slopes rise: those at 1/2 and 1 bound the rise over either half.
    if not at_high > 0.0 or slope_at(0.5) + at_high <= 0.0:
        return 1.0
    low, high, at_low = 0.0, 1.0, steepest
    while at_low < FLAT * steepest and high - low > EPS:
        t = between(low, high, at_low, at_high)
        at = slope_at(t)
        if at > 0.0:
            high, at_high = t, at
        else:
            low, at_low = t, at
    return low
