"""The fast solver: the optimum of every problem, certificates that hold, exact models, and what must not matter."""

from __future__ import annotations

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
from surestep.bounds.tracker import EPS
from surestep.regularizers import Separable, gradient_step
from surestep.solvers import _local, _on_working_set, _prices
from surestep.solvers._local import LocalSamples
from surestep.solvers._look import curvatures
from surestep.solvers._on_working_set import OnWorkingSet, _places_of_largest
from surestep.solvers._steps import gain_of
from zoo import PseudoHuber, design, problems, reference_optimum

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


@pytest.mark.parametrize("kind", ["uneven", "alike", "few above the rest"])
@pytest.mark.parametrize(("size", "n"), [(5, 5), (300, 20), (5000, 1), (5000, 128), (5000, 4999)])
def test_places_of_largest(kind, size, n):
    rng = np.random.default_rng(size + n)
    values = rng.pareto(1.0, size) if kind == "uneven" else np.ones(size)
    if kind == "few above the rest":  # of which a sample sees none
        values[1:8] = 2.0
    places = _places_of_largest(values, n)
    assert np.unique(places).size == n
    np.testing.assert_array_equal(np.sort(values[places]), np.sort(values)[size - n :])


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
    """Entries of their Gram matrix are so large that it tells nothing of residuals; of each, rounding hides an ulp."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 40))
    y = X[:, 0] - X[:, 1] + 0.1 * rng.standard_normal(200)
    X[:, :5] += 1e6
    problem = ss.Problem(X, y, regularizer=ss.L1(0.02), fit_intercept=True)
    result = ss.minimize(problem, tol=tol)
    true = problem.duality_gap(np.append(result.coef, result.intercept)).gap
    assert result.status.name == "CONVERGED"
    assert true <= tol * problem.objective_at_zero
    assert result.gap == pytest.approx(true, abs=max(0.01 * tol * problem.objective_at_zero, 1e6 * EPS))


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
def no_short_columns(monkeypatch):
    """Columns of few samples go the way of others."""
    monkeypatch.setattr(_local, "_SHORT", 0)
    monkeypatch.setattr(_local, "_SHORT_CURVED", 0)


@pytest.fixture
def strengths(monkeypatch, no_short_columns):
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


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_the_way_on_the_working_set_does_not_matter(sparse, monkeypatch):
    problem = lasso(sparse=sparse, fraction=0.02)
    with_gram = ss.minimize(problem, tol=1e-9)
    monkeypatch.setattr(_local, "pays", lambda *_: False)
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
        monkeypatch.setattr(_local, "pays", lambda *_, answer=by_gram: answer)
        result = ss.minimize(problem, tol=1e-12)
        assert result.status is ss.Status.CONVERGED
        assert result.trace["gram"][-1] == by_gram
        found.append(result.coef)
    np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_models_by_columns_end_when_the_gap_on_the_working_set_is_near(loss, monkeypatch):
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((2_000, 1_000), density=0.02, format="csc", rng=rng)
    problem = ss.Problem(X, np.sign(X @ rng.normal(size=1_000)), loss=loss, regularizer=ss.L1(1e-4))
    monkeypatch.setattr(_local, "pays", lambda *_: False)
    result = ss.minimize(problem, tol=1e-2)
    assert result.status is ss.Status.CONVERGED
    monkeypatch.setattr(OnWorkingSet, "_to_go", lambda *_: 0.0)
    assert result.n_steps < 0.9 * ss.minimize(problem, tol=1e-2).n_steps


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


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 3.0), st.sampled_from([1e-1, 1e-3, 1e-5]), st.booleans())
def test_a_gram_matrix_in_single_precision_spoils_no_accuracy(seed, decades, fraction, fit_intercept):
    """Rounding hides singular values below 1e-3 of the largest: where they matter, double precision takes its place."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, 40)))[0] for n in (300, 40))
    X = left * np.geomspace(1.0, 10.0**-decades, 40) @ right.T + fit_intercept
    y = X @ rng.standard_normal(40) + 0.01 * rng.standard_normal(300) + 2.0 * fit_intercept
    problem = ss.Problem(X, y, regularizer=ss.L1(1.0), fit_intercept=fit_intercept)
    problem = problem.with_regularizer(ss.L1(fraction * problem.alpha_max()))
    tol = 1e-8 * problem.objective(problem.null_point()) / problem.objective_at_zero
    result = ss.minimize(problem, tol=tol, max_rounds=100)
    assert result.status.name == "CONVERGED"
    x = np.append(result.coef, result.intercept) if fit_intercept else result.coef
    assert problem.duality_gap(x).gap <= 1.01 * tol * problem.objective_at_zero


def test_a_gram_matrix_in_single_precision_gives_way_to_one_in_double(monkeypatch):
    """Of columns so nearly alike that rounding them hides the difference, which is all that y depends on."""
    asked = []
    for name in ("matrix", "model_matrix"):
        whole = getattr(LocalSamples, name)
        monkeypatch.setattr(LocalSamples, name, lambda *a, name=name, whole=whole: asked.append(name) or whole(*a))
    rng = np.random.default_rng(0)
    base, other = rng.standard_normal((300, 1)), rng.standard_normal((300, 10))
    problem = ss.Problem(base + 1e-3 * other, other @ np.ones(10), regularizer=ss.L1(1e-9))
    assert ss.minimize(problem, tol=1e-9).status.name == "CONVERGED"
    assert asked[0] == "model_matrix"
    assert asked[-1] == "matrix"
    asked.clear()
    problem = ss.Problem(other, other @ np.ones(10), regularizer=ss.L1(1e-9))
    assert ss.minimize(problem, tol=1e-9).status.name == "CONVERGED"
    assert set(asked) == {"model_matrix"}


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


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("max_rounds", [0, 1, 2, 3])
@pytest.mark.usefixtures("no_short_columns")
def test_what_is_cut_short_returns_the_best_point_of_the_trace(max_rounds, fit_intercept):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 400))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(30)
    problem = ss.Problem(X, y, fit_intercept=fit_intercept, regularizer=ss.L1(1.0))
    problem = problem.with_regularizer(ss.L1(0.001 * problem.alpha_max()))
    result = ss.minimize(problem, tol=1e-12, max_rounds=max_rounds)
    x = np.append(result.coef, result.intercept) if fit_intercept else result.coef
    assert result.status is ss.Status.MAX_EPOCHS
    assert result.objective == min(result.trace["objective"])
    assert problem.objective(x) == pytest.approx(result.objective, rel=1e-12)
    assert result.trace["nonzeros"][-1] == np.count_nonzero(result.coef)


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True])
def test_n_jobs_is_checked(n_jobs):
    with pytest.raises(ValueError, match="n_jobs"):
        ss.minimize(lasso(), n_jobs=n_jobs)
    assert ss.minimize(lasso(), n_jobs=np.int64(1)).status.success


def test_a_callback_alone_is_no_list_of_them():
    with pytest.raises(TypeError, match="callbacks must be a list"):
        ss.minimize(lasso(), callbacks=print)


@pytest.mark.parametrize("n", [50, 200])
def test_a_penalty_next_to_nothing_has_no_stronger_one_to_begin_with(n):
    """So many times stronger as it would have to be overflows."""
    rng = np.random.default_rng(0)
    problem = ss.Problem(rng.standard_normal((n, 600)), rng.standard_normal(n), regularizer=ss.L1(1e-310))
    result = ss.minimize(problem, max_rounds=3)
    assert result.objective < 0.5 * problem.objective_at_zero


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
