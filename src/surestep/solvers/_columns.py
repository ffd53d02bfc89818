"""Quadratic models on a working set W by its columns, where W is too large for its Gram matrix to pay.

    q(x) = <r0, A_W (x - x0)> + |A_W (x - x0)|_d^2 / 2 + psi(x)

The model's own residual rho = r0 + d * A_W (x - x0) is kept; a step reads a column twice. Sweeps go over the
coordinates that moved or may move, and five sweeps are extrapolated to where they seem to lead (Anderson).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.design import Lines, dot, entry, n_entries, squared_norm
from surestep.regularizers import Separable, gradient_step, penalty

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Sweeps that an extrapolation looks back on.
_DEPTH = 5

# Sweeps over those that moved are repeated until the largest gain is this part of that among all of W.
_PART = 0.1


@jit
def curvatures_of(columns: Any, members: Integers, weights: Array, out: Array) -> None:
    """|a_j|_d^2 of some columns."""
    for t in range(members.size):
        out[t] = squared_norm(columns, members[t], weights)


@jit
def _sweep(
    columns: Any,
    reg: Any,
    members: Integers,
    places: Integers,
    curvature: Array,
    weights: Array,
    x: Array,
    rho: Array,
    floor: float,
    active: Integers,
) -> tuple[int, float]:
    """Step on the coordinates at some places of W in turn, where that gains more than ``floor``.

    Lists those that are not zero, or gained, in ``active``; returns how many these are, and the largest gain, twice.
    """
    n_active, largest = 0, 0.0
    for t in range(places.size):
        k = places[t]
        j = members[k]
        if curvature[k] == 0.0:
            continue
        g = dot(columns, j, rho)
        change = gradient_step(reg, k, x[k], g, 1.0 / curvature[k]) - x[k]
        gain = change * change * curvature[k]
        largest = max(largest, gain)
        if gain > floor:
            x[k] += change
            for m in range(n_entries(columns, j)):
                i, value = entry(columns, j, m)
                rho[i] += change * weights[i] * value
        if x[k] != 0.0 or gain > floor:
            active[n_active] = k
            n_active += 1
    return n_active, largest


@jit
def _model_value(reg: Any, weights: Array, x: Array, rho: Array, places: Integers) -> float:
    """q, up to a constant: |rho|^2 / (2 d), and the penalty at some places."""
    total = 0.0
    for i in range(rho.size):
        if weights[i] > 0.0:
            total += 0.5 * rho[i] * (rho[i] / weights[i])
    for t in range(places.size):
        total += penalty(reg, places[t], x[places[t]])
    return total


def descend_by_columns(
    columns: Lines,
    reg: Separable,
    members: Integers,
    weights: Array,
    x: Array,
    rho: Array,
    enough: float,
    max_sweeps: int,
) -> tuple[bool, int]:
    """Minimise the model until no coordinate gains more than ``enough``; x and rho are changed in place.

    Returns whether it got there, and how many steps were tried on the way.
    """
    n = members.size
    curvature = np.empty(n)
    curvatures_of(columns, members, weights, curvature)
    curvature += reg.l2
    everywhere, room = np.arange(n), np.empty(n, np.int64)
    n_steps = 0
    for _ in range(max_sweeps):
        n_active, largest = _sweep(columns, reg, members, everywhere, curvature, weights, x, rho, 0.01 * enough, room)
        n_steps += n
        if largest <= enough:
            return True, n_steps
        active = room[:n_active].copy()
        inner = max(_PART * largest, enough)
        points: list[Array] = []
        residuals: list[Array] = []
        spare = np.empty(n_active, np.int64)
        for _ in range(max_sweeps):
            points.append(x[active])
            residuals.append(rho.copy())
            if len(points) > _DEPTH:
                _extrapolate(reg, weights, active, x, rho, points, residuals)
                points, residuals = [x[active]], [rho.copy()]
            _, largest = _sweep(columns, reg, members, active, curvature, weights, x, rho, 0.01 * enough, spare)
            n_steps += n_active
            if largest <= inner:
                break
    return False, n_steps


def _extrapolate(
    reg: Separable,
    weights: Array,
    active: Integers,
    x: Array,
    rho: Array,
    points: list[Array],
    residuals: list[Array],
) -> None:
    """Go to the combination of the last points whose steps cancel best, if the model is lower there."""
    steps = np.diff(np.array(points), axis=0)
    try:
        weight = np.linalg.solve(steps @ steps.T, np.ones(_DEPTH))
    except np.linalg.LinAlgError:
        return
    if not np.isfinite(weight).all() or weight.sum() == 0.0:
        return
    weight /= weight.sum()
    trial, at = x.copy(), weight @ np.array(points[1:])
    trial[active] = np.clip(at, reg.lower[active], reg.upper[active])
    if not np.array_equal(trial[active], at):
        return
    moved = np.asarray(weight @ np.array(residuals[1:]), np.float64)
    if _model_value(reg, weights, trial, moved, active) < _model_value(reg, weights, x, rho, active):
        x[:], rho[:] = trial, moved
