"""The fast solver: the optimum of every problem, certificates that hold, exact models, and what must not matter."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep import losses
from surestep.regularizers import Separable, gradient_step
from surestep.solvers import _columns, _gram, _on_gram, _on_working_set, _prices, _samples, _smooth
from surestep.solvers._everywhere import Everywhere
from surestep.solvers._gram import Gram, Products
from surestep.solvers._look import curvatures
from surestep.solvers._on_working_set import OnWorkingSet
from surestep.solvers._samples import LocalSamples
from surestep.solvers._steps import gain_of
from zoo import PseudoHuber, problems, reference_optimum

ZOO = dict(problems())

# A target at which what a Gram matrix tells is believed.
FOLLOWED = 1e-9


def lasso(n=120, d=400, seed=0, sparse=True, fraction=0.05, loss="squared", **options):
    """A problem with more columns than join the working set at once."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if sparse:
        X = scipy.sparse.csc_array(X * (rng.random((n, d)) < 0.1))
    y = X @ np.where(rng.random(d) < 0.1, rng.standard_normal(d), 0.0) + 0.1 * rng.standard_normal(n)
    if loss != "squared":
        y = np.where(y > np.median(y), 1.0, -1.0)
    problem = ss.Problem(X, y, loss, ss.L1(1.0), **options)
    return problem.with_regularizer(ss.L1(fraction * problem.alpha_max()))


# The optimum


@pytest.mark.parametrize("name", ZOO)
def test_reaches_the_optimum_of_the_zoo(name):
    problem = ZOO[name]
    result = ss.minimize(problem, tol=1e-10)
    assert result.status.success, result.message
    assert result.objective - reference_optimum(problem) <= 1e-9 * problem.objective(np.zeros(problem.n_coordinates))
    x = np.append(result.coef, result.intercept) if problem.fit_intercept else result.coef
    assert problem.objective(x) == pytest.approx(result.objective, rel=1e-13)
    assert np.all((problem.penalty.lower <= x) & (x <= problem.penalty.upper))


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_agrees_with_coordinate_descent(loss, sparse):
    problem = lasso(loss=loss, sparse=sparse)
    result = ss.minimize(problem, tol=1e-9)
    slow = ss.coordinate_descent(problem, sampling="cyclic", step="exact", tol=1e-9, max_epochs=20_000)
    assert result.status is slow.status is ss.Status.CONVERGED
    assert result.objective == pytest.approx(slow.objective, rel=1e-8)
    assert 0 < np.count_nonzero(result.coef) < problem.n_features


def test_a_loss_of_ones_own():
    X = np.random.default_rng(0).standard_normal((40, 6))
    problem = ss.Problem(X, X[:, 0] - 3 * X[:, 1] + 0.5, PseudoHuber(), ss.L1(0.01), fit_intercept=True)
    result = ss.minimize(problem, tol=1e-9)
    slow = ss.coordinate_descent(problem, sampling="cyclic", step="exact", tol=1e-9)
    assert result.status.success
    assert result.objective == pytest.approx(slow.objective, rel=1e-8)


# The certificate


@pytest.mark.parametrize("tol", [1e-10, 1e-12], ids=["followed by the Gram matrix", "read from the data"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_every_row_of_the_trace_has_the_gap_of_the_whole_problem(loss, fit_intercept, tol):
    """Columns that are certified to stay at zero are left out of the pass, and nothing is missed."""
    problem = lasso(n=600, loss=loss, fit_intercept=fit_intercept, fraction=0.05)
    points = []
    ss.minimize(problem, tol=tol, callbacks=[lambda progress: points.append((progress.row, progress.x.copy()))])
    assert len(points) > 3
    for row, x in points:
        true = problem.duality_gap(x)
        assert row["objective"] == pytest.approx(true.objective, rel=1e-12)
        assert row["gap"] == pytest.approx(true.gap, rel=1e-6, abs=1e-13)
    assert points[-1][0]["passes"] < len(points) - 0.5  # half a pass and more was left out


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.02, 0.9), st.sampled_from([0.0, FOLLOWED]), st.booleans())
def test_certified_columns_are_optimal(seed, fraction, target, fit_intercept):
    problem = lasso(n=30, d=80, seed=seed, fraction=fraction, fit_intercept=fit_intercept)

    method = rounds(problem, target)
    for _ in range(6):
        stays = (method._until >= method._travelled) & (method.x == 0.0)
        assert not np.any(problem.optimality(method.x)[stays] > 0.0)
        method.advance(1)


