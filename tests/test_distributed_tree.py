"""Sums along a tree of workers: what the coordinator hears does not grow with them, and whatever happens to some."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surestep as ss

pytest.importorskip("distributed", reason="data in row partitions need Dask, the extra [dask]")

import in_process
from surestep.distributed import _tree, cluster
from surestep.distributed._parts import Order, Part
from surestep.distributed._tree import Answer, added, branches
from test_distributed import lasso, n_fits, pair, wait_for

MANY = 100


@given(st.integers(0, 700), st.integers(2, 9))
def test_a_tree_has_everybody_once_in_order_and_is_no_deeper_than_it_must(n, fan):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tree, "FAN", fan)
        tree = branches([(f"worker-{k}", [f"part-{k}"]) for k in range(n)])
    assert [name for branch in tree for name in branch.names()] == [f"worker-{k}" for k in range(n)]

    def depth(level):
        assert len(level) <= fan
        assert all(branch.keys == [branch.name.replace("worker", "part")] for branch in level)
        return 1 + max(depth(branch.below) for branch in level) if level else 0

    least, room = 0, 0
    while room < n:
        least += 1
        room += fan**least
    assert depth(tree) == least


def test_answers_are_added_in_their_order():
    large, small = Answer(1e16, (), (), 0.5), Answer(1.0, ("a",), (), 2.0)
    minus, lost = Answer(-1e16, (), (), 1.0), Answer(None, (), ("b", "c"), 0.0)
    assert added([large, small, minus, lost]) == Answer((1e16 + 1.0) - 1e16, ("a",), ("b", "c"), 2.0)
    assert added([large, minus, small]) == Answer(1.0, ("a",), (), 2.0)
    assert added([lost]) == lost


class Jumbled(in_process.Client):
    """Answers come in any order."""

    def __init__(self, n_workers, seed):
        super().__init__(n_workers)
        self.rng = np.random.default_rng(seed)

    async def _told(self, *message):
        found = await super()._told(*message)
        for _ in range(self.rng.integers(20)):
            await asyncio.sleep(0)
        return found


def test_what_the_coordinator_hears_does_not_grow_with_the_workers():
    """A hundred workers: messages and bytes are those of eight, and nobody speaks to more than eight others."""
    problem = lasso(n=260, d=80)
    traffic = {}
    for n_workers in (_tree.FAN, MANY):
        client = Jumbled(n_workers, 0)
        local, parted = pair(problem, 130, client)
        result = ss.minimize(parted, tol=1e-11)
        sums, row = parted.partitions, result.trace.last
        here = [message for message in client.messages if message[0] == "here"]
        speakers = Counter((sender, receiver) for sender, receiver, *_ in client.messages)
        assert max(Counter(sender for sender, _ in speakers).values()) <= _tree.FAN
        assert {receiver for _, receiver in speakers} == set(client.workers)
        assert len(here) == (sums.exchanges + 1) * _tree.FAN  # and to end the fit
        assert sums.bytes_received == sum(message[3] for message in here)
        assert result.objective == pytest.approx(ss.minimize(local, tol=1e-11).objective, rel=1e-10)
        traffic[n_workers] = row
    few, many = traffic.values()
    assert many["exchanges"] == few["exchanges"]
    assert many["bytes_received"] == pytest.approx(few["bytes_received"], rel=0.02)
    # The names of all workers and parts, but a few bytes each.
    assert many["bytes_sent"] - few["bytes_sent"] <= many["exchanges"] * _tree.FAN * 12 * MANY


def test_sums_do_not_depend_on_who_answers_first():
    one, two = (ss.minimize(pair(lasso(), 30, Jumbled(30, seed))[1], tol=1e-10) for seed in (1, 2))
    np.testing.assert_array_equal(two.coef, one.coef)
    for name in ("objective", "gap", "working_set"):
        np.testing.assert_array_equal(two.trace[name], one.trace[name])


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_threads_of_a_worker_share_its_parts(loss):
    local, parted = pair(lasso(loss=loss, fit_intercept=True), 9, in_process.Client(n_workers=2, n_threads=3))
    assert ss.minimize(parted, tol=1e-12).objective == pytest.approx(ss.minimize(local, tol=1e-12).objective, rel=1e-11)


class Breaking(in_process.Client):
    """Every so often somebody in the middle of the tree is not reached, or goes once it has done what it was asked."""

    n_calls = 0

    async def _call(self, sender, name, function, args):
        self.n_calls += 1
        if self.n_calls % 11 == 3:
            raise OSError("no route")
        found = await super()._call(sender, name, function, args)
        if self.n_calls % 13 == 5:
            raise OSError("the connection broke")
        if self.n_calls % 17 == 7:  # and it comes anew, without what it had
            for future in self._futures.values():
                if future.worker == name and isinstance(future.value, Part):
                    future.value.fits.clear()
        return found


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_whoever_is_lost_in_the_middle_of_a_sum_is_asked_again(loss, monkeypatch):
    monkeypatch.setattr(_tree, "FAN", 2)
    client = Breaking(n_workers=9)
    local, parted = pair(lasso(loss=loss, fit_intercept=True), 20, client)
    result = ss.minimize(parted, tol=1e-12)
    assert client.n_calls > 100
    assert result.status.success
    assert result.objective == pytest.approx(ss.minimize(local, tol=1e-12).objective, rel=1e-11)


def test_what_fails_deep_in_the_tree_is_raised_and_the_fit_is_ended(monkeypatch):
    monkeypatch.setattr(_tree, "FAN", 2)
    _, parted = pair(lasso(), 9, in_process.Client(n_workers=9))
    serve = _tree.serve

    def fail(parts, order):
        if parts[0].number == 8 and order.fit and order.commands[-1][0] == "gradient":
            raise MemoryError("no room")
        return serve(parts, order)

    monkeypatch.setattr(_tree, "serve", fail)
    with pytest.raises(MemoryError, match="no room"):
        ss.minimize(parted)
    assert parted.partitions.each(n_fits) == [0] * 9


# --- A chain of real workers


@pytest.fixture(scope="module")
def client():
    with cluster(n_workers=3) as client:
        yield client


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_worker_that_is_killed_in_the_middle_of_a_sum(place, client, monkeypatch):
    """The one that is spoken to, the one it speaks to, or the last; it goes while it computes."""
    monkeypatch.setattr(_tree, "FAN", 1)
    local, parted = pair(lasso(fit_intercept=True), 6, client)
    before = ss.minimize(local, tol=1e-11)
    killed = []

    def kill(progress):
        if progress.row["epoch"] == 2 and not killed:
            groups = parted.partitions._placed
            name = sorted(groups, key=lambda name: groups[name][0])[place]
            killed.append(client.run(os.getpid, workers=[name])[name])
            client.run(dies_when_asked, parted.partitions.futures[groups[name][0]].key, workers=[name])

    result = ss.minimize(parted, tol=1e-11, callbacks=[kill])
    assert killed
    assert result.status is ss.Status.CONVERGED
    assert result.objective == pytest.approx(before.objective, rel=1e-10)
    assert max(parted.partitions.each(n_fits)) == 0
    wait_for(lambda: killed[0] not in client.run(os.getpid).values())
    client.wait_for_workers(3)


def dies_when_asked(key, dask_worker):
    """Let the worker die when its part is next asked for something."""
    dask_worker.data[key].__class__ = Deadly


class Deadly(Part):
    def take(self, order):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_chain_answers_once_for_all_its_workers(client, monkeypatch):
    local, parted = pair(lasso(n=90, loss="logistic"), 6, client)
    x, sums = np.full(local.n_coordinates, 0.01), parted.partitions

    def asked():
        before = sums.bytes_received
        np.testing.assert_allclose(parted.gradient(x), local.gradient(x), atol=1e-14)
        return sums.bytes_received - before

    each = asked()
    monkeypatch.setattr(_tree, "FAN", 1)
    n_workers = len([places for places in sums._placed.values() if places])
    assert n_workers > 1
    assert asked() == pytest.approx(each / n_workers, rel=0.01)


def test_what_fails_at_the_end_of_a_chain_is_raised(client, monkeypatch):
    monkeypatch.setattr(_tree, "FAN", 1)
    _, parted = pair(lasso(), 3, client)
    with pytest.raises(AttributeError, match="no_such_thing"):
        parted.partitions.exchange(Order(parted.spec, (("no_such_thing", ()),), "some fit", 0, ()))
