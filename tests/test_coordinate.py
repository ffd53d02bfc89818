"""Coordinate descent: the paper's guarantees for a step, convergence under every sampling, and what must not matter."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import surestep as ss
from surestep.bounds.tracker import fill_magnitudes
from surestep.losses import Logistic, Squared, SquaredHinge
from surestep.sampling.samplers import draw, looks_at_bounds
from surestep.solvers.coordinate import CoordinateDescent
from zoo import data, problems, reference_optimum, reference_solution

ZOO = dict(problems())
STEPS = ("adaptive", "fixed", "exact")
BOUNDS = ("cauchy-schwarz", "snapshot", "exact")
COMBINATIONS = [("safe", step, bounds) for bounds in BOUNDS for step in STEPS] + [
    (sampling, step, "auto") for sampling in ("optimal", "importance", "uniform", "cyclic", "greedy") for step in STEPS
]

# One step: eq. 3 and eq. 4 of the paper, by enumeration of all coordinates

SMOOTH = ("squared-none-dense", "logistic-none-dense")


@cache
def methods(name):
    """A run of each sampling that stands somewhere on its way, with its tracker up to date."""
    found = {}
    choices = [("safe", "cauchy-schwarz"), ("safe", "snapshot"), ("optimal", "auto")]
    for sampling, bounds in [*choices, ("importance", "auto"), ("uniform", "auto")]:
        method = CoordinateDescent(ZOO[name], sampling, "adaptive", bounds, "coordinate", np.zeros(8), 3)
        method.advance(5)
        found[sampling, bounds] = method
    return found


def distribution(method):
    """p and v of the next step, got as the kernel gets them."""
    problem, state = method.problem, method.state
    if not looks_at_bounds(method.sampler):
        return method.sampler.probabilities, method.sampler.value
    fill_magnitudes(method.tracker, problem.penalty, method.scale, state.x, state.lower, state.upper)
    value = draw(method.sampler, state.lower, state.upper, np.random.default_rng(0))[2]
    return method.sampler.buffer.copy(), value


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4], ids=["path", "snapshot", "optimal", "importance", "uniform"])
def test_expected_progress_of_one_step(name, kind):
    (sampling, _), method = list(methods(name).items())[kind]
    problem, x, L = method.problem, method.x.copy(), method.smoothness
    p, value = distribution(method)
    assert p.sum() == pytest.approx(1.0)
    g, f = problem.gradient(x), problem.objective(x)
    squared_norm = g @ g

    def expected(gammas):
        return sum(p[i] * problem.objective(x - gammas[i] * g[i] * np.eye(8)[i]) for i in range(8))

    def model(gammas):  # the right-hand side of eq. 3
        return f + p @ (-gammas * g**2 + L * gammas**2 * g**2 / 2)

    tolerance = 1e-13 * f
    total = L.sum() if sampling != "uniform" else 8 * L.max()
    for alpha in (1.0 / value, 1.0 / total, ss.progress_stepsize(p, g, L)):
        bound = f - alpha * squared_norm + alpha**2 / 2 * ss.progress_model(p, g, L)
        assert model(alpha / p) == pytest.approx(bound, rel=1e-12)
        assert expected(alpha / p) <= bound + tolerance  # eq. 3
        assert bound <= f - alpha / 2 * squared_norm + tolerance  # eq. 4: alpha is no larger than the best one
        assert expected(alpha / p) < f
        # The minimiser along each coordinate is best in the bound, term by term.
        assert model(1.0 / L) <= bound + tolerance
    assert expected(1.0 / L) <= model(1.0 / L) + tolerance
    if isinstance(problem.loss, Squared):
        assert expected(1.0 / L) <= expected(1.0 / value / p) + tolerance
    assert 1.0 / value <= ss.progress_stepsize(p, g, L) * (1 + 1e-9)
    if sampling != "uniform":
        assert value <= L.sum() * (1 + 1e-12)


@pytest.mark.parametrize("step", STEPS)
def test_the_kernel_takes_the_step_that_was_enumerated(step):
    problem = ZOO["squared-none-dense"]
    method = CoordinateDescent(problem, "safe", step, "snapshot", "coordinate", np.zeros(8), 3)
    method.advance(2)
    n_moves = 0
    for _ in range(30):
        x, (p, value) = method.x.copy(), distribution(method)
        method._steps(1)
        moved = np.flatnonzero(method.x != x)
        if moved.size == 0:  # drawn again, and already at the minimum along it
            continue
        (i,), n_moves = moved, n_moves + 1
        worst = {"adaptive": value * p[i], "fixed": problem.smoothness.sum() * p[i], "exact": problem.smoothness[i]}
        assert p[i] > 0.0
        assert method.x[i] == pytest.approx(x[i] - problem.gradient(x)[i] / worst[step], rel=1e-9)
    assert n_moves > 15


# Convergence


def is_badly_scaled(problem):
    """Columns so different that p ~ L, and steps that rely on Tr(L) or max(L), need a million epochs."""
    L = problem.smoothness[problem.smoothness > 0.0]
    return L.max() > 1e3 * L.min()


EVERYTHING = ("squared-l1-sample_weight", "logistic-l1-sparse", "squared-l1-wide")

# Kernels by what has to be compiled for them, and those that every pair of layout and loss has to go through: each pair
# two of them, in turn, since a kernel takes a second or two to compile.
KERNELS = {
    "path": [combination for combination in COMBINATIONS if combination[2] == "cauchy-schwarz"],
    "snapshot": [combination for combination in COMBINATIONS if combination[2] == "snapshot"],
    "exact": [c for c in COMBINATIONS if c[2] == "exact" or c[0] == "optimal"],
    "fixed": [c for c in COMBINATIONS if c[0] in ("importance", "uniform")],
    "cyclic": [c for c in COMBINATIONS if c[0] == "cyclic"],
    "greedy": [c for c in COMBINATIONS if c[0] == "greedy"],
}
TURNS = [("path", "snapshot"), ("exact", "cyclic"), ("fixed", "snapshot"), ("greedy", "cyclic"), ("path", "fixed")]

# Those whose rate does not depend on the scale of the columns.
SCALE_FREE = [
    ("safe", "exact", "snapshot"),
    ("safe", "exact", "exact"),
    ("optimal", "exact", "auto"),
    ("uniform", "exact", "auto"),
    *((sampling, step, "auto") for sampling in ("cyclic", "greedy") for step in ("adaptive", "exact")),
]


def cases():
    """All combinations on a few problems; on every other problem some, in turn."""
    yield from ((name, *combination) for name in EVERYTHING for combination in COMBINATIONS)
    pairs, turn = {}, 0
    for name, problem in ZOO.items():
        if name in EVERYTHING:
            continue
        pair = type(problem.loss), problem.design.is_sparse, problem.fit_intercept, problem.design.dtype
        kernels = pairs.setdefault(pair, TURNS[len(pairs) % len(TURNS)])
        for kernel in kernels:
            allowed = [c for c in KERNELS[kernel] if c in SCALE_FREE or not is_badly_scaled(problem)]
            if allowed:
                yield name, *allowed[turn % len(allowed)]
                turn += 1


@pytest.mark.parametrize(("sampling", "step", "bounds"), [c for c in COMBINATIONS if c not in SCALE_FREE])
def test_badly_scaled_columns_are_slow_for_some_but_no_obstacle(sampling, step, bounds):
    problem = ZOO["squared-l2-dense"]
    assert is_badly_scaled(problem)
    options = {"sampling": sampling, "step": step, "bounds": bounds, "random_state": 1}
    result = ss.coordinate_descent(problem, tol=1e-8, max_epochs=200_000, trace_every=1000, **options)
    assert result.status is ss.Status.CONVERGED
    assert result.objective - reference_optimum(problem) <= 1e-8 * problem.objective(np.zeros(problem.n_coordinates))


@pytest.mark.parametrize(("name", "sampling", "step", "bounds"), list(cases()))
def test_convergence(name, sampling, step, bounds):
    problem = ZOO[name]
    result = ss.coordinate_descent(
        problem, sampling=sampling, step=step, bounds=bounds, tol=1e-8, max_epochs=3000, trace_every=4, random_state=1
    )
    zero = np.zeros(problem.n_coordinates)
    optimum, at_zero = reference_optimum(problem), problem.objective(zero)
    x = np.append(result.coef, result.intercept) if problem.fit_intercept else result.coef
    if problem.has_certificate:
        assert result.status is ss.Status.CONVERGED
        assert result.gap <= 1e-8 * at_zero
    else:
        assert result.status is ss.Status.CONVERGED_WITHOUT_CERTIFICATE
        curved = problem.smoothness > 0.0
        scale = np.sqrt(problem.smoothness[curved])
        violation = (problem.optimality(x)[curved] / scale).max()
        assert violation <= 1e-8 * (problem.optimality(zero)[curved] / scale).max()
        assert result.objective - optimum <= 1e-8 * at_zero
    # The certificate is true, all along.
    trace = result.trace
    assert (trace["objective"] - optimum <= trace["gap"] + 1e-12 * at_zero).all()
    assert result.objective == problem.objective(x)
    assert result.objective >= optimum - 1e-12 * at_zero
    np.testing.assert_array_equal(x, np.clip(x, problem.penalty.lower, problem.penalty.upper))
    if step == "exact":  # never uphill
        assert (np.diff(trace["objective"]) <= 1e-14 * at_zero).all()


def test_every_problem_and_every_combination_is_among_the_cases():
    found = list(cases())
    assert {name for name, *_ in found} == set(ZOO)
    assert {tuple(combination) for _, *combination in found} == set(COMBINATIONS)


@pytest.mark.parametrize(("sampling", "step"), [("safe", "adaptive"), ("importance", "adaptive"), ("cyclic", "fixed")])
def test_constant_smoothness(sampling, step):
    """max(L) for all coordinates, as in the paper's figures: importance sampling is then uniform."""
    problem = ZOO["squared-l1-sample_weight"]
    options = dict(sampling=sampling, step=step, bounds="snapshot" if sampling == "safe" else "auto")
    result = ss.coordinate_descent(problem, smoothness="constant", tol=1e-8, track_optimal=True, **options)
    assert result.status is ss.Status.CONVERGED
    assert result.objective - reference_optimum(problem) <= result.gap
    c = problem.optimality(np.zeros(8))
    assert result.trace["optimal_value_ratio"][0] == pytest.approx(c.sum() ** 2 / (c @ c) / 8)
    if sampling == "importance":
        uniform = ss.coordinate_descent(problem, sampling="uniform", step=step, tol=1e-8)
        np.testing.assert_array_equal(uniform.coef, result.coef)


