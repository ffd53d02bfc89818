"""The safe sampling solved in linear time.

Notation: coordinates i with smoothness L_i, roots_i = sqrt(L_i), and an unknown magnitude c_i of the gradient entry,
lower_i <= c_i <= upper_i. By Theorem 3.4 of the paper the optimum of eq. 7 has one unknown, the level m:

    c_i = clip(sqrt(L_i) m, lower_i, upper_i),     p_i = sqrt(L_i) c_i / sum_j sqrt(L_j) c_j,     m S1(m) = S2(m)

with S1 = sum sqrt(L_i) c_i and S2 = sum c_i^2 over the *clipped* coordinates only: one that sits at the level adds
L_i m to the first sum and L_i m^2 to the second, which cancels. phi(m) = m S1(m) - S2(m) is continuous, piecewise
linear and non-decreasing, and m <- S2/S1 is Newton's method on it, so no sort is needed. At the root

    v = S1 / m + (sum of L_i at the level),     p_i = L_i / v at the level,     p_i = sqrt(L_i) c_i / (m v) elsewhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import VECTORIZE, jit

Array = NDArray[np.float64]

# Sums run over blocks of this length: rounding loses a few ulp within a block, and the sum over blocks is compensated,
# so that ten million terms are as accurate as ten.
_BLOCK = 256

_NEWTON_PASSES = 12


@jit(fastmath=VECTORIZE)
def _block_sums(roots: Array, lower: Array, upper: Array, level: float) -> tuple[float, float, float]:
    """Return S1, S2 and the sum of L at the level, of one block."""
    first = second = at_level = 0.0
    for i in range(roots.size):
        root = roots[i]
        free = root * level
        # Selects rather than branches, so that the loop is vectorised.
        c = upper[i] if upper[i] < free else (lower[i] if lower[i] > free else 0.0)
        first += root * c
        second += c * c
        at_level += 0.0 if (upper[i] < free or lower[i] > free) else root * root
    return first, second, at_level


@jit
def level_sums(roots: Array, lower: Array, upper: Array, level: float) -> tuple[float, float, float]:
    """Return S1, S2 and the sum of L at the level, each accurate to a few ulp. Cost O(n)."""
    first = second = at_level = 0.0
    lost_first = lost_second = lost_at_level = 0.0
    for begin in range(0, roots.size, _BLOCK):
        end = min(begin + _BLOCK, roots.size)
        a, b, c = _block_sums(roots[begin:end], lower[begin:end], upper[begin:end], level)
        # Kahan's compensation; all terms are >= 0.
        a -= lost_first
        total = first + a
        lost_first, first = (total - first) - a, total
        b -= lost_second
        total = second + b
        lost_second, second = (total - second) - b, total
        c -= lost_at_level
        total = at_level + c
        lost_at_level, at_level = (total - at_level) - c, total
    return first, second, at_level


@jit
def find_level(roots: Array, lower: Array, upper: Array, low: float, high: float, start: float) -> tuple[float, float]:
    """Find the root of phi between ``low`` > 0 and ``high``; return it, the level m, and the value v.

    Some lower bound must be positive, and numbers of ordinary size: no product of three of them may overflow.

    Newton's method inside a bracket that only shrinks. Where it would leave the bracket, and every other pass once it
    has had `_NEWTON_PASSES`, the bracket is halved on a logarithmic scale instead. Some 60 halvings end the search
    whatever the data, so the cost is O(n) in the worst case; in practice it takes 3 to 5 passes.
    """
    level = min(max(start, low), high)
    passes = 0
    while True:
        first, second, at_level = level_sums(roots, lower, upper, level)
        if first == 0.0:  # nothing is clipped: every level nearby gives the same sampling
            return level, at_level
        newton = second / first
        if newton > level:
            low = level
        elif newton < level:
            high = level
        else:
            return level, at_level + first / level
        passes += 1
        if low < newton < high and (passes < _NEWTON_PASSES or passes % 2 == 0):
            level = newton
        else:
            middle = np.sqrt(low) * np.sqrt(high)
            if not low < middle < high:  # neighbouring numbers: the root to the last bits
                return level, at_level + first / level
            level = middle


@jit
def fill_probabilities(roots: Array, lower: Array, upper: Array, level: float, value: float, out: Array) -> None:
    """Write p of Theorem 3.4 to ``out``, which may be ``roots`` itself. Cost O(n)."""
    per_weight, per_smoothness = 1.0 / (level * value), 1.0 / value
    for i in range(roots.size):
        root = roots[i]
        free = root * level
        c = upper[i] if upper[i] < free else lower[i]
        out[i] = root * c * per_weight if (upper[i] < free or lower[i] > free) else root * root * per_smoothness


@jit
def _is_valid(lower: float, upper: float, smoothness: float, slack: float) -> bool:
    # Single bars: no branch, so that a loop over this is vectorised.
    in_order = (lower >= 0.0) & (lower < np.inf) & (lower <= slack * upper)
    return in_order & (smoothness > 0.0) & (smoothness < np.inf)


@jit
def check(lower: Array, upper: Array, smoothness: Array, slack: float) -> tuple[int, bool]:
    """Return the first index without 0 <= lower <= slack * upper and 0 < smoothness < inf, or -1 if there is none.

    And whether a lower bound exceeds its upper bound at all.
    """
    n_valid = n_crossed = 0
    for i in range(lower.size):
        n_valid += _is_valid(lower[i], upper[i], smoothness[i], slack)
        n_crossed += lower[i] > upper[i]
    first_invalid = -1
    if n_valid < lower.size:
        first_invalid = 0
        while _is_valid(lower[first_invalid], upper[first_invalid], smoothness[first_invalid], slack):
            first_invalid += 1
    return first_invalid, n_crossed > 0


class Solution(NamedTuple):
    """The safe sampling; the level m is level * 2^level_exponent, which may lie beyond the range of floats."""

    probabilities: Array
    value: float
    level: float
    level_exponent: int


def solve(lower: Array, upper: Array, smoothness: Array) -> Solution:
    """Solve eq. 7 for valid bounds of any size; every degenerate case is decided here. Cost O(n)."""
    largest_lower = float(lower.max())
    if largest_lower == 0.0:
        return _solve_without_lower_bounds(upper, smoothness)
    roots = np.sqrt(smoothness)
    smallest_root, largest_root = float(roots.min()), float(roots.max())
    if _is_ordinary(smallest_root, largest_root, largest_lower):
        # m >= |c| / |sqrt(L)| by S2 = m S1 and the Cauchy-Schwarz inequality; and phi >= 0 above every lower bound.
        low = 0.5 * largest_lower / (largest_root * math.sqrt(roots.size))
        high = 2.0 * largest_lower / smallest_root
        level, value = find_level(roots, lower, upper, low, high, low)
        fill_probabilities(roots, lower, upper, level, value, roots)
        return Solution(roots, value, level, 0)
    with np.errstate(all="ignore"):
        return _solve_extreme(lower, upper, roots, largest_root)


def _solve_without_lower_bounds(upper: Array, smoothness: Array) -> Solution:
    """All coordinates that may move sit at one level, as low as need be: p ~ L among them."""
    still = upper == 0.0
    if still.all():  # the gradient is zero: no sampling is better than another
        still[:] = False
    exponent = int(np.frexp(smoothness.max())[1])  # the sum may lie beyond the largest float, the quotients do not
    probabilities = np.ldexp(smoothness, -exponent)
    probabilities[still] = 0.0
    total = probabilities.sum()
    probabilities /= total
    with np.errstate(over="ignore", invalid="ignore"):
        value = float(np.ldexp(total, exponent))
        level = float(np.min(upper / np.sqrt(smoothness), where=~still, initial=np.inf))
    return Solution(probabilities, value, level if level < np.inf else 1.0, 0)


def _is_ordinary(smallest_root: float, largest_root: float, largest_lower: float) -> bool:
    """Whether no product in the kernels can overflow, or lose to underflow what matters."""
    return smallest_root > 2.0**-100 and largest_root < 2.0**100 and 2.0**-200 < largest_lower < 2.0**200


def _solve_extreme(lower: Array, upper: Array, roots: Array, largest_root: float) -> Solution:
    """Solve for numbers anywhere between the smallest and the largest float.

    Bounds and roots are scaled by powers of two, which is exact, so that the sums over clipped coordinates are of
    ordinary size: a bound that then vanishes or overflows is one that does not matter to those sums.
    """
    log_level, log_largest = _rough_level(np.log2(roots), np.log2(lower), np.log2(upper))
    scale = 495 - int(log_largest)  # the squares of the largest clipped bounds can be summed
    shift = max(0, math.frexp(largest_root)[1] - (1022 - roots.size.bit_length()) // 2)  # and so can all L
    start = float(np.exp2(log_level + scale + shift))
    roots, low, high = np.ldexp(roots, -shift), np.ldexp(lower, scale), np.ldexp(upper, scale)
    level, value = find_level(roots, low, high, 0.5 * start, 2.0 * start, start)
    free = roots * level
    at_upper, at_lower = high < free, low > free
    # p = sqrt(L) c / (m v): the factors may lie outside the range where the product does not, so their exponents are
    # added up apart from their digits.
    (level_digits, level_exponent), (value_digits, value_exponent) = math.frexp(level), math.frexp(value)
    digits, exponents = np.frexp(np.where(at_upper, upper, lower))
    digits *= roots / (level_digits * value_digits)
    clipped = np.ldexp(digits, exponents + (scale - level_exponent - value_exponent))
    probabilities = np.where(at_upper | at_lower, clipped, roots * (roots / value))
    return Solution(probabilities, float(np.ldexp(value, 2 * shift)), level, -scale - shift)


def _rough_level(log_roots: Array, log_lower: Array, log_upper: Array) -> tuple[float, float]:
    """Return log2 of the level, to a few digits, and of the largest bound that some level within a factor 2 clips.

    For numbers of any size. All are given by their log2, -inf for 0. Bisection on phi, whose sums are taken relative to
    their largest term.
    """

    def log_sum(logs: Array) -> float:
        largest = float(logs.max())
        return largest + float(np.log2(np.sum(np.exp2(logs - largest)))) if largest > -np.inf else -np.inf

    low, high = log_lower.max() - 0.5 * log_sum(2.0 * log_roots), float(np.max(log_lower - log_roots))
    for _ in range(50):
        level = 0.5 * (low + high)
        free = log_roots + level
        clipped = np.where(log_upper < free, log_upper, np.where(log_lower > free, log_lower, -np.inf))
        if log_sum(2.0 * clipped) > level + log_sum(log_roots + clipped):
            low = level
        else:
            high = level
    clipped = np.where(log_upper < free + 1.0, log_upper, np.where(log_lower > free - 1.0, log_lower, -np.inf))
    largest = float(clipped.max())
    return level, largest if largest > -np.inf else float(log_lower.max())
