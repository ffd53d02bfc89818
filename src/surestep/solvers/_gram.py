"""Quadratic models on a working set W with all their gradient entries kept exact, by the Gram matrix of W.

    q(x) = <g, x - x0> + (x - x0)^T G (x - x0) / 2 + psi(x),     G = A_W^T diag(d) A_W

A step on coordinate k adds a multiple of row k of G to the gradient: |W| contiguous numbers, whatever the length of the
column. New members of W extend G; no product is computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from surestep._jit import VECTORIZE, jit
from surestep.design import Dense, Lines, Sparse, WithIntercept, entry, n_entries
from surestep.regularizers import Separable, gradient_step

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates whose step gains at least this part of the most that one can gain are stepped on in one sweep.
_NEARLY_BEST = 0.1


# Ridge of a direct solve, as a part of the diagonal.
_RIDGE = 1e-10

# Samples that a product of dense columns takes at a time, at least; entries of all columns that it aims at.
_FEWEST_SAMPLES, CACHED = 256, 2**18

# A line of G with so many entries and its gradient stay in the first-level cache.
_LINE = 1500

# Entries of rows that stay in the second-level cache.
_CACHE = np.uint64(30_000)


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
def _add_products(
    columns: Any,
    rows: Rows,
    weights: Array,
    members: Integers,
    first: int,
    at: NDArray[np.uint64],
    lines: Array,
) -> None:
    """Add products to the lines of G from ``first`` on, below the diagonal; their entries begin at ``at`` in each row.

    Some rows of A at a time, as many as stay in the cache; for these, line by line of G, entry by entry of its column,
    along the row of that entry: writes go to one line, reads are in order.
    """
    n_rows = np.uint64(at.size)
    next_entry = np.zeros(members.size, np.uint64)
    begin = np.uint64(0)
    while begin < n_rows:
        end = begin + np.uint64(1)
        while end < n_rows and rows.starts[end + np.uint64(1)] - rows.starts[begin] <= _CACHE:
            end += np.uint64(1)
        for p in range(first, members.size):
            line, k, n = lines[p - first], next_entry[p], n_entries(columns, members[p])
            while k < n:
                i, value = entry(columns, members[p], k)
                if i >= end:
                    break
                k += np.uint64(1)
                at[i] += np.uint64(1)
                scaled = weights[i] * value
                for m in range(rows.starts[i], at[i]):
                    line[rows.places[m]] += scaled * rows.values[m]
            next_entry[p] = k
        begin = end


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
    places = np.flatnonzero((x > reg.lower) & (x < reg.upper) & (x != 0.0))
    n = places.size
    here, low, high, slope, l2 = x[places], reg.lower[places], reg.upper[places], np.empty(n), reg.l2[places]
    for t in range(n):
        l1 = reg.l1[places[t]]
        slope[t] = l2[t] * here[t] + (l1 if here[t] > 0.0 else -l1)
        if l1 > 0.0 and here[t] > 0.0:
            low[t] = max(low[t], 0.0)
        elif l1 > 0.0:
            high[t] = min(high[t], 0.0)
    return Orthant(places, here, low, high, slope, l2)


class Source(Protocol):
    """Where the lines of a Gram matrix come from."""

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""

    def add_lines(self, first: int, out: Array) -> None:
        """Add the lines of G from ``first`` on to ``out``; those since the last time members joined, or all."""


class Gram:
    """The matrix G = A_W^T diag(d) A_W, extended as members join W.

    Attributes
    ----------
    matrix : array of shape (|W|, |W|), a view
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._n = 0
        self._store = np.zeros((0, 0))

    @property
    def matrix(self) -> Array:
        """G, a view."""
        return self._store[: self._n, : self._n]

    def extend(self, members: Integers, later: bool = False) -> None:
        """Let W grow to these members, the old ones first; ``later``: the lines of the new are left to `renew`."""
        first, self._n = self._n, members.size
        if first == self._n:
            return
        if self._n > self._store.shape[0]:
            store = np.zeros((2 * self._n, 2 * self._n))
            store[:first, :first] = self._store[:first, :first]
            self._store = store
        self._source.join(members[first:])
        if later:
            return
        matrix = self.matrix
        self._source.add_lines(first, matrix[first:])
        matrix[:first, first:] = matrix[first:, :first].T

    def renew(self) -> None:
        """Compute the matrix anew: the weights d have changed."""
        matrix = self.matrix
        matrix[:] = 0.0
        self._source.add_lines(0, matrix)