# Agreement with scikit-learn

CYCLIC = dict(sampling="cyclic", step="exact", max_epochs=100_000, trace_every=10)


def assert_agrees(result, model):
    np.testing.assert_allclose(result.coef, np.ravel(model.coef_), rtol=1e-5, atol=1e-6)
    assert result.intercept == pytest.approx(
        float(np.ravel(model.intercept_)[0] if model.fit_intercept else 0.0), abs=1e-5
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["lasso", "elastic net", "ridge"])
def test_regression_agrees_with_scikit_learn(kind, fit_intercept):
    X, y = data(seed=5, loss=Squared())
    y = y + 3.0
    options = dict(fit_intercept=fit_intercept, tol=1e-13)
    model, regularizer = {
        "lasso": (Lasso(0.1, max_iter=100_000, **options), ss.L1(0.1)),
        "elastic net": (ElasticNet(0.2, l1_ratio=0.3, max_iter=100_000, **options), ss.ElasticNet(0.2, 0.3)),
        "ridge": (Ridge(0.2 * len(y), **options), ss.L2(0.2)),
    }[kind]
    problem = ss.Problem(X, y, "squared", regularizer, fit_intercept=fit_intercept)
    assert_agrees(ss.coordinate_descent(problem, tol=1e-13, **CYCLIC), model.fit(X, y))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_logistic_regression_agrees_with_scikit_learn(l1_ratio, fit_intercept):
    X, y = data(seed=6, loss=Logistic(), sparse=True)
    alpha, n = 0.02, len(y)
    model = LogisticRegression(
        C=1 / (alpha * n), l1_ratio=l1_ratio, solver="saga", tol=1e-12, max_iter=100_000, fit_intercept=fit_intercept
    )
    problem = ss.Problem(X, y, "logistic", ss.ElasticNet(alpha, l1_ratio), fit_intercept=fit_intercept)
    assert_agrees(
        ss.coordinate_descent(problem, tol=1e-13, **CYCLIC), model.fit(scipy.sparse.csr_matrix(X.toarray()), y)
    )


