"""Quadratic models on a working set W with all their gradient entries kept exact, by the Gram matrix of W.

    q(x) = <g, x - x0> + (x - x0)^T G (x - x0) / 2 + psi(x),     G = A_W^T diag(d) A_W

A step on coordinate k adds a multiple of row k of G to the gradient: |W| contiguous numbers, whatever the length of the
column. New members of W extend G; no product is computed twice.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surestep._jit import VECTORIZE, jit
from surestep.design import Dense, Lines, Sparse, WithIntercept, entry, n_entries
from surestep.regularizers import Separable, gradient_step

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates whose step gains at least this part of the most that one can gain are stepped on in one sweep.
_NEARLY_BEST = 0.1

# Direct solves for a model, at most; updates before each, at least; and its ridge, as a part of the diagonal.
_JUMPS, _FEWEST_UPDATES, _RIDGE = 200, 50, 1e-10

# Samples that a product of dense columns takes at a time, at least; entries that stay in the cache.
_FEWEST_SAMPLES, CACHED = 256, 2**18

# Side of the tiles by which a matrix is mirrored.
_TILE = 32

# A line of G with so many entries and its gradient stay in the first-level cache.
_LINE = 1500


class Rows(NamedTuple):
    """The rows of A restricted to W: row i has ``values[starts[i]:starts[i + 1]]`` at rising ``places`` in W."""

    starts: NDArray[np.uint64]
    places: NDArray[np.uint32]
    values: Array


@jit
def _count(columns: Any, members: Integers, counts: NDArray[np.uint64]) -> None:
    """Add the entries of some columns to the counts of their rows; row i is counted in place i + 1."""
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            row, _ = entry(columns, members[t], k)
            counts[row + np.uint64(1)] += np.uint64(1)


@jit
def _spread(starts: NDArray[np.uint64], rows: Rows, ends: NDArray[np.uint64]) -> None:
    """Move rows that began at ``starts`` to where they begin now, in place; set ``ends`` to where their entries end.

    No row begins before where it began, so that the last goes first, and its last entry before the others.
    """
    one = np.uint64(1)
    for back in range(1, ends.size + 1):
        i = ends.size - back
        n = starts[i + 1] - starts[i]
        ends[i] = rows.starts[i] + n
        for k in range(one, n + one):
            old, new = starts[i + 1] - k, ends[i] - k
            rows.places[new], rows.values[new] = rows.places[old], rows.values[old]


@jit
def _append(columns: Any, members: Integers, first: int, rows: Rows, ends: NDArray[np.uint64]) -> None:
    """Append the columns of members, from place ``first`` in W on, to the rows, which end at ``ends``."""
    for p in range(first, members.size):
        for k in range(n_entries(columns, members[p])):
            i, value = entry(columns, members[p], k)
            at = ends[i]
            rows.places[at], rows.values[at] = np.uint32(p), value
            ends[i] = at + np.uint64(1)


@jit
def _add_products(rows: Rows, weights: Array, begin: NDArray[np.uint64], first: int, lines: Array) -> None:
    """Add d_i a_i a_i^T of all rows to the lines of G from ``first`` on, below the diagonal.

    In row i these are the lines of its entries from ``begin[i]`` on. As many lines at a time as stay in the cache.
    """
    at, before, until = begin.copy(), np.uint32(first), 0
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
    """The products that make a Gram matrix, of columns in one place; ``weights`` are d, which may be changed."""

    def __init__(self, columns: Lines, n_samples: int, weights: Array) -> None:
        self._columns, self._weights, self._used = columns, weights, weights.copy()
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        self._dense = inner.values if isinstance(inner, Dense) else None
        self._n_samples = n_samples
        self._rows = Rows(np.zeros(n_samples + 1, np.uint64), np.empty(0, np.uint32), np.empty(0))
        self._begin = self._rows.starts[:-1]  # where, in each row, the newest members begin
        self._members = np.empty(0, np.int64)

    def renew(self, matrix: Array) -> bool:
        """Bring G up to date with the weights d, row by row; False if it is better to compute it anew."""
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
            _add_products(self._rows, change, self._rows.starts[:-1], 0, matrix)
        mirror(matrix)
        return True

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""
        first = self._members.size
        self._members = np.concatenate([self._members, new])
        if self._dense is not None:
            return
        starts = np.zeros_like(self._rows.starts)
        _count(self._columns, new, starts)
        starts += np.diff(self._rows.starts, prepend=np.uint64(0))
        np.cumsum(starts, out=starts)
        before, places, values = self._rows
        for array in (places, values):  # in place: the entries of W may be most of the data
            array.resize(int(starts[-1]), refcheck=False)
        self._rows = Rows(starts, places, values)
        ends = np.empty_like(starts[1:])
        _spread(before, self._rows, ends)
        self._begin = ends.copy()
        _append(self._columns, self._members, first, self._rows, ends)

    def add_lines(self, first: int, out: Array) -> None:
        """Add the lines of G from ``first`` on to ``out``; those since the last time members joined, or all."""
        if self._dense is not None and self._is_most(first):
            new = self._dense[self._members[first:]] * self._weights
            out += (new @ self._dense.T)[:, self._members]
        elif self._dense is not None:
            # By BLAS, which takes half the time where both factors are the same; some samples at a time, in the cache.
            size = max(_FEWEST_SAMPLES, CACHED // self._members.size)
            for begin in range(0, self._n_samples, size):
                part = slice(begin, begin + size)
                lines = self._gather(part) * np.sqrt(self._weights[part])
                out += lines[first:] @ lines.T
        else:
            _add_products(self._rows, self._weights, self._begin if first > 0 else self._rows.starts[:-1], first, out)
        mirror(out[:, first:])

    def _is_most(self, first: int) -> bool:
        """Whether few join a W that has most columns: products with all are less work than to gather those of W."""
        assert self._dense is not None
        n, d = self._members.size, self._dense.shape[0]
        return 2 * n > d and 10 * (n - first) < n and self._dense.dtype == np.float64 and int(np.max(self._members)) < d

    def _gather(self, part: Any) -> Array:
        """Return some samples of the columns of W."""
        assert self._dense is not None
        is_column = self._members < self._dense.shape[0]
        columns = self._members[is_column]
        found = self._dense[columns if isinstance(part, slice) else columns[:, None], part]
        if is_column.all():
            return np.asarray(found)
        lines = np.ones((self._members.size, found.shape[1]))  # one of them is that of the intercept
        lines[is_column] = found
        return lines


def pays(columns: Lines, n_samples: int, members: Integers, growing: bool, curved: bool, spent: float = 0.0) -> bool:
    """Whether W is better worked on by its Gram matrix than by its columns.

    Counted in nanoseconds (measured): the products of entries, updates of all gradient entries, ten for each member
    and more in large W, and room for the matrix; against reading the columns 350 times. While W is ``growing`` it is
    solved roughly, which takes a tenth of that; most products would be of no use if in the end W is too large.

    For a loss that is ``curved`` the products are computed more than once, and how often columns are read differs
    widely: thirty times for sure, and the time that was ``spent`` on columns so far is what will be spent again.
    """
    n = members.size
    inner = columns.lines if isinstance(columns, WithIntercept) else columns
    is_dense = isinstance(inner, Dense)
    n_grams, n_updates, n_reads, more = 1.0, 10.0 + 0.004 * n, 350.0, 5e6
    if curved:
        n_grams, n_updates, n_reads, more = 2.5, 10.0, 250.0 if is_dense else 30.0, 2e5 + 0.5 * spent
    elif growing:
        n_updates, n_reads = 0.1 * n_updates, 0.1 * n_reads
    if (
        curved and n > n_samples
    ):  # columns that depend on each other take many updates, and are shorter than a line of G
        n_updates, more = 100.0, 2e5
    if is_dense:
        products, n_entries, per_product, per_entry = 0.5 * n * n * n_samples, n * n_samples, 0.07, 0.25
    else:
        counts = np.zeros(n_samples + 1, np.uint64)
        _count(columns, members, counts)
        per_row = counts.astype(float)
        products, n_entries, per_entry = 0.5 * per_row @ per_row, per_row.sum(), 1.0
        per_product = min(0.8 + 0.0005 * n, 2.2)
    per_update = 0.4 * n if n < _LINE else 0.9 * n
    by_gram = n_grams * per_product * products + n_updates * n * per_update + 10.0 * n * n
    return bool(by_gram < n_reads * per_entry * n_entries + more)


class Price(NamedTuple):
    """Nanoseconds (measured) of work on a working set: steps by its columns, and its Gram matrix with direct solves."""

    step: float
    entries: float
    products: float
    size: int

    @classmethod
    def of(cls, columns: Dense | Sparse, n_samples: int, by_samples: bool = False) -> Price:
        """Return that of some columns; or that of their rows."""
        if isinstance(columns, Dense):
            n, length = columns.values.shape[:: -1 if by_samples else 1]
            return cls(0.5 * length + 50.0, 2.0 * n * length, 0.04 * n * n * length, n)
        n = n_samples if by_samples else columns.starts.size - 1
        across = np.diff(columns.starts) if by_samples else np.bincount(columns.indices, minlength=n_samples)
        counts, n_entries = across.astype(float), float(columns.indices.size)
        return cls(2.0 * n_entries / n + 50.0, 12.0 * n_entries, 0.6 * float(counts @ counts), n)

    def of_gram(self, n: int) -> float:
        """Of a Gram matrix of so many members of W, and descent and direct solves on it."""
        part = n / self.size
        return part * self.entries + part**2 * self.products + 60.0 * n**2 + 0.05 * n**3

    @property
    def of_factors(self) -> float:
        """Of the Gram matrix of all, and its factors."""
        return self.entries + self.products + 10.0 * self.size**2 + 0.02 * self.size**3


@jit
def mirror(matrix: Array) -> None:
    """Copy the part below the diagonal to the part above it, tile by tile: columns of a large matrix are far apart."""
    for row in range(0, matrix.shape[0], _TILE):
        for column in range(0, row + 1, _TILE):
            for p in range(row, min(row + _TILE, matrix.shape[0])):
                for q in range(column, min(column + _TILE, p)):
                    matrix[q, p] = matrix[p, q]


@jit
def _gains(reg: Any, x: Array, g: Array, curvature: Array, out: Array) -> float:
    """Square of the step on each coordinate times its curvature, twice what it gains; return the largest."""
    largest = 0.0
    for k in range(x.size):
        change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
        out[k] = change * change * curvature[k]
    for k in range(x.size):
        largest = max(largest, out[k])
    return largest


@jit(fastmath=VECTORIZE)
def _add_line(g: Array, change: float, line: Array) -> None:
    for k in range(g.size):
        g[k] += change * line[k]


@jit
def descend_on_gram(
    reg: Any, x: Array, g: Array, curvature: Array, matrix: Array, enough: float, n_updates: int
) -> int:
    """Step on the coordinates that gain most until none gains more than ``enough``, or after a number of updates.

    Sweep by sweep: all gains are computed, and those that come near the largest are stepped on in turn, if it still
    pays then. That takes hardly more updates than always taking the best, and a look at all coordinates only once a
    sweep. Returns the number of updates.
    """
    done, gains = 0, np.empty_like(x)
    while True:
        floor = _NEARLY_BEST * _gains(reg, x, g, curvature, gains)
        if floor <= _NEARLY_BEST * enough or done >= n_updates:
            return done
        for k in range(x.size):
            if gains[k] >= floor:
                change = gradient_step(reg, k, x[k], g[k], 1.0 / curvature[k]) - x[k]
                if change * change * curvature[k] >= floor * _NEARLY_BEST:
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


def solve_on_gram(reg: Separable, x: Array, g: Array, matrix: Array, enough: float) -> int:
    """Minimise the model until no coordinate gains more than ``enough``; x and its gradient g are changed in place.

    By updates, as many as take the time of a direct solve, then the direct solve; again and again. Returns the number
    of updates.
    """
    curvature = np.maximum(np.diagonal(matrix) + reg.l2, np.finfo(float).tiny)
    n_steps = 0
    for _ in range(_JUMPS):
        n_updates = max(_FEWEST_UPDATES, int(np.count_nonzero(x)) ** 3 // (36 * x.size))
        done = descend_on_gram(reg, x, g, curvature, matrix, enough, n_updates)
        n_steps += done
        if done < n_updates:
            break
        jump(reg, x, g, matrix)
    return n_steps
