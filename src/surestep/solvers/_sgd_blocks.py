"""Blocks of stochastic gradient steps: what is drawn from, how far x may go, and when to look at all rows again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep.bounds.choose import lengths
from surestep.bounds.delegated import DelegatedMargins
from surestep.bounds.margins import fill_norm_bounds, fill_smoothness, margins, mean_gradient, row_norms, safe_shares
from surestep.problem import Gap, Problem
from surestep.regularizers import Separable
from surestep.sampling.samplers import OVER, fill_alias
from surestep.solvers._average import Average
from surestep.solvers._checks import BoundViolationError
from surestep.solvers._loop import evaluate
from surestep.solvers._orbit import (
    DENSE,
    LOWER,
    PENALTY_L1,
    PENALTY_L2,
    REFERENCE,
    UPPER,
    Packed,
    X,
    make_ball,
    make_powers,
)
from surestep.solvers._stochastic import (
    AFFINE,
    ANCHOR,
    BUDGET,
    CLOSED,
    EMPTY,
    FIRST,
    KEEP,
    LONGEST,
    MOVES,
    N_TOTALS,
    NORM,
    OTHER,
    PULL,
    REACHED,
    RIDGE,
    SHARE,
    SIZE,
    TARGET,
    TIME,
    State,
    begin,
    descend,
    distance,
    flush,
    reference_moves,
)

Array = NDArray[np.float64]

# An anchor is taken after as many rows, in units of their number: one pass costs less than as many steps. But not after
# fewer rows than these.
_ANCHOR_EVERY = 0.5
_FEWEST_ROWS = 128

# Margins that others compute are fetched after as many rows, in units of their number: a sampling is solved for then.
_NEWS_EVERY = 0.25

# A variance-reduced method expects to get as far from the next anchor as it got from the last one, and a bit.
_MARGIN = 1.5

# Bounds are worth their cost where they make the worst case so much better.
_WORTH = 0.7

# Steps become no longer than this by bounds alone.
_LONGEST = 10.0

# A stepsize that falls does so in stairs: by no more than about this much at once.
_STAIR = 0.125

# Plain steps that find their own length begin with this part of the longest, and with as short a block, in units of N.
_FIRST_STEP = 0.02
_FIRST_BLOCK = 0.0625


class StochasticGradientDescent:
    """The state of a run and its step; `run` does the rest.

    Steps are done in blocks. In a block the stepsize, the dense vector g and the reference from which distances are
    measured stay the same; at its start every coordinate is up to date.
    """

    def __init__(
        self,
        problem: Problem,
        sampling: str,
        variance_reduction: bool,
        step: str,
        x: Array,
        random_state: int | np.random.Generator | None,
        *,
        stepsize: float | None = None,
        batch_size: int = 1,
        average: str | None = None,
        radius: float | None = None,
        crew: Any = None,
    ) -> None:
        self.problem, self.sampling, self.anchored = problem, sampling, variance_reduction
        self.check_bounds = False
        self.rng = np.random.default_rng(random_state)
        d = problem.n_coordinates
        self.delegated: DelegatedMargins | None = None
        separable = isinstance(problem.penalty, Separable)
        l2, counts = np.unique(problem.penalty.l2[: problem.n_features] if separable else [0.0], return_counts=True)
        self.l2, self.has_one_l2, self.strong_convexity = float(l2[np.argmax(counts)]), l2.size == 1, float(l2[0])
        self.penalty: Any = Packed() if separable else problem.penalty
        samples = self._take_rows(crew)
        self.radius = radius
        if radius is not None:
            self._check_ball()
            size = float(np.linalg.norm(x[: problem.n_features]))
            x[: problem.n_features] *= min(radius / size, 1.0) if size > 0.0 else 1.0
        self.step, self.first_step = self._schedule(step, stepsize)
        self.adapts = step == "auto" and variance_reduction and stepsize is None
        coordinates = np.zeros((d, 8))
        coordinates[:, X] = x
        if separable:
            for column, part in zip((PENALTY_L1, PENALTY_L2, LOWER, UPPER), problem.penalty, strict=True):
                coordinates[:, column] = part
        totals = np.zeros(N_TOTALS)
        totals[LONGEST], totals[AFFINE] = self.longest, float(self._is_affine())
        average_, drawn = np.zeros(d if average else 0), np.zeros(batch_size, np.int64)
        dealt, coefficients = np.zeros(0, np.int64), np.zeros(batch_size)
        self.state = State(samples, coordinates, average_, totals, drawn, coefficients, dealt)
        self.powers = make_powers(self.first_step, self.l2, self.has_one_l2, 1)
        self.n_steps = 0
        self._length = 0  # of the present block
        self._rows = self._epochs = 0.0  # looked at, and asked for
        self._chunk = 64
        self._caution = 1.0  # what adaptive steps are multiplied by
        self._objective = math.inf  # at the anchor
        self._reach = math.inf  # how far x is expected to get from the reference
        self._patience = self._blind = 0  # blocks to do without bounds: when they next tell nothing; still to be done
        self._start, self._far, self._moves, self._squares = x.copy(), 0.0, 0.0, 0.0  # of `_found_step`
        self._value_ratio = 1.0
        self._drawn_by = np.zeros(0)  # what the alias table is for
        self._average = Average(average, d) if average else None

    def _take_rows(self, crew: Any) -> Array:
        """Look at the rows: the sampling that needs no gradients, and its smoothness; return the table of samples."""
        problem = self.problem
        self.rows = problem.design.rows
        self.norms = row_norms(self.rows, problem.fit_intercept)
        self.scale = problem.weights * self.norms
        self.active = self.scale > 0.0
        self.curvature = losses.smoothness(problem.loss) * self.scale * self.norms
        self.fixed = self._fixed_shares()
        self.smoothness = float(np.max(self.curvature[self.active] / self.fixed[self.active], initial=0.0))
        self.longest = float(np.max(lengths(self.rows)))
        n = problem.n_samples
        self.lower, self.upper = np.zeros(n), np.full(n, np.inf)
        self.z = np.zeros(n)  # margins at the reference
        if crew is not None:
            self.delegated = DelegatedMargins(crew, n)
            self.z = self.delegated.z  # at a point of its own for each part
        samples = np.zeros((n, 8))
        samples[:, TARGET] = problem.y
        samples[:, NORM] = row_norms(self.rows, False) if self._is_affine() else self.norms
        return samples

    # --- What the loop asks for

    @property
    def x(self) -> Array:
        """The present point, or the average."""
        flush(self.penalty, self.powers, self.state)
        if self._average:
            total, weight = self._average.sums(self.state.average, self.state.totals[TIME], self.n_steps)
            if weight > 0.0:
                return np.asarray(total / weight)
        return self.state.coordinates[:, X].copy()

    def columns(self) -> dict[str, float]:
        """Return the stepsize, the value of the sampling, and how many rows are certified to have nothing to tell."""
        still = float(np.count_nonzero(self.active & (self.upper == 0.0)))
        columns = {"stepsize": self.powers.step, "value_ratio": self._value_ratio, "still": still}
        if self.delegated is not None:
            flush(self.penalty, self.powers, self.state)
            columns["staleness"] = self.delegated.staleness(self.state.coordinates[:, X])
            columns["arrived"] = float(self.delegated.n_arrived)
        return columns

    def evaluate(self) -> tuple[Gap, float]:
        """Return gap and violation; the clock stands still meanwhile."""
        return evaluate(self.problem, self.x)

    def advance(self, n_epochs: float) -> None:
        """Do some epochs."""
        self._epochs += n_epochs
        totals, batch = self.state.totals, self.state.drawn.size
        end = round(self._epochs * self.problem.n_samples)
        said = 0
        while self._rows < end:
            if totals[TIME] >= self._length or said == CLOSED or (said == OVER and self.anchored):
                self._begin_block()
            elif said == OVER:
                self._draw_within(2.0 * totals[BUDGET])
            if self.sampling == "optimal":
                self._draw_by_gradients()
            n_steps = min(self._chunk, self._length - int(totals[TIME]), math.ceil((end - self._rows) / batch))
            said = self._steps(1 if self.check_bounds or self.sampling == "optimal" else max(n_steps, 1))
            if self.check_bounds:
                self._check_bounds()

    def _steps(self, n_steps: int) -> int:
        """Run the kernel; in pieces of about a tenth of a second, so that Ctrl-C is heard."""
        problem, before = self.problem, self.state.totals[TIME]
        start = time.perf_counter()
        said: int = descend(
            self.rows, problem.fit_intercept, problem.loss, self.penalty, self.powers, self.state, n_steps, self.rng
        )
        done = int(self.state.totals[TIME] - before)
        self.n_steps += done
        self._rows += done * self.state.drawn.size
        if n_steps >= self._chunk and time.perf_counter() - start < 0.1:
            self._chunk *= 2
        return said

    # --- Blocks

    def _begin_block(self) -> None:
        problem, state, totals = self.problem, self.state, self.state.totals
        flush(self.penalty, self.powers, state)
        self._close_average()
        if self._length > 0:
            self._look_back()
            moved = float(np.linalg.norm(state.coordinates[:, X] - state.coordinates[:, REFERENCE]))
            self._reach = max(moved, totals[REACHED] if totals[BUDGET] < np.inf else 0.0)
        if self.anchored:
            self._take_anchor()
        begin(state)
        step, self._length = self._plan()
        if self.anchored:
            step *= self._choose_anchored(_MARGIN * self._reach if self.sampling == "safe" else math.inf)
        if step != self.powers.step or self.powers.table.shape[0] <= self._length:
            self.powers = make_powers(step, self.l2, self.has_one_l2, self._length)
        if self.radius is not None:
            self.penalty = make_ball(self.radius, state.coordinates[: problem.n_features, X].copy(), self._length)
        if not self.anchored:
            known = self._wants_bounds()
            if self.delegated is not None:
                self.delegated.exchange(state.coordinates[:, X].copy())
                known = known and bool(self.delegated.distances.min() < np.inf)
            elif known:
                self.z = self._margins(state.coordinates[:, X])
            if known:
                self._draw_within(0.5 * self._reach)
            else:
                self._blind, self.upper[:] = max(self._blind - 1, 0), np.inf
                self._draw_by(self.fixed, math.inf)
        if totals[BUDGET] < np.inf:
            self._follow_distance()

    def _close_average(self) -> None:
        if self._average:
            self._average.close(self.state.average, self.state.totals[TIME], self.n_steps)
            self.state.average[:] = 0.0

    def _plan(self) -> tuple[float, int]:
        """Return the stepsize of the next block, and its length in steps."""
        k, most = self.n_steps, self.problem.n_samples / self.state.drawn.size
        step, stairs = self.first_step * self._caution, most
        if self.step == "inverse":
            step = 1.0 / (1.0 / self.first_step + self.strong_convexity * k)
            stairs = _STAIR / (step * self.strong_convexity)
        elif self.step == "sqrt":
            step = self.first_step / math.sqrt(1.0 + k / most)
            stairs = 2.0 * _STAIR * (k + most)
        elif self.step == "distance":
            step = self._found_step(k / most)
            stairs = max(_FIRST_BLOCK * most, 2.0 * _STAIR * k)
        if self.anchored:
            return step, math.ceil(max(_ANCHOR_EVERY * most, _FEWEST_ROWS / self.state.drawn.size))
        if self.delegated is not None:
            return step, max(int(_NEWS_EVERY * most), 1)
        # A look at all margins has to pay.
        least = 0.5 * most if self._wants_bounds() else 1.0
        return step, max(int(min(max(stairs, least), most)), 1)

    def _wants_bounds(self) -> bool:
        """Whether a plain block is to begin with a look at all rows: not in the first epoch, where x is on its way."""
        n_rows = self.n_steps * self.state.drawn.size
        return self.sampling == "safe" and self._blind == 0 and n_rows >= self.problem.n_samples

    def _found_step(self, n_epochs: float) -> float:
        """Return D / sqrt(sum_j |g_j|^2), see `stochastic_gradient_descent`."""
        step = self.first_step * _FIRST_STEP / math.sqrt(1.0 + n_epochs)
        if self._far > 0.0:
            step = min(self._far / math.sqrt(self._squares), self.first_step)
        return 1.0 / (1.0 / step + self.strong_convexity * self.n_steps)

    def _look_back(self) -> None:
        """Add the block that is over to what `_found_step` goes by."""
        if self.step != "distance":
            return
        moves = self.state.totals[MOVES]
        self._moves += moves
        self._squares += moves / self.powers.step**2
        away = float(np.linalg.norm(self.state.coordinates[:, X] - self._start))
        self._far = max(self._far, math.sqrt(max(away * away - self._moves, 0.0)))

    def _take_anchor(self) -> None:
        """Make x the anchor; or go back to the last one, with shorter steps, if its objective was smaller."""
        problem, table = self.problem, self.state.coordinates
        z = self._margins(table[:, X])
        objective = problem.objective_at(table[:, X], z)
        self._rows += problem.n_samples
        if self.adapts and self._length > 0:
            if not objective <= self._objective + 1e-12 * abs(self._objective):
                self._caution *= 0.5
                table[:, X] = table[:, REFERENCE]
                return
            self._caution = min(1.1 * self._caution, 1.0)
        self._objective, self.z, u = objective, z, self._derivatives(z)
        gradient = np.zeros(problem.n_coordinates)
        total = mean_gradient(self.rows, problem.weights, u, gradient[: problem.n_features])
        if problem.fit_intercept:
            gradient[-1] = total
        table[:, DENSE] = gradient
        self.state.samples[:, ANCHOR] = u

    def _margins(self, x: Array) -> Array:
        return margins(self.rows, self.problem.fit_intercept, np.ascontiguousarray(x))

    def _derivatives(self, z: Array) -> Array:
        """Return h_i'(z_i); zero, even where that would overflow, for samples of weight zero."""
        return np.where(self.problem.weights > 0.0, self.problem.derivative(z), 0.0)

    # --- Sampling

    def _fixed_shares(self) -> Array:
        """Return the sampling that needs no gradients."""
        share = self.curvature if self.anchored else self.scale
        if self.sampling == "uniform":
            share = self.active.astype(np.float64)
        total = float(share.sum())
        return np.asarray(share / total if total > 0.0 else share)

    def _draw_by(self, p: Array, budget: float) -> None:
        """Draw from p as long as x is within a distance from the reference."""
        state, n = self.state, p.size
        state.totals[BUDGET], state.totals[EMPTY] = budget, float(not p.any())
        if p is self._drawn_by:  # as the fixed sampling often is
            return
        self._drawn_by = p
        keep, other = n * p, np.arange(n)
        fill_alias(keep, other)
        state.samples[:, KEEP], state.samples[:, OTHER] = keep, other
        state.samples[:, SHARE] = np.divide(self.problem.weights, state.drawn.size * p, out=np.zeros(n), where=p > 0.0)

    def _choose_anchored(self, budget: float) -> float:
        """Choose what to draw from until the next anchor; return how much longer steps may be for it."""
        problem = self.problem
        self._value_ratio, self.upper[:] = 1.0, np.inf
        if budget < math.inf and self.curvature.any():
            fill_smoothness(problem.loss, problem.y, problem.weights, self.norms, self.z, budget, self.upper)
            total = float(self.upper.sum())
            ratio = total / float(self.curvature.sum())
            if ratio < _WORTH:
                self._value_ratio = ratio
                self._draw_by(self.upper / total if total > 0.0 else np.zeros_like(self.upper), budget)
                return min(1.0 / ratio, _LONGEST) if self.adapts and ratio > 0.0 else 1.0
            self.upper[:] = np.inf
        self._draw_by(self.fixed, math.inf)
        return 1.0

    def _draw_within(self, budget: float) -> None:
        """Draw from the safe sampling of bounds that hold within a distance."""
        problem = self.problem
        anchor = self.state.samples[:, ANCHOR].copy()
        for part, away in self._parts():
            fill_norm_bounds(
                problem.loss,
                problem.y[part],
                problem.weights[part],
                self.norms[part],
                self.z[part],
                anchor[part],
                away + budget,
                self.lower[part],
                self.upper[part],
            )
        p, self._value_ratio = safe_shares(self.lower, self.upper, self.scale)
        at_start = self.state.totals[TIME] == 0.0
        if self._value_ratio < _WORTH:
            self._patience = 0 if at_start else self._patience
            self._draw_by(p, budget)
            return
        self._value_ratio, self.upper[:] = 1.0, np.inf
        self._draw_by(self.fixed, math.inf)
        if at_start:  # nothing gained: do without for a while, and for longer next time
            self._patience = self._blind = 2 * self._patience + 1

    def _parts(self) -> Iterable[tuple[slice, float]]:
        """Rows with margins from one point, and the distance of that point from the reference."""
        if self.delegated is None:
            return [(slice(None), 0.0)]
        return zip(self.delegated.parts, self.delegated.distances, strict=True)

    def _draw_by_gradients(self) -> None:
        """Draw from the optimal sampling: by the true norms of the gradients."""
        flush(self.penalty, self.powers, self.state)
        u = self._derivatives(self._margins(self.state.coordinates[:, X]))
        c = self.scale * np.abs(u - self.state.samples[:, ANCHOR])
        self.lower[:] = self.upper[:] = c
        p, self._value_ratio = safe_shares(c, c, self.scale)
        self._draw_by(p, math.inf)

    def _follow_distance(self) -> None:
        """Let the kernel know the distance from the reference: what `follow` needs to know of T."""
        state, totals, features = self.state, self.state.totals, self.problem.n_features
        reference, dense = state.coordinates[:, REFERENCE], state.coordinates[:, DENSE]
        if totals[AFFINE] > 0.0:
            totals[RIDGE] = 1.0 if self.radius is not None else self.l2
            pull = (dense + totals[RIDGE] * reference)[:features]
            totals[PULL] = pull @ pull
        else:
            totals[FIRST] = reference_moves(self.penalty, self.powers, state.coordinates)
        far = self._length * self.powers.step * float(np.linalg.norm(dense))
        totals[SIZE] = float(np.linalg.norm(reference)) + far

    def _distance(self) -> float:
        """Bound the distance of x from the reference."""
        state = self.state
        return float(
            distance(
                self.penalty, self.powers, state.coordinates, state.average, state.totals, self.problem.fit_intercept
            )
        )

    # --- Checks

    def _schedule(self, step: str, stepsize: float | None) -> tuple[str, float]:
        """Return the schedule, and the stepsize at k = 0."""
        if step == "auto":
            step = "constant" if self.anchored else "distance"
        if step == "inverse" and self.strong_convexity == 0.0:
            raise ValueError("step='inverse' needs a ridge term on every feature: add L2, or choose step='sqrt'")
        if stepsize is None:
            stepsize = 0.5 / self.smoothness if self.smoothness > 0.0 else 1.0
        return step, float(stepsize)

    def _is_affine(self) -> bool:
        """Whether steps without data are affine, and the same for all features."""
        reg = self.problem.penalty
        if not isinstance(reg, Separable) or not self.has_one_l2:
            return False
        return not (reg.l1.any() or np.isfinite([reg.lower, reg.upper]).any())

    def _check_ball(self) -> None:
        if not (self.radius is not None and 0.0 < self.radius < math.inf):
            raise ValueError(f"radius must be positive and finite, got {self.radius}")
        if self.anchored:
            raise ValueError("radius needs variance_reduction=False: steps of SVRG are not projected onto a ball")
        if not self._is_affine():
            raise ValueError(
                "radius needs a regularizer without L1 term and bounds, and one ridge term for all features, got "
                f"{self.problem.regularizer!r}"
            )

    def _check_bounds(self) -> None:
        """Compare the distance and the bounds on the norms with the truth."""
        state, totals = self.state, self.state.totals
        if totals[BUDGET] == np.inf:
            return
        flush(self.penalty, self.powers, state)
        x = state.coordinates[:, X].copy()
        away, allowed = float(np.linalg.norm(x - state.coordinates[:, REFERENCE])), self._distance()
        where = f"after step {self.n_steps}"
        if not away <= allowed:
            raise BoundViolationError(f"{where} x is at a distance of {away} from its reference, beyond {allowed}")
        if allowed > totals[BUDGET]:
            return
        u = self._derivatives(self._margins(x))
        c = self.scale * np.abs(u - state.samples[:, ANCHOR])
        rounding = 1e-12 * self.scale * np.abs(u)
        lower, upper = (np.zeros_like(c), self.upper * allowed) if self.anchored else (self.lower, self.upper)
        wrong = np.flatnonzero(~((lower <= c + rounding) & (c <= upper + rounding)))
        if wrong.size:
            i = wrong[0]
            raise BoundViolationError(
                f"{where} the bounds of row {i}, [{lower[i]}, {upper[i]}], do not contain the norm {c[i]} of its "
                f"gradient ({wrong.size} of {c.size} rows are wrong)"
            )