def test_support_vectors_agree_with_scikit_learn():
    X, y = data(seed=7, loss=SquaredHinge())
    alpha, n = 0.05, len(y)
    model = LinearSVC(C=1 / (2 * alpha * n), fit_intercept=False, tol=1e-12, max_iter=1_000_000, dual=False)
    problem = ss.Problem(X, y, "squared_hinge", ss.L2(alpha))
    assert_agrees(ss.coordinate_descent(problem, tol=1e-13, **CYCLIC), model.fit(X, y))


# What must not matter, and what must


def test_sparse_and_dense_take_the_same_steps():
    X, y = data(seed=8, loss=Squared(), sparse=True)
    runs = [
        ss.coordinate_descent(
            ss.Problem(matrix, y, "squared", ss.L1(0.05)), sampling=sampling, step="exact", bounds=bounds, tol=1e-10
        )
        for sampling, bounds in (("safe", "snapshot"), ("cyclic", "auto"))
        for matrix in (X, X.toarray())
    ]
    for sparse, dense in (runs[:2], runs[2:]):
        assert sparse.n_steps == dense.n_steps
        np.testing.assert_allclose(sparse.coef, dense.coef, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(sparse.trace["objective"], dense.trace["objective"], rtol=1e-12)


def test_a_weight_of_two_is_a_row_twice_and_one_of_zero_is_none():
    X, y = data(seed=9, loss=Squared())
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    assert {0, 1, 2} <= set(weights)
    options = dict(tol=1e-13, step="exact")
    weighted = ss.coordinate_descent(ss.Problem(X, y, "squared", ss.L1(0.05), sample_weight=weights), **options)
    rows = np.repeat(np.arange(len(y)), weights)
    repeated = ss.coordinate_descent(ss.Problem(X[rows], y[rows], "squared", ss.L1(0.05)), **options)
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-6, atol=1e-8)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-12)


