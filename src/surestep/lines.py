"""Lines: vectors a_0, a_1, ... of one length, the columns or the rows of a matrix, in two layouts.

A kernel is handed :class:`Dense` or :class:`Sparse` lines, and works through the generics below, whatever the layout.

The values keep the precision of the data, float32 or float64. Every other vector, and every sum, is float64.
"""

# mypy: allow-untyped-defs
# (Numba wants a registered implementation to have the signature of its generic's template, which has no annotations.)

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from surestep._jit import VECTORIZE, generic, generic_of_lines, jit, lean

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Dense lines of so many entries are long.
_LONG = 256


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
    """Columns followed by one more, all ones, which is not stored: the column of an intercept."""

    lines: Dense | Sparse
    length: int


Lines: TypeAlias = Dense | Sparse | WithIntercept


@generic_of_lines
def n_lines(lines: Any) -> Any:
    """Count the lines."""


@generic_of_lines
def dot(lines: Any, j: Any, v: Any) -> Any:
    """Inner product <a_j, v>, in float64."""


@generic_of_lines
def dot_in_order(lines: Any, j: Any, v: Any) -> Any:
    """Return that product with the terms of a sparse line added one by one.

    As `add` does across lines: passes over the whole matrix come to the same bits by its rows and by its columns.
    """


@generic_of_lines
def add(lines: Any, j: Any, scale: Any, out: Any) -> Any:
    """Add a multiple of a line in place: out += scale * a_j."""


@generic_of_lines
def add_weighted(lines: Any, j: Any, scale: Any, weights: Any, out: Any) -> Any:
    """Add a multiple of a line in place, times weights: out_i += scale * weights_i * a_ij."""


@generic_of_lines
def squared_norm(lines: Any, j: Any, weights: Any) -> Any:
    """Weighted squared norm sum_i weights_i a_ij^2 of line j."""


@generic_of_lines
def sum_of_squares(lines: Any, j: Any) -> Any:
    """Squared norm sum_i a_ij^2 of line j."""


@generic_of_lines
def n_entries(lines: Any, j: Any) -> Any:
    """Count the stored entries of line j, as an unsigned number."""


@generic_of_lines
def entry(lines: Any, j: Any, k: Any) -> Any:
    """Position (uint64) and value (float64) of the k-th stored entry of line j, 0 <= k < n_entries(lines, j).

    For a kernel that does something of its own with each entry, in one walk: ``for k in range(n_entries(lines, j))``.
    """


@generic
def curved_by_fours(lines: Any, weights: Any, v: Any, shift: Any, out: Any) -> Any:
    """Do a part of `curved_product` four lines at a time; return the number of lines, and their part of the sum."""


# --- Dense lines


@n_lines.register(Dense)
def _(lines):
    return lines.values.shape[0]


@dot.register(Dense)
def _(lines, j, v):
    return dense_dot(lines.values[j], v)


@dot_in_order.register(Dense)
def _(lines, j, v):
    return dense_dot(lines.values[j], v)


