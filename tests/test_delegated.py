"""Delegated margins: safe whatever arrives when, on threads and on a real cluster, and after a worker has died."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep.bounds.delegated import DelegatedMargins
from surestep.bounds.margins import margins, row_norms
from surestep.design import lines_between
from surestep.distributed.delegated import make_crew
from surestep.solvers import _sgd_blocks
from surestep.solvers._orbit import X as POSITION
from surestep.solvers._sgd_blocks import StochasticGradientDescent
from surestep.solvers._stochastic import BUDGET, KEEP, OTHER, TIME, flush
from zoo import LOSSES, REGULARIZERS, _dense, data, problems, reference_optimum

PROBLEM = dict(problems())["logistic-l2-sample_weight-intercept-sparse"]
PLAIN = {"variance_reduction": False, "bounds": "delegated", "tol": 1e-12}


class Unreliable:
    """A crew in no hurry: it computes what it is sent or not, delivers at once, later, again, in any order, never."""

    def __init__(self, problem, n_parts, seed, diligence=0.5, delivery=0.5, never=()):
        edges = np.linspace(0, problem.n_samples, n_parts + 1).astype(int)
        self.parts = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self.rng, self.A = np.random.default_rng(seed), _dense(problem)
        self.diligence, self.delivery, self.never, self.done = diligence, delivery, never, []

    def send(self, x):
        for part, rows in enumerate(self.parts):
            if part not in self.never and self.rng.random() < self.diligence:
                self.done.append((part, x, self.A[rows] @ x))

    def arrived(self):
        news = [report for report in self.done if self.rng.random() < self.delivery]
        self.rng.shuffle(self.done)
        self.done = self.done[: self.rng.integers(0, 20)]  # some of it again, some of it lost
        return news


def made(seed, regularizer, weighted, intercept, n=24):
    rng = np.random.default_rng(seed)
    X, y = data(seed, LOSSES["logistic"], sparse=True, n=n, d=8)
    X = X.multiply(np.exp(rng.normal(size=(n, 1)))).tocsc()
    weights = rng.pareto(1.5, n) if weighted else None
    return ss.Problem(X, y, "logistic", regularizer, sample_weight=weights, fit_intercept=intercept)


def started(problem, crew, x=None, seed=0, **options):
    x = np.zeros(problem.n_coordinates) if x is None else x
    return StochasticGradientDescent(problem, "safe", False, "auto", x, seed, crew=crew, **options)


def position(method):
    flush(method.penalty, method.powers, method.state)
    return method.state.coordinates[:, POSITION].copy()


# Safety


@given(seed=st.integers(0, 10_000), n_parts=st.integers(1, 5), size=st.sampled_from([0.0, 1e-6, 1.0, 100.0]))
def test_margins_are_as_near_as_the_distance_says(seed, n_parts, size):
    problem = made(seed, None, weighted=False, intercept=seed % 2 == 0)
    tracked = DelegatedMargins(Unreliable(problem, n_parts, seed), problem.n_samples)
    norms, rng = row_norms(problem.design.rows, problem.fit_intercept), np.random.default_rng(seed)
    x = rng.normal(size=problem.n_coordinates)
    for _ in range(12):
        tracked.exchange(x.copy())
        distances = tracked.distances
        for there in (x, x + size * rng.normal(size=x.size)):
            for part, distance in zip(tracked.parts, tracked.distances_from(there), strict=True):
                away = np.abs(problem.predictor(there) - tracked.z)[part]
                rounding = 1e-14 * (10.0 + np.linalg.norm(there) + np.linalg.norm(x))
                assert distance == np.inf or (away <= norms[part] * (distance + rounding)).all()
        np.testing.assert_array_equal(distances, tracked.distances_from(x))
        x += size * rng.normal(size=x.size)
    # What has arrived says how old it is.
    assert np.isnan(tracked.staleness(x)) == (tracked.n_arrived == 0)
    if tracked.n_arrived and size:
        assert tracked.staleness(x) > 0.0


def test_nearer_margins_are_kept():
    problem = made(0, None, weighted=False, intercept=False)
    crew = Unreliable(problem, 1, 0)
    tracked = DelegatedMargins(crew, problem.n_samples)
    near, far, x = np.full(8, 0.1), np.full(8, 5.0), np.zeros(8)

    def deliver(*points):
        crew.arrived = lambda: [(0, point, problem.predictor(point)) for point in points]
        tracked.exchange(x)
        return tracked.distances[0]

    assert deliver() == np.inf
    assert deliver(far) == pytest.approx(np.linalg.norm(far))
    assert deliver(near, far) == deliver(far) == pytest.approx(np.linalg.norm(near))
    np.testing.assert_array_equal(tracked.z, problem.predictor(near))
    assert deliver(np.full(8, np.nan)) == pytest.approx(np.linalg.norm(near))
    assert tracked.n_arrived == 5


@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from([*REGULARIZERS, "ball", "ball_l2"]),
    weighted=st.booleans(),
    intercept=st.booleans(),
    n_parts=st.integers(1, 4),
    diligence=st.sampled_from([0.05, 0.5, 1.0]),
    silent=st.booleans(),
)
@settings(max_examples=40)
def test_bounds_hold_after_every_step(seed, name, weighted, intercept, n_parts, diligence, silent):
    regularizer = {"ball": None, "ball_l2": ss.L2(0.1)}.get(name, REGULARIZERS.get(name))
    problem = made(seed, regularizer, weighted, intercept)
    crew = Unreliable(problem, n_parts, seed, diligence, never={0} if silent else ())
    x = np.random.default_rng(seed).normal(size=problem.n_coordinates)
    x = np.clip(x, problem.penalty.lower, problem.penalty.upper)
    method = started(problem, crew, x, seed, radius=1.0 if name.startswith("ball") else None)
    method.check_bounds = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sgd_blocks, "_WORTH", 2.0)  # to draw from bounds however little they tell
        bounded = 0
        for _ in range(12):
            method.advance(1.0)
            bounded += method.state.totals[BUDGET] < np.inf
    assert (bounded > 0) == (method.delegated.n_arrived > 0) or diligence < 0.5
    if silent:
        assert method.delegated.distances[0] == np.inf


def test_check_bounds_finds_margins_that_are_wrong(monkeypatch):
    monkeypatch.setattr(_sgd_blocks, "_WORTH", 2.0)
    crew = Unreliable(PROBLEM, 2, 0, diligence=1.0, delivery=1.0)
    method = started(PROBLEM, crew, x=np.ones(PROBLEM.n_coordinates))
    method.check_bounds = True
    method.advance(2.0)
    crew.A = crew.A + 1.0
    with pytest.raises(ss.BoundViolationError, match="do not contain the norm"):
        method.advance(4.0)


def test_stale_sampling_is_unbiased_and_its_variance_between_that_of_optimal_and_importance_sampling(monkeypatch):
    """sum c_i^2 / p_i of Appendix A.2, after every step, with Pareto weights."""
    monkeypatch.setattr(_sgd_blocks, "_WORTH", 2.0)
    problem = made(3, ss.L2(0.3), weighted=True, intercept=True, n=60)
    method = started(problem, Unreliable(problem, 3, 1, delivery=0.3, never={2}))
    gained, method.check_bounds = [], True  # one step at a time
    for _ in range(60 * 60):
        x = position(method)
        if (
            0 < method.state.totals[TIME] < method._length
            and method._distance() <= method.state.totals[BUDGET] < np.inf
        ):
            keep, other = method.state.samples[:, KEEP], method.state.samples[:, OTHER].astype(int)
            p = (keep + np.bincount(other, 1.0 - keep, minlength=keep.size)) / keep.size
            c = method.scale * np.abs(problem.derivative(problem.predictor(x)))
            assert (p[c > 0.0] > 0.0).all()
            variance = np.sum(c[c > 0.0] ** 2 / p[c > 0.0])
            fixed = method.scale.sum() * np.sum(c[c > 0.0] ** 2 / method.scale[c > 0.0])
            assert c.sum() ** 2 <= variance * (1.0 + 1e-12)
            assert variance <= fixed * (1.0 + 1e-9)
            gained.append(variance / fixed)
        method.advance(1.0 / 60)
    assert len(gained) > 500
    assert np.mean(np.array(gained) < 0.95) > 0.1


# Threads


def test_a_thread_of_this_process_will_do():
    waited = []

    def wait(progress):  # as a run that takes longer would
        waited.append(time.sleep(0.01))

    result = ss.stochastic_gradient_descent(
        PROBLEM, **PLAIN, average="weighted", max_epochs=100, callbacks=[wait], check_bounds=True
    )
    optimum = reference_optimum(PROBLEM)
    assert result.objective - optimum <= 0.02 * (PROBLEM.objective(np.zeros(PROBLEM.n_coordinates)) - optimum)
    assert not [thread for thread in threading.enumerate() if thread.name == "surestep-margins"]
    arrived, staleness = result.trace["arrived"], result.trace["staleness"]
    assert arrived[0] == 0.0
    assert np.isnan(staleness[0])
    assert (np.diff(arrived) >= 0.0).all()
    assert arrived[-1] > 10
    assert np.isfinite(staleness[-1])


def test_nothing_is_left_running_after_an_error():

    def fail(progress):
        if progress.row["epoch"] == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ss.stochastic_gradient_descent(PROBLEM, **PLAIN, callbacks=[fail])
    assert not [thread for thread in threading.enumerate() if thread.name == "surestep-margins"]


@pytest.mark.parametrize("sparse", [False, True])
def test_margins_of_parts(sparse):
    X, y = data(5, LOSSES["logistic"], sparse=sparse, n=11)
    problem = ss.Problem(X, y, "logistic", fit_intercept=True)
    x = np.arange(9.0)
    parts = [margins(lines_between(problem.design.rows, a, b), True, x) for a, b in ((0, 4), (4, 5), (5, 11))]
    np.testing.assert_allclose(np.concatenate(parts), problem.predictor(x), rtol=1e-12)


class Failing:
    """A Dask client with two threads, whose tasks fail a number of times."""

    asynchronous = False

    def __init__(self, failures):
        self.failures, self.handed_out = failures, []

    def nthreads(self):
        return {"one": 1, "two": 1}

    def scatter(self, values, hash):
        self.handed_out += values
        return [Future(lambda value=value: value) for value in values]

    def submit(self, function, rows, has_intercept, x, pure):
        def compute():
            self.failures -= 1
            if self.failures >= 0:
                raise ConnectionError("lost")
            return function(rows.result(), has_intercept, x.result())

        return Future(compute)


class Future:
    def __init__(self, result):
        self.result = result

    def cancel(self):
        pass


def collected(crew, n, seconds=60.0):
    """The next n reports."""
    reports, end = [], time.monotonic() + seconds
    while len(reports) < n:
        assert time.monotonic() < end, f"only {len(reports)} of {n} reports came"
        reports += crew.arrived()
        time.sleep(0.01)
    return reports


@pytest.mark.parametrize("failures", [2, 3])
def test_parts_that_fail_are_handed_out_again_but_not_for_ever(failures):
    client = Failing(failures)
    crew = make_crew(PROBLEM.design.rows, True, client)
    crew._threads = crew._threads[:1]
    x = np.ones(PROBLEM.n_coordinates)
    with crew:
        crew.send(x)
        if failures == 2:
            [(part, point, z)] = collected(crew, 1)
            assert (part, point is x) == (0, True)
            np.testing.assert_allclose(z, PROBLEM.predictor(x)[:15])
            assert sum(isinstance(value, tuple) for value in client.handed_out) == 3
        else:
            with pytest.raises(RuntimeError, match=r"rows 0 to 14 could not be computed.*ConnectionError: lost"):
                collected(crew, 1)


# A cluster


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="needs dask and distributed: pip install 'surestep[dask]'")
    with (
        distributed.LocalCluster(
            n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def test_cluster_with_a_worker_that_dies(client):
    x = np.linspace(-1.0, 1.0, PROBLEM.n_coordinates)
    with make_crew(PROBLEM.design.rows, True, client) as crew:
        assert crew.parts == [slice(0, 15), slice(15, 30)]
        for scale in (1.0, 2.0, 3.0):
            point = scale * x
            crew.send(point)
            reports = [report for report in collected(crew, 2) if report[1] is point]
            while {part for part, _, _ in reports} != {0, 1}:
                reports += [report for report in collected(crew, 1) if report[1] is point]
            for part, _, z in reports:
                np.testing.assert_allclose(z, PROBLEM.predictor(point)[crew.parts[part]], rtol=1e-12)
            if scale == 1.0:
                _kill_one_that_has_rows(client)
    _wait_until_empty(client)


def test_run_on_a_cluster(client):
    """The active client is used; a worker dies in the middle."""
    n_arrived = []  # since the worker is dead

    def look(progress):
        time.sleep(0.02)
        if n_arrived or progress.row["arrived"] >= 2:
            n_arrived.append(progress.row["arrived"])
            if len(n_arrived) == 1:
                _kill_one_that_has_rows(client)
            progress.stop = len(n_arrived) >= 200 and n_arrived[-1] > n_arrived[0] + 10

    with client.as_current():
        result = ss.stochastic_gradient_descent(
            PROBLEM, **PLAIN, average="weighted", max_epochs=3000, callbacks=[look], check_bounds=True
        )
    assert result.status is ss.Status.STOPPED
    optimum = reference_optimum(PROBLEM)
    assert result.objective - optimum <= 0.02 * (PROBLEM.objective(np.zeros(PROBLEM.n_coordinates)) - optimum)
    _wait_until_empty(client)


def _kill_one_that_has_rows(client):
    pids = client.run(os.getpid)
    holders = [
        worker for worker, keys in client.has_what().items() if any(str(key).startswith("Sparse") for key in keys)
    ]
    os.kill(pids[holders[0]], signal.SIGKILL)


def _wait_until_empty(client):
    """Nothing of a run is left on the cluster."""
    end = time.monotonic() + 10.0
    while tasks := client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks))):
        assert time.monotonic() < end, f"{tasks} are left"
        time.sleep(0.05)


# What goes wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(bounds="exact"), "bounds must be one of 'auto', 'delegated', got 'exact'"),
        (dict(bounds="delegated"), "needs sampling='safe' and variance_reduction=False"),
        (dict(bounds="delegated", variance_reduction=False, sampling="optimal"), "needs sampling='safe'"),
        (dict(client=Failing(0)), "client is for bounds='delegated'"),
        (dict(bounds="delegated", variance_reduction=False, client="tcp://host:8786"), "got 'tcp://host:8786'"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        ss.stochastic_gradient_descent(PROBLEM, **options)
