"""A stand-in for a Dask client: tasks run at once, in this process, on workers that are names only."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from types import SimpleNamespace

import dask


class Future:
    def __init__(self, value, worker):
        self.value, self.worker, self.key = value, worker, str(next(_KEYS))


_KEYS = itertools.count()


def _results(arguments):
    """Arguments, with what futures stand for in their place."""
    if isinstance(arguments, Future):
        return arguments.value
    if isinstance(arguments, list):
        return [_results(argument) for argument in arguments]
    return arguments


class Client:
    """What `surestep.distributed` asks of a client."""

    def __init__(self, n_workers=2):
        self.workers = [f"worker-{k}" for k in range(n_workers)]
        self._turn = itertools.cycle(self.workers)
        self._futures = {}
        self.n_runs = 0

    def _put(self, value, worker=None):
        future = Future(value, worker or next(self._turn))
        self._futures[future.key] = future
        return future

    def submit(self, function, *arguments, workers=(None,), **_):
        return self._put(function(*_results(list(arguments))), workers[0])

    def map(self, function, *iterables, **_):
        return [self.submit(function, *arguments) for arguments in zip(*iterables, strict=True)]

    def compute(self, delayed):
        return [self._put(value) for value in dask.compute(*delayed, scheduler="synchronous")]

    def gather(self, futures):
        return _results(futures)

    def who_has(self, futures):
        return {future.key: (future.worker,) for future in futures}

    def nthreads(self):
        return dict.fromkeys(self.workers, 1)

    def run(self, function, *arguments, workers, on_error):
        self.n_runs += 1
        return {name: self._run(function, *arguments, dask_worker=self._worker(name)) for name in workers}

    def _worker(self, name):
        data = {key: future.value for key, future in self._futures.items() if future.worker == name}
        return SimpleNamespace(address=name, data=data, executors={"default": None})

    def _run(self, function, *arguments, dask_worker):
        found = function(*arguments, dask_worker=dask_worker)
        return asyncio.run(found) if inspect.iscoroutine(found) else found
