"""Safe sampling in blocks: bounds that hold throughout a block, and a worst case that is known after every visit."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings

import surestep as ss
from plain import uncompiled
from reference import quotient, vertices
from surestep.bounds import blocks
from surestep.bounds.blocks import (
    BUDGET,
    ENDED,
    LEVEL,
    LOWER,
    MASS,
    N_MEMBERS,
    PROPOSED,
    TOTAL,
    UPPER,
    Blocks,
    _excess,
    _mass,
    _worst_case,
    begin_block,
    knows_bounds,
)
from surestep.bounds.tracker import Point
from surestep.losses import Squared
from surestep.sampling.samplers import NONE, OVER, draw
from surestep.solvers import coordinate
from surestep.solvers.coordinate import CoordinateDescent
from zoo import data, problems, reference_optimum

ZOO = dict(problems())


@pytest.fixture(autouse=True)
def _even_few(monkeypatch):
    """Blocks on problems of any size: cheap to start, with bounds for nothing."""
    monkeypatch.setattr(coordinate, "_FEW", 0)
    monkeypatch.setattr(coordinate, "_STEP", 1e4)
    monkeypatch.setattr(blocks, "_BOUNDS", 0.0)


@pytest.fixture
def _always_bounds(monkeypatch):
    """Even where they tell little, as on small problems."""
    monkeypatch.setattr(blocks, "_promise_without_bounds", lambda *arguments: 0.0)


@pytest.fixture
def plain_python():
    with uncompiled():
        yield


def make_method(problem, step="adaptive", smoothness="coordinate", seed=0):
    method = CoordinateDescent(
        problem, "safe", step, "snapshot", smoothness, np.zeros(problem.n_coordinates), seed, blocks=True
    )
    assert isinstance(method.sampler, Blocks)
    method._refresh()
    assert not knows_bounds(method.sampler)
    method._steps(8)
    return method


def column(method, which):
    """A column of the table for all coordinates: those who are not members cannot move, and are not drawn."""
    values, n = np.zeros(method.x.size), int(method.sampler.totals[N_MEMBERS])
    values[method.sampler.members[:n]] = method.sampler.table[:n, which]
    return values


def sampling(method):
    """p, and the bound on its worst case that goes with it, as things stand."""
    totals = method.sampler.totals
    return column(method, MASS) / totals[TOTAL], _worst_case(totals)


def check(method):
    """The true c is within the bounds, and no c within the bounds is worse for p than the worst case that is told."""
    active = method.active
    if method.sampler.totals[ENDED] == 1.0 or not knows_bounds(method.sampler):
        return False
    lower, upper, weight = column(method, LOWER)[active], column(method, UPPER)[active], method.smoothness[active]
    c = method.problem.optimality(method.x)[active] * method.scale[active]
    assert (lower <= c).all()
    assert (c <= upper).all()
    p, worst = sampling(method)
    assert p.sum() == pytest.approx(1.0, rel=1e-9)
    assert (p[active] > 0.0)[upper > 0.0].all()
    finite = np.minimum(upper, 1e6 * (lower.max() + 1.0))
    corners = vertices(lower, finite)
    corners = corners[corners.any(axis=1)]
    assert quotient(p[active], corners, weight).max() <= worst * (1.0 + 1e-9)
    return True


CASES = [
    ("squared-none-dense", "coordinate"),
    ("squared-l1-sample_weight", "coordinate"),
    ("squared-l1-sample_weight", "unit"),
    ("squared-l1-sparse", "constant"),
    ("squared-l2-dense", "unit"),
    ("squared-elastic_net-sparse", "coordinate"),
    ("logistic-l1-sparse", "coordinate"),
    ("logistic-l1_nonnegative-dense", "unit"),
    ("squared_hinge-l1-dense", "constant"),
]


@pytest.mark.usefixtures("_always_bounds")
@pytest.mark.parametrize(("name", "smoothness"), CASES)
@pytest.mark.parametrize("step", ["adaptive", "exact"])
def test_bounds_and_worst_case_hold_after_every_step_of_a_block(name, smoothness, step, plain_python):
    method = make_method(ZOO[name], step, smoothness)
    n_checked, knew = 0, False
    for k in range(150):
        if k % 5 == 0 or method.sampler.totals[ENDED] == 1.0:
            method._refresh()
            upper = column(method, UPPER)[method.active]
            knew |= method.sampler.totals[LEVEL] > 0.0 or bool((upper == 0.0).any())
        if method._steps(1) == NONE:
            break
        n_checked += check(method)
    assert n_checked > 20
    assert knew


@given(
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2), st.floats(0.1, 3)), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 2), st.floats(0, 2)), max_size=6),
)
@settings(max_examples=300)
def test_the_worst_case_is_bounded_whatever_new_bounds_a_visit_brings(coordinates, visits):
    """Mass, F and Q by hand: the formula of the module's docstring, for boxes that have nothing to do with a run."""
    lower = np.array([min(a, b) for a, b, _ in coordinates])
    upper = np.array([max(a, b) for a, b, _ in coordinates])
    weight = np.array([w for _, _, w in coordinates])
    if not (lower.max() > 1e-3 and upper.min() > 1e-3):
        return
    level = ss.safe_sampling(lower, upper, weight).level
    proposed = np.array([_mass(*row, level) for row in zip(weight, lower, upper, strict=True)])
    mass = proposed.copy()
    for i, a, b in visits:
        i %= weight.size
        lower[i], upper[i] = min(a, b), max(a, b, 1e-3)
        mass[i] = min(_mass(weight[i], lower[i], upper[i], level), proposed[i])
    excess = sum(_excess(*row, level) for row in zip(weight, lower, upper, mass, strict=True))
    squares = lower @ lower
    if squares < 1e-6:
        return
    worst = mass.sum() / level * (1.0 + max(excess, 0.0) / squares)
    corners = vertices(lower, upper)
    assert quotient(mass / mass.sum(), corners[corners.any(axis=1)], weight).max() <= worst * (1.0 + 1e-9)