def test_a_row_of_weight_zero_may_hold_anything():
    """Its predictor overflows, and nobody is to notice."""
    X, y = data(seed=9, loss=Squared())
    weights = np.ones(len(y))
    weights[4] = 0.0
    huge = X.copy()
    huge[4] = 1e308
    for bounds in ("snapshot", "auto"):
        options = dict(step="exact", tol=1e-12, bounds=bounds)
        results = [
            ss.coordinate_descent(ss.Problem(matrix, y, "squared", ss.L1(0.05), sample_weight=weights), **options)
            for matrix in (X, huge)
        ]
        assert results[1].status is ss.Status.CONVERGED
        np.testing.assert_allclose(results[1].coef, results[0].coef, rtol=1e-9, atol=1e-12)


def test_float32_data_are_near_float64_data():
    X, y = data(seed=101, loss=Squared())
    single, double = (
        ss.coordinate_descent(ss.Problem(matrix, y, "squared", ss.L1(0.05)), sampling="cyclic", step="exact", tol=1e-12)
        for matrix in (X.astype(np.float32), X)
    )
    np.testing.assert_allclose(single.coef, double.coef, atol=1e-5)
    assert single.coef.dtype == np.float64
    same = ss.Problem(X.astype(np.float32).astype(np.float64), y, "squared", ss.L1(0.05))
    rounded = ss.coordinate_descent(same, sampling="cyclic", step="exact", tol=1e-12)
    np.testing.assert_allclose(single.coef, rounded.coef, atol=1e-9)


TINY = """
import numpy as np, surestep as ss
rng = np.random.default_rng(0)
X = rng.standard_normal((12, 4))
problem = ss.Problem(X, X[:, 0] + 0.1 * rng.standard_normal(12), regularizer=ss.L1(0.1))
result = ss.coordinate_descent(problem, bounds="snapshot", step="exact", tol=1e-9, check_bounds=True)
print(result.status.name, result.n_steps, *result.coef.tolist())
"""


def test_plain_python_gives_the_same_result():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run([sys.executable, "-c", TINY], capture_output=True, text=True, env=environment, check=True)
    scope = {"print": lambda *values: scope.setdefault("printed", values)}
    exec(TINY, scope)
    name, n_steps, *coef = run.stdout.split()
    assert (name, int(n_steps)) == scope["printed"][:2]
    np.testing.assert_allclose(np.array(coef, dtype=float), scope["printed"][2:], rtol=1e-12, atol=1e-15)