@settings(max_examples=50)
@given(
    st.integers(0, 10_000),
    st.sampled_from([(30, 80), (120, 30)]),  # in the latter all may become members
    st.lists(st.floats(0.05, 1.5), min_size=1, max_size=4),
    st.sampled_from([0.0, FOLLOWED]),
)
def test_certified_columns_are_optimal_under_the_next_penalty_too(seed, shape, factors, target):
    problem = lasso(*shape, seed=seed, fraction=0.5)
    method = rounds(problem, target)
    for factor in factors:
        method.advance(1)
        method.advance(1)
        following = problem.with_regularizer(problem.regularizer.scaled(factor))
        method.take_up(following, target)
        stays = (method._until >= method._travelled) & (method.x == 0.0)
        assert not np.any(following.optimality(method.x)[stays] > 0.0)
        assert method.evaluate()[0].gap == pytest.approx(following.duality_gap(method.x).gap, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_what_the_gram_matrix_tells_is_what_the_data_say(fit_intercept):
    problem = lasso(n=600, fit_intercept=fit_intercept)
    method = rounds(problem, FOLLOWED)
    for _ in range(4):
        method._go()
        assert method._ended is not None
        gradient = problem.gradient(method.x)[method._members]
        np.testing.assert_allclose(method._ended[0], gradient, atol=1e-12)
        mean = problem.objective(method.x) - problem.penalty.l1 @ np.abs(method.x)
        assert method._mean == pytest.approx(mean, rel=1e-12)
        before = method._samples._r.copy()
        far = np.sqrt(method._ended[1])
        method._look()
        method._catch_up()
        np.testing.assert_allclose(method._samples._z, problem.predictor(method.x), atol=1e-12)
        assert far == pytest.approx(np.linalg.norm(method._samples._r - before) * np.sqrt(problem.n_samples), rel=1e-6)


@pytest.mark.parametrize("tol", [1e-6, 1e-9])
def test_columns_far_from_zero_do_not_spoil_the_certificate(tol):
    """Entries of their Gram matrix are so large that it tells nothing of residuals."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 40))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(200)
    X[:, :5] += 1e6
    problem = ss.Problem(X, y, regularizer=ss.L1(0.02), fit_intercept=True)
    result = ss.minimize(problem, tol=tol)
    true = problem.duality_gap(np.append(result.coef, result.intercept)).gap
    assert result.gap == pytest.approx(true, abs=0.01 * tol * problem.objective_at_zero)


def test_nobody_joins_twice():
    """Not even one of two columns that are the same, of which one is as good as certified when the other has joined."""
    problem = lasso(n=60, d=40, sparse=False)
    X = np.asarray(problem.design.columns.values.T)
    problem = ss.Problem(np.hstack([X, X, X]), problem.y, regularizer=problem.regularizer)
    method = rounds(problem, FOLLOWED)
    for factor in 0.9 ** np.arange(1, 30):
        method.advance(1)
        assert np.unique(method._members).size == method._members.size
        method.take_up(problem.with_regularizer(problem.regularizer.scaled(factor)), FOLLOWED)


def rounds(problem, target=0.0):
    return OnWorkingSet(problem, np.zeros(problem.n_coordinates), target, LocalSamples(problem))


def test_above_alpha_max_nothing_is_done():
    problem = lasso(fraction=1.0 + 1e-9)
    result = ss.minimize(problem, tol=1e-10)
    assert result.n_epochs == 0
    assert not result.coef.any()
    assert result.trace["passes"][-1] == 1.0


# Stronger penalties


FEW_SAMPLES = {"n": 60, "d": 1500, "fraction": 1e-3, "sparse": False}


@pytest.fixture
def strengths(monkeypatch):
    """The strengths of the penalties that go first."""
    found, go_by = [], OnWorkingSet._go_by

    def watched(self, strength):
        found.append(strength)
        return go_by(self, strength)

    monkeypatch.setattr(OnWorkingSet, "_go_by", watched)
    return found


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("shape", [ss.L1(1.0), ss.ElasticNet(1.0), ss.L1(1.0) + ss.NonNegative()], ids=str)
def test_stronger_penalties_go_first_where_samples_are_few(shape, loss, fit_intercept, strengths, monkeypatch):
    """They fall, rows of the trace are of the problem that was asked for, and so is the end."""
    problem = lasso(loss=loss, fit_intercept=fit_intercept, **FEW_SAMPLES)
    problem = problem.with_regularizer(shape.scaled(problem.regularizer.alpha))
    points = []
    result = ss.minimize(
        problem, tol=1e-8, callbacks=[lambda progress: points.append((progress.row, progress.x.copy()))]
    )
    assert strengths
    assert all(1.0 < after <= before / 2.0 for before, after in itertools.pairwise(strengths))
    for row, x in points:
        true = problem.duality_gap(x)
        assert row["objective"] == pytest.approx(true.objective, rel=1e-11)
        assert row["gap"] == pytest.approx(true.gap, rel=1e-6, abs=1e-11 * problem.objective_at_zero)

    monkeypatch.setattr(_on_working_set, "_OF_SAMPLES", math.inf)
    straight = ss.minimize(problem, tol=1e-8)
    assert result.status.success
    assert straight.status.success
    assert result.objective == pytest.approx(straight.objective, abs=1e-8 * problem.objective_at_zero)


@pytest.mark.parametrize("more", [{"fraction": 0.3}, {"n": 1200, "fraction": 0.03}], ids=["penalty", "samples"])
def test_no_stronger_penalty_goes_first_where_the_penalty_is_strong_or_samples_are_many(more, strengths):
    assert ss.minimize(lasso(**(FEW_SAMPLES | more)), tol=1e-8).status.success
    assert not strengths


def test_an_interrupt_under_a_stronger_penalty_leaves_the_problem_that_was_asked_for(strengths, monkeypatch):
    problem, solve = lasso(**FEW_SAMPLES), OnWorkingSet._solve

    def interrupted(self):
        if len(strengths) == 2:
            raise KeyboardInterrupt
        solve(self)

    monkeypatch.setattr(OnWorkingSet, "_solve", interrupted)
    result = ss.minimize(problem, tol=1e-8)
    assert result.status is ss.Status.INTERRUPTED
    assert result.objective == pytest.approx(problem.objective(result.coef), rel=1e-12)
    assert result.gap == pytest.approx(problem.duality_gap(result.coef).gap, rel=1e-6)


# Quadratic models


def design(seed, n, d, sparse, intercept):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    problem = ss.Problem(scipy.sparse.csc_array(X) if sparse else X, np.ones(n), fit_intercept=intercept)
    return (np.column_stack([X, np.ones(n)]) if intercept else X), problem


@settings(max_examples=40)
@given(
    st.integers(0, 10_000),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.sampled_from([1, 5, 17]),
    st.sampled_from([0, 3, 8]),
    st.sampled_from([0, 60, 1000]),
)
def test_gram_matrix_is_extended_and_reweighed(seed, sparse, intercept, sizes, n_rows, n_few, n_kept):
    """Some rows at a time, few new columns one by one; rows of W are gathered anew, kept for a while, or for good."""
    A, problem = design(seed, 17, 24, sparse, intercept)
    rng = np.random.default_rng(seed)
    members = rng.permutation(A.shape[1])[: sum(sizes)]
    weights = rng.random(17)
    gram = Gram(Products(problem.columns, 17, weights, n_kept))
    for begin, size in zip(itertools.accumulate([0, *sizes]), sizes, strict=False):
        # Few weights change, or all, before some join: G is brought up to date, or computed anew.
        changed = rng.permutation(17)[: rng.choice([0, 3, 17])]
        weights[changed] = rng.random(changed.size)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_gram, "_FEWEST_ROWS", n_rows)
            patch.setattr(_gram, "_FEW", n_few)
            matrix, chosen = gram.of(members[: begin + size]), A[:, members[: begin + size]]
        np.testing.assert_allclose(matrix, chosen.T @ (weights[:, None] * chosen), atol=1e-13)
        np.testing.assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("weights", [np.full(30, 0.5), np.linspace(0.1, 1.0, 30)], ids=["alike", "uneven"])
@pytest.mark.parametrize("order", [1, -1])
def test_gram_matrix_of_all_dense_columns(weights, order):
    A, problem = design(0, 30, 12, False, False)
    members = np.arange(12)[::order]
    matrix = Gram(Products(problem.columns, 30, weights)).of(members)
    np.testing.assert_allclose(matrix, (A.T @ (weights[:, None] * A))[::order, ::order], atol=1e-13)


def test_gram_products_of_some_lines_at_a_time(monkeypatch):
    A, problem = design(3, 400, 20, True, False)
    monkeypatch.setattr(_gram, "CACHED", 50)
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(A, axis=1))]).astype(np.uint64)
    rows = _gram.Rows(starts, starts[:-1], np.nonzero(A)[1].astype(np.uint32), A[A != 0.0])
    for kernel in (_gram._add_products, getattr(_gram._add_products, "py_func", _gram._add_products)):
        matrix = np.zeros((20, 20))
        kernel(rows, problem.weights, 0, matrix)
        np.testing.assert_allclose(np.tril(matrix), np.tril(A.T @ A / 400), atol=1e-13)


def model(seed, n=20, l1=0.3, l2=0.1):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((30, n))
    reg = Separable(np.full(n, l1), np.full(n, l2), np.full(n, -0.5), np.full(n, np.inf))
    return A, A.T @ A, reg, rng.standard_normal(30) * 3


def value_of(A, reg, rho, x):
    return rho @ rho / 2 + reg.l1 @ abs(x) + reg.l2 @ x**2 / 2


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0, 20.0]), st.sampled_from([-math.inf, 0.0, math.inf]))
def test_descent_on_the_gram_matrix_and_by_columns_find_the_same(seed, l1, rent):
    """Whether a Gram matrix of those that move is never made, at some time, or after each look at all columns."""
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 1e-24, 100_000)
    np.testing.assert_allclose(g, A.T @ (r + A @ x), atol=1e-9)
    problem = ss.Problem(A, np.ones(30))
    y, rho = np.zeros(20), r.copy()
    rng = np.random.default_rng(0)
    n_steps, _, spent = _columns.descend_by_columns(
        _columns.Copy(problem.columns, A.size),
        reg,
        np.arange(20),
        np.full(30, 20.0),
        np.ones(30),
        y,
        rho,
        1e-24,
        rng,
        5_000,
        rent,
    )
    assert n_steps < 5_000 * 20
    assert spent > 0.0
    np.testing.assert_allclose(rho, r + A @ y, atol=1e-9)
    np.testing.assert_allclose(x, y, atol=1e-8)


def test_orders_of_a_sweep_are_equally_likely():
    state, found = np.array([1], np.uint64), collections.Counter()
    for _ in range(6000):
        found[tuple(_columns._shuffled(np.arange(3), state))] += 1
    assert len(found) == 6
    assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-3


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 2**63))
def test_an_order_has_every_place_once_and_keeps_neighbours_together(n, seed):
    places, state = 3 * np.arange(n), np.array([seed], np.uint64)
    order = _columns._shuffled(places, state)
    np.testing.assert_array_equal(np.sort(order), places)
    size = max(1, min(8, n // 500))
    assert np.count_nonzero(np.diff(order) != 3) <= n // size + 1  # groups, and perhaps a short one at either end


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_a_copy_of_columns_grows_and_follows_the_weights(sparse, intercept):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 20)) * (rng.random((30, 20)) < 0.4)
    problem = ss.Problem(scipy.sparse.csc_array(A) if sparse else A, np.ones(30), fit_intercept=intercept)
    whole = np.column_stack([A, np.ones(30)]) if intercept else A
    members = rng.permutation(whole.shape[1])
    copy = _columns.Copy(problem.columns, whole.size)
    weights = np.ones(30)
    for n, change in ((5, False), (5, True), (9, False), (9, False), (members.size, True)):
        weights = rng.random(30) if change else weights
        lines, squares = copy.of(members[:n], weights)
        expected = np.sqrt(weights)[:, None] * whole[:, members[:n]]
        found = np.empty((n, 30))
        for i in range(30):
            _columns.dots(lines, np.arange(n), np.eye(30)[i], found[:, i])
        np.testing.assert_allclose(found.T, expected)
        np.testing.assert_allclose(squares, np.sum(expected**2, axis=0))


def test_sweeps_that_are_left_follow_from_their_pace():
    gains = [math.inf] * 5 + [10.0**-k for k in range(8)]
    assert _columns._n_sweeps_left(gains, 1e-10) == pytest.approx(3.0)
    assert _columns._n_sweeps_left([*gains, 1.0], 1e-10) == math.inf


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 60))
def test_a_jump_lowers_the_model_and_keeps_signs_and_bounds(seed, l1, n_updates):
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 0.0, n_updates)
    before = x.copy()
    _on_gram.jump(reg, x, g, matrix, _on_gram.Factor())
    np.testing.assert_allclose(g, A.T @ (r + A @ x), atol=1e-8)
    assert value_of(A, reg, r + A @ x, x) <= value_of(A, reg, r + A @ before, before) + 1e-10
    assert np.all(x[before == 0.0] == 0.0)
    assert np.all((x >= reg.lower) & ((x * before >= 0.0) | (l1 == 0.0)))


def test_columns_that_depend_on_each_other_do_not_stop_a_jump():
    A, _, reg, r = model(0, l2=0.0)
    A[:, 1] = A[:, 0]
    x, g = np.ones(20), A.T @ (r + A @ np.ones(20))
    _on_gram.jump(reg, x, g, A.T @ A, _on_gram.Factor())
    assert np.isfinite(x).all()
    assert value_of(A, reg, r + A @ x, x) < value_of(A, reg, r + A @ np.ones(20), np.ones(20))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.3, 3.0]))
def test_a_jump_goes_down_its_way_until_it_rises(seed, l1):
    """The way: along the step of a direct solve, each coordinate until it is zero or at a bound."""
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 0.0, 30)
    before = x.copy()
    free = np.flatnonzero((x != 0.0) & (x > reg.lower) & (x < reg.upper))
    sign, l2 = np.sign(x[free]), reg.l2[free]
    slope = g[free] + l2 * x[free] + l1 * sign
    step = np.linalg.solve(matrix[np.ix_(free, free)] + np.diag(l2), -slope)
    low, high = np.where(sign > 0, 0.0, reg.lower[free]), np.where(sign < 0, 0.0, reg.upper[free])
    _on_gram.jump(reg, x, g, matrix, _on_gram.Factor())

    def value_at(t):
        y = before.copy()
        y[free] = np.clip(before[free] + t * step, low, high)
        return value_of(A, reg, r + A @ y, y)

    reached, on_their_way = value_of(A, reg, r + A @ x, x), (x[free] > low) & (x[free] < high)
    if not on_their_way.any():
        assert reached == pytest.approx(value_at(math.inf), abs=1e-7)
        return
    far = np.flatnonzero(on_their_way)[np.argmax(abs(step[on_their_way]))]
    end = (x[free] - before[free])[far] / step[far]
    assert reached == pytest.approx(value_at(end), abs=1e-7)
    assert all(reached <= value_at(t) + 1e-7 for t in np.linspace(0.0, end, 100))
    assert reached <= value_at(end + 1e-5) + 1e-9


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.lists(st.sampled_from([0, 1, 5, 40]), min_size=1, max_size=5), st.floats(0.0, 0.01))
def test_a_factor_solves_for_coordinates_that_are_not_its_own(seed, changes, drift):
    """Few or many of them, those of a matrix that has grown, and of one that has changed somewhat."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((200, 120))
    is_there, factor = np.arange(120) < 60, _on_gram.Factor()
    for n, n_members in zip(changes, itertools.chain([100], itertools.repeat(120)), strict=False):
        A = A * (1.0 + drift * rng.standard_normal((200, 1)))
        matrix = (A.T @ A)[:n_members, :n_members]
        places = np.flatnonzero(is_there[:n_members])
        block, right = matrix[np.ix_(places, places)], rng.standard_normal(places.size)
        found = factor.solve(matrix, places, block, right)
        np.testing.assert_allclose(block @ found, right, atol=2.0 * _on_gram._LEFT * np.max(abs(right)))
        others = rng.choice(120, n, replace=False)
        is_there[others] = ~is_there[others]


def test_a_factor_of_few_others_is_not_made_again(monkeypatch):
    made, dpotrf = [], _on_gram.lapack.dpotrf
    monkeypatch.setattr(_on_gram.lapack, "dpotrf", lambda *args, **options: made.append(0) or dpotrf(*args, **options))
    A = np.random.default_rng(0).standard_normal((200, 120))
    matrix, factor = A.T @ A, _on_gram.Factor()
    for places in (np.arange(100), np.arange(2, 102), np.arange(95), np.arange(40)):
        right = np.ones(places.size)
        found = factor.solve(matrix, places, matrix[np.ix_(places, places)], right)
        np.testing.assert_allclose(matrix[np.ix_(places, places)] @ found, right, atol=1e-8)
    assert len(made) == 2  # for the first, and for the last, which are too few


def test_a_matrix_that_is_not_positive_has_no_factor():
    factor, places = _on_gram.Factor(), np.arange(3)
    assert factor.solve(-np.eye(3), places, -np.eye(3), np.ones(3)) is None
    np.testing.assert_allclose(factor.solve(np.eye(3), places, np.eye(3), np.ones(3)), np.ones(3))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 60))
