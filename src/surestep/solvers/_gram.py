"""Quadratic models on a working set W with all their gradient entries kept exact, by the Gram matrix of W.

    q(x) = <g, x - x0> + (x - x0)^T G (x - x0) / 2 + psi(x),     G = A_W^T diag(d) A_W

A step on coordinate k adds a multiple of row k of G to the gradient: |W| contiguous numbers, whatever the length of the
column. New members of W extend G; no product is computed twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surestep._jit import VECTORIZE, jit
from surestep.lines import Dense, Lines, WithIntercept, dot, entry, n_entries
from surestep.regularizers import Separable, gradient_step
from surestep.solvers._steps import gain_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates whose step gains at least this part of the most that one can gain are stepped on in one sweep.
_NEARLY_BEST = 0.1

# Direct solves for a model, at most; updates before each, at least; and its ridge, as a part of the diagonal.
_JUMPS, _FEWEST_UPDATES, _RIDGE = 200, 50, 1e-10

# Samples that a product of dense columns takes at a time, at least; entries that stay in the cache.
_FEWEST_SAMPLES, CACHED = 256, 2**18

# So few sparse columns are multiplied with all of W one by one: to gather W by rows takes as long.
_FEW = 8

# Parts in which products of sparse columns take the rows, at most, and rows in a part, at least.
_PARTS, _FEWEST_ROWS = 8, 1024

# Side of the tiles by which a matrix is mirrored.
_TILE = 32


class Rows(NamedTuple):
    """Some rows of A restricted to W: row i has ``values[starts[i]:starts[i + 1]]`` at rising ``places`` in W.

    Those of new members from ``begin[i]`` on, in rows that have a weight.
    """

    starts: NDArray[np.uint64]
    begin: NDArray[np.uint64]
    places: NDArray[np.uint32]
    values: Array


@jit
def count_entries(columns: Any, members: Integers, counts: NDArray[np.uint64]) -> None:
    """Add the entries of some columns to the counts of their rows."""
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            row, _ = entry(columns, members[t], k)
            counts[row] += np.uint64(1)


@jit
def _fill(columns: Any, members: Integers, row: int, cursors: NDArray[np.uint64], rows: Rows) -> None:
    """Fill in the rows from ``row`` on, which begin at the ``cursors`` in the columns of W; these move to their end.

    Rows for which there is no room are left out.
    """
    one, first, stop = np.uint64(1), np.uint64(row), np.uint64(row + rows.begin.size)
    filled = rows.starts.copy()
    for p in range(members.size):
        k, end = cursors[p], n_entries(columns, members[p])
        while k < end:
            at, value = entry(columns, members[p], k)
            if at >= stop:
                break
            i = at - first
            to = filled[i]
            if to < rows.starts[i + one]:
                rows.places[to], rows.values[to] = np.uint32(p), value
                filled[i] = to + one
            k += one
        cursors[p] = k


@jit
def _add_products(rows: Rows, weights: Array, first: int, lines: Array) -> None:
    """Add d_i a_i a_i^T of some rows to the lines of G from ``first`` on, those of new members, below the diagonal.

    As many lines at a time as stay in the cache.
    """
    at, before, until = rows.begin.copy(), np.uint32(first), 0
    size = max(1, CACHED // (first + lines.shape[0]))
    while until < lines.shape[0]:
        until = min(until + size, lines.shape[0])
        stop = np.uint32(first + until)
        for i in range(weights.size):
            if weights[i] == 0.0:
                continue
            start, k = rows.starts[i], at[i]
            while k < rows.starts[i + 1] and rows.places[k] < stop:
                line, scaled = lines[rows.places[k] - before], weights[i] * rows.values[k]
                k += np.uint64(1)
                for m in range(start, k):
                    line[rows.places[m]] += scaled * rows.values[m]
            at[i] = k


@jit
def _add_by_columns(columns: Any, members: Integers, weights: Array, first: int, lines: Array) -> None:
    """Add the products of new members with all before them to their lines of G."""
    scaled = np.empty(weights.size)
    for p in range(first, members.size):
        scaled[:] = 0.0
        for k in range(n_entries(columns, members[p])):
            i, value = entry(columns, members[p], k)
            scaled[i] = weights[i] * value
        for q in range(p + 1):
            lines[p - first, q] += dot(columns, members[q], scaled)


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


class Source(Protocol):
    """Where the lines of a Gram matrix come from."""

    def renew(self, matrix: Array) -> bool:
        """Bring G up to date with the weights d; False if it is better to compute it anew."""

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""

    def add_lines(self, first: int, out: Array) -> None:
        """Add the lines of G from ``first`` on to ``out``; those since the last time members joined, or all."""


class Gram:
    """The matrix G = A_W^T diag(d) A_W, extended as members join W."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._n = 0
        self._store = np.zeros((0, 0))

    def of(self, members: Integers) -> Array:
        """Let W grow to these members, the old ones first; return G, a view, for the weights d as they are now."""
        first, n = self._n, members.size
        if not self._source.renew(self._store[:first, :first]):
            first = 0
        if n > self._store.shape[0]:
            store = np.zeros((2 * n, 2 * n))
            store[:first, :first] = self._store[:first, :first]
            self._store = store
        if n > self._n:
            self._source.join(members[self._n :])
            self._n = n
        matrix = self._store[:n, :n]
        if first < n:
            matrix[first:] = 0.0
            self._source.add_lines(first, matrix[first:])
            matrix[:first, first:] = matrix[first:, :first].T
        return matrix


