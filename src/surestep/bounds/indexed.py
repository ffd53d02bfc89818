"""Safe sampling for coordinate descent at a cost that does not grow with the number of coordinates.

Joins a tracker whose bounds widen with the distance travelled, `Path` or `Snapshot`, to the index of
`surestep.sampling.index`. In normalised units every bound of a class of coordinates moves by the same number, the
distance times norms_i / sqrt(L_i); with L_i = beta norms_i^2 that is the same for all. Where the L_i are not
proportional to the norms, coordinates are put into classes of nearly equal rates, each with the largest of its own.

Coordinates seen at a visit widen with the path since (class k of n_rates); those last seen at a snapshot with the
distance from it, which can shrink again (class n_rates + k).
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import generic, jit
from surestep.bounds.snapshot import DISTANCE, Snapshot
from surestep.bounds.tracker import EPS, Point
from surestep.regularizers import signed_distance
from surestep.sampling.index import VALUE as INDEX_VALUE
from surestep.sampling.index import Index, draw_from, drift, make_index, place, probability, refill
from surestep.sampling.samplers import draw, looks_at_bounds, observe

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST_RATES = 12

# Places in `Indexed.memory`: distance from the snapshot so far, and what rounding may have added to all distances.
CHORD, ROUNDING = 0, 1


class Indexed(NamedTuple):
    """A safe sampler that is told of every step, and solves for its distribution anew in a few microseconds."""

    bounds: Index
    roots: Array
    kind: Integers  # class of each coordinate, by its rate
    rates: Array  # of each class
    memory: Array


def make_indexed(smoothness: Array, norms: Array, scale: Array) -> Indexed:
    """Make the sampler of bounds on c multiplied by a scale; coordinates with L_i = 0 are never drawn."""
    roots = np.divide(np.sqrt(smoothness), scale, out=np.zeros_like(norms), where=scale > 0.0)
    rate = np.divide(norms, roots, out=np.zeros_like(norms), where=roots > 0.0) * (1.0 + 8.0 * EPS)
    largest, smallest = float(rate.max()), float(np.min(rate, where=rate > 0.0, initial=np.inf))
    n_rates = 1 if largest <= smallest * (1.0 + 1e-6) else _MOST_RATES
    # Class k has rates up to largest * ratio^k, with ratio < 1.
    ratio = (smallest / largest) ** (1.0 / n_rates)
    rates = largest * ratio ** np.arange(n_rates)
    kind = np.clip(np.searchsorted(-rates, -rate, side="right") - 1, 0, n_rates - 1)
    return Indexed(make_index(smoothness, kind, 2 * n_rates), roots, kind, rates, np.zeros(2))


@looks_at_bounds.register(Indexed)
def _(sampler):
    return False


@draw.register(Indexed)
def _(sampler, lower, upper, rng):
    i = draw_from(sampler.bounds, rng)
    if i < 0:
        return i, 1.0, 1.0
    return i, probability(sampler.bounds, i), sampler.bounds.found[INDEX_VALUE]


@generic
def chord(tracker: Any) -> Any:
    """Distance of r from the snapshot; 0 for trackers that have none."""


@chord.register(tuple)
def _(tracker):
    return 0.0


@chord.register(Snapshot)
def _(tracker):
    return tracker.totals[DISTANCE]


@observe.register(Indexed)
def _(sampler, tracker, penalty, j, x, step):
    index, memory, n_rates = sampler.bounds, sampler.memory, sampler.rates.size
    if step.distance > 0.0:
        # The offsets are sums of ever more terms: each addition may lose half an ulp.
        path = (step.distance + step.rounding) * (1.0 + 8.0 * EPS)
        away = chord(tracker) - memory[CHORD] + step.rounding
        memory[CHORD] = chord(tracker)
        memory[ROUNDING] += step.rounding
        for k in range(n_rates):
            rate = sampler.rates[k]
            drift(index, k, path * rate + EPS * abs(index.classes[k]["offset"]))
            drift(index, n_rates + k, away * rate + EPS * abs(index.classes[n_rates + k]["offset"]))
    kind = sampler.kind[j]
    centre = signed_distance(penalty, j, x, step.gradient) / sampler.roots[j]
    radius = memory[ROUNDING] * sampler.rates[kind] + 8.0 * EPS * abs(centre)
    place(index, j, kind, centre - radius, centre + radius)


@jit
def _fill(sampler: Indexed, penalty: Any, x: Array, gradient: Array, low: Array, high: Array) -> None:
    for j in range(x.size):
        if sampler.roots[j] > 0.0:
            centre = signed_distance(penalty, j, x[j], gradient[j]) / sampler.roots[j]
            radius = sampler.memory[ROUNDING] * sampler.rates[sampler.kind[j]] + 8.0 * EPS * abs(centre)
            low[j], high[j] = centre - radius, centre + radius


def restart(sampler: Indexed, tracker: Any, penalty: Any, point: Point) -> None:
    """Take over a point computed afresh; with a snapshot, all bounds become those of the whole gradient there."""
    sampler.memory[ROUNDING] = max(sampler.memory[ROUNDING], point.rounding)
    if isinstance(tracker, Snapshot):
        sampler.memory[CHORD], sampler.memory[ROUNDING] = 0.0, point.rounding
        low, high = np.full((2, point.x.size), -np.inf)
        _fill(sampler, penalty, point.x, point.gradient, low, high)
        refill(sampler.bounds, sampler.rates.size + sampler.kind, low, high)
