"""All that the fast solver does with rows: sums over them, and the state of a fit that is as long as they are.

What the solver asks for is a number or a vector as long as the columns, and adds up over any parts of the rows; the
rest of it never sees a row. So the rows may be in this process (`LocalSamples`), or in parts elsewhere
(`surestep.distributed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from surestep.regularizers import Separable
from surestep.solvers._columns import Until

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class Samples(Protocol):
    """The rows of a problem, wherever they are, and a fit over them: z, the quadratic model, a move.

    ``whole``: all rows are in one place, so that steps which read one column at a time can be done there.
    """

    @property
    def whole(self) -> bool: ...

    def lengths(self) -> Integers:
        """Number of stored entries of every column."""

    def n_entries(self) -> int:
        """Number of stored entries of all features."""

    def restart(self, x: Array) -> None:
        """Set z = X x."""

    def shift_sums(self, b: float) -> Sequence[float] | Array:
        """See `problem.shift_sums`."""

    def shift(self, b: float) -> None:
        """z += b."""

    def residuals(self) -> Sequence[float] | Array:
        """Take r at the present z; return the squares of the distance from the last one, and of its size."""

    def take(self, u: Array) -> None:
        """Take r_i = s_i u_i, where the rows are whole."""

    def gradient(self, listed: Integers) -> Array:
        """<a_j, r> of some columns."""

    def loss_terms(self, tau: float) -> Sequence[float] | Array:
        """See `_look.loss_terms`."""

    def add(self, members: Integers, change: Array) -> None:
        """z += sum_j change_j a_j."""

    def bend(self, least: float, caution: float = 0.0, slack: float = 0.0) -> None:
        """Take the curvatures at the present z for d, see `_look.curvatures`."""

    def model_gradient(self, members: Integers) -> Array:
        """Gradient entries of some coordinates at the present z."""

    def aim(self, members: Integers, change: Array) -> None:
        """move = sum_j change_j a_j."""

    def slopes(self, *ts: float) -> Sequence[float] | Array:
        """Derivatives of the mean loss at z + t move, in t."""

    def go(self, t: float) -> None:
        """z += t move."""

    def diagonal(self) -> Array:
        """|a_j|_d^2 of all columns."""

    def curved(self, v: Array) -> Array:
        """A^T diag(d) A v."""

    def matrix(self, members: Integers) -> Array:
        """Gram matrix of some coordinates, those of the last time first; see `Gram.of`."""

    def model_matrix(self, members: Integers) -> Array:
        """Return that matrix, or one that is near it and takes less time."""

    def is_dear(self) -> bool:
        """Whether the Gram matrix of all features takes longer than many steps by one that is near."""

    def is_rounded(self) -> bool:
        """Whether `model_matrix` is in single precision for a quadratic loss, too."""

    def learn(self, step: Array, difference: Array) -> None:
        """Let the latter learn from what a step has changed the gradient of its coordinates by."""

    def pays(self, members: Integers, growing: bool) -> bool:
        """Whether a Gram matrix pays for these; see `_prices.pays`."""

    def descend(self, reg: Separable, members: Integers, x: Array, g: Array, until: Until) -> tuple[Array, int]:
        """Minimise the model with gradient g at x by its columns, where rows are whole; return where, and the steps."""

    def are_short(self) -> bool:
        """Whether rows are whole, dense, and few beside the features: then `minimise_on` serves best."""

    def minimise_on(
        self, reg: Separable, members: Integers, x: Array, least: float, caution: float, enough: float, near: float
    ) -> tuple[Array, int, float]:
        """See `minimise_on_short`; return where, the steps, and the caution of the next model."""

    def prices(self, matrix: str, exactly: bool) -> tuple[float, float]:
        """Nanoseconds of `curved`, and of the matrix for a direct solve over the "features" or the "samples".

        The latter at least, unless ``exactly``: to count entries across the lines that are there takes a while.
        """

    def dual_prices(self) -> tuple[float, float, float]:
        """See `_prices.dual_prices`, where the rows are whole; and sum_i s_i |a_i|^2, by which sweeps are many."""

    def minimise_by_dual(
        self, l2: float, b: float, enough: float, max_sweeps: float
    ) -> tuple[Array, Array, int, float, float]:
        """See `Dual.minimise` and `Dual.hidden`, where the rows are whole; from the intercept b on."""

    def minimise_over_samples(self, l2: Array, enough: float) -> Array:
        """See `OverSamples.minimise`, where the rows are whole."""

    def solve_over_samples(self, l2: Array, c: Array) -> Array:
        """Do a Newton step by `OverSamples`, where the rows are whole."""

    def columns(self) -> dict[str, float]:
        """Return what it adds to a row of the trace."""
