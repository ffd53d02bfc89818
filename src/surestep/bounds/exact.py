"""Bounds of no width (but for rounding): the whole gradient is updated after every step."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep.bounds.tracker import EPS, Point, changed, follows_entries, interval, needs_gradient, refresh, stepped
from surestep.lines import add, entry, n_entries, transposed_product

Array = NDArray[np.float64]

# Places in `totals` of both: what rounding may have added, and a bound on |r|.
ROUNDING, NORM = 0, 1


class Cooccurrence(NamedTuple):
    """The exact gradient of any loss: a change of r_i changes the entries of the columns that occur in row i.

    One step on coordinate j costs the sum of the lengths of the rows that occur in column j.

    Attributes
    ----------
    gradient : ndarray of shape (n,)
    norms : ndarray of shape (n,)
        Weighted norms of the columns, rounded up.
    rows : lines
        The rows of the design, without an intercept.
    has_intercept : bool
        Whether the last coordinate is an intercept, which occurs in every row.
    totals : ndarray of shape (2,)
    longest : float
        Length of the longest column: as often may one step round one entry.
    """

    gradient: Array
    norms: Array
    rows: Any
    has_intercept: bool
    totals: Array
    longest: float


@changed.register(Cooccurrence)
def _(tracker, i, before, after, weight):
    change = after - before
    for k in range(n_entries(tracker.rows, i)):
        j, value = entry(tracker.rows, i, k)
        tracker.gradient[j] += value * change
    if tracker.has_intercept:
        tracker.gradient[tracker.gradient.size - 1] += change


@stepped.register(Cooccurrence)
def _(tracker, j, step):
    totals = tracker.totals
    totals[NORM] += step.distance
    # |gradient_j| <= norms_j |r|, and every addition to it may lose half an ulp.
    totals[ROUNDING] += step.rounding + (tracker.longest + 4.0) * EPS * totals[NORM]
    tracker.gradient[j] = step.gradient


class Gram(NamedTuple):
    """The exact gradient of the squared loss, by the Gram matrix of the columns: gradient += change * gram_j.

    One step costs O(n), contiguous. Row j of the matrix, sum_i s_i a_ij a_i, is computed when j first moves, unless it
    is known from the start, for the price of one pass over the data: coordinates that never move cost nothing.

    Attributes
    ----------
    gradient, norms, totals
        As in `Cooccurrence`.
    columns : lines
    weights : ndarray of shape (n_samples,)
        The sample weights s.
    gram : ndarray of shape (n, n)
    known : ndarray of bool of shape (n,)
        Which rows have been computed.
    buffer : ndarray of shape (n_samples,)
    """

    gradient: Array
    norms: Array
    totals: Array
    columns: Any
    weights: Array
    gram: Array
    known: NDArray[np.bool_]
    buffer: Array


@stepped.register(Gram)
def _(tracker, j, step):
    totals = tracker.totals
    totals[NORM] += step.distance
    # The rows of the matrix are as accurate as a gradient entry of a residual of norm |change| norms_j.
    totals[ROUNDING] += step.rounding + 8.0 * EPS * totals[NORM]
    if step.change != 0.0:
        row = tracker.gram[j]
        if not tracker.known[j]:
            tracker.buffer[:] = 0.0
            add(tracker.columns, j, 1.0, tracker.buffer)
            tracker.buffer[:] *= tracker.weights
            transposed_product(tracker.columns, tracker.buffer, row)
            tracker.known[j] = True
        for k in range(row.size):
            tracker.gradient[k] += step.change * row[k]
    tracker.gradient[j] = step.gradient


@follows_entries.register(Gram)
def _(tracker):
    return False


@interval.register(Cooccurrence)
def _(tracker, j):
    radius = tracker.norms[j] * tracker.totals[ROUNDING]
    return tracker.gradient[j] - radius, tracker.gradient[j] + radius


@interval.register(Gram)
def _(tracker, j):
    radius = tracker.norms[j] * tracker.totals[ROUNDING]
    return tracker.gradient[j] - radius, tracker.gradient[j] + radius


@needs_gradient.register(Cooccurrence)
def _(tracker):
    return True


@needs_gradient.register(Gram)
def _(tracker):
    return True


@refresh.register(Cooccurrence)
def _(tracker, point):
    _take_over(tracker, point)


@refresh.register(Gram)
def _(tracker, point):
    _take_over(tracker, point)


def _take_over(tracker: Cooccurrence | Gram, point: Point) -> None:
    tracker.gradient[:] = point.gradient
    tracker.totals[ROUNDING], tracker.totals[NORM] = point.rounding, point.norm
