"""The other samplings, the progress model, and what goes in and comes out."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

import surestep as ss
from test_safe_sampling import EPS, boxes

# Lemma 2.1, Examples 2.2 and 2.3, Lemma 2.4, Example 3.1


@given(boxes(zeros=False, infinities=False), st.integers(0, 2**32 - 1))
def test_lemma_21_best_stepsize_and_its_guarantee(box, seed):
    gradient, _, smoothness = box
    p = np.random.default_rng(seed).dirichlet(np.ones(len(gradient))) + 1e-9
    p /= p.sum()
    V, alpha = ss.progress_model(p, gradient, smoothness), ss.progress_stepsize(p, gradient, smoothness)

    def bound(step):
        """The change of the objective guaranteed by eq. 3."""
        return -step * (gradient @ gradient) + step**2 / 2 * V

    assert bound(alpha) == pytest.approx(-alpha / 2 * (gradient @ gradient), rel=1e-12)
    for other in (0.5, 0.99, 1.01, 2.0):
        assert bound(alpha) <= bound(other * alpha)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_expected_progress_on_a_quadratic_by_enumeration(n, seed):
    """Eq. 3 and Lemma 2.1 for a true function: f(x) = x'Qx/2, L_i = Q_ii, every outcome of the draw enumerated."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n + 2, n)) * 10.0 ** rng.uniform(-1, 1, n)
    Q, x = A.T @ A, rng.normal(size=n)
    gradient, L = Q @ x, np.diag(Q).copy()
    spread = rng.uniform(0, 1, n) * np.abs(gradient)
    samplings = [
        ss.importance_sampling(L),
        ss.optimal_sampling(gradient, L),
        ss.safe_sampling(np.abs(gradient) - spread, np.abs(gradient) + 3 * spread, L),
    ]
    for s in samplings:
        outcomes = []
        for i in range(n):
            y = x.copy()
            y[i] -= s.stepsize / s.probabilities[i] * gradient[i]
            outcomes.append(y @ Q @ y / 2)
        promised = x @ Q @ x / 2 - s.stepsize / 2 * (gradient @ gradient)
        assert np.dot(s.probabilities, outcomes) <= promised + 1e-12 * (x @ Q @ x)


@given(boxes())
def test_example_22_importance_sampling(box):
    gradient, _, smoothness = box
    s = ss.importance_sampling(smoothness)
    np.testing.assert_allclose(s.probabilities, smoothness / smoothness.sum(), rtol=8 * EPS)
    assert s.stepsize == pytest.approx(1 / smoothness.sum(), rel=8 * EPS)
    if gradient.any():  # the same stepsize for every gradient
        assert ss.progress_stepsize(s.probabilities, gradient, smoothness) == pytest.approx(s.stepsize, rel=32 * EPS)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_example_23_optimal_sampling(box, seed):
    gradient, _, smoothness = box
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], len(gradient))
    s = ss.optimal_sampling(signs * gradient, smoothness)
    if not gradient.any():
        assert s.converged
        return
    weights = np.sqrt(smoothness) * gradient
    np.testing.assert_allclose(s.probabilities, weights / weights.sum(), rtol=16 * EPS)
    assert s.stepsize == pytest.approx((gradient @ gradient) / weights.sum() ** 2, rel=32 * EPS)
    assert ss.progress_stepsize(s.probabilities, gradient, smoothness) == pytest.approx(s.stepsize, rel=32 * EPS)
    assert 1 / smoothness.sum() <= s.stepsize * (1 + 16 * EPS)
    assert s.stepsize <= 1 / smoothness.min() * (1 + 16 * EPS)
    safe = ss.safe_sampling(gradient, gradient, smoothness)
    np.testing.assert_array_equal(safe.probabilities, s.probabilities)
    np.testing.assert_array_equal(s.worst_case, gradient)


@given(boxes(), st.integers(0, 2**32 - 1))
def test_lemma_24_optimal_sampling_minimises_the_progress_model(box, seed):
    gradient, _, smoothness = box
    best = ss.optimal_sampling(gradient, smoothness).probabilities
    other = np.random.default_rng(seed).dirichlet(np.ones(len(gradient)))
    least = (np.sqrt(smoothness) @ gradient) ** 2
    assert ss.progress_model(best, gradient, smoothness) == pytest.approx(least, rel=64 * EPS)
    assert ss.progress_model(other, gradient, smoothness) >= least * (1 - 64 * EPS)


def test_example_31_neither_end_of_the_bounds_is_a_good_guess():
    lower, upper, c = np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([2.0, 2.0])
    assert ss.progress_model(lower / 3, c) == pytest.approx(9 / 4 * 8)
    assert ss.progress_model(upper / 5, c) == pytest.approx(25 / 12 * 8)
    assert ss.progress_model(ss.safe_sampling(lower, upper).probabilities, c) == pytest.approx(2 * 8)


def test_uniform_sampling():
    s = ss.uniform_sampling(5)
    np.testing.assert_array_equal(s.probabilities, np.full(5, 0.2))
    assert (s.value, s.gain, s.converged) == (5.0, 1.0, False)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        ss.uniform_sampling(0)


