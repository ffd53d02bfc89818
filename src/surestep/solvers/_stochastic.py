"""The steps of SGD, compiled: draw rows, bring their coordinates up to date, move them."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import lean
from surestep.bounds.tracker import EPS
from surestep.lines import entry, n_entries
from surestep.sampling.samplers import OVER
from surestep.solvers._orbit import (
    DENSE,
    POWER,
    POWERS,
    REFERENCE,
    SEEN,
    SUM,
    SUMS,
    Powers,
    X,
    end_step,
    is_quick,
    orbit,
    orbit_sum,
    usual_orbit,
)

Array = NDArray[np.float64]

# Columns of the table of samples, a cache line each: the alias table of the sampling (how much of its own place a
# sample keeps, and who has the rest); s_i / (b p_i), b the number of rows in a step; the target; the derivative at the
# anchor; the norm of the row, as distances are measured (see `follow`).
KEEP, OTHER, SHARE, TARGET, ANCHOR, NORM = 0, 1, 2, 3, 4, 5

# What `descend` returns where the block must end, besides `OVER`.
CLOSED = -3

# Places in `State.totals`. Steps of the block; the distance from the reference that ends it, or a stage of it (infinite
# where nobody wants to know distances), and the largest one seen; whether there is nothing to draw; the longest row.
# Of `follow`: whether T is affine; S and what rounding may have added to it; B; G; the r of the pull; how far T moves
# the reference; the size of all that is involved. Last, the squared lengths of all moves by single rows, summed.
TIME, BUDGET, REACHED, EMPTY, LONGEST = 0, 1, 2, 3, 4
AFFINE, SQUARED, SQUARED_ERROR, INNER, PULL, RIDGE, FIRST, SIZE = 5, 6, 7, 8, 9, 10, 11, 12
MOVES, N_TOTALS = 13, 14

# A distance that is only bounded is measured when the bound has come to the budget, but not sooner than after as many
# steps as there are coordinates, divided by this: coordinates are measured in less time than a step takes.
_MEASURE_EVERY = 64


class State(NamedTuple):
    """All that changes."""

    samples: Array
    coordinates: Array
    average: Array  # sum of the iterates of the block, by coordinate; empty where no average is asked for
    totals: Array
    drawn: NDArray[np.int64]  # rows of a step
    coefficients: Array  # and what they are multiplied by
    dealt: NDArray[np.int64]  # rows of all steps of the block, where they were drawn elsewhere; else empty


@lean
def catch_up(penalty: Any, powers: Powers, table: Array, average: Array, j: Any, time: int) -> float:
    """Bring coordinate j up to date and return it."""
    seen = int(table[j, SEEN])
    if seen < time:
        if average.size > 0:
            average[j] += orbit_sum(penalty, table, j, table[j, X], seen, time, powers)
        table[j, X] = orbit(penalty, table, j, table[j, X], seen, time, powers)
        table[j, SEEN] = time
    return float(table[j, X])


@lean
def flush(penalty: Any, powers: Powers, state: State) -> None:
    """Bring all coordinates up to date."""
    time = int(state.totals[TIME])
    table, average = state.coordinates, state.average
    for j in range(table.shape[0]):
        catch_up(penalty, powers, table, average, j, time)


@lean
def reference_moves(penalty: Any, powers: Powers, table: Array) -> float:
    """How far T moves the reference of the block, rounded up."""
    total = 0.0
    for j in range(table.shape[0]):
        moved = orbit(penalty, table, j, table[j, REFERENCE], 0, 1, powers) - table[j, REFERENCE]
        total += moved * moved
    return float(math.sqrt(total) * (1.0 + (table.shape[0] + 8.0) * EPS))


@lean
def distance(penalty: Any, powers: Powers, table: Array, average: Array, totals: Array, has_intercept: bool) -> float:
    """Bound the distance of x from the reference, see `follow`."""
    squared = max(totals[SQUARED], 0.0) + totals[SQUARED_ERROR]
    if has_intercept and totals[AFFINE] > 0.0:
        last = table.shape[0] - 1
        moved = catch_up(penalty, powers, table, average, last, int(totals[TIME])) - table[last, REFERENCE]
        squared += moved * moved
    away = math.sqrt(squared)
    return float(away * (1.0 + 16.0 * EPS) + 8.0 * EPS * (totals[TIME] + 8.0) * (totals[SIZE] + away))


@lean
def measure(penalty: Any, powers: Powers, state: State) -> None:
    """Replace a bound on the distance by the distance itself, in O(d)."""
    flush(penalty, powers, state)
    table, totals = state.coordinates, state.totals
    total = 0.0
    for j in range(table.shape[0]):
        total += (table[j, X] - table[j, REFERENCE]) ** 2
    totals[SQUARED] = total * (1.0 + (table.shape[0] + 8.0) * EPS)


@lean
def follow(totals: Array, away: float, pulled: float, path: float, kappa: float, tau: float) -> None:
    """Follow the distance D = |x - reference| through a step: away = <v, x - reference>, v the data, |v| <= path.

    Where T is affine, x - reference becomes kappa (x - reference - v - tau pull), with pull = g + r * reference, where
    kappa = 1 / (1 + eta l2), tau = eta and r = l2; with projection onto a ball kappa is the whole factor, tau =
    1 / kappa - 1 and r = 1. So the square S of the distance follows exactly, with B = <x - reference, pull>, G =
    |pull|^2 and pulled = <v, pull>; the intercept, which has another kappa, is left to `distance`. Where T is not
    affine, it still expands no distances, which gives a bound that is to be replaced by `measure` from time to time:

        |T(x - v) - reference| <= |x - v - reference| + |T(reference) - reference| .
    """
    before, squared = totals[SQUARED], totals[SQUARED] + path * path - 2.0 * away
    sizes = before + path * path + path * (math.sqrt(abs(before)) + totals[SIZE])
    slack = EPS * (totals[LONGEST] + totals[TIME] + 64.0)
    if totals[AFFINE] > 0.0:
        inner, pull = totals[INNER], totals[PULL]
        totals[SQUARED] = kappa * kappa * (squared + tau * (tau * pull - 2.0 * inner + 2.0 * pulled))
        totals[INNER] = kappa * (inner - pulled - tau * pull)
        totals[SQUARED_ERROR] += slack * (abs(sizes) + tau * (tau * pull + abs(inner) + path * math.sqrt(pull)))
    else:
        moved = math.sqrt(max(squared, 0.0) + slack * sizes) + totals[FIRST]
        totals[SQUARED] = moved * moved * (1.0 + 8.0 * EPS)


@lean
def descend(
    rows: Any, has_intercept: bool, loss: Any, penalty: Any, powers: Powers, state: State, n_steps: int, rng: Any
) -> int:
    """Do a number of steps; return 0, `OVER` if x left the distance for which the sampling is safe, or `CLOSED`."""
    samples, table, totals = state.samples, state.coordinates, state.totals
    average, drawn, coefficients, dealt = state.average, state.drawn, state.coefficients, state.dealt
    n, last = samples.shape[0], table.shape[0] - 1
    quick, averaged, power = is_quick(penalty, powers), average.size > 0, powers.table
    tracked, is_affine, ridge = totals[BUDGET] < np.inf, totals[AFFINE] > 0.0, totals[RIDGE]
    apart = 1.0 if has_intercept and is_affine else 0.0  # what NORM leaves out
    measured = int(totals[TIME]) - table.shape[0] // _MEASURE_EVERY
    for _ in range(n_steps):
        time = int(totals[TIME])
        if tracked:
            reached = distance(penalty, powers, table, average, totals, has_intercept)
            if reached > totals[BUDGET] and not is_affine and time >= measured + table.shape[0] // _MEASURE_EVERY:
                measure(penalty, powers, state)
                measured = time
                reached = distance(penalty, powers, table, average, totals, has_intercept)
            totals[REACHED] = max(totals[REACHED], reached)
            if reached > totals[BUDGET]:
                return OVER
        n_drawn = 0 if totals[EMPTY] > 0.0 else drawn.size
        away = pulled = path = 0.0  # of `follow`
        for k in range(n_drawn):
            if dealt.size > 0:
                i = int(dealt[time * drawn.size + k])
            else:
                place = rng.random() * n
                i = min(int(place), n - 1)
                if place - i >= samples[i, KEEP]:
                    i = int(samples[i, OTHER])
            z = inner = pull = 0.0
            for e in range(n_entries(rows, i)):
                j, value = entry(rows, i, e)
                # Calls with arrays take longer than these few lines, so the usual case is in line.
                x, m = table[j, X], time - int(table[j, SEEN])
                if m > 0:
                    after, pull_here, right = usual_orbit(table, j, x, power[m, POWER], power[m, SUM])
                    if quick and right and not (averaged and after == 0.0 and x != 0.0):
                        if averaged and after != 0.0:
                            average[j] += power[m, POWERS] * x - power[m, SUMS] * pull_here
                        x = after
                        table[j, X] = x
                        table[j, SEEN] = time
                    else:
                        # As an integer of one kind in all calls: another one would have to be compiled for, too.
                        x = catch_up(penalty, powers, table, average, np.int64(j), time)
                z += value * x
                if tracked:
                    inner += value * (x - table[j, REFERENCE])
                    pull += value * (table[j, DENSE] + ridge * table[j, REFERENCE])
            if has_intercept:
                x = catch_up(penalty, powers, table, average, last, time)
                z += x
                if not is_affine:
                    inner += x - table[last, REFERENCE]
            derivative = losses.derivative(loss, z, samples[i, TARGET]) - samples[i, ANCHOR]
            drawn[k], coefficients[k] = i, powers.step * samples[i, SHARE] * derivative
            away += coefficients[k] * inner
            pulled += coefficients[k] * pull
            path += abs(coefficients[k]) * samples[i, NORM]
            totals[MOVES] += coefficients[k] * coefficients[k] * (samples[i, NORM] * samples[i, NORM] + apart)
        gained = 0.0
        for k in range(n_drawn):
            if coefficients[k] != 0.0:
                gained += _move(rows, has_intercept, table, drawn[k], coefficients[k])
        kappa, tau, must_end = end_step(penalty, time, gained, powers)
        if tracked:
            follow(totals, away, pulled, path, kappa, tau)
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
    totals[TIME] = totals[SQUARED] = totals[SQUARED_ERROR] = totals[INNER] = totals[REACHED] = totals[MOVES] = 0.0
