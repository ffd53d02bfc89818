"""Bounds on the norms of gradients of single rows: safe within the distance they are made for, and tight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surestep as ss
from surestep import losses
from surestep.bounds.margins import fill_norm_bounds, fill_smoothness, margins, mean_gradient, row_norms, safe_shares
from zoo import LOSSES, PseudoHuber, data

N, D = 12, 4


def made(name, seed, anchored):
    rng = np.random.default_rng(seed)
    X, y = data(seed, LOSSES[name], n=N, d=D)
    X *= np.exp(rng.normal(size=(N, 1)))
    weights = rng.integers(0, 4, N) + rng.random(N) * (rng.random(N) < 0.5)
    problem = ss.Problem(
        X, y, LOSSES[name], sample_weight=weights + (weights.sum() == 0.0), fit_intercept=seed % 2 == 0
    )
    x = rng.normal(size=problem.n_coordinates) * 2.0 ** rng.integers(-3, 3)
    z = problem.predictor(x)
    anchor = problem.derivative(problem.predictor(x + 0.3)) if anchored else np.zeros(N)
    return problem, x, z, anchor, row_norms(problem.design.rows, problem.fit_intercept), rng


@pytest.mark.parametrize("name", LOSSES)
@given(seed=st.integers(0, 10_000), distance=st.sampled_from([0.0, 1e-9, 0.01, 0.3, 2.0, 1e6]), anchored=st.booleans())
def test_norms_lie_within_their_bounds(name, seed, distance, anchored):
    problem, x, z, anchor, norms, rng = made(name, seed, anchored)
    lower, upper = np.empty(N), np.empty(N)
    fill_norm_bounds(problem.loss, problem.y, problem.weights, norms, z, anchor, distance, lower, upper)
    scale = problem.weights * norms
    for direction in np.vstack([rng.normal(size=(5, x.size)), np.zeros((1, x.size))]):
        size = np.linalg.norm(direction)
        there = x + direction * (distance / size if size > 0.0 else 0.0)
        c = scale * np.abs(problem.derivative(problem.predictor(there)) - anchor)
        rounding = 1e-13 * scale * (1.0 + np.abs(z) + norms * distance)
        assert (lower <= c + rounding).all()
        assert (c <= upper + rounding).all()
    assert (upper[problem.weights == 0.0] == 0.0).all()
    if distance == 0.0:
        np.testing.assert_allclose(lower, upper, atol=1e-12 * scale.max() * (1.0 + np.abs(z).max()))
    # Both ends are attained where x moves along the row: nothing sharper is true of all x within the distance.
    u_low, u_high = (problem.derivative(z + side * norms * distance) - anchor for side in (-1.0, 1.0))
    attained = scale * np.maximum(np.abs(u_low), np.abs(u_high))
    np.testing.assert_allclose(upper, attained, rtol=1e-9, atol=1e-12 * scale.max() * (1.0 + np.abs(z).max()))


def test_rows_beyond_the_hinge_are_certified():
    X, y = np.eye(3), np.array([1.0, 1.0, -1.0])
    problem = ss.Problem(X, y, "squared_hinge")
    z, norms = problem.predictor([2.0, 0.5, -1.5]), row_norms(problem.design.rows, False)
    lower, upper = np.empty(3), np.empty(3)
    arguments = (problem.loss, problem.y, problem.weights, norms, z)
    fill_norm_bounds(*arguments, np.zeros(3), 0.4, lower, upper)
    assert (upper > 0.0).tolist() == [False, True, False]
    fill_norm_bounds(*arguments, np.zeros(3), 0.6, lower, upper)
    assert (upper > 0.0).tolist() == [False, True, True]
    fill_smoothness(*arguments, 0.6, upper)
    np.testing.assert_allclose(upper, [0.0, 1 / 3, 1 / 3])


@pytest.mark.parametrize("loss", [*LOSSES.values(), PseudoHuber()], ids=lambda loss: type(loss).__name__)
@given(
    low=st.floats(-30.0, 30.0), width=st.floats(0.0, 20.0), inside=st.floats(0.0, 1.0), label=st.sampled_from([-1, 1])
)
def test_largest_curvature(loss, low, width, inside, label):
    high = low + width
    largest = losses.largest_curvature(loss, low, high, label)
    assert losses.second_derivative(loss, low + inside * width, label) <= largest <= losses.smoothness(loss)
    slope = losses.derivative(loss, high, label) - losses.derivative(loss, low, label)
    assert slope <= largest * width * (1.0 + 1e-9) + 1e-12


@given(seed=st.integers(0, 10_000), distance=st.sampled_from([0.0, 0.1, 1.0, np.inf]))
def test_safe_shares_are_never_worse_than_fixed_ones(seed, distance):
    problem, _, z, anchor, norms, rng = made("logistic", seed, False)
    lower, upper, scale = np.empty(N), np.empty(N), problem.weights * norms
    fill_norm_bounds(problem.loss, problem.y, problem.weights, norms, z, anchor, distance, lower, upper)
    p, ratio = safe_shares(lower, upper, scale)
    assert p.sum() == pytest.approx(1.0)
    assert ratio <= 1.0 + 1e-12
    active = scale > 0.0
    fixed = scale[active].sum()
    # sum c^2 / p of Appendix A.2 against that of p ~ scale: the difference is a sum over rows, each linear in c_i^2, so
    # its largest value among all c within the bounds is found end by end.
    more = 1.0 / p[active] - fixed / scale[active]
    worst = np.where(more > 0.0, upper[active], lower[active])
    assert np.sum(worst**2 * more) <= 1e-9 * np.sum(worst**2 / p[active])
    for _ in range(5):
        c = (lower + rng.random(N) * (upper - lower))[active]
        assert c.sum() ** 2 <= np.sum(c**2 / p[active]) * (1.0 + 1e-12)
    if distance == 0.0:
        np.testing.assert_allclose(p, lower / lower.sum(), rtol=1e-6)


@given(seed=st.integers(0, 10_000), equal=st.booleans())
def test_no_sampling_is_never_worse_than_both_uniform_and_importance_sampling(seed, equal):
    """Unless they are the same. Where nothing is known, c may be zero but for one row: then p_i should be large."""
    rng = np.random.default_rng(seed)
    scale = np.ones(N) if equal else rng.pareto(1.5, N) + 1e-3
    p, _ = safe_shares(np.zeros(N), np.full(N, np.inf), scale)
    np.testing.assert_allclose(p, scale / scale.sum())
    asked = np.maximum(1.0 / N, scale / scale.sum())  # p_i below this is worse than one of the two for such a c
    for q in (p, asked / asked.sum(), rng.dirichlet(np.ones(N))):
        assert (q < asked * (1.0 - 1e-9)).any() or equal


def test_nothing_to_draw():
    p, ratio = safe_shares(np.zeros(3), np.zeros(3), np.ones(3))
    assert not p.any()
    assert ratio == 0.0


def test_passes_over_the_rows_are_the_problem():
    problem, x, z, _, _, _ = made("logistic", 4, False)
    np.testing.assert_allclose(margins(problem.design.rows, True, x), z)
    gradient = np.empty(D)
    total = mean_gradient(problem.design.rows, problem.weights, problem.derivative(z), gradient)
    np.testing.assert_allclose(np.append(gradient, total), problem.gradient(x), atol=1e-15)
