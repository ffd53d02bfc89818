"""SGD over row partitions: drawing in two steps is safe, nothing here is as long as the rows, workers may die."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep.bounds.parts import shares_in_part, shares_of_parts
from zoo import LOSSES, REGULARIZERS, data, reference_optimum

pytest.importorskip("distributed", reason="data in row partitions need Dask, the extra [dask]")

import dask.array as da

import in_process
from surestep.distributed import PartitionedProblem, _dealer, cluster
from surestep.distributed._dealer import Dealer
from surestep.solvers import _sgd_dealt
from surestep.solvers._sgd_dealt import GOAL, RATIO, WEIGHT, DealtDescent
from surestep.solvers._stochastic import BUDGET, SHARE
from test_distributed import wait_for

PLAIN = {"variance_reduction": False, "bounds": "delegated", "tol": 1e-12}


@pytest.fixture
def near():
    """A client whose workers are in this process."""
    return in_process.Client()


def made(
    client, seed=0, regularizer=None, sparse=True, weighted=True, intercept=True, n=60, loss="logistic", n_parts=4
):
    """A problem, and the same in partitions."""
    rng = np.random.default_rng(seed)
    X, y = data(seed, LOSSES[loss], sparse=sparse, n=n, d=8)
    X = scipy.sparse.csr_array(X.multiply(np.exp(rng.normal(size=(n, 1))))) if sparse else X
    weights = rng.pareto(1.5, n) if weighted else None
    options = dict(loss=loss, regularizer=regularizer, sample_weight=weights, fit_intercept=intercept)
    parts = da.from_array(X, chunks=(-(-n // 4), 8), asarray=False)
    return ss.Problem(X, y, **options), PartitionedProblem(parts, y, client=client, **options)


# --- Drawing a part, then a row


@st.composite
def boxes(draw):
    """Parts of rows: bounds, a scale, and something within the bounds."""
    seed, n_parts = draw(st.integers(0, 10_000)), draw(st.integers(1, 6))
    kind = draw(st.sampled_from(["wide", "narrow", "exact", "from zero"]))
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(n_parts):
        n = rng.integers(1, 12)
        scale = np.exp(2.0 * rng.normal(size=n))
        c = scale * np.exp(2.0 * rng.normal(size=n)) * (rng.random(n) < 0.8)
        width = {"wide": 3.0, "narrow": 0.2, "exact": 0.0, "from zero": 1.0}[kind]
        lower, upper = c * np.exp(-width * rng.random(n)), c * np.exp(width * rng.random(n))
        parts.append((0.0 * lower if kind == "from zero" else lower, upper, scale, c))
    return kind, parts


@given(boxes())
def test_drawing_in_two_steps_is_safe(drawn):
    """Its variance is no more than v, which is no more than that of p ~ scale; and least where all is known."""
    kind, parts = drawn
    shares, bounds = zip(*(shares_in_part(lower, upper, scale) for lower, upper, scale, _ in parts), strict=True)
    q, v = shares_of_parts(list(bounds))
    assert v <= sum(scale.sum() for *_, scale, _ in parts) * (1 + 1e-12)
    variance = fixed = total = 0.0
    for share, p, (_, _, scale, c) in zip(q, shares, parts, strict=True):
        moves = c > 0.0
        assert np.all(share * p[moves] > 0.0)
        variance += np.sum(c[moves] ** 2 / (share * p[moves]))
        fixed, total = fixed + np.sum(c**2 / scale), total + c.sum()
    assert variance <= v * fixed * (1 + 1e-9)
    assert total**2 <= variance * (1 + 1e-9)
    if kind == "exact" and total > 0.0:
        assert variance == pytest.approx(total**2, rel=1e-9)
        np.testing.assert_allclose(q, [c.sum() / total for *_, c in parts], atol=1e-9)


@given(boxes())
def test_bounds_of_a_part_hold(drawn):
    _, parts = drawn
    for lower, upper, scale, c in parts:
        p, bounds = shares_in_part(lower, upper, scale)
        size = np.sqrt(np.sum(c[p > 0.0] ** 2 / p[p > 0.0]))
        assert bounds.lower <= size * (1 + 1e-12)
        assert size <= bounds.upper * (1 + 1e-12)
        assert bounds.value <= scale.sum() * (1 + 1e-12)


def dealt_once(problem, within, n_rows=40, seed=0):
    x = np.full(problem.n_coordinates, 0.3)
    with Dealer(problem) as dealer:
        dealer.ask(x, within, n_rows, seed)
        return dealer, dealer.hand()


def matrix(lines):
    """Rows, as an array."""
    if not hasattr(lines, "starts"):
        return lines.values
    return scipy.sparse.csr_array(lines[:3], shape=(lines.starts.size - 1, lines.length)).toarray()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("within", [0.5, np.inf])
def test_rows_that_are_dealt_are_what_they_are_drawn_as(within, sparse, near, monkeypatch):
    """Row by row: the matrix, the target and the weight of one row, and s_i / (q_k p_i) of the two draws."""
    monkeypatch.setattr(_dealer, "_WORTH", 2.0)
    local, parted = made(near, sparse=sparse)
    dealer, hand = dealt_once(parted, within, n_rows=500)
    rows, X = matrix(hand.rows), matrix(local.design.rows)
    x, n = np.full(9, 0.3), 15
    known = [_dealer.measured(future.value, parted.spec) for future in parted.partitions.futures]
    draws = [_dealer.fixed_draws(k) if within == np.inf else _dealer.safe_draws(k, x, within) for k in known]
    if within == np.inf:
        q = np.array([k.scale.sum() for k in known]) / dealer.known.scale
    else:
        q, _ = shares_of_parts([draw.bounds for draw in draws])
    p = np.concatenate([share * draw.p for share, draw in zip(q, draws, strict=True)])
    np.testing.assert_allclose(p.sum(), 1.0)
    for row, facts in zip(rows, hand.facts, strict=True):
        (i,) = np.flatnonzero((row == X).all(axis=1) & (local.y == facts[GOAL]))
        assert facts[WEIGHT] == pytest.approx(local.weights[i])
        assert facts[RATIO] * p[i] == pytest.approx(local.weights[i])
    drawn = np.bincount(hand.order, minlength=len(rows))
    assert drawn.min() >= 1
    assert drawn.sum() == 500
    assert len(known) == 4
    assert known[0].norms.size == n


def test_rows_are_drawn_as_often_as_they_should_be(near, monkeypatch):
    """A chi-squared test of 200,000 rows, by a given seed: parts, rows, and that one draw says nothing of the next."""
    monkeypatch.setattr(_dealer, "_WORTH", 2.0)
    _, parted = made(near, weighted=False)
    _, hand = dealt_once(parted, 0.5, n_rows=200_000)
    p = hand.facts[:, WEIGHT] / hand.facts[:, RATIO]
    assert p.sum() == pytest.approx(1.0)  # every row that may be drawn was
    for order in (hand.order, hand.order[::2], hand.order[:50_000]):
        counts = np.bincount(order, minlength=p.size)
        chi = np.sum((counts - order.size * p) ** 2 / (order.size * p))
        assert chi < p.size + 4.0 * np.sqrt(2.0 * p.size)
    pairs = np.bincount(hand.order[::2] * p.size + hand.order[1::2], minlength=p.size**2)
    expected = 100_000 * np.outer(p, p).ravel()
    likely = expected > 20.0
    chi = np.sum((pairs - expected)[likely] ** 2 / expected[likely])
    assert chi < likely.sum() + 4.0 * np.sqrt(2.0 * likely.sum())


# --- Steps


@given(
    seed=st.integers(0, 1000),
    name=st.sampled_from([*REGULARIZERS, "ball", "ball_l2"]),
    intercept=st.booleans(),
    room=st.sampled_from([0.3, 3.0]),
    batch=st.sampled_from([1, 3]),
)
@settings(max_examples=12)
def test_bounds_hold_after_every_step(seed, name, intercept, room, batch):
    """Of all rows in the hand, wherever x is; and where there is too little room, hands are given up."""
    regularizer = {"ball": None, "ball_l2": ss.L2(0.1)}.get(name, REGULARIZERS.get(name))
    _, problem = made(in_process.Client(), seed, regularizer, intercept=intercept, n=24)
    with pytest.MonkeyPatch.context() as patch, Dealer(problem) as dealer:
        patch.setattr(_dealer, "_WORTH", 2.0)
        patch.setattr(_sgd_dealt, "_ROOM", room)
        x = np.clip(np.ones(problem.n_coordinates), problem.penalty.lower, problem.penalty.upper)
        radius = 1.0 if name.startswith("ball") else None
        method = DealtDescent(problem, "safe", False, "auto", x, seed, batch_size=batch, radius=radius, crew=dealer)
        method.check_bounds, bounded = True, 0
        for _ in range(8):
            method.advance(1.0)
            bounded += method.state.totals[BUDGET] < np.inf
        assert bounded > 0
        assert method.n_steps * batch >= 8 * 24


def test_bounds_that_are_wrong_are_found(near, monkeypatch):
    monkeypatch.setattr(_dealer, "_WORTH", 2.0)
    wrong = _dealer.margins
    monkeypatch.setattr(_dealer, "margins", lambda *arguments: wrong(*arguments) + 3.0)
    _, problem = made(near, regularizer=ss.L2(0.1))
    with pytest.raises(ss.BoundViolationError, match="do not contain the norm"):
        ss.stochastic_gradient_descent(problem, **PLAIN, check_bounds=True, max_epochs=20)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_it_comes_as_near_as_with_rows_here(loss, near):
    local, parted = made(near, 1, ss.ElasticNet(0.1, l1_ratio=0.3), loss=loss, n=200)
    optimum = reference_optimum(local)
    at_zero = local.objective(np.zeros(local.n_coordinates)) - optimum
    result = ss.stochastic_gradient_descent(parted, **PLAIN, average="weighted", max_epochs=60, trace_every=10)
    assert result.objective - optimum <= 0.02 * at_zero
    trace = result.trace
    assert trace["arrived"][0] == 0.0
    assert trace["arrived"][-1] >= 4 * 4 * 60  # parts, hands an epoch, epochs
    assert trace["bytes_received"][-1] > 0.0
    assert np.isfinite(trace["staleness"][1:]).all()
    assert trace["value_ratio"][-1] <= 1.0


def test_hands_that_come_too_late_are_dealt_again(near, monkeypatch):
    """With hardly any room x is always faster than bounds; what is then drawn is still safe, and gets there."""
    monkeypatch.setattr(_dealer, "_WORTH", 2.0)
    monkeypatch.setattr(_sgd_dealt, "_ROOM", 1e-3)
    local, parted = made(near, 1, ss.L2(0.1), n=200)
    optimum = reference_optimum(local)
    result = ss.stochastic_gradient_descent(
        parted, **PLAIN, average="weighted", max_epochs=30, trace_every=10, check_bounds=True
    )
    assert result.trace["arrived"][-1] > 4 * 4 * 30
    assert result.objective - optimum <= 0.02 * (local.objective(np.zeros(9)) - optimum)


def test_steps_that_are_too_long_are_noticed(near):
    """Where x is no number, no distance is either; nobody waits for a hand that is near enough."""
    _, problem = made(near, regularizer=ss.L2(0.1), loss="squared_hinge")
    with np.errstate(all="ignore"):
        result = ss.stochastic_gradient_descent(problem, **PLAIN, step="constant", stepsize=1e9, max_epochs=50)
    assert result.status is ss.Status.DIVERGED


def test_nothing_here_is_as_long_as_the_rows(near, monkeypatch):
    monkeypatch.setattr(_sgd_dealt, "_MOST", 16)
    _, problem = made(near, regularizer=ss.L2(0.1), n=997)
    sizes = []
    with Dealer(problem) as dealer:
        method = DealtDescent(problem, "safe", False, "auto", np.zeros(9), 0, crew=dealer)
        for _ in range(40):
            method.advance(16 / 997)
            held = [*vars(method).values(), *vars(dealer).values(), *method.state, *method._hand, *method.rows]
            sizes += [value.size for value in held if isinstance(value, np.ndarray)]
            assert method.state.samples[:, SHARE].size <= 16
    assert max(sizes) < 997 // 2


def same(one, two):
    names = ("objective", "gap", "value_ratio", "still", "staleness", "bytes_received")
    return np.array_equal(one.coef, two.coef) and all(
        np.array_equal(one.trace[name], two.trace[name], equal_nan=True) for name in names
    )


def test_what_goes_wrong(near, monkeypatch):
    _, problem = made(near, regularizer=ss.L2(0.1))
    for options in ({}, {"variance_reduction": False}):
        with pytest.raises(TypeError, match="bounds='delegated', sampling='safe' and variance_reduction=False"):
            ss.stochastic_gradient_descent(problem, **options)
    with pytest.raises(ValueError, match="client must be the one it was made with"):
        ss.stochastic_gradient_descent(problem, **PLAIN, client=in_process.Client())
    nothing = PartitionedProblem(da.zeros((8, 2), chunks=(4, 2)), np.arange(8.0), client=near)
    with pytest.raises(ValueError, match="every entry of X is zero"):
        ss.stochastic_gradient_descent(nothing, **PLAIN)

    def fail(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(_dealer, "dealt", fail)
    with pytest.raises(MemoryError, match="no room"):
        ss.stochastic_gradient_descent(problem, **PLAIN)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("surestep-dealer")]


# --- A cluster


@pytest.fixture(scope="module")
def client():
    with cluster(n_workers=2) as client:
        yield client


def left(client):
    """What a run has on the cluster."""
    keys = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
    names = tuple(f"{name}-" for name in ("measured", "known", "fixed_draws", "safe_draws", "told", "dealt", "asarray"))
    return [key for key in keys if key.startswith(names)]


def test_a_worker_that_is_killed_changes_nothing(client, monkeypatch):
    """Draws have seeds, so that what is computed anew is the same."""
    monkeypatch.setattr(_dealer, "_WORTH", 2.0)
    _, problem = made(client, regularizer=ss.L2(0.1), n=200)
    options = dict(PLAIN, max_epochs=8, average="weighted", check_bounds=True)
    expected = ss.stochastic_gradient_descent(problem, **options)
    wait_for(lambda: not left(client))
    killed = []

    def kill(progress):
        if progress.row["epoch"] == 3:
            assert left(client)
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    result = ss.stochastic_gradient_descent(problem, **options, callbacks=[kill])
    assert killed
    assert result.trace["value_ratio"].min() < 1.0
    assert result.coef == pytest.approx(expected.coef, rel=1e-12)
    wait_for(lambda: killed[0] not in client.run(os.getpid).values())
    client.wait_for_workers(2)
    wait_for(lambda: not left(client))


def test_interrupted_it_leaves_nothing(client, monkeypatch):
    _, problem = made(client, regularizer=ss.L2(0.1), n=200)
    hand = Dealer.hand

    def interrupted(self):
        if self.n_bytes > 20_000:
            raise KeyboardInterrupt
        return hand(self)

    monkeypatch.setattr(Dealer, "hand", interrupted)
    result = ss.stochastic_gradient_descent(problem, **PLAIN)
    assert result.status is ss.Status.INTERRUPTED
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("surestep-dealer")]
    wait_for(lambda: not left(client))


def test_runs_are_repeatable_by_their_seed(client, near):
    """Whoever is faster: a hand is asked for where a block begins, and waited for where it ends."""
    results = [
        ss.stochastic_gradient_descent(made(who, regularizer=ss.L2(0.1), n=200)[1], **PLAIN, max_epochs=8)
        for who in (client, near, near)
    ]
    assert same(results[1], results[2])
    assert results[0].coef == pytest.approx(results[1].coef, rel=1e-10)
