"""The data matrix X as a set of lines: its columns for coordinate descent, its rows for SGD.

This is the only module that knows dense from sparse. :meth:`Design.of` is the one door through which data enters.
Behind it stand two layouts, :class:`Dense` and :class:`Sparse`, of a set of *lines*: vectors a_0, a_1, ... of one
length. A kernel is handed ``design.columns`` or ``design.rows`` and works through the generics below, whatever the
layout.

The values keep the precision of the data, float32 or float64. Every other vector, and every sum, is float64.
"""

# mypy: allow-untyped-defs
# (Numba wants a registered implementation to have the signature of its generic's template, which has no annotations.)

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from surestep._jit import VECTORIZE, generic, jit

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Dense(NamedTuple):
    """Lines stored in full, a row of ``values`` each (C-contiguous)."""

    values: Array


class Sparse(NamedTuple):
    """Lines stored by their entries: line j has ``values[starts[j]:starts[j + 1]]`` at the positions ``indices[...]``.

    Positions rise strictly within a line. ``indices`` (uint32 or uint64) and ``starts`` (uint64) are unsigned, because
    Numba tests every signed index for being negative, which made these loops 2.4 times slower. ``length`` is the
    length of a line, zeros included.
    """

    values: Array
    indices: Array
    starts: Array
    length: int


class WithIntercept(NamedTuple):
    """Columns followed by one more, all ones, which is not stored: the column of an intercept.

    A call on a wrapped column costs about 17 ns more than on the column itself (measured).
    """

    lines: Dense | Sparse
    length: int


Lines: TypeAlias = Dense | Sparse | WithIntercept


@generic
def n_lines(lines: Any) -> Any:
    """Count the lines."""


@generic
def dot(lines: Any, j: Any, v: Any) -> Any:
    """Inner product <a_j, v>, in float64."""


@generic
def add(lines: Any, j: Any, scale: Any, out: Any) -> Any:
    """Add a multiple of a line in place: out += scale * a_j."""


@generic
def squared_norm(lines: Any, j: Any, weights: Any) -> Any:
    """Weighted squared norm sum_i weights_i a_ij^2 of line j."""


@generic
def n_entries(lines: Any, j: Any) -> Any:
    """Count the stored entries of line j, as an unsigned number."""


@generic
def entry(lines: Any, j: Any, k: Any) -> Any:
    """Position (uint64) and value (float64) of the k-th stored entry of line j, 0 <= k < n_entries(lines, j).

    For a kernel that does something of its own with each entry, in one walk: ``for k in range(n_entries(lines, j))``.
    """


# --- Dense lines


@n_lines.register(Dense)
def _(lines):
    return lines.values.shape[0]


@dot.register(Dense)
def _(lines, j, v):
    return _dense_dot(lines.values[j], v)


@jit(fastmath=VECTORIZE)
def _dense_dot(a: Any, v: Any) -> Any:
    total = 0.0
    for i in range(a.size):
        total += a[i] * v[i]
    return total


@add.register(Dense)
def _(lines, j, scale, out):
    a = lines.values[j]
    for i in range(a.size):
        out[i] += scale * a[i]


@squared_norm.register(Dense)
def _(lines, j, weights):
    a = lines.values[j]
    total = 0.0
    for i in range(a.size):
        total += weights[i] * a[i] * a[i]  # in this order a weight of zero silences even a huge entry
    return total


@n_entries.register(Dense)
def _(lines, j):
    return np.uint64(lines.values.shape[1])


@entry.register(Dense)
def _(lines, j, k):
    return np.uint64(k), np.float64(lines.values[j, k])


# --- Sparse lines


@n_lines.register(Sparse)
def _(lines):
    return lines.starts.size - 1


@dot.register(Sparse)
def _(lines, j, v):
    total = 0.0  # summed in order: vectorised gathers are three times slower on short lines
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        total += lines.values[k] * v[lines.indices[k]]
    return total


@add.register(Sparse)
def _(lines, j, scale, out):
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        out[lines.indices[k]] += scale * lines.values[k]


@squared_norm.register(Sparse)
def _(lines, j, weights):
    total = 0.0
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        total += weights[lines.indices[k]] * lines.values[k] * lines.values[k]
    return total


@n_entries.register(Sparse)
def _(lines, j):
    return lines.starts[np.int64(j) + 1] - lines.starts[j]