def test_jumps_with_and_without_a_factor_are_the_same(seed, l1, n_updates):
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 0.0, n_updates)
    y, h = x.copy(), g.copy()
    _on_gram.jump(reg, x, g, matrix, _on_gram.Factor())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_on_gram, "_FEWEST_KEPT", 0)
        _on_gram.jump(reg, y, h, matrix, _on_gram.Factor())
    np.testing.assert_allclose(y, x, atol=1e-7)
    np.testing.assert_allclose(h, g, atol=1e-7)


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_the_way_on_the_working_set_does_not_matter(sparse, monkeypatch):
    problem = lasso(sparse=sparse, fraction=0.02)
    with_gram = ss.minimize(problem, tol=1e-9)
    monkeypatch.setattr(_samples, "pays", lambda *_: False)
    by_columns = ss.minimize(problem, tol=1e-9)
    assert with_gram.trace["gram"][-1] == 1.0
    assert by_columns.trace["gram"][-1] == 0.0
    assert by_columns.status.success
    assert by_columns.objective == pytest.approx(with_gram.objective, rel=1e-8)


def test_a_gram_matrix_pays_for_few_columns_only():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2000, 6000), density=0.002, format="csc", rng=rng)
    columns = ss.Problem(X, np.ones(2000)).columns
    assert _prices.pays(_prices.RowCounts(columns, 2000), np.arange(50), growing=True, curved=False)
    assert not _prices.pays(_prices.RowCounts(columns, 2000), np.arange(6000), growing=False, curved=False)


