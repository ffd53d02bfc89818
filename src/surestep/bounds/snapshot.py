"""Bounds from a snapshot: the whole gradient at one point, and the distance from it, which can shrink again."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep.bounds.path import FALL, RISE, ROUNDING, walk
from surestep.bounds.tracker import EPS, changed, interval, needs_gradient, refresh, stepped

Array = NDArray[np.float64]

# Places in `Snapshot.totals`, behind those of a path.
SQUARED, SQUARED_ERROR, DISTANCE = 3, 4, 5


class Snapshot(NamedTuple):
    """Bounds relative to a point where the whole gradient was known.

    An entry seen when r was at distance D_j from the snapshot has, by the triangle inequality, moved by at most
    norms_j (D_j + D) now that it is at distance D; D_j = 0 for those not visited since. It has also moved by no more
    than the path of r since (see `surestep.bounds.path`). The smaller of the two is used, in each direction.

    Attributes
    ----------
    centre, rise, fall, norms, one_sided
        As in `surestep.bounds.path.Path`.
    reach : ndarray of shape (n,)
        D_j, the distance from the snapshot at which centre_j was seen.
    reference : ndarray of shape (n_samples,)
        r at the snapshot.
    totals : ndarray of shape (6,)
        Length of the path upwards and downwards since the snapshot, what rounding may have added, D^2, how far D^2 may
        be off by rounding, and D.
    """

    centre: Array
    rise: Array
    fall: Array
    reach: Array
    norms: Array
    reference: Array
    totals: Array
    one_sided: bool


def start_snapshot(norms: Array, n_samples: int, one_sided: bool) -> Snapshot:
    """Make room; the first `refresh` is due before the first step."""
    centre, rise, fall, reach = np.zeros((4, norms.size))
    return Snapshot(centre, rise, fall, reach, norms, np.zeros(n_samples), np.zeros(6), one_sided)


@interval.register(Snapshot)
def _(tracker, j):
    norm = tracker.norms[j]
    if norm == 0.0:
        return 0.0, 0.0
    centre, totals = tracker.centre[j], tracker.totals
    slack = totals[ROUNDING] + 4.0 * EPS * abs(centre) / norm
    chord = totals[DISTANCE] + tracker.reach[j]
    down = min(totals[FALL] - tracker.fall[j], chord) * (1.0 + 8.0 * EPS) + slack
    up = min(totals[RISE] - tracker.rise[j], chord) * (1.0 + 8.0 * EPS) + slack
    return centre - norm * down, centre + norm * up


@changed.register(Snapshot)
def _(tracker, i, before, after, weight):
    if weight > 0.0:
        old, new = before - tracker.reference[i], after - tracker.reference[i]
        old, new = old * old / weight, new * new / weight
        tracker.totals[SQUARED] += new - old
        # This very addition may lose half an ulp of the sum, which may be far larger than its terms.
        tracker.totals[SQUARED_ERROR] += EPS * (8.0 * (new + old) + abs(tracker.totals[SQUARED]))


@stepped.register(Snapshot)
def _(tracker, j, step):
    totals = tracker.totals
    walk(totals, step, tracker.one_sided)
    totals[DISTANCE] = np.sqrt(max(totals[SQUARED], 0.0) + totals[SQUARED_ERROR])
    tracker.centre[j] = step.gradient
    tracker.rise[j], tracker.fall[j] = totals[RISE], totals[FALL]
    tracker.reach[j] = totals[DISTANCE]


@needs_gradient.register(Snapshot)
def _(tracker):
    return True


@refresh.register(Snapshot)
def _(tracker, point):
    tracker.centre[:] = point.gradient
    tracker.rise[:] = tracker.fall[:] = tracker.reach[:] = 0.0
    tracker.reference[:] = point.r
    tracker.totals[:] = 0.0
    tracker.totals[ROUNDING] = point.rounding
