"""Exponential and logarithm by sums and products alone: loops that call them are vectorised, libraries' are not.

Both cut a number into a power of two, which is a matter of its bits, and a rest near 0 or 1, which has a series. They
are right to two units in the last place; NaN stays NaN.
"""

from __future__ import annotations

import math

import numpy as np

from surestep._jit import part_of_loops

# log 2 in two parts, the first so short that its products with small integers are exact.
_LOG_2 = float.fromhex("0x1.62e42feep-1")
_LOG_2_REST = float.fromhex("0x1.a39ef35793c76p-33")

# A number plus this is rounded to an integer, which is in the last bits of the sum.
_ROUND = 1.5 * 2.0**52

# Below, exponentials have no full precision, and count as zero.
_LEAST = -708.0

# 1 / k!, and 2 / (2 k + 1): a series in the square of s = f / (2 + f) for log(1 + f) = log(1 + s) - log(1 - s).
_EXP = tuple(1.0 / math.factorial(k) for k in range(14))
_LOG = tuple(2.0 / (2 * k + 1) for k in range(17))

_BITS_OF_ROOT = int(np.float64(math.sqrt(0.5)).view(np.int64))


@part_of_loops
def exp(x: float) -> float:
    """e^x for x <= 0."""
    above = max(x, _LEAST)
    rounded = above * (1.0 / math.log(2.0)) + _ROUND
    n = rounded - _ROUND
    r = (above - n * _LOG_2) - n * _LOG_2_REST
    # Not one term after the other: what does not depend on each other is done at once.
    r2 = r * r
    r4 = r2 * r2
    low = (_EXP[2] + _EXP[3] * r) + r2 * (_EXP[4] + _EXP[5] * r)
    middle = (_EXP[6] + _EXP[7] * r) + r2 * (_EXP[8] + _EXP[9] * r)
    high = (_EXP[10] + _EXP[11] * r) + r2 * (_EXP[12] + _EXP[13] * r)
    series = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)))
    bits = np.float64(series).view(np.int64) + (np.float64(rounded).view(np.int64) << 52)  # times 2^n
    return np.int64(bits).view(np.float64) if x >= _LEAST else (0.0 if x < _LEAST else x)


@part_of_loops
def log(x: float) -> float:
    """Logarithm of a finite x > 0; of those that are not normal, some value below that of the others."""
    bits = np.float64(x).view(np.int64)
    n = (bits - _BITS_OF_ROOT) >> 52
    f = np.int64(bits - (n << 52)).view(np.float64) - 1.0
    return n * _LOG_2 - ((_bend(f) - n * _LOG_2_REST) - f) if x > 0.0 else math.nan


@part_of_loops
def log1p(f: float) -> float:
    """log(1 + f) for sqrt(1/2) - 1 <= f <= 1."""
    return f - _bend(f)


@part_of_loops
def _bend(f: float) -> float:
    """f - log(1 + f) for sqrt(1/2) - 1 <= f <= 1."""
    s, half = f / (2.0 + f), 0.5 * f * f
    q = s * s
    q2 = q * q
    q4 = q2 * q2
    first = (_LOG[1] + _LOG[2] * q) + q2 * (_LOG[3] + _LOG[4] * q)
    second = (_LOG[5] + _LOG[6] * q) + q2 * (_LOG[7] + _LOG[8] * q)
    third = (_LOG[9] + _LOG[10] * q) + q2 * (_LOG[11] + _LOG[12] * q)
    fourth = (_LOG[13] + _LOG[14] * q) + q2 * (_LOG[15] + _LOG[16] * q)
    # With the series R of s^3 and beyond, over s: log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + R).
    return half - s * (half + q * ((first + q4 * second) + q4 * q4 * (third + q4 * fourth)))