class Products:
    """The products that make a Gram matrix, of columns in one place; ``weights`` are d, which may be changed.

    Sparse columns of W are gathered by rows; these are kept for other weights where W has at most ``n_kept`` entries.
    """

    def __init__(self, columns: Lines, n_samples: int, weights: Array, n_kept: int = 0) -> None:
        self._columns, self._weights, self._used = columns, weights, weights.copy()
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        self._dense = inner.values if isinstance(inner, Dense) else None
        self._n_samples = n_samples
        self._members = np.empty(0, np.int64)
        self._counts, self._n_new = np.zeros((2, n_samples), np.uint64)  # entries of W in each row; of the newest
        self._n_kept = n_kept
        self._kept: Rows | None = None

    def renew(self, matrix: Array) -> bool:
        """Bring G up to date with the weights d, row by row; False if it is better to compute it anew."""
        if not self._weights.flags.writeable:  # they cannot have changed
            return True
        change = self._weights - self._used
        changed = np.flatnonzero(change)
        if changed.size == 0:
            return True
        self._used[:] = self._weights
        # BLAS takes half the time for a product of a matrix with itself.
        if (2 if self._dense is None else 4) * changed.size > self._n_samples:
            return False
        if self._dense is not None:
            lines = self._gather(changed)
            matrix += (lines * change[changed]) @ lines.T
        else:
            self._add_by_rows(change, self._counts, 0, matrix)
        mirror(matrix)
        return True

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""
        self._members = np.concatenate([self._members, new])
        if self._dense is None:
            self._n_new[:] = 0
            count_entries(self._columns, new, self._n_new)
            self._counts += self._n_new
            self._kept = None

    def add_lines(self, first: int, out: Array) -> None:
        """Add the lines of G from ``first`` on to ``out``; those since the last time members joined, or all."""
        if self._dense is not None and first == 0 and self._is_nearly_whole and _is_constant(self._weights):
            out += self._weights[0] * block_of(self._dense @ self._dense.T, self._members)
        elif self._dense is not None and self._is_most(first):
            new = self._dense[self._members[first:]] * self._weights
            out += (new @ self._dense.T)[:, self._members]
        elif self._dense is not None:
            # By BLAS, which takes half the time where both factors are the same; some samples at a time, in the cache.
            size = max(_FEWEST_SAMPLES, CACHED // self._members.size)
            for begin in range(0, self._n_samples, size):
                part = slice(begin, begin + size)
                lines = self._gather(part) * np.sqrt(self._weights[part])
                out += lines[first:] @ lines.T
        elif self._members.size - first <= _FEW:
            _add_by_columns(self._columns, self._members, self._weights, first, out)
        else:
            self._add_by_rows(self._weights, self._n_new if first > 0 else self._counts, first, out)
        mirror(out[:, first:])

    def _add_by_rows(self, weights: Array, n_new: NDArray[np.uint64], first: int, out: Array) -> None:
        """Add sparse products for some weights to the lines of new members."""
        if int(np.sum(self._counts)) <= self._n_kept:
            if self._kept is None:
                ((_, self._kept),) = self._rows([slice(0, self._n_samples)], self._counts)
            found = iter([(slice(0, self._n_samples), self._kept)])
        else:
            size = max(_FEWEST_ROWS, -(-self._n_samples // _PARTS))
            parts = [slice(row, row + size) for row in range(0, self._n_samples, size)]
            found = self._rows(parts, self._counts * ((n_new > 0) & (weights != 0.0)))
        for part, rows in found:
            _add_products(rows._replace(begin=rows.starts[1:] - n_new[part]), weights[part], first, out)

    def _rows(self, parts: list[slice], counts: NDArray[np.uint64]) -> Iterator[tuple[slice, Rows]]:
        """Gather sparse columns of W by rows, those with any ``counts``, each part in the place of the one before."""
        room = max(int(np.sum(counts[part])) for part in parts)
        places, values, cursors = np.empty(room, np.uint32), np.empty(room), np.zeros(self._members.size, np.uint64)
        for part in parts:
            starts = np.concatenate([[0], np.cumsum(counts[part])]).astype(np.uint64)
            rows = Rows(starts, starts[1:], places, values)
            _fill(self._columns, self._members, part.start, cursors, rows)
            yield part, rows

    @property
    def _is_whole(self) -> bool:
        """Whether W are all columns in their order, so that nothing need be gathered."""
        assert self._dense is not None
        return self._dense.dtype == np.float64 and np.array_equal(self._members, np.arange(self._dense.shape[0]))

    @property
    def _is_nearly_whole(self) -> bool:
        """Whether W has nearly all columns: a product of all is less work than to gather them."""
        assert self._dense is not None
        n, d = self._members.size, self._dense.shape[0]
        return 10 * n > 9 * d and self._dense.dtype == np.float64 and int(np.max(self._members)) < d

    def _is_most(self, first: int) -> bool:
        """Whether few join a W that has most columns: products with all are less work than to gather those of W."""
        assert self._dense is not None
        n, d = self._members.size, self._dense.shape[0]
        return 2 * n > d and 10 * (n - first) < n and self._dense.dtype == np.float64 and int(np.max(self._members)) < d

    def _gather(self, part: Any) -> Array:
        """Return some samples of the columns of W."""
        assert self._dense is not None
        if self._is_whole:
            return np.asarray(self._dense[:, part])
        is_column = self._members < self._dense.shape[0]
        columns = self._members[is_column]
        found = self._dense[columns if isinstance(part, slice) else columns[:, None], part]
        if is_column.all():
            return np.asarray(found)
        lines = np.ones((self._members.size, found.shape[1]))  # one of them is that of the intercept
        lines[is_column] = found
        return lines


def _is_constant(weights: Array) -> bool:
    return bool(np.all(weights == weights[0]))


@jit
def mirror(matrix: Array) -> None:
    """Copy the part below the diagonal to the part above it, tile by tile: columns of a large matrix are far apart."""
    for row in range(0, matrix.shape[0], _TILE):
        for column in range(0, row + 1, _TILE):
            for p in range(row, min(row + _TILE, matrix.shape[0])):
                for q in range(column, min(column + _TILE, p)):
                    matrix[q, p] = matrix[p, q]


@jit
def _gains(reg: Any, x: Array, g: Array, curvature: Array, by_slope: bool, out: Array) -> float:
    """See `gain_of`; return the largest."""
    largest = 0.0
    for k in range(x.size):
        change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
        out[k] = gain_of(reg, k, x[k], g[k], curvature[k], change, by_slope)
    for k in range(x.size):
        largest = max(largest, out[k])
    return largest


@jit(fastmath=VECTORIZE)
def _add_line(g: Array, change: float, line: Array) -> None:
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
        floor = _NEARLY_BEST * _gains(reg, x, g, curvature, by_slope, gains)
        if floor <= _NEARLY_BEST * enough or done >= n_updates:
            return done
        for k in range(x.size):
            if gains[k] >= floor:
                change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
                if gain_of(reg, k, x[k], g[k], curvature[k], change, by_slope) >= floor * _NEARLY_BEST:
                    x[k] += change
                    _add_line(g, change, matrix[k])
                    done += 1


@jit
def block_of(matrix: Array, places: Integers) -> Array:
    """Rows and columns of a matrix at some places."""
    block = np.empty((places.size, places.size))
    for p in range(places.size):
        line = matrix[places[p]]
        for q in range(places.size):
            block[p, q] = line[places[q]]
    return block


@jit
def _follow(orthant: Orthant, block: Array, c: Array, step: Array) -> Array:
    """Return where <c, v> + v^T H v / 2 is lowest on the way of a step; a coordinate that reaches its end stays there.

    The way is a chain of straight pieces, and v^T H v a parabola on each: a coordinate that stops takes its row of H
    out of the direction.
    """
    at, low, high = orthant.x, orthant.low, orthant.high
    n, times, direction, image, slopes, now = at.size, np.empty(at.size), step.copy(), np.zeros(at.size), c.copy(), 0.0
    for k in range(n):
        times[k] = ((high[k] if step[k] > 0.0 else low[k]) - at[k]) / step[k] if step[k] != 0.0 else math.inf
        _add_line(image, step[k], block[k])
    for _ in range(n + 1):
        slope = curvature = 0.0
        first = -1
        for k in range(n):
            slope += slopes[k] * direction[k]
            curvature += image[k] * direction[k]
            if direction[k] != 0.0 and (first < 0 or times[k] < times[first]):
                first = k
        until = times[first] if first >= 0 else math.inf
        lowest = now - slope / curvature if curvature > 0.0 else math.inf
        if slope >= 0.0 or lowest <= until or until == math.inf:
            now = lowest if slope < 0.0 and lowest < math.inf else now
            break
        _add_line(slopes, until - now, image)
        now = until
        _add_line(image, -step[first], block[first])
        direction[first] = 0.0
    out = np.empty(n)
    for k in range(n):
        end = high[k] if step[k] > 0.0 else low[k]
        out[k] = end if times[k] <= now else min(max(at[k] + now * step[k], low[k]), high[k])
    return out


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
def jump(reg: Any, x: Array, g: Array, matrix: Array) -> None:
    """Go towards the minimiser over the coordinates that are not zero by a direct solve, as if signs were given.

    Coordinates that would change their sign or leave their bounds on the way stop at zero, or at the bound; it ends
    where the model is lowest. Nothing happens where the columns have no entries.
    """
    orthant = orthant_of(reg, x)
    places, n = orthant.places, orthant.x.size
    block, c, minus, diagonal = block_of(matrix, places), np.empty(n), np.empty(n), np.empty(n)
    for k in range(n):
        c[k] = g[places[k]] + orthant.slope[k]
        minus[k], diagonal[k] = -c[k], block[k, k] + orthant.l2[k]
        # Columns that depend on each other let a coordinate grow until others stop: a way down like any other.
        block[k, k] = diagonal[k] * (1.0 + _RIDGE)
    step = _solved(block, minus)
    for k in range(n):
        if not math.isfinite(step[k]):
            return
        block[k, k] = diagonal[k]
    after = _follow(orthant, block, c, step)
    for k in range(n):
        if after[k] != orthant.x[k]:
            _add_line(g, after[k] - orthant.x[k], matrix[places[k]])
            x[places[k]] = after[k]


def solve_on_gram(reg: Separable, x: Array, g: Array, matrix: Array, enough: float, by_slope: bool = False) -> int:
    """Minimise the model until no coordinate gains more than ``enough``; x and its gradient g are changed in place.

    What a step gains is told by its curvature or ``by_slope``, see `gain_of`.

    By updates, as many as take the time of a direct solve, then the direct solve; again and again. Returns the number
    of updates.
    """
    curvature = np.maximum(np.diagonal(matrix) + reg.l2, np.finfo(float).tiny)
    n_steps = 0
    for _ in range(_JUMPS):
        n_updates = max(_FEWEST_UPDATES, int(np.count_nonzero(x)) ** 3 // (36 * x.size))
        done = descend_on_gram(reg, x, g, curvature, matrix, enough, n_updates, by_slope)
        n_steps += done
        if done < n_updates:
            break
        jump(reg, x, g, matrix)
    return n_steps
