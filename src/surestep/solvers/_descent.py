"""The steps of coordinate descent, compiled: draw, move, and tell everybody."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import VECTORIZE, generic, jit
from surestep.bounds.choose import lengths
from surestep.bounds.snapshot import LARGEST, Snapshot
from surestep.bounds.tracker import EPS, Step, changed, fill_magnitudes, follows_entries, stepped
from surestep.lines import dot, entry, n_entries
from surestep.problem import Problem
from surestep.regularizers import gradient_step
from surestep.sampling.samplers import draw, looks_at_bounds, observe

Array = NDArray[np.float64]


class State(NamedTuple):
    """What changes during a run."""

    x: Array
    z: Array  # Ax; for the squared loss only as of the last refresh
    r: Array  # grad h(Ax)
    lower: Array  # bounds on c, where the sampler looks at them
    upper: Array
    sums: Array  # steps done; the sum of v over the steps since the last row of the trace; entries of X gone through


class Rule(NamedTuple):
    """The step gamma: 1 / L_i if ``exact``, else 1 / (v p_i), with a v of its own if that is positive."""

    exact: bool
    value: float


class Rounding(NamedTuple):
    """How much rounding adds to the distance of r from the truth, see `rounding_of`."""

    per_distance: float
    per_move: float
    per_predictor: float
    per_residual: float


class Data(NamedTuple):
    """What does not change during a run, besides the columns."""

    y: Array
    weights: Array
    smoothness: Array  # of the loss along each coordinate
    norms: Array
    curvature: Array  # smoothness of loss and ridge term together
    scale: Array  # of the gradient entries, for the sampler


@jit
def descend(
    columns: Any,
    loss: Any,
    penalty: Any,
    data: Data,
    tracker: Any,
    sampler: Any,
    rule: Rule,
    rounding: Rounding,
    state: State,
    n_steps: int,
    rng: Any,
) -> int:
    """Do a number of steps; return 0, or what a draw said instead: `NONE` or `OVER`."""
    for _ in range(n_steps):
        if looks_at_bounds(sampler):
            fill_magnitudes(tracker, penalty, data.scale, state.x, state.lower, state.upper)
        i, p, value = draw(sampler, state.lower, state.upper, rng)
        if i < 0:
            return int(i)
        worst = rule.value if rule.value > 0.0 else value
        gamma = 1.0 / data.curvature[i] if rule.exact else data.scale[i] * data.scale[i] / (worst * p)
        gradient = dot(columns, i, state.r)
        change = gradient_step(penalty, i, state.x[i], gradient, gamma) - state.x[i]
        if change == 0.0:
            step = Step(gradient, gradient, 0.0, 0.0, 0.0)
        else:
            state.x[i] += change
            step = move(loss, columns, data, tracker, rounding, state, i, gradient, change)
        stepped(tracker, i, step)
        observe(sampler, tracker, penalty, i, state.x[i], step)
        state.sums[0] += 1.0
        state.sums[1] += value
        state.sums[2] += n_entries(columns, i) * (1.0 if change == 0.0 else 2.0)
    return 0


@generic
def move(
    loss: Any,
    columns: Any,
    data: Any,
    tracker: Any,
    rounding: Any,
    state: Any,
    i: Any,
    before: Any,
    change: Any,
) -> Any:
    """Carry a change of x_i, whose gradient entry is ``before``, over to r; return the `Step`."""


@move.register(tuple)
def _(loss, columns, data, tracker, rounding, state, i, before, change):
    return _move_by_entries(loss, columns, data, tracker, rounding, state, i, before, change)


@move.register(losses.Squared)
def _(loss, columns, data, tracker, rounding, state, i, before, change):
    if follows_entries(tracker):
        return _move_by_entries(loss, columns, data, tracker, rounding, state, i, before, change)
    # r is linear in x, and what happens to the entry and to r is known beforehand.
    squares = shift(tracker, columns, i, change, data.weights, state.r)
    distance = abs(change) * data.norms[i] * (1.0 + (n_entries(columns, i) + 8.0) * EPS)
    error = rounding.per_distance * distance + rounding.per_residual * np.sqrt(squares)
    return Step(before, before + change * data.smoothness[i], change, distance, error)


@generic
def shift(tracker: Any, columns: Any, i: Any, change: Any, weights: Any, r: Any) -> Any:
    """Add change * s a_i to r; return the sum of squares of the entries of r that were touched."""


@shift.register(tuple)
def _(tracker, columns, i, change, weights, r):
    return _shift(columns, i, change, weights, r)


@shift.register(Snapshot)
def _(tracker, columns, i, change, weights, r):
    if tracker.totals[LARGEST] == np.inf:  # nobody wants to know
        return _shift(columns, i, change, weights, r)
    squares, largest = _shift_away(columns, i, change, weights, r, tracker.residual)
    tracker.totals[LARGEST] = max(tracker.totals[LARGEST], largest)
    return squares


@jit(fastmath=VECTORIZE)
def _shift(columns: Any, i: int, change: float, weights: Array, r: Array) -> float:
    squares = 0.0
    for k in range(n_entries(columns, i)):
        row, value = entry(columns, i, k)
        after = r[row] + change * weights[row] * value
        r[row] = after
        squares += after * after
    return squares


@jit
def _shift_away(columns: Any, i: int, change: float, weights: Array, r: Array, reference: Array) -> tuple[float, float]:
    """Do the same, and also return the largest distance of a touched entry from a reference.

    A loop of its own: looking for the largest keeps the compiler from vectorising, five times slower on dense columns.
    """
    squares = largest = 0.0
    for k in range(n_entries(columns, i)):
        row, value = entry(columns, i, k)
        after = r[row] + change * weights[row] * value
        r[row] = after
        squares += after * after
        largest = max(largest, abs(after - reference[row]))
    return squares, largest


@jit
def _move_by_entries(
    loss: Any,
    columns: Any,
    data: Data,
    tracker: Any,
    rounding: Rounding,
    state: State,
    i: int,
    before: float,
    change: float,
) -> Step:
    gradient = squared_distance = squared_predictor = 0.0
    n = n_entries(columns, i)
    for k in range(n):
        row, value = entry(columns, i, k)
        weight = data.weights[row]
        state.z[row] += change * value
        old = state.r[row]
        new = weight * losses.derivative(loss, state.z[row], data.y[row]) if weight > 0.0 else 0.0
        state.r[row] = new
        gradient += value * new
        if weight > 0.0:
            squared_distance += (new - old) * ((new - old) / weight)
            squared_predictor += weight * state.z[row] * state.z[row]
        changed(tracker, row, old, new, weight)
    distance = np.sqrt(squared_distance) * (1.0 + (n + 8.0) * EPS)
    error = (
        rounding.per_distance * distance
        + rounding.per_move * abs(change) * data.norms[i]
        + rounding.per_predictor * np.sqrt(squared_predictor)
    )
    return Step(before, gradient, change, distance, error)


def rounding_of(problem: Problem) -> Rounding:
    """Bound what rounding does to a gradient entry, as a distance of r (to be multiplied by the norm of the column).

    A sum of n products loses at most n ulp of the sum of their absolute values: of |a_j| |r| for a gradient entry, of
    sum_j |x_j| |a_j| for the predictor Ax, which r follows with at most the smoothness beta of the loss; and each step
    rounds the entries of z, or of r, that it touches once more. All with a factor of four to spare.
    """
    beta = losses.smoothness(problem.loss)
    longest, widest = int(np.max(lengths(problem.columns))), int(np.max(problem.design.row_lengths))
    least = float(np.min(problem.weights, where=problem.weights > 0.0, initial=1.0))
    return Rounding(
        per_distance=4.0 * EPS * (longest + 8),
        per_move=4.0 * EPS * beta * (widest + 8),
        per_predictor=4.0 * EPS * beta,
        per_residual=4.0 * EPS / math.sqrt(least),
    )
