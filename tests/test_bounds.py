"""Whatever steps are taken, the true gradient lies within the bounds of every tracker."""

from __future__ import annotations

import re
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings

import surestep as ss
from plain import uncompiled
from surestep.bounds.choose import absolute_sums, choose, lengths, make_tracker
from surestep.bounds.exact import Cooccurrence, Gram
from surestep.bounds.path import Path, start_path
from surestep.bounds.snapshot import CENTRE, Snapshot, start_snapshot
from surestep.bounds.tracker import (
    NoBounds,
    Step,
    changed,
    fill_magnitudes,
    follows_entries,
    interval,
    refresh,
    stepped,
)
from surestep.lines import dot
from surestep.losses import Huber, Logistic, Squared, SquaredHinge
from surestep.solvers._descent import Data, move, shift
from surestep.solvers.coordinate import CoordinateDescent
from zoo import data, problems

EPS = np.finfo(float).eps


fill_magnitudes_in_python = getattr(fill_magnitudes, "py_func", fill_magnitudes)

REGULARIZERS = (ss.NoPenalty(), ss.L1(0.05), ss.L2(0.3), ss.ElasticNet(0.1) + ss.NonNegative(), ss.Box(-0.5, 0.01))


class Several(NamedTuple):
    """Trackers that are told of the very same steps, and of every entry of r that they change."""

    members: tuple


class Swift(Several):
    """Trackers of the squared loss that do without the entries."""


@follows_entries.register(Swift)
def _(tracker):
    return False


@shift.register(Swift)
def _(tracker, columns, i, change, weights, r):
    before = r.copy()
    for member in tracker.members:
        r[:] = before
        squares = shift(member, columns, i, change, weights, r)
    return squares


@changed.register(Several)
def _(tracker, i, before, after, weight):
    for member in tracker.members:
        changed(member, i, before, after, weight)


@stepped.register(Several)
def _(tracker, j, step):
    for member in tracker.members:
        stepped(member, j, step)


@refresh.register(Several)
def _(tracker, point):
    for member in tracker.members:
        refresh(member, point)


@interval.register(Several)
def _(tracker, j):
    raise NotImplementedError("ask the members")


def trackers(problem):
    """Every tracker that the problem allows, by name: those that follow entries, and those that do not."""
    n, norms = problem.n_coordinates, problem.norms * (1.0 + (problem.n_samples + 8) * EPS)
    longest = float(np.max(lengths(problem.columns)))
    following = {
        "cooccurrence": Cooccurrence(
            np.zeros(n), norms, problem.design.rows, problem.fit_intercept, np.zeros(2), longest
        ),
    }
    quadratic = isinstance(problem.loss, Squared)
    swift = {} if quadratic else following
    for one_sided in (False, True) if problem.design.nonnegative else (False,):
        prefix, absolute = "one-sided " * one_sided, absolute_sums(problem.columns)
        sparse = problem.design.is_sparse or not quadratic
        swift[prefix + "path"] = start_path(norms, one_sided)
        swift[prefix + "snapshot"] = start_snapshot(
            norms, absolute if sparse else None, problem.n_samples, one_sided, quadratic
        )
        if quadratic:
            following[prefix + "entrywise path"] = start_path(norms, one_sided)
            following[prefix + "entrywise snapshot"] = start_snapshot(
                norms, absolute, problem.n_samples, one_sided, quadratic=False
            )
    if quadratic:
        room = np.zeros((n, n)), np.zeros(n, bool), np.empty(problem.n_samples)
        swift["gram"] = Gram(np.zeros(n), norms, np.zeros(2), problem.columns, problem.weights, *room)
        return following, swift
    return following, {}


