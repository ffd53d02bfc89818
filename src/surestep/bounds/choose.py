"""Bounds by name, and the choice among them by what a step costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep._jit import jit
from surestep.bounds.exact import Cooccurrence, Gram
from surestep.bounds.path import start_path
from surestep.bounds.snapshot import start_snapshot
from surestep.bounds.tracker import EPS
from surestep.lines import entry, n_entries, n_lines
from surestep.losses import Squared
from surestep.problem import Problem

NAMES = ("auto", "cauchy-schwarz", "snapshot", "exact")

# A Gram matrix of this many columns takes 200 MB.
_LARGEST_GRAM = 5000

# One of this many columns is made by BLAS in the time of ten to forty epochs. Larger ones are made row by row, when a
# row is first needed, for a pass over the data each: too long to be the choice of "auto".
_ALL_AT_ONCE = 1000

# With exact bounds a draw looks at all coordinates, for so many nanoseconds each. Other steps take this long, and so
# long for each entry of a dense or of a sparse column (measured). Exact bounds save so many steps, with steps 1 / L_i
# that go all the way, and with others; and even so they are not for more coordinates than that.
_LOOK, _STEP, _PER_ENTRY = 14.0, 300.0, (0.7, 3.0)
_SAVED_BY_EXACT_STEPS, _SAVED = 10.0, 3.0
_FEW_ENOUGH_TO_SCAN = 2000


def choose(bounds: Any, problem: Problem, exact_steps: bool) -> Any:
    """Return the name that "auto" stands for, which depends on whether steps are 1 / L_i; any other choice as it is."""
    if isinstance(bounds, tuple):
        return bounds
    if bounds not in NAMES:
        raise ValueError(f"bounds must be one of {', '.join(map(repr, NAMES))} or a tracker, got {bounds!r}")
    if bounds == "auto":
        return "exact" if _exact_is_cheap(problem, exact_steps) else "snapshot"
    return bounds


def make_tracker(bounds: Any, problem: Problem) -> Any:
    """Return the tracker of a name that `choose` has chosen, or the user's own as it is."""
    if isinstance(bounds, tuple):
        return bounds
    # Rounding in the sum behind a norm is at most a relative n_samples * EPS.
    norms = problem.norms * (1.0 + (problem.n_samples + 8) * EPS)
    if bounds == "cauchy-schwarz":
        return start_path(norms, problem.design.nonnegative)
    if bounds == "snapshot":
        quadratic = isinstance(problem.loss, Squared)
        # For a quadratic loss and dense columns the largest entry is not followed: it takes time and would tell little.
        absolute = absolute_sums(problem.columns) if problem.design.is_sparse or not quadratic else None
        return start_snapshot(norms, absolute, problem.n_samples, problem.design.nonnegative, quadratic)
    n, n_samples = problem.n_coordinates, problem.n_samples
    gradient, totals = np.zeros(n), np.zeros(2)
    if _has_gram(problem):
        all_at_once = n <= _ALL_AT_ONCE
        gram = _gram_matrix(problem) if all_at_once else np.zeros((n, n))
        known, buffer = np.full(n, all_at_once), np.empty(n_samples)
        return Gram(gradient, norms, totals, problem.columns, problem.weights, gram, known, buffer)
    longest = float(np.max(lengths(problem.columns)))
    return Cooccurrence(gradient, norms, problem.design.rows, problem.fit_intercept, totals, longest)


def _has_gram(problem: Problem) -> bool:
    """Whether the exact gradient is better kept by a Gram matrix than row by row."""
    small = problem.n_coordinates <= min(_LARGEST_GRAM, problem.n_samples)
    return isinstance(problem.loss, Squared) and not problem.design.is_sparse and small


def _gram_matrix(problem: Problem) -> NDArray[np.float64]:
    """Return sum_i s_i a_ij a_ik for all columns j and k."""
    X = np.asarray(problem.design.columns.values, np.float64).T
    if problem.fit_intercept:
        X = np.column_stack([X, np.ones(problem.n_samples)])
    X = np.sqrt(problem.weights)[:, None] * X
    gram: NDArray[np.float64] = X.T @ X
    return gram


def _exact_is_cheap(problem: Problem, exact_steps: bool) -> bool:
    """Whether the exact gradient pays: a look at all coordinates for every draw, and no more than that to keep it."""
    n, design = problem.n_coordinates, problem.design
    if _has_gram(problem):
        is_kept_cheaply = n <= _ALL_AT_ONCE
    else:
        row_lengths = design.row_lengths.astype(np.float64)
        is_kept_cheaply = n <= _FEW_ENOUGH_TO_SCAN and float(row_lengths @ row_lengths) <= float(n) ** 2
    step = _STEP + _PER_ENTRY[design.is_sparse] * design.nnz / n
    saved = _SAVED_BY_EXACT_STEPS if exact_steps else _SAVED
    return is_kept_cheaply and step + _LOOK * n <= saved * step


@jit
def lengths(lines: Any) -> Any:
    """Return the number of stored entries of every line."""
    out = np.empty(n_lines(lines), np.int64)
    for j in range(out.size):
        out[j] = n_entries(lines, j)
    return out


@jit
def absolute_sums(lines: Any) -> Any:
    """Return sum_i |a_ij| of every line, rounded up."""
    out = np.zeros(n_lines(lines))
    for j in range(out.size):
        n = n_entries(lines, j)
        for k in range(n):
            out[j] += abs(entry(lines, j, k)[1])
        out[j] *= 1.0 + (n + 8.0) * EPS
    return out
