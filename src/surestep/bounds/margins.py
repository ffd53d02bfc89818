"""Bounds for SGD: from how far x has come to how large the gradient of each sample can be.

Sample i adds s_i h_i(z_i) to the objective, z_i = <a_i, x> its margin, and s_i h_i'(z_i) a_i to the gradient (Lemma 4.1
of the paper). If x is within a distance D of a point where the margins were z_i, then they are now within ||a_i|| D of
z_i; and since h_i' never falls, the ends of that interval bound it. What is drawn from is the norm

    c_i = s_i ||a_i|| |h_i'(z_i) - anchor_i|,

with anchor_i = 0 for plain SGD, and the derivative at the anchor for a variance-reduced method, where the gradients
of single samples enter by their difference to that. No bound on h'' is needed, and it need not exist: samples safely
beyond the hinge are certified to have no gradient at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import jit
from surestep.bounds.tracker import EPS
from surestep.lines import add, entry, n_entries, n_lines, transposed_product
from surestep.sampling.safe import solve

Array = NDArray[np.float64]


@jit
def row_norms(rows: Any, has_intercept: bool) -> Any:
    """Return ||a_i|| of every row, with the 1 of the intercept, rounded up."""
    out = np.full(n_lines(rows), 1.0 if has_intercept else 0.0)
    for i in range(out.size):
        n = n_entries(rows, i)
        for k in range(n):
            value = entry(rows, i, k)[1]
            out[i] += value * value
        out[i] = np.sqrt(out[i]) * (1.0 + (n + 8.0) * EPS)
    return out


def margins(rows: Any, has_intercept: bool, x: Array) -> Array:
    """Return z_i = <a_i, x> of some rows; the intercept is the last entry of x. One pass over the data."""
    z = np.empty(n_lines(rows))
    transposed_product(rows, x[:-1] if has_intercept else x, z)
    return z + x[-1] if has_intercept else z


@jit
def mean_gradient(rows: Any, weights: Array, u: Array, out: Array) -> float:
    """Write sum_i s_i u_i a_i, the gradient of the mean loss, to the features of ``out``; return sum_i s_i u_i."""
    out[:] = 0.0
    total = 0.0
    for i in range(u.size):
        if u[i] != 0.0:
            add(rows, i, weights[i] * u[i], out)
            total += weights[i] * u[i]
    return total


@jit
def fill_norm_bounds(
    loss: Any,
    y: Array,
    weights: Array,
    norms: Array,
    z: Array,
    anchor: Array,
    distance: float,
    lower: Array,
    upper: Array,
) -> None:
    """Write lower_i <= c_i <= upper_i, valid wherever the margins are within norms_i * distance of z. Cost O(n).

    For an infinite distance the losses are asked for their derivatives far out.
    """
    for i in range(y.size):
        lower[i] = upper[i] = 0.0
        if weights[i] > 0.0 and norms[i] > 0.0:
            radius = min(norms[i] * distance, 1e150)
            slack = 4.0 * EPS * abs(z[i])
            low = losses.derivative(loss, z[i] - radius - slack, y[i]) - anchor[i]
            high = losses.derivative(loss, z[i] + radius + slack, y[i]) - anchor[i]
            # A few ulp for the derivative itself.
            slack = 8.0 * EPS * max(abs(low), abs(high), abs(anchor[i]) if low != 0.0 or high != 0.0 else 0.0)
            scale = weights[i] * norms[i]
            lower[i] = scale * max(low - slack, -high - slack, 0.0)
            upper[i] = scale * max(high + slack, -low + slack, 0.0)


@jit
def fill_smoothness(loss: Any, y: Array, weights: Array, norms: Array, z: Array, distance: float, out: Array) -> None:
    """Write L_i = s_i ||a_i||^2 max h_i'' over the margins within norms_i * distance of z. Cost O(n)."""
    for i in range(y.size):
        radius = min(norms[i] * distance, 1e150) + 4.0 * EPS * abs(z[i])
        curvature = losses.largest_curvature(loss, z[i] - radius, z[i] + radius, y[i])
        out[i] = weights[i] * norms[i] * norms[i] * curvature


def safe_shares(lower: Array, upper: Array, scale: Array) -> tuple[Array, float]:
    """Return the safe sampling of bounds on c, and how much smaller than for p ~ scale its worst case is. Cost O(n).

    The variance of a step is governed by sum_i c_i^2 / p_i (Appendix A.2), which in the units c_i / sqrt(scale_i) is
    the V(p, c) of eq. 7 with smoothness scale_i = s_i ||a_i||. So for every c within the bounds

        V(p ~ c) <= V(p) <= V(p ~ scale),

    the left side is attained where c is known, and the right side, the best that can be said without gradients, is
    uniform sampling for rows of equal norm and weight. For other rows nothing is promised against uniform sampling, and
    no sampling could keep such a promise along with this one: where nothing is known, c may be zero but for row i, so
    p_i >= 1/n would be needed for every i, and p_i >= scale_i / sum(scale) too, which exceeds 1 in total.

    Where all upper bounds are zero, p is zero too.
    """
    p = np.zeros(upper.size)
    may_move = np.flatnonzero(upper > 0.0)
    if may_move.size == 0:
        return p, 0.0
    scale_there = scale[may_move]
    roots = np.sqrt(scale_there)
    solution = solve(np.minimum(lower, upper)[may_move] / roots, upper[may_move] / roots, scale_there)
    p[may_move] = solution.probabilities
    return p, solution.value / float(scale.sum())