def test_while_the_working_set_grows_a_gram_matrix_pays_for_fewer():
    columns = ss.Problem(np.ones((1000, 1000)), np.ones(1000)).columns
    assert _prices.pays(_prices.RowCounts(columns, 1000), np.arange(1000), growing=False, curved=False)
    assert not _prices.pays(_prices.RowCounts(columns, 1000), np.arange(1000), growing=True, curved=False)


def test_a_loss_that_bends_gets_a_gram_matrix_when_columns_have_taken_its_time():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2000, 1500), density=0.1, format="csc", rng=rng)
    columns = ss.Problem(X, np.ones(2000)).columns
    assert not _prices.pays(_prices.RowCounts(columns, 2000), np.arange(1500), growing=False, curved=True)
    assert _prices.pays(_prices.RowCounts(columns, 2000), np.arange(1500), growing=False, curved=True, spent=1e9)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_models_by_columns_and_by_gram_matrices_that_lag_behind_end_alike(loss, sparse, monkeypatch):
    A, _ = design(1, 120, 60, False, False)
    y = np.where(A @ np.random.default_rng(1).standard_normal(60) > 0.0, 1.0, -1.0)
    y[:20] *= -1.0
    problem = ss.Problem(scipy.sparse.csc_array(A) if sparse else A, y, loss, ss.L1(0.005))
    found = []
    for by_gram in (True, False):
        monkeypatch.setattr(_samples, "pays", lambda *_, answer=by_gram: answer)
        result = ss.minimize(problem, tol=1e-12)
        assert result.status is ss.Status.CONVERGED
        assert result.trace["gram"][-1] == by_gram
        found.append(result.coef)
    np.testing.assert_allclose(*found, atol=1e-6)