def test_read_only_memory_maps(tmp_path):
    X, y = data(seed=101, loss=Squared())
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = (np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "y.npy"))
    one, two = (
        ss.coordinate_descent(ss.Problem(*arrays, "squared", ss.L1(0.05)), tol=1e-9) for arrays in (mapped, (X, y))
    )
    np.testing.assert_array_equal(one.coef, two.coef)


def test_indices_of_64_bits():
    X, y = data(seed=103, loss=Logistic(), sparse=True)
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    results = [
        ss.coordinate_descent(ss.Problem(matrix, y, "logistic", ss.L1(0.02)), sampling="cyclic", tol=1e-9)
        for matrix in (X, wide)
    ]
    assert ss.Problem(wide, y, "logistic").columns.indices.dtype == np.uint64
    np.testing.assert_array_equal(results[0].coef, results[1].coef)


@pytest.mark.parametrize("sampling", ["safe", "importance", "optimal"])
def test_the_seed_decides_everything(sampling):
    problem = ZOO["squared-l1-sample_weight"]

    def solve(seed):
        return ss.coordinate_descent(problem, sampling=sampling, max_epochs=3, tol=1e-15, random_state=seed)

    one, again, other = solve(5), solve(5), solve(6)
    np.testing.assert_array_equal(one.coef, again.coef)
    np.testing.assert_array_equal(one.trace["objective"], again.trace["objective"])
    assert (one.coef != other.coef).any()
    np.testing.assert_array_equal(one.coef, solve(np.random.default_rng(5)).coef)
    assert (solve(None).coef != solve(None).coef).any()


def test_rows_of_the_trace_do_not_change_the_iterates():
    problem = ZOO["squared-l1-sample_weight"]
    points = {}
    for trace_every in (1, 5, 0.25):
        for bounds in ("snapshot", "exact"):
            seen = points.setdefault((trace_every, bounds), {})
            ss.coordinate_descent(
                problem,
                bounds=bounds,
                max_epochs=20,
                tol=1e-15,
                trace_every=trace_every,
                callbacks=[lambda progress, seen=seen: seen.update({progress.row["epoch"]: progress.x.copy()})],
            )
    for bounds in ("snapshot", "exact"):
        for epoch in (5, 10, 15, 20):
            for trace_every in (5, 0.25):
                np.testing.assert_array_equal(points[trace_every, bounds][epoch], points[1, bounds][epoch])
        assert (points[1, bounds][19] != points[1, bounds][20]).any()


@pytest.mark.parametrize("step", STEPS)
def test_safe_sampling_with_exact_bounds_is_the_optimal_sampling(step):
    problem = ZOO["squared-l1-sample_weight"]
    safe, optimal = (
        ss.coordinate_descent(problem, sampling=sampling, bounds="exact", step=step, tol=1e-8)
        for sampling in ("safe", "optimal")
    )
    np.testing.assert_array_equal(safe.trace["objective"], optimal.trace["objective"])
    np.testing.assert_array_equal(safe.coef, optimal.coef)


# Starts and edges


def test_warm_starts():
    problem = ZOO["squared-l1-intercept"]
    options = dict(sampling="cyclic", step="exact")
    first = ss.coordinate_descent(problem, tol=1e-10, **options)
    assert first.intercept != 0.0
    for start in (first, np.append(first.coef, first.intercept), [*first.coef, first.intercept]):
        again = ss.coordinate_descent(problem, tol=1e-9, warm_start=start, **options)
        assert again.status is ss.Status.CONVERGED
        assert again.n_steps == 0
        np.testing.assert_array_equal(again.coef, first.coef)
        assert again.intercept == first.intercept
    near = ss.coordinate_descent(problem.with_regularizer(ss.L1(0.049)), tol=1e-10, warm_start=first, **options)
    far = ss.coordinate_descent(problem.with_regularizer(ss.L1(0.049)), tol=1e-10, **options)
    assert near.n_steps < far.n_steps
    kept = np.append(first.coef, first.intercept)
    ss.coordinate_descent(problem, max_epochs=2, tol=1e-15, warm_start=kept, **options)
    np.testing.assert_array_equal(kept, np.append(first.coef, first.intercept))  # not written to


