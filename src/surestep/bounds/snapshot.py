"""Bounds from a snapshot: the whole gradient at one point, and the distance from it, which can shrink again."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.path import FALL, RISE, ROUNDING, walk
from surestep.bounds.tracker import (
    EPS,
    Step,
    changed,
    follows_entries,
    interval,
    needs_gradient,
    refresh,
    stepped,
)

Array = NDArray[np.float64]

# Places in `Snapshot.totals`, behind those of a path.
SQUARED, SQUARED_ERROR, DISTANCE, LARGEST = 3, 4, 5, 6

# Columns of `Snapshot.seen`, a cache line for each coordinate: the entry of the gradient when it was last seen; length
# of the path upwards and downwards, and distances from the snapshot in the two norms, at that time; the norm of the
# column, rounded up, and the sum of its absolute entries; the entry of the gradient at the snapshot.
CENTRE, RISEN, FALLEN, REACH, LARGEST_REACH, NORM, ABSOLUTE, REFERENCE = 0, 1, 2, 3, 4, 5, 6, 7


class Snapshot(NamedTuple):
    """Bounds relative to a point where the whole gradient was known.

    An entry seen when r was at distance D_j from the snapshot has, by the triangle inequality, moved by at most
    norms_j (D_j + D) now that it is at distance D; D_j = 0 for those not visited since. Likewise in the norm of the
    largest entry, |<a_j, v>| <= sum_i |a_ij| max_i |v_i|, which is far the better one for short columns of sparse data:
    they touch few samples, and what happens to the others is nothing to them. The entry has also moved by no more than
    the path of r since (see `surestep.bounds.path`). The smallest of the three is used, in each direction.

    For the squared loss D^2 follows from inner products that every step knows anyway; see `CurvedSnapshot` for others.

    Attributes
    ----------
    seen : ndarray of shape (n, 8)
    residual : ndarray of shape (n_samples,), or (0,) where the largest entry is not followed
        r at the snapshot.
    totals : ndarray of shape (7,)
        Length of the path upwards and downwards since the snapshot, what rounding may have added, D^2, how far D^2 may
        be off by rounding, D, and the largest distance of an entry of r from the snapshot up to now, or infinity.
    one_sided : bool
        Whether the data are non-negative.
    """

    seen: Array
    residual: Array
    totals: Array
    one_sided: bool

    @property
    def norms(self) -> Array:
        """Weighted norms of the columns, rounded up."""
        return self.seen[:, NORM]


class CurvedSnapshot(Snapshot):
    """A snapshot for losses that are not quadratic: the distance from it is followed entry by entry."""

    __slots__ = ()


def start_snapshot(norms: Array, absolute: Array | None, n_samples: int, one_sided: bool, quadratic: bool) -> Snapshot:
    """Make room; the first `refresh` is due before the first step.

    Without the absolute sums of the columns the largest entry is not followed.
    """
    seen = np.zeros((norms.size, 8))
    seen[:, NORM], seen[:, ABSOLUTE] = norms, np.inf if absolute is None else absolute
    kind = Snapshot if quadratic else CurvedSnapshot
    return kind(seen, np.zeros(0 if absolute is None else n_samples), np.zeros(7), one_sided)


def follow_largest(tracker: Snapshot, follow: bool) -> None:
    """Follow the largest entry or not, until the next refresh; to be said before any step is taken."""
    tracker.totals[LARGEST] = 0.0 if follow and tracker.residual.size > 0 else np.inf


def forget(tracker: Snapshot) -> None:
    """Know nothing, until the next refresh."""
    tracker.totals[[RISE, FALL, DISTANCE, LARGEST]] = np.inf


@jit
def radius_within(tracker: Snapshot, j: int, distance: float, largest: float, rounding: float) -> float:
    """How far entry j may move while r moves by the given distances, and may be off by rounding."""
    seen = tracker.seen
    moved = min(seen[j, NORM] * distance, seen[j, ABSOLUTE] * largest)
    return float(moved * (1.0 + 8.0 * EPS) + 2.0 * seen[j, NORM] * rounding)


@interval.register(Snapshot)
def _(tracker, j):
    seen, totals = tracker.seen, tracker.totals
    norm, centre = seen[j, NORM], seen[j, CENTRE]
    if norm == 0.0:
        return 0.0, 0.0
    slack = norm * totals[ROUNDING] + 4.0 * EPS * abs(centre)
    chord = min(
        norm * (totals[DISTANCE] + seen[j, REACH]), seen[j, ABSOLUTE] * (totals[LARGEST] + seen[j, LARGEST_REACH])
    )
    down = min(norm * (totals[FALL] - seen[j, FALLEN]), chord) * (1.0 + 8.0 * EPS) + slack
    up = min(norm * (totals[RISE] - seen[j, RISEN]), chord) * (1.0 + 8.0 * EPS) + slack
    return centre - down, centre + up


@follows_entries.register(Snapshot)
def _(tracker):
    return False


@follows_entries.register(CurvedSnapshot)
def _(tracker):
    return True


@changed.register(CurvedSnapshot)
def _(tracker, i, before, after, weight):
    if weight > 0.0:
        totals = tracker.totals
        old, new = before - tracker.residual[i], after - tracker.residual[i]
        totals[LARGEST] = max(totals[LARGEST], abs(new))
        old, new = old * old / weight, new * new / weight
        totals[SQUARED] += new - old
        # This very addition may lose half an ulp of the sum, which may be far larger than its terms.
        totals[SQUARED_ERROR] += EPS * (8.0 * (new + old) + abs(totals[SQUARED]))


@stepped.register(Snapshot)
def _(tracker, j, step):
    if step.change != 0.0:
        # |d + v|^2 = |d|^2 + 2 <d, v> + |v|^2 with v = change * s a_j, so that <d, v> is change times what entry j has
        # moved since the snapshot.
        totals, reference = tracker.totals, tracker.seen[j, REFERENCE]
        totals[SQUARED] += 2.0 * step.change * (step.before - reference) + step.distance * step.distance
        lost = 2.0 * abs(step.change) * tracker.seen[j, NORM] * (totals[ROUNDING] + step.rounding)
        sizes = abs(step.change) * (abs(step.before) + abs(reference)) + step.distance * step.distance
        totals[SQUARED_ERROR] += 2.0 * lost + EPS * (8.0 * sizes + abs(totals[SQUARED]))
    _arrive(tracker, j, step)


@stepped.register(CurvedSnapshot)
def _(tracker, j, step):
    _arrive(tracker, j, step)


@jit
def _arrive(tracker: Snapshot, j: int, step: Step) -> None:
    """Note where coordinate j was seen."""
    totals, seen = tracker.totals, tracker.seen
    walk(totals, step, tracker.one_sided)
    totals[DISTANCE] = np.sqrt(max(totals[SQUARED], 0.0) + totals[SQUARED_ERROR])
    seen[j, CENTRE], seen[j, RISEN], seen[j, FALLEN] = step.gradient, totals[RISE], totals[FALL]
    seen[j, REACH], seen[j, LARGEST_REACH] = totals[DISTANCE], totals[LARGEST]


@jit
def _see_all(seen: Array, gradient: Array) -> None:
    """Note the whole gradient, in one walk along the table: it may be much larger than any cache."""
    for j in range(gradient.size):
        seen[j, CENTRE] = seen[j, REFERENCE] = gradient[j]
        seen[j, RISEN] = seen[j, FALLEN] = seen[j, REACH] = seen[j, LARGEST_REACH] = 0.0


@needs_gradient.register(Snapshot)
def _(tracker):
    return True


@refresh.register(Snapshot)
def _(tracker, point):
    _see_all(tracker.seen, point.gradient)
    tracker.totals[:] = 0.0
    tracker.totals[ROUNDING] = point.rounding
    if tracker.residual.size > 0:
        tracker.residual[:] = point.r
    follow_largest(tracker, True)
