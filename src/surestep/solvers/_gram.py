"""Gram matrices of a working set W: G = A_W^T diag(d) A_W. New members of W extend G; no product is computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.lines import Dense, Lines, Sparse, WithIntercept, add, transposed_product
from surestep.solvers._copies import DenseCopy, Gathered
from surestep.solvers._sparse_products import CACHED, Rows, add_by_columns, add_products, count_entries, fill

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Samples that a product of dense columns takes at a time, at least, and that make single precision worth while.
FEWEST_SAMPLES = 256

# So few sparse columns are multiplied with all of W as columns: to gather W by rows takes as long.
_FEW = 12

# Where fewer than this part of W join it, its dense columns are kept next to each other for the next ones that do.
_FEW_NEW = 4

# Parts in which products of sparse columns take the rows, at most, and rows in a part, at least.
_PARTS, _FEWEST_ROWS = 8, 1024

# Room at the ends of the lines of a Gram matrix for others, as this part of them.
_ROOM = 8

# Side of the tiles by which a matrix is mirrored.
_TILE = 32

# What rounding to single precision may take from the diagonal, as a part of it, is added: a matrix that nearly is not
# positive must not become one that is not.
_RIDGE = 1e-5


class Source(Protocol):
    """Where the lines of a Gram matrix come from."""

    def renew(self, lines: Array) -> bool:
        """Bring G up to date with the weights d; False if it is better to compute it anew."""

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""

    def add_lines(self, first: int, out: Array) -> None:
        """Add the lines of G from ``first`` on to ``out``; those since the last time members joined, or all.

        At least their part on and below the diagonal. Lines of ``out`` may be longer, with room at their ends.
        """


class Gram:
    """The matrix G = A_W^T diag(d) A_W, extended as members join W."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._n = 0
        # Lines of G one after the other, with some room at their ends; memory behind them is reserved, but not used.
        self._memory = np.empty(0)
        self._matrix = np.empty((0, 0))

    def of(self, members: Integers) -> Array:
        """Let W grow to these members, the old ones first; return G, a view, for the weights d as they are now.

        Its lines are there as they are in memory, with the room at their ends: kernels read what is contiguous in half
        the time.
        """
        first, n = self._n, members.size
        if not self._source.renew(self._matrix[:first]):
            first = 0
        if n > self._matrix.shape[0]:
            self._make_room(first, n)
        if n > self._n:
            self._source.join(members[self._n :])
            self._n = n
        if first < n:
            lines = self._matrix[first:n]
            lines[:, :n] = 0.0
            self._source.add_lines(first, lines)
            mirror(lines, first)
            self._matrix[:first, first:n] = lines[:, :first].T
        return self._matrix[:n]

    def _make_room(self, n_kept: int, n: int) -> None:
        """Make lines long enough for n members, keeping a part of G."""
        kept, side = self._matrix[:n_kept, :n_kept], n + n // _ROOM
        if side**2 > self._memory.size:
            self._memory = np.empty((2 * n) ** 2)
        self._matrix = self._memory[: side**2].reshape(side, side)
        _move(kept, self._matrix[:n_kept, :n_kept])


