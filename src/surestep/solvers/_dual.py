"""Dual coordinate descent, for problems whose features all have the same L2 penalty and nothing else.

With one number u_i for each sample and x = -sum_i s_i u_i a_i / l2, the dual of the problem is

    max_u  -sum_i s_i loss*(u_i) - l2 |x|^2 / 2 ,

and a step on u_i, which reads and changes the features of row i only, has u_i = loss'(z_i) afterwards: with
c_i = s_i |a_i|^2 / l2, the margin moves from z to the root t of

    t + c_i loss'(t) = z + c_i u_i .

Where rows have little in common, or the penalty is strong, a few sweeps over them are all it takes; elsewhere they are
a start for Newton's method. An intercept, which has no penalty, gets one around where it last was (the method of
multipliers): it is one more feature of every row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._jit import jit
from surestep.bounds.tracker import EPS
from surestep.lines import add, dot
from surestep.problem import Problem

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# The root is found to this part of the step, in so many Newton steps at most.
_ACCURACY, _MOST_STEPS = 0.01, 60

# Samples that stay together in a sweep, at most; and groups of these, at least: sweeps take half to two thirds of the
# time, and are as good (measured).
_NEIGHBOURS, _GROUPS = 8, 500

# The sweep from which on the gap tells something, and sweeps over which it is watched, at least.
_FIRST, _WATCHED = 2, 3


class State(NamedTuple):
    """x, with the intercept if there is one; and of each sample u and the margin at which it is the derivative.

    Of the features in x: the sum of their squares, and the largest that has been.
    """

    x: Array
    u: Array
    margins: Array
    squares: Array


@jit
def _root(loss: Any, z: float, y: float, u: float, slope: float, c: float) -> tuple[float, float]:
    """Root t of t + c loss'(t) = z + c u, and loss'(t), given the slope loss'(z).

    By Newton's method, in a bracket that is there because loss' rises, which is halved where steps do not become half
    as long: where c is large they may go to and fro between the ends of a logistic curve. No further than rounding lets
    it be seen, or a step on a long row with a weak penalty could end anywhere in the bracket.
    """
    excess = c * (slope - u)
    low, high = z - max(excess, 0.0), z - min(excess, 0.0)
    t, next_t = z, z - excess / (1.0 + c * losses.second_derivative(loss, z, y))
    for _ in range(_MOST_STEPS):
        last, t = next_t - t, next_t
        slope = losses.derivative(loss, t, y)
        left = t - z + c * (slope - u)
        rounding = EPS * (abs(t) + abs(z) + c * (abs(t) + abs(y) + abs(u)))
        if abs(left) <= max(_ACCURACY * abs(t - z), rounding):
            break
        if left > 0.0:
            high = t
        else:
            low = t
        next_t = t - left / (1.0 + c * losses.second_derivative(loss, t, y))
        if not (low < next_t < high and abs(next_t - t) <= 0.5 * abs(last)):
            next_t = 0.5 * (low + high)
    return t, slope


@jit
def _sweep(
    rows: Any,
    loss: Any,
    y: Array,
    weights: Array,
    norms: Array,
    order: Integers,
    l2: float,
    l2_intercept: float,
    state: State,
) -> float:
    """Step on the samples in this order; return the gap as the samples saw it in passing, to second order.

    ``norms`` are squared; there is no intercept where its penalty is 0.
    """
    x, u, margins, squares = state
    gap, b, square, largest = 0.0, x.size - 1, squares[0], squares[1]
    for t in range(order.size):
        i = order[t]
        if weights[i] == 0.0:
            continue
        product, c = dot(rows, i, x), weights[i] * norms[i] / l2
        z = product
        if l2_intercept > 0.0:
            z, c = z + x[b], c + weights[i] / l2_intercept
        slope = losses.derivative(loss, z, y[i])
        if slope == u[i]:
            margins[i] = z
            continue
        gap += 0.5 * weights[i] * (slope - u[i]) * (z - margins[i])
        margins[i], after = _root(loss, z, y[i], u[i], slope, c)
        change, u[i] = weights[i] * (after - u[i]), after
        step = -change / l2
        add(rows, i, step, x)
        square += step * (2.0 * product + step * norms[i])
        largest = max(largest, square)
        if l2_intercept > 0.0:
            x[b] -= change / l2_intercept
    squares[0], squares[1] = square, largest
    return gap


class Dual:
    """Dual coordinate descent on a problem, from x = 0 on; u is kept from one penalty to the next."""

    def __init__(self, problem: Problem, b: float) -> None:
        self._problem, self._rows, n = problem, problem.design.rows, problem.n_samples
        self._norms = problem.design.row_squares
        self._state = State(np.zeros(problem.n_coordinates), np.zeros(n), np.zeros(n), np.zeros(2))
        self._l2 = self._lost = 0.0
        if problem.fit_intercept:
            self._state.x[-1] = b
        self._rng = np.random.default_rng(0)
        self._gaps: list[float] = []  # as sweeps saw them, for this penalty

    @property
    def hidden(self) -> float:
        """What the gap may be more than that of (x, u), because of rounding x does not quite follow from u.

        Every change of x loses a few ulp of its length: half of one by the sum, and two of the change, which is at most
        twice as long. With e for what x is off by, X^T r = -l2 (x - e), and the gap has l2 |e|^2 / 2 more.
        """
        return 0.5 * self._l2 * (8.0 * EPS * self._lost) ** 2

    def minimise(self, l2: float, enough: float, max_sweeps: float) -> tuple[Array, Array, int, float]:
        """Return x, u, the number of steps, and what the gap seems to be: at most ``enough``, or sweeps do not pay.

        That is when, at the pace so far, those that are left would not get there. x and u are the state of the next
        time, and not to be changed.

        Before the first sweep goes one over half of the samples, where these are sparse: what it finds out helps the
        others at once, and them when it is their turn again. That saves half a sweep to one of five, on dense ones
        nothing (measured).
        """
        problem, (x, u, _, squares), n, begins = self._problem, self._state, self._problem.n_samples, self._l2 == 0.0
        if l2 != self._l2:
            ratio = self._l2 / l2  # x follows from u
            x[: problem.n_features] *= ratio
            squares *= ratio**2
            self._l2, self._gaps, self._lost = l2, [], ratio * self._lost
        l2_intercept = around = 0.0
        if problem.fit_intercept:  # a penalty that makes it count as much as all features together
            mean = float(problem.weights @ self._norms)
            l2_intercept = l2 / mean if mean > 0.0 else 1.0
            around = x[-1] + float(problem.weights @ u) / l2_intercept
        data = problem.loss, problem.y, problem.weights, self._norms
        gaps, n_before, n_steps = self._gaps, len(self._gaps), 0

        def sweep(order: Integers) -> float:
            nonlocal n_steps
            seen = float(_sweep(self._rows, *data, order, l2, l2_intercept, self._state))
            self._lost += order.size * math.sqrt(squares[1])
            n_steps += order.size
            return seen

        if begins and problem.design.is_sparse:
            sweep(self._order()[: n // 2])
        while len(gaps) - n_before < max_sweeps:
            gaps.append(sweep(self._order()))
            if problem.fit_intercept:  # u stays, and the middle of its penalty comes to where it is
                around, x[-1] = x[-1], 2.0 * x[-1] - around
            gap, n_watched = gaps[-1], len(gaps) - _FIRST
            if n_watched > 0 and gaps[-1] < gaps[-2]:  # samples saw it in passing: by now it has fallen once more
                gap *= gaps[-1] / gaps[-2]
            if n_watched >= 0 and gap <= enough:
                break
            if n_watched >= _WATCHED:
                if not gaps[-1] < gaps[_FIRST - 1]:
                    break
                pace = (gaps[-1] / gaps[_FIRST - 1]) ** (1.0 / n_watched)
                if gap * pace ** (max_sweeps - len(gaps) + n_before) > enough:
                    break
        return x, u, n_steps, gap

    def _order(self) -> Integers:
        """Return the samples in a random order, in which some neighbours stay together: these are read faster.

        Which, differs from sweep to sweep.
        """
        n = self._problem.n_samples
        size = max(1, min(_NEIGHBOURS, n // _GROUPS))
        begins = self._rng.permutation(np.arange(-self._rng.integers(size), n, size))
        order = (begins[:, None] + np.arange(size)).ravel()
        return order[(order >= 0) & (order < n)]