@entry.register(Sparse)
def _(lines, j, k):
    place = lines.starts[j] + np.uint64(k)  # both unsigned: uint64 + int64 would be a float
    return np.uint64(lines.indices[place]), np.float64(lines.values[place])


# --- Columns and a column of ones


@n_lines.register(WithIntercept)
def _(lines):
    return n_lines(lines.lines) + 1


@dot.register(WithIntercept)
def _(lines, j, v):
    if j < n_lines(lines.lines):
        return dot(lines.lines, j, v)
    return _sum(v)


@jit(fastmath=VECTORIZE)
def _sum(v: Any) -> Any:
    total = 0.0
    for i in range(v.size):
        total += v[i]
    return total


@add.register(WithIntercept)
def _(lines, j, scale, out):
    if j < n_lines(lines.lines):
        add(lines.lines, j, scale, out)
    else:
        for i in range(lines.length):
            out[i] += scale


@squared_norm.register(WithIntercept)
def _(lines, j, weights):
    if j < n_lines(lines.lines):
        return squared_norm(lines.lines, j, weights)
    return _sum(weights)


@n_entries.register(WithIntercept)
def _(lines, j):
    if j < n_lines(lines.lines):
        return n_entries(lines.lines, j)
    return np.uint64(lines.length)


@entry.register(WithIntercept)
def _(lines, j, k):
    if j < n_lines(lines.lines):
        return entry(lines.lines, j, k)
    return np.uint64(k), 1.0


# --- The whole matrix


@jit
def transposed_product(lines: Any, v: Any, out: Any) -> None:
    """Inner products of v with all lines: out_j = <a_j, v>."""
    for j in range(n_lines(lines)):
        out[j] = dot(lines, j, v)


@jit
def product(lines: Any, x: Any, out: Any) -> None:
    """Combine the lines: out = sum_j x_j a_j. Lines with x_j = 0 cost nothing."""
    out[:] = 0.0
    for j in range(n_lines(lines)):
        if x[j] != 0.0:
            add(lines, j, x[j], out)


@jit
def _any_negative(values: Any) -> bool:
    """Whether one is; where there are any it is mostly an early one that tells."""
    for value in values:  # noqa: SIM110  Numba has no generator expressions
        if value < 0.0:
            return True
    return False


@dataclass(frozen=True, eq=False)
class Design:
    """The matrix X of shape (n_samples, n_features), read-only; made by :meth:`Design.of`.

    It holds X once, in the layout it came in, and makes the other layout when it is first asked for. Its arrays are
    read-only views, which also keeps kernels to one compiled version whether or not the user's arrays are writable.
    """

    _lines: Dense | Sparse
    _by_column: bool

    @classmethod
    def of(cls, X: Any) -> Design:
        """Check X and take it in, without a copy where its layout allows.

        Parameters
        ----------
        X : array-like or sparse, shape (n_samples, n_features)
            Real numbers, all finite. float32 and float64 are kept, other kinds become float64. What NumPy can turn into
            an array is taken, and every SciPy sparse format; a `Design` is returned as it is. X is never modified:
            duplicate entries are summed, and indices sorted, on a copy.

        Raises
        ------
        ValueError
            If X is not two-dimensional, is empty, is not real, or holds NaN or an infinity.
        """
        if isinstance(X, Design):
            return X
        sparse = scipy.sparse.issparse(X)
        if not sparse:
            try:
                X = np.asarray(X)
            except ValueError as error:
                raise ValueError(f"X cannot be made an array: {error}") from error
        if X.ndim != 2:
            raise ValueError(f"X must be two-dimensional, (n_samples, n_features), but has shape {X.shape}")
        if 0 in X.shape:
            raise ValueError(f"X must have at least one row and one column, but has shape {X.shape}")
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must hold real numbers, but has dtype {X.dtype}; convert it, or encode its columns")
        design = cls(*(_of_sparse(X) if sparse else _of_dense(X)))
        design._check_finite()
        return design

    @cached_property
    def columns(self) -> Dense | Sparse:
        """The columns of X as lines of length n_samples."""
        return self._lines if self._by_column else _transposed(self._lines)

    @cached_property
    def rows(self) -> Dense | Sparse:
        """The rows of X as lines of length n_features."""
        return _transposed(self._lines) if self._by_column else self._lines

    @property
    def has_rows(self) -> bool:
        """Whether the rows are there, and need not be made."""
        return not self._by_column or "rows" in vars(self)

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no entry is negative: then the columns have no negative inner products."""
        return not _any_negative(self._lines.values.ravel())

    @cached_property
    def row_lengths(self) -> Array:
        """Number of stored entries of every row."""
        if isinstance(self._lines, Dense):
            return np.full(self.n_samples, self.n_features)
        if self._by_column:
            return np.bincount(self._lines.indices, minlength=self.n_samples)
        return np.diff(self._lines.starts).astype(np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """n_samples and n_features."""
        if isinstance(self._lines, Dense):
            n, length = self._lines.values.shape
        else:
            n, length = self._lines.starts.size - 1, self._lines.length
        return (length, n) if self._by_column else (n, length)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored values, float32 or float64."""
        return self._lines.values.dtype

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return self._lines.values.size

    @property
    def is_sparse(self) -> bool:
        """Whether only some entries are stored."""
        return isinstance(self._lines, Sparse)

    def __repr__(self) -> str:
        kind = f"sparse with {self.nnz} entries" if self.is_sparse else "dense"
        return f"<Design {self.n_samples} x {self.n_features}, {kind}, {self.dtype}>"

    def _check_finite(self) -> None:
        values = self._lines.values
        # A NaN or an infinity shows in one of these two, and no array as large as X is made.
        if np.isfinite(np.min(values, initial=0.0)) and np.isfinite(np.max(values, initial=0.0)):
            return
        at = np.flatnonzero(~np.isfinite(values))[0]
        if isinstance(self._lines, Dense):
            line, position = np.unravel_index(at, values.shape)
        else:
            line, position = np.searchsorted(self._lines.starts, at, side="right") - 1, self._lines.indices[at]
        row, column = (position, line) if self._by_column else (line, position)
        raise ValueError(
            f"X has the value {values.flat[at]} in row {row}, column {column}; all values must be finite: "
            "drop such rows or fill in such values"
        )


