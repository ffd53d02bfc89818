"""Copies of the columns of a working set W, next to each other, where they are read again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import VECTORIZE, jit
from surestep.lines import Dense, Sparse, entry, n_entries

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Numbers between this and its inverse have squares in single precision, and sums of these.
_LARGE = 1e15


@jit
def _copy_entries(columns: Any, members: Integers, places: Any, values: Any) -> None:
    """Write the entries of some columns one after the other, and where they are."""
    at = 0
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            places[at], values[at] = entry(columns, members[t], k)
            at += 1


class Copy:
    """The columns of W next to each other, as columns of their own; extended as members join W.

    All columns together have ``n_entries``.
    """

    def __init__(self, columns: Sparse, n_entries: int) -> None:
        self._columns, self._n_entries = columns, n_entries
        self._values, self._places = np.empty(0, columns.values.dtype), np.empty(0, columns.indices.dtype)
        self._starts = np.zeros(1, np.uint64)

    def of(self, members: Integers) -> Sparse:
        """Return the columns of these members, those of the last time first."""
        new, begin = members[self._starts.size - 1 :], int(self._starts[-1])
        lengths = self._columns.starts[new + 1] - self._columns.starts[new]
        self._starts = np.concatenate([self._starts, self._starts[-1] + np.cumsum(lengths)])
        end = int(self._starts[-1])
        if end > self._values.size:
            room = min(2 * end, self._n_entries)
            self._values, self._places = _extended(self._values[:begin], room), _extended(self._places[:begin], room)
        _copy_entries(self._columns, new, self._places[begin:], self._values[begin:])
        found = self._values[:end], self._places[:end], self._starts[:]
        for array in found:
            array.flags.writeable = False  # as those of a design: one compiled version of what reads them
        return Sparse(*found, self._columns.length)


class DenseCopy:
    """Dense columns of W next to each other, on some ``rows`` or all, in single precision if they fit.

    Extended as members join W. ``fits``: whether none of them, nor of their products, overflows or vanishes in single
    precision. A member beyond the columns is the intercept, whose column has ones. Where they are ``centred``, their
    means, which are taken off, are ``means``: rounding shows next to nothing of columns that are far from zero.
    """

    def __init__(self, columns: Dense, rows: Integers | None = None, centred: bool = False) -> None:
        self._columns, self._n, self.fits = columns.values, 0, True
        self.centred, self.means = centred, np.empty(0)
        self._rows = np.empty(0, np.int64) if rows is None else rows
        self._length = columns.values.shape[1] if rows is None else rows.size
        self._values: Any = np.empty((0, self._length), np.float32)

    def of(self, members: Integers) -> Dense:
        """Return the columns of these members, those of the last time first."""
        n, means = members.size, np.zeros(members.size)
        means[: self._n] = self.means
        self._make_room(n)
        self.fits &= self._copy(members[self._n :], means[self._n :], self._values[self._n : n])
        if not self.fits and self._values.dtype != self._columns.dtype:
            self._values, self._n = np.empty((0, self._length)), 0
            self._make_room(n)
            self._copy(members, means, self._values[:n])
        self._n, self.means = n, means
        found = self._values[:n]
        found.flags.writeable = False  # as those of a design: one compiled version of what reads them
        return Dense(found)

    def _make_room(self, n: int) -> None:
        if n > self._values.shape[0]:
            self._values = _extended(self._values[: self._n], min(2 * n, self._columns.shape[0] + 1))

    def _copy(self, members: Integers, means: Array, out: Any) -> bool:
        if self.centred:
            _find_means(self._columns, members, self._rows, means)
        return bool(_copy_dense(self._columns, members, self._rows, means, out))


class Gathered:
    """Dense columns of W next to each other, as they are; extended as members join W.

    A member beyond the columns is the intercept, whose column has ones.
    """

    fits = centred = False  # see `DenseCopy`

    def __init__(self, columns: Dense) -> None:
        self._columns, self._n = columns.values, 0
        self._values = np.empty((0, columns.values.shape[1]))

    def of(self, members: Integers) -> Dense:
        """Return the columns of these members, those of the last time first."""
        n, new = members.size, members[self._n :]
        if n > self._values.shape[0]:
            self._values = _extended(self._values[: self._n], min(2 * n, self._columns.shape[0] + 1))
        is_column = new < self._columns.shape[0]
        joining = self._values[self._n : n]
        joining[is_column], joining[~is_column] = self._columns[new[is_column]], 1.0
        self._n = n
        return Dense(self._values[:n])


@jit(fastmath=VECTORIZE)
def _find_means(columns: Any, members: Integers, rows: Integers, means: Array) -> None:
    """Compute the means of some columns, of these ``rows`` if there are any; not of the intercept."""
    n = rows.size if rows.size > 0 else columns.shape[1]
    for t in range(members.size):
        if members[t] < columns.shape[0]:
            line, total = columns[members[t]], 0.0
            for i in range(n):
                total += line[rows[i]] if rows.size > 0 else line[i]
            means[t] = total / n


@jit
def _copy_dense(columns: Any, members: Integers, rows: Integers, means: Array, out: Any) -> bool:
    """Copy some columns less their means, in the precision of ``out``; return whether all fit single precision.

    Where there are ``rows``, only these.
    """
    fit, some = True, rows.size > 0
    for t in range(members.size):
        if members[t] == columns.shape[0]:
            out[t] = 1.0
            continue
        line, to, mean = columns[members[t]], out[t], means[t]
        n_large = n_small = n_zero = 0
        for i in range(to.size):
            value = (line[rows[i]] if some else line[i]) - mean
            size = abs(value)
            n_large += size >= _LARGE
            n_small += size <= 1.0 / _LARGE
            n_zero += size == 0.0
            to[i] = value
        fit = fit and n_large == 0 and (n_small < to.size or n_zero == to.size)
    return fit


def _extended(array: Any, size: int) -> Any:
    out = np.empty((size, *array.shape[1:]), array.dtype)
    out[: array.shape[0]] = array
    return out
