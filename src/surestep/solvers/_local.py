"""`Samples` in this process, and who has those of a problem."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property, singledispatch

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep._intercept import shift_sums
from surestep.lines import Dense, Lines, Sparse, are_alike, curved_product, products_and_norms
from surestep.problem import Problem
from surestep.regularizers import Separable
from surestep.solvers._columns import Until, combine, descend_by_columns, dots, dots_in_order
from surestep.solvers._copies import Copy, DenseCopy
from surestep.solvers._dual import Dual
from surestep.solvers._gram import FEWEST_SAMPLES, Gram, Products, WholeProducts
from surestep.solvers._look import curvatures, loss_terms, mean_loss, residual_at, residuals, slope
from surestep.solvers._over_samples import OverSamples
from surestep.solvers._prices import Price, RowCounts, dual_prices, pays
from surestep.solvers._sampled import SampledGram
from surestep.solvers._samples import Samples
from surestep.solvers._short import Mean, Point, minimise_on_short

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Steps by a matrix that is near the Gram matrix, where one by that would do. Rows with so many times the weight of
# others are no matter of luck.
_STEPS, _UNEVEN = 10.0, 10.0

# Dense columns are short where they have so many entries, at most, with a squared loss and with others; and few where
# all of them together have so many: their gradient takes no longer than some calls from Python.
_SHORT, _SHORT_CURVED, _ENTRIES = 100, 256, 1_000_000


@singledispatch
def samples_of(problem: Problem, n_threads: int | None) -> AbstractContextManager[Samples]:
    """Rows of a problem for one fit; None means as many threads as there are processors."""
    return LocalSamples(problem, n_threads)


class LocalSamples(AbstractContextManager[Samples]):
    """Rows in this process; of the whole problem, or a part of them whose weights do not add up to one."""

    whole = True

    def __init__(self, problem: Problem, n_threads: int | None = 1) -> None:
        n = problem.n_samples
        self._problem = problem
        self._data = problem.loss, problem.y, problem.weights
        self._pool = ThreadPoolExecutor(n_threads) if n_threads != 1 else None
        self._z, self._u, self._r, self._move = np.zeros((4, n))  # u and r as of the last time they were taken
        self._u_is_slope = False
        self._curved = not isinstance(problem.loss, losses.Squared)
        self._weights = problem.weights.copy() if self._curved else problem.weights  # d_i of the quadratic model
        self._dual: Dual | None = None
        self._over_samples: OverSamples | None = None
        self._rng = np.random.default_rng(0)  # for the order of columns in a sweep
        self._rent, self._spent = 0.0, 0.0  # nanoseconds, see `descend_by_columns`; in all
        # Where the last descent by columns went, who moved, how far, and z with them: it is asked for next.
        self._went: tuple[Integers, Array, Array] | None = None

    def __enter__(self) -> Samples:
        return self  # so that mypy sees whether it has all of the protocol

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    # --- What is made when first asked for: where nothing has kinks, rows may be all that is needed

    @property
    def _columns(self) -> Lines:
        return self._problem.columns

    @cached_property
    def _counts(self) -> RowCounts:
        return RowCounts(self._columns, self._z.size)

    @cached_property
    def _products(self) -> Products:
        design = self._problem.design
        # Weights that change want the rows of W again and again; where X is there twice, there is no room to keep them.
        n_kept = design.nnz // 2 if self._curved and not design.has_rows else 0
        return Products(self._columns, self._z.size, self._weights, n_kept, single=self._curved)

    @cached_property
    def _gram(self) -> Gram:
        return Gram(self._products)

    @cached_property
    def _rounded_gram(self) -> Gram:
        return Gram(Products(self._columns, self._z.size, self._weights, single=True))

    @cached_property
    def _whole_gram(self) -> Gram:
        problem, rows = self._problem, self._problem.design.rows
        assert isinstance(rows, Sparse)
        return Gram(WholeProducts(rows, self._weights, problem.fit_intercept))

    @cached_property
    def _sampled(self) -> SampledGram:
        return SampledGram(self._problem)

    def _is_better_by_rows(self, listed: Integers) -> bool:
        """Whether columns would have to be made, and all are listed."""
        return listed.size == self._problem.n_coordinates and not self._problem.design.has_columns

    @cached_property
    def _copy(self) -> Copy | DenseCopy:
        columns = self._problem.design.columns
        return Copy(columns, self.n_entries()) if isinstance(columns, Sparse) else DenseCopy(columns)

    def _lines_of(self, features: Integers) -> tuple[Dense | Sparse, Integers]:
        """Return lines that are good to read again and again, and which of them these features are.

        Columns next to each other; where X is there twice, there is room only for a part of them.
        """
        design = self._problem.design
        most = design.nnz // 4 if design.has_rows else math.inf
        is_short = not design.is_sparse and design.n_samples < FEWEST_SAMPLES  # to copy them takes as long as a sweep
        if is_short or int(np.sum(design.column_lengths[features])) > most:
            self._put_away("_copy")
            return design.columns, features
        return self._copy.of(features), np.arange(features.size)

    def _put_away(self, *names: str) -> None:
        """Make room; they are made again when asked for."""
        for name in names:
            vars(self).pop(name, None)

    # --- The data

    def lengths(self) -> Integers:
        found = self._problem.design.column_lengths
        return np.append(found, self._problem.n_samples) if self._problem.fit_intercept else found

    def n_entries(self) -> int:
        return self._problem.design.nnz

    def restart(self, x: Array) -> None:
        self._z[:] = self._problem.predictor(x) if np.any(x) else 0.0
        self._u_is_slope = False

    # --- A look

    def shift_sums(self, b: float) -> tuple[float, ...]:
        loss, y, weights = self._data
        return tuple(shift_sums(loss, self._z, y, weights, b))

    def shift(self, b: float) -> None:
        self._z += b
        self._u_is_slope = False

    def residuals(self) -> tuple[float, ...]:
        loss, y, weights = self._data
        self._u_is_slope = True
        return residuals(loss, self._z, y, weights, self._u, self._r)

    def take(self, u: Array) -> None:
        self._u_is_slope = False
        self._u[:] = u
        np.multiply(self._problem.weights, u, out=self._r)

    def gradient(self, listed: Integers) -> Array:
        listed = np.asarray(listed, np.int64)
        if self._is_better_by_rows(listed):
            return self._problem.transposed_times(self._r)
        out, pool, everything = np.empty(listed.size), self._pool, listed.size == self._problem.n_coordinates
        if pool is None and everything and not self._has_norms():
            norms = np.empty_like(out)  # they will be asked for, and cost little in this pass
            products_and_norms(self._columns, self._r, self._problem.weights, out, norms)
            if self._problem.fit_intercept:
                norms[-1] = np.sqrt(np.sum(self._problem.weights))  # to the last bit as elsewhere
            self._problem.put_norms(norms)
            return out
        kernel = dots_in_order if everything else dots
        if pool is None:
            kernel(self._columns, listed, self._r, out)
            return out
        n_parts = pool._max_workers
        edges = [listed.size * part // n_parts for part in range(n_parts + 1)]
        parts = [slice(*ends) for ends in itertools.pairwise(edges)]
        list(pool.map(lambda part: kernel(self._columns, listed[part], self._r, out[part]), parts))
        return out

    def _has_norms(self) -> bool:
        """Whether the norms of the columns are there, or follow from their squares."""
        problem = self._problem
        return "norms" in vars(problem) or (problem.design.has_column_squares and are_alike(problem.weights))

    def loss_terms(self, tau: float) -> tuple[float, ...]:
        loss, y, weights = self._data
        if tau == 1.0 and self._u_is_slope:  # where Fenchel's inequality is none
            return mean_loss(loss, self._z, y, weights), 0.0
        return loss_terms(loss, self._z, self._u, y, weights, tau)

    # --- The quadratic model

    def bend(self, least: float, caution: float = 0.0, slack: float = 0.0) -> None:
        if self._curved:
            loss, y, weights = self._data
            curvatures(loss, self._z, y, weights, least, caution, slack, self._weights)

    def model_gradient(self, members: Integers) -> Array:
        loss, y, weights = self._data
        out = np.empty(members.size)
        dots(self._columns, members, residual_at(loss, self._z, y, weights), out)
        return out

    def matrix(self, members: Integers) -> Array:
        self._put_away("_copy", "_rounded_gram")
        if self._problem.design.is_sparse and self._is_better_by_rows(members):
            return self._whole_gram.of(members)
        return self._gram.of(members)

    def model_matrix(self, members: Integers) -> Array:
        if self._is_sampled(members.size):
            self._put_away("_copy")
            return self._sampled.of(members, self._weights)
        if self.is_rounded():
            self._put_away("_copy")
            return self._rounded_gram.of(members)
        return self.matrix(members)

    def is_rounded(self) -> bool:
        return not (self._curved or self._problem.design.is_sparse) and self._z.size >= FEWEST_SAMPLES

    def learn(self, step: Array, difference: Array) -> None:
        if self._is_sampled(step.size):
            self._sampled.learn(step, difference)

    def _is_sampled(self, n_members: int) -> bool:
        """Whether a sample of the rows will do for the matrix of a model."""
        return self._is_even and self._sampled.serves(n_members) and (self._curved or self.is_dear())

    def is_dear(self) -> bool:
        if not (self._is_even and self._sampled.serves(self._problem.n_features)):
            return False
        price = self._price("features", exactly=True)
        return price.products > _STEPS * price.product

    @cached_property
    def _is_even(self) -> bool:
        """Whether no row has so large a weight that a sample must not miss it."""
        return bool(np.max(self._problem.weights) <= _UNEVEN * np.mean(self._problem.weights))

    def join(self, new: Integers) -> None:
        """Let more coordinates be members of W: for those who add up the lines of parts."""
        self._products.join(new)

    def add_lines(self, first: int, out: Array) -> None:
        """See `Products.add_lines`."""
        self._products.add_lines(first, out)

    def diagonal(self) -> Array:
        return self._problem.squared_norms(self._weights)

    def curved(self, v: Array) -> Array:
        problem = self._problem
        if not problem.design.has_rows:
            return problem.transposed_times(self._weights * problem.predictor(v))
        # A row that has just been read is read again at once: half the way to memory.
        out = np.empty(problem.n_coordinates)
        shift = float(v[-1]) if problem.fit_intercept else 0.0
        d = problem.n_features
        total = curved_product(problem.design.rows, self._weights, v[:d], shift, out[:d])
        if problem.fit_intercept:
            out[-1] = total
        return out

    def pays(self, members: Integers, growing: bool) -> bool:
        if self._curved and self._is_sampled(members.size):
            return True
        return pays(self._counts, members, growing, self._curved, self._spent)

    def descend(self, reg: Separable, members: Integers, x: Array, g: Array, until: Until) -> tuple[Array, int]:
        self._put_away("_gram", "_rounded_gram", "_products", "_sampled")
        is_feature = members < self._problem.n_features
        after, lines, names = x.copy(), *self._lines_of(members[is_feature])
        price = Price.of(members.size, self._counts.of(members), self._counts.dense)
        at, reg, rho = x[is_feature], reg.at(np.flatnonzero(is_feature)), np.zeros_like(self._z)
        shift, n_steps, self._rent, spent = descend_by_columns(
            lines,
            names,
            price,
            reg,
            self._weights,
            g[is_feature],
            float(g[~is_feature][0]) if self._problem.fit_intercept else None,
            at,
            rho,
            until,
            self._rng,
            self._rent,
            self._curved,
        )
        after[is_feature] = at
        after[~is_feature] += shift
        self._spent += spent
        if lines.values.dtype == self._problem.design.dtype:  # not rounded
            np.divide(rho, self._weights, out=rho, where=self._weights > 0.0)
            change = after - x
            self._went = members[change != 0.0], change[change != 0.0], rho
        return after, n_steps

    def are_short(self) -> bool:
        design = self._problem.design
        is_few = not design.is_sparse and design.nnz <= _ENTRIES
        return is_few and design.n_samples <= min(_SHORT_CURVED if self._curved else _SHORT, design.n_features // 2)

    def minimise_on(
        self, reg: Separable, members: Integers, x: Array, least: float, caution: float, enough: float, near: float
    ) -> tuple[Array, int, float]:
        problem, names, at, total = self._problem, members, x.copy(), math.inf
        if problem.fit_intercept:
            features, total = members < problem.n_features, float(problem.smoothness[-1])
            names, at, reg = members[features], x[features], reg.at(features)
        mean = Mean(*self._data, problem.design.columns, total, self._curved, least)
        curvature = np.maximum(problem.smoothness[names] + reg.l2, np.finfo(float).tiny)
        if not self._u_is_slope:
            self.residuals()
        point = Point(self._z.copy(), self._u.copy(), self._r.copy())
        shift, n_steps, caution = minimise_on_short(mean, point, names, reg, curvature, at, caution, enough, near)
        if problem.fit_intercept:
            after = x + shift
            after[features] = at
            return after, n_steps, caution
        return at, n_steps, caution

    def prices(self, matrix: str, exactly: bool) -> tuple[float, float]:
        price, n = self._price(matrix, exactly), self._problem.n_coordinates
        if matrix == "features" and self._is_sampled(n):
            part = self._sampled.part(n)
            # Each time with two steps, which would not be without it.
            entries = part * price.entries + 2.0 * price.product
            price = price._replace(entries=entries, products=part * price.products)
        vectors = 10.0 * n  # those of conjugate gradients
        return price.product + vectors, price.of_factors

    def _price(self, matrix: str, exactly: bool) -> Price:
        design, dense = self._problem.design, not self._problem.design.is_sparse
        sizes = design.shape if matrix == "samples" else design.shape[::-1]
        if exactly and not dense:
            price = Price.of(sizes[0], design.column_lengths if matrix == "samples" else design.row_lengths, dense)
        else:
            price = Price.at_least(*sizes, design.nnz, dense)
        # Dense ones are the factors of K as they are, and BLAS takes half the time where both are the same.
        return price._replace(entries=0.0, products=0.5 * price.products) if dense and matrix == "samples" else price

    def dual_prices(self) -> tuple[float, float, float]:
        design = self._problem.design
        of_sweep, of_rows = dual_prices(design, self._curved)
        square = float(self._problem.weights @ design.row_squares) if of_sweep < np.inf else np.inf
        return of_sweep, of_rows, square

    def minimise_by_dual(
        self, l2: float, b: float, enough: float, max_sweeps: float
    ) -> tuple[Array, Array, int, float, float]:
        if self._dual is None:
            self._dual = Dual(self._problem, b)
        return *self._dual.minimise(l2, enough, max_sweeps), self._dual.hidden

    def minimise_over_samples(self, l2: Array, enough: float) -> Array:
        return self._served(l2).minimise(self._r, enough)

    def solve_over_samples(self, l2: Array, c: Array) -> Array:
        return self._served(l2).step(self._weights, c)

    def _served(self, l2: Array) -> OverSamples:
        if self._over_samples is None or not self._over_samples.serves(l2):
            self._over_samples = OverSamples(self._problem, l2)
        return self._over_samples

    # --- A step

    def add(self, members: Integers, change: Array) -> None:
        self._combine(members, change, self._z)
        self._u_is_slope = False

    def aim(self, members: Integers, change: Array) -> None:
        if self._is_better_by_rows(members):
            self._move[:] = self._problem.predictor(change)
            return
        self._move[:] = 0.0
        self._combine(members, change, self._move)

    def _combine(self, members: Integers, change: Array, out: Array) -> None:
        """Add sum_j change_j a_j to ``out``."""
        went, self._went = self._went, None
        if went is not None:
            moved = change != 0.0
            if np.array_equal(members[moved], went[0]) and np.array_equal(change[moved], went[1]):
                out += went[2]
                return
        combine(self._columns, members, change, out)

    def slopes(self, *ts: float) -> tuple[float, ...]:
        loss, y, weights = self._data
        return tuple(slope(loss, self._z, self._move, t, y, weights) for t in ts)

    def go(self, t: float) -> None:
        self._z += t * self._move
        self._u_is_slope = False

    def columns(self) -> dict[str, float]:
        return {}
