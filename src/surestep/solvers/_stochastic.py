"""The steps of SGD, compiled: draw rows, bring their coordinates up to date, move them."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import inlined, lean
from surestep.bounds.tracker import EPS
from surestep.design import entry, n_entries
from surestep.sampling.samplers import OVER
from surestep.solvers._orbit import (
    DENSE,
    LOWER,
    PENALTY_L1,
    PENALTY_L2,
    POWER,
    REFERENCE,
    SEEN,
    SUM,
    UPPER,
    Powers,
    X,
    end_step,
    is_quick,
    orbit,
    orbit_sum,
)

Array = NDArray[np.float64]

# Columns of the table of samples, a cache line each: the alias table of the sampling (how much of its own place a
# sample keeps, and who has the rest); s_i / (b p_i), b the number of rows in a step; the target; the derivative at the
# anchor; the norm of the row.
KEEP, OTHER, SHARE, TARGET, ANCHOR, NORM = 0, 1, 2, 3, 4, 5

# What `descend` returns where the block must end, besides `OVER`.
CLOSED = -3

# Places in `State.totals`. Steps of the block. How far x is from the orbit of the reference
# under T alone, squared, and what rounding may have added; how far one step, and all steps of the block, take that
# orbit, and the size of all that is involved; the distance from the reference that ends the stage (infinite where
# nobody wants to know the distance); the largest distance seen. Whether there is nothing to draw. The longest row.
TIME, SQUARED, SQUARED_ERROR, FIRST, LAST, SIZE, BUDGET, REACHED, EMPTY, LONGEST = range(10)


class State(NamedTuple):
    """All that changes."""

    samples: Array
    coordinates: Array
    average: Array  # sum of the iterates of the block, by coordinate; empty where no average is asked for
    totals: Array
    drawn: NDArray[np.int64]  # rows of a step
    coefficients: Array  # and what they are multiplied by


@lean
def distance(totals: Array) -> float:
    """Bound the distance of x from the reference of the block.

    T expands no distances, so that the orbit of the reference under T alone moves in each step by no more than in the
    one before; and x, which is moved by data besides, stays as close to that orbit as data let it.
    """
    time = totals[TIME]
    orbit_moved = min(time * totals[FIRST], totals[LAST])
    away = math.sqrt(max(totals[SQUARED], 0.0) + totals[SQUARED_ERROR])
    return float((orbit_moved + away) * (1.0 + 16.0 * EPS) + 8.0 * EPS * (time + 8.0) * (totals[SIZE] + away))


@inlined
def catch_up(
    penalty: Any, powers: Powers, power: Array, table: Array, average: Array, quick: bool, j: int, time: int
) -> float:
    """Bring coordinate j up to date and return it."""
    x, m = table[j, X], time - int(table[j, SEEN])
    if m > 0:
        # The usual case, no crossing, in line: a call would take longer.
        l1, g = table[j, PENALTY_L1], table[j, DENSE]
        pull = g + l1 if x > 0.0 or (x == 0.0 and g < 0.0) else g - l1
        after = power[m, POWER] * x - power[m, SUM] * pull
        usual = quick and (l1 == 0.0 or after * x > 0.0) and table[j, LOWER] <= x <= table[j, UPPER]
        if not (usual and table[j, LOWER] <= after <= table[j, UPPER]):
            after = _slowly(penalty, powers, table, average, j, time)
        x = after
        table[j, X] = x
        table[j, SEEN] = time
    return float(x)


@lean
def _slowly(penalty: Any, powers: Powers, table: Array, average: Array, j: int, time: int) -> float:
    seen = int(table[j, SEEN])
    if average.size > 0:
        average[j] += orbit_sum(penalty, table, j, table[j, X], seen, time, powers)
    return float(orbit(penalty, table, j, table[j, X], seen, time, powers))


@lean
def flush(penalty: Any, powers: Powers, state: State) -> None:
    """Bring all coordinates up to date."""
    time = int(state.totals[TIME])
    table, average = state.coordinates, state.average
    quick, power = is_quick(penalty, powers) and average.size == 0, powers.table
    for j in range(table.shape[0]):
        is_usual = quick and table[j, PENALTY_L2] == powers.l2
        catch_up(penalty, powers, power, table, average, is_usual, j, time)


@lean
def orbit_distance(penalty: Any, powers: Powers, state: State, time: int) -> float:
    """How far some steps T take the reference of the block, rounded up."""
    total = 0.0
    table = state.coordinates
    for j in range(table.shape[0]):
        moved = orbit(penalty, table, j, table[j, REFERENCE], 0, time, powers) - table[j, REFERENCE]
        total += moved * moved
    return float(math.sqrt(total) * (1.0 + (table.shape[0] + 8.0) * EPS))


@lean
def descend(
    rows: Any, has_intercept: bool, loss: Any, penalty: Any, powers: Powers, state: State, n_steps: int, rng: Any
) -> int:
    """Do a number of steps; return 0, `OVER` if x left the distance for which the sampling is safe, or `CLOSED`."""
    samples, table, totals = state.samples, state.coordinates, state.totals
    average, drawn, coefficients = state.average, state.drawn, state.coefficients
    n, last = samples.shape[0], table.shape[0] - 1
    quick, power = is_quick(penalty, powers) and average.size == 0, powers.table
    quick_last = quick and table[last, PENALTY_L2] == powers.l2  # an intercept has no ridge term
    tracked = totals[BUDGET] < np.inf
    for _ in range(n_steps):
        time = int(totals[TIME])
        if tracked:
            reached = distance(totals)
            totals[REACHED] = max(totals[REACHED], reached)
            if reached > totals[BUDGET]:
                return OVER
        n_drawn = 0 if totals[EMPTY] > 0.0 else drawn.size
        inner = path = 0.0  # <data, x - orbit>, and a bound on |data|, of this step's data
        for k in range(n_drawn):
            place = rng.random() * n
            i = min(int(place), n - 1)
            if place - i >= samples[i, KEEP]:
                i = int(samples[i, OTHER])
            z = away = 0.0
            for e in range(n_entries(rows, i)):
                j, value = entry(rows, i, e)
                x = catch_up(penalty, powers, power, table, average, quick, j, time)
                z += value * x
                if tracked:
                    away += value * (x - orbit(penalty, table, j, table[j, REFERENCE], 0, time, powers))
            if has_intercept:
                x = catch_up(penalty, powers, power, table, average, quick_last, last, time)
                z += x
                if tracked:
                    away += x - orbit(penalty, table, last, table[last, REFERENCE], 0, time, powers)
            derivative = losses.derivative(loss, z, samples[i, TARGET]) - samples[i, ANCHOR]
            drawn[k], coefficients[k] = i, powers.step * samples[i, SHARE] * derivative
            inner += coefficients[k] * away
            path += abs(coefficients[k]) * samples[i, NORM]
        gained = 0.0
        for k in range(n_drawn):
            if coefficients[k] != 0.0:
                gained += _move(rows, has_intercept, table, drawn[k], coefficients[k])
        if tracked:
            # |d - v|^2 = |d|^2 - 2 <d, v> + |v|^2; T then makes it no larger.
            totals[SQUARED] += path * path - 2.0 * inner
            sizes = path * path + path * (math.sqrt(abs(totals[SQUARED])) + totals[SIZE])
            totals[SQUARED_ERROR] += EPS * ((totals[LONGEST] + 64.0) * sizes + abs(totals[SQUARED]))
        moved, must_end = end_step(penalty, time, gained, powers)
        if moved >= 0.0:
            totals[LAST] = moved
        totals[TIME] += 1.0
        if must_end:
            return CLOSED
    return 0


@lean
def _move(rows: Any, has_intercept: bool, table: Array, i: int, coefficient: float) -> float:
    """Subtract a multiple of row i; return what that adds to the squared norm of the features."""
    gained = 0.0
    for e in range(n_entries(rows, i)):
        j, value = entry(rows, i, e)
        before = table[j, X]
        after = before - coefficient * value
        table[j, X] = after
        gained += after * after - before * before
    if has_intercept:
        table[table.shape[0] - 1, X] -= coefficient
    return gained


@lean
def begin(state: State) -> None:
    """Begin a block where x is, which must be up to date."""
    table, totals = state.coordinates, state.totals
    for j in range(table.shape[0]):
        table[j, SEEN] = 0.0
        table[j, REFERENCE] = table[j, X]
    totals[TIME] = totals[SQUARED] = totals[SQUARED_ERROR] = totals[REACHED] = 0.0
