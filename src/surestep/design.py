"""The data matrix X: its columns for coordinate descent, its rows for SGD and for the dual.

:meth:`Design.of` is the one door through which data enters. Behind it X is a set of :mod:`surestep.lines`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from surestep.lines import (
    Dense,
    Sparse,
    any_negative,
    are_alike,
    count_indices,
    is_sound,
    line_squares,
    product,
    squared_norms,
    sums_of_squares,
    transposed_product,
)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


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
    def has_columns(self) -> bool:
        """Whether the columns are there, and need not be made."""
        return self._by_column or "columns" in vars(self)

    @property
    def has_rows(self) -> bool:
        """Whether the rows are there, and need not be made."""
        return not self._by_column or "rows" in vars(self)

    def columns_on(self, rows: Array) -> Dense | Sparse:
        """Return the columns of some rows, made from these; dense ones in the layout of the rows."""
        lines = self.rows
        if isinstance(lines, Dense):
            return Dense(lines.values[rows].T)
        return _lines_of(_matrix_of(lines)[rows].tocsc())

    # --- Sums over all entries, by the layout that is there

    def times(self, x: Array) -> Array:
        """X x."""
        out = np.empty(self.n_samples)
        if self.has_columns:
            product(self.columns, x, out)
        else:
            transposed_product(self.rows, x, out)
        return out

    def transposed_times(self, v: Array) -> Array:
        """X^T v."""
        out = np.empty(self.n_features)
        if self.has_columns:
            transposed_product(self.columns, v, out)
        else:
            product(self.rows, v, out)
        return out

    def squared_norms(self, weights: Array) -> Array:
        """sum_i weights_i a_ij^2 for every column."""
        if self.has_column_squares and are_alike(weights):
            return np.asarray(weights[0] * self._line_squares)
        out = np.empty(self.n_features)
        if self.has_columns:
            squared_norms(self.columns, weights, out)
        else:
            sums_of_squares(self.rows, weights, out)
        return out

    @property
    def has_column_squares(self) -> bool:
        """Whether the columns' sums of squares are known, and need not be found in passing."""
        return self._by_column and not self.is_sparse

    @cached_property
    def _line_squares(self) -> Array:
        """Sums of squares of the lines that are there."""
        out = np.empty(self.n_features if self._by_column else self.n_samples)
        line_squares(self._lines, out)
        return out

    @cached_property
    def row_squares(self) -> Array:
        """sum_j a_ij^2 for every row."""
        if not self._by_column:
            return self._line_squares
        out = np.empty(self.n_samples)
        sums_of_squares(self.columns, np.ones(self.n_features), out)
        return out

    @cached_property
    def nonnegative(self) -> bool:
        """Whether no entry is negative: then the columns have no negative inner products."""
        return not any_negative(self._lines.values.ravel())

    @cached_property
    def row_lengths(self) -> Array:
        """Number of stored entries of every row."""
        return self._lengths(self.n_samples, across=self._by_column)

    @cached_property
    def column_lengths(self) -> Array:
        """Number of stored entries of every column."""
        return self._lengths(self.n_features, across=not self._by_column)

    def _lengths(self, n: int, across: bool) -> Array:
        if isinstance(self._lines, Dense):
            return np.full(n, self._lines.values.size // n)
        if across:
            return np.asarray(count_indices(self._lines.indices, n))
        return np.diff(self._lines.starts).view(np.int64)

    @cached_property
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
        # A NaN or an infinity shows in a sum, and no array as large as X is made. If only the sum is too large, it
        # shows in neither of the other two. Squares of lines that are not short, which will be asked for, are summed as
        # fast.
        short = self.is_sparse and self._by_column
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(values if short else self._line_squares)):
                return
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
    return Dense(readonly(np.require(X.T if by_column else X, requirements=["C", "A"]))), by_column


def _of_sparse(X: Any) -> tuple[Sparse, bool]:
    by_column = X.format != "csr"
    kind = scipy.sparse.csc_array if by_column else scipy.sparse.csr_array
    X = kind(X)  # a new object around the same arrays: SciPy notes on an object what it finds out about it
    lines = _lines_of(X.astype(_float_type(X.dtype), copy=False))
    if not is_sound(lines):  # kernels trust the indices
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"X is not a valid sparse matrix: {error}") from error
        X = X.copy()
        X.sum_duplicates()
        lines = _lines_of(X.astype(_float_type(X.dtype), copy=False))
    return lines, by_column


def _float_type(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64


def _lines_of(X: Any) -> Sparse:
    """Compressed lines of a csc_array (its columns) or a csr_array (its rows)."""
    unsigned = np.uint32 if X.indices.dtype.itemsize == 4 else np.uint64
    length = X.shape[0] if X.format == "csc" else X.shape[1]
    return Sparse(
        readonly(X.data), readonly(X.indices.view(unsigned)), readonly(X.indptr.astype(np.uint64)), int(length)
    )


def _transposed(lines: Dense | Sparse) -> Dense | Sparse:
    """Lines of the other kind: from columns to rows or back. The copy is the second layout in memory."""
    if isinstance(lines, Dense):
        return Dense(readonly(np.ascontiguousarray(lines.values.T)))
    return _lines_of(_matrix_of(lines).tocsc())


def _matrix_of(lines: Sparse) -> Any:
    """Return a matrix whose rows are these lines."""
    signed = np.int32 if lines.indices.dtype == np.uint32 else np.int64
    arrays = lines.values, lines.indices.view(signed), lines.starts.astype(signed)
    return scipy.sparse.csr_array(arrays, shape=(lines.starts.size - 1, lines.length))


def lines_between(lines: Dense | Sparse, begin: int, end: int) -> Dense | Sparse:
    """Return the lines begin, ..., end - 1 as a set of their own. Values and positions are not copied."""
    if isinstance(lines, Dense):
        return Dense(lines.values[begin:end])
    starts = lines.starts[begin : end + 1]
    entries = slice(int(starts[0]), int(starts[-1]))
    return Sparse(lines.values[entries], lines.indices[entries], readonly(starts - starts[0]), lines.length)


def readonly(array: Array) -> Array:
    """Return a view that cannot be written to."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view