def in_the_middle_of_a_block(problem):
    method = make_method(problem, "exact", seed=5)
    while True:
        method._refresh()
        for _ in range(3):
            if method._steps(1) == OVER:
                break
        changed = column(method, MASS) < column(method, PROPOSED)
        if changed.any() and knows_bounds(method.sampler) and method.sampler.totals[ENDED] == 0.0:
            return method


@pytest.mark.usefixtures("_always_bounds")
def test_a_block_begins_with_the_safe_sampling_of_its_bounds():
    method = make_method(ZOO["squared-l1-sample_weight"], "exact")
    for _ in range(4):
        method._refresh()
        assert knows_bounds(method.sampler)
        safe = ss.safe_sampling(column(method, LOWER), column(method, UPPER), method.smoothness)
        p, worst = sampling(method)
        np.testing.assert_allclose(p, safe.probabilities, rtol=1e-12, atol=1e-15)
        assert worst == pytest.approx(safe.value, rel=1e-12)
        method._steps(3)


@pytest.mark.usefixtures("_always_bounds")
def test_draws_have_the_probabilities_that_are_told():
    method = in_the_middle_of_a_block(ZOO["squared-none-dense"])
    p, worst = sampling(method)
    rng, counts, n_draws = np.random.default_rng(1), np.zeros(p.size), 20_000
    for _ in range(n_draws):
        i, probability, value = draw(method.sampler, None, None, rng)
        assert probability == pytest.approx(p[i], rel=1e-12)
        assert value == worst
        counts[i] += 1
    drawn = p > 0.0
    assert not counts[~drawn].any()
    assert scipy.stats.chisquare(counts[drawn], n_draws * p[drawn]).pvalue > 1e-4


@pytest.mark.usefixtures("_always_bounds")
def test_a_block_ends_when_r_has_gone_too_far():
    method = make_method(ZOO["squared-l1-sample_weight"], "exact")
    method._refresh()
    method.sampler.totals[BUDGET] = 0.0
    assert method._steps(50) == OVER
    before = method.n_steps
    assert method._steps(50) == OVER  # until the next block begins
    assert method.n_steps == before


def test_when_all_is_certified_there_is_nothing_to_draw():
    X, y = data(seed=0, loss=Squared())
    problem = ss.Problem(X, y)
    strong = problem.with_regularizer(ss.L1(2.0 * problem.with_regularizer(ss.L1(1.0)).alpha_max()))
    result = ss.coordinate_descent(strong, blocks=True, bounds="snapshot", tol=1e-15)
    assert result.status.success
    assert result.n_steps <= problem.n_coordinates * 2
    assert not result.coef.any()


