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
from surestep.design import Dense, Lines, WithIntercept, entry, n_entries
from surestep.regularizers import Separable, gradient_step

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Coordinates whose step gains at least this part of the most that one can gain are stepped on in one sweep.
_NEARLY_BEST = 0.1


# What makes a direct solve possible where columns depend on each other, as a part of the diagonal; and the parts of its
# step that are tried.
_RIDGE, _PARTS = 1e-11, (1.0, 0.25, 0.0625, 0.015625)

# Samples that a product of dense columns takes at a time.
_SAMPLES = 8192

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
    """Where the penalty of some coordinates is smooth: on the side of zero where they are, within their bounds."""

    low: Array
    high: Array

    @classmethod
    def of(cls, reg: Separable, x: Array, places: Integers) -> Orthant:
        """Return the one around x."""
        at, kink = x[places], reg.l1[places] > 0.0
        low, high = reg.lower[places], reg.upper[places]
        return cls(
            np.where((at > 0.0) & kink, np.maximum(low, 0.0), low),
            np.where((at < 0.0) & kink, np.minimum(high, 0.0), high),
        )

    def clipped(self, x: Array) -> Array:
        """Return the nearest point within."""
        return np.clip(x, self.low, self.high)

    def room(self, x: Array, step: Array) -> float:
        """How much of a step stays within, at most 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rooms = np.where(step > 0.0, (self.high - x) / step, np.where(step < 0.0, (self.low - x) / step, np.inf))
        return float(min(1.0, np.min(rooms, initial=np.inf)))


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

    def extend(self, new: Integers, later: bool = False) -> None:
        """Let more coordinates be members of W; ``later``: their lines are left to `renew`."""
        first, self._n = self._n, self._n + new.size
        if self._n > self._store.shape[0]:
            store = np.zeros((2 * self._n, 2 * self._n))
            store[:first, :first] = self._store[:first, :first]
            self._store = store
        self._source.join(new)
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
            out += self._multiplied(first)
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

    def _multiplied(self, first: int) -> Array:
        """Lines of G from ``first`` on, by BLAS, some samples at a time to save memory; of all, what is on one side."""
        n = self._members.size
        lines = np.zeros((n, n - first), order="F")
        for begin in range(0, self._n_samples, _SAMPLES):
            part = slice(begin, begin + _SAMPLES)
            every = self._gather(self._members, part)
            new = every[first:]
            if first > 0:
                lines += every @ new.T
            else:  # half of a symmetric matrix
                lines = scipy.linalg.blas.dsyrk(1.0, new.T, beta=1.0, c=lines, trans=1, lower=1, overwrite_c=1)
        return lines.T if first > 0 else np.tril(lines)


def pays(columns: Lines, n_samples: int, members: Integers) -> bool:
    """Whether W is better worked on by its Gram matrix than by its columns.

    Counted in nanoseconds (measured): the products of entries, and thirty updates of all gradient entries for each
    member; against reading the columns 350 times, in calls that take some time even if there is nothing to do.
    """
    inner = columns.lines if isinstance(columns, WithIntercept) else columns
    n = members.size
    if isinstance(inner, Dense):
        products, n_entries, per_product, per_entry = 0.5 * n * n * n_samples, n * n_samples, 0.07, 0.25
    else:
        counts = np.zeros(n_samples + 1, np.uint64)
        _count(columns, members, counts)
        per_row = counts.astype(float)
        products, n_entries, per_product, per_entry = 0.5 * per_row @ per_row, per_row.sum(), 1.5, 1.0
    per_update = 0.4 * n if n < 1500 else 0.9 * n  # within the cache, or not
    return bool(per_product * products + 30 * n * per_update < 350 * per_entry * n_entries + 5e6)


class Price(NamedTuple):
    """Nanoseconds (measured) of work on a working set: steps by its columns, and its Gram matrix with direct solves."""

    step: float
    entries: float
    products: float
    size: int

    @classmethod
    def of(cls, columns: Lines, n_samples: int, members: Integers) -> Price:
        """Return that of W; a step reads a column twice."""
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        n = members.size
        if isinstance(inner, Dense):
            return cls(0.5 * n_samples + 50.0, 2.0 * n * n_samples, 0.07 * n * n * n_samples, n)
        counts = np.zeros(n_samples + 1, np.uint64)
        _count(columns, members, counts)
        per_row = counts.astype(float)
        n_entries = float(per_row.sum())
        return cls(3.0 * n_entries / n + 50.0, 50.0 * n_entries, 1.5 * float(per_row @ per_row), n)

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


def jump(reg: Separable, x: Array, g: Array, matrix: Array) -> None:
    """Minimise over the coordinates that are not zero, as if their signs were given, by a direct solve.

    Goes there, but for coordinates that would change their sign or leave their bounds: they stop at zero, or at the
    bound. Of parts of this step, down to as far as the first coordinate can go, which always lowers the model, the one
    that lowers it most. Where columns depend on each other the model has a valley, and the step is a long way down it.
    """
    free = np.flatnonzero((x > reg.lower) & (x < reg.upper) & (x != 0.0))
    block = matrix[np.ix_(free, free)]
    block[np.diag_indices(free.size)] += reg.l2[free]
    lifted = block.copy()
    lifted[np.diag_indices(free.size)] *= 1.0 + _RIDGE
    try:
        factor = scipy.linalg.cho_factor(lifted, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:  # columns that are zero
        return
    at, orthant = x[free], Orthant.of(reg, x, free)
    c = g[free] + reg.l2[free] * at + reg.l1[free] * np.sign(at)
    step = -scipy.linalg.cho_solve(factor, c, check_finite=False)
    if not np.isfinite(step).all():
        return
    room, best, lowest = orthant.room(at, step), 0.0, 0.0
    for t in (*(part for part in _PARTS if part > room), room):
        change = orthant.clipped(at + t * step) - at
        value = float(change @ (c + 0.5 * (block @ change)))
        if value < lowest:
            best, lowest = t, value
    x[free] = orthant.clipped(at + best * step)
    everywhere = np.zeros_like(x)
    everywhere[free] = x[free] - at
    g += matrix @ everywhere
