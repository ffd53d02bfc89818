"""Steps put off are the steps themselves: orbits in O(1) against one proximal step after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surestep.regularizers import Separable, prox
from surestep.solvers._orbit import Packed, end_step, make_ball, make_powers, orbit, orbit_sum, usual_orbit

NUMBERS = st.floats(-3.0, 3.0).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
STRENGTHS = st.sampled_from([0.0, 1e-7, 0.01, 0.3, 2.0])


def line(v, g, l1, l2, lower, upper):
    """A table of one coordinate."""
    return np.array([[v, 0.0, g, 0.0, l1, l2, lower, upper]])


def step_by_step(v, g, reg, eta, m):
    """T(v), T^2(v), ..., T^m(v)."""
    points = []
    for _ in range(m):
        v = prox(reg, 0, v - eta * g, eta)
        points.append(v)
    return np.array(points)


@given(
    v=NUMBERS,
    g=NUMBERS,
    l1=STRENGTHS,
    l2=STRENGTHS,
    eta=st.sampled_from([1e-3, 0.03, 0.5, 4.0]),
    m=st.integers(1, 60),
    lower=st.sampled_from([-np.inf, -1.0, 0.0]),
    upper=st.sampled_from([np.inf, 1.0, 0.0]),
    table_l2=STRENGTHS,
)
@example(v=1.0, g=0.5, l1=0.01, l2=0.0, eta=0.5, m=40, lower=-np.inf, upper=np.inf, table_l2=0.0)  # across zero
@example(v=-2.0, g=-3.0, l1=0.3, l2=0.3, eta=0.03, m=60, lower=-1.0, upper=1.0, table_l2=0.3)  # bound to bound
def test_orbit(v, g, l1, l2, eta, m, lower, upper, table_l2):
    table = line(v, g, l1, l2, lower, upper)
    powers = make_powers(eta, table_l2, l2 == table_l2, 60)
    reg = Separable(*(np.array([part]) for part in (l1, l2, lower, upper)))
    points = step_by_step(v, g, reg, eta, m)
    scale = 1.0 + abs(v) + m * eta * (abs(g) + l1)
    assert orbit(Packed(), table, 0, v, 5, 5 + m, powers) == pytest.approx(points[-1], abs=1e-12 * scale)
    assert orbit_sum(Packed(), table, 0, v, 0, m, powers) == pytest.approx(
        points.sum(), rel=1e-9, abs=1e-11 * m * scale
    )
    if l2 == table_l2:
        power, sums, powers_sum, sums_sum = powers.table[m]
        after, pull, right = usual_orbit(table, 0, v, power, sums)
        if right:
            assert after == pytest.approx(points[-1], abs=1e-12 * scale)
        if right and after != 0.0:  # as the kernel adds up averages
            assert powers_sum * v - sums_sum * pull == pytest.approx(points.sum(), rel=1e-9, abs=1e-11 * m * scale)
    assert (np.diff(np.append(v if lower <= v <= upper else points[0], points)) * (points[-1] - points[0]) >= 0).all()


@given(v=NUMBERS, w=NUMBERS, g=NUMBERS, l1=STRENGTHS, l2=STRENGTHS, m=st.integers(1, 30))
def test_orbits_expand_no_distances(v, w, g, l1, l2, m):
    table, powers = line(v, g, l1, l2, -1.0, 2.0), make_powers(0.3, l2, True, 30)
    one, other = (orbit(Packed(), table, 0, x, 0, m, powers) for x in (v, w))
    assert abs(one - other) <= abs(v - w) + 1e-12 * (1.0 + abs(v) + abs(w))


def test_penalty_of_a_users_own_is_applied_step_by_step():
    reg = Separable(*(np.array([part]) for part in (0.1, 0.2, -1.0, 1.0)))
    table, powers = line(0.9, -0.4, 0.0, 0.0, 0.0, 0.0), make_powers(0.3, 0.0, True, 7)
    points = step_by_step(0.9, -0.4, reg, 0.3, 7)
    # Any type but `Packed` and `Ball`.
    assert orbit(reg, table, 0, 0.9, 1, 8, powers) == points[-1]
    assert orbit_sum(reg, table, 0, 0.9, 1, 8, powers) == pytest.approx(points.sum())


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_ball(l2):
    rng = np.random.default_rng(0)
    x, eta, powers = np.array([1.0, -0.5, 0.2]), 0.1, make_powers(0.1, l2, True, 30)
    ball = make_ball(1.0, x[:2].copy(), 30)
    v, seen, total, expected = x.copy(), 0, np.zeros(3), np.zeros(3)
    for t in range(30):
        if t % 4 == 0:  # data
            total += [orbit_sum(ball, x, j, v[j], seen, t, powers) for j in range(3)]
            v, seen = np.array([orbit(ball, x, j, v[j], seen, t, powers) for j in range(3)]), t
            np.testing.assert_allclose(v, x, rtol=1e-13)
            move = rng.normal(size=3)
            gained = np.sum((v + move)[:2] ** 2) - np.sum(v[:2] ** 2)
            v, x = v + move, x + move
        else:
            gained = 0.0
        x[:2] /= 1.0 + eta * l2
        before = np.linalg.norm(x[:2])
        x[:2] *= min(1.0, 1.0 / before)
        expected += x
        kappa, tau, must_end = end_step(ball, t, gained, powers)
        assert kappa == pytest.approx(min(1.0, 1.0 / before) / (1.0 + eta * l2), rel=1e-12)
        assert tau == pytest.approx(1.0 / kappa - 1.0)
        assert not must_end
    total += [orbit_sum(ball, x, j, v[j], seen, 30, powers) for j in range(3)]
    np.testing.assert_allclose(total, expected, rtol=1e-12)
