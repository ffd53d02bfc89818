"""The index in coordinate descent: its bounds hold after every step, and it solves what the scanning sampler solves."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse

import surestep as ss
from plain import uncompiled
from surestep.bounds.indexed import Indexed, make_indexed
from surestep.bounds.path import Path
from surestep.bounds.snapshot import Snapshot
from surestep.sampling.incremental import _fill_bounds
from surestep.sampling.index import solve
from surestep.sampling.samplers import Safe
from surestep.solvers import coordinate
from surestep.solvers.coordinate import CoordinateDescent

N, D = 40, 300

PENALTIES = {
    "none": ss.NoPenalty(),
    "l1": ss.L1(0.05),
    "l2": ss.L2(0.1),
    "nonnegative": ss.L1(0.1) + ss.NonNegative(),
    "box": ss.Box(-0.05, 0.02),
}


@cache
def data(sparse, badly_scaled=True):
    """X, wider than `_FEW`, with empty columns if sparse, and a noisy signal."""
    rng = np.random.default_rng(17)
    X = rng.standard_normal((N, D))
    if sparse:
        X *= rng.random((N, D)) < 0.2
        X[:, [5, 200]] = 0.0
    signal = X[:, ::30] @ rng.standard_normal(10) + 0.5 * rng.standard_normal(N)
    if badly_scaled:
        X *= np.logspace(-1.0, 1.0, D)[rng.permutation(D)]
    return (scipy.sparse.csc_array(X) if sparse else X), signal


def make_problem(loss, penalty, sparse, intercept=False, badly_scaled=True):
    X, signal = data(sparse, badly_scaled)
    y = np.sign(signal) if loss == "logistic" else signal
    return ss.Problem(X, y, loss, PENALTIES[penalty], fit_intercept=intercept)


class Watched(CoordinateDescent):
    """Coordinate descent that compares every bound of the index with the truth, after every step."""

    def _check_bounds(self):
        super()._check_bounds()
        lower, upper = index_bounds(self.sampler)
        c = self.problem.optimality(self.x)
        outside = np.flatnonzero(~((lower <= c) & (c <= upper))[self.active])
        assert outside.size == 0, (self.n_steps, self.active[outside], c[self.active[outside]])
        self.widths.append(np.mean(np.minimum(upper - lower, 1e3)[self.active]))
        self.drawable.append(np.count_nonzero(upper))


def index_bounds(sampler):
    lower, upper = np.empty((2, sampler.roots.size))
    _fill_bounds(sampler.bounds, lower, upper)
    return lower * sampler.roots, upper * sampler.roots


@pytest.fixture
def plain_python():
    with uncompiled():
        yield


@pytest.mark.parametrize("smoothness", ["coordinate", "constant"])
@pytest.mark.parametrize("bounds", ["cauchy-schwarz", "snapshot"])
@pytest.mark.parametrize(
    ("loss", "penalty", "sparse", "intercept"),
    [
        ("squared", "l1", False, False),
        ("squared", "nonnegative", True, True),
        ("squared", "none", True, False),
        ("logistic", "l2", True, True),
        ("logistic", "box", False, False),
        ("logistic", "l1", True, False),
    ],
)
def test_every_bound_of_the_index_holds_after_every_step(
    loss, penalty, sparse, intercept, bounds, smoothness, plain_python
):
    problem = make_problem(loss, penalty, sparse, intercept)
    method = Watched(problem, "safe", "adaptive", bounds, smoothness, np.zeros(problem.n_coordinates), 3)
    assert isinstance(method.sampler, Indexed)
    assert isinstance(method.tracker, {"cauchy-schwarz": Path, "snapshot": Snapshot}[bounds])
    method.check_bounds, method.widths, method.drawable = True, [], []
    for _ in range(3):
        method.advance(0.8)
        assert method.columns()["value_ratio"] <= 1.0 + 1e-12
    assert len(method.widths) == method.n_steps
    empty = np.flatnonzero(problem.smoothness == 0.0)
    assert empty.size == (2 if sparse else 0)
    assert not method.x[empty].any()
    assert np.count_nonzero(method.x) > 0
    if bounds == "snapshot":
        assert method.widths[-1] < 1e3  # all of them are finite
        if penalty in ("l1", "nonnegative", "box"):
            assert min(method.drawable) < method.active.size  # and some coordinates certified still
    else:
        assert method.widths[-1] < method.widths[0]  # it began with nothing


def test_a_bound_that_does_not_hold_would_be_found(plain_python):
    """The check above can fail: with too small a rate the bounds are soon wrong."""
    problem = make_problem("squared", "l1", False)
    method = Watched(problem, "safe", "adaptive", "snapshot", "coordinate", np.zeros(D), 3)
    method.check_bounds, method.widths, method.drawable = True, [], []
    method.sampler.rates[:] *= 0.2
    with pytest.raises(AssertionError):
        method.advance(1.0)


def runs(problem, bounds, monkeypatch, **options):
    """The same run with the index and with the sampler that looks at every coordinate."""
    found = []
    for few, kind in ((0, Indexed), (10**6, Safe)):
        monkeypatch.setattr(coordinate, "_FEW", few)
        method = CoordinateDescent(
            problem, "safe", "adaptive", bounds, "coordinate", np.zeros(problem.n_coordinates), 0
        )
        assert isinstance(method.sampler, kind)
        found.append(ss.coordinate_descent(problem, bounds=bounds, trace_every=1, **options))
    return found


@pytest.mark.parametrize(
    ("loss", "penalty", "sparse", "intercept", "bounds"),
    [
        ("squared", "l1", False, False, "cauchy-schwarz"),
        ("squared", "nonnegative", False, False, "cauchy-schwarz"),
        ("squared", "l2", False, False, "cauchy-schwarz"),
        ("squared", "box", False, False, "cauchy-schwarz"),
    ],
)
def test_it_reaches_the_solution_of_the_scanning_sampler(loss, penalty, sparse, intercept, bounds, monkeypatch):
    problem = make_problem(loss, penalty, sparse, intercept, badly_scaled=False)
    results = runs(problem, bounds, monkeypatch, tol=1e-8, max_epochs=3000)
    start = problem.objective(np.zeros(problem.n_coordinates))
    for result in results:
        assert result.status is ss.Status.CONVERGED
        assert result.trace["gap"][-1] <= 1e-8 * start
        ratio = result.trace["value_ratio"]
        assert (ratio[np.isfinite(ratio)] <= 1.0 + 1e-12).all()
    indexed, scanning = results
    assert abs(indexed.trace["objective"][-1] - scanning.trace["objective"][-1]) <= 1e-8 * start
    np.testing.assert_allclose(indexed.coef, scanning.coef, atol=2e-3 * np.abs(scanning.coef).max())
    # What it costs to have classes of rates, and one interval for both directions, is not much.
    assert indexed.trace["epoch"][-1] <= 2.0 * scanning.trace["epoch"][-1] + 5


@pytest.mark.parametrize("penalty", ["l1", "l2", "nonnegative"])
def test_sparse_logistic_problems_with_an_intercept_are_solved_from_snapshots(penalty):
    problem = make_problem("logistic", penalty, True, True, badly_scaled=False)
    result = ss.coordinate_descent(problem, bounds="snapshot", tol=1e-8, max_epochs=3000)
    assert result.status is ss.Status.CONVERGED  # by the duality gap, so it is the solution
    assert result.trace["gap"][-1] <= 1e-8 * problem.objective(np.zeros(problem.n_coordinates))
    assert (result.trace["value_ratio"][1:] <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("smoothness", ["coordinate", "constant"])
def test_without_a_penalty_it_fits_the_data(smoothness):
    problem = make_problem("squared", "none", False, badly_scaled=False)
    result = ss.coordinate_descent(
        problem, bounds="cauchy-schwarz", smoothness=smoothness, tol=1e-8, max_epochs=2000, random_state=1
    )
    assert result.status is ss.Status.CONVERGED_WITHOUT_CERTIFICATE
    assert np.abs(problem.optimality(result.coef)).max() <= 1e-6
    assert (result.trace["value_ratio"][1:] <= 1.0 + 1e-12).all()


@pytest.mark.parametrize("bounds", ["cauchy-schwarz", "snapshot"])
def test_the_sampling_is_that_of_the_trackers_own_bounds_where_there_is_one_rate(bounds, plain_python):
    """Data of both signs and L proportional to the squared norms: the index knows what the tracker knows."""
    problem = make_problem("squared", "l1", False)
    method = CoordinateDescent(problem, "safe", "adaptive", bounds, "coordinate", np.zeros(D), 0)
    assert method.sampler.rates.size == 1
    for _ in range(6):
        method.advance(0.3)
        solve(method.sampler.bounds)
        lower, upper = index_bounds(method.sampler)
        expected = ss.safe_sampling(lower, upper, problem.smoothness)
        assert method.sampler.bounds.found[3] == pytest.approx(expected.value, rel=1e-9)
        method.columns()  # fills the state with the magnitudes of the tracker's intervals
        path = method.tracker.totals[0]
        room = 1e-9 * problem.norms * (1.0 + path)
        # Never tighter than the tracker: it has the smaller of chord and path, and both ends of the interval.
        assert (lower <= method.state.lower + room).all()
        assert (upper >= method.state.upper - room).all()
        if bounds == "cauchy-schwarz":
            np.testing.assert_array_equal(np.isinf(upper), np.isinf(method.state.upper))


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 6.0])
def test_no_rate_is_above_that_of_its_class(spread):
    rng = np.random.default_rng(3)
    norms = 10.0 ** rng.uniform(0.0, spread, 500)
    smoothness = np.full(500, 2.0)
    norms[7] = smoothness[7] = 0.0
    sampler = make_indexed(smoothness, norms, np.ones(500))
    active = smoothness > 0.0
    rate, own = norms[active] / np.sqrt(2.0), sampler.rates[sampler.kind[active]]
    assert (rate <= own).all()
    ratio = (rate.max() / rate.min()) ** (1.0 / 12.0)
    assert (own <= rate * max(ratio, 1.0 + 1e-6) * (1 + 1e-12)).all()
    assert sampler.rates.size == (1 if spread < 1.0 else 12)
    assert index_bounds(sampler)[1][7] == 0.0
    assert (index_bounds(sampler)[1][active] == np.inf).all()


def test_few_coordinates_are_scanned_and_many_are_indexed():
    X = np.random.default_rng(0).standard_normal((5, 257))
    X[:, 3] = 0.0
    y = np.arange(5.0)
    kinds = [
        type(CoordinateDescent(ss.Problem(A, y), "safe", "adaptive", "snapshot", "coordinate", np.zeros(n), 0).sampler)
        for A, n in ((X, 257), (X + 1.0, 257))
    ]
    assert kinds == [Safe, Indexed]  # an empty column does not count
    assert coordinate._FEW == 256
