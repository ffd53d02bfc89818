"""Clients of a Dask cluster: the one that is active, or one for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

_MISSING = "data in row partitions need Dask: pip install 'surestep[dask]'"


def active_client(client: Any = None) -> Any:
    """Return the client given, or else the active one.

    In a task of the cluster, the task leaves its place among the threads of its worker, as Dask wants of tasks that
    wait for others: with one thread, the parts on that worker would wait for the task, and the task for them.
    """
    try:
        from distributed import get_client
    except ImportError as error:
        raise ImportError(_MISSING) from error
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise ValueError(
                "data in row partitions need a Dask cluster, and no client is active: make a distributed.Client, "
                "or say `with surestep.distributed.cluster(n_workers=2):`"
            ) from None
    if getattr(client, "asynchronous", False):
        raise ValueError(f"data in row partitions need a client that is not asynchronous, got {client!r}")
    leave_the_threads()
    return client


def leave_the_threads() -> None:
    """In a task of a cluster, give its thread back to the worker; elsewhere, or if that is done, do nothing."""
    from distributed import secede
    from distributed.worker import thread_state

    if hasattr(thread_state, "start_time"):  # as Dask itself tells whether a task runs in this thread
        with suppress(KeyError):  # it has left
            secede()


@contextmanager
def cluster(address: str | None = None, *, n_workers: int | None = None) -> Iterator[Any]:
    """Make a client the active one for a while.

    Parameters
    ----------
    address : str, optional
        Of the scheduler, such as "tcp://10.0.0.1:8786". The cluster is left running.
    n_workers : int, optional
        Without an address: that many processes on this machine, of one thread each, which end with the block.

    Yields
    ------
    distributed.Client
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError(_MISSING) from error
    if (address is None) == (n_workers is None):
        raise ValueError("say either the address of a scheduler or n_workers, for processes on this machine")
    if address is not None:
        with Client(address) as client:
            yield client
        return
    # Any free port for the dashboard: two clusters on one machine must not be in each other's way.
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n_workers, **options) as workers, Client(workers) as client:
        yield client
