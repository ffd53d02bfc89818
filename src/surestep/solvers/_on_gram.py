"""Quadratic models on a working set W with all their gradient entries kept exact, by the Gram matrix of W.

    q(x) = <g, x - x0> + (x - x0)^T G (x - x0) / 2 + psi(x),     G = A_W^T diag(d) A_W

A step on coordinate k adds a multiple of row k of G to the gradient: |W| contiguous numbers, whatever the length of the
column; lines of G may have room at their ends, see `Gram.of`. Direct solves find the minimiser among the coordinates
that are not zero; these are nearly the same from one to the next, and so is the factor that solves for them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from surestep._jit import VECTORIZE, jit
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._gram import block_of
from surestep.solvers._steps import gain_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates whose step gains at least this part of the most that one can gain are stepped on in one sweep.
_NEARLY_BEST = 0.1

# Direct solves for a model, at most; updates before each, at least; and its ridge, as a part of the diagonal: columns
# that depend on each other let a coordinate grow until others stop, which is a way down like any other.
_JUMPS, _FEWEST_UPDATES, _RIDGE = 200, 50, 1e-10

# Coordinates whose factor is kept, at least: other calls take longer. Those by which the ones to solve for may differ,
# as a part; what is left of the right side after a solve, as a part of it; and solves until it is, at most.
_FEWEST_KEPT, _BORDERS, _LEFT, _SOLVES = 200, 0.1, 1e-5, 3

# Curvature of a centred column, as a part of what it has as it is, at least.
_LEAST = 1e-13

# Multiplications for each entry of H that such a solve takes the time of.
_PER_ENTRY = 48


class Orthant(NamedTuple):
    """Where the penalty is smooth around x: coordinates neither at zero nor at a bound, from end to end of their side.

    ``slope`` is the derivative of the penalty at x.
    """

    places: Integers
    x: Array
    low: Array
    high: Array
    slope: Array
    l2: Array


@jit
def orthant_of(reg: Any, x: Array) -> Orthant:
    """Return the one around x."""
    places, n = np.empty(x.size, np.int64), 0
    for j in range(x.size):
        if x[j] != 0.0 and reg.lower[j] < x[j] < reg.upper[j]:
            places[n] = j
            n += 1
    here, low, high, slope, l2 = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for t in range(n):
        j = places[t]
        here[t], low[t], high[t], l2[t], l1 = x[j], reg.lower[j], reg.upper[j], reg.l2[j], reg.l1[j]
        slope[t] = l2[t] * here[t] + (l1 if here[t] > 0.0 else -l1)
        if l1 > 0.0 and here[t] > 0.0:
            low[t] = max(low[t], 0.0)
        elif l1 > 0.0:
            high[t] = min(high[t], 0.0)
    return Orthant(places[:n], here, low, high, slope, l2)


@jit
def gains_on(reg: Any, x: Array, g: Array, curvature: Array, by_slope: bool, out: Array) -> float:
    """See `gain_of`; return the largest."""
    largest = 0.0
    for k in range(x.size):
        change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
        out[k] = gain_of(reg, k, x[k], g[k], curvature[k], change, by_slope)
    for k in range(x.size):
        largest = max(largest, out[k])
    return largest


@jit(fastmath=VECTORIZE)
def add_line(g: Array, change: float, line: Array) -> None:
    for k in range(g.size):
        g[k] += change * line[k]


@jit
def descend_on_gram(
    reg: Any,
    x: Array,
    g: Array,
    curvature: Array,
    matrix: Array,
    enough: float,
    n_updates: int,
    by_slope: bool = False,
) -> int:
    """Step on the coordinates that gain most until none gains more than ``enough``, or after a number of updates.

    Sweep by sweep: all gains are computed, and those that come near the largest are stepped on in turn, if it still
    pays then. That takes hardly more updates than always taking the best, and a look at all coordinates only once a
    sweep. Returns the number of updates.
    """
    done, gains = 0, np.empty_like(x)
    while True:
        floor = _NEARLY_BEST * gains_on(reg, x, g, curvature, by_slope, gains)
        if floor <= _NEARLY_BEST * enough or done >= n_updates:
            return done
        for k in range(x.size):
            if gains[k] >= floor:
                change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
                if gain_of(reg, k, x[k], g[k], curvature[k], change, by_slope) >= floor * _NEARLY_BEST:
                    x[k] += change
                    add_line(g, change, matrix[k])
                    done += 1


@jit
def _times(matrix: Array, orthant: Orthant, v: Array) -> Array:
    """Return H v, H the matrix at the places of an orthant and its l2."""
    image, places = np.zeros(matrix.shape[0]), orthant.places
    for k in range(v.size):
        add_line(image, v[k], matrix[places[k]])
    return image[places] + orthant.l2 * v


@jit
def _block(matrix: Array, orthant: Orthant) -> Array:
    """Return H with the ridge of direct solves."""
    block = block_of(matrix, orthant.places)
    for k in range(orthant.x.size):
        block[k, k] = (block[k, k] + orthant.l2[k]) * (1.0 + _RIDGE)
    return block


class Factor:
    """The Cholesky factor of H for the coordinates at some places of W; solves for others that differ in few, too.

    Where those of D leave it and those of A join, with U = [H_A, E_D], rows of H and of the unit matrix,

        H v + U t = b ,   U^T v + diag(H_AA, 0) t = (b_A, 0)

    has v = 0 on D, and x_A in t. H itself may have changed somewhat: what the solution leaves of b is solved for again.
    """

    def __init__(self) -> None:
        self._places: Integers = np.empty(0, np.int64)
        self._upper = np.empty((0, 0))

    def work(self, n: int) -> int:
        """Multiplications that the next solve for n coordinates takes, about."""
        whole = n**3 // 3
        return min(whole, _PER_ENTRY * n * n) if self._places.size > 0 else whole

    def solve(self, matrix: Array, orthant: Orthant, right: Array) -> Array | None:
        """Solve H v = right, H that of an orthant; None where it is not positive."""
        try:
            found = self._solve_by_borders(matrix, orthant, right)
        except np.linalg.LinAlgError:
            found = None
        if found is not None:
            return found
        self._upper = np.empty((0, 0))  # as large as the one to come
        upper, failed = lapack.dpotrf(_block(matrix, orthant).T, clean=0, overwrite_a=1)
        self._places, self._upper = (np.empty(0, np.int64), upper) if failed else (orthant.places, upper)
        return None if failed else lapack.dpotrs(upper, right)[0]

    def _solve_by_borders(self, matrix: Array, orthant: Orthant, right: Array) -> Array | None:
        """Solve by the factor there is; None where that is too different."""
        places, n, at = orthant.places, self._places.size, np.full(matrix.shape[0], -1)
        at[self._places] = np.arange(n)
        at = at[places]
        stay, join = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        n_borders = n - stay.size + join.size
        if n_borders > _BORDERS * n or n == 0:
            return None
        at, leave = at[stay], np.setdiff1d(np.arange(n), at[stay], assume_unique=True)
        U = np.zeros((n_borders, n))
        U[: join.size] = matrix[np.ix_(places[join], self._places)]
        U[np.arange(join.size, n_borders), leave] = 1.0
        Y = blas.dtrsm(1.0, self._upper, U.T, trans_a=1) if n_borders > 0 else U.T
        inner = -(Y.T @ Y)
        inner[: join.size, : join.size] += matrix[np.ix_(places[join], places[join])] + np.diag(orthant.l2[join])

        found, left = np.zeros_like(right), right
        for _ in range(_SOLVES):
            b, t = np.zeros(n), np.zeros(n_borders)
            b[at], t[: join.size] = left[stay], left[join]
            y = blas.dtrsv(self._upper, b, trans=1)
            if n_borders > 0:
                t = np.linalg.solve(inner, t - Y.T @ y)
                y -= Y @ t
            found[stay] += blas.dtrsv(self._upper, y)[at]
            found[join] += t[: join.size]
            left = right - _times(matrix, orthant, found)
            if np.max(np.abs(left)) <= _LEFT * np.max(np.abs(right)):
                return found
        return None


@jit
def _system(reg: Any, x: Array, g: Array) -> tuple[Orthant, Array]:
    """Return the orthant around x, and c of the model <c, v> + v^T H v / 2 on it."""
    orthant = orthant_of(reg, x)
    return orthant, g[orthant.places] + orthant.slope


@jit
def _go_along(orthant: Orthant, c: Array, step: Array, x: Array, g: Array, matrix: Array) -> None:
    """Go the way of a step until <c, v> + v^T H v / 2 no longer falls; coordinates that reach their end stay there.

    The way is a chain of straight pieces, and v^T H v a parabola on each: a coordinate that stops takes its line of G
    out of the ``image`` of the direction, by which the gradient changes.
    """
    places, at, low, high, _, l2 = orthant
    n, times, direction, slopes, now = at.size, np.empty(at.size), step.copy(), c.copy(), 0.0
    image = np.zeros(g.size)
    for k in range(n):
        add_line(image, step[k], matrix[places[k]])
        times[k] = ((high[k] if step[k] > 0.0 else low[k]) - at[k]) / step[k] if step[k] != 0.0 else math.inf
    for _ in range(n + 1):
        slope = curvature = 0.0
        first = -1
        for k in range(n):
            slope += slopes[k] * direction[k]
            curvature += (image[places[k]] + l2[k] * direction[k]) * direction[k]
            if direction[k] != 0.0 and (first < 0 or times[k] < times[first]):
                first = k
        until = times[first] if first >= 0 else math.inf
        lowest = now - slope / curvature if curvature > 0.0 else math.inf
        if slope >= 0.0 or lowest <= until or until == math.inf:
            if slope < 0.0 and lowest < math.inf:
                add_line(g, lowest - now, image)
                now = lowest
            break
        add_line(g, until - now, image)
        for k in range(n):
            slopes[k] += (until - now) * (image[places[k]] + l2[k] * direction[k])
        now = until
        add_line(image, -step[first], matrix[places[first]])
        direction[first] = 0.0
    for k in range(n):
        end = high[k] if step[k] > 0.0 else low[k]
        x[places[k]] = end if times[k] <= now else min(max(at[k] + now * step[k], low[k]), high[k])


@jit
def _solved(block: Array, right: Array) -> Array:
    """Solve H v = right; not a number where H is not positive."""
    n, v = right.size, right.copy()
    try:
        factor = np.linalg.cholesky(block.T)  # by columns, as LAPACK has it: H is its own transpose
    except Exception:
        v[:] = math.nan
        return v
    for j in range(n):
        v[j] /= factor[j, j]
        for k in range(j + 1, n):
            v[k] -= v[j] * factor[k, j]
    for back in range(1, n + 1):
        j = n - back
        for k in range(j + 1, n):
            v[j] -= factor[k, j] * v[k]
        v[j] /= factor[j, j]
    return v


@jit
def _jump_at_once(reg: Any, x: Array, g: Array, matrix: Array) -> None:
    """See `jump`; without a factor, in one call."""
    orthant, c = _system(reg, x, g)
    step = _solved(_block(matrix, orthant), -c)
    for k in range(step.size):
        if not math.isfinite(step[k]):
            return
    _go_along(orthant, c, step, x, g, matrix)


@jit
def n_nonzero(x: Array) -> int:
    """Count what is not zero: NumPy's takes longer to compile."""
    n = 0
    for k in range(x.size):
        n += x[k] != 0.0
    return n