@lean(fastmath=VECTORIZE)
def dense_dot(a: Any, v: Any) -> Any:
    """Inner product of two arrays, in float64."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * v[i]
    return total


@add.register(Dense)
def _(lines, j, scale, out):
    a = lines.values[j]
    for i in range(a.size):
        out[i] += scale * a[i]


@add_weighted.register(Dense)
def _(lines, j, scale, weights, out):
    a = lines.values[j]
    for i in range(a.size):
        out[i] += scale * weights[i] * a[i]


@squared_norm.register(Dense)
def _(lines, j, weights):
    a = lines.values[j]
    total = 0.0
    for i in range(a.size):
        total += weights[i] * a[i] * a[i]  # in this order a weight of zero silences even a huge entry
    return total


@sum_of_squares.register(Dense)
def _(lines, j):
    return _squares(lines.values[j])


@lean(fastmath=VECTORIZE)
def _squares(a: Any) -> Any:
    total = 0.0
    for i in range(a.size):
        value = np.float64(a[i])
        total += value * value
    return total


@curved_by_fours.register(Dense)
def _(lines, weights, v, shift, out):
    # Four long lines share what is read of v and written to out; short ones are better read as one stream.
    total, t, n = 0.0, np.empty(4), lines.values.shape[0]
    if lines.values.shape[1] < _LONG:
        return 0, total
    for i in range(0, n - 3, 4):
        _dots(lines.values[i], lines.values[i + 1], lines.values[i + 2], lines.values[i + 3], v, t)
        for k in range(4):
            t[k] = weights[i + k] * (t[k] + shift)
            total += t[k]
        _add_four(lines.values[i], lines.values[i + 1], lines.values[i + 2], lines.values[i + 3], t, out)
    return n - n % 4, total


@jit(fastmath=VECTORIZE)
def _dots(a: Any, b: Any, c: Any, d: Any, v: Any, out: Any) -> None:
    """Inner products of v with four arrays."""
    p = q = r = s = 0.0
    for i in range(v.size):
        p += a[i] * v[i]
        q += b[i] * v[i]
        r += c[i] * v[i]
        s += d[i] * v[i]
    out[0], out[1], out[2], out[3] = p, q, r, s


@jit(fastmath=VECTORIZE)
def _add_four(a: Any, b: Any, c: Any, d: Any, scales: Any, out: Any) -> None:
    """Add multiples of four arrays in place."""
    p, q, r, s = scales[0], scales[1], scales[2], scales[3]
    for i in range(out.size):
        out[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i]


@n_entries.register(Dense)
def _(lines, j):
    return np.uint64(lines.values.shape[1])


@entry.register(Dense)
def _(lines, j, k):
    return np.uint64(k), np.float64(lines.values[j, k])


# --- Sparse lines


@curved_by_fours.register(Sparse)
def _(lines, weights, v, shift, out):
    return 0, 0.0


@n_lines.register(Sparse)
def _(lines):
    return lines.starts.size - 1


@dot.register(Sparse)
def _(lines, j, v):
    # Two sums, each in order, so that one addition need not wait for the last. Vectorised gathers, or more sums, are
    # slower on short lines.
    even = odd = 0.0
    one, k, end = np.uint64(1), lines.starts[j], lines.starts[np.int64(j) + 1]
    while k + one < end:
        even += lines.values[k] * v[lines.indices[k]]
        odd += lines.values[k + one] * v[lines.indices[k + one]]
        k += np.uint64(2)
    if k < end:
        even += lines.values[k] * v[lines.indices[k]]
    return even + odd


@dot_in_order.register(Sparse)
def _(lines, j, v):
    total = 0.0
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        total += lines.values[k] * v[lines.indices[k]]
    return total


@add.register(Sparse)
def _(lines, j, scale, out):
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        out[lines.indices[k]] += scale * lines.values[k]


@add_weighted.register(Sparse)
def _(lines, j, scale, weights, out):
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        i = lines.indices[k]
        out[i] += scale * weights[i] * lines.values[k]


@squared_norm.register(Sparse)
def _(lines, j, weights):
    total = 0.0
    for k in range(lines.starts[j], lines.starts[np.int64(j) + 1]):
        total += weights[lines.indices[k]] * lines.values[k] * lines.values[k]
    return total


@sum_of_squares.register(Sparse)
def _(lines, j):
    return _squares(lines.values[lines.starts[j] : lines.starts[np.int64(j) + 1]])


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


@dot_in_order.register(WithIntercept)
def _(lines, j, v):
    if j < n_lines(lines.lines):
        return dot_in_order(lines.lines, j, v)
    return _sum(v)


@lean(fastmath=VECTORIZE)
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


@add_weighted.register(WithIntercept)
def _(lines, j, scale, weights, out):
    if j < n_lines(lines.lines):
        add_weighted(lines.lines, j, scale, weights, out)
    else:
        for i in range(lines.length):
            out[i] += scale * weights[i]


@squared_norm.register(WithIntercept)
def _(lines, j, weights):
    if j < n_lines(lines.lines):
        return squared_norm(lines.lines, j, weights)
    return _sum(weights)


@sum_of_squares.register(WithIntercept)
def _(lines, j):
    if j < n_lines(lines.lines):
        return sum_of_squares(lines.lines, j)
    return np.float64(lines.length)


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
        out[j] = dot_in_order(lines, j, v)


@jit
def product(lines: Any, x: Any, out: Any) -> None:
    """Combine the lines: out = sum_j x_j a_j. Lines with x_j = 0 cost nothing."""
    out[:] = 0.0
    for j in range(n_lines(lines)):
        if x[j] != 0.0:
            add(lines, j, x[j], out)


@jit
def curved_product(lines: Any, weights: Any, v: Any, shift: float, out: Any) -> float:
    """Combine the lines, each read once: out = sum_i t_i a_i, t_i = weights_i (<a_i, v> + shift). Return sum_i t_i."""
    out[:] = 0.0
    n_done, total = curved_by_fours(lines, weights, v, shift, out)
    for i in range(n_done, n_lines(lines)):
        t = weights[i] * (dot_in_order(lines, i, v) + shift)
        total += t
        if t != 0.0:
            add(lines, i, t, out)
    return float(total)


@jit
def line_squares(lines: Any, out: Any) -> None:
    """Sum of squares of every line."""
    for j in range(n_lines(lines)):
        out[j] = sum_of_squares(lines, j)


@jit
def squared_norms(lines: Any, weights: Any, out: Any) -> None:
    """Weighted squared norms of all lines: out_j = sum_i weights_i a_ij^2."""
    alike = are_alike(weights)
    for j in range(n_lines(lines)):
        out[j] = weights[0] * sum_of_squares(lines, j) if alike else squared_norm(lines, j, weights)


@jit
def products_and_norms(lines: Any, v: Any, weights: Any, out: Any, norms: Any) -> None:
    """Inner products of v with all lines, and their weighted norms, in one pass."""
    alike = are_alike(weights)
    for j in range(n_lines(lines)):
        out[j] = dot_in_order(lines, j, v)
        norms[j] = math.sqrt(weights[0] * sum_of_squares(lines, j) if alike else squared_norm(lines, j, weights))


@jit
def are_alike(weights: Any) -> bool:
    """Whether all weights are the same, and not zero: then sums of squares need no weights, and are vectorised."""
    if weights[0] == 0.0:
        return False
    for weight in weights:  # noqa: SIM110  Numba has no generator expressions
        if weight != weights[0]:
            return False
    return True


@jit
def sums_of_squares(lines: Any, weights: Any, out: Any) -> None:
    """Squares across the lines: out_i = sum_j weights_j a_ij^2."""
    out[:] = 0.0
    for j in range(n_lines(lines)):
        for k in range(n_entries(lines, j)):
            i, value = entry(lines, j, k)
            out[i] += weights[j] * value * value


@jit
def is_sound(lines: Any) -> bool:
    """Whether sparse lines follow each other without a gap, with positions that rise strictly and are inside."""
    starts, indices, n, one = lines.starts, lines.indices, np.uint64(lines.indices.size), np.uint64(1)
    if starts[0] != 0 or starts[-1] != n or lines.values.size != indices.size:
        return False
    # Over all entries at once, which is vectorised: line by line it takes two to seven times as long.
    n_falls = largest = np.uint64(0)
    for k in range(one, n):
        n_falls += np.uint64(indices[k] <= indices[k - one])
    for k in range(n):
        largest = max(largest, np.uint64(indices[k]))
    if n > 0 and largest >= np.uint64(lines.length):  # what was negative is that large
        return False
    # Positions may fall where a line begins.
    begin = np.uint64(0)
    for j in range(1, starts.size):
        if not begin <= starts[j] <= n:
            return False
        if 0 < begin < starts[j]:
            n_falls -= np.uint64(indices[begin] <= indices[begin - one])
        begin = starts[j]
    return bool(n_falls == 0)


@jit
def count_indices(indices: Any, n: int) -> Any:
    """Count each index. NumPy's bincount takes twice as long, because it needs signed ones."""
    out = np.zeros(n, np.int64)
    for k in range(indices.size):
        out[indices[k]] += 1
    return out


@jit
def any_negative(values: Any) -> bool:
    """Whether one is; where there are any it is mostly an early one that tells."""
    for value in values:  # noqa: SIM110  Numba has no generator expressions
        if value < 0.0:
            return True
    return False