def test_columns_that_depend_on_each_other_and_a_weak_penalty():
    """Words that stand for pairs of others: sweeps alone had taken 1,800,000 steps after six rounds, and went on."""
    rng = np.random.default_rng(0)
    words = (rng.random((300, 200)) < 0.3 * rng.random(200) ** 4).astype(float)
    X = np.column_stack([words, np.minimum(words + words[:, rng.permutation(200)], 1.0)])
    y = np.where(X @ rng.standard_normal(400) + 0.5 * rng.standard_normal(300) > 0.0, 1.0, -1.0)
    problem = ss.Problem(scipy.sparse.csc_array(X), y, "logistic", ss.L1(0.1 / 300))
    result = ss.minimize(problem, tol=1e-9)
    assert result.status is ss.Status.CONVERGED
    assert result.n_steps < 200_000


@settings(max_examples=50)
@given(st.floats(-30.0, 30.0), st.sampled_from([-1.0, 1.0]), st.sampled_from(["logistic", "squared_hinge", "huber"]))
def test_a_cautious_model_expects_no_loss_below_zero(z, y, name):
    loss = ss.Problem(np.ones((2, 1)), [-1.0, 1.0], name).loss
    d = np.zeros(1)
    curvatures(loss, np.array([z]), np.array([y]), np.ones(1), 0.0, 1.0, 0.0, d)
    value, u = losses.value(loss, z, y), losses.derivative(loss, z, y)
    assert losses.second_derivative(loss, z, y) <= d[0] <= losses.smoothness(loss) * (1.0 + 1e-12)
    assert u == 0.0 or value - u * u / (2.0 * d[0]) >= -1e-12 * value
    near = np.array([1.15 * d[0]])
    curvatures(loss, np.array([z]), np.array([y]), np.ones(1), 0.0, 1.0, 0.2, near)
    assert near[0] == 1.15 * d[0]  # within the slack
    curvatures(loss, np.array([z]), np.array([y]), np.ones(1), 0.0, 1.0, 0.1, near)
    assert near[0] == d[0]


