"""The paper's Algorithm 4 as it is printed, with its sort: what tests and benchmarks compare the linear solve against.

Use `surestep.safe_sampling`, which gives the same result sooner and for every input.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit

Array = NDArray[np.float64]


@jit
def sorted_safe_sampling(lower: Array, upper: Array, smoothness: Array) -> tuple[Array, Array, float]:
    """Return (c, p, v) of eq. 7. Cost O(n log n).

    The names are the paper's. ``D`` is implied by the two counters: a coordinate is decided once one of its bounds has
    been passed. As in the paper, some lower bound must be positive, and numbers are of ordinary size.
    """
    n = lower.size
    roots = np.sqrt(smoothness)
    by_lower, by_upper = np.argsort(lower / roots), np.argsort(upper / roots)
    c = np.full(n, -1.0)  # -1: not decided
    norm_squared = weighted_norm = 0.0  # ||c||_2^2 and ||sqrt(L) c||_1 over the decided coordinates
    u, ell = 0, n - 1
    m = lower[by_lower[ell]] / roots[by_lower[ell]]
    while u <= ell:
        if lower[by_lower[ell]] / roots[by_lower[ell]] > m:  # the largest undecided lower bound is violated
            index = by_lower[ell]
            c[index] = lower[index]
            ell -= 1
        elif upper[by_upper[u]] / roots[by_upper[u]] < m:  # the smallest undecided upper bound is violated
            index = by_upper[u]
            c[index] = upper[index]
            u += 1
        else:  # no constraints are violated
            break
        norm_squared += c[index] ** 2
        weighted_norm += roots[index] * c[index]
        if weighted_norm > 0.0:  # an upper bound of zero decides nothing about the level
            m = norm_squared / weighted_norm
    for i in range(n):
        if c[i] < 0.0:
            c[i] = roots[i] * m
    weights = roots * c
    total = weights.sum()
    return c, weights / total, total**2 / np.dot(c, c)
