"""Rows for SGD, drawn by the workers that hold them: the dealer of `surestep.solvers._sgd_dealt`.

By tasks, and so that each could be done again: a part that is lost with its worker is computed anew from its source,
and draws what it would have drawn, for its seed is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from surestep.bounds.margins import fill_norm_bounds, margins, row_norms
from surestep.bounds.parts import PartBounds, shares_in_part, shares_of_parts
from surestep.design import Design
from surestep.distributed._clients import leave_the_threads
from surestep.distributed._parts import Part, Spec
from surestep.distributed._problem import PartitionedProblem
from surestep.lines import Dense, Sparse
from surestep.problem import Problem
from surestep.solvers._sgd_dealt import Hand, Rows

Array = NDArray[np.float64]

# Bounds are worth their cost where they make the worst case so much better.
_WORTH = 0.8


# --- On the workers


class Measured(NamedTuple):
    """A part for one run: its rows, their norms with and without the intercept, and s_i ||a_i||."""

    problem: Problem
    norms: Array
    bare_norms: Array
    scale: Array


def measured(part: Part, spec: Spec) -> Measured:
    """Look at the rows of a part."""
    problem = part.problem(spec)
    rows = problem.design.rows
    norms = row_norms(rows, problem.fit_intercept)
    return Measured(problem, norms, row_norms(rows, False), problem.weights * norms)


def known(rows: Measured) -> Rows:
    """Return what is to be known of the rows."""
    longest = float(np.max(rows.norms[rows.scale > 0.0], initial=0.0))
    return Rows(float(rows.scale.sum()), longest, float(np.max(rows.problem.design.row_lengths)))


class Draws(NamedTuple):
    """What a part draws from, and the bounds it comes from; ``still``, how many rows cannot have a gradient."""

    rows: Measured
    p: Array
    lower: Array
    upper: Array
    bounds: PartBounds
    still: int


def fixed_draws(rows: Measured) -> Draws:
    """Draw by s_i ||a_i||, for which nothing is to be known of gradients."""
    total = float(rows.scale.sum())
    p = rows.scale / total if total > 0.0 else rows.scale
    return Draws(rows, p, np.zeros(p.size), np.full(p.size, np.inf), PartBounds(total, 0.0, np.inf), 0)


def safe_draws(rows: Measured, x: Array, within: float) -> Draws:
    """Draw by bounds that hold within a distance of x."""
    problem, lower, upper = rows.problem, *np.empty((2, rows.scale.size))
    z = margins(problem.design.rows, problem.fit_intercept, x)
    fill_norm_bounds(problem.loss, problem.y, problem.weights, rows.norms, z, np.zeros(z.size), within, lower, upper)
    p, bounds = shares_in_part(lower, upper, rows.scale)
    return Draws(rows, p, lower, upper, bounds, int(np.count_nonzero((upper == 0.0) & (rows.scale > 0.0))))


def told(draws: Draws) -> tuple[PartBounds, int]:
    """Return what the coordinator has to know of it."""
    return draws.bounds, draws.still


class Dealt(NamedTuple):
    """Rows of a part, each once, the facts of `Hand` about them, and the order they were drawn in."""

    X: Any
    facts: Array
    order: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        X = self.X
        matrix = (X.data, X.indices, X.indptr) if scipy.sparse.issparse(X) else (X,)
        return sum(array.nbytes for array in (*matrix, self.facts, self.order))


def dealt(draws: Draws, share: float, n: int, seed: int) -> Dealt:
    """Draw n rows, with replacement; ``share``: how often this part is drawn from."""
    rows, problem = draws.rows, draws.rows.problem
    drawn = np.random.default_rng(seed).choice(draws.p.size, n, p=draws.p / draws.p.sum())
    kept, order = np.unique(drawn, return_inverse=True)
    weights = problem.weights[kept]
    facts = [problem.y[kept], weights / draws.p[kept] / share, rows.norms[kept], rows.bare_norms[kept], weights]
    facts += [draws.lower[kept], draws.upper[kept]]
    return Dealt(_lines_at(problem.design.rows, kept), np.column_stack(facts), order)


def _lines_at(lines: Dense | Sparse, kept: NDArray[np.int64]) -> Any:
    """Return some rows as a matrix of their own."""
    if isinstance(lines, Dense):
        return lines.values[kept]
    signed = lines.indices.view(f"i{lines.indices.itemsize}")
    shape = lines.starts.size - 1, lines.length
    return scipy.sparse.csr_array((lines.values, signed, lines.starts.astype(np.int64)), shape=shape)[kept]


# --- Here


class Dealer(AbstractContextManager["Dealer"]):
    """Deals rows of a problem in partitions; see `surestep.solvers._sgd_dealt.Dealer`. For a ``with`` statement."""

    def __init__(self, problem: PartitionedProblem) -> None:
        leave_the_threads()
        self._client, parts = problem.partitions.client, list(problem.partitions.futures)
        self._running: list[Any] = []
        self._measured = self._map(measured, parts, [problem.spec] * len(parts))
        self._fixed = self._map(fixed_draws, self._measured)
        each = self._client.gather(self._map(known, self._measured))
        self._scales = np.array([rows.scale for rows in each])
        self.known = Rows(float(self._scales.sum()), *(max(values) for values in list(zip(*each, strict=True))[1:]))
        if self.known.scale == 0.0:
            raise ValueError("every entry of X is zero, and there is no intercept: there is nothing to draw rows for")
        self.n_parts, self.n_bytes, self._stopped = len(parts), 0, False
        self._thread = ThreadPoolExecutor(1, "surestep-dealer")
        self._hand: Future[Hand] | None = None

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._client.cancel(self._running)  # so that nobody waits for it
        self._thread.shutdown(cancel_futures=True)
        # What is under way may have failed by now: an exception refers to futures, and they to their results there.
        self._hand, self._running, self._measured, self._fixed = None, [], [], []

    def ask(self, point: Array, within: float, n_rows: int, seed: int) -> None:
        """Have a hand dealt; do not wait for it. For an infinite distance, from the sampling that needs no bounds."""
        self._hand = self._thread.submit(self._dealt, point, within, n_rows, seed)

    def hand(self) -> Hand:
        """Wait for the hand that was asked for."""
        assert self._hand is not None
        return self._hand.result()

    def _map(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        return list(self._client.map(function, *arguments, pure=False))

    def _results(self, tasks: list[Any]) -> list[Any]:
        self._running = tasks
        if self._stopped:
            self._client.cancel(tasks)
        return list(self._client.gather(tasks))

    def _dealt(self, point: Array, within: float, n_rows: int, seed: int) -> Hand:
        draws, q, value, still = self._fixed, self._scales / self.known.scale, 1.0, 0
        if within < math.inf:
            x = self._client.submit(np.asarray, point, pure=False)  # not scattered: that would be lost with its worker
            safe = self._map(safe_draws, self._measured, [x] * self.n_parts, [within] * self.n_parts)
            bounds, stills = zip(*self._results(self._map(told, safe)), strict=True)
            shares, worst = shares_of_parts(list(bounds))
            if 0.0 < worst < _WORTH * self.known.scale:
                draws, q, value, still = safe, shares, worst / self.known.scale, sum(stills)
        if draws is self._fixed:
            within = math.inf
        rng = np.random.default_rng(seed)
        parts = rng.choice(self.n_parts, n_rows, p=q / q.sum())  # of each row
        asked, counts = np.unique(parts, return_counts=True)
        seeds = rng.integers(2**63, size=asked.size).tolist()
        found = self._results(self._map(dealt, [draws[k] for k in asked], q[asked].tolist(), counts.tolist(), seeds))
        self.n_bytes += sum(each.nbytes for each in found)
        order, facts, first = np.empty(n_rows, np.int64), [], 0
        for k, each in zip(asked, found, strict=True):
            order[parts == k] = first + each.order
            facts.append(each.facts)
            first += each.facts.shape[0]
        return Hand(
            point, within, _joined([each.X for each in found]), np.concatenate(facts), order, value, float(still)
        )


def _joined(blocks: list[Any]) -> Dense | Sparse:
    """Return the rows of all blocks."""
    if any(map(scipy.sparse.issparse, blocks)):
        return Design.of(scipy.sparse.vstack(blocks, format="csr")).rows
    return Design.of(np.concatenate(blocks)).rows
