"""Where a point stands: one pass over the columns that may matter, and the duality gap from what it finds.

A column whose x_j is 0 and certified to be optimal need not be looked at. Seen when r had travelled the distance P_j,
with g_j inside the range where x_j = 0 is optimal by the slack d_j, it stays optimal until r has travelled

    until_j = P_j + d_j / norms_j ,

by Cauchy-Schwarz; and such a column has no part in the gap, because psi_j(0) + psi_j*(-tau g_j) = 0 for every tau <= 1.

Which columns are of a kind cannot be foreseen, and a branch that goes the other way takes as long as all that is done
with a column. So a list is made by writing every candidate to its end, which only moves on past those that belong.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import VECTORIZE, jit
from surestep.regularizers import (
    feasible_scale,
    gradient_step,
    min_subgradient,
    penalty,
    penalty_conjugate,
    signed_distance,
)

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@jit
def _total(lengths: Integers, listed: Integers) -> int:
    """Count the entries of some coordinates."""
    n = 0
    for t in range(listed.size):
        n += lengths[np.uint64(listed[t])]
    return n


@jit
def uncertified(until: Array, travelled: float, lengths: Integers, listed: Integers) -> tuple[int, int]:
    """List the coordinates that must be looked at: what is known of them holds no longer. Count them and their entries.

    Like all lists here, it is written to the front of an array that is there: new memory takes several times as long.
    It is read as unsigned numbers, because signed ones would be tested for being negative.
    """
    n = 0
    for j in range(until.size):
        listed[n] = j
        n += until[j] < travelled
    return n, _total(lengths, listed[:n])


@jit
def unread(
    listed: Integers,
    is_member: NDArray[np.bool_],
    seen: Array,
    since: float,
    known: bool,
    lengths: Integers,
    out: Integers,
) -> tuple[int, int]:
    """Copy those of the list that have not been ``seen`` since then; no members, if their gradient is ``known``.

    Returns how many these are, and their entries.
    """
    n = 0
    for t in range(listed.size):
        j = np.uint64(listed[t])
        out[n] = j
        n += (seen[j] < since) & (not (known & is_member[j]))
    return n, _total(lengths, out[:n])


@jit
def certify(
    reg: Any,
    norms: Array,
    x: Array,
    gradient: Array,
    now: float,
    listed: Integers,
    is_member: NDArray[np.bool_],
    seen: Array,
    until: Array,
    moving: Integers,
) -> int:
    """Find out until when the listed coordinates stay, whose gradient is known; list those not zero or not optimal.

    ``now`` is where r is, less what rounding may hide. Members of W are looked at always. Returns how many are
    ``moving``.
    """
    n = 0
    for t in range(listed.size):
        j = np.uint64(listed[t])
        seen[j] = now
        outside = signed_distance(reg, j, x[j], gradient[j])
        if not is_member[j]:
            until[j] = now - outside / norms[j] if norms[j] > 0.0 else math.inf
        moving[n] = j
        n += (x[j] != 0.0) | (outside > 0.0)
    return n


@jit
def recertify(reg: Any, norms: Array, gradient: Array, is_member: NDArray[np.bool_], seen: Array, until: Array) -> None:
    """Find out until when coordinates at zero stay under another penalty, from the gradient as it was seen."""
    for j in range(until.size):
        if not is_member[j] and norms[j] > 0.0:
            until[j] = seen[j] - signed_distance(reg, j, 0.0, gradient[j]) / norms[j]


@jit
def gains_of(reg: Any, x: Array, gradient: Array, smoothness: Array, listed: Integers, out: Array) -> float:
    """L_j d_j^2, d_j the step on a coordinate: twice what it is sure to gain; return the largest c_j / sqrt(L_j).

    Not c_j^2 / L_j, which is no sign of a gain where x_j is about to become zero: the step ends there, however steep.
    """
    largest = 0.0
    for t in range(listed.size):
        j = np.uint64(listed[t])
        out[t] = 0.0
        if smoothness[j] > 0.0:
            curvature = smoothness[j] + reg.l2[j]
            step = gradient_step(reg, j, x[j], gradient[j], 1.0 / curvature) - x[j]
            out[t] = curvature * step * step
            c = min_subgradient(reg, j, x[j], gradient[j])
            largest = max(largest, c * c / smoothness[j])
    return math.sqrt(largest)


@jit
def penalty_terms(reg: Any, x: Array, gradient: Array, listed: Integers) -> tuple[float, float, float]:
    """Largest tau <= 1 for which psi_j*(-tau g_j) is finite for all listed coordinates, and sums over these.

    The penalty, and psi_j(x_j) + psi_j*(-tau g_j) + tau x_j g_j.
    """
    tau = 1.0
    for t in range(listed.size):
        j = np.uint64(listed[t])
        tau = min(tau, feasible_scale(reg, j, -gradient[j]))
    total = gap = 0.0
    for t in range(listed.size):
        j = np.uint64(listed[t])
        value, v = penalty(reg, j, x[j]), -tau * gradient[j]
        total += value
        gap += value + penalty_conjugate(reg, j, v) - x[j] * v
    return tau, total, gap


@jit
def survey(
    reg: Any,
    norms: Array,
    smoothness: Array,
    x: Array,
    gradient: Array,
    now: float,
    listed: Integers,
    is_member: NDArray[np.bool_],
    seen: Array,
    until: Array,
    moving: Integers,
    gains: Array,
) -> tuple[int, float, tuple[float, float, float]]:
    """Do all three in one call: those that move, what they promise, how steep it is, and their part in the gap."""
    n = certify(reg, norms, x, gradient, now, listed, is_member, seen, until, moving)
    moving = moving[:n]
    largest = gains_of(reg, x, gradient, smoothness, moving, gains)
    return n, largest, penalty_terms(reg, x, gradient, moving)


@jit(fastmath=VECTORIZE)
def loss_terms(loss: Any, z: Array, u: Array, y: Array, weights: Array, tau: float) -> tuple[float, float]:
    """Mean loss, and weighted mean of loss(z_i) + loss*(tau u_i) - tau u_i z_i."""
    total = gap = 0.0
    for i in range(y.size):
        if weights[i] > 0.0:
            value, v = losses.value(loss, z[i], y[i]), tau * u[i]
            total += weights[i] * value
            gap += weights[i] * (value + losses.conjugate(loss, v, y[i]) - v * z[i])
    return total, gap


@jit(fastmath=VECTORIZE)
def mean_loss(loss: Any, z: Array, y: Array, weights: Array) -> float:
    """Weighted mean of loss(z_i)."""
    total = 0.0
    for i in range(y.size):
        if weights[i] > 0.0:
            total += weights[i] * losses.value(loss, z[i], y[i])
    return total


@jit(fastmath=VECTORIZE)
def residuals(loss: Any, z: Array, y: Array, weights: Array, u: Array, r: Array) -> tuple[float, float]:
    """Fill in u_i = loss'(z_i) and r_i = s_i u_i; return squares of the distance of r from what it was, and its size.

    Both in the norm sqrt(sum_i r_i^2 / s_i), that of Cauchy-Schwarz with the weighted norms of the columns.
    """
    distance = size = 0.0
    for i in range(y.size):
        if weights[i] > 0.0:
            new = losses.derivative(loss, z[i], y[i])
            distance += weights[i] * (new - u[i]) * (new - u[i])
            size += weights[i] * new * new
            u[i], r[i] = new, weights[i] * new
    return distance, size


@jit
def residual_at(loss: Any, z: Array, y: Array, weights: Array) -> Array:
    """Return r_i = s_i loss'(z_i)."""
    r = np.zeros(y.size)
    for i in range(y.size):
        if weights[i] > 0.0:
            r[i] = weights[i] * losses.derivative(loss, z[i], y[i])
    return r


