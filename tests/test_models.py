"""What minimises quadratic models: Gram matrices, descent, direct solves and their factors, copies of columns."""

from __future__ import annotations

import collections
import itertools
import math
from unittest.mock import patch

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep import losses
from surestep.regularizers import Separable
from surestep.solvers import _columns, _copies, _gram, _on_gram, _sparse_products
from surestep.solvers._gram import Gram, Products, WholeProducts
from surestep.solvers._local import LocalSamples
from surestep.solvers._prices import Price
from zoo import design


def square(gram, members):
    """Return the Gram matrix of some members without the room at the ends of its lines."""
    return gram.of(members)[:, : members.size]


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
@example(0, False, True, [6, 1, 1, 6], 5, 3, 0)  # dense columns are kept next to each other, until W has most of them
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
            matrix, chosen = square(gram, members[: begin + size]), A[:, members[: begin + size]]
        np.testing.assert_allclose(matrix, chosen.T @ (weights[:, None] * chosen), atol=1e-13)
        np.testing.assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("weights", [np.full(30, 0.5), np.linspace(0.1, 1.0, 30)], ids=["alike", "uneven"])
@pytest.mark.parametrize("order", [1, -1])
def test_gram_matrix_of_all_dense_columns(weights, order):
    A, problem = design(0, 30, 12, False, False)
    members = np.arange(12)[::order]
    matrix = square(Gram(Products(problem.columns, 30, weights)), members)
    np.testing.assert_allclose(matrix, (A.T @ (weights[:, None] * A))[::order, ::order], atol=1e-13)


@given(st.integers(0, 10_000), st.booleans())
def test_gram_matrix_of_all_sparse_columns_by_rows(seed, intercept):
    A, problem = design(seed, 17, 24, True, intercept)
    rng = np.random.default_rng(seed)
    weights = rng.random(17) * (rng.random(17) < 0.8)
    gram = Gram(WholeProducts(problem.design.rows, weights, intercept))
    for _ in range(3):
        matrix = square(gram, np.arange(A.shape[1]))
        np.testing.assert_allclose(matrix, A.T @ (weights[:, None] * A), atol=1e-13)
        np.testing.assert_array_equal(matrix, matrix.T)
        weights[rng.permutation(17)[: rng.choice([0, 3, 17])]] = rng.random()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.floats(-16.0, 16.0), st.booleans())
