"""The evaluator of benchmarks/peers judges every solver: its objective is ours, and its bound is below the minimum."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import surestep as ss

PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "peers" / "objective.py"
specification = importlib.util.spec_from_file_location("peers_objective", PATH)
peers = importlib.util.module_from_spec(specification)
specification.loader.exec_module(peers)

TASKS = pytest.mark.parametrize("task", peers.TASKS)


def drawn(task, seed, n_samples=20, n_features=6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features)) * (rng.random((n_samples, n_features)) < 0.7)
    return X, peers.targets(task, X[:, 0] + rng.normal(size=n_samples)), rng.normal(size=n_features)


@TASKS
def test_objective_is_ours(task):
    X, y, w = drawn(task, seed=0)
    loss, l1_ratio = peers.TASKS[task]
    problem = ss.Problem(X, y, loss=loss, regularizer=ss.ElasticNet(0.3, l1_ratio))
    assert peers.objective(task, X, y, 0.3, w) == pytest.approx(problem.objective(w), rel=1e-14)
    assert peers.objective(task, sp.csc_array(X), y, 0.3, w) == pytest.approx(problem.objective(w), rel=1e-14)
    if l1_ratio:
        assert peers.lambda_max(task, X, y) == pytest.approx(problem.alpha_max(), rel=1e-14)


@TASKS
@given(seed=st.integers(0, 2**32 - 1), fraction=st.floats(1e-3, 1.0), size=st.floats(0.0, 100.0))
@settings(max_examples=20, deadline=None)
def test_bound_is_below_the_objective_of_any_point(task, seed, fraction, size):
    X, y, w = drawn(task, seed)
    alpha = fraction * peers.lambda_max(task, X, y)
    bound = peers.dual_objective(task, X, y, alpha, size * w)
    other = np.random.default_rng(seed + 1).normal(size=w.size)
    for point in (np.zeros(w.size), w, size * w, other):
        value = peers.objective(task, X, y, alpha, point)
        assert bound <= value + 1e-12 * abs(value)


@TASKS
@pytest.mark.parametrize("fraction", [0.5, 0.01])
def test_reference_and_bound_meet_at_the_optimum(task, fraction, monkeypatch):
    X, y, _ = drawn(task, seed=3)
    alpha = fraction * peers.lambda_max(task, X, y)
    optimum = peers.reference_optimum(task, X, y, alpha)
    monkeypatch.setattr(peers, "objective", peers.dual_objective)
    bound = peers.reference_optimum(task, X, y, alpha)
    assert bound == pytest.approx(optimum, rel=1e-9)


def test_suboptimality_of_a_path_is_that_of_its_worst_point():
    assert peers.suboptimality([1.0, 0.75], [1.0, 0.5], 1.5) == 0.25
    assert peers.suboptimality(1.25, 0.5, 1.5) == 0.75
