"""Data in row partitions that stay on the workers of a cluster, and exchanges with all of them."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from surestep.distributed._clients import active_client
from surestep.distributed._parts import Answer, Array, Order, Part, centred, column_sums, forget, serve, summary, total

logger = logging.getLogger("surestep")

# An order larger than this is handed to the workers before the tasks that need it, which go through the scheduler.
_LARGE = 1 << 20


class Partitions:
    """Data in parts, a Dask future each: Dask computes those anew that were on a worker which dies.

    An exchange is one task a worker, for all the parts it holds. Parts are spread evenly over the workers, and stay
    where they are until a worker comes or goes.

    Attributes
    ----------
    n_samples, n_features : int
    dtype : dtype of X
    y_shape, y_kind : shape of y after its first dimension, and the kind of its dtype
    has_weights : bool
    exchanges, bytes_sent, bytes_received, seconds
        How often, how much (without what Dask adds) and for how long, computing not counted, was communicated so far.
    """

    def __init__(self, client: Any, futures: list[Any]) -> None:
        self._client = client
        summaries = client.gather(client.map(summary, futures, pure=False))
        kept = [k for k, found in enumerate(summaries) if found.n_samples > 0]
        if not kept:
            raise ValueError("X must have at least one row, but all of its partitions are empty")
        first = summaries[kept[0]]
        for k in kept:
            for name, what in (("n_features", "columns"), ("y_shape", "targets (shape of y)")):
                found, expected = getattr(summaries[k], name), getattr(first, name)
                if found != expected:
                    raise ValueError(
                        f"partition {k} has {found} {what}, but partition {kept[0]} has {expected}; "
                        "all partitions must have the same"
                    )
        self._futures = [futures[k] for k in kept]
        self.n_samples: int = sum(found.n_samples for found in summaries)
        self.n_features: int = first.n_features
        self.dtype = np.result_type(*(summaries[k].dtype for k in kept))
        self.y_shape, self.y_kind, self.has_weights = first.y_shape, first.y_kind, first.has_weights
        self.exchanges, self.bytes_sent, self.bytes_received, self.seconds = 0, 0, 0, 0.0
        self._workers: frozenset[str] = frozenset()
        self._placed: dict[str, list[Any]] = {}

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: Any = None, client: Any = None) -> Partitions:
        """Have dask collections checked and held by the workers; see `surestep.Problem`."""
        client = active_client(client)
        from dask import delayed

        rows, X = _row_partitions(X)
        blocks = [rows, _aligned("y", y, X, len(rows))]
        if sample_weight is None:
            blocks.append([None] * len(rows))
        else:
            blocks.append(_aligned("sample_weight", sample_weight, X, len(rows)))
        make = delayed(Part.of, pure=False)
        return cls(client, client.compute([make(k, *block) for k, block in enumerate(zip(*blocks, strict=True))]))

    @property
    def n_parts(self) -> int:
        """Number of parts that have any rows."""
        return len(self._futures)

    def centred(self) -> tuple[Partitions, Array]:
        """Return dense data with the mean row taken off every row, and the mean row."""
        sums = total(self.each(column_sums))
        offset = (sums[:-1] / sums[-1]).astype(self.dtype)
        moved = [self._client.submit(centred, future, offset, pure=False) for future in self._futures]
        return Partitions(self._client, moved), offset

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what a function says of each part."""
        tasks = [self._client.submit(function, future, *arguments, pure=False) for future in self._futures]
        return list(self._client.gather(tasks))

    # --- Exchanges

    def exchange(self, order: Order, log: Callable[[], tuple[Any, ...]] = tuple) -> Any:
        """Have an order done with all parts; return the sum of the answers.

        ``log`` is asked for what brings parts to where the order finds them, if some are not there.
        """
        begin, computing = time.perf_counter(), 0.0
        waiting = self._placement()
        values = []
        while waiting:
            answers = self._asked(order, waiting)
            # A worker is alone with its part of the time, and the others with theirs: the slowest is waited for.
            computing += max(answer.seconds for answer in answers)
            values += [answer.value for answer in answers if not answer.missing]
            waiting = {name: waiting[name] for name, answer in zip(waiting, answers, strict=True) if answer.missing}
            order = order._replace(log=log())
        self.exchanges += 1
        self.seconds += max(time.perf_counter() - begin - computing, 0.0)
        return total(values)

    def _asked(self, order: Order, groups: dict[str, list[Any]]) -> list[Answer]:
        """Have an order done by some workers."""
        from distributed.protocol.pickle import dumps, loads

        message: Any = dumps(order)
        self.bytes_sent += len(message) * len(groups)
        if len(message) > _LARGE:
            message = self._client.scatter(message, broadcast=True, hash=False)
        tasks = [
            # Dask lets a task go to another worker where this one is no more, with the parts it needs.
            self._client.submit(_serve, parts, message, workers=[name], allow_other_workers=True, pure=False)
            for name, parts in groups.items()
        ]
        try:
            answers = self._client.gather(tasks)
        except BaseException:
            self._client.cancel(tasks)
            raise
        if any(where != name for name, (where, _) in zip(groups, answers, strict=True)):
            self._workers = frozenset()  # somebody went: look who is there
        self.bytes_received += sum(len(answer) for _, answer in answers)
        return [loads(answer) for _, answer in answers]

    def forget(self, fit: str) -> None:
        """End a fit on the workers that are there; parts that go elsewhere do not take it along."""
        try:
            present = self._client.nthreads()
            self._client.gather(
                [
                    self._client.submit(forget, parts, fit, workers=[name], allow_other_workers=True, pure=False)
                    for name, parts in self._placed.items()
                    if name in present
                ]
            )
        except Exception as error:  # the cluster may be what failed; a fit ends with its parts at the latest
            logger.debug("a fit could not be ended on the workers: %s", error)

    def look_around(self) -> None:
        """Place the parts anew if a worker came or went."""
        present = frozenset(self._client.nthreads())
        if present != self._workers:
            self._workers, self._placed = present, self._spread(sorted(present))

    def _placement(self) -> dict[str, list[Any]]:
        """Return workers and the parts they are asked for."""
        if not self._workers:
            self.look_around()
        return self._placed

    def _spread(self, workers: list[str]) -> dict[str, list[Any]]:
        """Give every worker as many parts as any other, those it holds first."""
        if not workers:
            raise RuntimeError("the cluster has no workers")
        holders = self._client.who_has(self._futures)
        load: Counter[str] = Counter()
        room = math.ceil(self.n_parts / len(workers))
        chosen: dict[int, str] = {}
        for k, future in enumerate(self._futures):
            near = [name for name in holders.get(future.key, ()) if name in workers and load[name] < room]
            if near:
                chosen[k] = min(near, key=load.__getitem__)
                load[chosen[k]] += 1
        for k in range(self.n_parts):
            if k not in chosen:
                chosen[k] = min(workers, key=load.__getitem__)
                load[chosen[k]] += 1
        groups: dict[str, list[Any]] = {}
        for k in range(self.n_parts):
            groups.setdefault(chosen[k], []).append(self._futures[k])
        return groups


