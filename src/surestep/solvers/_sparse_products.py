"""Products of the sparse columns of a working set W, for its Gram matrix: by rows, or where few are new by columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._jit import inlined, jit
from surestep.lines import entry, n_entries

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Entries that stay in the cache.
CACHED = 2**18


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
def fill(columns: Any, members: Integers, row: int, cursors: NDArray[np.uint64], rows: Rows) -> None:
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
def add_products(rows: Rows, weights: Array, first: int, lines: Array) -> None:
    """Add d_i a_i a_i^T of some rows to the lines of G from ``first`` on, those of new members, below the diagonal.

    As many lines at a time as stay in the cache, and four of them in one go over the row: how long a go is cannot be
    foreseen, which takes as long as ten products.
    """
    _, _, places, values = rows
    at, before, until = rows.begin.copy(), np.uint32(first), 0
    size = max(1, CACHED // (first + lines.shape[0]))
    one, three, four = np.uint64(1), np.uint64(3), np.uint64(4)
    while until < lines.shape[0]:
        until = min(until + size, lines.shape[0])
        stop = np.uint32(first + until)
        for i in range(weights.size):
            if weights[i] == 0.0:
                continue
            start, k, end = rows.starts[i], at[i], rows.starts[i + 1]
            while k + three < end and places[k + three] < stop:
                _add_to_four(places, values, start, k, weights[i], before, lines)
                k += four
            while k < end and places[k] < stop:
                _add_to_line(places, values, start, k, weights[i], before, lines)
                k += one
            at[i] = k


@inlined
def _add_to_line(places: Any, values: Any, start: Any, k: Any, weight: Any, before: Any, lines: Any) -> None:
    """Add the products of an entry of a row with those from ``start`` on up to itself."""
    line, scaled = lines[places[k] - before], weight * values[k]
    for m in range(start, k + np.uint64(1)):
        line[places[m]] += scaled * values[m]


@inlined
def _add_to_four(places: Any, values: Any, start: Any, k: Any, weight: Any, before: Any, lines: Any) -> None:
    """Add the products of four entries of a row with those from ``start`` on up to themselves."""
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    p, q, r, s = places[k], places[k + one], places[k + two], places[k + three]
    at_p, at_q, at_r, at_s = values[k], values[k + one], values[k + two], values[k + three]
    of_p, of_q, of_r, of_s = weight * at_p, weight * at_q, weight * at_r, weight * at_s
    line_p, line_q, line_r, line_s = lines[p - before], lines[q - before], lines[r - before], lines[s - before]
    for m in range(start, k):
        place, value = places[m], values[m]
        line_p[place] += of_p * value
        line_q[place] += of_q * value
        line_r[place] += of_r * value
        line_s[place] += of_s * value
    line_p[p] += of_p * at_p
    line_q[p] += of_q * at_p
    line_r[p] += of_r * at_p
    line_s[p] += of_s * at_p
    line_q[q] += of_q * at_q
    line_r[q] += of_r * at_q
    line_s[q] += of_s * at_q
    line_r[r] += of_r * at_r
    line_s[r] += of_s * at_r
    line_s[s] += of_s * at_s


@jit
def add_by_columns(columns: Any, members: Integers, weights: Array, first: int, lines: Array) -> None:
    """Add the products of new members with all before them to their lines of G.

    Four new ones at a time, which lie next to each other, sample by sample: an entry of W is read once for all four.
    """
    scaled = np.empty((weights.size, 4))
    for begin in range(first, members.size, 4):
        end = min(begin + 4, members.size)
        scaled[:] = 0.0
        for p in range(begin, end):
            for k in range(n_entries(columns, members[p])):
                i, value = entry(columns, members[p], k)
                scaled[i, p - begin] = weights[i] * value
        for q in range(end):
            a = b = c = d = 0.0
            for k in range(n_entries(columns, members[q])):
                i, value = entry(columns, members[q], k)
                a += value * scaled[i, 0]
                b += value * scaled[i, 1]
                c += value * scaled[i, 2]
                d += value * scaled[i, 3]
            sums = a, b, c, d
            for p in range(max(begin, q), end):
                lines[p - first, q] += sums[p - begin]
