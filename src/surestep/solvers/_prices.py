"""What ways to go cost, in nanoseconds by measured rates.

A working set W by its columns or by its Gram matrix; all features or samples by a matrix; sweeps over the samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep.design import Design
from surestep.lines import Dense, Lines, WithIntercept
from surestep.solvers._sparse_products import count_entries

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# A line of G with so many entries and its gradient stay in the first-level cache.
_LINE = 1500


class RowCounts:
    """How many entries each row has in W, which grows: only new members are counted."""

    def __init__(self, columns: Lines, n_samples: int) -> None:
        self._columns = columns
        self.dense = isinstance(columns.lines if isinstance(columns, WithIntercept) else columns, Dense)
        self._n_members, self._counts = 0, np.zeros(n_samples, np.uint64)

    def of(self, members: Integers) -> Array:
        """Return the numbers for these members, those of the last time first."""
        new, self._n_members = members[self._n_members :], members.size
        if self.dense:
            return np.full(self._counts.size, float(members.size))
        count_entries(self._columns, new, self._counts)
        return self._counts.astype(float)


def pays(counts: RowCounts, members: Integers, growing: bool, curved: bool, spent: float = 0.0) -> bool:
    """Whether W is better worked on by its Gram matrix than by its columns.

    Counted are the products of entries, updates of all gradient entries, ten for each member and more in large W, and
    room for the matrix; against reading the columns forty times: where it takes more sweeps, these give way to a Gram
    matrix of those that move. Dense ones, which depend on each other more, 350 times; thirty while W is ``growing``: it
    is solved roughly then, and most products would be of no use if in the end W is too large.

    For a loss that is ``curved`` the products are computed more than once, and how often columns are read differs
    widely: thirty times for sure, a fifth of that while W grows, and the time that was ``spent`` on columns so far is
    what will be spent again.
    """
    n, per_row = members.size, counts.of(members)
    n_grams, n_updates, n_reads, more = 1.0, 10.0 + 0.004 * n, 350.0 if counts.dense else 40.0, 5e6
    if curved:
        n_grams, n_updates, n_reads, more = 2.5, 10.0, 250.0 if counts.dense else 30.0, 2e5 + 0.5 * spent
        if growing and not counts.dense:
            n_reads *= 0.2
    elif growing:
        n_updates, n_reads = 0.1 * n_updates, 30.0
    if curved and n > per_row.size:  # columns that depend on each other take many updates; lines of G are longer
        n_updates, more = 100.0, 2e5
    per_product, per_entry = (0.07, 0.25) if counts.dense else (min(0.8 + 0.0005 * n, 2.2), 1.0)
    per_update = 0.4 * n if n < _LINE else 0.9 * n
    products, n_entries = 0.5 * float(per_row @ per_row), float(per_row.sum())
    by_gram = n_grams * per_product * products + n_updates * n * per_update + 10.0 * n * n
    return bool(by_gram < n_reads * per_entry * n_entries + more)


def n_in_the_time_of_a_look(n_samples: int, n_features: int) -> int:
    """How many dense columns have a Gram matrix in the time of a look at all of them, and a millisecond."""
    return math.isqrt(int((0.5 * n_samples * n_features + 1e6) / (0.04 * n_samples)))


class Price(NamedTuple):
    """Of work on W: steps by its columns, and its Gram matrix with direct solves."""

    step: float
    entries: float
    products: float
    size: int

    @classmethod
    def of(cls, n: int, across: Array | Integers, dense: bool) -> Price:
        """Return that of n lines, which have so many entries at each place."""
        counts = across.astype(float)
        return cls._of_sums(n, float(np.sum(counts)), float(counts @ counts), dense)

    @classmethod
    def at_least(cls, n: int, length: int, n_entries: int, dense: bool) -> Price:
        """Return what n lines of a length cost at least: what they would with as many entries at each place."""
        return cls._of_sums(n, n_entries, n_entries**2 / length, dense)

    @classmethod
    def _of_sums(cls, n: int, n_entries: float, n_products: float, dense: bool) -> Price:
        per_entry, to_gather, per_product = (0.5, 2.0, 0.04) if dense else (2.0, 12.0, 0.6)
        return cls(per_entry * n_entries / n + 50.0, to_gather * n_entries, per_product * n_products, n)

    @property
    def product(self) -> float:
        """Of a product with all lines, and one with their transpose."""
        return self.size * self.step

    def of_gram(self, n: int) -> float:
        """Of a Gram matrix of so many members of W, and descent and direct solves on it."""
        part = n / self.size
        return part * self.entries + part**2 * self.products + 60.0 * n**2 + 0.05 * n**3

    @property
    def of_factors(self) -> float:
        """Of the Gram matrix of all, and its factors."""
        return self.entries + self.products + 10.0 * self.size**2 + 0.02 * self.size**3


def dual_prices(design: Design, curved: bool) -> tuple[float, float]:
    """Of a sweep of dual coordinate descent, and of the rows for it where they are not there yet.

    Dense rows that outnumber the features depend on each other: sweeps would be many, and matrices by BLAS cost little.
    """
    if design.is_sparse:
        per_entry, to_rows = 3.5, 12.0
    else:
        per_entry, to_rows = 0.7 if design.n_samples <= design.n_features else math.inf, 2.0
    of_rows = 0.0 if design.has_rows else to_rows * design.nnz
    return per_entry * design.nnz + (90.0 if curved else 30.0) * design.n_samples, of_rows
