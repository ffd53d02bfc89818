"""The rows of a fit, where they are in parts on the workers of a cluster: `Samples` by exchanges with all of them."""

from __future__ import annotations

import math
import uuid
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep.distributed._parts import Command, Order, lower
from surestep.distributed._problem import PartitionedProblem
from surestep.regularizers import Separable
from surestep.solvers._columns import Until
from surestep.solvers._gram import Gram, mirror
from surestep.solvers._local import samples_of
from surestep.solvers._samples import Samples

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@samples_of.register(PartitionedProblem)
def _(problem: PartitionedProblem, n_threads: int | None) -> AbstractContextManager[Samples]:
    return PartitionedSamples(problem)


class PartitionedSamples(AbstractContextManager[Samples]):
    """A fit over parts of the rows.

    What only changes the state of the fit is kept until something is asked, and goes along with it. Whatever is needed
    to bring a new worker to where the others are is known here: the point of the last look, and what was done since.
    """

    def __init__(self, problem: PartitionedProblem) -> None:
        self._partitions, self._spec = problem.partitions, problem.spec
        self._fit, self._version = uuid.uuid4().hex, 0
        self._pending: list[Command] = []
        self._log: list[Command] = []
        self._x = np.zeros(problem.n_coordinates)  # z is, but for rounding, that of this point
        self._short = np.uint32 if problem.n_coordinates < 2**32 else np.int64  # that is enough for an index
        self._aimed: tuple[Integers, Array] = np.empty(0, np.int64), np.empty(0)
        self._members = np.empty(0, np.int64)
        self._known: dict[float, float] = {}  # slopes that were asked for along with others
        self._before = self._communicated()
        self.whole = problem.partitions.n_parts == 1
        self._curved = not isinstance(problem.loss, losses.Squared)
        self._gram = Gram(self)

    def __enter__(self) -> Samples:
        return self  # so that mypy sees whether it has all of the protocol

    def __exit__(self, *_: object) -> None:
        self._partitions.forget(self._fit)

    def _tell(self, name: str, *arguments: Any) -> None:
        self._pending.append((name, arguments))

    def _ask(self, name: str, *arguments: Any) -> Any:
        commands = (*self._pending, (name, arguments))
        order = Order(self._spec, commands, self._fit, self._version, None if self._version else ())
        answer = self._partitions.exchange(order, lambda: tuple(self._log))
        self._version += 1
        self._log += self._pending
        self._pending = []
        return answer

    # --- Where the fit stands

    def lengths(self) -> Integers:
        return np.asarray(self._ask("lengths"))

    def n_entries(self) -> int:
        return int(self._ask("n_entries"))

    def restart(self, x: Array) -> None:
        self._x = x.copy()
        self._tell("restart", x.copy())

    def shift_sums(self, b: float) -> Any:
        return self._ask("shift_sums", b)

    def shift(self, b: float) -> None:
        self._x[-1] += b
        self._tell("shift", b)

    def residuals(self) -> Any:
        self._partitions.look_around()
        squares = self._ask("residuals")
        self._log = [("restart", (self._x.copy(),)), ("residuals", ())]
        if self._members.size:
            self._log.append(("join", (self._members,)))
        return squares

    def take(self, u: Array) -> None:
        self._tell("take", u)

    def gradient(self, listed: Integers) -> Array:
        return np.asarray(self._ask("gradient", listed.astype(self._short)))

    def loss_terms(self, tau: float) -> Any:
        return self._ask("loss_terms", tau)

    # --- The quadratic model

    def bend(self, least: float, caution: float = 0.0, slack: float = 0.0) -> None:
        self._tell("bend", least, caution, slack)

    def model_gradient(self, members: Integers) -> Array:
        return np.asarray(self._ask("model_gradient", members))

    def matrix(self, members: Integers) -> Array:
        return self._asked_for("matrix", members) if self.whole else self._gram.of(members)

    def model_matrix(self, members: Integers) -> Array:
        return self._asked_for("model_matrix", members) if self.whole else self._gram.of(members)

    def _asked_for(self, name: str, members: Integers) -> Array:
        """Return a matrix that the worker keeps."""
        matrix = np.zeros((members.size, members.size))
        matrix[lower(*matrix.shape)] = self._ask(name, members)
        mirror(matrix, 0)
        return matrix

    def is_dear(self) -> bool:
        return bool(self._ask("is_dear")) if self.whole else False

    def is_rounded(self) -> bool:
        return bool(self._ask("is_rounded")) if self.whole else False

    def learn(self, step: Array, difference: Array) -> None:
        if self.whole:  # elsewhere it is the matrix of all rows
            self._tell("learn", step, difference)

    def renew(self, lines: Array) -> bool:
        """See `Source`: what has changed is not known here."""
        return not self._curved

    def join(self, new: Integers) -> None:
        """See `Source`."""
        self._members = np.concatenate([self._members, new])
        self._tell("join", new)

    def add_lines(self, first: int, out: Array) -> None:
        """See `Source`."""
        n = first + out.shape[0]
        out[:, :n][lower(out.shape[0], n)] += self._ask("lines", first, n)

    def diagonal(self) -> Array:
        return np.asarray(self._ask("diagonal"))

    def curved(self, v: Array) -> Array:
        return np.asarray(self._ask("curved", v))

    def pays(self, members: Integers, growing: bool) -> bool:
        return bool(self._ask("pays", members, growing)) if self.whole else True

    def descend(self, reg: Separable, members: Integers, x: Array, g: Array, until: Until) -> tuple[Array, int]:
        after, n_steps = self._ask("descend", reg, members, x, g, until)
        return after, n_steps

    def are_short(self) -> bool:
        return bool(self._ask("are_short")) if self.whole else False

    def minimise_on(
        self, reg: Separable, members: Integers, x: Array, least: float, caution: float, enough: float, near: float
    ) -> tuple[Array, int, float]:
        after, n_steps, caution = self._ask("minimise_on", reg, members, x, least, caution, enough, near)
        return np.asarray(after), n_steps, caution

    def prices(self, matrix: str, exactly: bool) -> tuple[float, float]:
        if self.whole:
            of_product, of_matrix = self._ask("prices", matrix, exactly)
            return of_product, of_matrix
        return math.inf, 0.0  # a product is an exchange with all workers

    def dual_prices(self) -> tuple[float, float, float]:
        of_sweep, of_rows, square = self._ask("dual_prices")
        return of_sweep, of_rows, square

    def minimise_by_dual(
        self, l2: float, b: float, enough: float, max_sweeps: float
    ) -> tuple[Array, Array, int, float, float]:
        x, u, n_steps, gap, hidden = self._ask("minimise_by_dual", l2, b, enough, max_sweeps)
        return np.asarray(x), np.asarray(u), n_steps, gap, hidden

    def minimise_over_samples(self, l2: Array, enough: float) -> Array:
        return np.asarray(self._ask("minimise_over_samples", l2, enough))

    def solve_over_samples(self, l2: Array, c: Array) -> Array:
        return np.asarray(self._ask("solve_over_samples", l2, c))

    # --- A step

    def add(self, members: Integers, change: Array) -> None:
        moved = change != 0.0
        self._x[members[moved]] += change[moved]
        self._tell("add", members[moved], change[moved])

    def aim(self, members: Integers, change: Array) -> None:
        moved = change != 0.0
        self._aimed, self._known = (members[moved], change[moved]), {}
        self._tell("aim", *self._aimed)

    def slopes(self, *ts: float) -> list[float]:
        unknown = [t for t in ts if t not in self._known]
        if unknown:
            more = [0.5] if 1.0 in unknown else []  # it is often asked for next
            self._known.update(zip(unknown + more, self._ask("slopes", *unknown, *more), strict=True))
        return [self._known[t] for t in ts]

    def go(self, t: float) -> None:
        self._x[self._aimed[0]] += t * self._aimed[1]
        self._known = {}
        self._tell("go", t)

    # --- What it takes

    def _communicated(self) -> Array:
        counted = self._partitions
        return np.array([counted.exchanges, counted.bytes_sent, counted.bytes_received, counted.seconds])

    def columns(self) -> dict[str, float]:
        names = ("exchanges", "bytes_sent", "bytes_received", "communication")
        return dict(zip(names, (self._communicated() - self._before).tolist(), strict=True))
