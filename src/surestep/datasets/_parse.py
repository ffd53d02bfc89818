"""The compiled parser of svmlight text: one pass over the bytes, every number rounded as Python's ``float`` rounds it.

A number of at most 18 digits is an integer w times a power of ten. Where w < 2^53 and the power is at most 10^22, both
are floats and one operation rounds correctly (Clinger, 1990). Where they are longer, w * 10^e is computed in pairs of
floats to about 100 bits, which tells the nearest float unless the number lies all but in the middle of two. What
remains (more digits, huge exponents, such middles, nan, inf, and whatever is no number at all) is left *pending*: the
kernel notes where it stands and goes on, and the caller reads it with ``float``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from surestep._jit import jit

ONE = np.uint64(1)
TAB, NEWLINE, CARRIAGE_RETURN, SPACE, HASH, PLUS, MINUS, POINT, ZERO, NINE, COLON = (
    np.uint8(ord(c)) for c in "\t\n\r #+-.09:"
)
UPPER_E, LOWER_E = np.uint8(ord("E")), np.uint8(ord("e"))
QUERY = np.frombuffer(b"qid:", np.uint8)

LONGEST_INTEGER = 18  # digits that surely fit into int64
ROOM_FOR_A_DIGIT = 10 ** (LONGEST_INTEGER - 1)
EXACT_INTEGER = 2**53
EXACT_POWER = 22
LARGEST_POWER = 64
# 10^k, at LARGEST_POWER + k, as the float nearest to it and the float nearest to what that leaves.
_EXACT = [Fraction(10) ** k for k in range(-LARGEST_POWER, LARGEST_POWER + 1)]
TENS = np.array([float(ten) for ten in _EXACT])
TENS_REST = np.array([float(ten - Fraction(float(ten))) for ten in _EXACT])
SPLIT = 2.0**27 + 1.0
SLACK = 2.0**-96  # the pairs are good to about 2^-102, relatively

# What can be wrong with the structure of a line.
FINE, BAD_INDEX, BAD_QUERY, NO_QUERY, REPEATED = range(5)


class Parsed(NamedTuple):
    """What :func:`parse` found: numbers of rows, entries and pending numbers, order, and the first error."""

    n_rows: int
    n_entries: int
    n_pending: int
    ascending: bool
    error: int
    at: int


@jit
def parse(text: Any, labels: Any, starts: Any, indices: Any, values: Any, queries: Any, pending: Any) -> Any:
    """Parse whole lines.

    Parameters
    ----------
    text : ndarray of uint8
        Whole lines: the last byte is a newline, which is what every loop below relies on to end.
    labels, starts, indices, values, queries : ndarray
        Filled in: a label a row; entries of row r at ``starts[r]:starts[r + 1]`` of indices and values; ids of queries.
        As long as there may be rows and entries. ``queries`` is of length 0 if they are not wanted.
    pending : ndarray of int64, two columns
        Filled in: where in the text a number left to the caller stands, and where it belongs: k for ``values[k]``,
        -1 - r for ``labels[r]``.

    Returns
    -------
    tuple
        The fields of `Parsed`. The error is the first of the structure of the text; a pending number before it may
        turn out to be none.
    """
    n_rows, n_entries, n_pending, ascending = 0, 0, 0, True
    at, end = np.uint64(0), np.uint64(text.size)
    starts[0] = 0
    while at < end:
        at = _skip_blanks(text, at)
        if text[at] == NEWLINE or text[at] == HASH:
            at = _skip_line(text, at)
            continue
        begin = at
        at, number, known = _number(text, at)
        labels[n_rows] = number
        if not known:
            pending[n_pending, 0], pending[n_pending, 1] = begin, -1 - n_rows
            n_pending += 1
        at = _skip_blanks(text, at)
        if _is_query(text, at):
            begin = at
            at, query, well = _integer(text, at + np.uint64(QUERY.size))
            if not well or not _ends(text[at]):
                return n_rows, n_entries, n_pending, ascending, BAD_QUERY, begin
            if queries.size:
                queries[n_rows] = query
            at = _skip_blanks(text, at)
        elif queries.size:
            return n_rows, n_entries, n_pending, ascending, NO_QUERY, at
        first, previous, sorted_line = n_entries, -1, True
        while text[at] != NEWLINE and text[at] != HASH:
            begin = at
            at, index, well = _integer(text, at)
            if not well or index < 0 or text[at] != COLON:
                return n_rows, n_entries, n_pending, ascending, BAD_INDEX, begin
            sorted_line = sorted_line and index > previous
            previous = index
            at += ONE
            begin = at
            at, number, known = _number(text, at)
            indices[n_entries], values[n_entries] = index, number
            if not known:
                pending[n_pending, 0], pending[n_pending, 1] = begin, n_entries
                n_pending += 1
            n_entries += 1
            at = _skip_blanks(text, at)
        if not sorted_line:
            ascending = False
            ordered = np.sort(indices[first:n_entries])
            for k in range(1, ordered.size):
                if ordered[k] == ordered[k - 1]:
                    return n_rows, n_entries, n_pending, ascending, REPEATED, at
        n_rows += 1
        starts[n_rows] = n_entries
        at = _skip_line(text, at)
    return n_rows, n_entries, n_pending, ascending, FINE, end


@jit
def _is_query(text: Any, at: Any) -> Any:
    """Whether the text goes on with "qid:"; a newline ends the comparison in time."""
    k = 0
    while k < QUERY.size and text[at + np.uint64(k)] == QUERY[k]:
        k += 1
    return k == QUERY.size


@jit
def _skip_blanks(text: Any, at: Any) -> Any:
    while _is_blank(text[at]):
        at += ONE
    return at


@jit
def _skip_line(text: Any, at: Any) -> Any:
    while text[at] != NEWLINE:
        at += ONE
    return at + ONE


@jit
def _is_blank(byte: Any) -> Any:
    """Whether a byte is white space within a line: a blank, tab, vertical tab, form feed or carriage return."""
    return byte == SPACE or (TAB <= byte <= CARRIAGE_RETURN and byte != NEWLINE)


@jit
def _ends(byte: Any) -> Any:
    """Whether a token ends before this byte."""
    return byte <= HASH and (byte in (HASH, SPACE) or TAB <= byte <= CARRIAGE_RETURN)


@jit
def _integer(text: Any, at: Any) -> Any:
    """Where an integer ends, its value, and whether there is one that fits into int64."""
    negative = text[at] == MINUS
    if negative:
        at += ONE
    begin = at
    value: Any = 0
    while ZERO <= text[at] <= NINE:
        if at - begin < np.uint64(LONGEST_INTEGER):
            value = 10 * value + np.int64(text[at] - ZERO)
        at += ONE
    return at, -value if negative else value, ONE <= at - begin <= np.uint64(LONGEST_INTEGER)


@jit
def _number(text: Any, at: Any) -> Any:
    """Where a token ends, the number it is, and whether that number is known; 0.0 stands for one that is pending."""
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += ONE
    begin, mantissa, fits = at, 0, True
    at, mantissa, fits = _digits(text, at, mantissa, fits)
    n_digits = at - begin
    exponent: Any = 0
    if text[at] == POINT:
        at += ONE
        begin = at
        at, mantissa, fits = _digits(text, at, mantissa, fits)
        n_digits += at - begin
        exponent = -np.int64(at - begin)
    known = fits and n_digits > np.uint64(0)
    if text[at] == LOWER_E or text[at] == UPPER_E:
        at += ONE
        if text[at] == PLUS:
            at += ONE
            known = known and text[at] != MINUS
        at, shift, well = _integer(text, at)
        known = known and well
        exponent += shift
    if not _ends(text[at]):
        known = False
        while not _ends(text[at]):
            at += ONE
    number = 0.0
    if known and mantissa != 0:
        if mantissa <= EXACT_INTEGER and -EXACT_POWER <= exponent <= EXACT_POWER:
            ten = TENS[LARGEST_POWER + abs(exponent)]
            number = mantissa / ten if exponent < 0 else mantissa * ten
        elif -LARGEST_POWER <= exponent <= LARGEST_POWER:
            number, known = nearest(mantissa, exponent)
        else:
            known = False
    return at, -number if negative else number, known


@jit
def _digits(text: Any, at: Any, mantissa: Any, fits: Any) -> Any:
    """Append digits to the mantissa as long as there is room."""
    while ZERO <= text[at] <= NINE:
        if mantissa < ROOM_FOR_A_DIGIT:
            mantissa = 10 * mantissa + np.int64(text[at] - ZERO)
        else:
            fits = False
        at += ONE
    return at, mantissa, fits


@jit
def nearest(mantissa: Any, exponent: Any) -> Any:
    """Return the float nearest to mantissa * 10^exponent, and whether it surely is.

    high + low is the number to a relative error below SLACK, by the error-free products of Dekker (1971); if it rounds
    to `high` with that error added and with it taken off, so does the number itself.
    """
    w = float(mantissa)
    rest = float(mantissa - np.int64(w))
    ten, ten_rest = TENS[LARGEST_POWER + exponent], TENS_REST[LARGEST_POWER + exponent]
    product, error = _product(w, ten)
    error += w * ten_rest + rest * ten
    high = product + error
    low = error - (high - product)
    slack = high * SLACK
    return high, high + (low + slack) == high and high + (low - slack) == high


@jit
def _product(a: Any, b: Any) -> Any:
    """a * b as the rounded product and its rounding error, which sum to the product exactly."""
    p = a * b
    t = SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low