class Products:
    """The products that make a Gram matrix, of columns in one place; ``weights`` are d, which may be changed.

    Sparse columns of W are gathered by rows; these are kept for other weights where W has at most ``n_kept`` entries.
    Dense ones are multiplied in ``single`` precision where that will do: for models, whose steps are checked. They are
    copied for that, on some ``rows`` if these are given, whose weights are then d; else they are gathered each time,
    until few join and W has no more than half of all. Copies in single precision are centred where there is an
    intercept to take up the means.
    """

    def __init__(
        self,
        columns: Lines,
        n_samples: int,
        weights: Array,
        n_kept: int = 0,
        single: bool = False,
        rows: Integers | None = None,
    ) -> None:
        self._columns, self._weights, self._used = columns, weights, weights.copy()
        inner = columns.lines if isinstance(columns, WithIntercept) else columns
        self._dense = inner.values if isinstance(inner, Dense) else None
        self._n_samples = n_samples
        self._members = np.empty(0, np.int64)
        self._counts, self._n_new = np.zeros((2, n_samples), np.uint64)  # entries of W in each row; of the newest
        self._copy: DenseCopy | Gathered | None = None
        self._copied = np.empty((0, 0))
        if isinstance(inner, Dense) and (rows is not None or (single and n_samples >= FEWEST_SAMPLES)):
            self._copy = DenseCopy(inner, rows, centred=inner is not columns)
            self._copied = self._copy.of(self._members).values
        self._n_kept = n_kept
        self._kept: Rows | None = None

    def renew(self, lines: Array) -> bool:
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
            columns = self._gather(changed)
            found = (columns * change[changed].astype(columns.dtype)) @ columns.T
            if self._is_centred:
                found = found.astype(np.float64, copy=False)
                self._put_means_back(found, 0, change)
            lines[:, : found.shape[0]] += found
        else:
            self._add_by_rows(change, self._counts, 0, lines)
        mirror(lines, 0)
        return True

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W."""
        self._members = np.concatenate([self._members, new])
        if self._dense is None:
            self._n_new[:] = 0
            count_entries(self._columns, new, self._n_new)
            self._counts += self._n_new
            self._kept = None
            return
        if not isinstance(self._copy, DenseCopy):
            n, d = self._members.size, self._dense.shape[0]
            if 2 * n > d or self._dense.dtype != np.float64:
                self._copy, self._copied = None, np.empty((0, 0))
            elif self._copy is None and _FEW_NEW * new.size < n:
                self._copy = Gathered(Dense(self._dense))
        if self._copy is not None:
            self._copied = self._copy.of(self._members).values

    def add_lines(self, first: int, out: Array) -> None:
        """See `Source`."""
        if self._dense is not None:
            self._add_dense(first, out[:, : self._members.size])
        elif self._members.size - first <= _FEW:
            add_by_columns(self._columns, self._members, self._weights, first, out)
        else:
            self._add_by_rows(self._weights, self._n_new if first > 0 else self._counts, first, out)

    def _add_dense(self, first: int, out: Array) -> None:
        """Add products of dense columns by BLAS, which takes half the time where both factors are the same."""
        assert self._dense is not None
        if self._copy is None and first == 0 and self._is_nearly_whole and _is_constant(self._weights):
            out += self._weights[0] * block_of(self._dense @ self._dense.T, self._members)
            return
        if self._copy is None and self._is_most(first):
            new = self._dense[self._members[first:]] * self._weights
            out += (new @ self._dense.T)[:, self._members]
            return
        # Some samples at a time, in the cache, but where they are there as they are wanted.
        alike, size = _is_constant(self._weights), max(FEWEST_SAMPLES, CACHED // self._members.size)
        if alike and self._copy is not None:
            size = self._n_samples
        found = np.zeros_like(out) if self._is_centred else out
        for begin in range(0, self._n_samples, size):
            part = slice(begin, begin + size)
            lines = self._gather(part)
            new, weights = lines[first:], self._weights[part].astype(lines.dtype)
            if alike:
                found[:, :first] += weights[0] * (new @ lines[:first].T)
                found[:, first:] += weights[0] * (new @ new.T)
                continue
            if first > 0:
                found[:, :first] += (new * weights) @ lines[:first].T
            new = new * np.sqrt(weights)
            found[:, first:] += new @ new.T
        if self._copy is not None and self._copy.fits:
            found[:, first:][np.diag_indices(found.shape[0])] *= 1.0 + _RIDGE
        if self._is_centred:
            self._put_means_back(found, first, self._weights)
            out += found

    @property
    def _is_centred(self) -> bool:
        return self._copy is not None and self._copy.centred

    def _put_means_back(self, found: Array, first: int, weights: Array) -> None:
        """Make products of centred columns, those of the lines from ``first`` on, such of the columns as they are.

        With c their means, s the weighted sums of what was left of them, and D that of the weights,

            a_p^T diag(d) a_q = (a_p - c_p)^T diag(d) (a_q - c_q) + c_p s_q + s_p c_q + D c_p c_q .
        """
        assert self._dense is not None
        assert isinstance(self._copy, DenseCopy)
        sums, means = np.empty(self._members.size), self._copy.means
        transposed_product(Dense(self._copied), weights, sums)
        whole = sums + float(np.sum(weights)) * means
        found += np.outer(means[first:], whole) + np.outer(sums[first:], means)
        # The line of the intercept tells of the means again, and must say the same to the last digits.
        is_intercept = self._members == self._dense.shape[0]
        found[:, is_intercept] = whole[first:, None]
        found[is_intercept[first:]] = whole

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
            add_products(rows._replace(begin=rows.starts[1:] - n_new[part]), weights[part], first, out)

    def _rows(self, parts: list[slice], counts: NDArray[np.uint64]) -> Iterator[tuple[slice, Rows]]:
        """Gather sparse columns of W by rows, those with any ``counts``, each part in the place of the one before."""
        room = max(int(np.sum(counts[part])) for part in parts)
        places, values, cursors = np.empty(room, np.uint32), np.empty(room), np.zeros(self._members.size, np.uint64)
        for part in parts:
            starts = np.concatenate([[0], np.cumsum(counts[part])]).astype(np.uint64)
            rows = Rows(starts, starts[1:], places, values)
            fill(self._columns, self._members, part.start, cursors, rows)
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

    def _gather(self, part: Any) -> Any:
        """Return some samples of the columns of W, in the precision of their products."""
        assert self._dense is not None
        if self._copy is not None:
            found = self._copied[:, part]
            return found if self._copy.fits else found.astype(np.float64, copy=False)
        if self._is_whole:
            return np.asarray(self._dense[:, part])
        is_column = self._members < self._dense.shape[0]
        columns = self._members[is_column]
        found = self._dense[columns if isinstance(part, slice) else columns[:, None], part]
        found = found.astype(np.float64, copy=False)
        if is_column.all():
            return found
        lines = np.ones((self._members.size, found.shape[1]))  # one of them is that of the intercept
        lines[is_column] = found
        return lines


class WholeProducts:
    """The products of all columns of sparse data that are there by rows: neither columns nor rows of W are made.

    ``weights`` are d, which may be changed; the column of the ``intercept``, if there is one, is the last.
    """

    def __init__(self, rows: Sparse, weights: Array, intercept: bool) -> None:
        self._lines, self._weights, self._used, self._intercept = rows, weights, weights.copy(), intercept
        self._rows = Rows(rows.starts, rows.starts[:-1], rows.indices, rows.values)

    def renew(self, lines: Array) -> bool:
        """See `Products.renew`."""
        change = self._weights - self._used
        n_changed = np.count_nonzero(change)
        if n_changed == 0:
            return True
        self._used[:] = self._weights
        if 2 * n_changed > change.size:
            return False
        self._add(change, lines)
        mirror(lines, 0)
        return True

    def join(self, new: Integers) -> None:
        """Let all be members of W, in their order."""

    def add_lines(self, first: int, out: Array) -> None:
        """Add all of G to ``out``."""
        self._add(self._weights, out)

    def _add(self, weights: Array, out: Array) -> None:
        d = self._lines.length
        add_products(self._rows, weights, 0, out[:d])
        if self._intercept:
            _add_rows(self._lines, weights, out[d, : d + 1])


@jit
def _add_rows(rows: Any, weights: Array, out: Array) -> None:
    """Add sum_i weights_i a_i, and last the sum of the weights, which is that of a column of ones."""
    for i in range(weights.size):
        if weights[i] != 0.0:
            add(rows, i, weights[i], out)
            out[-1] += weights[i]


def _is_constant(weights: Array) -> bool:
    return bool(np.all(weights == weights[0]))


@jit
def _move(matrix: Array, to: Array) -> None:
    """Copy a matrix to where its lines may be in the same memory, farther apart: NumPy would make another for that."""
    for back in range(1, matrix.shape[0] + 1):
        line, there = matrix[matrix.shape[0] - back], to[matrix.shape[0] - back]
        for m in range(1, line.size + 1):
            there[line.size - m] = line[line.size - m]


@jit
def mirror(lines: Array, first: int) -> None:
    """Copy what lines from ``first`` on have below the diagonal to above it, tile by tile: columns are far apart."""
    for row in range(0, lines.shape[0], _TILE):
        for column in range(0, row + 1, _TILE):
            for p in range(row, min(row + _TILE, lines.shape[0])):
                for q in range(column, min(column + _TILE, p)):
                    lines[q, first + p] = lines[p, first + q]


@jit
def block_of(matrix: Array, places: Integers) -> Array:
    """Rows and columns of a matrix at some places."""
    block = np.empty((places.size, places.size))
    for p in range(places.size):
        line = matrix[places[p]]
        for q in range(places.size):
            block[p, q] = line[places[q]]
    return block
