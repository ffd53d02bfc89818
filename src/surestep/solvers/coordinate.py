"""Coordinate descent under any sampling: Algorithms 1, 2 and 3 of the paper."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep import losses
from surestep._jit import jit
from surestep.bounds.choose import lengths, make_tracker
from surestep.bounds.exact import Cooccurrence, Gram
from surestep.bounds.indexed import Indexed, make_indexed, restart
from surestep.bounds.path import Path
from surestep.bounds.snapshot import Snapshot
from surestep.bounds.tracker import (
    EPS,
    NoBounds,
    Point,
    Step,
    changed,
    fill_intervals,
    fill_magnitudes,
    needs_gradient,
    refresh,
    stepped,
)
from surestep.design import dot, entry, n_entries, transposed_product
from surestep.problem import Problem
from surestep.regularizers import prox
from surestep.sampling.distribution import optimal_sampling
from surestep.sampling.samplers import Cyclic, Greedy, draw, looks_at_bounds, make_fixed, make_safe, observe
from surestep.solvers._loop import Callback, run
from surestep.trace import Result

Array = NDArray[np.float64]

SAMPLINGS = ("safe", "optimal", "importance", "uniform", "cyclic", "greedy")
STEPS = ("adaptive", "fixed", "exact")
CURVATURES = ("coordinate", "constant")

# So few coordinates are looked at one by one in less time than an index takes.
_FEW = 256


class BoundViolationError(RuntimeError):
    """A tracker's interval does not contain the true gradient entry."""


