"""Quadratic models from a sample of the rows, where these outnumber the working set W by far.

    B = (n / m) A_S^T diag(d) A_S,    S: m of the n rows, a multiple of |W|

is near the Gram matrix of all rows, and costs a part of it. Steps by it are checked on all rows anyway, and what these
show is not lost: a step s changes the gradient by y = G s, G the Hessian on the way, and the update of Broyden,
Fletcher, Goldfarb and Shanno

    B <- B - B s s^T B / <s, B s> + y y^T / <s, y>

makes B s = y, and B stays positive. So a handful of steps is as good as those by the matrix of all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.lines import Lines, Sparse, WithIntercept, entry, n_entries, squared_norm
from surestep.problem import Problem
from surestep.solvers._gram import Gram, Products

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rows for each member of W, at first; the part of all rows that a sample is, at most; rows that stay together; and more
# of them for members to come, as this part.
_PER_MEMBER, _PART, _TOGETHER, _ROOM = 20, 0.25, 16, 8

# Curvatures that have changed by this part of them, on average, make a new matrix; so do so many updates, of more rows.
_CHANGED, _UPDATES = 0.1, 10

# Curvature along a step, as a part of what B has there, below which rounding is all that it shows.
_LEAST = 1e-8


class SampledGram:
    """B for a working set that grows, and for weights d that change."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._n = problem, problem.n_samples
        self._rng: np.random.Generator | None = None  # made for the first sample: many fits only ask whether one serves
        self._per_member = _PER_MEMBER
        self._rows, self._used = np.empty(0, np.int64), np.empty(0)  # S, and d on it as it is in B
        self._gram: Gram | None = None
        self._matrix, self._n_updates = np.empty((0, 0)), 0

    def serves(self, n_members: int) -> bool:
        """Whether a sample for so many members is a small part of all rows."""
        return n_members * self._per_member <= _PART * self._n

    def part(self, n_members: int) -> float:
        """Return the part of all rows that are in a sample; 1 where none would serve."""
        return n_members * self._per_member / self._n if self.serves(n_members) else 1.0

    def of(self, members: Integers, d: Array) -> Array:
        """Return B for these members and weights; what was learnt is kept where neither has changed much."""
        n = members.size
        is_slow = self._n_updates == _UPDATES and self.serves(2 * n)
        if is_slow:
            self._per_member *= 2
        if is_slow or self._matrix.shape[0] != n:
            self._restrict_to(members)
        used = d[self._rows]
        if self._used.size and np.sum(np.abs(used - self._used)) <= _CHANGED * np.sum(self._used):
            return self._matrix
        assert self._gram is not None
        self._used, self._n_updates = used, 0
        self._weights[:] = used * (self._n / used.size)
        self._matrix = self._gram.of(members if self._extends(members) else np.arange(n))[:, :n].copy()
        if self._problem.design.is_sparse:
            self._put_diagonal(self._squares(members, d))
        return self._matrix

    def learn(self, step: Array, difference: Array) -> None:
        """Correct B by a step on all members, and what it has changed the gradient by."""
        if self._matrix.shape[0] != step.size:  # there is none: the step was found elsewhere
            return
        image, slope = self._matrix @ step, float(step @ difference)
        curvature = float(step @ image)
        if self._n_updates < _UPDATES and curvature > 0.0 and slope > _LEAST * curvature:
            learnt = np.outer(difference, difference) / slope - np.outer(image, image) / curvature
            self._matrix += learnt
            self._n_updates += 1

    def _restrict_to(self, members: Integers) -> None:
        """Take the columns of W on a sample of the rows, some neighbours at a time: these are read faster."""
        n_groups, is_new = -(-members.size * self._per_member // _TOGETHER), False
        if self._rows.size < n_groups * _TOGETHER:
            self._rng = np.random.default_rng(0) if self._rng is None else self._rng
            n_groups, is_new = min(n_groups + n_groups // _ROOM, self._n // _TOGETHER), True
            groups = np.sort(self._rng.choice(self._n // _TOGETHER, n_groups, replace=False))
            self._rows = (_TOGETHER * groups[:, None] + np.arange(_TOGETHER)).ravel()
        self._used = np.empty(0)
        if self._extends(members) and not is_new:
            return
        self._gram = None  # which makes room
        self._weights, m, problem = np.zeros(self._rows.size), self._rows.size, self._problem
        if self._extends(members):
            self._gram = Gram(Products(problem.columns, m, self._weights, rows=self._rows))
            return
        design = problem.design
        n_kept = m * members.size if design.is_sparse and not design.has_rows else 0  # no room where X is there twice
        self._gram = Gram(Products(self._columns_on(members, self._rows), m, self._weights, n_kept))

    def _extends(self, members: Integers) -> bool:
        """Whether the matrix grows with W, as that of all rows does: dense columns are copied one by one."""
        return not (self._problem.design.is_sparse or self._is_by_rows(members))

    def _columns_on(self, members: Integers, rows: Integers) -> Lines:
        """Return the columns of W on some rows."""
        problem = self._problem
        if not self._is_by_rows(members):
            return restricted(problem.columns, members, rows)
        lines = problem.design.columns_on(rows)
        return WithIntercept(lines, rows.size) if problem.fit_intercept else lines

    def _squares(self, members: Integers, d: Array) -> Array:
        """Return the diagonal of the Gram matrix of all rows."""
        if self._is_by_rows(members):
            return self._problem.squared_norms(d)
        return squares_of(self._problem.columns, members, d)

    def _is_by_rows(self, members: Integers) -> bool:
        """Whether columns would have to be made, and W are all in their order."""
        return not self._problem.design.has_columns and np.array_equal(members, np.arange(self._problem.n_coordinates))

    def _put_diagonal(self, exact: Array) -> None:
        """Scale B to the diagonal of all rows: of rare features a sample sees too little."""
        diagonal = np.diagonal(self._matrix)
        scale = np.sqrt(np.divide(exact, diagonal, out=np.zeros_like(exact), where=diagonal > 0.0))
        self._matrix *= scale[:, None] * scale
        np.fill_diagonal(self._matrix, exact)


def restricted(columns: Lines, members: Integers, rows: Integers) -> Sparse:
    """Return some sparse columns on some rows, as columns of their own."""
    inner = columns.lines if isinstance(columns, WithIntercept) else columns
    assert isinstance(inner, Sparse)
    places = np.full(inner.length, -1)
    places[rows] = np.arange(rows.size)
    values, indices, starts = _entries_on(columns, members, places)
    return Sparse(values, indices, starts, rows.size)


@jit
def _entries_on(columns: Any, members: Integers, places: Integers) -> tuple[Array, NDArray[np.uint32], Any]:
    """Gather the entries of some columns on rows that have a place; and the places, and where columns start."""
    starts = np.zeros(members.size + 1, np.uint64)
    for t in range(members.size):
        starts[t + 1] = starts[t]
        for k in range(n_entries(columns, members[t])):
            i, _ = entry(columns, members[t], k)
            if places[i] >= 0:
                starts[t + 1] += np.uint64(1)
    values, indices, at = np.empty(starts[-1]), np.empty(starts[-1], np.uint32), 0
    for t in range(members.size):
        for k in range(n_entries(columns, members[t])):
            i, value = entry(columns, members[t], k)
            if places[i] >= 0:
                values[at], indices[at] = value, places[i]
                at += 1
    return values, indices, starts


@jit
def squares_of(columns: Any, members: Integers, weights: Array) -> Array:
    """Return the weighted squared norms of some columns."""
    out = np.empty(members.size)
    for t in range(members.size):
        out[t] = squared_norm(columns, members[t], weights)
    return out
