"""The safe sampling of parts of the rows: which to draw from, where each draws from a safe sampling of its own.

In part k row i is drawn with p_i, the safe sampling of bounds on c_i; so for all c within the bounds

    C_k^2 := sum_{i in k} c_i^2 / p_i <= v_k sum_{i in k} c_i^2 / scale_i,     v_k <= sum_{i in k} scale_i.

With part k drawn with q_k, and then one of its rows, the variance of a step is governed by sum_k C_k^2 / q_k: the same
sum again, with parts in place of rows and v_k in place of their scale. C_k is as unknown as the c_i, but their bounds
bound it. So the safe sampling of parts, of these bounds, has a worst case v with

    sum_i c_i^2 / (q_k p_i) <= v sum_k C_k^2 / v_k <= v sum_i c_i^2 / scale_i,     v <= sum_k v_k <= sum_i scale_i:

drawing in two steps is never worse than p ~ scale either, and where all c_i are known, q_k p_i ~ c_i, the optimal
sampling. All that is to be known of a part are three numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep.bounds.margins import safe_shares
from surestep.bounds.tracker import EPS

Array = NDArray[np.float64]


class PartBounds(NamedTuple):
    """v_k, and bounds on C_k."""

    value: float
    lower: float
    upper: float


def shares_in_part(lower: Array, upper: Array, scale: Array) -> tuple[Array, PartBounds]:
    """Return the safe sampling of the rows of a part, and what is to be known of it. Zero where nothing may move."""
    p, ratio = safe_shares(lower, upper, scale)
    drawn = p > 0.0
    slack = (drawn.size + 8.0) * EPS
    low, high = (float(np.sqrt(np.sum(bound[drawn] ** 2 / p[drawn]))) for bound in (lower, upper))
    return p, PartBounds(ratio * float(scale.sum()), low * (1.0 - slack), high * (1.0 + slack))


def shares_of_parts(parts: list[PartBounds]) -> tuple[Array, float]:
    """Return the safe sampling of parts, and v. Zero where nothing may move."""
    value, lower, upper = np.array(parts).T
    q, ratio = safe_shares(lower, upper, value)
    return q, ratio * float(value.sum())
