"""The paper's bounds: what was seen when a coordinate was last visited, plus the length of the path since."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.tracker import EPS, Step, follows_entries, interval, refresh, stepped

Array = NDArray[np.float64]

# Places in `Path.totals`.
RISE, FALL, ROUNDING = 0, 1, 2


class Path(NamedTuple):
    """Cauchy-Schwarz bounds (Section 4): |<a_j, r> - centre_j| <= norms_j * (length of the path of r since the visit).

    With non-negative data all entries rise while a coordinate is increased, and fall while one is decreased (the
    derivative of a convex loss is monotone), so the two directions are added up apart: half the width for free. For
    data of both signs every step counts in both directions.

    Attributes
    ----------
    centre : ndarray of shape (n,)
        Entries of the gradient when they were last seen.
    rise, fall : ndarray of shape (n,)
        The totals at that time; -inf for a coordinate that was never seen.
    norms : ndarray of shape (n,)
        Weighted norms of the columns, rounded up.
    totals : ndarray of shape (3,)
        Length of the path upwards and downwards, and what rounding may have added.
    one_sided : bool
        Whether the data are non-negative.
    """

    centre: Array
    rise: Array
    fall: Array
    norms: Array
    totals: Array
    one_sided: bool


def start_path(norms: Array, one_sided: bool) -> Path:
    """Know nothing, as the paper does at its start: every interval is infinite."""
    never = np.full(norms.size, -np.inf)
    return Path(np.zeros(norms.size), never, never.copy(), norms, np.zeros(3), one_sided)


@interval.register(Path)
def _(tracker, j):
    norm = tracker.norms[j]
    if norm == 0.0:
        return 0.0, 0.0
    centre, totals = tracker.centre[j], tracker.totals
    # A few ulp for the operations of these very lines.
    slack = totals[ROUNDING] + 4.0 * EPS * abs(centre) / norm
    down = (totals[FALL] - tracker.fall[j]) * (1.0 + 8.0 * EPS) + slack
    up = (totals[RISE] - tracker.rise[j]) * (1.0 + 8.0 * EPS) + slack
    return centre - norm * down, centre + norm * up


@jit
def walk(totals: Array, step: Step, one_sided: bool) -> None:
    """Add a step to the length of the path."""
    if step.change >= 0.0 or not one_sided:
        totals[RISE] += step.distance
    if step.change <= 0.0 or not one_sided:
        totals[FALL] += step.distance
    # The totals are sums of ever more terms: each addition may lose half an ulp.
    totals[ROUNDING] += step.rounding + EPS * (totals[RISE] + totals[FALL])


@stepped.register(Path)
def _(tracker, j, step):
    totals = tracker.totals
    walk(totals, step, tracker.one_sided)
    tracker.centre[j] = step.gradient
    tracker.rise[j], tracker.fall[j] = totals[RISE], totals[FALL]


@follows_entries.register(Path)
def _(tracker):
    return False


@refresh.register(Path)
def _(tracker, point):
    # The gradient is not looked at: these bounds come from visits alone.
    tracker.totals[ROUNDING] += point.rounding