@pytest.mark.parametrize("smoothness", ["coordinate", "constant", "unit"])
@pytest.mark.parametrize("step", ["adaptive", "fixed", "exact"])
@pytest.mark.parametrize("name", ["squared-l1-sample_weight", "squared-l1-sparse", "logistic-l1-sparse"])
def test_convergence(name, step, smoothness):
    problem = ZOO[name]
    result = ss.coordinate_descent(
        problem, bounds="snapshot", blocks=True, step=step, smoothness=smoothness, tol=1e-8, max_epochs=20_000
    )
    assert result.status is ss.Status.CONVERGED
    at_zero = problem.objective(np.zeros(problem.n_coordinates))
    assert result.objective - reference_optimum(problem) <= 1e-8 * at_zero


def test_the_same_seed_gives_the_same_run():
    problem = ZOO["squared-l1-sparse"]
    first, second, third = (
        ss.coordinate_descent(problem, bounds="snapshot", blocks=True, random_state=seed, tol=1e-6)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.coef, second.coef)
    assert first.n_steps == second.n_steps
    assert not np.array_equal(first.coef, third.coef)


def wide_problem():
    rng = np.random.default_rng(0)
    A = scipy.sparse.random_array((60, 400), density=0.2, rng=rng, format="csc")
    return ss.Problem(A, rng.standard_normal(60), regularizer=ss.L1(0.01))


def test_blocks_are_the_choice_of_auto_and_of_those_who_ask(monkeypatch):
    monkeypatch.undo()
    problem, zero = wide_problem(), np.zeros(400)

    def uses_blocks(bounds, in_blocks):
        method = CoordinateDescent(problem, "safe", "exact", bounds, "coordinate", zero.copy(), 0, in_blocks)
        return isinstance(method.sampler, Blocks)

    assert uses_blocks("snapshot", True)
    assert not uses_blocks("snapshot", False)
    assert not uses_blocks("snapshot", "auto")
    assert not uses_blocks("cauchy-schwarz", True)
    with pytest.raises(ValueError, match="blocks must be True, False or 'auto', got 'yes'"):
        ss.coordinate_descent(problem, blocks="yes")


@pytest.mark.usefixtures("_always_bounds")
def test_a_longer_block_needs_a_larger_budget_and_the_cheaper_start_the_shorter_block():
    method = make_method(ZOO["squared-l1-sample_weight"], "exact")
    lengths = []
    for start in (1.0, 1000.0):
        point, reached, costs = last_point(method), np.array([1e-3, np.inf]), np.ones(method.x.size)
        penalty = method.problem.penalty
        lengths.append(begin_block(method.sampler, method.tracker, penalty, point, reached, 10, start, costs))
        assert method.sampler.totals[BUDGET] == pytest.approx(1.2e-3 * np.sqrt(lengths[-1] / 10), rel=0.5)
    assert lengths[0] < lengths[1]


def test_no_bounds_where_those_who_may_move_cost_too_much(monkeypatch):
    """Bounds that leave only columns a thousand times as long as others are not worth having."""
    method = make_method(ZOO["squared-l1-sparse"], "exact")
    point = last_point(method)
    arguments = method.sampler, method.tracker, method.problem.penalty, point
    costs = np.ones(method.x.size)
    begin_block(*arguments, np.array([1e-6, np.inf]), 10, 1.0, costs)
    assert knows_bounds(method.sampler)
    may_move = column(method, UPPER) > 0.0
    assert 0 < may_move.sum() < may_move.size
    begin_block(*arguments, np.array([1e-6, np.inf]), 10, 1.0, np.where(may_move, 1000.0, 1.0))
    assert knows_bounds(method.sampler)  # the fixed sampling draws them too
    monkeypatch.setattr(blocks, "_BOUNDS", 1e6)
    begin_block(*arguments, np.array([1e-6, np.inf]), 10, 1.0, costs)
    assert not knows_bounds(method.sampler)


