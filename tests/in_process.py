"""A stand-in for a Dask client: tasks run at once, in the thread that asks, on workers that are names only."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import weakref
from types import SimpleNamespace

import dask
from distributed.protocol.pickle import loads


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

    def __init__(self, n_workers=2, n_threads=1):
        self.workers = [f"worker-{k}" for k in range(n_workers)]
        self._turn = itertools.cycle(self.workers)
        self._futures, self._lock = weakref.WeakValueDictionary(), threading.Lock()
        self.n_runs, self.n_threads = 0, n_threads
        self.messages = []  # sender, receiver, bytes there, bytes back

    def _put(self, value, worker=None):
        with self._lock:
            future = Future(value, worker or next(self._turn))
            self._futures[future.key] = future
        return future

    def submit(self, function, *arguments, workers=(None,), **_):
        return self._put(function(*_results(list(arguments))), workers[0])

    def map(self, function, *iterables, **_):
        return [self.submit(function, *arguments) for arguments in zip(*iterables, strict=True)]

    def compute(self, delayed):
        return [self._put(value) for value in dask.compute(*delayed, scheduler="synchronous")]

    def cancel(self, futures):
        """Nothing is ever under way."""

    def gather(self, futures):
        return _results(futures)

    def who_has(self, futures):
        return {future.key: (future.worker,) for future in futures}

    def nthreads(self):
        return dict.fromkeys(self.workers, 1)

    def run(self, function, *arguments, workers, on_error):
        self.n_runs += 1
        return {name: self._run("here", name, function, *arguments) for name in workers}

    def _run(self, sender, name, function, *arguments):
        return asyncio.run(self._told(sender, name, function, arguments))

    async def _told(self, sender, name, function, arguments):
        """What a worker says to a message; who sent how much to whom is written down."""
        found = function(*arguments, dask_worker=self._worker(name))
        found = await found if inspect.iscoroutine(found) else found
        n_sent, n_received = (sum(len(value) for value in said if value) for said in (arguments, [found]))
        self.messages.append((sender, name, n_sent, n_received))
        return found

    def _worker(self, name):
        with self._lock:
            data = {key: future.value for key, future in self._futures.items() if future.worker == name}
        return SimpleNamespace(
            address=name,
            data=data,
            executors={"default": None},
            state=SimpleNamespace(nthreads=self.n_threads),
            rpc=lambda other: SimpleNamespace(run=lambda function, args: self._call(name, other, function, args)),
        )

    async def _call(self, sender, name, function, args):
        """The message "run" from one worker to another."""
        try:
            return {"status": "OK", "result": await self._told(sender, name, loads(function), loads(args))}
        except OSError:
            raise
        except Exception as error:
            return {"status": "error", "exception": error}
