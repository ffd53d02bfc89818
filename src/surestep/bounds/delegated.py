"""Margins that others compute, at points where x once was.

The paper's closing remark: the sampling needs nothing but bounds, so the work of keeping them can be left to other
machines. A crew of workers has the rows, in parts, and keeps computing their margins z_i = <a_i, x> at the last x that
it was sent. What it sends back is old, but not wrong: if x is now at a distance D from the point of a part, then the
margins of that part are within ||a_i|| D of those received. D is measured, so whatever happened to x in between
(shrinking, proximal steps, projections) needs no account of its own; nobody waits for anybody; and what arrives late,
in another order, twice or never costs sharpness, not safety.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surestep.bounds.tracker import EPS

Array = NDArray[np.float64]


class Crew(Protocol):
    """Those who compute margins. None of these calls waits for them."""

    @property
    def parts(self) -> list[slice]:
        """The rows of each part; together all rows."""

    def send(self, x: Array) -> None:
        """Let them know the present point, an array that is not changed any more."""

    def arrived(self) -> list[tuple[int, Array, Array]]:
        """Return what came since the last call: a part, the very point that was sent, and the margins there."""


class DelegatedMargins:
    """The margins last received, and how far x has come since.

    Attributes
    ----------
    z : ndarray of shape (n_samples,)
        Margins of each part at a point of its own.
    distances : ndarray of shape (n_parts,)
        How far from that point x was at the last `exchange`, rounded up; infinite where nothing has arrived yet.
    n_arrived : int
        How many times a part has arrived.
    """

    def __init__(self, crew: Crew, n_samples: int) -> None:
        self.parts, self.z, self.n_arrived = crew.parts, np.zeros(n_samples), 0
        self.distances = np.full(len(self.parts), np.inf)
        self._crew = crew
        self._points: list[Array | None] = [None] * len(self.parts)

    def exchange(self, x: Array) -> None:
        """Take what has arrived, send x out, and measure. Cost O(n + parts * d)."""
        self.distances = self.distances_from(x)
        for part, point, z in self._crew.arrived():
            self.n_arrived += 1
            away = distance_between(x, point)
            if away <= self.distances[part]:  # what is newer is not always nearer, and only that counts
                self.z[self.parts[part]], self._points[part], self.distances[part] = z, point, away
        self._crew.send(x)

    def distances_from(self, x: Array) -> Array:
        """Return the distance of x from the point of each part."""
        return np.array([np.inf if point is None else distance_between(x, point) for point in self._points])

    def staleness(self, x: Array) -> float:
        """Return the mean distance, over all rows that have margins, from where they were computed; NaN if none has."""
        distances = self.distances_from(x)
        rows = np.array([part.stop - part.start for part in self.parts])
        known = distances < np.inf
        return float(np.average(distances[known], weights=rows[known])) if known.any() else np.nan


def distance_between(x: Array, point: Array) -> float:
    """Return |x - point|, rounded up; infinite where a number is not finite."""
    away = float(np.linalg.norm(x - point)) * (1.0 + (x.size + 8.0) * EPS)
    return away if away < np.inf else np.inf