class Walk:
    """A point that is moved coordinate by coordinate, as the solver would, to wherever a test wants."""

    def __init__(self, problem):
        self.problem = problem
        following, swift = trackers(problem)
        self.trackers = following | swift
        groups = [Several(tuple(following.values()))] + ([Swift(tuple(swift.values()))] if swift else [])
        self.methods = [
            CoordinateDescent(problem, "safe", "exact", group, "coordinate", np.zeros(problem.n_coordinates), 0)
            for group in groups
        ]
        for method in self.methods:
            method._refresh()
        one = np.ones(problem.n_coordinates)
        self.data = Data(problem.y, problem.weights, problem.smoothness, problem.norms, problem.smoothness, one)
        self.dense = problem.design.columns
        if problem.design.is_sparse:
            arrays = self.dense.values, self.dense.indices.astype(np.int64), self.dense.starts.astype(np.int64)
            self.dense = scipy.sparse.csc_array(arrays, shape=problem.design.shape).toarray().T
        else:
            self.dense = self.dense.values
        self.dense = self.dense.T.astype(np.longdouble)
        if problem.fit_intercept:
            self.dense = np.column_stack([self.dense, np.ones(problem.n_samples)])

    @property
    def x(self):
        return self.methods[0].state.x

    def to(self, j, target):
        """Move x_j to the target, as the solver does; to where it is means only to look."""
        problem, change = self.problem, target - self.x[j]
        for method in self.methods:
            state = method.state
            gradient = dot(problem.columns, j, state.r)
            with uncompiled():
                if change == 0.0:
                    step = Step(gradient, gradient, 0.0, 0.0, 0.0)
                else:
                    state.x[j] += change
                    arguments = method.tracker, method.rounding, state, j, gradient, change
                    step = move(problem.loss, problem.columns, self.data, *arguments)
                stepped(method.tracker, j, step)

    def refresh(self):
        for method in self.methods:
            method._refresh()

    def gradient(self):
        """The gradient at x in extended precision, from the definitions of the losses."""
        z, y = self.dense @ self.x, self.problem.y
        match self.problem.loss:
            case Squared():
                u = z - y
            case Huber(delta):
                u = np.clip(z - y, -delta, delta)
            case Logistic():
                u = -y / (1 + np.exp(np.minimum(y * z, 1e4)))
            case SquaredHinge():
                u = -y * np.maximum(1 - y * z, 0)
        return self.dense.T @ (self.problem.weights * u)

    def intervals(self, name):
        return np.array([interval(self.trackers[name], j) for j in range(self.x.size)], dtype=float).T

    def check(self):
        exact, computed = self.gradient(), self.problem.gradient(self.x)
        for name, tracker in self.trackers.items():
            lo, hi = self.intervals(name)
            for gradient in (exact, computed):
                wrong = np.flatnonzero(~((lo <= gradient) & (gradient <= hi)))
                assert wrong.size == 0, (name, wrong, lo[wrong], gradient[wrong], hi[wrong])
            for regularizer in REGULARIZERS:
                problem = self.problem.with_regularizer(regularizer)
                lower, upper = np.empty_like(self.x), np.empty_like(self.x)
                fill_magnitudes_in_python(tracker, problem.penalty, 1.0 * (problem.norms > 0.0), self.x, lower, upper)
                c = problem.optimality(self.x)
                empty = problem.norms == 0.0
                assert (lower <= c)[~empty].all(), (name, regularizer)
                assert (c <= upper)[~empty].all(), (name, regularizer)
                assert not lower[empty].any()
                assert not upper[empty].any()


LOSSES = {"squared": Squared(), "huber": Huber(0.7), "logistic": Logistic(), "squared_hinge": SquaredHinge()}


@st.composite
def small_problems(draw, loss=None, sparse=None, intercept=None, nonnegative=None, single=None, plain=False):
    """Problems of a few rows and columns, with everything that may be awkward; None leaves a choice open."""

    def choose(value, options=(False, True)):
        return draw(st.sampled_from(options)) if value is None else value

    loss = LOSSES[choose(loss, sorted(LOSSES))]
    sparse, intercept, nonnegative = choose(sparse), choose(intercept), choose(nonnegative)
    single = choose(single)
    n, d = draw(st.integers(2, 10)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((n, d))
    kind = "plain" if plain else draw(st.sampled_from(["plain", "badly scaled", "nearly equal", "holes"]))
    if kind == "badly scaled":
        X *= 10.0 ** rng.uniform(-8, 8, d)
    elif kind == "nearly equal":
        X = X[:, [0]] + 10.0 ** rng.uniform(-9, -1) * X
    if kind == "holes" or sparse:
        X *= rng.random((n, d)) < 0.5
        X[:, rng.integers(d)] = 0.0
    X = abs(X) if nonnegative else X
    X = X.astype(np.float32) if single else X
    y = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 3)
    if isinstance(loss, Logistic | SquaredHinge):
        y = np.arange(n) % 2
    weights = draw(st.sampled_from([None, rng.integers(0, 3, n) + np.eye(n)[0], 10.0 ** rng.uniform(-6, 2, n)]))
    return ss.Problem(scipy.sparse.csc_array(X) if sparse else X, y, loss, None, weights, intercept)


def moves(max_size=14):
    """Where to go: a kind of move, a coordinate (modulo their number) and an exponent."""
    kinds = ["by", "by", "back", "look", "nudge", "cancel", "again", "refresh"]
    exponents = st.one_of(st.floats(-3, 1), st.floats(-14, 8))
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.integers(0, 5), exponents, st.sampled_from([-1.0, 1.0])),
        max_size=max_size,
    )


