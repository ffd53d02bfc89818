"""The fast solver: exact gradients on a working set, and certificates for all the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surestep import losses
from surestep._jit import jit
from surestep.bounds.choose import lengths
from surestep.bounds.tracker import EPS
from surestep.problem import FENCHEL, Gap, Problem, best_shift
from surestep.regularizers import Separable
from surestep.solvers._checks import check_run, starting_point
from surestep.solvers._columns import combine, descend_by_columns, dots
from surestep.solvers._gram import Gram, descend_on_gram, jump, pays
from surestep.solvers._look import (
    curvatures,
    gains_of,
    look,
    loss_terms,
    penalty_terms,
    residuals,
    scale_of,
    slope,
)
from surestep.solvers._loop import Callback, run, target_of
from surestep.solvers._smooth import Newton
from surestep.trace import Result, Status

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates that join the working set in a round: as many as are not zero, and no fewer than these.
_FEWEST = 128

# A round solves on the working set until steps, in sqrt(L_j) |d_j|, are this part of what they were among all
# coordinates: while many others join it, and when few do. Near the end: until they promise this part of the target.
_ROUGH, _ACCURATE, _SHARE = 0.3, 0.01, 0.3

# For losses that are not quadratic: models in a round, at most, and the accuracy of each.
_MODELS, _MODEL_ACCURACY = 20, 0.1

# Curvatures of the model, as a part of the smoothness, at least: where the loss is linear a Newton step has no end.
_LEAST_CURVATURE = 1e-6

# A step is short enough when f falls, at its end, at most this part as fast as at its beginning.
_FLAT = 0.3

# Sweeps over the columns in a round, at most.
_SWEEPS = 300

# Rounds without any progress after which rounding must be what is in the way.
_PATIENCE = 5

# Direct solves in a round, at most; and updates before the first.
_JUMPS, _FEWEST_UPDATES = 200, 500


def minimize(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_rounds: int = 1000,
    n_jobs: int = 1,
    callbacks: Iterable[Callback] = (),
    warm_start: Result | ArrayLike | None = None,
) -> Result:
    """Minimise a problem fast, with a certificate.

    Works in rounds. In each, the coordinates that promise most join a working set W; the problem is solved on W, with
    all its gradient entries known exactly; then one pass over the columns that are not certified to stay at zero gives
    the duality gap, and what promises most now. On W: adaptive descent by its Gram matrix, which is extended and never
    rebuilt, and direct solves for the coordinates that are not zero; or random sweeps over the columns and conjugate
    gradients, where W is too large for that, and for the quadratic models (Newton's method) of other losses.
    Problems without an L1 part and bounds are left to Newton's method as a whole.

    Parameters
    ----------
    problem : Problem
    tol : float
        Stop when the certified duality gap is at most ``tol`` times the objective at zero. For problems without a
        certificate, see `Problem.certificate_reason`: when the largest violation of optimality is ``tol`` times that at
        zero.
    max_rounds : int
    n_jobs : int
        Threads for the passes over the data; -1 means as many as there are processors. The result is the same.
    callbacks : iterable of callables
        Each is called with a `Progress` after every round.
    warm_start : Result or array, optional
        Where to start, instead of zero.

    Returns
    -------
    Result
        ``trace`` has a row a round, with the columns epoch (the round), steps, seconds (all of them: looking at the gap
        is part of the work), objective, gap, nonzeros, working_set (its size), gram (whether its Gram matrix is used)
        and passes (entries of X read so far, over all there are).

    Examples
    --------
    >>> import numpy as np, surestep as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=50)
    >>> result = ss.minimize(ss.Problem(X, y, regularizer=ss.L1(0.4)), tol=1e-10)
    >>> result.status.name, np.flatnonzero(result.coef)
    ('CONVERGED', array([0, 1]))
    """
    begin = time.perf_counter()
    check_run(problem, max_rounds, tol, 1)
    if not isinstance(problem.penalty, Separable):
        raise TypeError(f"minimize needs a regularizer of this package, not {problem.regularizer!r}")
    if not (isinstance(n_jobs, int) and (n_jobs > 0 or n_jobs == -1)):
        raise ValueError(f"n_jobs must be a positive int, or -1 for all processors, got {n_jobs!r}")
    target = target_of(problem, tol)
    with ThreadPoolExecutor(None if n_jobs == -1 else n_jobs) as pool:
        rounds = _Rounds(problem, starting_point(problem, warm_start), target, pool)
        return run(
            rounds,
            problem,
            max_epochs=max_rounds,
            target=target,
            callbacks=callbacks,
            trace_every=1,
            seconds=time.perf_counter() - begin,
        )


class _Rounds:
    """Where the solver stands, and a round of it."""

    def __init__(self, problem: Problem, x: Array, target: float, pool: ThreadPoolExecutor) -> None:
        n, reg = problem.n_coordinates, problem.penalty
        self._problem, self._columns, self._target, self._pool = problem, problem.columns, target, pool
        self.x, self._z = x, problem.predictor(x)
        self._u, self._r = np.zeros((2, problem.n_samples))  # as of the last look
        self._gradient, self._until, self._travelled = np.zeros(n), np.full(n, -np.inf), 0.0
        self._longest = int(np.max(lengths(problem.columns)))
        self._is_member = np.zeros(n, bool)
        self._rng = np.random.default_rng(0)  # for the order of columns in a sweep
        self.n_steps, self._n_read, self._n_new, self._n_idle = 0, 0, 0, 0
        self._curved = not isinstance(problem.loss, losses.Squared)
        self._weights = problem.weights.copy()  # d_i of the quadratic model
        self._members = np.empty(0, np.int64)
        # A Gram matrix for every model of a loss that bends costs more than it brings (measured).
        self._gram = None if self._curved else Gram(self._columns, problem.n_samples, self._weights)
        kinks = np.any(reg.l1 > 0.0) or np.any(np.isfinite(reg.lower)) or np.any(np.isfinite(reg.upper))
        self._newton = None if kinks else Newton(problem)
        self._look()

    def evaluate(self) -> tuple[Gap, float]:
        """Return what the last look found."""
        return self._gap, self._violation

    def columns(self) -> dict[str, float]:
        """Return the size of the working set, how it is worked on, and what has been read."""
        return {
            "working_set": float(self._members.size),
            "gram": float(self._gram is not None),
            "passes": self._n_read / max(self._problem.design.nnz, 1),
        }

    def advance(self, n_epochs: float) -> Status | None:
        """Do a round."""
        n_members, objective, error = self._members.size, self._gap.objective, self._error
        if self._newton is not None:
            self._step_everywhere(self._newton)
        else:
            self._choose()
            self._solve()
        self._look()
        falls = self._gap.objective < objective - 4.0 * EPS * abs(objective) or self._error < 0.5 * error
        self._n_idle = 0 if falls or self._members.size > n_members else self._n_idle + 1
        if self._violation == 0.0:
            return Status.OPTIMAL
        return Status.PRECISION if self._n_idle == _PATIENCE else None

    # --- Where we stand

    @property
    def _error(self) -> float:
        """What has to become small."""
        return self._gap.gap if self._gap.gap < np.inf else self._violation

    def _look(self) -> None:
        """Compute the gradient entries that matter, what each coordinate promises, and the gap."""
        problem, x, penalty = self._problem, self.x, self._problem.penalty
        if problem.fit_intercept:  # a dual point needs residuals that add up to nothing
            shift = best_shift(problem.loss, self._z, problem.y, problem.weights)
            x[-1] += shift
            self._z += shift
        distance, size = residuals(problem.loss, self._z, problem.y, problem.weights, self._u, self._r)
        support = np.flatnonzero(x)
        moved = float(np.abs(x[support]) @ problem.norms[support])
        # As in `rounding_of`: sums lose an ulp for each of their terms.
        smoothness = losses.smoothness(problem.loss)
        rounding = 4.0 * EPS * ((self._longest + 8) * size + smoothness * (support.size + 8) * moved)
        self._travelled += distance * (1.0 + 8.0 * EPS * problem.n_samples) + rounding
        self._moving = self._looked_at(2.0 * rounding)
        if problem.fit_intercept:
            self._gradient[-1] = 0.0  # up to rounding it is
        self._gains = np.empty(self._moving.size)
        self._violation = gains_of(penalty, x, self._gradient, problem.smoothness, self._moving, self._gains)
        tau = scale_of(penalty, self._gradient, self._moving)
        penalties, gap = penalty_terms(penalty, x, self._gradient, self._moving, tau)
        mean, more = loss_terms(problem.loss, self._z, self._u, problem.y, problem.weights, tau)
        objective = mean + penalties
        if tau == 0.0:
            self._gap = Gap(np.inf, objective, -np.inf, problem.certificate_reason)
        else:
            gap = max(gap + more, 0.0)
            self._gap = Gap(gap, objective, objective - gap, FENCHEL)

    def _looked_at(self, rounding: float) -> Integers:
        """Look at all coordinates, a part of them a thread; return those that are not zero or not optimal."""
        problem, n = self._problem, self.x.size
        n_parts = self._pool._max_workers
        edges = [n * part // n_parts for part in range(n_parts + 1)]

        def part(first: int, last: int) -> tuple[Integers, int]:
            moving = np.empty(last - first, np.int64)
            n_moving, n_read = look(
                self._columns,
                problem.penalty,
                problem.norms,
                self.x,
                self._r,
                self._travelled,
                rounding,
                self._is_member,
                first,
                last,
                self._gradient,
                self._until,
                moving,
            )
            return moving[:n_moving], n_read

        parts = list((self._pool.map if n_parts > 1 else map)(part, edges[:-1], edges[1:]))
        self._n_read += sum(n_read for _, n_read in parts)
        return np.concatenate([moving for moving, _ in parts])

    # --- A round on the working set

    def _choose(self) -> None:
        """Let the coordinates that promise most join the working set, and all that are not zero."""
        outside = ~self._is_member[self._moving]
        new, gains = self._moving[outside], self._gains[outside]
        gains[self.x[new] != 0.0] = np.inf
        most = max(_FEWEST, int(np.count_nonzero(self.x)), int(np.count_nonzero(gains == np.inf)))
        if new.size > most:
            new = np.sort(new[np.argpartition(-gains, most)[:most]])
        self._n_new = new.size
        if new.size == 0:
            return
        self._is_member[new] = True
        self._members = np.concatenate([self._members, new])
        if self._gram is not None:
            if pays(self._columns, self._problem.n_samples, self._members):
                self._gram.extend(new)
            else:
                self._gram = None

    def _solve(self) -> None:
        """Solve on the working set."""
        problem, members = self._problem, self._members
        reg = Separable(*(array[members] for array in problem.penalty))
        # The gap falls with the size of the steps, f with its square.
        wanted = _SHARE * self._target / self._gap.gap if 0.0 < self._gap.gap < np.inf else 0.0
        accuracy = _ROUGH if 10 * self._n_new > members.size else _ACCURATE
        enough = max(accuracy, wanted) ** 2 * float(np.max(self._gains, initial=0.0))
        x = self.x[members]
        if self._curved:
            self._solve_by_models(reg, x, enough)
        else:
            after = self._solve_model(reg, x, self._gradient[members], self._r, enough)
            combine(self._columns, members, after - x, self._z)
            x = after
        self.x[members] = x

    def _solve_by_models(self, reg: Separable, x: Array, enough: float) -> None:
        """Newton's method on the working set; x is changed in place, and z with it."""
        problem, members = self._problem, self._members
        u, r, move = np.zeros((3, problem.n_samples))
        g, gains, all_of_it = np.empty(x.size), np.empty(x.size), np.arange(x.size)
        smoothness = problem.smoothness[members]
        for _ in range(_MODELS):
            residuals(problem.loss, self._z, problem.y, problem.weights, u, r)
            dots(self._columns, members, r, g)
            gains_of(reg, x, g, smoothness, all_of_it, gains)
            largest = float(np.max(gains))
            if largest <= enough:
                return
            self._bend()
            after = self._solve_model(reg, x, g, r, max(_MODEL_ACCURACY**2 * largest, 0.1 * enough))
            move[:] = 0.0
            combine(self._columns, members, after - x, move)
            t = self._step_along(move, _penalty_change(reg, x, after))
            if t == 0.0:
                return
            x[:] = after if t == 1.0 else x + t * (after - x)
            self._z += t * move

    def _solve_model(self, reg: Separable, x: Array, g: Array, r: Array, enough: float) -> Array:
        """Return where the quadratic model with gradient g, or residual r, at x is lowest on the working set."""
        x = x.copy()
        if self._gram is None:
            self.n_steps += descend_by_columns(
                self._columns, reg, self._members, self._weights, x, r.copy(), enough, self._rng, _SWEEPS
            )
            return x
        matrix, g = self._gram.matrix, g.copy()
        curvature = np.maximum(np.diagonal(matrix) + reg.l2, np.finfo(float).tiny)
        for _ in range(_JUMPS):
            # As many updates as take the time of a direct solve; then the direct solve.
            n_updates = max(_FEWEST_UPDATES, int(np.count_nonzero(x)) ** 3 // (36 * x.size))
            done = descend_on_gram(reg, x, g, curvature, matrix, enough, n_updates)
            self.n_steps += done
            if done < n_updates:
                break
            jump(reg, x, g, matrix)
        return x

    # --- A round without kinks

    def _step_everywhere(self, newton: Newton) -> None:
        """Do a step of Newton's method in all coordinates."""
        problem, x = self._problem, self.x
        self._bend()
        c = self._gradient + problem.penalty.l2 * x
        # Good enough to converge superlinearly, and no better than the target asks for.
        accuracy = max(min(0.1, np.sqrt(self._violation)), 1e-10)
        before = newton.n_products
        step = newton.step(self._weights, c, accuracy)
        self._n_read += (newton.n_products - before) * problem.design.nnz
        self.n_steps += 1
        after = x + step
        move = problem.predictor(step)
        t = self._step_along(move, _penalty_change(problem.penalty, x, after))
        x += t * step
        self._z += t * move

    # --- Parts of both

    def _bend(self) -> None:
        """Take the curvatures of the loss at the present point for those of the model."""
        problem = self._problem
        if self._curved:
            curvatures(problem.loss, self._z, problem.y, problem.weights, _LEAST_CURVATURE, self._weights)

    def _step_along(self, move: Array, more: float) -> float:
        """Return how far to go along a step, at most 1, that changes z by ``move`` and the penalty by ``more``.

        The objective along the step lies below the mean loss plus t * more, a convex function of t that falls at 0. To
        go no further than where that is lowest cannot raise it; and slopes tell so where values drown in rounding.
        """
        problem = self._problem

        def slope_at(t: float) -> float:
            return float(slope(problem.loss, self._z, move, t, problem.y, problem.weights) + more)

        steepest, at_high = slope_at(0.0), slope_at(1.0)
        # Slopes rise: those at 1/2 and 1 bound the rise over either half.
        if not at_high > 0.0 or slope_at(0.5) + at_high <= 0.0:
            return 1.0
        low, high, at_low = 0.0, 1.0, steepest
        while at_low < _FLAT * steepest and high - low > EPS:
            # Where a line through the ends of the bracket crosses zero, but not too near to either.
            t = low + (high - low) * min(max(at_low / (at_low - at_high), 0.1), 0.9)
            at = slope_at(t)
            if at > 0.0:
                high, at_high = t, at
            else:
                low, at_low = t, at
        return low


@jit
def _penalty_change(reg: Separable, x: Array, after: Array) -> float:
    """psi(after) - psi(x), from the differences: near the optimum the values are all alike."""
    total = 0.0
    for j in range(x.size):
        total += reg.l1[j] * (abs(after[j]) - abs(x[j])) + 0.5 * reg.l2[j] * (after[j] - x[j]) * (after[j] + x[j])
    return total