@jit
def solve_at_once(reg: Any, x: Array, g: Array, matrix: Array, enough: float, by_slope: bool) -> int:
    """See `solve_on_gram`; in one call."""
    curvature, n_steps = np.empty(x.size), 0
    for k in range(x.size):
        curvature[k] = max(matrix[k, k] + reg.l2[k], np.finfo(np.float64).tiny)
    for _ in range(_JUMPS):
        n_updates = max(_FEWEST_UPDATES, n_nonzero(x) ** 3 // (36 * max(x.size, 1)))
        done = descend_on_gram(reg, x, g, curvature, matrix, enough, n_updates, by_slope)
        n_steps += done
        if done < n_updates:
            break
        _jump_at_once(reg, x, g, matrix)
    return n_steps


def jump(reg: Separable, x: Array, g: Array, matrix: Array, factor: Factor) -> None:
    """Go towards the minimiser over the coordinates that are not zero by a direct solve, as if signs were given.

    Coordinates that would change their sign or leave their bounds on the way stop at zero, or at the bound; it ends
    where the model begins to rise. Nothing happens where the columns have no entries.
    """
    if np.count_nonzero(x) < _FEWEST_KEPT:
        _jump_at_once(reg, x, g, matrix)
        return
    orthant, c = _system(reg, x, g)
    step = factor.solve(matrix, orthant, -c)
    if step is not None and np.isfinite(step).all():
        _go_along(orthant, c, step, x, g, matrix)


def _centred(matrix: Array, k: int) -> Array:
    """Return G of columns whose means, for the weights d, are taken off: those the best intercept k leaves to see.

        G_pq - m_p m_q / D ,    m = G_k ,    D = G_kk

    The line of k itself is left to stand alone.
    """
    n = matrix.shape[0]
    line = matrix[k, :n]
    out = np.outer(line / -line[k], line)
    out += matrix[:, :n]  # no third matrix of this size
    # Of a column that hardly varies nothing is left but rounding; more curvature than there is does no harm.
    np.fill_diagonal(out, np.maximum(np.diagonal(out), _LEAST * np.diagonal(matrix)))
    out[k], out[:, k], out[k, k] = 0.0, 0.0, line[k]
    return out


def solve_with_intercept(
    reg: Separable,
    x: Array,
    g: Array,
    matrix: Array,
    k: int,
    enough: float,
    by_slope: bool = False,
    factor: Factor | None = None,
) -> int:
    """See `solve_on_gram`; the intercept, coordinate k, is kept at its best: columns far from zero are all alike."""
    line, start, shift = matrix[k, : x.size], x.copy(), -g[k] / matrix[k, k]
    g += shift * line
    g[k] = 0.0
    n_steps = solve_on_gram(reg, x, g, _centred(matrix, k), enough, by_slope, factor)
    x[k] += shift - line @ (x - start) / line[k]  # itself it has not moved
    return n_steps


def solve_on_gram(
    reg: Separable,
    x: Array,
    g: Array,
    matrix: Array,
    enough: float,
    by_slope: bool = False,
    factor: Factor | None = None,
) -> int:
    """Minimise the model until no coordinate gains more than ``enough``; x and its gradient g are changed in place.

    What a step gains is told by its curvature or ``by_slope``, see `gain_of`. ``factor`` is that of the last time, for
    a matrix that was nearly the same.

    By updates, as many as take the time of a direct solve, then the direct solve; again and again. Returns the number
    of updates.
    """
    curvature = np.maximum(np.diagonal(matrix) + reg.l2, np.finfo(float).tiny)
    factor = Factor() if factor is None else factor
    n_steps = 0
    for _ in range(_JUMPS):
        n_updates = max(_FEWEST_UPDATES, factor.work(int(np.count_nonzero(x))) // (12 * x.size))
        done = descend_on_gram(reg, x, g, curvature, matrix, enough, n_updates, by_slope)
        n_steps += done
        if done < n_updates:
            break
        jump(reg, x, g, matrix, factor)
    return n_steps