def take(walk, kind, j, exponent, sign):
    n = walk.x.size
    j %= n
    # In units in which a step of 1 moves r by about 1.
    size = sign * 10.0**exponent / (walk.problem.norms[j] or 1.0)
    match kind:
        case "by":
            walk.to(j, walk.x[j] + size)
        case "back":
            walk.to(j, 0.0)
        case "look":
            walk.to(j, walk.x[j])
        case "nudge":
            walk.to(j, np.nextafter(walk.x[j], sign * np.inf))
        case "cancel":
            k = (j + 1) % n
            walk.to(j, walk.x[j] + size)
            walk.to(k, walk.x[k] - size)
        case "again":
            for factor in (1.0, -2.0, 1.0):
                walk.to(j, walk.x[j] + factor * size)
        case "refresh":
            walk.refresh()


@given(small_problems(), moves())
@settings(max_examples=200)
def test_the_gradient_is_within_the_bounds_after_any_steps(problem, steps):
    walk = Walk(problem)
    walk.check()
    for step in steps:
        take(walk, *step)
        walk.check()


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
def test_the_gradient_is_within_the_bounds_on_long_walks(loss, sparse, nonnegative):
    """Every loss and layout by name: many steps of all sizes, with a refresh now and then."""
    rng = np.random.default_rng(3)
    X, y = data(seed=7, loss=LOSSES[loss], sparse=sparse, badly_scaled=True, n=12, d=5)
    X, weights = abs(X) if nonnegative else X, rng.integers(0, 3, 12) + np.eye(12)[0]
    walk = Walk(ss.Problem(X, y, LOSSES[loss], None, weights, fit_intercept=nonnegative))
    for k in range(150):
        take(walk, "by", rng.integers(walk.x.size), rng.uniform(-6, 3), rng.choice([-1.0, 1.0]))
        if k % 50 == 49:
            walk.refresh()
        if k % 5 == 0 or k > 145:
            walk.check()