class Products:
    """The products that make a Gram matrix, of columns in one place; ``weights`` are d, which may be changed."""

    def __init__(self, columns: Lines, n_samples: int, weights: Array) -> None:
        self._columns, self._weights = columns, weights
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        self._dense = inner.values if isinstance(inner, Dense) else None
        self._n_samples = n_samples
        self._rows = Rows(np.zeros(n_samples + 1, np.uint64), np.empty(0, np.uint32), np.empty(0))
        self._begin = self._rows.starts[:-1]  # where, in each row, the newest members begin
        self._members = np.empty(0, np.int64)

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
        if self._dense is not None:
            # By BLAS, which takes half the time where both factors are the same; some samples at a time, in the cache.
            size = max(_FEWEST_SAMPLES, CACHED // self._members.size)
            for begin in range(0, self._n_samples, size):
                lines = self._gather(self._members, slice(begin, begin + size))
                out += lines[first:] @ lines.T
        else:
            at = (self._begin if first > 0 else self._rows.starts[:-1]).copy()
            _add_products(self._columns, self._rows, self._weights, self._members, first, at, out)
        mirror(out[:, first:])

    def _gather(self, members: Integers, part: slice) -> Array:
        """Return some samples of the columns of some members, times the roots of their weights."""
        assert self._dense is not None
        roots = np.sqrt(self._weights[part])
        is_column = members < self._dense.shape[0]
        if is_column.all():
            return np.asarray(self._dense[members, part] * roots)
        lines = np.empty((members.size, roots.size))
        lines[is_column] = self._dense[members[is_column], part]
        lines[~is_column] = 1.0  # the intercept
        lines *= roots
        return lines


def pays(columns: Lines, n_samples: int, members: Integers, growing: bool) -> bool:
    """Whether W is better worked on by its Gram matrix than by its columns.

    Counted in nanoseconds (measured): the products of entries, and ten updates of all gradient entries for each
    member; against reading the columns 350 times, in calls that take some time even if there is nothing to do. While W
    is ``growing`` it is solved roughly, which takes a tenth of that; most products would be of no use if in the end W
    is too large.
    """
    n_reads = 35 if growing else 350
    inner = columns.lines if isinstance(columns, WithIntercept) else columns
    n = members.size
    if isinstance(inner, Dense):
        products, n_entries, per_product, per_entry = 0.5 * n * n * n_samples, n * n_samples, 0.07, 0.25
    else:
        counts = np.zeros(n_samples + 1, np.uint64)
        _count(columns, members, counts)
        per_row = counts.astype(float)
        products, n_entries, per_entry = 0.5 * per_row @ per_row, per_row.sum(), 1.0
        per_product = 1.5 if n < _LINE else 4.0
    per_update = 0.4 * n if n < _LINE else 0.9 * n
    return bool(per_product * products + 10 * n * per_update < n_reads * per_entry * n_entries + 5e6)


class Price(NamedTuple):
    """Nanoseconds (measured) of work on a working set: steps by its columns, and its Gram matrix with direct solves."""

    step: float
    entries: float
    products: float
    size: int

    @classmethod
    def of(cls, columns: Dense | Sparse, n_samples: int) -> Price:
        """Return that of the columns of W; a step reads one of them twice."""
        n = columns.values.shape[0] if isinstance(columns, Dense) else columns.starts.size - 1
        if isinstance(columns, Dense):
            return cls(0.5 * n_samples + 50.0, 2.0 * n * n_samples, 0.07 * n * n * n_samples, n)
        per_row = np.bincount(columns.indices, minlength=n_samples).astype(float)
        n_entries = float(per_row.sum())
        return cls(2.0 * n_entries / n + 50.0, 50.0 * n_entries, 1.5 * float(per_row @ per_row), n)

    def of_gram(self, n: int) -> float:
        """Of a Gram matrix of so many members of W, and a direct solve."""
        part = n / self.size
        return part * self.entries + part**2 * self.products + 60.0 * n**2 + 0.05 * n**3


@jit
def mirror(matrix: Array) -> None:
    """Copy the part below the diagonal to the part above it."""
    for p in range(matrix.shape[0]):
        for q in range(p):
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
    n, times = at.size, np.full(at.size, np.inf)
    for k in range(n):
        if step[k] != 0.0:
            times[k] = ((high[k] if step[k] > 0.0 else low[k]) - at[k]) / step[k]
    order, direction, image, slopes, now = np.argsort(times), step.copy(), np.zeros(n), c.copy(), 0.0
    for k in range(n):
        _add_line(image, step[k], block[k])
    for stop in range(n + 1):
        slope = curvature = 0.0
        for k in range(n):
            slope += slopes[k] * direction[k]
            curvature += image[k] * direction[k]
        until = times[order[stop]] if stop < n else np.inf
        lowest = now - slope / curvature if curvature > 0.0 else np.inf
        if slope >= 0.0 or lowest <= until or until == np.inf:
            now = lowest if slope < 0.0 and lowest < np.inf else now
            break
        _add_line(slopes, until - now, image)
        j, now = order[stop], until
        _add_line(image, -step[j], block[j])
        direction[j] = 0.0
    out = np.empty(n)
    for k in range(n):
        end = high[k] if step[k] > 0.0 else low[k]
        out[k] = end if times[k] <= now else min(max(at[k] + now * step[k], low[k]), high[k])
    return out


def lowest_within(orthant: Orthant, block: Array, g: Array) -> Array | None:
    """Go to the minimiser of a model of some coordinates, given G and its gradient, as if their signs were given.

    Coordinates that would change their sign or leave their bounds on the way stop at zero, or at the bound; it ends
    where the model is lowest. None where the columns have no entries.
    """
    diagonal = np.einsum("ii->i", block)
    diagonal += orthant.l2
    matrix = block.T.copy(order="F")
    # Columns that depend on each other let a coordinate grow until others stop: a way down like any other.
    np.einsum("ii->i", matrix)[:] *= 1.0 + _RIDGE
    c = g + orthant.slope
    _, step, failed = scipy.linalg.lapack.dposv(matrix, -c, lower=1, overwrite_a=1)
    return None if failed or not np.isfinite(step).all() else np.asarray(_follow(orthant, block, c, step))


def jump(reg: Separable, x: Array, g: Array, matrix: Array) -> None:
    """Go towards the minimiser over the coordinates that are not zero, by a direct solve."""
    orthant = orthant_of(reg, x)
    places = orthant.places
    after = lowest_within(orthant, block_of(matrix, places), g[places])
    if after is not None:
        g += (after - orthant.x) @ matrix[places]
        x[places] = after
