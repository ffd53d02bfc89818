"""`SafeSampler`: after any history it draws from the safe sampling of its bounds, and its bounds are right."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings

import surestep as ss
from surestep._jit import jit
from surestep.sampling.index import draw_from, drift, place


class Model:
    """The bounds in plain NumPy, beside a sampler that is told the same."""

    def __init__(self, smoothness, speed=None, rng=0):
        self.L = np.asarray(smoothness, float)
        self.sampler = ss.SafeSampler(self.L, speed, rng)
        self.speed = np.sqrt(self.L) if speed is None else np.asarray(speed, float)
        self.low, self.high = np.full(self.L.size, -np.inf), np.full(self.L.size, np.inf)
        self.reach = 0.0  # the largest distance so far: what rounding is relative to

    def observe(self, i, low, high):
        if np.array_equal(low, high):
            self.sampler.observe(i, low)
        else:
            self.sampler.observe(i, lower=low, upper=high)
        for j, a, b in np.broadcast(i, low, high):
            self.low[j], self.high[j] = a, b

    def widen(self, amount):
        self.sampler.widen(amount)
        self.low -= amount * self.speed
        self.high += amount * self.speed
        self.reach += amount

    def narrow(self, amount):
        self.sampler.narrow(amount)
        self.low += amount * self.speed
        self.high -= amount * self.speed

    def bounds(self):
        return np.maximum(self.low, 0.0), np.maximum(self.high, 0.0)

    def history(self, rng, length, scale=1.0):
        """Random operations of every kind."""
        n = self.L.size
        for _ in range(length):
            what = rng.random()
            c = scale * float(rng.exponential()) * np.sqrt(self.L[0])
            if what < 0.25:
                self.observe(int(rng.integers(n)), c, c)
            elif what < 0.35:
                i = int(rng.integers(n))
                self.observe(i, *[rng.choice([c, -c, 0.0])] * 2)  # a repeated value, a slack, or zero
            elif what < 0.5:
                self.observe(int(rng.integers(n)), c - scale, c + rng.choice([0.3 * scale, np.inf]))
            elif what < 0.6:
                several = rng.choice(n, int(rng.integers(0, n + 1)), replace=False)
                value = scale * rng.normal(size=several.size)
                self.observe(several, value, value)
            elif what < 0.8:
                self.widen(float(rng.choice([0.0, 0.1, rng.exponential()])) * scale)
            elif what < 0.9:
                room = self.sampler._travelled - self.sampler._nearest
                self.narrow(max(float(rng.choice([0.0, 0.5, 1.0])) * min(room, scale), 0.0))
            elif not self.sampler.converged:
                i, p = self.sampler.draw()
                assert p == self.sampler.probabilities()[i]
                assert p > 0.0


def check_sampling(sampler, smoothness, rtol=1e-9):
    """What the sampler says is the safe sampling of the bounds it reports."""
    lower, upper = sampler.bounds()
    if not upper.any():
        assert sampler.converged
        assert sampler.value == sampler.stepsize == 0.0
        assert not sampler.probabilities().any()
        return
    expected = ss.safe_sampling(lower, upper, smoothness)
    assert not sampler.converged
    assert sampler.value == pytest.approx(expected.value, rel=rtol)
    assert sampler.stepsize == 1.0 / sampler.value
    movable = upper > 0.0
    assert smoothness[movable].min() * (1 - rtol) <= sampler.value <= smoothness.sum() * (1 + rtol)
    p = sampler.probabilities()
    np.testing.assert_allclose(p, expected.probabilities, rtol=rtol, atol=1e-15)
    assert (p[~movable] == 0.0).all()
    assert p.sum() == pytest.approx(1.0, abs=1e-9)


def check_bounds(model, rtol=1e-12):
    for found, expected in zip(model.sampler.bounds(), model.bounds(), strict=True):
        finite = expected < np.inf
        assert (found[~finite] == np.inf).all()
        scale = np.abs(expected[finite]) + model.speed[finite] * model.reach
        assert (np.abs(found[finite] - expected[finite]) <= rtol * scale).all()


def curvatures(rng, n, spread):
    return 10.0 ** rng.uniform(-spread / 2, spread / 2, n)


sizes = st.one_of(st.integers(1, 3), st.integers(4, 20), st.integers(21, 120))


@given(sizes, st.sampled_from([0.0, 1.0, 8.0]), st.integers(0, 200), st.integers(0, 2**32 - 1))
@example(1, 0.0, 50, 0)
@example(2, 8.0, 50, 1)
@example(3, 1.0, 50, 2)
@example(120, 8.0, 0, 3)
@settings(max_examples=50)
def test_exact_after_any_history(n, spread, length, seed):
    rng = np.random.default_rng(seed)
    model = Model(curvatures(rng, n, spread))
    check_sampling(model.sampler, model.L)
    for _ in range(4):
        model.history(rng, length // 4, scale=float(rng.choice([1e-4, 1.0, 1e4])))
        check_bounds(model)
        check_sampling(model.sampler, model.L)


@given(sizes, st.integers(1, 16), st.integers(0, 100), st.integers(0, 2**32 - 1))
@example(60, 16, 100, 0)
@settings(max_examples=40)
def test_exact_with_a_drift_of_ones_own(n, n_rates, length, seed):
    rng = np.random.default_rng(seed)
    L = curvatures(rng, n, 2.0)
    rates = rng.choice([0.0, 1.0, 2.0, 3.5], n_rates) + rng.integers(0, 3, n_rates)
    model = Model(L, np.sqrt(L) * rng.choice(rates, n))
    for _ in range(2):
        model.history(rng, length // 2)
        check_bounds(model, rtol=1e-11)
        check_sampling(model.sampler, L)


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_many_rates_are_safe_and_no_looser_than_their_classes(spread):
    rng = np.random.default_rng(5)
    n = 90
    L = curvatures(rng, n, 1.0)
    speed = np.sqrt(L) * 10.0 ** rng.uniform(0.0, spread, n)
    rate = speed / np.sqrt(L)
    # 16 rates from the smallest to the largest, evenly on a logarithmic scale: no two neighbours further apart.
    ratio = (rate.max() / rate.min()) ** (1 / 15) * (1 + 1e-12)
    tight, loose = Model(L, speed), Model(L)
    loose.sampler, loose.speed = tight.sampler, speed * ratio
    value = rng.exponential(1.0, n) * np.where(rng.random(n) < 0.2, -1.0, 1.0)
    for _ in range(30):
        several = rng.choice(n, 10, replace=False)
        tight.sampler.observe(several, value[several])
        for model in (tight, loose):
            model.low[several] = model.high[several] = value[several]
            model.low, model.high = model.low - 0.02 * model.speed, model.high + 0.02 * model.speed
        tight.sampler.widen(0.02)
        lower, upper = tight.sampler.bounds()
        room = 1e-12 * (1.0 + 2.0 * speed)
        assert (lower <= tight.bounds()[0] + room).all()
        assert (upper >= tight.bounds()[1] - room).all()
        assert (lower >= loose.bounds()[0] - room).all()
        assert (upper <= loose.bounds()[1] + room).all()
        check_sampling(tight.sampler, L)
    assert (tight.sampler.bounds()[1] > tight.bounds()[1] + 1e-6).any()  # the classes do cost something


# Draws


def some_unvisited(sampler, rng):
    sampler.observe(np.arange(60), rng.exponential(1.0, 60))
    sampler.widen(0.2)


def few_at_their_lower_bounds(sampler, rng):
    sampler.observe(np.arange(100), lower=np.full(100, 0.1), upper=np.full(100, 5.0))
    sampler.observe([3, 50, 99], [40.0, 60.0, 20.0])
    sampler.widen(0.01)


def many_certified_zero(sampler, rng):
    sampler.observe(np.arange(100), rng.normal(size=100))
    sampler.widen(0.05)


def nothing_known_from_below(sampler, rng):
    sampler.observe(np.arange(50), np.where(np.arange(50) % 2, -1.0, 0.0))
    sampler.widen(0.1)


def all_known_and_none_at_the_level(sampler, rng):
    sampler.observe(np.arange(100), rng.exponential(1.0, 100))


@pytest.mark.parametrize(
    "state",
    [
        some_unvisited,
        few_at_their_lower_bounds,
        many_certified_zero,
        nothing_known_from_below,
        all_known_and_none_at_the_level,
    ],
)
def test_millions_of_draws_follow_the_probabilities(state):
    rng = np.random.default_rng(6)
    L = curvatures(rng, 100, 2.0)
    rates = np.sqrt(L) * (1.0 + rng.integers(0, 2, 100))
    sampler = ss.SafeSampler(L, rates if state is many_certified_zero else None, rng=1)
    state(sampler, rng)
    expected = sampler.probabilities()
    drawn, p = sampler.draw(10_000_000 if state is some_unvisited else 1_000_000)
    np.testing.assert_array_equal(p, expected[drawn])
    counts = np.bincount(drawn, minlength=100)
    assert (counts[expected == 0.0] == 0).all()
    often = expected * drawn.size >= 10.0
    observed, target = (
        np.append(counts[often], counts[~often].sum()),
        np.append(expected[often], expected[~often].sum()),
    )
    if target[-1] * drawn.size < 1.0:
        assert observed[-1] <= 20
        observed, target = observed[:-1], target[:-1]
    assert scipy.stats.chisquare(observed, target / target.sum() * observed.sum()).pvalue > 1e-4


def test_coordinates_of_probability_zero_are_never_drawn():
    sampler = ss.SafeSampler(np.ones(40), rng=0)
    sampler.observe(np.arange(39), np.full(39, -1.0))
    assert set(sampler.draw(1000)[0]) == {39}  # the one never looked at
    sampler.observe(39, 2.0)
    assert set(sampler.draw(1000)[0]) == {39}
    assert sampler.draw() == (39, 1.0)
    sampler.observe([0, 1], [1e-9, 0.0])
    assert set(sampler.draw(10_000)[0]) <= {0, 39}


def test_a_tiny_group_at_the_level_is_drawn_from():
    """One coordinate at the level, a million times lighter than those at their lower bounds: rejections give way."""
    n = 50
    L = np.append(np.ones(n), 1e-6)
    sampler = ss.SafeSampler(L, rng=0)
    sampler.observe(np.arange(n), lower=np.linspace(1.0, 1.2, n), upper=np.full(n, np.inf))
    sampler.observe(0, 1e-3)
    check_sampling(sampler, L)
    drawn, _ = sampler.draw(200_000)
    expected = sampler.probabilities() * 200_000
    assert np.abs(np.bincount(drawn, minlength=n + 1) - expected).max() <= 6.0 * np.sqrt(expected.max())


def test_all_upper_bounds_zero_is_convergence_and_there_is_nothing_to_draw():
    sampler = ss.SafeSampler([1.0, 2.0, 3.0])
    assert not sampler.converged
    sampler.observe([0, 1, 2], [0.0, -1.0, -2.0])
    assert sampler.converged
    assert (sampler.value, sampler.stepsize) == (0.0, 0.0)
    assert not sampler.probabilities().any()
    for size in (None, 5):
        with pytest.raises(ValueError, match=r"every upper bound is zero: .* nothing to draw"):
            sampler.draw(size)
    assert repr(sampler) == "SafeSampler(n=3, value=0)"
    sampler.widen(0.1)
    assert sampler.draw()[0] == 0
    assert repr(sampler) == "SafeSampler(n=3, value=1)"


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.integers(1, 20))
def test_a_slack_coordinate_revives_when_the_drift_exceeds_its_slack(curvature, slack, parts):
    sampler = ss.SafeSampler([curvature, 1.0])
    sampler.observe([0, 1], [-slack, 7.0])
    needed = slack / np.sqrt(curvature)
    for _ in range(parts):
        sampler.widen(needed * (1.0 - 1e-9) / parts)
        assert sampler.bounds()[1][0] == 0.0
        assert sampler.probabilities()[0] == 0.0
        assert sampler.draw()[0] == 1
    sampler.widen(needed * 1e-6)
    assert sampler.bounds()[1][0] == pytest.approx(slack * (1e-6 - 1e-9), rel=1e-5)
    assert sampler.probabilities()[0] > 0.0
    sampler.narrow(needed * 1e-6)
    assert sampler.bounds()[1][0] == 0.0


def test_a_coordinate_certified_for_ever_stays_so():
    sampler = ss.SafeSampler([1.0, 1.0])
    sampler.observe([0, 1], [-np.inf, 1.0])
    sampler.widen(1e9)
    assert sampler.bounds()[1][0] == 0.0
    assert set(sampler.draw(100)[0]) == {1}
    sampler.observe(0, 3.0)
    np.testing.assert_allclose(sampler.bounds()[1], [3.0, 1e9 + 1.0], rtol=1e-6)


def test_a_value_does_not_unlearn_what_was_never_visited():
    sampler = ss.SafeSampler([1.0, 4.0, 4.0])
    np.testing.assert_allclose(sampler.probabilities(), [1 / 9, 4 / 9, 4 / 9], rtol=1e-15)
    sampler.observe(1, 1.0)
    lower, upper = sampler.bounds()
    assert (lower.tolist(), upper.tolist()) == ([0.0, 1.0, 0.0], [np.inf, 1.0, np.inf])
    sampler.observe(1, lower=0.0, upper=np.inf)
    assert [b.tolist() for b in sampler.bounds()] == [[0.0] * 3, [np.inf] * 3]
    assert sampler.value == 9.0


# Narrowing


def test_bounds_can_be_narrowed_until_they_meet():
    sampler = ss.SafeSampler([1.0, 4.0])
    sampler.widen(1.0)
    sampler.observe([0, 1], lower=[1.0, 1.0], upper=[3.0, 2.0])  # they meet when 1, and 1/4, of that is taken back
    with pytest.raises(ValueError, match=r"amount is 0.26, but bounds can be narrowed by 0.25 at most"):
        sampler.narrow(0.26)
    sampler.narrow(0.25)
    np.testing.assert_allclose(sampler.bounds(), [[1.25, 1.5], [2.75, 1.5]])
    with pytest.raises(ValueError, match="amount"):
        sampler.narrow(0.01)
    sampler.widen(1.0)
    sampler.observe(0, 5.0)
    with pytest.raises(ValueError, match="amount"):  # it was exact when it was seen, and no distance had to be gone
        sampler.narrow(0.01)
    sampler.widen(0.5)
    sampler.narrow(0.5)
    np.testing.assert_allclose(sampler.bounds(), [[5.0, 0.0], [5.0, 3.5]], atol=1e-15)
    check_sampling(sampler, np.array([1.0, 4.0]))


@pytest.mark.parametrize("for_ever", [-np.inf, -1.0])
def test_narrowing_is_limited_by_every_coordinate_of_a_batch(for_ever):
    sampler = ss.SafeSampler([1.0, 1.0, 1.0])
    sampler.widen(2.0)
    sampler.observe([0, 1], [for_ever, 1.0])
    with pytest.raises(ValueError, match=r"amount is 1.0, but bounds can be narrowed by 0.0 at most"):
        sampler.narrow(1.0)


def test_coordinates_that_do_not_drift_do_not_limit_narrowing():
    sampler = ss.SafeSampler([1.0, 1.0], drift=[0.0, 1.0])
    sampler.widen(3.0)
    sampler.observe(0, 1.0)
    sampler.narrow(3.0)
    assert [b.tolist() for b in sampler.bounds()] == [[1.0, 0.0], [1.0, np.inf]]


def test_sampling_after_widening_and_narrowing_again_is_the_same():
    rng = np.random.default_rng(7)
    L = curvatures(rng, 50, 1.0)
    sampler = ss.SafeSampler(L)
    sampler.observe(np.arange(50), rng.normal(size=50))
    before, value = sampler.probabilities(), sampler.value
    sampler.widen(0.5)
    assert sampler.value > value
    sampler.narrow(0.5)
    np.testing.assert_allclose(sampler.probabilities(), before, rtol=1e-12)
    assert sampler.value == pytest.approx(value, rel=1e-12)


# Rounding


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bounds_never_cross_by_rounding(n):
    """Equal values seen far from where the keys began: one distribution fits, p = 1 / n."""
    rng = np.random.default_rng(13)
    sampler = ss.SafeSampler(np.ones(n), rng=0)
    for _ in range(3000):
        sampler.widen(float(rng.random()))
        sampler.observe(np.arange(n), float(rng.random()))
        assert sampler.value == pytest.approx(n, rel=1e-9)
        lower, upper = sampler.bounds()
        assert (lower <= upper).all()
    assert sampler.probabilities() == pytest.approx(np.full(n, 1.0 / n), rel=1e-9)


def test_narrowing_step_by_step_to_where_it_began():
    sampler = ss.SafeSampler(np.array([1.0, 2.0]))
    sampler.observe([0, 1], [1.0, 2.0])
    for _ in range(1000):
        sampler.widen(0.1)
    for _ in range(1000):
        sampler.narrow(0.1)
    lower, upper = sampler.bounds()
    assert (lower <= upper).all()
    np.testing.assert_allclose([lower, upper], [[1.0, 2.0]] * 2, rtol=1e-9)
    check_sampling(sampler, np.array([1.0, 2.0]))


# Size


@pytest.mark.parametrize("size", [1e-250, 1e-160, 1e-140, 1e140, 1e160, 1e250])
def test_gradients_of_any_size_give_a_safe_sampling(size):
    """Beyond the range where squares are ordinary numbers a looser sampling will do, but it must be one, and end."""
    L = np.array([1.0, 2.0, 4.0])
    sampler = ss.SafeSampler(L, rng=0)
    sampler.observe([0, 1], [size, 2.0 * size])
    lower, upper = sampler.bounds()
    truth = np.array([size, 2.0 * size])
    assert (lower[:2] <= truth * (1 + 1e-15)).all()
    assert (upper[:2] >= truth * (1 - 1e-15)).all()
    tight = ss.safe_sampling(np.append(truth, 0.0), np.append(truth, np.inf), L)
    assert tight.value * (1 - 1e-9) <= sampler.value <= 7.0 * (1 + 1e-9)
    p = sampler.probabilities()
    assert p.sum() == pytest.approx(1.0, rel=1e-9)
    worst = max((L / p)[:2] @ np.array([1.0, 4.0]) / 5.0, L[2] / p[2])
    assert worst <= sampler.value * (1 + 1e-9)
    assert 0 <= sampler.draw()[0] < 3
    if 1e-140 <= size <= 1e140:
        check_sampling(sampler, L)


@pytest.mark.parametrize("far", [1e2, 1e3, 1e4, 1e5, 1e6, 1e7])
def test_the_distance_gone_before_a_visit_does_not_blur_it(far):
    """What is seen now is known as well as ever, however far things had drifted before."""
    rng = np.random.default_rng(12)
    L, value = curvatures(rng, 200, 1.0), rng.uniform(0.5, 2.0, 200)
    sampler = ss.SafeSampler(L, rng=0)
    for _ in range(3):  # beyond the insertions after which the index is laid out anew
        sampler.observe(np.arange(200), value)
    sampler.widen(far)
    sampler.observe(np.arange(200), value)
    lower, upper = sampler.bounds()
    np.testing.assert_allclose(lower, value, rtol=1e-15 * far)
    assert (lower <= value * (1 + 4e-16)).all()  # what rounding there is loosens
    assert (upper >= value * (1 - 4e-16)).all()
    check_sampling(sampler, L, rtol=1e-9)


@pytest.mark.parametrize("far", [1e17, 1e100, 1e200])
def test_a_distance_beside_which_a_visit_is_lost_in_rounding_is_still_safe(far):
    L = np.linspace(1.0, 2.0, 60)
    sampler = ss.SafeSampler(L, rng=0)
    for _ in range(8):
        sampler.widen(far)
        sampler.observe(np.arange(50), np.linspace(-1.0, 1.0, 50))
        lower, upper = sampler.bounds()
        assert (lower[:50] <= np.maximum(np.linspace(-1.0, 1.0, 50), 0.0) * (1 + 1e-15)).all()
        assert (upper[:50] >= np.linspace(-1.0, 1.0, 50) * (1 - 1e-15)).all()
        assert sampler.probabilities().sum() == pytest.approx(1.0, abs=1e-9)
        assert 0 <= sampler.draw()[0] < 60
    sampler.observe(np.arange(60), np.zeros(60))
    assert sampler.converged


# Reproducibility


def run_history(sampler, rng, length):
    for _ in range(length):
        i, p = sampler.draw()
        sampler.observe(i, float(rng.normal()))
        sampler.widen(float(rng.random()) * 0.05)
        yield i, p


def test_the_same_seed_gives_the_same_draws():
    L = curvatures(np.random.default_rng(8), 70, 1.0)
    first, second, other = (
        list(run_history(ss.SafeSampler(L, rng=seed), np.random.default_rng(9), 500)) for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other
    generator = np.random.default_rng(3)
    assert first == list(run_history(ss.SafeSampler(L, rng=generator), np.random.default_rng(9), 500))


def test_a_pickled_sampler_goes_on_bit_for_bit():
    L = curvatures(np.random.default_rng(8), 70, 1.0)
    sampler = ss.SafeSampler(L, drift=np.sqrt(L) * (1 + np.arange(70) % 3), rng=3)
    list(run_history(sampler, np.random.default_rng(9), 333))
    copy = pickle.loads(pickle.dumps(sampler))
    assert list(run_history(copy, np.random.default_rng(10), 500)) == list(
        run_history(sampler, np.random.default_rng(10), 500)
    )
    np.testing.assert_array_equal(copy.probabilities(), sampler.probabilities())
    np.testing.assert_array_equal(copy.bounds(), sampler.bounds())
    np.testing.assert_array_equal(copy.draw(50), sampler.draw(50))
    assert copy.n == sampler.n == 70


HISTORY = """
import json, numpy as np, surestep as ss
sampler = ss.SafeSampler([1.0, 3.0, 0.2, 2.0, 1.5] * 5, drift=[1.0, 1.0, 0.5, 2.0, 1.0] * 5, rng=7)
rng, out = np.random.default_rng(1), []
for _ in range(40):
    i, p = sampler.draw()
    out.append((int(i), float(p)))
    sampler.observe(i, float(rng.normal()))
    sampler.widen(0.03)
