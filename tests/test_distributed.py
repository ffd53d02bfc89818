"""The same solver on row partitions: bit for bit with one, to rounding with many, and whatever happens to workers."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import time

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss
from surestep.datasets import save_svmlight
from surestep.solvers._local import LocalSamples
from surestep.solvers._samples import Samples
from zoo import LOSSES, REGULARIZERS, problems

pytest.importorskip("distributed", reason="data in row partitions need Dask, the extra [dask]")

import dask.array as da
import distributed

import in_process
from surestep.distributed import PartitionedProblem, _partitions, _samples, cluster, read_svmlight
from surestep.distributed._parts import Part

ZOO = dict(problems())

# Every loss and every penalty of the zoo at least once.
SOME = [
    name
    for k, regularizer in enumerate(REGULARIZERS)
    for name in ZOO
    if name in (f"{list(LOSSES)[k % 4]}-{regularizer}-{layout}" for layout in ("dense", "sparse"))
]


@pytest.fixture(scope="module")
def client():
    """A cluster of processes, as a user has it."""
    with cluster(n_workers=2) as client:
        yield client


@pytest.fixture
def near():
    """A client whose workers are in this process."""
    return in_process.Client()


def matrix(problem):
    """X of a local problem, as a user has it."""
    lines = problem.design.columns
    if not problem.design.is_sparse:
        return lines.values.T
    arrays = lines.values, lines.indices.astype(np.int64), lines.starts.astype(np.int64)
    return scipy.sparse.csc_array(arrays, shape=problem.design.shape).tocsr()


def lengths(n, n_parts):
    """Lengths of partitions that are as different as may be, some of them empty if there are too many."""
    if n_parts >= n:
        return (1,) * n + (0,) * (n_parts - n)
    cuts = np.sort(np.random.default_rng(n_parts).choice(np.arange(1, n), n_parts - 1, replace=False))
    return tuple(np.diff([0, *cuts, n]).tolist())


def pair(problem, n_parts, client):
    """The problem, and the same in partitions, both from the same arrays."""
    X, y = matrix(problem), np.array(problem.y)
    weights = None if np.all(problem.weights == problem.weights[0]) else np.array(problem.weights)
    options = dict(loss=problem.loss, regularizer=problem.regularizer, fit_intercept=problem.fit_intercept)
    chunks = lengths(X.shape[0], n_parts)
    blocks = [X[begin : begin + n] for begin, n in zip(np.cumsum([0, *chunks]), chunks, strict=False)]
    parts = da.concatenate(
        [da.from_array(block, chunks=block.shape, asarray=False) for block in blocks if block.shape[0]]
    )
    parted = PartitionedProblem(parts, y, sample_weight=weights, client=client, **options)
    return ss.Problem(X, y, sample_weight=weights, **options), parted


def lasso(n=60, d=300, seed=0, fraction=0.05, loss="squared", **options):
    """A problem that takes some rounds."""
    rng = np.random.default_rng(seed)
    X = scipy.sparse.csr_array(rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.2))
    y = X @ np.where(rng.random(d) < 0.1, rng.standard_normal(d), 0.0) + 0.1 * rng.standard_normal(n)
    if loss != "squared":
        y = np.where(y > np.median(y), 1.0, -1.0)
    problem = ss.Problem(X, y, loss, ss.L1(1.0), **options)
    return problem.with_regularizer(ss.L1(fraction * problem.alpha_max()))


def same_bits(one, two):
    """Whether two results are the same, with all they say of how they came about; but seconds and bytes are not."""
    if not (np.array_equal(one.coef, two.coef) and one.intercept == two.intercept and one.status is two.status):
        return False
    return all(np.array_equal(column, two.trace[name]) for name, column in one.trace.items() if name != "seconds")


# --- The same answers


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_in_one_partition_bit_for_bit(name, near):
    local, parted = pair(ZOO[name], 1, near)
    assert same_bits(ss.minimize(local, tol=1e-10), ss.minimize(parted, tol=1e-10))


@pytest.mark.parametrize("n_parts", [2, 7, 40])
@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_in_partitions(name, n_parts, near):
    local, parted = pair(ZOO[name], n_parts, near)
    one, many = ss.minimize(local, tol=1e-12), ss.minimize(parted, tol=1e-12)
    assert many.status.success, many.message
    assert abs(many.objective - one.objective) <= 1e-10 * abs(one.objective)
    x = np.append(many.coef, many.intercept) if local.fit_intercept else many.coef
    assert local.objective(x) == pytest.approx(many.objective, rel=1e-13)


@pytest.mark.parametrize("name", SOME)
def test_on_a_cluster(name, client):
    local, parted = pair(ZOO[name], 1, client)
    assert same_bits(ss.minimize(local, tol=1e-10), ss.minimize(parted, tol=1e-10))
    local, parted = pair(ZOO[name], 7, client)
    one, many = ss.minimize(local, tol=1e-12), ss.minimize(parted, tol=1e-12)
    assert many.status.success, many.message
    assert abs(many.objective - one.objective) <= 1e-10 * abs(one.objective)


def test_some_is_all_losses_and_penalties():
    assert {name.split("-")[0] for name in SOME} == set(LOSSES)
    assert {name.split("-")[1] for name in SOME} == set(REGULARIZERS)


@pytest.mark.parametrize("name", [*SOME, "squared-l1-intercept", "logistic-l2-sample_weight-intercept-sparse"])
@pytest.mark.parametrize("n_parts", [1, 5])
def test_a_problem_in_partitions_says_the_same(name, n_parts, near):
    local, parted = pair(ZOO[name], n_parts, near)
    x = np.clip(np.random.default_rng(0).standard_normal(local.n_coordinates), local.penalty.lower, local.penalty.upper)
    assert parted.n_samples == local.n_samples
    assert parted.n_features == local.n_features
    np.testing.assert_allclose(parted.norms, local.norms, rtol=1e-14)
    np.testing.assert_allclose(parted.gradient(x), local.gradient(x), atol=1e-13)
    np.testing.assert_allclose(parted.optimality(x), local.optimality(x), atol=1e-13)
    np.testing.assert_allclose(parted.null_point(), local.null_point(), atol=1e-13)
    assert parted.objective(x) == pytest.approx(local.objective(x), rel=1e-13)
    one, many = local.duality_gap(x), parted.duality_gap(x)
    assert (many.gap, many.objective) == pytest.approx((one.gap, one.objective), rel=1e-12)
    assert many.kind == one.kind
    assert parted.has_certificate == local.has_certificate
    if local.penalty.l1.any():
        assert parted.alpha_max() == pytest.approx(local.alpha_max(), rel=1e-13)


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_path_in_partitions(loss, n_parts, near):
    local, parted = pair(lasso(loss=loss, fit_intercept=True), n_parts, near)
    one, many = (ss.path(problem, n_alphas=5, eps=0.05, tol=1e-10) for problem in (local, parted))
    np.testing.assert_allclose(many.alphas, one.alphas, rtol=1e-13)
    for first, second in zip(one.results, many.results, strict=True):
        assert second.objective == pytest.approx(first.objective, rel=1e-9)
    if n_parts == 1:
        np.testing.assert_array_equal(many.coefs, one.coefs)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_dual_in_one_partition(fit_intercept, near):
    X = scipy.sparse.random_array((600, 3000), density=0.01, format="csr", rng=0)
    y = np.where(X @ np.random.default_rng(1).standard_normal(3000) > 0.0, 1.0, -1.0)
    local, parted = pair(ss.Problem(X, y, "logistic", ss.L2(0.01), fit_intercept=fit_intercept), 1, near)
    one, two = ss.minimize(local, tol=1e-8), ss.minimize(parted, tol=1e-8)
    assert one.trace["steps"][1] >= 2 * 600  # sweeps over the samples, not steps of Newton's method
    assert one.status is two.status is ss.Status.CONVERGED
    assert one.n_steps == two.n_steps
    np.testing.assert_allclose(two.coef, one.coef, rtol=1e-9, atol=1e-12)


def test_wide_data_without_kinks_by_conjugate_gradients(near):
    local, parted = pair(lasso(loss="logistic").with_regularizer(ss.L2(0.01)), 3, near)
    one, many = ss.minimize(local, tol=1e-12), ss.minimize(parted, tol=1e-12)
    assert many.objective == pytest.approx(one.objective, rel=1e-11)


def test_only_what_is_not_certified_is_asked_for_and_it_is_counted(near):
    _, parted = pair(lasso(d=2000, fraction=0.2), 4, near)
    rows = []
    ss.minimize(parted, tol=1e-10, callbacks=[lambda progress: rows.append(dict(progress.row))])
    assert len(rows) > 3
    gradient = 2 * 8 * 2000  # two workers, one number a column
    assert rows[0]["bytes_received"] > gradient
    assert rows[-1]["passes"] - rows[-2]["passes"] < 0.5
    assert rows[-1]["bytes_received"] - rows[-2]["bytes_received"] < gradient / 2
    assert np.all(np.diff([row["exchanges"] for row in rows]) <= 5)
    assert all(row["bytes_sent"] > 0 and row["communication"] >= 0.0 for row in rows)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 9), st.sampled_from(["squared", "logistic"]))
def test_every_answer_is_the_sum_over_the_parts(seed, n_parts, loss):
    """What the solver relies on: whatever it asks of parts adds up to what it would hear of all rows."""
    problem = lasso(n=20, d=12, seed=seed, loss=loss, fit_intercept=True)
    local, parted = pair(problem, n_parts, in_process.Client())
    rng = np.random.default_rng(seed)
    x, change = 0.1 * rng.standard_normal((2, local.n_coordinates))
    new, more = np.split(rng.permutation(local.n_coordinates), [5])
    answers = []
    for samples in (LocalSamples(local), _samples.PartitionedSamples(parted)):
        samples.restart(x)
        said = [samples.lengths(), samples.shift_sums(0.3)]
        samples.shift(0.3)
        said += [samples.residuals(), samples.gradient(new), samples.loss_terms(0.7)]
        samples.bend(1e-6)
        samples.join(new)
        lines = np.zeros((5, 6))  # with some room at their ends
        samples.add_lines(0, lines)
        samples.join(more)
        others = np.zeros((more.size, local.n_coordinates + 1))
        samples.add_lines(5, others)
        samples.aim(new, change[new])
        said += [np.tril(lines), np.tril(others, 5), samples.diagonal()]
        said += [samples.curved(x), samples.slopes(0.0, 1.0), samples.slopes(0.5)]
        samples.go(0.25)
        said += [samples.model_gradient(more)]
        samples.add(more, change[more])
        said += [samples.residuals()]
        answers.append(said)
    for one, many in zip(*answers, strict=True):
        np.testing.assert_allclose(many, one, rtol=1e-11, atol=1e-13)


# --- Whatever happens


class Forgetful(in_process.Client):
    """Every so often a part comes anew, without its fits, or is not where it was, or a worker does not answer."""

    def run(self, function, *arguments, workers, on_error):
        what = self.n_runs % 8
        future = next(future for future in self._futures.values() if isinstance(future.value, Part))
        if what == 3:
            future.value = pickle.loads(pickle.dumps(future.value))
        elif what == 5:
            future.worker = next(name for name in self.workers if name != future.worker)
        found = super().run(function, *arguments, workers=workers, on_error=on_error)
        if what == 7:  # it had done what it was asked when it went
            found[workers[0]] = OSError("the connection broke")
        return found


@pytest.mark.parametrize("regularizer", [ss.L1(0.01), ss.L2(0.01)], ids=str)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("n_parts", [1, 5])
def test_fits_follow_parts_that_move(loss, regularizer, n_parts, near):
    local = lasso(loss=loss, fit_intercept=True).with_regularizer(regularizer)
    _, steady = pair(local, n_parts, near)
    _, moved = pair(local, n_parts, Forgetful())
    one, two = ss.minimize(steady, tol=1e-12), ss.minimize(moved, tol=1e-12)
    assert two.status.success
    assert moved.partitions.client.n_runs > 16
    assert two.objective == pytest.approx(one.objective, rel=1e-12)


def test_workers_that_never_answer_are_given_up(near, monkeypatch):
    _, parted = pair(lasso(), 3, near)
    monkeypatch.setattr(_partitions.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(near, "run", lambda *_, workers, **__: dict.fromkeys(workers, OSError("no route")))
    with pytest.raises(RuntimeError, match="none of the workers worker-0, worker-1 answers"):
        parted.objective(np.zeros(parted.n_coordinates))


def test_what_fails_on_a_worker_is_raised_and_the_fit_is_ended(near, monkeypatch):
    _, parted = pair(lasso(), 3, near)

    def fail(self, listed):
        raise MemoryError("no room")

    monkeypatch.setattr(LocalSamples, "gradient", fail)
    with pytest.raises(MemoryError, match="no room"):
        ss.minimize(parted)
    assert parted.partitions.each(n_fits) == [0, 0, 0]


def wait_for(condition):
    deadline = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def test_a_worker_that_is_killed_in_the_middle_of_a_fit(client):
    local, parted = pair(lasso(fit_intercept=True), 6, client)
    before = ss.minimize(local, tol=1e-11)
    killed = []

    def kill(progress):
        if progress.row["epoch"] == 2 and not killed:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    result = ss.minimize(parted, tol=1e-11, callbacks=[kill])
    assert killed
    assert result.status is ss.Status.CONVERGED
    assert result.objective == pytest.approx(before.objective, rel=1e-10)
    x = np.append(result.coef, result.intercept)
    assert local.duality_gap(x).gap <= 1e-10 * local.objective(np.zeros(x.size))  # certified, by all the rows
    wait_for(lambda: killed[0] not in client.run(os.getpid).values())
    client.wait_for_workers(2)


def test_a_worker_that_comes_takes_its_share(client):
    local, parted = pair(lasso(), 6, client)
    workers = set(client.nthreads())

    def come(progress):
        if progress.row["epoch"] == 1:
            client.cluster.scale(3)
            client.wait_for_workers(3)

    result = ss.minimize(parted, tol=1e-11, callbacks=[come])
    assert result.objective == pytest.approx(ss.minimize(local, tol=1e-11).objective, rel=1e-10)
    (new,) = set(client.nthreads()) - workers
    assert len(parted.partitions._placed[new]) == 2
    client.cluster.scale(2)
    wait_for(lambda: len(client.nthreads()) == 2)


def n_fits(part):
    return len(part.fits)


def tasks_of(dask_scheduler):
    return [key for key, task in dask_scheduler.tasks.items() if task.state == "processing"]


@pytest.mark.parametrize("how", ["converged", "callback", "interrupt"])
def test_nothing_is_left_on_the_cluster(how, client, monkeypatch):
    _, parted = pair(lasso(), 3, client)

    class StoppedError(Exception):
        pass

    def stop(progress):
        if progress.row["epoch"] == 2 and how == "callback":
            raise StoppedError
        if progress.row["epoch"] == 2 and how == "interrupt":
            monkeypatch.setattr(client, "run", interrupted)

    def interrupted(*_, **__):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with contextlib.suppress(StoppedError):
        result = ss.minimize(parted, tol=1e-12, callbacks=[stop])
        assert result.status is (ss.Status.INTERRUPTED if how == "interrupt" else ss.Status.CONVERGED)
    assert parted.partitions.each(n_fits) == [0, 0, 0]
    wait_for(lambda: not client.run_on_scheduler(tasks_of))
    keys = {future.key for future in parted.partitions.futures}
    del parted
    gc.collect()
    wait_for(lambda: not keys & set(client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.tasks))))


# --- What a user may hand over


def test_arrays_and_chunks_of_all_kinds(near):
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((20, 6)), rng.standard_normal(20), rng.random(20)
    expected = ss.minimize(ss.Problem(X, y, regularizer=ss.L1(0.1), sample_weight=w), tol=1e-12).objective
    parts = da.from_array(X, chunks=(6, 2))
    for targets, weights in (
        (y, w),
        (da.from_array(y, chunks=7), da.from_array(w, chunks=20)),
        (list(y), da.from_array(w)),
    ):
        problem = PartitionedProblem(parts, targets, "squared", ss.L1(0.1), weights, client=near)
        assert problem.partitions.n_parts == 4
        assert ss.minimize(problem, tol=1e-12).objective == pytest.approx(expected, rel=1e-11)


def test_the_active_client_is_used(client):
    X = np.random.default_rng(0).standard_normal((20, 4))
    problem = ss.Problem(da.from_array(X, chunks=(8, 4)), X[:, 0] > 0, "logistic", ss.L2(0.1))
    assert isinstance(problem, PartitionedProblem)
    assert repr(problem).startswith("PartitionedProblem(20 x 4 in 3 partitions")
    np.testing.assert_array_equal(problem.classes, [False, True])
    assert ss.minimize(problem).status.success


def test_without_a_client_it_says_what_to_do(monkeypatch):
    def nobody():
        raise ValueError

    monkeypatch.setattr("distributed.get_client", nobody)
    with pytest.raises(ValueError, match=r"no client is active: make a distributed.Client"):
        ss.Problem(da.ones((4, 2)), da.ones(4))


def bad_data():
    X, y = np.arange(24.0).reshape(12, 2), np.arange(12.0)

    def with_entry(array, at, value):
        array = array.copy()
        array[at] = value
        return array

    def dask_of(array, *rest):
        return da.from_array(array, chunks=(4, *array.shape[1:]))

    labels = np.array([0, 1] * 6)
    wide = da.concatenate([da.from_array(X[:4], chunks=(4, 2)), da.from_array(X[4:], chunks=(4, 2))])
    other = da.map_blocks(other_width, wide, dtype=float, chunks=wide.chunks)
    return {
        "nan": (dask_of(with_entry(X, (6, 1), np.nan)), y, {}, r"partition 1: X has the value nan in row 2, column 1"),
        "y": (dask_of(X), with_entry(y, 11, np.inf), {}, r"partition 2: y\[3\] is inf"),
        "weight": (
            dask_of(X),
            y,
            {"sample_weight": with_entry(y, 5, -1.0)},
            r"partition 1: sample_weight\[1\] is -1.0",
        ),
        "no weight": (dask_of(X), y, {"sample_weight": 0.0 * y}, r"sample_weight is 0 for every sample"),
        "label": (
            dask_of(X),
            with_entry(labels, 9, 7),
            {"loss": "logistic"},
            r"exactly two classes .* but has 3: 0, 1, 7; partition 2 has 7 in its row 1",
        ),
        "one class": (dask_of(X), 0 * labels, {"loss": "logistic"}, r"exactly two classes .* but has 1: 0"),
        "columns": (other, y, {}, r"partition 1 has 3 columns, but partition 0 has 2"),
        "rows": (dask_of(X), y[:-1], {}, r"one value for each of the 12 rows"),
        "partitions": (
            da.ones((np.nan, 2), chunks=((np.nan,) * 2, 2)),
            da.ones(3, chunks=1),
            {},
            r"y has 3 partitions",
        ),
        "names": (dask_of(X), np.array(["a", "b"] * 6), {"loss": "logistic"}, r"encode labels"),
        "vector": (da.ones(5), y, {}, r"two-dimensional"),
        "empty": (da.ones((0, 2)), np.empty(0), {}, r"all of its partitions are empty"),
    }


def other_width(block, block_id):
    return block if block_id[0] != 1 else np.column_stack([block, block[:, 0]])


@pytest.mark.parametrize("what", bad_data())
def test_bad_data_is_named_with_its_partition(what, near):
    X, y, options, said = bad_data()[what]
    with pytest.raises(ValueError, match=said):
        PartitionedProblem(X, y, client=near, **options)


def test_errors_of_workers_arrive(client):
    X, y, _, said = bad_data()["nan"]
    with pytest.raises(ValueError, match=said):
        ss.Problem(X, y)


@pytest.mark.parametrize("solver", [ss.coordinate_descent, ss.stochastic_gradient_descent])
def test_what_needs_all_rows_says_so(solver, near):
    _, parted = pair(lasso(), 2, near)
    with pytest.raises(TypeError, match="partitions on a cluster, where minimize and path solve it"):
        solver(parted)


# --- Files


@pytest.mark.parametrize("blocksize", [300, 1 << 20])
def test_files_are_read_in_chunks(blocksize, tmp_path, near):
    local = lasso(n=30, d=40)
    X, y = matrix(local), np.array(local.y)
    for k, name in enumerate(["a.svm", "b.svm", "c.svm.gz"]):
        save_svmlight(X[10 * k : 10 * k + 10], y[10 * k : 10 * k + 10], tmp_path / name)
    expected = ss.minimize(local, tol=1e-12).objective
    names = [tmp_path / name for name in ("a.svm", "b.svm", "c.svm.gz")]
    for paths, known in (
        (tmp_path / "*.svm*", {}),
        (names, {"n_features": 40, "zero_based": False}),
        (tmp_path, {"n_features": 40}),
        (f"file://{tmp_path}/*.svm*", {}),
    ):
        parts, targets = read_svmlight(paths, blocksize=blocksize, client=near, **known)
        assert parts.shape[1] == 40
        problem = PartitionedProblem(parts, targets, "squared", local.regularizer, client=near)
        assert problem.n_samples == 30
        assert ss.minimize(problem, tol=1e-12).objective == pytest.approx(expected, rel=1e-11)


def test_files_by_a_cluster(tmp_path, client):
    local = lasso(n=30, d=40)
    save_svmlight(matrix(local), local.y, tmp_path / "data.svm")
    X, y = read_svmlight(f"file://{tmp_path}/data.svm", blocksize=2000)
    assert X.numblocks[0] > 1
    result = ss.minimize(ss.Problem(X, y, regularizer=local.regularizer), tol=1e-12)
    assert result.objective == pytest.approx(ss.minimize(local, tol=1e-12).objective, rel=1e-11)


def test_files_that_are_not_there_and_bad_options(tmp_path, near):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing\*\.svm"):
        read_svmlight(tmp_path / "nothing*.svm", client=near)
    (tmp_path / "data.svm").write_text("1 1:2\n")
    with pytest.raises(ValueError, match="blocksize"):
        read_svmlight(tmp_path / "data.svm", blocksize=0, client=near)
    with pytest.raises(ValueError, match="no files"):
        read_svmlight([], client=near)


def test_small_files_have_chunks_for_every_worker(tmp_path, near):
    (tmp_path / "data.svm").write_text("1 1:2.5 2:3.5\n" * 100_000)
    X, _ = read_svmlight(tmp_path / "data.svm", n_features=2, zero_based=False, client=near)
    assert X.numblocks[0] >= 4 * len(near.nthreads())


def test_a_cluster_is_said_in_one_way():
    for options in ({}, {"address": "tcp://127.0.0.1:1", "n_workers": 2}):
        with pytest.raises(ValueError, match="either the address of a scheduler or n_workers"), cluster(**options):
            pass


@pytest.fixture(scope="module")
def lone():
    """A cluster of one worker with one thread."""
    with cluster(n_workers=1) as client:
        yield client


def alone():
    X = np.random.default_rng(0).standard_normal((20, 4))
    return X, X[:, 0]


def fitted_in_a_task(given):
    X, y = alone()
    client = distributed.get_client() if given else None
    problem = PartitionedProblem(da.from_array(X, chunks=(8, 4)), y, "squared", ss.L1(0.1), client=client)
    return ss.minimize(problem).objective, ss.minimize(problem, tol=1e-12).objective


@pytest.mark.parametrize("given", [False, True])
def test_fits_in_tasks_of_a_worker_with_one_thread(given, lone):
    """Two at a time: neither the tasks of a fit nor its messages wait for the thread of the task that waits."""
    tasks = lone.map(fitted_in_a_task, [given] * 2, pure=False)
    expected = ss.minimize(ss.Problem(*alone(), regularizer=ss.L1(0.1)), tol=1e-12).objective
    for first, second in (task.result(timeout=300) for task in tasks):
        assert first == pytest.approx(expected, rel=1e-4)
        assert second == pytest.approx(expected, rel=1e-11)
    assert lone.submit(os.getpid, pure=False).result(timeout=300)  # the worker is as it was


def test_a_client_that_is_asynchronous_is_refused(near):
    near.asynchronous = True
    with pytest.raises(ValueError, match="not asynchronous"):
        PartitionedProblem(da.ones((4, 2)), da.ones(4), client=near)


def test_a_cluster_by_its_address(client):
    with cluster(client.scheduler.address) as other:
        assert set(other.nthreads()) == set(client.nthreads())
        assert other.id != client.id


def test_samples_of_both_kinds_can_do_the_same():
    """What the solver may ask is the protocol; nothing of it is missing in partitions."""
    for name in vars(Samples):
        if not name.startswith("_") and name != "whole":
            assert hasattr(_samples.PartitionedSamples, name), name
            assert hasattr(LocalSamples, name), name
