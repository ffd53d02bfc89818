"""Samplers for compiled solvers: which coordinate next, and with what probability.

A sampler is a NamedTuple of arrays with `draw` registered for its type; register it for one of your own, and a solver
takes an instance as ``sampling``.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import generic, jit
from surestep.sampling.safe import fill_probabilities, find_level

Array = NDArray[np.float64]

# What `draw` returns instead of a coordinate: every c is zero; the sampler wants the whole gradient afresh.
NONE, OVER = -1, -2


@generic
def draw(sampler: Any, lower: Any, upper: Any, rng: Any) -> Any:
    """Draw a coordinate; return (i, p, v): the step alpha / p with alpha = 1 / v is the one that goes with it.

    ``lower`` and ``upper`` bound the magnitudes c of all coordinates, where the sampler asked for bounds. i = -1 says
    that every c is zero.
    """


@generic
def looks_at_bounds(sampler: Any) -> Any:
    """Whether `draw` reads the bounds; where it does not, nobody need compute them."""


@looks_at_bounds.register(tuple)
def _(sampler):
    return True


@generic
def observe(sampler: Any, tracker: Any, penalty: Any, j: Any, x: Any, step: Any) -> Any:
    """Take note of a step on coordinate j, which is now at x; `surestep.bounds.tracker.Step` says what is known."""


@observe.register(tuple)
def _(sampler, tracker, penalty, j, x, step):
    pass


class Fixed(NamedTuple):
    """A distribution that never changes, drawn from in O(1) by Walker's alias method.

    Column k of the table is chosen uniformly; it stands for k with probability ``keep[k]``, else for ``other[k]``.
    """

    probabilities: Array
    keep: Array
    other: NDArray[np.int64]
    value: float


def make_fixed(probabilities: Array, value: float) -> Fixed:
    """Build the alias table of a distribution whose worst case V(p, c) / ||c||^2 is ``value``. Cost O(n)."""
    n = probabilities.size
    keep, other = n * probabilities, np.arange(n)
    fill_alias(keep, other)
    return Fixed(probabilities, keep, other, value)


@jit
def fill_alias(keep: Array, other: NDArray[np.int64]) -> None:
    """Let columns with too little mass be topped up by those with too much (Vose)."""
    n = keep.size
    queue = np.empty(n, np.int64)
    n_small, large = 0, n  # small ones from the front, large ones from the back
    for k in range(n):
        if keep[k] < 1.0:
            queue[n_small] = k
            n_small += 1
        else:
            large -= 1
            queue[large] = k
    while n_small > 0 and large < n:
        n_small -= 1
        small, big = queue[n_small], queue[large]
        other[small] = big
        keep[big] -= 1.0 - keep[small]
        if keep[big] < 1.0:
            large += 1
            queue[n_small] = big
            n_small += 1
    # Rounding may leave some with a mass that is 1 but for an ulp; a probability of zero is never left here.
    for k in range(n_small):
        keep[queue[k]] = 1.0


@looks_at_bounds.register(Fixed)
def _(sampler):
    return False


@draw.register(Fixed)
def _(sampler, lower, upper, rng):
    n = sampler.keep.size
    place = rng.random() * n
    k = min(int(place), n - 1)
    i = k if place - k < sampler.keep[k] else sampler.other[k]
    return i, sampler.probabilities[i], sampler.value


class Cyclic(NamedTuple):
    """One coordinate after the other, in order; the step is 1 / L_i."""

    order: NDArray[np.int64]
    smoothness: Array
    position: NDArray[np.int64]


@looks_at_bounds.register(Cyclic)
def _(sampler):
    return False


@draw.register(Cyclic)
def _(sampler, lower, upper, rng):
    i = sampler.order[sampler.position[0]]
    sampler.position[0] = (sampler.position[0] + 1) % sampler.order.size
    return i, 1.0, sampler.smoothness[i]


class Greedy(NamedTuple):
    """The coordinate with the largest guaranteed progress c_i^2 / (2 L_i); the step is 1 / L_i."""

    smoothness: Array


@draw.register(Greedy)
def _(sampler, lower, upper, rng):
    best, largest = -1, 0.0
    for i in range(upper.size):
        if upper[i] > 0.0 and upper[i] * upper[i] > largest * sampler.smoothness[i]:
            best, largest = i, upper[i] * upper[i] / sampler.smoothness[i]
    return best, 1.0, sampler.smoothness[best]


class Safe(NamedTuple):
    """The safe sampling of the bounds, solved anew for every draw in O(n)."""

    smoothness: Array
    roots: Array
    level: Array  # of the last draw: the next one starts from there
    buffer: Array


def make_safe(smoothness: Array) -> Safe:
    """Make a safe sampler; coordinates with L_i = 0 must always come with bounds of zero."""
    return Safe(smoothness, np.sqrt(smoothness), np.zeros(1), np.empty(smoothness.size))


@draw.register(Safe)
def _(sampler, lower, upper, rng):
    roots, p = sampler.roots, sampler.buffer
    largest_lower = largest_root = 0.0
    smallest_root = np.inf
    movable = 0.0
    for i in range(lower.size):
        if upper[i] > 0.0:
            movable += sampler.smoothness[i]
            largest_lower = max(largest_lower, lower[i])
            largest_root = max(largest_root, roots[i])
            smallest_root = min(smallest_root, roots[i])
    if movable == 0.0:
        return -1, 1.0, 1.0
    if largest_lower == 0.0:  # nothing is known from below: importance sampling among those that may move
        value = movable
        for i in range(lower.size):
            p[i] = sampler.smoothness[i] / value if upper[i] > 0.0 else 0.0
    else:
        low = 0.5 * largest_lower / (largest_root * np.sqrt(lower.size))
        high = 2.0 * largest_lower / smallest_root
        start = sampler.level[0] if sampler.level[0] > 0.0 else low
        level, value = find_level(roots, lower, upper, low, high, start)
        sampler.level[0] = level
        fill_probabilities(roots, lower, upper, level, value, p)
    i = _pick(p, rng.random())
    return i, p[i], value


@jit
def _pick(p: Array, share: float) -> int:
    """Return the coordinate at which the sum of the probabilities passes ``share``."""
    total, last = 0.0, -1
    for i in range(p.size):
        if p[i] > 0.0:
            total += p[i]
            last = i
            if total > share:
                break
    return last