def test_products_in_single_precision_are_near_and_stay_positive(seed, intercept, size, alike):
    """Columns of which some depend on others, of any size: where it is none for single precision, it is double."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((300, 20)) * 10.0**size
    A[:, 1], A[:, 2] = A[:, 0], 0.0
    A[:, 3] = A[:, 4] + 1e-3 * A[:, 5]
    columns = ss.Problem(A, np.ones(300), fit_intercept=intercept).columns
    A = np.column_stack([A, np.ones(300)]) if intercept else A
    members, weights = rng.permutation(A.shape[1]), np.full(300, 0.1) if alike else rng.random(300)
    gram = Gram(Products(columns, 300, weights, single=True))
    for n in (5, 6, A.shape[1]):
        weights[rng.permutation(300)[: 300 if alike else rng.choice([10, 300])]] *= (
            rng.random()
        )  # brought up to date, or computed anew
        matrix, chosen = square(gram, members[:n]), A[:, members[:n]] * np.sqrt(weights)[:, None]
        lengths = np.linalg.norm(chosen, axis=0)
        lengths[lengths == 0.0] = 1.0
        found = matrix / lengths[:, None] / lengths
        np.testing.assert_allclose(found, (chosen / lengths).T @ (chosen / lengths), atol=2e-5)
        np.testing.assert_array_equal(matrix, matrix.T)
        assert np.min(np.linalg.eigvalsh(found)) > -1e-12


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 5.0), st.sampled_from(["all", "rows", "double"]))
def test_products_of_columns_far_from_zero_are_near_once_centred(seed, far, kind):
    """Where there is an intercept, rounding takes a part of how columns vary, not of how far from zero they are."""
    rng = np.random.default_rng(seed)
    varying = rng.standard_normal((400, 12))
    columns = ss.Problem(varying + 10.0**far * rng.random(12), np.ones(400), fit_intercept=True).columns
    rows = np.sort(rng.permutation(400)[:300]) if kind == "rows" else None
    A, members = varying[rows] if kind == "rows" else varying, np.append(12, rng.permutation(12))
    weights = rng.random(A.shape[0])
    gram = Gram(Products(columns, A.shape[0], weights, single=kind == "all", rows=rows))
    for n in (5, 13):
        weights[rng.permutation(A.shape[0])[: rng.choice([10, 300])]] *= rng.random()  # brought up to date, or anew
        found = _on_gram._centred(gram.of(members[:n]), 0)[1:, 1:]
        rest = A[:, members[1:n]] - weights @ A[:, members[1:n]] / np.sum(weights)
        scale = np.max(np.sum(weights[:, None] * rest**2, axis=0))
        np.testing.assert_allclose(found, rest.T @ (weights[:, None] * rest), atol=5e-5 * scale)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 3.0), st.integers(0, 20))
def test_solves_on_the_gram_matrix_keep_the_intercept_at_its_best(seed, far, k):
    """As if there were none, and the columns and the residual were centred; wherever it stands in W."""
    A, _, reg, r = model(seed)
    A, mean = A - A.mean(axis=0), np.random.default_rng(seed).standard_normal(20) * 10.0**far
    x, g = np.zeros(20), A.T @ r
    _on_gram.solve_on_gram(reg, x, g, A.T @ A, 1e-24)
    whole = np.insert(A + mean, k, 1.0, axis=1)
    free = Separable(*(np.insert(part, k, value) for part, value in zip(reg, (0, 0, -np.inf, np.inf), strict=True)))
    y, slopes = np.zeros(21), whole.T @ r
    _on_gram.solve_with_intercept(free, y, slopes, whole.T @ whole, k, 1e-24)
    np.testing.assert_allclose(np.delete(y, k), x, atol=1e-6)
    np.testing.assert_allclose(y[k], -np.mean(r) - mean @ np.delete(y, k), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(slopes, whole.T @ (r + whole @ y), atol=1e-7 * 10.0 ** (2 * far))


def test_a_column_that_does_not_vary_has_curvature():
    A = np.column_stack([np.ones(30), np.full(30, 1e3), np.random.default_rng(0).standard_normal(30)])
    centred = _on_gram._centred(A.T @ A, 0)
    assert np.min(np.linalg.eigvalsh(centred)) > 0.0
    np.testing.assert_array_equal(centred[0], [30.0, 0.0, 0.0])


def test_gram_products_of_some_lines_at_a_time(monkeypatch):
    A, problem = design(3, 400, 20, True, False)
    monkeypatch.setattr(_sparse_products, "CACHED", 50)
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(A, axis=1))]).astype(np.uint64)
    rows = _sparse_products.Rows(starts, starts[:-1], np.nonzero(A)[1].astype(np.uint32), A[A != 0.0])
    compiled = _sparse_products.add_products
    for kernel in (compiled, getattr(compiled, "py_func", compiled)):
        matrix = np.zeros((20, 20))
        kernel(rows, problem.weights, 0, matrix)
        np.testing.assert_allclose(np.tril(matrix), np.tril(A.T @ A / 400), atol=1e-13)


def model(seed, n=20, l1=0.3, l2=0.1):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((30, n))
    reg = Separable(np.full(n, l1), np.full(n, l2), np.full(n, -0.5), np.full(n, np.inf))
    return A, A.T @ A, reg, rng.standard_normal(30) * 3


def model_on_its_way(seed, l1, n_updates):
    """A model, with x and the gradient after some updates."""
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 0.0, n_updates)
    return A, matrix, reg, r, x, g


def value_of(A, reg, rho, x):
    return rho @ rho / 2 + reg.l1 @ abs(x) + reg.l2 @ x**2 / 2


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 100), st.booleans())
def test_a_price_is_at_least_that_of_entries_evenly_spread(across, n, dense):
    least, price = Price.at_least(n, len(across), sum(across), dense), Price.of(n, np.array(across), dense)
    assert least.product == pytest.approx(price.product)
    assert least.of_factors <= price.of_factors * (1.0 + 1e-12)
    even = Price.of(n, np.full(len(across), across[0]), dense)
    assert Price.at_least(n, len(across), len(across) * across[0], dense) == pytest.approx(even)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0, 20.0]), st.sampled_from([-math.inf, 0.0, math.inf]))
def test_descent_on_the_gram_matrix_and_by_columns_find_the_same(seed, l1, rent):
    """Whether a Gram matrix of those that move is never made, at some time, or after each look at all columns."""
    A, matrix, reg, r = model(seed, l1=l1)
    x, g = np.zeros(20), A.T @ r
    _on_gram.descend_on_gram(reg, x, g, np.diagonal(matrix) + reg.l2, matrix, 1e-24, 100_000)
    np.testing.assert_allclose(g, A.T @ (r + A @ x), atol=1e-9)
    problem = ss.Problem(A, np.ones(30))
    y, rho = np.zeros(20), np.zeros(30)
    rng = np.random.default_rng(0)
    price = Price.of(20, np.full(30, 20.0), True)
    shift, n_steps, _, spent = _columns.descend_by_columns(
        problem.columns,
        np.arange(20),
        price,
        reg,
        np.ones(30),
        A.T @ r,
        None,
        y,
        rho,
        _columns.Until(1e-24, 5_000),
        rng,
        rent,
    )
    assert shift == 0.0
    assert n_steps < 5_000 * 20
    assert spent > 0.0
    np.testing.assert_allclose(rho, A @ y, atol=1e-9)
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_of_columns_grows(dtype):
    rng = np.random.default_rng(0)
    A = (rng.normal(size=(30, 20)) * (rng.random((30, 20)) < 0.4)).astype(dtype)
    problem = ss.Problem(scipy.sparse.csc_array(A), np.ones(30))
    members = rng.permutation(20)
    copy = _copies.Copy(problem.columns, A.size)
    for n in (5, 9, 9, 20):
        lines, found = copy.of(members[:n]), np.empty((n, 30))
        assert lines.values.dtype == dtype
        for i in range(30):
            _columns.dots(lines, np.arange(n), np.eye(30)[i], found[:, i])
        np.testing.assert_array_equal(found.T, A[:, members[:n]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_copy_of_dense_columns_grows_and_is_single_where_they_fit(dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 20)).astype(dtype)
    members = rng.permutation(20)
    copy = _copies.DenseCopy(ss.Problem(np.asfortranarray(A), np.ones(30)).columns)
    for n in (5, 9, 9, 20):
        lines = copy.of(members[:n])
        assert lines.values.dtype == np.float32
        np.testing.assert_array_equal(lines.values.T, A[:, members[:n]].astype(np.float32))
    for large in (1e20, 1e-20):
        A[:, members[6]] = large
        copy = _copies.DenseCopy(ss.Problem(np.asfortranarray(A), np.ones(30)).columns)
        for n, kind in ((5, np.float32), (9, dtype), (20, dtype)):
            lines = copy.of(members[:n])
            assert lines.values.dtype == kind
            np.testing.assert_array_equal(lines.values.T, A[:, members[:n]].astype(kind))


@given(st.permutations(range(9)), st.lists(st.integers(0, 9), max_size=5))
def test_gathered_columns_grow(members, sizes):
    A = np.random.default_rng(0).normal(size=(30, 8))
    with_ones, gathered = np.column_stack([A, np.ones(30)]), _copies.Gathered(ss.Problem(A, np.ones(30)).columns)
    for n in sorted(sizes):
        np.testing.assert_array_equal(gathered.of(np.array(members[:n], int)).values.T, with_ones[:, members[:n]])


@pytest.mark.parametrize("size", [1e-130, 1e-25, 1.0, 1e25, 1e130])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("by_gram", [True, False])
def test_fits_to_dense_columns_of_any_size(loss, size, by_gram, monkeypatch):
    """Single precision serves models only: what is reached, and certified, does not depend on it."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, 60)) * size
    A[:, 1] = A[:, 0] + 1e-4 * A[:, 2]
    y = np.sign(A[:, :9].sum(axis=1) + size * rng.standard_normal(400))
    problem = ss.Problem(A, y, loss)
    monkeypatch.setattr(LocalSamples, "pays", lambda *_: by_gram)
    problem = problem.with_regularizer(ss.L1(0.02 * np.max(np.abs(problem.gradient(np.zeros(60))))))
    result = ss.minimize(problem, tol=1e-10)
    assert result.status is ss.Status.CONVERGED, result.message
    assert problem.duality_gap(result.coef).gap <= 2e-10 * problem.objective_at_zero


