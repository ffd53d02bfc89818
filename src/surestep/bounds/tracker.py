"""What every tracker of bounds does, and how to write one of your own.

With r = grad h(Ax), entry j of the smooth gradient is <a_j, r>. A tracker keeps, for every coordinate, an interval that
contains it whatever steps are taken. It is a NamedTuple of arrays with these functions registered for its type:

    interval(tracker, j)                    the interval (lo, hi) now
    stepped(tracker, j, step)               coordinate j has been moved, or looked at; see `Step` for what is known
    changed(tracker, i, before, after, s)   optional: entry i of r has changed; s is the weight of sample i
    follows_entries(tracker)                optional: False if `changed` is of no interest
    refresh(tracker, point)                 optional: the whole gradient at the start, see `Point`; not compiled
    needs_gradient(tracker)                 optional: whether to do so again every epoch

Pass an instance as ``bounds`` to a solver. With ``check_bounds=True`` the solver compares every interval with the true
gradient after every step, and names the first one that is wrong.

Distances are measured as samples are weighted: |v|^2 = sum_i v_i^2 / s_i for a change v of r. Then
|<a_j, v>| <= norms_j |v| by the Cauchy-Schwarz inequality, with norms_j^2 = sum_i s_i a_ij^2, and L_j = beta norms_j^2.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import generic, jit
from surestep.regularizers import magnitude_bounds

Array = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


class Step(NamedTuple):
    """What a solver knows after it has moved a coordinate by ``change`` (which may be 0: it only looked)."""

    before: float  # the entry <a_j, r> of that coordinate, before the move
    gradient: float  # and after it
    change: float  # of x_j
    distance: float  # |change of r|, rounded up
    rounding: float  # how far r may be off, by rounding of this step alone, in the same norm


class Point(NamedTuple):
    """A point where the whole gradient has been computed afresh."""

    x: Array
    r: Array
    gradient: Array
    norm: float  # |r|
    rounding: float  # how far r may be off, by rounding, in the same norm


@generic
def interval(tracker: Any, j: Any) -> Any:
    """Return (lo, hi) with lo <= <a_j, r> <= hi."""


@generic
def stepped(tracker: Any, j: Any, step: Any) -> Any:
    """Take note of a step on coordinate j."""


@generic
def changed(tracker: Any, i: Any, before: Any, after: Any, weight: Any) -> Any:
    """Take note that entry i of r has changed."""


@changed.register(tuple)
def _(tracker, i, before, after, weight):
    pass


@generic
def follows_entries(tracker: Any) -> Any:
    """Whether `changed` must be called; if not, a step of the squared loss is two plain walks along the column."""


@follows_entries.register(tuple)
def _(tracker):
    return True


@generic
def refresh(tracker: Any, point: Any) -> Any:
    """Take over the whole gradient at a point."""


@refresh.register(tuple)
def _(tracker, point):
    pass


@generic
def needs_gradient(tracker: Any) -> Any:
    """Whether `refresh` wants a new gradient every epoch; all get one at the start."""


@needs_gradient.register(tuple)
def _(tracker):
    return False


class NoBounds(NamedTuple):
    """For samplings that do not look at the gradient."""


@interval.register(NoBounds)
def _(tracker, j):
    return -np.inf, np.inf


@stepped.register(NoBounds)
def _(tracker, j, step):
    pass


@follows_entries.register(NoBounds)
def _(tracker):
    return False


@jit
def fill_intervals(tracker: Any, lo: Array, hi: Array) -> None:
    """Write the intervals of all coordinates."""
    for j in range(lo.size):
        lo[j], hi[j] = interval(tracker, j)


@jit
def fill_magnitudes(tracker: Any, penalty: Any, scale: Array, x: Array, lower: Array, upper: Array) -> None:
    """Write bounds on scale_j c_j, c_j the smallest element of the subdifferential in absolute value.

    An upper bound of 0 certifies that coordinate j stays where it is; so does a scale of 0, for a column of zeros.
    """
    for j in range(x.size):
        if scale[j] == 0.0:
            lower[j] = upper[j] = 0.0
        else:
            lo, hi = interval(tracker, j)
            low, high = magnitude_bounds(penalty, j, x[j], lo, hi)
            lower[j], upper[j] = low * scale[j], high * scale[j]