@settings(max_examples=200)
@given(
    st.floats(-3.0, 3.0),
    st.floats(-3.0, 3.0),
    st.floats(-12.0, 3.0),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
    st.sampled_from([math.inf, 0.5]),
)
def test_a_step_gains_between_half_and_all_of_what_is_said(x, g, exponent, l1, l2, bound):
    x = min(max(x, -bound), bound)
    reg = Separable(*(np.array([value]) for value in (l1, l2, -bound, bound)))
    curvature = 10.0**exponent + l2  # nearly none, too: then a step ends where it must, or at the kink
    change = gradient_step(reg, 0, x, g, 1.0 / curvature) - x
    after, more = x + change, l1 * (abs(x + change) - abs(x))
    lower = -(g * change + 0.5 * l2 * (after**2 - x**2) + 0.5 * (curvature - l2) * change**2 + more)
    said = gain_of(reg, 0, x, g, curvature, change, True)
    rounding = 1e-13 * (1.0 + abs(change)) ** 2
    if np.sign(after) != -np.sign(x):  # across a kink the slope is less than where it began
        assert said / 2 - rounding <= lower
    assert lower <= said + rounding


def test_coordinates_whose_samples_have_no_curvature_left_still_go_to_zero():
    """Sure of themselves, samples of the squared hinge leave a coordinate to its penalty alone."""
    X, y = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.array([1.0, 1.0, -1.0])
    problem = ss.Problem(scipy.sparse.csc_array(X), y, "squared_hinge", ss.L1(1e-3))
    result = ss.minimize(problem, tol=1e-8, warm_start=np.array([1e3, 5.0]))
    assert result.status.success
    assert result.n_epochs < 10


