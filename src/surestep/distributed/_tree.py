"""How an order comes to all workers, and their answers become one: along a tree of workers.

The coordinator speaks to no more than `FAN` workers, each of which passes the order on to as many, and adds their
answers to its own before it answers. So what the coordinator sends and receives does not grow with the workers, nor
does what any of them has to hold. Up to `FAN` workers, there is nothing to pass on.

Messages and not tasks, which take several times as long to come and go: `Client.run` to the first workers, and from
there what stands behind it, the call "run" from one Dask server to another.
"""

from __future__ import annotations

import asyncio
import itertools
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from surestep.distributed._parts import Part, Served, serve, total

# Workers that one speaks to, at most.
FAN = 8


class Branch(NamedTuple):
    """A worker, the keys of the parts it is asked for, and the branches that it asks."""

    name: str
    keys: list[str]
    below: list[Branch]

    def names(self) -> list[str]:
        """Return all workers of the branch."""
        return [self.name, *(name for branch in self.below for name in branch.names())]


def branches(workers: Sequence[tuple[str, list[str]]]) -> list[Branch]:
    """Arrange workers, each with its keys, as a tree: from branch to branch in the order they are given in."""
    n = min(FAN, len(workers))
    edges = [len(workers) * k // n for k in range(n + 1)] if n else []
    return [Branch(*workers[begin], branches(workers[begin + 1 : end])) for begin, end in itertools.pairwise(edges)]


class Answer(NamedTuple):
    """The sum over the parts of some workers.

    ``stale`` and ``lost`` are those not in it: the fit does not stand where the order finds it, or somebody went, or
    lost a part. ``seconds`` is what the slowest computed for; they do so at the same time.
    """

    value: Any
    stale: tuple[str, ...]
    lost: tuple[str, ...]
    seconds: float


def added(answers: Iterable[Answer]) -> Answer:
    """Return the sum of answers, in their order."""
    answers = list(answers)
    values = [found.value for found in answers if found.value is not None]
    return Answer(
        total(values) if values else None,
        tuple(name for found in answers for name in found.stale),
        tuple(name for found in answers for name in found.lost),
        max((found.seconds for found in answers), default=0.0),
    )


def packed(value: Any) -> bytes:
    """Return what goes to workers: points have many zeros, lists of columns long runs, and keys begin alike."""
    from distributed.protocol.pickle import dumps

    return zlib.compress(dumps(value), level=1)


def unpacked(message: bytes) -> Any:
    """Return what was packed."""
    from distributed.protocol.pickle import loads

    return loads(zlib.decompress(message))


# --- On the workers


async def answer(order: bytes, tree: bytes, dask_worker: Any) -> bytes:
    """Answer an order for a branch; computing is done where the tasks of the worker run too.

    Orders and answers go as bytes, which are counted.
    """
    branch: Branch = unpacked(tree)[dask_worker.address]
    own, *others = await asyncio.gather(
        _own(order, branch, dask_worker), *_passed_on(answer, order, branch, dask_worker)
    )
    if not others:
        return _written(branch, own, [])
    found: bytes = await _compute(dask_worker, _written, branch, own, others)
    return found


async def end(fit: str, tree: bytes, dask_worker: Any) -> None:
    """End a fit on a branch."""
    branch: Branch = unpacked(tree)[dask_worker.address]
    for key in branch.keys:
        part = dask_worker.data.get(key)
        if part is not None:
            part.end(fit)
    await asyncio.gather(*_passed_on(end, fit, branch, dask_worker))


async def _own(order: bytes, branch: Branch, dask_worker: Any) -> Answer:
    """Serve the parts of a worker, some by each of its threads."""
    parts = [dask_worker.data.get(key) for key in branch.keys]
    if any(part is None for part in parts):
        return Answer(None, (), (branch.name,), 0.0)
    n = min(dask_worker.state.nthreads, len(parts))
    edges = [len(parts) * k // n for k in range(n + 1)]
    served = await asyncio.gather(
        *(_compute(dask_worker, _served, parts[begin:end], order) for begin, end in itertools.pairwise(edges))
    )
    seconds = max(found.seconds for found in served)
    if any(found.is_stale for found in served):
        return Answer(None, (branch.name,), (), seconds)
    return Answer(total([found.value for found in served]), (), (), seconds)


async def _compute(dask_worker: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(dask_worker.executors["default"], function, *arguments)


def _written(branch: Branch, own: Answer, others: list[bytes | None]) -> bytes:
    """Return the answer of a branch, from what the worker has found and what came from below."""
    from distributed.protocol.pickle import dumps, loads

    below = [
        Answer(None, (), tuple(asked.names()), 0.0) if found is None else loads(found)
        for asked, found in zip(branch.below, others, strict=True)
    ]
    answer: bytes = dumps(added([own, *below]))
    return answer


def _served(parts: list[Part], order: bytes) -> Served:
    return serve(parts, unpacked(order))


def _passed_on(function: Callable[..., Any], message: Any, branch: Branch, dask_worker: Any) -> list[Any]:
    """Have a function run by the workers below; what is to be awaited is None where a worker went."""
    from distributed.core import clean_exception
    from distributed.protocol.pickle import dumps

    async def asked(below: Branch) -> Any:
        arguments = dumps((message, packed({below.name: below})))
        try:
            found = await dask_worker.rpc(below.name).run(function=dumps(function), args=arguments)
        except OSError:
            return None
        if found["status"] == "error":
            _, error, _ = clean_exception(**found)
            assert error is not None
            raise error
        return found["result"]

    return [asked(below) for below in branch.below]