@jit
def curvatures(
    loss: Any, z: Array, y: Array, weights: Array, least: float, caution: float, slack: float, out: Array
) -> None:
    """d_i = s_i loss''(z_i), the weights of the quadratic model; at least some part of the smoothness.

    Far on the wrong side losses are nearly linear, and a model with that curvature expects a loss below zero. What
    just reaches zero has u_i^2 / (2 loss(z_i)), which losses that are not negative exceed where they are small; with
    ``caution`` 1, d_i is no less. What has changed by less than the ``slack``, a part of it, stays as it was.
    """
    floor = least * losses.smoothness(loss)
    for i in range(y.size):
        d = 0.0
        if weights[i] > 0.0:
            d = max(losses.second_derivative(loss, z[i], y[i]), floor)
            if caution > 0.0:
                u, value = losses.derivative(loss, z[i], y[i]), losses.value(loss, z[i], y[i])
                if value > 0.0:
                    d = max(d, caution * u * u / (2.0 * value))
            d *= weights[i]
        if abs(d - out[i]) > slack * out[i]:
            out[i] = d


@jit(fastmath=VECTORIZE)
def slope(loss: Any, z: Array, move: Array, t: float, y: Array, weights: Array) -> float:
    """Derivative of the mean loss at z + t move, in t."""
    total = 0.0
    for i in range(y.size):
        if weights[i] > 0.0 and move[i] != 0.0:
            total += weights[i] * losses.derivative(loss, z[i] + t * move[i], y[i]) * move[i]
    return total