out += [sampler.value, *sampler.draw(5)[0].tolist()]
print(json.dumps(out))
"""


def test_plain_python_gives_the_same_draws():
    plain, compiled = (
        subprocess.run(
            [sys.executable, "-c", HISTORY], env={**os.environ, **more}, capture_output=True, text=True, check=True
        ).stdout
        for more in ({"NUMBA_DISABLE_JIT": "1"}, {})
    )
    assert len(json.loads(compiled)) == 46
    assert json.loads(plain) == json.loads(compiled)


@jit
def many_steps(index, rng, kind, rates, noise, n_steps):
    """Draw, observe, widen: the values seen are made up, some of them slack."""
    for t in range(n_steps):
        i = draw_from(index, rng)
        if i >= 0:
            value = noise[t % noise.size]
            place(index, i, kind[i], value, value)
        for k in range(rates.size):
            drift(index, k, 0.003 * rates[k])


@pytest.mark.parametrize("n_rates", [1, 3])
def test_ten_million_steps_leave_it_as_good_as_new(n_rates):
    rng = np.random.default_rng(10)
    n = 200
    L = curvatures(rng, n, 2.0)
    speed = np.sqrt(L) * (1 + np.arange(n) % n_rates)
    sampler = ss.SafeSampler(L, speed, rng=11)
    noise = rng.normal(0.3, 1.0, 10_007)
    many_steps(sampler._index, sampler._rng, sampler._kind, sampler._rates, noise, 10_000_000 // n_rates)
    check_sampling(sampler, L)
    lower, upper = sampler.bounds()
    assert ((lower > 0.0) & (lower < upper)).any()
    assert (upper == 0.0).any()
    fresh = ss.SafeSampler(L, speed)
    fresh.observe(np.arange(n), lower=lower, upper=upper)
    assert sampler.value == pytest.approx(fresh.value, rel=1e-9)
    np.testing.assert_allclose(sampler.probabilities(), fresh.probabilities(), rtol=1e-9)


# Errors


@pytest.mark.parametrize(
    ("smoothness", "speed", "message"),
    [
        ([1.0, 0.0], None, r"smoothness\[1\]"),
        ([1.0, -1.0], None, r"smoothness\[1\]"),
        ([np.inf, 1.0], None, r"smoothness\[0\]"),
        ([np.nan, 1.0], None, r"smoothness\[0\]"),
        ([[1.0]], None, "smoothness"),
        ([], None, "smoothness"),
        ([1.0, 1.0], [1.0], "drift has 1 entries, smoothness has 2"),
        ([1.0, 1.0], [1.0, -1.0], r"drift\[1\]"),
        ([1.0, 1.0], [np.nan, 1.0], r"drift\[0\]"),
        ([1.0, 1.0], [np.inf, 1.0], r"drift\[0\]"),
    ],
)
def test_wrong_arguments_are_named(smoothness, speed, message):
    with pytest.raises(ValueError, match=message):
        ss.SafeSampler(smoothness, speed)


def test_wrong_observations_are_named_and_change_nothing():
    sampler = ss.SafeSampler([1.0, 2.0, 3.0])
    sampler.observe(0, 1.0)
    before = pickle.dumps(sampler)
    wrong = [
        (dict(i=3, value=1.0), r"i holds 3; coordinates are 0 to 2"),
        (dict(i=[0, -1], value=1.0), r"i holds -1; coordinates are 0 to 2"),
        (dict(i=0.5, value=1.0), "i must hold whole numbers, got dtype float64"),
        (dict(i=[True, False, True], value=1.0), "i must hold whole numbers, got dtype bool"),
        (dict(i=0), "give value, or both lower and upper"),
        (dict(i=0, lower=1.0), "give value, or both lower and upper"),
        (dict(i=0, upper=1.0), "give value, or both lower and upper"),
        (dict(i=0, value=1.0, upper=1.0), "give either value, or lower and upper, not both"),
        (dict(i=[1, 2], lower=[0.0, 2.0], upper=[1.0, 1.0]), "bounds of coordinate 2 are 2.0 and 1.0; they must be in"),
        (dict(i=1, value=np.nan), "bounds of coordinate 1 are nan and nan"),
        (dict(i=1, value=np.inf), "bounds of coordinate 1 are inf and inf"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ValueError, match=message):
            sampler.observe(**arguments)
    for method in (sampler.widen, sampler.narrow):
        for amount in (-1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match="amount must be finite and not negative, got"):
                method(amount)
    with pytest.raises(ValueError, match="size must not be negative, got -1"):
        sampler.draw(-1)
    np.testing.assert_array_equal(sampler.bounds(), pickle.loads(before).bounds())
    assert sampler.value == pickle.loads(before).value


def test_no_draws_and_no_observations_are_fine():
    sampler = ss.SafeSampler([1.0, 2.0])
    indices, p = sampler.draw(0)
    assert indices.size == p.size == 0
    sampler.observe(np.array([], int), [])
    assert sampler.value == 3.0
