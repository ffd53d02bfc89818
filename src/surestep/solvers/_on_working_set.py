"""Problems with kinks: exact gradients on a working set, and certificates for all the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep.bounds.tracker import EPS
from surestep.problem import Problem
from surestep.regularizers import Separable
from surestep.solvers._columns import Until
from surestep.solvers._look import gains_of, penalty_terms, recertify, survey, uncertified, unread
from surestep.solvers._on_gram import Factor, solve_on_gram, solve_with_intercept
from surestep.solvers._prices import n_in_the_time_of_a_look
from surestep.solvers._rounds import Rounds
from surestep.solvers._samples import Samples
from surestep.solvers._steps import penalty_change

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates that join the working set in a round: as many as are not zero, and no fewer than these, or than have a
# Gram matrix in the time of a look; so many times as many where hardly any of it is zero, more than this part.
_FEWEST, _MORE, _FULL = 128, 8, 0.9

# To find the largest of many numbers, every so many of them are looked at first.
_SAMPLED = 8

# Where the penalty has been changed before, and will be again: so many join at once, at least; and all, where there are
# no more dense ones than these.
_AHEAD, _FEW_DENSE = 8, 300

# A round solves on the working set until steps, in sqrt(L_j) |d_j|, are this part of what they were among all
# coordinates: while many others join it, less so where its Gram matrix makes updates cheap, and when few do. Near the
# end, and with a Gram matrix always when few join: until they promise this part of the target. By columns it ends, too,
# when the gap on the working set is that.
_ROUGH, _FINER, _ACCURATE, _SHARE = 0.3, 0.05, 0.01, 0.3

# Where the target is so many ulp of f(0), and of the numbers that a Gram matrix adds up, what it tells of where a solve
# ended need not be read from the data again.
_ULPS = 1e4

# A Gram matrix in single precision gives way to one in double where coordinates promise more, after a solve by it, than
# this part of what they promised before.
_LEFT = 0.1

# Where W comes to be more than this part of the samples, a stronger penalty goes first: so many times weaker than the
# one under which no other coordinate would join, and than the last one at least so many times; until the gap is this
# part of the objective, or those that join are only this part of W.
_OF_SAMPLES, _WEAKER, _AT_LEAST, _ROUGHLY, _FEW_NEW = 0.25, 6.0, 2.0, 0.1, 0.1

# The next minimiser of a path is foreseen for so many members of W, at least: updates of fewer take less.
_FORESEEN = 100

# Gaps are far from the target where they are so many times as large.
_FAR = 1e3

# For losses that are not quadratic: models in a round, at most; the accuracy of a model, as a part of its gains, where
# it costs little to make another and where it costs much; and what it is times, when the last model was good, at least.
_MODELS, _CHEAP, _DEAR, _BEST = 20, 0.1, 0.01, 1e-3

# A model is solved by columns until the gap on W should be this part of the target, and not where it is at the target.
_NEAR = 0.3

# Curvatures of the model, as a part of the smoothness, at least: the penalty sets an end to steps where the loss is
# linear; and saturated samples, which are most when it is weak, must not slow it down.
_LEAST_CURVATURE = 1e-10

# Curvatures that have changed by less than this part of them stay as they are in a Gram matrix.
_SLACK = 0.2

# How much less cautious a model is than the last one, if that was right.
_COURAGE = 0.1

# Sweeps over the columns for a model, at most, and at least; looks whose time a round may take; and sweeps in the time
# that goes into a model besides.
_SWEEPS, _FEWEST_SWEEPS, _LOOKS, _PER_MODEL = 300, 3, 5, 3


class OnWorkingSet(Rounds):
    """A fit whose penalty has kinks."""

    smooth = False

    def __init__(self, problem: Problem, x: Array, target: float, samples: Samples) -> None:
        self._lengths = samples.lengths()
        super().__init__(problem, x, samples, int(np.sum(self._lengths[: problem.n_features])))
        n = problem.n_coordinates
        # Of every coordinate: the gradient entry when last seen, where the path of r was then (less what rounding may
        # hide), and up to where it is certified to stay: not at all for members, which all that are not zero are.
        self._gradient, self._seen, self._until = np.zeros(n), np.full(n, -np.inf), np.full(n, -np.inf)
        self._travelled = self._now = 0.0
        # Room for the lists of a look: coordinates that are not certified, those that move, and what they promise.
        self._lists = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        self._longest = int(np.max(self._lengths))
        self._is_member = x != 0.0
        if problem.fit_intercept:
            self._is_member[-1] = True
        self._members = np.flatnonzero(self._is_member)
        self._by_models, self._short = self._curved or samples.is_dear(), samples.are_short()
        self._fewest, self._few_dense = _FEWEST, False
        if self._n_entries == problem.n_samples * problem.n_features:
            self._few_dense = problem.n_features <= min(problem.n_samples, _FEW_DENSE)
            by_look = min(_FEWEST, n_in_the_time_of_a_look(problem.n_samples, problem.n_features))
            self._fewest = problem.n_features if samples.is_dear() else by_look
        self._caution, self._looks, self._strength, self._factor = 1.0, _LOOKS, math.inf, Factor()
        self._by_gram, self._growing, self._n_new, self._n_priced, self._on_path = True, False, 0, 0, False
        # For a quadratic loss: its mean, and the largest sum_j |x_j| norms_j so far. Where a solve by the Gram matrix
        # ended is known without the data: the gradient on W, and the square of what r travelled, or more. What members
        # have changed by since z was last moved.
        self._mean = self._farthest = 0.0
        self._ended: tuple[Array, float] | None = None
        # Whether its Gram matrix is in single precision, and the largest gain when a solve by that began.
        self._rounded, self._promised = not self._curved and samples.is_rounded(), math.inf
        # For others: the gradient on W where the last model ended, if it was computed.
        self._last: Array | None = None
        self._behind = np.empty(0)
        # On a path: strengths of the last two penalties, and where members were in the end.
        self._ends: list[tuple[float, Array]] = []
        self._begin(problem, target, moved=True)

    def take_up(self, problem: Problem, target: float) -> None:
        self._ends = [*self._ends[-1:], (self._problem.regularizer.alpha, self.x[self._members])]
        recertify(problem.penalty, problem.norms, self._gradient, self._is_member, self._seen, self._until)
        # One matrix serves all penalties that are to come.
        self._n_new, self._on_path, self._by_models, self._strength = 0, True, self._curved, math.inf
        self._rounded = False
        self._begin(problem, target, moved=False)

    def support(self) -> Integers:
        return self._members

    def _working_set(self) -> tuple[int, bool]:
        return self._members.size, self._by_gram

    # --- Where we stand

    @property
    def _violation(self) -> float:
        return self._largest

    @property
    def _optimal(self) -> bool:
        return self._largest == 0.0

    def _look(self, moved: bool = True) -> None:
        """Compute the gradient entries that matter, what each coordinate promises, and the gap."""
        problem = self._problem
        known = moved and (self._ended is not None or self._last is not None)
        if moved:
            self._go_on()
        listed, moving, gains = self._lists
        n, self._n_listed = uncertified(self._until, self._travelled, self._lengths, listed)
        self._listed = listed = listed[:n]
        self._read(listed, math.inf if moved else self._now, known)
        if problem.fit_intercept:
            self._gradient[-1] = 0.0  # up to rounding it is
        n, self._largest, terms = survey(
            problem.penalty,
            problem.norms,
            problem.smoothness,
            self.x,
            self._gradient,
            self._now,
            listed,
            self._is_member,
            self._seen,
            self._until,
            moving,
            gains,
        )
        self._moving, self._gains = moving[:n], gains[:n]
        self._put_gap(*terms)

    def _go_on(self) -> None:
        """Find out how far r has travelled, and take the residual at the present z where that is not known."""
        problem, here = self._problem, np.abs(self.x[self._members])
        if self._ended is None:
            self._balance()
            square, size = self._samples.residuals()
            self._mean = 0.5 * float(size)
            if self._last is not None:
                self._gradient[self._members], self._last = self._last, None
        else:
            self._gradient[self._members], square = self._ended
            self._ended, size = None, 2.0 * self._mean
        moved = float(here @ problem.norms[self._members]) if here.any() else 0.0  # norms come with the first gradient
        # As in `rounding_of`: sums lose an ulp for each of their terms.
        smoothness = losses.smoothness(problem.loss)
        terms = (self._longest + 8) * math.sqrt(size) + smoothness * (np.count_nonzero(here) + 8) * moved
        rounding = 4.0 * EPS * terms
        self._travelled += math.sqrt(square) * (1.0 + 8.0 * EPS * problem.n_samples) + rounding
        self._now = self._travelled - 2.0 * rounding

    def _read(self, listed: Integers, since: float, known: bool = False) -> None:
        """Compute gradient entries from the data, of those listed that were not seen since; see `unread`."""
        room = self._lists[1]  # that of those that move, who will be listed anew before anybody asks for them
        n, n_entries = unread(listed, self._is_member, self._seen, since, known, self._lengths, room)
        if n == 0:
            return
        self._n_read += n_entries
        self._catch_up()
        found = self._samples.gradient(room[:n])
        if n == self.x.size:  # no copy, unless it came over a wire and cannot be written to
            self._gradient = np.require(found, requirements="W")
        else:
            self._gradient[room[:n]] = found

    def _catch_up(self) -> None:
        """Move z to where x is, and take the residual there."""
        if self._behind.size > 0:
            self._samples.add(self._members[: self._behind.size], self._behind)
            self._samples.residuals()
            self._behind = np.empty(0)

    def _loss_terms(self, tau: float) -> Sequence[float] | Array:
        if self._curved:
            return super()._loss_terms(tau)
        return self._mean, (1.0 - tau) ** 2 * self._mean

    # --- A round

    def _go(self) -> bool:
        """Let more coordinates join the working set, and solve on it; for a stronger penalty first, where it is large.

        Columns as many as the samples fit them in many ways, and x at the start of a weak penalty tells little of which
        is best: most of those that join would join in vain. Under a stronger penalty few do.
        """
        new, growing = self._choose()
        if not self._short and self._members.size + new.size > max(_OF_SAMPLES * self._problem.n_samples, _FEWEST):
            self._strength = min(self._strength_of_rest() / _WEAKER, self._strength / _AT_LEAST)
            if self._strength > 1.0 and self._go_by(self._strength):
                return False
        self._let_join(new, growing)
        self._solve()
        return True

    def _strength_of_rest(self) -> float:
        """Return how many times as strong a penalty must be for no other coordinate to join; 1 if that cannot be."""
        outside = self._moving[~self._is_member[self._moving]]
        l1 = self._problem.penalty.l1[outside]
        if outside.size == 0 or not (self._problem.has_certificate and np.all(l1 > 0.0)):
            return 1.0
        with np.errstate(over="ignore"):
            strength = float(np.max(np.abs(self._gradient[outside]) / l1))
        return strength if strength < math.inf else 1.0

    def _go_by(self, strength: float) -> bool:
        """Solve for a penalty so many times as strong, roughly; return False if x was good enough already."""
        problem, target, moved = self._problem, self._target, False
        try:
            self._change_to(problem.with_regularizer(problem.regularizer.scaled(strength)), target)
            self._target = max(_ROUGHLY * self._gap.objective, target)
            while self._gap.gap > self._target and (not moved or self._n_new > _FEW_NEW * self._members.size):
                self._let_join(*self._choose())
                self._solve()
                self._look()
                moved = True
        finally:
            self._change_to(problem, target)
        return moved

    def _change_to(self, problem: Problem, target: float) -> None:
        """Go on with another regularizer, from here."""
        recertify(problem.penalty, problem.norms, self._gradient, self._is_member, self._seen, self._until)
        self._problem, self._target, self._promised = problem, target, math.inf
        self._look(moved=False)

    def _choose(self) -> tuple[Integers, bool]:
        """Return the coordinates outside the working set that promise most, and whether others promise anything."""
        outside = ~self._is_member[self._moving]
        new, gains = self._moving[outside], self._gains[outside]
        if self._short:
            return new, False
        n_nonzero = int(np.count_nonzero(self.x[self._members]))
        most = max(self._fewest, n_nonzero if n_nonzero < _FULL * self._members.size else _MORE * n_nonzero)
        if new.size > most:
            return np.sort(new[_places_of_largest(gains, most)]), True
        return new, False

    def _let_join(self, new: Integers, growing: bool) -> None:
        """Let coordinates join the working set, and see whether its Gram matrix pays."""
        self._is_member[new] = True
        if new.size > 0 and self._on_path and not growing:
            new = np.concatenate([new, self._next_ones(_AHEAD - new.size)])
            self._is_member[new] = True
        self._n_new = new.size
        self._until[new] = -np.inf
        self._members = np.concatenate([self._members, new])
        # Near the end it does not pay to begin with a Gram matrix.
        far = not self._curved or self._gap.gap > _FAR * self._target
        if self._members.size > self._n_priced or growing != self._growing or not self._by_gram:
            self._by_gram = not self._short and (far or self._by_gram) and self._samples.pays(self._members, growing)
        self._growing, self._n_priced = growing, self._members.size

    def _next_ones(self, most: int) -> Integers:
        """List those at zero that should join soon, at most so many: to extend a matrix by few is dear.

        Those whose certificates end first; all that ever may, where half of all are members and there are more samples
        than coordinates, or where all are few.
        """
        is_most = 2 * self._members.size > self.x.size and self.x.size <= self._problem.n_samples
        if is_most or self._few_dense:
            waiting = np.flatnonzero(~self._is_member & np.isfinite(self._until))
            self._read(waiting, self._now)
            return waiting
        waiting = self._listed[~self._is_member[self._listed]]
        most = min(max(most, 0), waiting.size)
        return np.asarray(waiting[np.argpartition(self._until[waiting], most - 1)[:most]] if most > 0 else waiting[:0])

    def _solve(self) -> None:
        """Solve on the working set."""
        problem, members = self._problem, self._members
        reg = problem.penalty.at(members)
        # The gap falls with the size of the steps, f with its square.
        wanted = _SHARE * self._target / self._gap.gap if 0.0 < self._gap.gap < np.inf else 0.0
        rough, accurate = _ROUGH, _ACCURATE
        if self._by_gram and not self._curved:  # updates cost little beside a look, and a direct solve is exact
            rough, accurate = _FINER, 0.0
        if self._short:
            rough = accurate = 0.0
        accuracy = max(min(3.0 * self._n_new / max(members.size, 1), 1.0) * rough, accurate)
        enough = max(accuracy, wanted) ** 2 * float(np.max(self._gains, initial=0.0))
        x = self.x[members]
        if self._on_path and (self._by_gram or self._short) and not self._curved and problem.has_certificate:
            # The residual of the last strength is so good a dual point for the next that the gap is small where steps
            # are yet to come, and would grow with them at first: a violation c leaves a gap of about c |x|_1.
            c = _SHARE * self._target / max(float(np.sum(np.abs(x))), EPS)
            enough = min(enough, c * c / float(np.max(problem.smoothness[members])))
        enough = max(enough, (4.0 * EPS) ** 2 * self._gap.objective)  # less is rounding
        if self._short:
            x = self._solve_short(reg, x, enough)
        elif self._by_models:
            self._solve_by_models(reg, x, enough)
        else:
            x = self._solve_quadratic(reg, x, enough)
        self.x[members] = x

    def _solve_short(self, reg: Separable, x: Array, enough: float) -> Array:
        """Return where f is lowest on the working set, whose columns are short; move z."""
        near = _SHARE * self._target if self._problem.has_certificate and not self._on_path else 0.0
        how = _LEAST_CURVATURE, self._caution, enough, near
        after, n_steps, self._caution = self._samples.minimise_on(reg, self._members, x, *how)
        self.n_steps += n_steps
        self._samples.add(self._members, after - x)
        return after

    def _solve_quadratic(self, reg: Separable, x: Array, enough: float) -> Array:
        """Return where f is lowest on the working set; move z, or know what the Gram matrix tells."""
        members, problem, before = self._members, self._problem, self._gradient[self._members]
        if not self._by_gram:
            self._catch_up()
            near = _SHARE * self._target if problem.has_certificate else 0.0
            after = self._solve_model(reg, x, before, Until(enough, _SWEEPS, near, self._mean))
            self._samples.add(members, after - x)
            return after
        self._rounded = self._rounded and self._is_near(reg, x, before)
        after, g = x.copy(), before.copy()
        matrix = self._samples.model_matrix(members) if self._rounded else self._samples.matrix(members)
        if len(self._ends) == 2:
            self._foresee(reg, after, g, matrix)
        self._descend_on(matrix, reg, after, g, enough)
        norms = problem.norms[members]
        self._farthest = max(self._farthest, float(np.maximum(np.abs(x), np.abs(after)) @ norms))
        size = max(problem.objective_at_zero, self._farthest**2)  # entries of G times those of x, whose ulp are lost
        if self._rounded or not (problem.has_certificate and self._target > _ULPS * EPS * size):
            self._catch_up()
            self._samples.add(members, after - x)
            return after
        change = after - x
        self._mean = max(self._mean + 0.5 * float(change @ (before + g)), 0.0)
        lost = members.size * float(np.abs(change) @ (np.abs(g) + np.abs(before))) + float(np.abs(change) @ norms) ** 2
        self._ended = g, max(float(change @ (g - before)), 0.0) + EPS * lost
        change[: self._behind.size] += self._behind
        self._behind = change
        return after

    def _foresee(self, reg: Separable, x: Array, g: Array, matrix: Array) -> None:
        """Go on from the last strength as to it from the last but one, where that is down.

        While nobody leaves zero or comes to it, the minimiser of a quadratic loss is linear in the strength of an L1
        penalty. x and its gradient g are changed in place.
        """
        (first, x_first), (last, x_last) = self._ends
        self._ends = self._ends[-1:]
        n, step = x_first.size, self._problem.regularizer.alpha - last
        if n < _FORESEEN or first == last:
            return
        to = x_last[:n] + step / (last - first) * (x_last[:n] - x_first)
        stay = (x_first != 0.0) & (to * x_last[:n] > 0.0)
        change = np.zeros(x.size)
        change[:n][stay] = np.clip(to, reg.lower[:n], reg.upper[:n])[stay] - x[:n][stay]
        image = matrix[:, : x.size] @ change
        if float(change @ (g + 0.5 * image)) + penalty_change(reg, x, x + change) < 0.0:
            x += change
            g += image

    def _is_near(self, reg: Separable, x: Array, g: Array) -> bool:
        """Whether a matrix in single precision has served well the last time, if there was one."""
        gains = np.empty(x.size)
        gains_of(reg, x, g, self._problem.smoothness[self._members], np.arange(x.size), gains)
        left = float(np.max(gains[: x.size - self._n_new], initial=0.0))
        promised, self._promised = self._promised, float(np.max(gains))
        return left <= _LEFT * promised

    def _solve_by_models(self, reg: Separable, x: Array, enough: float) -> None:
        """Newton's method on the working set; x is changed in place, and z with it."""
        members, samples = self._members, self._samples
        all_of_it, gains = np.arange(x.size), np.empty(x.size)
        smoothness = self._problem.smoothness[members]
        smoothness.flags.writeable = False  # as that of all is: one compiled version of what reads it
        growing, n_left = 10 * self._n_new > members.size, math.inf
        if not self._by_gram:
            # Steps that take the time of so many looks at everything; of more and more, when few coordinates join.
            self._looks = _LOOKS if growing else 2 * self._looks
            n_left = self._looks * self._n_listed * members.size / max(int(np.sum(self._lengths[members])), 1)
        g, last = self._gradient[members], 0.0
        for _ in range(_MODELS):
            gains_of(reg, x, g, smoothness, all_of_it, gains)
            largest = float(np.max(gains))
            if largest <= enough or n_left <= 0.0:
                break
            to_go = self._to_go(reg, x, g) if last > 0.0 else 0.0
            if to_go == 1.0:
                break
            samples.bend(_LEAST_CURVATURE, self._caution, _SLACK if self._by_gram else 0.0)
            # A model that is far from f need not be solved well; how far it was shows in what it left.
            accuracy = _DEAR if self._by_gram else _CHEAP
            if last > 0.0:
                accuracy *= min(max(largest / last, _BEST), 1.0)
            n_before, last = self.n_steps, largest
            n_sweeps = int(min(max(n_left / members.size, _FEWEST_SWEEPS), _SWEEPS))
            # The gap falls with the size of the steps, gains with its square.
            until = Until(max(accuracy * largest, 0.1 * enough), n_sweeps, part=(_NEAR * to_go) ** 2)
            after = self._solve_model(reg, x, g, until)
            if np.array_equal(after, x):
                break
            n_left -= self.n_steps - n_before + _PER_MODEL * members.size
            samples.aim(members, after - x)
            t = self._step_along(float(g @ (after - x)), penalty_change(reg, x, after))
            if t == 0.0:
                break
            self._caution = _COURAGE * self._caution if t == 1.0 and not growing else 1.0
            step, before = t * (after - x), g
            x[:] = after if t == 1.0 else x + step
            samples.go(t)
            g = samples.model_gradient(members)
            if self._by_gram:
                samples.learn(step, g - before)
        # The best intercept is yet to come, and changes it.
        self._last = None if self._problem.fit_intercept else g

    def _to_go(self, reg: Separable, x: Array, g: Array) -> float:
        """Return which part of the duality gap on W is asked for, where the gradient is g; at most 1.

        0 where steps are what tells, or models take little time. The loss is taken to add what a squared one would.
        """
        problem = self._problem
        if self._on_path or self._by_gram or not problem.has_certificate:
            return 0.0
        tau, _, gap = penalty_terms(reg, x, g, np.flatnonzero(self._members < problem.n_features))
        gap += (1.0 - tau) ** 2 * problem.objective_at_zero
        return self._target / gap if gap > self._target else 1.0

    def _solve_model(self, reg: Separable, x: Array, g: Array, until: Until) -> Array:
        """Return where the quadratic model with gradient g at x is lowest on the working set."""
        if not self._by_gram:
            self._factor = Factor()  # as large as the Gram matrix, which makes room as well
            after, n_steps = self._samples.descend(reg, self._members, x, g, until)
            self.n_steps += n_steps
            return after
        after = x.copy()
        self._descend_on(self._samples.model_matrix(self._members), reg, after, g.copy(), until.enough)
        return after

    def _descend_on(self, matrix: Array, reg: Separable, x: Array, g: Array, enough: float) -> None:
        """Minimise the model with a Gram matrix, and with gradient g at x; both are changed in place."""
        how = enough, self._curved, self._factor
        if self._problem.fit_intercept:
            k = int(np.flatnonzero(self._members == self._problem.n_features)[0])
            self.n_steps += solve_with_intercept(reg, x, g, matrix, k, *how)
        else:
            self.n_steps += solve_on_gram(reg, x, g, matrix, *how)


def _places_of_largest(values: Array, n: int) -> Integers:
    """Where the n largest values are, in any order.

    Of many, a sample tells which may be among them.
    """
    places, some = np.arange(values.size), values[::_SAMPLED]
    rank = 2 * n // _SAMPLED + 1
    if rank < some.size // 2:
        likely = np.flatnonzero(values >= np.partition(some, some.size - rank)[some.size - rank])
        places = likely if likely.size >= n else places
    return places[np.argpartition(-values[places], n - 1)[:n]]
