"""Exponential and logarithm by sums and products, beside those of the library in extended precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surestep._elementary import exp, log, log1p

ULP = 2.0**-53

extended = pytest.mark.skipif(np.finfo(np.longdouble).eps == np.finfo(float).eps, reason="no extended precision here")


def python_of(function):
    return getattr(function, "py_func", function)


def is_near(found: float, expected: np.longdouble, ulps: float) -> bool:
    return bool(abs(np.longdouble(found) - expected) <= ulps * ULP * abs(expected))


@extended
@given(st.floats(-708.0, 0.0))
@example(-0.0)
@example(-708.0)
@example(-0.5 * math.log(2.0))  # where it is rounded from one power of two to the next
def test_exponential(x):
    expected = np.exp(np.longdouble(x))
    assert is_near(exp(x), expected, 2.0)
    assert is_near(python_of(exp)(x), expected, 2.0)


@pytest.mark.parametrize("function", [exp, python_of(exp)])
def test_exponential_at_its_ends(function):
    assert function(0.0) == function(-0.0) == 1.0
    assert function(-709.0) == function(-1e300) == function(-math.inf) == 0.0
    assert math.isnan(function(math.nan))


@extended
@given(st.floats(np.finfo(float).tiny, 1e300))
@example(1.0)
@example(math.sqrt(0.5))
@example(math.nextafter(1.0, 0.0))
@example(np.finfo(float).tiny)
def test_logarithm(x):
    expected = np.log(np.longdouble(x))
    assert is_near(log(x), expected, 2.0)
    assert is_near(python_of(log)(x), expected, 2.0)


@pytest.mark.parametrize("function", [log, python_of(log)])
def test_logarithm_at_its_ends(function):
    assert function(1.0) == 0.0
    assert -745.0 <= function(5e-324) <= math.log(np.finfo(float).tiny)
    assert math.isnan(function(math.nan))
    assert math.isnan(function(-1.0))


@extended
@given(st.floats(math.sqrt(0.5) - 1.0, 1.0))
@example(0.0)
@example(1e-300)
def test_logarithm_of_one_and_a_bit(f):
    expected = np.log1p(np.longdouble(f))
    assert is_near(log1p(f), expected, 2.5)
    assert is_near(python_of(log1p)(f), expected, 2.5)