def test_progress_model_of_a_coordinate_that_is_never_drawn():
    assert ss.progress_model([1, 0], [3, 0]) == 9
    assert ss.progress_model([1, 0], [3, 1]) == np.inf
    assert ss.progress_stepsize([1, 0], [3, 1]) == 0
    assert ss.progress_stepsize([0.5, 0.5], [0, 0]) == 0
    assert ss.progress_stepsize([0.5, 0.5], [1e200, 1e-200]) == pytest.approx(0.5)
    assert ss.progress_model([0.5, 0.5], [1e200, 0]) == np.inf  # beyond the largest float, and no warning


# What goes in and comes out


@pytest.mark.parametrize(
    "kind",
    [list, tuple, pd.Series, np.float32, np.float16, np.int64, np.uint8, "strided", "read-only", "object"],
)
def test_input_of_every_kind_gives_the_same_sampling(kind):
    lower, upper, smoothness = [1, 0, 4], [2, 8, 4], [1, 4, 16]

    def made(values):
        if isinstance(kind, str):
            array = np.array(values, dtype=object if kind == "object" else float)
            if kind == "strided":
                array = np.repeat(array, 2)[::2]
            array.flags.writeable = kind != "read-only"
            return array
        return np.array(values, dtype=kind) if issubclass(kind, np.generic) else kind(values)

    expected = ss.safe_sampling(np.array(lower, float), np.array(upper, float), np.array(smoothness, float))
    s = ss.safe_sampling(made(lower), made(upper), made(smoothness))
    np.testing.assert_array_equal(s.probabilities, expected.probabilities)
    assert s.probabilities.dtype == np.float64
    assert isinstance(s.value, float)
    assert isinstance(s.level, float)


def test_arguments_are_not_modified_nor_kept():
    lower, upper, smoothness = np.array([1.0, 2.0]), np.array([2.0, 3.0]), np.array([1.0, 2.0])
    s = ss.safe_sampling(lower, upper, smoothness)
    ratio = ss.safe_sampling(lower, upper, smoothness).competitive_ratio
    np.testing.assert_array_equal(lower, [1, 2])
    lower[:] = upper[:] = smoothness[:] = 7.0
    np.testing.assert_array_equal(s.lower, [1, 2])
    assert s.competitive_ratio == ratio
    with pytest.raises(ValueError, match="read-only"):
        s.probabilities[0] = 1


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, NAN], [1, 1]), r"lower\[1\] is NaN"),
        (([0, 0], [1, NAN]), r"upper\[1\] is NaN"),
        (([0, 0], [1, 1], [1, NAN]), r"smoothness\[1\] is NaN"),
        (([0, -1], [1, 1]), r"lower\[1\] is -1.0; bounds on an absolute value cannot be negative"),
        (([0, 0], [1, -2]), r"upper\[1\] is -2.0; bounds on an absolute value cannot be negative"),
        (([0, 3], [1, 2]), r"lower\[1\] is 3.0 and exceeds upper\[1\], 2.0, by more than rounding"),
        (([0, INF], [1, INF]), r"lower\[1\] is inf; it must be finite"),
        (([0, 0], [1, 1], [1, 0]), r"smoothness\[1\] is 0.0; it must be positive and finite"),
        (([0, 0], [1, 1], [1, -1]), r"smoothness\[1\] is -1.0; it must be positive and finite"),
        (([0, 0], [1, 1], [INF, 1]), r"smoothness\[0\] is inf; it must be positive and finite"),
        (([0, 0], [1]), r"upper has 1 entries, lower has 2"),
        (([0, 0], [1, 1], [1, 1, 1]), r"smoothness has 3 entries, lower has 2"),
        (([], []), r"lower is empty"),
        (([[0, 0]], [[1, 1]]), r"lower must be one-dimensional, got shape \(1, 2\)"),
        ((0, 1), r"lower must be one-dimensional, got shape \(\)"),
        ((["a"], [1]), r"lower must be an array of real numbers"),
        (([1j], [1]), r"lower must be an array of real numbers"),
        (([[1], [1, 2]], [1]), r"lower must be an array of real numbers"),
    ],
)
def test_bad_bounds_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ss.safe_sampling(*arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ss.optimal_sampling([1, NAN]), r"gradient\[1\] is NaN"),
        (lambda: ss.optimal_sampling([1, -INF]), r"gradient\[1\] is inf; it must be finite"),
        (lambda: ss.optimal_sampling([1], [1, 2]), r"smoothness has 2 entries, gradient has 1"),
        (lambda: ss.importance_sampling([1, 0]), r"smoothness\[1\] is 0.0; it must be positive"),
        (lambda: ss.importance_sampling([]), r"smoothness is empty"),
        (lambda: ss.progress_model([0.5, 0.6], [1, 1]), r"probabilities sum to 1.1"),
        (lambda: ss.progress_model([1.5, -0.5], [1, 1]), r"probabilities\[0\] is 1.5; it must be between 0 and 1"),
        (lambda: ss.progress_model([0.5, 0.5], [1, INF]), r"gradient\[1\] is inf; it must be finite"),
        (lambda: ss.progress_model([0.5, 0.5], [1]), r"gradient has 1 entries, probabilities has 2"),
        (lambda: ss.progress_stepsize([1], [1], [0]), r"smoothness\[0\] is 0.0; it must be positive and finite"),
    ],
)
def test_bad_arguments_of_the_others_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
