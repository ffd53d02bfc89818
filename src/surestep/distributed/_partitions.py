"""Data in row partitions that stay on the workers of a cluster, and exchanges with all of them."""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from surestep.distributed._clients import active_client
from surestep.distributed._parts import (
    Array,
    Order,
    Part,
    centred,
    column_sums,
    itself,
    label_weights,
    labels_of,
    number,
    summary,
    total,
)
from surestep.distributed._tree import Answer, Branch, added, answer, branches, end, packed
from surestep.problem import is_partitioned

logger = logging.getLogger("surestep")

# So many times in a row, with longer and longer breaks up to ten minutes in all, nobody may answer.
_PATIENCE = 55


class Partitions:
    """Data in parts, a Dask future each: Dask computes those anew that were on a worker which dies.

    An exchange is one message to each worker and one back, for all the parts it holds, along a tree (`_tree`). Parts
    are spread evenly over the workers, and stay where they are until a worker comes or goes. Sums are added up in an
    order given by the numbers of the parts and who holds them, never by who answers first.

    Attributes
    ----------
    client : distributed.Client
    futures : list of the parts that have any rows
    n_samples, n_features : int
    dtype : dtype of X
    is_sparse : bool, whether some of it is
    y_shape, y_kind : shape of y after its first dimension, and the kind of its dtype
    has_weights : bool
    exchanges, bytes_sent, bytes_received, seconds
        How often, how much (from and to here, without what Dask adds) and for how long, computing not counted, was
        communicated so far.
    """

    def __init__(self, client: Any, futures: list[Any]) -> None:
        self.client = client
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
        self.futures = [futures[k] for k in kept]
        self.n_samples: int = sum(found.n_samples for found in summaries)
        self.n_features: int = first.n_features
        self.dtype = np.result_type(*(summaries[k].dtype for k in kept))
        self.is_sparse = any(summaries[k].is_sparse for k in kept)
        self.y_shape, self.y_kind, self.has_weights = first.y_shape, first.y_kind, first.has_weights
        self.exchanges, self.bytes_sent, self.bytes_received, self.seconds = 0, 0, 0, 0.0
        self._workers: frozenset[str] = frozenset()
        self._placed: dict[str, list[int]] = {}
        self._is_placed = False  # or it has to be found out

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
        make, name = delayed(Part.of, pure=False), f"part-{uuid.uuid4().hex}"
        # Keys that begin alike are sent for little.
        parts = [make(k, *block, dask_key_name=f"{name}-{k}") for k, block in enumerate(zip(*blocks, strict=True))]
        return cls(client, client.compute(parts))

    @property
    def n_parts(self) -> int:
        """Number of parts that have any rows."""
        return len(self.futures)

    def labels(self) -> list[tuple[Array, Array]]:
        """Return the different labels in each part, and the row of the first of each."""
        return self.each(labels_of)

    def label_weights(self, labels: Array) -> Array:
        """Return the sum of the weights of all samples with each label."""
        return np.asarray(total(self.each(label_weights, labels)))

    def centred(self) -> tuple[Partitions, Array]:
        """Return dense data with the mean row taken off every row, and the mean row."""
        sums = total(self.each(column_sums))
        offset = (sums[:-1] / sums[-1]).astype(self.dtype)
        moved = [self.client.submit(centred, future, offset, pure=False) for future in self.futures]
        return Partitions(self.client, moved), offset

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what a function says of each part."""
        tasks = [self.client.submit(function, future, *arguments, pure=False) for future in self.futures]
        return list(self.client.gather(tasks))

    # --- Exchanges

    def exchange(self, order: Order, log: Callable[[], tuple[Any, ...]] = tuple) -> Any:
        """Have an order done with all parts; return the sum of the answers.

        ``log`` is asked for what brings parts to where the order finds them, if some are not there.
        """
        begin, computing, n_failures = time.perf_counter(), 0.0, 0
        waiting, values = set(range(self.n_parts)), []
        while waiting:
            groups = {name: [k for k in places if k in waiting] for name, places in self._placement().items()}
            groups = {name: places for name, places in groups.items() if places}
            found = self._asked(order, self._tree(groups))
            computing += found.seconds
            heard = groups.keys() - {*found.stale, *found.lost}
            if heard:
                values.append(found.value)
                waiting.difference_update(*(groups[name] for name in heard))
            if found.lost:  # somebody went, or lost something: look who is there, and has what
                self._is_placed = False
                n_failures = n_failures + 1 if len(found.lost) == len(groups) else 0
                if n_failures > _PATIENCE:
                    raise RuntimeError(f"none of the workers {', '.join(groups)} answers; see the logs of the cluster")
                time.sleep(0.01 * n_failures**2)  # it may take the scheduler a while to notice
            order = order._replace(log=log())
        self.exchanges += 1
        self.seconds += max(time.perf_counter() - begin - computing, 0.0)
        return total(values)

    def _tree(self, groups: dict[str, list[int]]) -> list[Branch]:
        """Arrange workers by the first of the parts they are asked for."""
        workers = sorted(groups, key=lambda name: groups[name][0])
        return branches([(name, [self.futures[k].key for k in groups[name]]) for name in workers])

    def _asked(self, order: Order, tree: list[Branch]) -> Answer:
        """Return the sum of the answers of the workers that are still there and have all that they are asked for."""
        from distributed.protocol.pickle import loads

        messages = packed(order), packed({branch.name: branch for branch in tree})
        self.bytes_sent += sum(map(len, messages)) * len(tree)
        found = self.client.run(answer, *messages, workers=[branch.name for branch in tree], on_error="return")
        answers = []
        for branch in tree:
            value = found.get(branch.name)
            if isinstance(value, Exception) and not isinstance(value, OSError):  # that is a worker which went
                raise value
            if isinstance(value, bytes):
                self.bytes_received += len(value)
                answers.append(loads(value))
            else:
                answers.append(Answer(None, (), tuple(branch.names()), 0.0))
        return added(answers)

    def forget(self, fit: str) -> None:
        """End a fit on the workers; parts that go elsewhere do not take it along."""
        try:
            there = self.client.nthreads()
            tree = self._tree({name: places for name, places in self._placed.items() if places and name in there})
            message = packed({branch.name: branch for branch in tree})
            self.client.run(end, fit, message, workers=[branch.name for branch in tree], on_error="ignore")
        except OSError as error:  # the cluster may be what failed; a fit ends with its parts at the latest
            logger.debug("a fit could not be ended on the workers: %s", error)

    # --- Who has what

    def look_around(self) -> None:
        """Place the parts anew if a worker came or went."""
        if frozenset(self.client.nthreads()) != self._workers:
            self._is_placed = False

    def _placement(self) -> dict[str, list[int]]:
        """Return workers, and the numbers of the parts that they hold and are asked for."""
        while not self._is_placed:
            self.each(number)  # Dask computes anew what was lost
            self._workers = frozenset(self.client.nthreads())
            holders = self.client.who_has(self.futures)
            held = [self._workers & frozenset(holders.get(future.key, ())) for future in self.futures]
            if all(held):  # else the scheduler is about to notice that somebody went
                self._placed, self._is_placed = self._spread(held), True
        return self._placed

    def _spread(self, held: list[frozenset[str]]) -> dict[str, list[int]]:
        """Give every worker as many parts as any other, those it holds first; have the rest brought to it."""
        room = math.ceil(self.n_parts / len(self._workers))
        placed: dict[str, list[int]] = {name: [] for name in sorted(self._workers)}

        def put(k: int, names: Iterable[str]) -> bool:
            name = min(names, key=lambda name: (len(placed[name]), name), default="")
            if name and len(placed[name]) < room:
                placed[name].append(k)
                return True
            return False

        rest = [k for k in range(self.n_parts) if not put(k, held[k])]
        for k in rest:
            put(k, placed)
        for name, places in placed.items():
            places.sort()
            for k in set(places) & set(rest):
                self.futures[k] = self.client.submit(
                    itself, self.futures[k], workers=[name], allow_other_workers=True, pure=False
                )
        self.each(number)
        return placed


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
    if not is_partitioned(values):
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