@settings(max_examples=100)
@given(
    st.integers(0, 10_000),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([-math.inf, 0.0, math.inf]),
)
def test_models_by_columns_end_where_they_are_lowest(seed, sparse, alike, intercept, l2, rent):
    """Columns in any order, far from centred, one of them constant; weights alike or not; an intercept or none."""
    rng = np.random.default_rng(seed)
    A = (rng.normal(size=(30, 20)) + rng.normal(size=20)) * (rng.random((30, 20)) < 0.7)
    A[:, 3] = 2.0
    d = np.full(30, 0.1 + rng.random()) if alike else rng.random(30) * (rng.random(30) < 0.8)
    members, r = rng.permutation(20)[:12], 3.0 * rng.normal(size=30)
    B, price = A[:, members], Price.of(12, np.full(30, 12.0), not sparse)
    reg = Separable(np.full(12, 0.9), np.full(12, l2), np.full(12, -np.inf), np.full(12, np.inf))
    lines = ss.Problem(scipy.sparse.csc_array(A) if sparse else A, np.ones(30)).columns
    x, rho, until = rng.normal(size=12), np.zeros(30), _columns.Until(1e-24, 5_000)
    before, rng, excess = x.copy(), np.random.default_rng(0), np.sum(r) if intercept else None
    shift, *_ = _columns.descend_by_columns(lines, members, price, reg, d, B.T @ r, excess, x, rho, until, rng, rent)
    np.testing.assert_allclose(rho, d * (B @ (x - before) + shift), atol=1e-8)
    rho += r
    assert abs(np.sum(rho)) < 1e-8 if intercept else shift == 0.0
    g = B.T @ rho + reg.l2 * x
    assert np.all(np.where(x != 0.0, abs(g + reg.l1 * np.sign(x)), np.maximum(abs(g) - reg.l1, 0.0)) < 1e-7)


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.sampled_from([0.0, 0.1]))
def test_the_gap_on_a_working_set_is_that_of_a_problem_with_its_columns_alone(seed, intercept, alike, l2):
    rng = np.random.default_rng(seed)
    A, y = rng.normal(size=(30, 12)) + rng.normal(size=12), 3.0 * rng.normal(size=30)
    problem = ss.Problem(
        A,
        y,
        regularizer=ss.L1(0.1) if l2 == 0.0 else ss.ElasticNet(0.1, 0.5),
        sample_weight=None if alike else rng.random(30) * (rng.random(30) < 0.8),
        fit_intercept=intercept,
    )
    d, start, x = problem.weights, rng.normal(size=12), rng.normal(size=12)
    r, rho, total = d * (A @ start - y), d * (A @ (x - start)), float(np.sum(d)) if intercept else math.inf
    columns = _columns.Columns(
        problem.design.columns, np.arange(12), A.T @ r, float(np.sum(r)), d, alike, total, A.T @ d, np.ones(12)
    )
    gap = _columns._gap(columns, problem.penalty.at(np.arange(12)), start, x, rho, 0.5 * d @ (A @ start - y) ** 2)
    best = np.append(x, -np.sum(r + rho) / total) if intercept else x
    with patch.object(losses, "is_never_negative", lambda _: False):  # or far from the minimum it is f
        assert gap == pytest.approx(problem.duality_gap(best).gap, rel=1e-10)