def _of_dense(X: Array) -> tuple[Dense, bool]:
    X = X.astype(_float_type(X.dtype), copy=False)
    by_column = not X.flags.c_contiguous
    return Dense(_readonly(np.require(X.T if by_column else X, requirements=["C", "A"]))), by_column


def _of_sparse(X: Any) -> tuple[Sparse, bool]:
    by_column = X.format != "csr"
    kind = scipy.sparse.csc_array if by_column else scipy.sparse.csr_array
    X = kind(X)  # a new object around the same arrays: SciPy notes on an object what it finds out about it
    try:
        X.check_format(full_check=True)  # kernels trust the indices
    except ValueError as error:
        raise ValueError(f"X is not a valid sparse matrix: {error}") from error
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return _lines_of(X.astype(_float_type(X.dtype), copy=False)), by_column


def _float_type(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64


def _lines_of(X: Any) -> Sparse:
    """Compressed lines of a csc_array (its columns) or a csr_array (its rows)."""
    unsigned = np.uint32 if X.indices.dtype.itemsize == 4 else np.uint64
    length = X.shape[0] if X.format == "csc" else X.shape[1]
    return Sparse(
        _readonly(X.data), _readonly(X.indices.view(unsigned)), _readonly(X.indptr.astype(np.uint64)), int(length)
    )


def _transposed(lines: Dense | Sparse) -> Dense | Sparse:
    """Lines of the other kind: from columns to rows or back. The copy is the second layout in memory."""
    if isinstance(lines, Dense):
        return Dense(_readonly(np.ascontiguousarray(lines.values.T)))
    signed = np.int32 if lines.indices.dtype == np.uint32 else np.int64
    arrays = lines.values, lines.indices.view(signed), lines.starts.astype(signed)
    rows = scipy.sparse.csr_array(arrays, shape=(lines.starts.size - 1, lines.length))
    return _lines_of(rows.tocsc())


def lines_between(lines: Dense | Sparse, begin: int, end: int) -> Dense | Sparse:
    """Return the lines begin, ..., end - 1 as a set of their own. Values and positions are not copied."""
    if isinstance(lines, Dense):
        return Dense(lines.values[begin:end])
    starts = lines.starts[begin : end + 1]
    entries = slice(int(starts[0]), int(starts[-1]))
    return Sparse(lines.values[entries], lines.indices[entries], _readonly(starts - starts[0]), lines.length)


def _readonly(array: Array) -> Array:
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view
