"""A stand-in for a Dask client: tasks run at once, in this process, on workers that are names only."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import dask


class Future:
    def __init__(self, value, worker):
        self.value, self.worker, self.key = value, worker, str(next(_KEYS))


_KEYS = itertools.count()


def _results(arguments):
    """Arguments, with what futures stand for in their place; a message or a part goes as bytes, as on a cluster."""
    if isinstance(arguments, Future):
        return arguments.value
    if isinstance(arguments, list | tuple):
        return [_results(argument) for argument in arguments]
    return arguments


class Client:
    """What `surestep.distributed` asks of a client."""

    def __init__(self, n_workers=2):
        self.workers = [f"worker-{k}" for k in range(n_workers)]
        self.turn = itertools.cycle(self.workers)
        self.n_tasks = 0

    def submit(self, function, *arguments, workers=None, **_):
        self.n_tasks += 1
        return Future(function(*_results(arguments)), workers[0] if workers else next(self.turn))

    def map(self, function, *iterables, **_):
        return [self.submit(function, *arguments) for arguments in zip(*iterables, strict=True)]

    def compute(self, delayed):
        return [Future(value, next(self.turn)) for value in dask.compute(*delayed, scheduler="synchronous")]

    def gather(self, futures):
        return _results(futures)

    def scatter(self, data, **_):
        return data

    def cancel(self, futures):
        pass

    def who_has(self, futures):
        return {future.key: (future.worker,) for future in futures}

    def nthreads(self):
        return dict.fromkeys(self.workers, 1)


def get_worker():
    return SimpleNamespace(address="here")