def test_cancelling_columns_that_carry_x_far_away():
    """Two columns that nearly cancel: x grows to 1e9 in steps that leave r where it is, but for rounding."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((10, 1))
    walk = Walk(ss.Problem(np.hstack([a, a + 1e-9 * rng.standard_normal((10, 1))]), rng.standard_normal(10)))
    for k in range(60):
        size = 10.0 ** (k * 0.15)
        walk.to(0, walk.x[0] + size)
        walk.to(1, walk.x[1] - size)
        walk.check()
        if k % 10 == 9:
            walk.refresh()
            walk.check()
    assert np.abs(walk.x).min() > 1e8
    assert np.abs(walk.gradient()).max() < 10.0


def test_steps_that_the_predictor_is_too_large_to_notice():
    """x_1 moves by less than half an ulp of z each time, so z stays where it is, ever further from A x."""
    walk = Walk(ss.Problem(np.ones((1, 2)), [1e9], Huber()))  # whose r is small far out
    walk.to(0, 1e9)
    for _ in range(1000):
        walk.to(1, walk.x[1] + 5e-8)
    assert walk.methods[0].state.z[0] == 1e9
    assert walk.gradient()[0] > 4e-5
    walk.check()


def test_one_row_far_from_the_snapshot_does_not_hide_the_others():
    """D^2 is a running sum: beside one huge term, many small ones are lost, and it may shrink again."""
    n = 400
    X = np.full((n, 3), 0.9)
    X[0] = 3e7, 0.0, 0.0
    X[1:, 0] = 1.0
    walk = Walk(ss.Problem(X, np.zeros(n)))
    for j, target in ((0, 1.0), (1, 1.0), (0, 0.0)):
        walk.to(j, target)
        walk.check()  # the third column moves with the second, as far as Cauchy and Schwarz allow


@given(small_problems(), moves())
@settings(max_examples=100)
def test_a_snapshot_is_never_wider_than_the_path(problem, steps):
    walk = Walk(problem)
    take(walk, "refresh", 0, 0.0, 1.0)
    for step in steps:
        take(walk, *step)
        for side in ("", "one-sided ") if problem.design.nonnegative else ("",):
            widths, sizes = {}, {}
            for name in ("path", "snapshot"):
                lo, hi = walk.intervals(side + name)
                widths[name], sizes[name] = hi - lo, np.maximum(abs(lo), abs(hi))
            slack = 64 * EPS * np.maximum(sizes["path"], sizes["snapshot"])
            assert (widths["snapshot"] <= widths["path"] + slack).all()


@given(small_problems(nonnegative=True), moves())
@settings(max_examples=100)
def test_one_sided_bounds_are_never_wider_than_two_sided_ones(problem, steps):
    walk = Walk(problem)
    for step in steps:
        take(walk, *step)
        for name in ("path", "snapshot"):
            (lo, hi), (low, high) = walk.intervals(f"one-sided {name}"), walk.intervals(name)
            slack = 64 * EPS * np.maximum(abs(low), abs(high))
            assert (lo >= low - slack)[np.isfinite(low)].all()
            assert (hi <= high + slack)[np.isfinite(high)].all()


def centre(tracker, j):
    """What was last seen of coordinate j."""
    return tracker.seen[j, CENTRE] if isinstance(tracker, Snapshot) else tracker.centre[j]


def test_non_negative_data_give_half_the_width():
    rng = np.random.default_rng(0)
    walk = Walk(ss.Problem(rng.random((10, 3)), rng.standard_normal(10)))
    for j in (0, 1, 2, 0, 1):  # all upwards
        walk.to(j, walk.x[j] + 1.0)
    for name in ("path", "snapshot"):
        (lo, hi), (low, high) = walk.intervals(f"one-sided {name}"), walk.intervals(name)
        assert hi[2] - lo[2] == pytest.approx((high[2] - low[2]) / 2)
        assert lo[2] == pytest.approx(centre(walk.trackers[name], 2))
        assert high[2] - low[2] > 0.1


def test_what_was_just_seen_is_known_and_what_was_never_seen_is_not():
    X, y = data(seed=0, loss=Squared())
    walk = Walk(ss.Problem(X, y))
    lo, hi = walk.intervals("path")
    assert (np.isinf(lo) & np.isinf(hi)).all()
    walk.to(3, 0.7)
    lo, hi = walk.intervals("path")
    assert np.flatnonzero(np.isfinite(lo)).tolist() == np.flatnonzero(np.isfinite(hi)).tolist() == [3]
    for name in walk.trackers:
        lo, hi = walk.intervals(name)
        assert lo[3] == pytest.approx(walk.gradient()[3].item(), rel=1e-9)
        assert hi[3] == pytest.approx(lo[3], rel=1e-9)


@given(small_problems(), moves())
@settings(max_examples=50)
def test_exact_bounds_have_no_width_but_for_rounding(problem, steps):
    walk = Walk(problem)
    reach = np.linalg.norm(walk.gradient()) + np.abs(problem.y).max() + 1.0
    for step in steps:
        before = walk.x.copy()
        take(walk, *step)
        reach += 10.0 * (problem.norms @ (abs(walk.x) + abs(before)) + 10.0 ** step[2])
        for name in {"cooccurrence", "gram"} & set(walk.trackers):
            lo, hi = walk.intervals(name)
            assert (hi - lo <= 1e-10 * problem.norms * reach).all()


def test_a_return_to_the_snapshot_is_noticed():
    """The distance shrinks again where the path only grows."""
    X, y = data(seed=0, loss=Logistic())
    walk = Walk(ss.Problem(X, y, "logistic"))
    walk.refresh()
    for j in (1, 2, 3):
        walk.to(j, 2.0)
    away = np.ptp(walk.intervals("snapshot"), axis=0)
    for j in (1, 2, 3):
        walk.to(j, 0.0)
    home = np.ptp(walk.intervals("snapshot"), axis=0)
    assert (home[[0, 4, 5, 6, 7]] < 1e-5 * away[[0, 4, 5, 6, 7]]).all()
    walk.check()


def test_an_empty_column_is_known_for_ever():
    X, y = data(seed=0, loss=Squared(), sparse=True)
    walk = Walk(ss.Problem(X, y))
    walk.to(1, 5.0)
    for name in walk.trackers:
        assert walk.intervals(name)[:, 4].tolist() == [0.0, 0.0], name


# The compiled kernels, checked by themselves after every step


BOUNDS = ("cauchy-schwarz", "snapshot", "exact")


@given(
    small_problems(loss="squared", sparse=False, intercept=False, single=False),
    st.sampled_from(BOUNDS),
    st.sampled_from(["adaptive", "fixed", "exact"]),
    st.integers(0, 100),
)
@settings(max_examples=60)
def test_bounds_hold_in_compiled_runs_on_dense_squared_problems(problem, bounds, step, seed):
    _run_checked(problem, bounds, step, seed)


@given(
    small_problems(loss="logistic", sparse=True, intercept=False, single=False),
    st.sampled_from(BOUNDS),
    st.sampled_from(["adaptive", "fixed", "exact"]),
    st.integers(0, 100),
)
@settings(max_examples=60)
def test_bounds_hold_in_compiled_runs_on_sparse_logistic_problems(problem, bounds, step, seed):
    _run_checked(problem, bounds, step, seed)


def _run_checked(problem, bounds, step, seed):
    for regularizer in REGULARIZERS:
        ss.coordinate_descent(
            problem.with_regularizer(regularizer),
            step=step,
            bounds=bounds,
            max_epochs=6,
            tol=1e-14,
            random_state=seed,
            check_bounds=True,
        )


def test_named_bounds_are_kept_by_samplings_that_do_not_look_at_them():
    """The paper's bounds beside a sampling that visits everything: they are checked, and certify what stays still."""
    problem = dict(problems())["squared-l1-sample_weight"].with_regularizer(ss.L1(0.5))
    result = ss.coordinate_descent(
        problem, sampling="cyclic", bounds="cauchy-schwarz", step="exact", tol=1e-10, check_bounds=True
    )
    assert result.status is ss.Status.CONVERGED
    assert result.trace["still"][0] == 0
    assert result.trace["still"][-1] > 0
    plain = ss.coordinate_descent(problem, sampling="cyclic", step="exact", tol=1e-10)
    np.testing.assert_allclose(plain.coef, result.coef, rtol=1e-12)
    assert np.isnan(plain.trace["still"]).all()