def test_a_warm_start_is_brought_within_the_bounds():
    problem = ZOO["squared-l1-sample_weight"].with_regularizer(ss.Box(-0.1, 0.2))
    result = ss.coordinate_descent(problem, max_epochs=0, warm_start=np.linspace(-1, 1, 8))
    np.testing.assert_array_equal(result.coef, np.clip(np.linspace(-1, 1, 8), -0.1, 0.2))


@pytest.mark.parametrize("name", ["squared-l1-sample_weight", "squared-l1-intercept"])
def test_from_alpha_max_on_everything_is_zero(name):
    problem = ZOO[name]
    alpha = problem.alpha_max()
    for factor in (1.01 if problem.fit_intercept else 1.0 + 1e-9, 2.0):  # on the way to the best intercept others move
        result = ss.coordinate_descent(problem.with_regularizer(ss.L1(factor * alpha)), sampling="cyclic", tol=1e-10)
        np.testing.assert_array_equal(result.coef, np.zeros(8))
        assert result.status.success
    below = ss.coordinate_descent(problem.with_regularizer(ss.L1(0.99 * alpha)), sampling="cyclic", tol=1e-10)
    assert np.count_nonzero(below.coef) >= 1


@pytest.mark.parametrize("sampling", ["safe", "importance", "uniform", "cyclic", "greedy"])
def test_an_empty_column_stays_at_zero_and_is_never_drawn(sampling):
    problem = ZOO["logistic-l1-sparse"]
    assert problem.norms[4] == 0.0
    method = CoordinateDescent(problem, sampling, "exact", "auto", "coordinate", np.zeros(8), 0)
    assert 4 not in method.active
    start = np.full(8, 0.5)
    result = ss.coordinate_descent(problem, sampling=sampling, step="exact", tol=1e-8, warm_start=start)
    assert result.status is ss.Status.CONVERGED
    assert result.coef[4] == 0.0
    assert result.n_steps == 7 * result.n_epochs
    free = problem.with_regularizer(None)  # nothing pulls the coefficient anywhere
    result = ss.coordinate_descent(free, sampling=sampling, step="exact", max_epochs=3, tol=1e-15, warm_start=start)
    assert result.coef[4] == 0.5


@pytest.mark.parametrize("sampling", ["safe", "optimal", "importance", "uniform", "cyclic", "greedy"])
@pytest.mark.parametrize("regularizer", [ss.L1(0.1), ss.NoPenalty()], ids=["l1", "none"])
def test_nothing_but_empty_columns(sampling, regularizer):
    problem = ss.Problem(np.zeros((5, 3)), np.arange(5.0), "squared", regularizer)
    for smoothness in ("coordinate", "constant"):
        result = ss.coordinate_descent(problem, sampling=sampling, smoothness=smoothness)
        np.testing.assert_array_equal(result.coef, np.zeros(3))
        assert result.status.success
        assert result.n_steps == 0
    if isinstance(regularizer, ss.L1):  # from elsewhere the penalty alone decides
        result = ss.coordinate_descent(problem, sampling=sampling, warm_start=[1.0, 2.0, 3.0])
        np.testing.assert_array_equal(result.coef, np.zeros(3))


@pytest.mark.parametrize("sampling", ["safe", "importance", "cyclic"])
def test_one_feature(sampling):
    problem = ss.Problem([[1.0], [2.0], [-1.0]], [1.0, 1.0, 0.0], "squared", ss.L1(0.1))
    result = ss.coordinate_descent(problem, sampling=sampling, bounds="snapshot" if sampling == "safe" else "auto")
    np.testing.assert_allclose(result.coef, [(3.0 - 0.3) / 6.0], rtol=1e-12)
    assert result.n_epochs <= 2


def test_certified_optimal_before_the_tolerance():
    """Where every upper bound is 0 there is nothing left to draw."""
    problem = ss.Problem(np.eye(3), [3.0, 0.0, 0.0], "squared", ss.L1(0.5))
    result = ss.coordinate_descent(problem, bounds="exact", tol=1e-300, warm_start=[1.5, 0.0, 0.0], max_epochs=5)
    assert result.status.success
    np.testing.assert_array_equal(result.coef, [1.5, 0.0, 0.0])


