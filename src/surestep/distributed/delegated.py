"""The crew that keeps computing margins for `stochastic_gradient_descent` with ``bounds="delegated"``.

Every part of the rows has a courier, a thread of this process that does the same again and again: take the newest
point, have the margins of its part computed there, put them where the solver finds them. On a cluster the part stays
with a worker, and only points and margins travel; without one the courier computes them itself, beside the solver.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep.bounds.margins import margins
from surestep.design import lines_between
from surestep.distributed._clients import leave_the_threads
from surestep.distributed._dealer import Dealer
from surestep.distributed._problem import PartitionedProblem
from surestep.lines import Dense, Sparse, n_lines
from surestep.problem import Problem
from surestep.solvers._sgd_blocks import StochasticGradientDescent
from surestep.solvers._sgd_dealt import DealtDescent

Array = NDArray[np.float64]

# So often in a row may a part fail before the run does.
_ATTEMPTS = 3


class Here:
    """Computes the margins of a part in the courier's own thread."""

    def __init__(self, rows: Dense | Sparse, has_intercept: bool) -> None:
        self._rows, self._has_intercept = rows, has_intercept

    def compute(self, x: Array) -> Array:
        """Return the margins at x."""
        return margins(self._rows, self._has_intercept, x)

    def stop(self) -> None:
        """Nothing to call off: it does not take long."""


class OnCluster:
    """Has the margins of a part computed by a Dask worker. If the part is lost with its worker, it is handed out again.

    Dask does not recover data that it did not make, so the rows are kept here as well.
    """

    def __init__(self, client: Any, rows: Dense | Sparse, has_intercept: bool) -> None:
        self._client, self._rows, self._has_intercept = client, rows, has_intercept
        self._placed = self._running = None
        self._stopped = False

    def compute(self, x: Array) -> Array:
        """Return the margins at x."""
        attempt = 1
        while True:
            try:
                return self._ask(x)
            except BaseException:  # futures that were cancelled raise no ordinary exception
                self._placed = None
                if self._stopped or attempt == _ATTEMPTS:
                    raise
                attempt += 1

    def stop(self) -> None:
        """Call off what is running, so that nobody waits for it, and have the worker forget the rows."""
        self._stopped = True
        for future in (self._running, self._placed):
            if future is not None:
                future.cancel()

    def _ask(self, x: Array) -> Array:
        if self._placed is None:
            self._placed = self._put(self._rows)
        future = self._running = self._client.submit(
            margins, self._placed, self._has_intercept, self._put(x), pure=False
        )
        if self._stopped:
            future.cancel()
        return np.asarray(future.result())

    def _put(self, value: Any) -> Any:
        return self._client.scatter([value], hash=False)[0]


class Couriers:
    """A thread for every part; see `surestep.bounds.delegated.Crew`. To be used in a ``with`` statement."""

    def __init__(self, parts: list[slice], sources: Sequence[Here | OnCluster]) -> None:
        self.parts, self._sources = parts, sources
        self._found: queue.SimpleQueue[tuple[int, Array, Array | BaseException]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._x: Array | None = None
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, args=task, name="surestep-margins", daemon=True)
            for task in enumerate(sources)
        ]

    def __enter__(self) -> Couriers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for source in self._sources:
            source.stop()
        for thread in self._threads:
            thread.join()

    def send(self, x: Array) -> None:
        """Replace the point that is taken by the next courier who is free."""
        with self._changed:
            self._x = x
            self._changed.notify_all()

    def arrived(self) -> list[tuple[int, Array, Array]]:
        """Return what couriers have brought since the last call; raise what has gone wrong."""
        found = []
        while not self._found.empty():
            part, x, z = self._found.get()
            if isinstance(z, BaseException):
                rows = self.parts[part]
                raise RuntimeError(
                    f"the margins of rows {rows.start} to {rows.stop - 1} could not be computed, in {_ATTEMPTS} "
                    f"attempts: {type(z).__name__}: {z}; do all workers have surestep, and memory for their rows?"
                ) from z
            found.append((part, x, z))
        return found

    def _run(self, part: int, source: Here | OnCluster) -> None:
        x = None
        while (x := self._next(x)) is not None:
            try:
                self._found.put((part, x, source.compute(x)))
            except BaseException as error:  # whatever it is, the solver is to hear of it
                if not self._closed:
                    self._found.put((part, x, error))
                return

    def _next(self, last: Array | None) -> Array | None:
        """Wait for a point other than the last one; None when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._x is not last)
            return None if self._closed else self._x


def delegated(problem: Problem, client: Any) -> tuple[type[StochasticGradientDescent], Any]:
    """Return the solver for a problem with rows here, or in partitions on a cluster, and who does it for the bounds."""
    if not isinstance(problem, PartitionedProblem):
        return StochasticGradientDescent, make_crew(problem.design.rows, problem.fit_intercept, client)
    if client not in (None, problem.partitions.client):
        raise ValueError("the rows of this problem are on a cluster already: client must be the one it was made with")
    return DealtDescent, Dealer(problem)


def make_crew(rows: Dense | Sparse, has_intercept: bool, client: Any) -> Couriers:
    """Split the rows among the workers of a Dask client, of the active one, or leave all to one thread of this process.

    There are as many parts as the cluster has threads.
    """
    n, client = int(n_lines(rows)), _active_client() if client is None else client
    if client is None:
        return Couriers([slice(0, n)], [Here(rows, has_intercept)])
    if not (hasattr(client, "scatter") and hasattr(client, "submit")) or client.asynchronous:
        raise ValueError(f"client must be a dask.distributed.Client that is not asynchronous, got {client!r}")
    leave_the_threads()
    edges = np.linspace(0, n, min(max(sum(client.nthreads().values()), 1), n) + 1).astype(int)
    parts = [slice(int(begin), int(end)) for begin, end in itertools.pairwise(edges)]
    lines = [lines_between(rows, part.start, part.stop) for part in parts]
    return Couriers(parts, [OnCluster(client, part, has_intercept) for part in lines])


def _active_client() -> Any:
    """Return the client that Dask would use, or None; Dask is not imported for it."""
    dask = sys.modules.get("distributed")
    try:
        return None if dask is None else dask.Client.current()
    except ValueError:  # there is none
        return None