# Smooth problems


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("way", ["features", "samples", "conjugate gradients"])
def test_newton_steps_solve_their_equations(loss, fit_intercept, way, monkeypatch):
    n, d = (12, 30) if way == "samples" else (30, 12)
    A, problem = design(5, n, d, True, fit_intercept)
    rng = np.random.default_rng(0)
    y, weights = np.where(np.arange(n) % 3, 1, -1), rng.random(n)
    problem = ss.Problem(A[:, :d], y, loss, ss.L2(0.1), sample_weight=weights, fit_intercept=fit_intercept)
    if way == "conjugate gradients":
        monkeypatch.setattr(_smooth, "_MOST_DIRECT", 0)
    samples = LocalSamples(problem)
    newton = _smooth.Newton(problem, samples, from_zero=False)
    assert newton.way == way
    for _ in range(2):
        c = rng.standard_normal(problem.n_coordinates)
        if loss != "squared":  # whose curvatures stay as they are
            samples._weights[:] = rng.random(n) / n
        hessian = A.T @ (samples._weights[:, None] * A) + np.diag(problem.penalty.l2)
        step = newton.step(c, lambda: 1e-12)
        np.testing.assert_allclose(hessian @ step, -c, atol=1e-8)
    result = ss.minimize(problem, tol=1e-10)
    assert result.status.success
    assert result.n_epochs < 15


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_minimisers_over_samples_and_over_features_are_the_same(loss, fit_intercept, sparse, monkeypatch):
    A, _ = design(7, 15, 40, False, False)
    X, y = scipy.sparse.csr_array(A) if sparse else A, np.where(np.arange(15) % 3, 1.0, -1.0)
    regularizer = ss.L2(0.03, weights=1.0 + np.arange(40) % 4)
    problem = ss.Problem(X, y, loss, regularizer, fit_intercept=fit_intercept)
    over_samples = ss.minimize(problem, tol=1e-12)
    assert over_samples.n_epochs <= 2
    far = ss.minimize(problem, tol=1e-12, warm_start=np.full(problem.n_coordinates, 5.0))
    monkeypatch.setattr(_smooth, "_MOST_DIRECT", 0)
    by_conjugate_gradients = ss.minimize(problem, tol=1e-12)
    assert by_conjugate_gradients.n_epochs > 2 or loss == "squared"
    for result in (over_samples, far, by_conjugate_gradients):
        assert result.status is ss.Status.CONVERGED
        np.testing.assert_allclose(result.coef, over_samples.coef, atol=1e-5)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60)], ids=["features", "samples"])
def test_conjugate_gradients_are_left_when_they_have_taken_the_time_of_a_matrix(shape, monkeypatch):
    rng = np.random.default_rng(0)
    problem = ss.Problem(rng.standard_normal(shape), rng.standard_normal(shape[0]), regularizer=ss.L2(1e-4))
    monkeypatch.setattr(LocalSamples, "prices", lambda *_: (1.0, 30.0))
    samples = LocalSamples(problem)
    newton = _smooth.Newton(problem, samples, from_zero=False)
    c = rng.standard_normal(shape[1])
    assert newton.way == "conjugate gradients"
    for _ in range(30):
        newton.step(c, lambda: 0.1)
    assert newton.way == ("features" if shape[0] > shape[1] else "samples")
    assert newton.n_products == 30
    assert ss.minimize(problem, tol=1e-10).status is ss.Status.CONVERGED


@pytest.mark.parametrize("by", ["rows", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_products_with_the_hessian_are_the_same_by_rows_and_by_columns(sparse, fit_intercept, by):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 12)) * (rng.random((30, 12)) < 0.5)
    if sparse:
        X = scipy.sparse.csr_array(A) if by == "rows" else scipy.sparse.csc_array(A)
    else:
        X = np.ascontiguousarray(A) if by == "rows" else np.asfortranarray(A)
    problem = ss.Problem(X, rng.choice([-1.0, 1.0], 30), "logistic", ss.L2(0.1), fit_intercept=fit_intercept)
    assert problem.design.has_rows == (by == "rows")
    samples, v = LocalSamples(problem), rng.standard_normal(problem.n_coordinates)
    samples.bend(1e-6)
    A = np.hstack([A, np.ones((30, 1))]) if fit_intercept else A
    np.testing.assert_allclose(samples.curved(v), A.T @ (samples._weights * (A @ v)), rtol=1e-12)


