"""Coordinate descent under any sampling: Algorithms 1, 2 and 3 of the paper."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep.bounds.blocks import Blocks, begin_block, knows_bounds, make_blocks
from surestep.bounds.choose import choose, lengths, make_tracker
from surestep.bounds.exact import Cooccurrence, Gram
from surestep.bounds.indexed import Indexed, make_indexed, restart
from surestep.bounds.path import Path
from surestep.bounds.snapshot import Snapshot, forget
from surestep.bounds.tracker import (
    EPS,
    NoBounds,
    Point,
    fill_intervals,
    fill_magnitudes,
    needs_gradient,
    refresh,
)
from surestep.lines import transposed_product
from surestep.problem import Gap, Problem
from surestep.sampling.distribution import optimal_sampling
from surestep.sampling.samplers import NONE, OVER, Cyclic, Fixed, Greedy, make_fixed, make_safe
from surestep.solvers._checks import BoundViolationError, check_choice, check_run, starting_point
from surestep.solvers._descent import Data, Rule, State, descend, rounding_of
from surestep.solvers._loop import Callback, evaluate, run, target_of
from surestep.trace import Result, Status

Array = NDArray[np.float64]

SAMPLINGS = ("safe", "optimal", "importance", "uniform", "cyclic", "greedy")
STEPS = ("adaptive", "fixed", "exact")
UNITS = ("auto", "coordinate", "constant", "unit")

# So few coordinates are looked at one by one in less time than an index takes.
_FEW = 256

# What a block of steps costs to start, for each coordinate, and what a step costs besides going through its column: in
# units of the time that one entry of a column takes (measured).
_START_PER_COORDINATE = 100
_STEP = 200

# Where no L_i is so much larger than another, p ~ L and p = 1/n are much the same.
_ALIKE = 2.0

# The first stretch is without bounds, and so long, in units of the steps that take as long as starting a block: before,
# nothing is known of how far r gets, and it goes far; and a run that is over soon is better left alone.
_FIRST = 8.0


def coordinate_descent(
    problem: Problem,
    *,
    sampling: Any = "safe",
    step: str = "adaptive",
    bounds: Any = "auto",
    blocks: bool | str = "auto",
    smoothness: str = "auto",
    max_epochs: float = 1000,
    tol: float = 1e-6,
    random_state: int | np.random.Generator | None = 0,
    callbacks: Iterable[Callback] = (),
    trace_every: float = 1,
    warm_start: Result | ArrayLike | None = None,
    track_optimal: bool = False,
    check_bounds: bool = False,
) -> Result:
    """Minimise a problem one coordinate at a time.

    In every step a coordinate i is drawn, and x_i becomes prox_{gamma psi_i}(x_i - gamma <a_i, r>), r = grad h(Ax).

    Parameters
    ----------
    problem : Problem
    sampling : str or sampler
        How i is drawn: "safe" (Algorithm 2: the best distribution for what the bounds leave open), "optimal" (Algorithm
        1: it knows the whole gradient), "importance" and "uniform" (Algorithm 3, p ~ L_i and p = 1/n), "cyclic",
        "greedy" (the largest c_i^2 / L_i), or a sampler of your own, see `surestep.sampling.samplers`.
    step : {"adaptive", "fixed", "exact"}
        gamma = alpha / p_i with the alpha = 1/v that goes with the sampling (the paper's "big" steps); alpha / p_i with
        alpha = 1/Tr(L), or 1/(n max L) for uniform sampling ("small"); or 1/L_i, the minimiser along the coordinate
        (for losses that are not quadratic: of its quadratic upper bound). "cyclic" and "greedy" have no p: their
        adaptive step is 1/L_i and their fixed step 1/max(L).
    bounds : str or tracker
        Where "safe" gets its bounds from: "cauchy-schwarz" (the paper's; starts from 0 and infinity), "snapshot" (the
        gradient once an epoch, and the distance from there), "exact" (every entry, kept up to date after every
        step), "auto" (exact where `surestep.bounds.choose` finds it cheap, else snapshot), or your own, see
        `surestep.bounds.tracker`. "optimal" and "greedy" need exact ones. With the other samplings a tracker is kept
        only if it is named.
    blocks : {"auto", True, False}
        How "safe" follows snapshot bounds: False, by solving for the best distribution anew in every step (a few
        microseconds from an index); True, once for a block of steps, for bounds that hold throughout the block, which
        makes a draw as cheap as from a fixed distribution. The length of a block is chosen by what starting one costs
        and what longer ones would not know; where bounds would tell too little for what they cost, at the beginning and
        later, steps go on without them, from p ~ L_i, for a while. "auto" is True where ``bounds`` is "auto".
    smoothness : {"auto", "coordinate", "constant", "unit"}
        The L_i that sampling and steps are computed with. "coordinate": that of each coordinate (with its ridge term);
        safe sampling is then never worse than p ~ L_i. "constant": the largest of them for all, as in the paper's
        figures. "unit": 1, after each coordinate has been scaled by sqrt(L_i); safe sampling is then never worse than
        p = 1/n with steps 1/L_i, often the faster one in seconds where large L_i go with long columns. "auto":
        "coordinate"; for exact steps in blocks "unit" whenever that gains more for what its columns cost to read.
    max_epochs : float
        An epoch is as many steps as there are coordinates (those of empty columns not counted).
    tol : float
        Stop when the certified duality gap is at most ``tol`` times the objective at zero. For problems without a
        certificate, see `Problem.certificate_reason`: when the largest violation of optimality is ``tol`` times that at
        zero.
    random_state : int, numpy Generator or None
        The same seed gives the same result.
    callbacks : iterable of callables
        Each is called with a `Progress` after every row of the trace.
    trace_every : float
        Epochs, or the part of one, between rows of the trace and looks at the gap. The clock stands still meanwhile.
    warm_start : Result or array, optional
        Where to start, instead of zero.
    track_optimal : bool
        Also record the value of the optimal sampling in the trace (``optimal_value_ratio``).
    check_bounds : bool
        Compare every bound with the true gradient after every step, and raise `BoundViolationError` at the first that
        does not hold. Slow: for trackers under development.

    Returns
    -------
    Result
        ``trace`` has the columns epoch, steps, seconds, objective, gap, nonzeros, value_ratio (mean of v / Tr(L) over
        the steps since the row before: the lower panels of the paper's figures), still (coordinates certified not to
        move) and, where asked for, optimal_value_ratio.

    Examples
    --------
    >>> import numpy as np, surestep as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 20))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=50)
    >>> result = ss.coordinate_descent(ss.Problem(X, y, regularizer=ss.L1(0.2)), tol=1e-8)
    >>> result.status.name, np.flatnonzero(result.coef)
    ('CONVERGED', array([0, 1]))
    """
    check_choice("step", step, STEPS)
    check_choice("smoothness", smoothness, UNITS)
    if not (isinstance(blocks, bool) or blocks == "auto"):
        raise ValueError(f"blocks must be True, False or 'auto', got {blocks!r}")
    check_run(problem, max_epochs, tol, trace_every)
    begin = time.perf_counter()
    method = CoordinateDescent(
        problem, sampling, step, bounds, smoothness, starting_point(problem, warm_start), random_state, blocks
    )
    method.track_optimal, method.check_bounds = track_optimal, check_bounds
    return run(
        method,
        problem,
        max_epochs=max_epochs,
        target=target_of(problem, tol),
        callbacks=callbacks,
        trace_every=trace_every,
        seconds=time.perf_counter() - begin,
    )


class CoordinateDescent:
    """The state of a run and its step; `run` does the rest."""

    def __init__(
        self,
        problem: Problem,
        sampling: Any,
        step: str,
        bounds: Any,
        units: str,
        x: Array,
        random_state: int | np.random.Generator | None,
        blocks: bool | str = "auto",
    ) -> None:
        self.problem = problem
        self.track_optimal = self.check_bounds = False
        L = problem.smoothness
        self.active = np.flatnonzero(L > 0.0)
        # An empty column: the penalty alone decides.
        for j in np.flatnonzero(L == 0.0):
            if problem.penalty.l1[j] > 0.0 or problem.penalty.l2[j] > 0.0:
                x[j] = 0.0
        # A ridge term is smooth: a step can gain c^2 / (2 (L_j + l2_j)).
        self.curvature = np.where(L > 0.0, L + problem.penalty.l2, 0.0)
        chooses, L = units == "auto" and step == "exact", self.curvature[self.active]
        self._chooses_units = chooses and bool(L.max(initial=0.0) > _ALIKE * L.min(initial=np.inf))
        self._set_units("coordinate" if units == "auto" else units)
        self.rng = np.random.default_rng(random_state)
        in_blocks = blocks is True or (blocks == "auto" and bounds == "auto")
        bounds = _bounds(sampling, bounds, problem, step == "exact")
        in_blocks = in_blocks and sampling == "safe" and bounds == "snapshot" and self.active.size > _FEW
        # Blocks begin without bounds: a run that is over before the first look at all coordinates makes no room for it.
        self.tracker: Any = NoBounds() if in_blocks else make_tracker(bounds, problem)
        self.sampler, fixed_value = self._make_sampler(sampling, in_blocks)
        self.rule = Rule(step == "exact", fixed_value if step == "fixed" else 0.0)
        self.rounding = rounding_of(problem)
        n = problem.n_coordinates
        z = problem.predictor(x)
        self.state = State(x, z, problem.residual(z), np.zeros(n), np.zeros(n), np.zeros(3))
        self._epochs = 0.0
        self._chunk, self._next_refresh = 64, 0
        self._mean_value = np.nan
        if isinstance(self.sampler, Blocks):
            self._lengths = lengths(problem.columns).astype(np.float64)
            self._block = 0, self.state.r.copy()  # steps, and r, when the present block began

    def _set_units(self, units: str) -> None:
        """Set the L_i that sampling and steps are computed with, and the scale of the gradient entries; see above."""
        active = np.where(self.curvature > 0.0, 1.0, 0.0)
        self.smoothness, self.scale = self.curvature, active
        if units == "constant":
            self.smoothness = active * self.curvature.max()
        elif units == "unit":
            roots = np.sqrt(self.curvature)
            self.smoothness, self.scale = active, np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0.0)
        self.total = float(self.smoothness.sum())
        self._fixed: Fixed | None = None  # p ~ L: made when needed

    def _make_sampler(self, sampling: Any, in_blocks: bool) -> tuple[Any, float]:
        """Return the sampler and the v of its fixed steps."""
        L, tracker, n = self.smoothness, self.tracker, self.active.size
        total, largest = self.total, float(L.max())
        if isinstance(sampling, tuple):
            return sampling, total
        check_choice("sampling", sampling, SAMPLINGS)
        if in_blocks:
            return make_blocks(L, self.scale), total
        if sampling == "safe" and n > _FEW and isinstance(tracker, Path | Snapshot):
            return make_indexed(L, tracker.norms, self.scale), total
        if sampling in ("safe", "optimal") or n == 0:  # with empty columns only nothing is ever drawn
            return make_safe(L), total
        if sampling == "importance":
            return make_fixed(L / total, total), total
        if sampling == "uniform":
            return make_fixed((L > 0.0) / n, n * largest), n * largest
        if sampling == "greedy":
            return Greedy(L), largest
        return Cyclic(self.active, L, np.zeros(1, np.int64)), largest

    @property
    def x(self) -> Array:
        """The present point."""
        return self.state.x

    @property
    def n_steps(self) -> int:
        """Steps done so far."""
        return int(self.state.sums[0])

    def advance(self, n_epochs: float) -> Status | None:
        """Do some epochs, or fewer if every coordinate is certified optimal before."""
        begin, self.state.sums[1] = self.n_steps, 0.0
        self._epochs += n_epochs
        end = round(self._epochs * self.active.size)  # of all epochs so far: parts of an epoch add up
        said = 0 if self.active.size else NONE
        while said != NONE and self.n_steps < end:
            if self.n_steps >= self._next_refresh or said == OVER:
                self._refresh()
            n_steps = min(self._chunk, end - self.n_steps, self._next_refresh - self.n_steps)
            said = self._steps(1 if self.check_bounds else n_steps)
            if self.check_bounds:
                self._check_bounds()
        if self.n_steps > begin and not isinstance(self.sampler, Cyclic | Greedy):
            self._mean_value = self.state.sums[1] / (self.n_steps - begin)
        return Status.OPTIMAL if said == NONE else None

    def evaluate(self) -> tuple[Gap, float]:
        """Return gap and violation; the clock stands still meanwhile."""
        return evaluate(self.problem, self.x)

    def columns(self) -> dict[str, float]:
        """Return the value of the sampling, and how many coordinates are certified not to move."""
        state, problem = self.state, self.problem
        row = {"value_ratio": self._mean_value / self.total if self.total > 0.0 else np.nan}
        still = np.nan
        if isinstance(self.sampler, Blocks) or not isinstance(self.tracker, NoBounds):
            fill_magnitudes(self.tracker, problem.penalty, self.scale, state.x, state.lower, state.upper)
            still = float(np.count_nonzero(state.upper[self.active] == 0.0))
        row["still"] = still
        if self.track_optimal and self.active.size:
            c = problem.optimality(state.x)[self.active] * self.scale[self.active]
            row["optimal_value_ratio"] = optimal_sampling(c, self.smoothness[self.active]).value / self.total
        return row

    def _steps(self, n_steps: int) -> int:
        """Run the kernel; in pieces of about a tenth of a second, so that Ctrl-C is heard."""
        problem, tracker, sampler = self.problem, self.tracker, self.sampler
        if isinstance(sampler, Blocks) and not knows_bounds(sampler):
            self._fixed = self._fixed or make_fixed(self.smoothness / self.total, self.total)
            tracker, sampler = NoBounds(), self._fixed
        begin = time.perf_counter()
        said: int = descend(
            problem.columns,
            problem.loss,
            problem.penalty,
            Data(problem.y, problem.weights, problem.smoothness, problem.norms, self.curvature, self.scale),
            tracker,
            sampler,
            self.rule,
            self.rounding,
            self.state,
            n_steps,
            self.rng,
        )
        if time.perf_counter() - begin < 0.1:
            self._chunk = 2 * n_steps
        return said

    def _refresh(self) -> None:
        """Hand the whole gradient, computed afresh, to trackers that want it."""
        state, problem = self.state, self.problem
        if isinstance(self.sampler, Blocks):
            if self.n_steps == 0:
                if self._chooses_units:
                    c = problem.optimality(state.x)
                    self._choose_units(c, self._costs((state.x != 0.0) | (c > 0.0)))
                per_step = float(self.smoothness @ self._costs(np.False_)) / self.total
                self._next_refresh = max(int(_FIRST * self._start_of_block() / per_step), 1)
                return
            if isinstance(self.tracker, NoBounds):
                self.tracker = make_tracker("snapshot", problem)
        elif isinstance(self.tracker, NoBounds) or (self.n_steps > 0 and not needs_gradient(self.tracker)):
            self._next_refresh = self.n_steps + self.active.size
            return
        state.z[:] = problem.predictor(state.x)
        u = np.where(problem.weights > 0.0, problem.derivative(state.z), 0.0)
        state.r[:] = problem.weights * u
        gradient = np.empty(problem.n_coordinates)
        transposed_product(problem.columns, state.r, gradient)
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is reported by `run`
            norm = float(np.sqrt(problem.weights @ (u * u)))
            moved = float(np.abs(state.x) @ problem.norms)
        rounding = self.rounding.per_distance * norm + self.rounding.per_move * moved
        point = Point(state.x, state.r, gradient, norm, rounding)
        refresh(self.tracker, point)
        n_steps = self.active.size
        if isinstance(self.sampler, Blocks):
            n_steps = self._begin_block(point)
        elif isinstance(self.sampler, Indexed):
            restart(self.sampler, self.tracker, problem.penalty, point)
        self._next_refresh = self.n_steps + n_steps

    def _begin_block(self, point: Point) -> int:
        """Begin a block, and return how many steps it is to last; counts decide, not clocks, so that runs repeat."""
        problem = self.problem
        (began, before), self._block = self._block, (self.n_steps, point.r.copy())
        change, weights = np.abs(point.r - before), problem.weights
        distance = math.sqrt(np.sum(np.divide(change**2, weights, out=np.zeros_like(change), where=weights > 0.0)))
        largest = np.max(change) if self.tracker.residual.size > 0 else np.inf
        # Squares of distances are followed: those that are shorter drown in rounding.
        least = 4.0 * math.sqrt(EPS)
        reached = np.maximum([distance, largest], [least * point.norm, least * np.max(np.abs(point.r))])
        c = self.state.upper
        fill_magnitudes(self.tracker, problem.penalty, np.ones_like(c), point.x, self.state.lower, c)
        costs = self._costs((point.x != 0.0) | (c > 0.0))
        if self._chooses_units:
            self._choose_units(c, costs)
        n_steps = begin_block(
            self.sampler,
            self.tracker,
            problem.penalty,
            point,
            reached,
            max(self.n_steps - began, 1),
            self._start_of_block(),
            costs,
        )
        if not knows_bounds(self.sampler):
            forget(self.tracker)
        return n_steps

    def _choose_units(self, c: Array, costs: Array) -> None:
        """Take the units whose fixed sampling, p ~ L or p = 1/n, gains more in the time of a look at all coordinates.

        The gain of a coordinate, c_i^2 / L_i, can be had once: T draws get 1 - exp(-p_i T) of it, for T <p, costs>.
        """
        moving, L = c > 0.0, self.curvature

        def gain(p: Array) -> float:
            n_steps = self._start_of_block() / float(p @ costs)
            return float(-np.expm1(-n_steps * p[moving]) @ (c[moving] ** 2 / L[moving]))

        by_smoothness, evenly = gain(L / L.sum()), gain((L > 0.0) / self.active.size)
        before = self.total
        self._set_units("coordinate" if by_smoothness > evenly else "unit")
        if self.total != before:
            self.state.sums[1] *= self.total / before  # values so far, in the new units
            self.sampler, _ = self._make_sampler("safe", in_blocks=True)

    def _start_of_block(self) -> float:
        """What starting a block costs."""
        return self.problem.design.nnz + _START_PER_COORDINATE * self.problem.n_coordinates

    def _costs(self, moves: NDArray[np.bool_] | np.bool_) -> Array:
        """What a step on each coordinate costs: a walk along its column, and another one if it moves."""
        return np.asarray(_STEP + self._lengths * (1.0 + moves))

    def _check_bounds(self) -> None:
        gradient = self.problem.gradient(self.state.x)
        lo, hi = np.empty_like(gradient), np.empty_like(gradient)
        fill_intervals(self.tracker, lo, hi)
        wrong = np.flatnonzero(~((lo <= gradient) & (gradient <= hi)))
        if wrong.size:
            j = wrong[0]
            raise BoundViolationError(
                f"after step {self.n_steps} the bounds of coordinate {j}, [{lo[j]}, {hi[j]}], do not contain its "
                f"gradient entry {gradient[j]} ({wrong.size} of {gradient.size} coordinates are wrong)"
            )


def _bounds(sampling: Any, bounds: Any, problem: Problem, exact_steps: bool) -> Any:
    """Return the name of the bounds that a sampling uses, or the tracker itself."""
    if bounds == "auto" and sampling in SAMPLINGS and sampling != "safe":
        return "exact" if sampling in ("optimal", "greedy") else NoBounds()
    bounds = choose(bounds, problem, exact_steps)
    if sampling in ("optimal", "greedy") and bounds != "exact" and not isinstance(bounds, Cooccurrence | Gram):
        raise ValueError(f"sampling={sampling!r} needs bounds='exact', got {bounds!r}")
    return bounds
