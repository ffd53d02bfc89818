"""How far a sampling can be from the best one in hindsight: a safe bound on the paper's competitive ratio."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit

Array = NDArray[np.float64]

_PASSES = 40


@jit
def hindsight_bound(probabilities: Array, worst_case: Array, lower: Array, upper: Array) -> float:
    """Bound rho = max_{c in C} V(p, c) / ||sqrt(L) c||_1^2 from above, for p ~ sqrt(L) worst_case. Cost O(n).

    In units of the worst case, y_i = c_i / worst_case_i, the quotient is sum p_i y_i^2 / (sum p_i y_i)^2. For every x

        (sum p_i y_i)^2 / sum p_i y_i^2  >=  2 x sum p_i y_i - x^2 sum p_i y_i^2  =  sum p_i (1 - (1 - x y_i)^2),

    and each term on the right is least at one end of its interval. So 1/rho >= G(x), the sum of those least terms, for
    every x; G is concave, and its maximum gives the bound. As V(p, c) <= v ||c||^2 this is never above v/w of Lemma 3.5
    with the same lower bound on w, and if upper < gamma lower, x = 2 / (gamma + 1/gamma) shows that it is never above
    (gamma + 1/gamma)^2 / 4, which is less than the gamma^4 of Lemma 3.6. Returns inf where no x gives a bound.
    """
    n = probabilities.size
    total = largest = 0.0
    for i in range(n):
        if worst_case[i] > 0.0:
            total += probabilities[i]
            largest = max(largest, upper[i] / worst_case[i])
    if largest == np.inf:
        return np.inf
    low, high = 1.0 / largest, 2.0  # G increases below and decreases above
    x, best = 1.0, 0.0
    for _ in range(_PASSES):
        first = second = 0.0
        for i in range(n):
            if worst_case[i] > 0.0:
                y_low, y_high = lower[i] / worst_case[i], upper[i] / worst_case[i]
                y = y_high if x * (y_low + y_high) > 2.0 else y_low
                first += probabilities[i] * y
                second += probabilities[i] * y * y
        best = max(best, x * (2.0 * first - x * second))
        if second == 0.0:  # every lower bound is zero
            break
        newton = first / second
        if newton > x:
            low = x
        else:
            high = x
        if abs(newton - x) <= 1e-9 * x:  # G is flat at its maximum, and every x gives a bound
            break
        x = newton if low < newton < high else 0.5 * (low + high)
    return total / best if best > 0.0 else np.inf