def test_conjugate_gradients_go_on_where_the_end_is_near(monkeypatch):
    """After the time of a matrix, if the rest should take much less; but not for ever."""
    monkeypatch.setattr(LocalSamples, "prices", lambda *_: (1.0, 30.0))
    problem = lasso(n=40, d=10).with_regularizer(ss.L2(0.1))
    newton = _smooth.Newton(problem, LocalSamples(problem), from_zero=False)
    newton._rent = 30.0
    assert newton.way == "features"
    newton.n_expected = 5.0
    assert newton.way == "conjugate gradients"
    newton.n_expected = 20.0
    assert newton.way == "features"
    newton.n_expected, newton._rent = 5.0, 61.0
    assert newton.way == "features"


def test_what_is_expected_follows_from_the_pace():
    problem = lasso(n=40, d=10, loss="logistic").with_regularizer(ss.L2(0.1))
    method = Everywhere(problem, np.zeros(10), 1e-6, LocalSamples(problem))
    assert method._n_expected() == math.inf
    method._last, method._gap = (8, 1e-1), dataclasses.replace(method._gap, gap=1e-3)
    assert method._n_expected() == pytest.approx(12.0)  # 8 for two powers of ten, and three are left
    method._last = (8, 1e-4)
    assert method._n_expected() == math.inf


def test_separable_data_and_no_penalty():
    """The optimum is at infinity: the violation goes to zero all the same."""
    X = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    result = ss.minimize(ss.Problem(X, [1, 1, 0, 0], "logistic"), tol=1e-4)
    assert result.status is ss.Status.CONVERGED_WITHOUT_CERTIFICATE


def test_dependent_columns_and_no_penalty():
    X = np.random.default_rng(0).standard_normal((20, 3))
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    result = ss.minimize(ss.Problem(X, X[:, 2] + 0.1, fit_intercept=True), tol=1e-8)
    assert result.status.success
    assert result.objective < 1e-12


# What must not matter, and what a user may ask for


def test_threads_and_a_second_call_give_the_same():
    problem = lasso()
    one, two, again = (ss.minimize(problem, tol=1e-8, n_jobs=n_jobs) for n_jobs in (1, 2, 1))
    np.testing.assert_array_equal(one.coef, again.coef)
    np.testing.assert_array_equal(one.coef, two.coef)


def test_warm_start_from_a_solution_takes_one_look():
    problem = lasso()
    result = ss.minimize(problem, tol=1e-8)
    again = ss.minimize(problem, tol=1e-7, warm_start=result)
    assert again.n_epochs == 0
    np.testing.assert_array_equal(again.coef, result.coef)
    near = ss.minimize(lasso(fraction=0.045), tol=1e-8, warm_start=result)
    assert near.status.success


def test_what_rounding_does_not_let_through_is_said():
    result = ss.minimize(lasso(), tol=1e-300, max_rounds=100)
    assert result.status in (ss.Status.PRECISION, ss.Status.OPTIMAL, ss.Status.CONVERGED)
    assert result.gap < 1e-13


def test_limits_and_callbacks():
    problem = lasso(fraction=0.001)
    result = ss.minimize(problem, tol=1e-12, max_rounds=1)
    assert result.status is ss.Status.MAX_EPOCHS
    assert "rounds" in result.message

    def stop(progress):
        progress.stop = True

    assert ss.minimize(problem, callbacks=[stop]).status is ss.Status.STOPPED


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5])
def test_n_jobs_is_checked(n_jobs):
    with pytest.raises(ValueError, match="n_jobs"):
        ss.minimize(lasso(), n_jobs=n_jobs)


def test_step_along_never_raises_the_objective():
    rng = np.random.default_rng(0)
    for loss in ("logistic", "squared_hinge", "huber"):
        problem = lasso(loss=loss, n=40, d=10)
        method = rounds(problem)
        for scale in (0.1, 1.0, 10.0, 1e3):
            step = -problem.gradient(np.zeros(10)) + 0.01 * rng.standard_normal(10)
            method._samples.aim(np.arange(10), scale * step)
            t = method._step_along(float(scale * step @ problem.gradient(np.zeros(10))), 0.0)
            smooth = problem.with_regularizer(None)
            if method._samples.slopes(0.0)[0] < 0.0:
                assert 0.0 < t <= 1.0
                assert smooth.objective(t * scale * step) < smooth.objective(np.zeros(10))