def test_a_descent_by_columns_ends_when_the_gap_on_them_is_near():
    """Columns nearly alike: long before no coordinate gains any more."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 1)) + 0.01 * rng.normal(size=(200, 150))
    problem = ss.Problem(A, A[:, 0] + rng.normal(size=200), regularizer=ss.L1(1e-2))
    price, at_zero = Price.of(150, np.full(200, 150.0), True)._replace(products=math.inf), problem.objective_at_zero

    def descend(near):
        x, until = np.zeros(150), _columns.Until(1e-12, 2_000, near, at_zero)
        state = x, np.zeros(200), until, np.random.default_rng(0)
        how = problem.columns, np.arange(150), price, problem.penalty, problem.weights
        _, n_steps, *_ = _columns.descend_by_columns(*how, problem.gradient(x), None, *state)
        return problem.duality_gap(x).gap, n_steps

    (gap, n_steps), (_, n_without) = descend(0.01 * at_zero), descend(0.0)
    assert gap <= 0.01 * at_zero
    assert n_steps < 0.5 * n_without


def test_a_descent_by_columns_ends_when_gains_are_a_part_of_the_first(monkeypatch):
    rng = np.random.default_rng(0)
    problem = ss.Problem(rng.normal(size=(60, 50)), rng.normal(size=60), regularizer=ss.L1(1e-2))
    price, largest, sweep = Price.of(50, np.full(60, 50.0), True)._replace(products=math.inf), [], _columns._sweep

    def watched(*arguments):
        found = sweep(*arguments)
        largest.append(found[1])
        return found

    monkeypatch.setattr(_columns, "_sweep", watched)
    how = problem.columns, np.arange(50), price, problem.penalty, problem.weights
    for part in (1e-2, 1e-4):
        x, until = np.zeros(50), _columns.Until(0.0, 2_000, part=part)
        state = x, np.zeros(60), until, np.random.default_rng(0)
        _columns.descend_by_columns(*how, problem.gradient(x), None, *state)
        assert largest[-1] <= part * largest[0] < min(largest[:-1])
        largest.clear()


def test_sweeps_that_are_left_follow_from_their_pace():
    gains = [math.inf] * 5 + [10.0**-k for k in range(8)]
    assert _columns._n_sweeps_left(gains, 1e-10) == pytest.approx(3.0)
    assert _columns._n_sweeps_left([*gains, 1.0], 1e-10) == math.inf


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 60))
def test_a_jump_lowers_the_model_and_keeps_signs_and_bounds(seed, l1, n_updates):
    A, matrix, reg, r, x, g = model_on_its_way(seed, l1, n_updates)
    before = x.copy()
    _on_gram.jump(reg, x, g, matrix, _on_gram.Factor())
    np.testing.assert_allclose(g, A.T @ (r + A @ x), atol=1e-8)
    assert value_of(A, reg, r + A @ x, x) <= value_of(A, reg, r + A @ before, before) + 1e-10
    assert np.all(x[before == 0.0] == 0.0)
    assert np.all((x >= reg.lower) & ((x * before >= 0.0) | (l1 == 0.0)))


@settings(max_examples=100)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 60))
def test_a_jump_without_a_matrix_lowers_the_model_and_keeps_signs_and_bounds(seed, l1, n_updates):
    """And a coordinate without bounds that is where it should be does not end its way."""
    A, _, reg, r, x, g = model_on_its_way(seed, l1, n_updates)
    orthant = _on_gram.orthant_of(reg, x)
    is_still = np.max(abs(g[orthant.places] + orthant.slope), initial=0.0) < 1e-6
    reg = Separable(*(np.append(*pair) for pair in zip(reg, (0.0, 0.0, -np.inf, np.inf), strict=True)))
    A, x, r = np.pad(A, ((0, 1), (0, 1))), np.append(x, 1.0), np.append(r, -1.0)
    A[-1, -1] = 1.0
    rho = A @ x
    before, value = x.copy(), value_of(A, reg, r + rho, x)
    lines = ss.Problem(A, np.zeros(31), fit_intercept=False).columns
    curvature, size = np.sum(A * A, axis=0) + reg.l2, x.size
    columns = _columns.Columns(
        lines, np.arange(size), A.T @ r, 0.0, np.ones(31), True, math.inf, np.zeros(size), curvature
    )
    _columns._go_towards(columns, _on_gram.orthant_of(reg, x), x, rho)
    np.testing.assert_allclose(rho, A @ x, atol=1e-8)
    assert is_still or value_of(A, reg, r + rho, x) < value
    assert np.all(x[before == 0.0] == 0.0)
    assert np.all((x >= reg.lower) & ((x * before >= 0.0) | (l1 == 0.0)))
    assert x[-1] == 1.0


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
    A, matrix, reg, r, x, g = model_on_its_way(seed, l1, 30)
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


def orthant(places, l2=0.0):
    """Some coordinates at 1, without any other penalty."""
    ones = np.ones(places.size)
    return _on_gram.Orthant(places, ones, -np.inf * ones, np.inf * ones, 0.0 * ones, l2 * ones)


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
        l2, right = rng.uniform(0.0, 0.1, places.size), rng.standard_normal(places.size)
        block = matrix[np.ix_(places, places)] + np.diag(l2)
        found = factor.solve(matrix, orthant(places, l2), right)
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
        found = factor.solve(matrix, orthant(places), right)
        np.testing.assert_allclose(matrix[np.ix_(places, places)] @ found, right, atol=1e-8)
    assert len(made) == 2  # for the first, and for the last, which are too few


def test_a_matrix_that_is_not_positive_has_no_factor():
    factor, places = _on_gram.Factor(), np.arange(3)
    assert factor.solve(-np.eye(3), orthant(places), np.ones(3)) is None
    np.testing.assert_allclose(factor.solve(np.eye(3), orthant(places), np.ones(3)), np.ones(3))


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 3.0]), st.integers(1, 60))
def test_jumps_with_and_without_a_factor_are_the_same(seed, l1, n_updates):
    _, matrix, reg, _, x, g = model_on_its_way(seed, l1, n_updates)
    y, h = x.copy(), g.copy()
    _on_gram.jump(reg, x, g, matrix, _on_gram.Factor())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_on_gram, "_FEWEST_KEPT", 0)
        _on_gram.jump(reg, y, h, matrix, _on_gram.Factor())
    np.testing.assert_allclose(y, x, atol=1e-7)
    np.testing.assert_allclose(h, g, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.sampled_from(["squared", "logistic"]), st.booleans())
def test_a_descent_by_columns_knows_where_z_goes(seed, sparse, intercept, loss, aims):
    """From what it has changed the residual by; for another change, from the columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((17, 24)) * (rng.random((17, 24)) < 0.4)
    weights = rng.random(17) * (rng.random(17) < 0.8)
    weights[:2] = 1.0
    problem = ss.Problem(
        scipy.sparse.csc_array(X) if sparse else X,
        np.where(np.arange(17) % 2, 1.0, -1.0),
        loss=loss,
        regularizer=ss.L1(0.02),
        sample_weight=weights,
        fit_intercept=intercept,
    )
    samples, x = LocalSamples(problem), np.zeros(problem.n_coordinates)
    members = np.append(rng.permutation(24)[:15], [24] if intercept else []).astype(np.int64)
    for part in (1.0, 0.5):
        samples.residuals()
        samples.bend(1e-6)
        reg, g = problem.penalty.at(members), samples.gradient(members)
        after, _ = samples.descend(reg, members, x[members], g, _columns.Until(1e-10, 20))
        change = part * (after - x[members])
        assert np.any(change != 0.0) or part != 1.0
        if aims:
            samples.aim(members, change)
            samples.go(1.0)
        else:
            samples.add(members, change)
        x[members] += change
        counted = problem.weights > 0.0
        np.testing.assert_allclose(samples._z[counted], problem.predictor(x)[counted], atol=1e-12)