def coordinate_descent(
    problem: Problem,
    *,
    sampling: Any = "safe",
    step: str = "adaptive",
    bounds: Any = "auto",
    smoothness: str = "coordinate",
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
    smoothness : {"coordinate", "constant"}
        L_i of each coordinate, or max(L) for all of them, as in the paper's figures.
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
    _check_choice("step", step, STEPS)
    _check_choice("smoothness", smoothness, CURVATURES)
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a surestep.Problem, got {type(problem).__name__}")
    if not 0.0 < tol < np.inf:
        raise ValueError(f"tol must be positive and finite, got {tol}")
    if not max_epochs >= 0.0:
        raise ValueError(f"max_epochs must not be negative, got {max_epochs}")
    if not trace_every > 0.0:
        raise ValueError(f"trace_every must be positive, got {trace_every}")
    if max_epochs == trace_every == np.inf:
        raise ValueError("trace_every and max_epochs must not both be infinite: the run would never look up")
    method = CoordinateDescent(problem, sampling, step, bounds, smoothness, _start(problem, warm_start), random_state)
    method.track_optimal, method.check_bounds = track_optimal, check_bounds
    return run(method, problem, max_epochs=max_epochs, tol=tol, callbacks=callbacks, trace_every=trace_every)


class State(NamedTuple):
    """What changes during a run."""

    x: Array
    z: Array  # Ax
    r: Array  # grad h(Ax)
    lower: Array  # bounds on c, where the sampler looks at them
    upper: Array
    sums: Array  # steps done, and the sum of v over the steps since the last row of the trace


class Rule(NamedTuple):
    """The step gamma: 1 / L_i if ``exact``, else 1 / (v p_i), with a v of its own if that is positive."""

    exact: bool
    value: float


class Rounding(NamedTuple):
    """How much rounding adds to the distance of r from the truth, see `_rounding`."""

    per_distance: float
    per_move: float
    per_predictor: float


class CoordinateDescent:
    """The state of a run and its step; `run` does the rest."""

    def __init__(
        self,
        problem: Problem,
        sampling: Any,
        step: str,
        bounds: Any,
        curvature: str,
        x: Array,
        random_state: int | np.random.Generator | None,
    ) -> None:
        self.problem = problem
        self.track_optimal = self.check_bounds = False
        L = problem.smoothness
        self.active = np.flatnonzero(L > 0.0)
        # An empty column: the penalty alone decides.
        for j in np.flatnonzero(L == 0.0):
            if problem.penalty.l1[j] > 0.0 or problem.penalty.l2[j] > 0.0:
                x[j] = 0.0
        self.smoothness = np.where(L > 0.0, L.max(), 0.0) if curvature == "constant" else L
        self.smoothness.flags.writeable = False  # as that of the problem is, so that one kernel serves both
        self.total = float(self.smoothness.sum())
        self.rng = np.random.default_rng(random_state)
        self.tracker = _tracker(sampling, bounds, problem)
        self.sampler, fixed_value = _sampler(sampling, self.smoothness, self.active, self.tracker)
        self.rule = Rule(step == "exact", fixed_value if step == "fixed" else 0.0)
        self.rounding = _rounding(problem)
        n = problem.n_coordinates
        z = problem.predictor(x)
        self.state = State(x, z, problem.residual(z), np.zeros(n), np.zeros(n), np.zeros(2))
        self._epochs = 0.0
        self._chunk, self._next_refresh = 64, 0
        self._mean_value = np.nan

    @property
    def x(self) -> Array:
        """The present point."""
        return self.state.x

    @property
    def n_steps(self) -> int:
        """Steps done so far."""
        return int(self.state.sums[0])

    def advance(self, n_epochs: float) -> bool:
        """Do some epochs; False says that every coordinate is certified optimal."""
        begin, self.state.sums[1] = self.n_steps, 0.0
        self._epochs += n_epochs
        end = round(self._epochs * self.active.size)  # of all epochs so far: parts of an epoch add up
        improvable = self.active.size > 0
        while improvable and self.n_steps < end:
            if self.n_steps >= self._next_refresh:
                if self.n_steps == 0 or needs_gradient(self.tracker):
                    self._refresh()
                self._next_refresh = self.n_steps + self.active.size
            n_steps = min(self._chunk, end - self.n_steps, self._next_refresh - self.n_steps)
            improvable = self._steps(1 if self.check_bounds else n_steps)
            if self.check_bounds:
                self._check_bounds()
        if self.n_steps > begin and not isinstance(self.sampler, Cyclic | Greedy):
            self._mean_value = self.state.sums[1] / (self.n_steps - begin)
        return improvable

    def columns(self) -> dict[str, float]:
        """Return the value of the sampling, and how many coordinates are certified not to move."""
        state, problem = self.state, self.problem
        row = {"value_ratio": self._mean_value / self.total if self.total > 0.0 else np.nan}
        still = np.nan
        if not isinstance(self.tracker, NoBounds):
            fill_magnitudes(self.tracker, problem.penalty, problem.smoothness, state.x, state.lower, state.upper)
            still = float(np.count_nonzero(state.upper[self.active] == 0.0))
        row["still"] = still
        if self.track_optimal and self.active.size:
            c = problem.optimality(state.x)[self.active]
            row["optimal_value_ratio"] = optimal_sampling(c, self.smoothness[self.active]).value / self.total
        return row

    def _steps(self, n_steps: int) -> bool:
        """Run the kernel; in pieces of about a tenth of a second, so that Ctrl-C is heard."""
        problem = self.problem
        begin = time.perf_counter()
        improvable: bool = descend(
            problem.columns,
            problem.loss,
            problem.penalty,
            Data(problem.y, problem.weights, problem.smoothness, problem.norms),
            self.tracker,
            self.sampler,
            self.rule,
            self.rounding,
            self.state,
            n_steps,
            self.rng,
        )
        if time.perf_counter() - begin < 0.1:
            self._chunk = 2 * n_steps
        return improvable

    def _refresh(self) -> None:
        """Hand the whole gradient, computed afresh, to trackers that want it."""
        if isinstance(self.tracker, NoBounds):
            return
        state, problem = self.state, self.problem
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
        if isinstance(self.sampler, Indexed):
            restart(self.sampler, self.tracker, problem.penalty, point)

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


class Data(NamedTuple):
    """What does not change during a run, besides the columns."""

    y: Array
    weights: Array
    smoothness: Array
    norms: Array


@jit
def descend(
    columns: Any,
    loss: Any,
    penalty: Any,
    data: Data,
    tracker: Any,
    sampler: Any,
    rule: Rule,
    rounding: Rounding,
    state: State,
    n_steps: int,
    rng: Any,
) -> bool:
    """Do a number of steps; return False as soon as every coordinate is certified optimal."""
    for _ in range(n_steps):
        if looks_at_bounds(sampler):
            fill_magnitudes(tracker, penalty, data.smoothness, state.x, state.lower, state.upper)
        i, p, value = draw(sampler, state.lower, state.upper, rng)
        if i < 0:
            return False
        worst = rule.value if rule.value > 0.0 else value
        gamma = 1.0 / data.smoothness[i] if rule.exact else 1.0 / (worst * p)
        gradient = dot(columns, i, state.r)
        change = prox(penalty, i, state.x[i] - gamma * gradient, gamma) - state.x[i]
        if change == 0.0:
            step = Step(gradient, 0.0, 0.0, 0.0)
        else:
            state.x[i] += change
            step = move(columns, loss, data, tracker, rounding, state, i, change)
        stepped(tracker, i, step)
        observe(sampler, tracker, penalty, i, state.x[i], step)
        state.sums[0] += 1.0
        state.sums[1] += value
    return True


@jit
def move(
    columns: Any, loss: Any, data: Data, tracker: Any, rounding: Rounding, state: State, i: int, change: float
) -> Step:
    """Carry a change of x_i over to z and r, in one walk along column i."""
    gradient = squared_distance = squared_predictor = 0.0
    n = n_entries(columns, i)
    for k in range(n):
        row, value = entry(columns, i, k)
        weight = data.weights[row]
        state.z[row] += change * value
        before = state.r[row]
        after = weight * losses.derivative(loss, state.z[row], data.y[row]) if weight > 0.0 else 0.0
        state.r[row] = after
        gradient += value * after
        if weight > 0.0:
            squared_distance += (after - before) * ((after - before) / weight)
            squared_predictor += weight * state.z[row] * state.z[row]
        changed(tracker, row, before, after, weight)
    distance = np.sqrt(squared_distance) * (1.0 + (n + 8.0) * EPS)
    error = (
        rounding.per_distance * distance
        + rounding.per_move * abs(change) * data.norms[i]
        + rounding.per_predictor * np.sqrt(squared_predictor)
    )
    return Step(gradient, change, distance, error)


def _rounding(problem: Problem) -> Rounding:
    """Bound what rounding does to a gradient entry, as a distance of r (to be multiplied by the norm of the column).

    A sum of n products loses at most n ulp of the sum of their absolute values: of |a_j| |r| for a gradient entry, of
    sum_j |x_j| |a_j| for the predictor Ax, which r follows with at most the smoothness beta of the loss; and each step
    rounds the entries of z it touches once more. All with a factor of four to spare.
    """
    beta = losses.smoothness(problem.loss)
    longest, widest = (int(np.max(lengths(lines))) for lines in (problem.columns, problem.design.rows))
    return Rounding(4.0 * EPS * (longest + 8), 4.0 * EPS * beta * (widest + 8), 4.0 * EPS * beta)


def _start(problem: Problem, warm_start: Result | ArrayLike | None) -> Array:
    if warm_start is None:
        return np.zeros(problem.n_coordinates)
    if isinstance(warm_start, Result):
        x = warm_start.coef
        if x.size != problem.n_features:
            raise ValueError(f"warm_start has {x.size} coefficients, the problem has {problem.n_features} features")
        x = np.append(x, warm_start.intercept) if problem.fit_intercept else x.copy()
    else:
        x = np.array(warm_start, dtype=np.float64)
        if x.shape != (problem.n_coordinates,):
            raise ValueError(f"warm_start must have shape ({problem.n_coordinates},), got {x.shape}")
        if not np.isfinite(x).all():
            raise ValueError(f"warm_start[{np.argmin(np.isfinite(x))}] is not finite")
    return np.clip(x, problem.penalty.lower, problem.penalty.upper)


def _tracker(sampling: Any, bounds: Any, problem: Problem) -> Any:
    if sampling in ("optimal", "greedy"):
        tracker = make_tracker("exact" if bounds == "auto" else bounds, problem)
        if bounds not in ("auto", "exact") and not isinstance(tracker, Cooccurrence | Gram):
            raise ValueError(f"sampling={sampling!r} needs bounds='exact', got {bounds!r}")
        return tracker
    if bounds == "auto" and sampling in SAMPLINGS and sampling != "safe":
        return NoBounds()
    return make_tracker(bounds, problem)


def _sampler(sampling: Any, smoothness: Array, active: NDArray[np.int64], tracker: Any) -> tuple[Any, float]:
    """Return the sampler and the v of its fixed steps."""
    if isinstance(sampling, tuple):
        return sampling, float(smoothness.sum())
    _check_choice("sampling", sampling, SAMPLINGS)
    total, largest = float(smoothness.sum()), float(smoothness.max())
    if sampling == "safe" and isinstance(tracker, Path | Snapshot) and active.size > _FEW:
        return make_indexed(smoothness, tracker.norms), total
    if sampling in ("safe", "optimal") or active.size == 0:  # with empty columns only nothing is ever drawn
        return make_safe(smoothness), total
    if sampling == "importance":
        return make_fixed(smoothness / total, total), total
    if sampling == "uniform":
        return make_fixed((smoothness > 0.0) / active.size, active.size * largest), active.size * largest
    if sampling == "greedy":
        return Greedy(smoothness), largest
    return Cyclic(active, smoothness, np.zeros(1, np.int64)), largest


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
