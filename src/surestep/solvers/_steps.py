"""How far to go along a step."""

from __future__ import annotations

from collections.abc import Callable

from surestep.bounds.tracker import EPS

# A step is short enough when f falls, at its end, at most this part as fast as at its beginning.
_FLAT = 0.3


def step_along(slope_at: Callable[[float], float], steepest: float, at_high: float) -> float:
    """Return how far to go, at most 1, given the slopes of a convex function of t that falls at 0; those at 0 and 1.

    To go no further than where it is lowest cannot raise it; and slopes tell so where values drown in rounding.
    """
    # Slopes rise: those at 1/2 and 1 bound the rise over either half.
    if not at_high > 0.0 or slope_at(0.5) + at_high <= 0.0:
        return 1.0
    low, high, at_low = 0.0, 1.0, steepest
    while at_low < _FLAT * steepest and high - low > EPS:
        # Where a line through the ends of the bracket crosses zero, but not too near to either.
        t = low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
        at = slope_at(t)
        if at > 0.0:
            high, at_high = t, at
        else:
            low, at_low = t, at
    return low
