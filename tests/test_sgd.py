"""Stochastic gradient descent: steps against plain ones, unbiasedness, safety, convergence, what must not matter."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import surestep as ss
from plain import uncompiled
from surestep.regularizers import prox
from surestep.sampling.samplers import OVER
from surestep.solvers import _sgd_blocks
from surestep.solvers._orbit import DENSE
from surestep.solvers._orbit import X as POSITION
from surestep.solvers._sgd_blocks import StochasticGradientDescent
from surestep.solvers._stochastic import ANCHOR, BUDGET, KEEP, OTHER, SHARE, TIME, descend, flush
from zoo import LOSSES, REGULARIZERS, _dense, data, problems, reference_optimum, reference_solution

ZOO = dict(problems())
SAMPLINGS = ("uniform", "importance", "optimal", "safe")


def started(problem, sampling="safe", variance_reduction=True, step="auto", seed=0, epochs=0.0, x=None, **options):
    x = np.zeros(problem.n_coordinates) if x is None else x
    method = StochasticGradientDescent(problem, sampling, variance_reduction, step, x, seed, **options)
    if epochs:
        method.advance(epochs)
    return method


def shares(method):
    """The distribution that the alias table draws from."""
    keep, other = method.state.samples[:, KEEP], method.state.samples[:, OTHER].astype(int)
    return (keep + np.bincount(other, 1.0 - keep, minlength=keep.size)) / keep.size


def logistic(regularizer, weights=None, sparse=True, intercept=False, n=40, d=10, seed=7):
    X, y = data(seed, LOSSES["logistic"], sparse=sparse, n=n, d=d)
    return ss.Problem(X, y, "logistic", regularizer, sample_weight=weights, fit_intercept=intercept)


# One step after the other


def eager(method, n_steps, rng):
    """The same steps, each on all coordinates, in plain NumPy; the average of the iterates too."""
    problem, samples = method.problem, method.state.samples
    A, x = _dense(problem), method.state.coordinates[:, POSITION].copy()
    dense, eta, batch = method.state.coordinates[:, DENSE], method.powers.step, method.state.drawn.size
    points = []
    for _ in range(n_steps):
        move = eta * dense
        for _ in range(batch):
            place = rng.random() * len(A)
            i = int(place)
            if place - i >= samples[i, KEEP]:
                i = int(samples[i, OTHER])
            derivative = problem.derivative(A @ x)[i] - samples[i, ANCHOR]
            move = move + eta * samples[i, SHARE] * derivative * A[i]
        x = np.array([prox(problem.penalty, j, v, eta) for j, v in enumerate(x - move)])
        if method.radius is not None:
            features = x[: problem.n_features]
            features *= min(1.0, method.radius / np.linalg.norm(features))
        points.append(x)
    return x, np.mean(points, axis=0)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("name", "variance_reduction"),
    [(name, reduced) for name in REGULARIZERS for reduced in (False, True)] + [("ball", False), ("ball_l2", False)],
)
def test_steps_put_off_are_the_steps_themselves(name, variance_reduction, intercept):
    regularizer = {"ball": None, "ball_l2": ss.L2(0.1)}.get(name, REGULARIZERS.get(name))
    problem = logistic(regularizer, np.arange(40) % 5, intercept=intercept, d=8)
    for batch in (1, 3):
        method = started(
            problem,
            "importance",
            variance_reduction,
            "constant",
            batch_size=batch,
            average="uniform",
            radius=0.3 if name.startswith("ball") else None,
            x=np.clip(np.linspace(-0.2, 0.2, problem.n_coordinates), problem.penalty.lower, problem.penalty.upper),
        )
        method._begin_block()
        assert np.any(method.state.coordinates[:, DENSE] != 0.0) == variance_reduction
        n_steps = method._length
        expected, mean = eager(method, n_steps, np.random.default_rng(5))
        descend(
            method.rows,
            intercept,
            problem.loss,
            method.penalty,
            method.powers,
            method.state,
            n_steps,
            np.random.default_rng(5),
        )
        flush(method.penalty, method.powers, method.state)
        np.testing.assert_allclose(method.state.coordinates[:, POSITION], expected, atol=1e-12)
        np.testing.assert_allclose(method.state.average / n_steps, mean, atol=1e-12)


@pytest.mark.parametrize("variance_reduction", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_estimates_are_unbiased(sampling, variance_reduction):
    """By enumeration of all rows."""
    weights = np.append(np.zeros(3), 1.0 + np.arange(37) % 6)
    problem = logistic(ss.L2(0.05), weights, intercept=True)
    method = started(problem, sampling, variance_reduction, batch_size=2, epochs=7.3)
    flush(method.penalty, method.powers, method.state)
    if sampling == "optimal":
        method._draw_by_gradients()
    x, samples = method.state.coordinates[:, POSITION].copy(), method.state.samples
    p = shares(method)
    assert p.sum() == pytest.approx(1.0)
    assert (p[:3] == 0.0).all()
    drawn = p > 0.0
    np.testing.assert_allclose(p[drawn] * samples[drawn, SHARE] * 2, problem.weights[drawn], rtol=1e-12)
    u = problem.derivative(problem.predictor(x))
    estimates = (samples[:, SHARE] * (u - samples[:, ANCHOR]))[:, None] * _dense(problem)
    expected = 2 * p @ estimates + method.state.coordinates[:, DENSE]
    np.testing.assert_allclose(expected, problem.gradient(x), atol=1e-14)


def test_certified_rows_are_not_drawn_and_do_not_bias():
    X, y = data(3, LOSSES["squared_hinge"], n=60, d=3)
    problem = ss.Problem(3.0 * X, y, "squared_hinge", ss.L2(0.02))
    for variance_reduction, most in ((True, 60), (False, 200)):
        method = started(problem, "safe", variance_reduction, epochs=8.0)
        seen = 0
        for _ in range(most):
            method.advance(0.5)
            flush(method.penalty, method.powers, method.state)
            if method.state.totals[BUDGET] < np.inf and method._distance() <= method.state.totals[BUDGET]:
                p, samples = shares(method), method.state.samples
                still = method.upper == 0.0
                seen = max(seen, np.count_nonzero(still))
                assert (p[still] == 0.0).all()
                u = problem.derivative(problem.predictor(method.state.coordinates[:, POSITION].copy()))
                np.testing.assert_array_equal(u[still], samples[still, ANCHOR])
        assert seen > 5


# Safety


@pytest.mark.parametrize("variance_reduction", [False, True])
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from([*REGULARIZERS, "ball", "ball_l2"]),
    weighted=st.booleans(),
    intercept=st.booleans(),
    batch_size=st.sampled_from([1, 1, 4]),
    far=st.booleans(),
)
@settings(max_examples=40)
def test_bounds_hold_after_every_step(variance_reduction, seed, name, weighted, intercept, batch_size, far):
    rng = np.random.default_rng(seed)
    X, y = data(seed, LOSSES["logistic"], sparse=True, n=24, d=8)
    X = X.multiply(np.exp(rng.normal(size=(24, 1)))).tocsc()
    ball = name.startswith("ball")
    regularizer = {"ball": None, "ball_l2": ss.L2(0.1)}.get(name, REGULARIZERS.get(name))
    weights = rng.pareto(1.5, 24) if weighted else None
    problem = ss.Problem(X, y, "logistic", regularizer, sample_weight=weights, fit_intercept=intercept)
    ss.stochastic_gradient_descent(
        problem,
        variance_reduction=variance_reduction,
        radius=1.0 if ball and not variance_reduction else None,
        batch_size=batch_size,
        warm_start=rng.normal(size=problem.n_coordinates) * (10.0 if far else 0.1),
        max_epochs=12,
        trace_every=12,
        tol=1e-12,
        random_state=seed,
        check_bounds=True,
    )


@pytest.mark.parametrize(("wrong", "message"), [("distance", "at a distance of"), ("norms", "do not contain the norm")])
def test_check_bounds_finds_what_is_wrong(wrong, message, monkeypatch):
    monkeypatch.setattr(_sgd_blocks, "_WORTH", 2.0)  # to draw from bounds however little they tell
    if wrong == "distance":
        monkeypatch.setattr(_sgd_blocks, "distance", lambda *arguments: 0.0)
    else:
        fill = _sgd_blocks.fill_smoothness

        def too_small(*arguments):
            fill(*arguments)
            arguments[-1][3] *= 1e-3

        monkeypatch.setattr(_sgd_blocks, "fill_smoothness", too_small)
    with pytest.raises(ss.BoundViolationError, match=message):
        ss.stochastic_gradient_descent(logistic(ss.L2(0.05)), tol=1e-12, max_epochs=20, check_bounds=True)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("rows", ["equal", "uneven"])
def test_variance_is_between_that_of_optimal_and_fixed_sampling_all_along(loss, rows, monkeypatch):
    """sum c_i^2 / p_i of Appendix A.2 at every iterate of a run; see `safe_shares` for what is to be expected."""
    monkeypatch.setattr(_sgd_blocks, "_WORTH", 2.0)  # to draw from bounds however little they tell
    n, rng = 60, np.random.default_rng(2)
    X, y = data(2, LOSSES[loss], n=n, d=5)
    X *= 4.0 / np.linalg.norm(X, axis=1, keepdims=True)
    weights = None
    if rows == "uneven":
        X, weights = X * np.exp(0.5 * rng.normal(size=(n, 1))), 1.0 + rng.pareto(1.5, n)
    y = np.sign(X @ np.ones(5)) if loss == "logistic" else y
    problem = ss.Problem(X, y, loss, ss.L2(0.3), sample_weight=weights)
    method = started(problem, "safe", False)
    method.check_bounds = True  # one step at a time
    take_step, gained = method._steps, []

    def watched(n_steps):
        flush(method.penalty, method.powers, method.state)
        x, p, before = method.state.coordinates[:, POSITION].copy(), shares(method), method.n_steps
        said = take_step(n_steps)
        if method.n_steps > before:  # else a new sampling was asked for first
            c = method.scale * np.abs(problem.derivative(problem.predictor(x)))
            drawn = c > 0.0
            variance = np.sum(c[drawn] ** 2 / p[drawn])
            fixed = method.scale.sum() * np.sum(c[drawn] ** 2 / method.scale[drawn])
            assert c.sum() ** 2 <= variance * (1.0 + 1e-12)
            assert variance <= fixed * (1.0 + 1e-9)
            if rows == "equal":
                assert fixed == pytest.approx(n * np.sum(c**2), rel=1e-9)
            gained.append(variance / fixed)
        return said

    method._steps = watched
    method.advance(40.0)
    assert len(gained) == 40 * n
    assert np.mean(np.array(gained) < 0.95) > 0.1


# Convergence


@pytest.mark.parametrize("name", ZOO)
def test_convergence_on_the_zoo(name):
    problem = ZOO[name]
    # Columns a thousand times longer than others take that long.
    result = ss.stochastic_gradient_descent(problem, tol=1e-8, max_epochs=40_000, trace_every=100)
    zero = np.zeros(problem.n_coordinates)
    optimum, at_zero = reference_optimum(problem), problem.objective(zero)
    expected = ss.Status.CONVERGED if problem.has_certificate else ss.Status.CONVERGED_WITHOUT_CERTIFICATE
    assert result.status is expected
    assert -1e-12 * at_zero <= result.objective - optimum <= 1e-8 * at_zero
    x = np.append(result.coef, result.intercept) if problem.fit_intercept else result.coef
    np.testing.assert_array_equal(x, np.clip(x, problem.penalty.lower, problem.penalty.upper))
    assert (result.trace["objective"] - optimum <= result.trace["gap"] + 1e-12 * at_zero).all()
    with uncompiled():
        descent = ss.coordinate_descent(problem, sampling="cyclic", step="exact", tol=1e-9, max_epochs=5000)
    assert descent.status is expected
    assert result.objective == pytest.approx(descent.objective, rel=0.0, abs=1e-8 * at_zero)


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_sampling_converges_to_the_same_point(sampling, batch_size):
    """The reference is found by coordinate descent."""
    for name in ("logistic-l1-sparse", "logistic-l2-sample_weight-intercept-sparse"):
        result = ss.stochastic_gradient_descent(
            ZOO[name], sampling=sampling, batch_size=batch_size, tol=1e-10, max_epochs=3000, trace_every=10
        )
        assert result.status is ss.Status.CONVERGED
        expected = reference_solution(ZOO[name])
        np.testing.assert_allclose(result.coef, expected[: result.coef.size], atol=1e-4)
        if ZOO[name].fit_intercept:
            assert result.intercept == pytest.approx(expected[-1], abs=1e-4)


def test_uneven_weights_do_not_slow_down_sampling_that_knows_them():
    weights = 1.0 + np.random.default_rng(0).pareto(1.5, 400)
    problem = logistic(ss.L2(0.01), weights, n=400)

    def epochs(sampling):
        options = {"sampling": sampling, "tol": 1e-6, "max_epochs": 5000}
        return np.mean([ss.stochastic_gradient_descent(problem, random_state=s, **options).n_epochs for s in range(4)])

    assert 3 * epochs("importance") < epochs("uniform")
    assert epochs("safe") <= 1.1 * epochs("importance") + 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    ("step", "average"), [("inverse", "weighted"), ("sqrt", "tail"), ("sqrt", "uniform"), ("constant", "tail")]
)
def test_plain_sgd_comes_close(sampling, step, average):
    problem = ZOO["logistic-l2-sample_weight-intercept-sparse"]
    options = {"variance_reduction": False, "step": step, "average": average, "max_epochs": 100, "trace_every": 100}
    result = ss.stochastic_gradient_descent(problem, sampling=sampling, tol=1e-12, **options)
    optimum = reference_optimum(problem)
    at_zero = problem.objective(np.zeros(problem.n_coordinates))
    assert result.objective - optimum <= 0.02 * (at_zero - optimum)


def test_ball():
    problem = ZOO["logistic-l2-sample_weight-intercept-sparse"]
    radius = 0.5 * np.linalg.norm(reference_solution(problem)[:-1])
    visited = []
    result = ss.stochastic_gradient_descent(
        problem,
        variance_reduction=False,
        radius=radius,
        max_epochs=400,
        tol=1e-12,
        callbacks=[lambda progress: visited.append(np.linalg.norm(progress.x[:-1]))],
    )
    assert max(visited) <= radius * (1 + 1e-12)
    ball = {"type": "ineq", "fun": lambda x: radius**2 - x[:-1] @ x[:-1]}
    best = minimize(problem.objective, np.zeros(problem.n_coordinates), constraints=[ball], options={"ftol": 1e-12}).fun
    assert best - 1e-9 <= result.objective <= best + 0.02 * (problem.objective(np.zeros(problem.n_coordinates)) - best)
    start = ss.stochastic_gradient_descent(
        problem, variance_reduction=False, radius=radius, max_epochs=0, warm_start=np.full(problem.n_coordinates, 9.0)
    )
    assert np.linalg.norm(start.coef) == pytest.approx(radius)


# Steps


def test_schedules():
    problem = logistic(ss.L2(0.02))
    n = problem.n_samples
    norms = np.linalg.norm(_dense(problem), axis=1)
    L = 0.25 * np.max(norms) ** 2 * np.mean(norms > 0.0)  # rows of zeros are not drawn
    for step, expected in (
        ("inverse", lambda k: 1.0 / (2.0 * L + 0.02 * k)),
        ("sqrt", lambda k: 1.0 / (2.0 * L * np.sqrt(1.0 + k / n))),
        ("constant", lambda k: 1.0 / (2.0 * L)),
    ):
        method = started(problem, "uniform", False, step)
        for _ in range(200):
            k, is_new = method.n_steps, method.state.totals[TIME] >= method._length
            method._begin_block() if is_new else method._steps(1)
            if is_new:
                assert method.powers.step == pytest.approx(expected(k), rel=1e-9)
            assert expected(k) * (1.0 - 1e-9) <= method.powers.step <= expected(k) / (1.0 - 0.2)
    assert started(problem, "uniform", False, "inverse", stepsize=0.5).powers.step == 0.5
    assert started(problem, "importance", True).first_step == pytest.approx(0.5 / np.mean(0.25 * norms**2))


@pytest.mark.parametrize("sampling", ["uniform", "safe"])
def test_plain_steps_go_by_distance_and_gradients(sampling):
    """The formula of the notes, from the iterates: without a penalty they differ by eta g."""
    problem = logistic(None, 1.0 + np.arange(40) % 5, intercept=True)
    method = started(problem, sampling, False)
    longest, n = method.first_step, problem.n_samples
    moves, squares, far, steps, points = 0.0, 0.0, 0.0, [], [np.zeros(problem.n_coordinates)]
    for _ in range(40 * n):
        if method.state.totals[TIME] >= method._length:
            method._begin_block()
            step = longest / 50.0 / np.sqrt(1.0 + method.n_steps / n)
            far = max(far, np.sqrt(max(points[-1] @ points[-1] - moves, 0.0)))
            if far > 0.0:
                step = min(far / np.sqrt(squares), longest)
            assert method.powers.step == pytest.approx(step, rel=1e-9)
            steps.append(step)
        if method._steps(1) == OVER:
            method._draw_within(2.0 * method.state.totals[BUDGET])
            continue
        flush(method.penalty, method.powers, method.state)
        points.append(method.state.coordinates[:, POSITION].copy())
        moves += np.sum((points[-1] - points[-2]) ** 2)
        squares += np.sum((points[-1] - points[-2]) ** 2) / step**2
    assert np.count_nonzero(np.array(steps) < 0.99 * longest) > 5
    assert far < 3.0 * np.linalg.norm(reference_solution(problem))


def test_steps_that_find_their_length_need_no_tuning():
    """Close to the best of many fixed lengths, which are four times as long as the next; the same at any scale."""
    X, y = data(7, LOSSES["logistic"], sparse=True, n=40, d=10)
    problem, larger = (ss.Problem(scale * X, y, "logistic", ss.L1(0.02 * scale)) for scale in (1.0, 16.0))
    options = {"variance_reduction": False, "average": "tail", "max_epochs": 200, "trace_every": 200, "tol": 1e-12}

    def left(problem, **more):
        results = [ss.stochastic_gradient_descent(problem, random_state=s, **options, **more) for s in range(5)]
        return np.mean([result.objective for result in results]) - reference_optimum(problem)

    for sampling in ("uniform", "safe"):
        found, longest = left(problem, sampling=sampling), started(problem, sampling, False).first_step
        fixed = [left(problem, sampling=sampling, step="sqrt", stepsize=longest * 4.0**-k) for k in range(-2, 4)]
        assert found <= 4.0 * min(fixed)
        assert left(larger, sampling=sampling) == pytest.approx(found, rel=1e-6)


def test_a_bad_anchor_is_given_up_and_steps_get_shorter():
    problem = logistic(ss.L2(0.02))
    method = started(problem, "uniform", epochs=3.0)
    anchor, step = method.state.coordinates[:, 3].copy(), method.powers.step
    method.state.coordinates[:, POSITION] += 10.0
    method.state.totals[TIME] = method._length  # the block is over
    method.state.coordinates[:, 1] = method._length
    method._begin_block()
    np.testing.assert_array_equal(method.state.coordinates[:, POSITION], anchor)
    assert method.powers.step == pytest.approx(0.5 * step)
    diverging = ss.stochastic_gradient_descent(ZOO["squared-l1-sparse"], stepsize=1e6, step="constant")
    assert diverging.status is ss.Status.DIVERGED


# What must not matter, and what goes wrong


def test_layout_precision_and_compiler_do_not_matter():
    X, y = data(7, LOSSES["logistic"], sparse=True, n=40, d=10)
    options = {"max_epochs": 5, "tol": 1e-12, "trace_every": 5}
    results = [
        ss.stochastic_gradient_descent(ss.Problem(Z, y, "logistic", ss.ElasticNet(0.01)), **options).coef
        for Z in (X, X.toarray())
    ]
    np.testing.assert_allclose(results[0], results[1], atol=1e-12)
    script = (
        "import numpy as np, surestep as ss; from zoo import data, LOSSES\n"
        "X, y = data(7, LOSSES['logistic'], sparse=True, n=40, d=10)\n"
        "problem = ss.Problem(X, y, 'logistic', ss.ElasticNet(0.01))\n"
        f"print(ss.stochastic_gradient_descent(problem, **{options}).coef.tolist())"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    np.testing.assert_allclose(eval(done.stdout), results[0], atol=1e-12)


def test_seeds_and_parts_of_epochs():
    problem = logistic(ss.L1(0.01))
    options = {"max_epochs": 6, "tol": 1e-14}

    def last(seed, **more):
        points = []
        take = [lambda progress: points.append(progress.x)]
        ss.stochastic_gradient_descent(problem, random_state=seed, callbacks=take, **options, **more)
        return points[-1]

    np.testing.assert_array_equal(last(1), last(1))
    assert (last(1) != last(2)).any()
    np.testing.assert_allclose(last(1, trace_every=0.25), last(1), atol=1e-13)


def test_warm_start_callbacks_and_trace():
    problem = logistic(ss.L2(0.05), intercept=True)
    result = ss.stochastic_gradient_descent(problem, tol=1e-9)
    again = ss.stochastic_gradient_descent(problem, tol=1e-9, warm_start=result)
    assert (again.n_steps, again.status) == (0, ss.Status.CONVERGED)
    assert {"stepsize", "value_ratio", "still"} <= set(result.trace)

    def stop(progress):
        progress.stop = progress.row["epoch"] >= 2

    stopped = ss.stochastic_gradient_descent(problem, tol=1e-12, callbacks=[stop])
    assert (stopped.status, stopped.n_epochs) == (ss.Status.STOPPED, 2)


def test_problems_with_nothing_to_do():
    empty = ss.Problem(np.zeros((3, 2)), [1.0, 2.0, 3.0], "squared", ss.L2(0.1))
    result = ss.stochastic_gradient_descent(empty, warm_start=[1.0, -1.0], max_epochs=100)
    assert result.status is ss.Status.CONVERGED
    solved = ss.Problem(np.ones((4, 1)), np.zeros(4), "squared", ss.L2(0.1))
    assert ss.stochastic_gradient_descent(solved, sampling="safe").status is ss.Status.CONVERGED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(sampling="cyclic"), "sampling must be one of 'safe', 'optimal', 'importance', 'uniform', got 'cyclic'"),
        (dict(step="exact"), "step must be one of"),
        (dict(average="all"), "average must be one of"),
        (dict(stepsize=0.0), "stepsize must be positive and finite, got 0.0"),
        (dict(batch_size=0), "batch_size must be a whole number of at least 1, got 0"),
        (dict(variance_reduction="svrg"), "variance_reduction must be True or False"),
        (dict(step="inverse", variance_reduction=False), "needs a ridge term on every feature"),
        (dict(radius=1.0), "radius needs variance_reduction=False"),
        (dict(radius=-1.0, variance_reduction=False), "radius must be positive and finite"),
        (dict(radius=1.0, variance_reduction=False), r"without L1 term and bounds.*got L1\(0.01\)"),
        (dict(tol=0.0), "tol must be positive"),
        (dict(warm_start=[1.0]), "warm_start must have shape"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        ss.stochastic_gradient_descent(logistic(ss.L1(0.01)), **options)