class TooNarrow(NamedTuple):
    """What was last seen, as if nothing had changed since."""

    seen: np.ndarray


@interval.register(TooNarrow)
def _(tracker, j):
    return tracker.seen[j] - 1e-3, tracker.seen[j] + 1e-3


@stepped.register(TooNarrow)
def _(tracker, j, step):
    tracker.seen[j] = step.gradient


@refresh.register(TooNarrow)
def _(tracker, point):
    tracker.seen[:] = point.gradient


def test_a_tracker_of_the_users_own_that_is_wrong_is_found_out():
    problem = dict(problems())["squared-l1-sample_weight"]
    options = dict(sampling="cyclic", step="exact", random_state=1, max_epochs=2)
    ss.coordinate_descent(problem, bounds=TooNarrow(np.zeros(8)), **options)  # not looked at, not complained of
    with pytest.raises(ss.BoundViolationError) as caught:
        ss.coordinate_descent(problem, bounds=TooNarrow(np.zeros(8)), check_bounds=True, **options)
    number = r"(-?[\d.e-]+)"
    pattern = rf"after step 1 .* coordinate (\d), \[{number}, {number}\], .* entry {number} \("
    found = re.search(pattern, str(caught.value))
    assert found, str(caught.value)
    j, lo, hi, true = int(found[1]), *map(float, found.groups()[1:])
    x = np.zeros(8)
    x[0] = ss.coordinate_descent(problem, sampling="cyclic", step="exact", max_epochs=1 / 8).coef[0]
    assert j > 0
    assert true == problem.gradient(x)[j]
    assert (lo + hi) / 2 == pytest.approx(problem.gradient(np.zeros(8))[j])
    assert not lo <= true <= hi


# Which tracker


def test_names_of_bounds_and_the_choice_among_them():
    zoo = dict(problems())
    kinds = {
        ("squared-none-dense", "cauchy-schwarz"): Path,
        ("squared-none-dense", "snapshot"): Snapshot,
        ("squared-none-dense", "exact"): Gram,
        ("squared-none-dense", "auto"): Gram,
        ("squared-l1-wide", "exact"): Cooccurrence,  # more columns than rows
        ("logistic-l1-sparse", "exact"): Cooccurrence,
        ("logistic-none-dense", "auto"): Snapshot,  # an update of all entries would cost n_samples * n_features
    }
    for (name, bounds), kind in kinds.items():
        assert isinstance(make_tracker(choose(bounds, zoo[name], True), zoo[name]), kind), (name, bounds)
    diagonal = ss.Problem(scipy.sparse.eye_array(10, format="csc"), np.arange(10.0), Huber())
    assert choose("auto", diagonal, True) == "exact"
    assert isinstance(make_tracker("exact", diagonal), Cooccurrence)
    mine = TooNarrow(np.zeros(8))
    assert make_tracker(choose(mine, zoo["squared-none-dense"], True), zoo["squared-none-dense"]) is mine
    with pytest.raises(ValueError, match=r"bounds must be one of 'auto', 'cauchy-schwarz', .* got 'tight'"):
        choose("tight", zoo["squared-none-dense"], True)
    assert make_tracker("snapshot", ss.Problem(np.ones((3, 2)), np.zeros(3))).one_sided
    assert not make_tracker("snapshot", zoo["squared-none-dense"]).one_sided


def test_no_bounds_are_infinite():
    assert interval(NoBounds(), 0) == (-np.inf, np.inf)