def _serve(parts: Iterable[Part], message: bytes) -> tuple[str, bytes]:
    """Return the worker's name, and its answer; both ways as bytes, which are counted."""
    from distributed import get_worker
    from distributed.protocol.pickle import dumps, loads

    return get_worker().address, dumps(serve(parts, loads(message)))


def _row_partitions(X: Any) -> tuple[list[Any], Any]:
    """Return the row partitions of X, to be computed, and X with whole rows in each."""
    if len(X.shape) != 2:
        raise ValueError(f"X must be two-dimensional, (n_samples, n_features), but has shape {X.shape}")
    if not hasattr(X, "rechunk"):
        return list(X.to_delayed()), X
    if X.numblocks[1] > 1:
        X = X.rechunk({1: X.shape[1]})
    return list(X.to_delayed().ravel()), X


def _aligned(name: str, values: Any, X: Any, n_parts: int) -> list[Any]:
    """Return the partitions of y or of the weights that go with those of X."""
    import dask.array

    lengths = X.chunks[0] if hasattr(X, "chunks") else (math.nan,)
    known = not any(map(math.isnan, lengths))
    if not type(values).__module__.startswith("dask."):
        if not known:
            raise ValueError(f"{name} must be a dask collection, because the lengths of the partitions are not known")
        values = np.asarray(values)
        if values.shape[:1] != (sum(lengths),):
            raise ValueError(f"{name} must have one value for each of the {sum(lengths)} rows, but is {values.shape}")
        values = dask.array.from_array(values, chunks=(lengths, *values.shape[1:]))
    if hasattr(values, "rechunk"):
        own = values.chunks[0]
        if known and not any(map(math.isnan, own)):
            if sum(own) != sum(lengths):
                raise ValueError(f"{name} has {sum(own)} values, but X has {sum(lengths)} rows")
            values = values.rechunk({0: lengths})
        if values.ndim == 2:
            values = values.rechunk({1: values.shape[1]})
        parts = list(values.to_delayed().ravel())
    else:
        parts = list(values.to_delayed())
    if len(parts) != n_parts:
        raise ValueError(f"{name} has {len(parts)} partitions, but X has {n_parts}; they must go together")
    return parts