def test_without_bounds_steps_are_those_of_the_fixed_sampling(monkeypatch):
    monkeypatch.setattr(blocks, "_BOUNDS", np.inf)
    problem = wide_problem()
    for step, smoothness in (("exact", "coordinate"), ("adaptive", "constant")):
        options = {"step": step, "smoothness": smoothness, "max_epochs": 30, "tol": 1e-15, "random_state": 3}
        sampling = "importance" if smoothness == "coordinate" else "uniform"
        fixed = ss.coordinate_descent(problem, sampling=sampling, **options)
        safe = ss.coordinate_descent(problem, bounds="snapshot", blocks=True, **options)
        np.testing.assert_allclose(safe.coef, fixed.coef, rtol=1e-9, atol=1e-12)
        assert safe.trace.last["value_ratio"] == pytest.approx(1.0)
        assert safe.trace.last["still"] == 0.0


def test_auto_takes_the_units_that_gain_more_for_their_money():
    """A heavy column that costs a lot and gains nothing any more: p ~ L would go on drawing it."""
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((300, 40), density=0.05, rng=rng, format="lil")
    X[:, 0] = 30.0
    problem = ss.Problem(X.tocsc(), rng.standard_normal(300), regularizer=ss.L1(1e-3))
    method = make_method(problem, "exact", "auto")
    method.state.x[:] = ss.minimize(problem, tol=1e-10).coef
    method.state.x[5] += 1.0
    method._refresh()
    assert (method.smoothness[problem.smoothness > 0.0] == 1.0).all()
    method._steps(200)
    method.state.x[5], method.state.x[0] = ss.minimize(problem, tol=1e-10).coef[5], 1.0
    method._refresh()
    assert method.smoothness[0] == problem.smoothness[0]


def test_the_units_of_the_start_know_that_a_gain_can_be_had_once(monkeypatch):
    """One heavy coordinate that gains five times as much as any other: p ~ L draws it, again and again."""
    n = 40
    X, y = np.eye(n), np.ones(n)
    X[0, 0], y[0] = 10.0, np.sqrt(5.0)
    problem = ss.Problem(scipy.sparse.csc_array(X), y)
    # A step that costs as much as so many looks at all coordinates.
    for looks, by_smoothness in ((10.0, True), (0.025, False)):
        monkeypatch.setattr(coordinate, "_STEP", looks * coordinate._START_PER_COORDINATE * n)
        method = CoordinateDescent(problem, "safe", "exact", "snapshot", "auto", np.zeros(n), 0, blocks=True)
        method._refresh()
        assert method.smoothness[0] == (problem.smoothness[0] if by_smoothness else 1.0)


def test_runs_go_on_at_the_limit_of_precision():
    """Where nothing moves any more blocks are neither of a single step nor of proposals in vain."""
    problem = wide_problem()
    result = ss.coordinate_descent(problem, bounds="snapshot", blocks=True, step="exact", tol=1e-16, max_epochs=3000)
    assert result.gap <= 1e-14 * problem.objective(np.zeros(problem.n_coordinates))


def last_point(method):
    method._refresh()
    problem, state = method.problem, method.state
    u = problem.derivative(state.z)
    return Point(state.x, state.r, problem.gradient(state.x), float(np.sqrt(problem.weights @ u**2)), 1e-14)


@pytest.mark.parametrize("step", ["adaptive", "exact"])
def test_unit_smoothness_is_that_of_the_problem_with_scaled_columns(step):
    """Coordinates scaled by sqrt(L): the same draws, the same steps, the same predictions."""
    X, y = data(seed=2, loss=Squared())
    problem = ss.Problem(X, y)
    scaled = ss.Problem(X / np.sqrt(problem.smoothness), y)
    np.testing.assert_allclose(scaled.smoothness, 1.0)
    options = {"bounds": "exact", "step": step, "max_epochs": 5, "tol": 1e-14, "random_state": 2}
    for sampling in ("safe", "importance", "uniform", "greedy", "cyclic"):
        chosen = options if sampling in ("safe", "greedy") else {**options, "bounds": "auto"}
        one = ss.coordinate_descent(problem, sampling=sampling, smoothness="unit", **chosen)
        other = ss.coordinate_descent(scaled, sampling=sampling, smoothness="coordinate", **chosen)
        np.testing.assert_allclose(one.coef * np.sqrt(problem.smoothness), other.coef, rtol=1e-6, atol=1e-9)