# Divergence


class Reckless(NamedTuple):
    """One coordinate after the other, with a value that is a millionth of what it should be."""

    smoothness: np.ndarray
    position: np.ndarray
    factor: float


@draw.register(Reckless)
def _(sampler, lower, upper, rng):
    i = sampler.position[0]
    sampler.position[0] = (i + 1) % sampler.smoothness.size
    return i, 1.0, sampler.factor * sampler.smoothness[i]


@pytest.mark.parametrize("trace_every", [1, 1000], ids=["soon", "beyond the largest float"])
@pytest.mark.parametrize("bounds", ["snapshot", "exact"])
def test_divergence_is_reported(bounds, trace_every):
    problem = ZOO["squared-l1-sample_weight"]
    sampler = Reckless(problem.smoothness, np.zeros(1, np.int64), 1e-6)
    result = ss.coordinate_descent(problem, sampling=sampler, bounds=bounds, trace_every=trace_every)
    assert result.status is ss.Status.DIVERGED
    assert not result.status.success
    assert np.isfinite(result.coef).all()
    assert np.isfinite([result.objective, result.gap]).all()
    assert result.objective == np.nanmin(result.trace["objective"])
    assert "try step='exact', or check_bounds=True" in result.message
    np.testing.assert_array_equal(result.coef, np.zeros(8))
    tamed = ss.coordinate_descent(problem, sampling=sampler, bounds=bounds, step="exact", tol=1e-8)
    assert tamed.status is ss.Status.CONVERGED
    np.testing.assert_allclose(tamed.coef, reference_solution(problem), atol=1e-3)


# Bad arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(sampling="best"), r"sampling must be one of 'safe', .*'greedy', got 'best'"),
        (dict(sampling=3), r"sampling must be one of .* got 3"),
        (dict(step="huge"), r"step must be one of 'adaptive', 'fixed', 'exact', got 'huge'"),
        (dict(step=0.1), r"step must be one of .* got 0.1"),
        (dict(bounds="tight"), r"bounds must be one of .* or a tracker, got 'tight'"),
        (dict(bounds=None), r"bounds must be one of .* got None"),
        (dict(sampling="optimal", bounds="snapshot"), r"sampling='optimal' needs bounds='exact', got 'snapshot'"),
        (dict(sampling="greedy", bounds="cauchy-schwarz"), r"sampling='greedy' needs bounds='exact'"),
        (dict(sampling="optimal", bounds="tight"), r"bounds must be one of"),
        (dict(smoothness="none"), r"smoothness must be one of 'auto', 'coordinate', 'constant', 'unit', got 'none'"),
        (dict(max_epochs=-1), r"max_epochs must not be negative, got -1"),
        (dict(max_epochs=np.nan), r"max_epochs must not be negative, got nan"),
        (dict(tol=0.0), r"tol must be positive and finite, got 0.0"),
        (dict(tol=-1e-3), r"tol must be positive and finite, got -0.001"),
        (dict(tol=np.nan), r"tol must be positive and finite, got nan"),
        (dict(tol=np.inf), r"tol must be positive and finite, got inf"),
        (dict(trace_every=0), r"trace_every must be positive, got 0"),
        (dict(trace_every=np.nan), r"trace_every must be positive, got nan"),
        (dict(trace_every=np.inf, max_epochs=np.inf), r"trace_every and max_epochs must not both be infinite"),
        (dict(warm_start=np.zeros(7)), r"warm_start must have shape \(8,\), got \(7,\)"),
        (dict(warm_start=[0, 0, np.nan, 0, 0, 0, 0, 0]), r"warm_start\[2\] is not finite"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ss.coordinate_descent(ZOO["squared-l1-sample_weight"], **arguments)


def test_the_wrong_problem_is_named():
    with pytest.raises(ValueError, match=r"problem must be a surestep.Problem, got ndarray"):
        ss.coordinate_descent(np.zeros((2, 2)))
    result = ss.coordinate_descent(ss.Problem([[1.0], [2.0]], [1.0, 2.0]), sampling="cyclic")
    with pytest.raises(ValueError, match=r"warm_start has 1 coefficients, the problem has 8 features"):
        ss.coordinate_descent(ZOO["squared-l1-sample_weight"], warm_start=result)
