"""Figures 2 to 9 of the paper, each a small specification; and the problems that they stand for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import surestep as ss
from surestep.datasets import list_datasets, load_dataset, make_bag_of_words, with_ones
from surestep.experiments.runs import Method

LAMBDA = 0.1  # "is used for all experiments"

# The sets of the paper, and those that stand in for them under their own names.
SETS = {
    "rcv1": ("rcv1_train.binary", "rcv1_subset.binary"),
    "real-sim": ("real-sim", "imdb_counts"),
    "news20": ("news20.binary", "news20_bigram.binary"),
}
# Rows and columns of what is generated where there is neither, and its seed.
SHAPES = {
    "rcv1": (20_242, 47_236, 0),
    "rcv1'": (10_000, 10_000, 0),
    "real-sim": (72_309, 20_958, 1),
    "real-sim'": (10_000, 10_000, 1),
    "news20'": (2_999, 203_279, 2),
}


@dataclass(frozen=True)
class Scale:
    """How large an experiment is.

    Attributes
    ----------
    name : str
    side : int or None
        Rows and columns of the generated data, which is then used whatever sets there are; None: the paper's sizes.
    epochs, sgd_epochs : float
        Of coordinate descent, and of SGD, whose optimal sampling looks at all data in every step.
    n_seeds : int
    budget : float
        Seconds after which a run of a figure ends, if its epochs are not over before.
    """

    name: str
    side: int | None
    epochs: float
    sgd_epochs: float
    n_seeds: int
    budget: float = math.inf


FULL = Scale("full", None, 20.0, 10.0, 5)
QUICK = Scale("quick", 1_000, 20.0, 5.0, 3)


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: the paper's name of the data set, and the penalty, L1 or L2."""

    data: str
    penalty: str


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    number: int
    title: str
    loss: str
    panels: tuple[Panel, ...]
    methods: tuple[Method, ...]
    axes: tuple[str, ...] = ("epoch", "seconds")

    @property
    def solver(self) -> str:
        """Name of the solver that all methods use."""
        return self.methods[0].solver

    @property
    def is_stochastic(self) -> bool:
        """Whether it is one of SGD."""
        return self.solver == "stochastic_gradient_descent"


def _descent(sampling: str, step: str = "adaptive", name: str | None = None) -> Method:
    """Coordinate descent as in the paper: one L for all coordinates, bounds from 0 and infinity by Cauchy-Schwarz."""
    options: dict[str, Any] = {"sampling": sampling, "step": step, "smoothness": "constant"}
    if sampling == "safe":
        options |= {"bounds": "cauchy-schwarz", "track_optimal": True}
    if sampling == "optimal":
        options["trace_every"] = 0.1  # it gets far in an epoch, which takes it long
    return Method(name or sampling, options=options)


def _stochastic(sampling: str) -> Method:
    return Method(sampling, "stochastic_gradient_descent", {"sampling": sampling, "variance_reduction": False})


ADAPTIVE = (_descent("uniform"), _descent("safe"), _descent("optimal"))
STEPS = (
    _descent("uniform"),
    _descent("safe", name="safe, big steps"),
    _descent("optimal", name="optimal, big steps"),
    _descent("safe", "fixed", "safe, small steps"),
    _descent("optimal", "fixed", "optimal, small steps"),
)
STOCHASTIC = (_stochastic("uniform"), _stochastic("safe"), _stochastic("optimal"))

FIGURES = {
    figure.number: figure
    for figure in (
        Figure(
            2,
            "Coordinate descent, square loss: fixed and adaptive sampling, small and big steps",
            "squared",
            (Panel("rcv1'", "L1"), Panel("rcv1'", "L2")),
            STEPS,
        ),
        Figure(
            3,
            "Coordinate descent, squared hinge loss",
            "squared_hinge",
            (Panel("rcv1'", "L1"), Panel("real-sim'", "L2")),
            ADAPTIVE,
        ),
        Figure(
            4,
            "Coordinate descent, logistic loss",
            "logistic",
            tuple(Panel(data, penalty) for data in ("rcv1'", "real-sim'") for penalty in ("L1", "L2")),
            ADAPTIVE,
        ),
        Figure(
            5,
            "Coordinate descent, square loss, full data sets: iterations",
            "squared",
            (Panel("rcv1", "L1"), Panel("real-sim", "L1")),
            ADAPTIVE,
            ("epoch",),
        ),
        Figure(
            6,
            "Coordinate descent, square loss, full data sets: time (the paper omits the optimal sampling here)",
            "squared",
            (Panel("real-sim", "L1"), Panel("real-sim", "L2")),
            ADAPTIVE[:2],
            ("seconds",),
        ),
        Figure(
            7,
            "SGD, square loss",
            "squared",
            tuple(Panel(data, penalty) for data in ("rcv1'", "real-sim'") for penalty in ("L1", "L2")),
            STOCHASTIC,
        ),
        Figure(8, "SGD, square loss: iterations", "squared", (Panel("news20'", "L1"),), STOCHASTIC, ("epoch",)),
        Figure(9, "SGD, square loss: time", "squared", (Panel("news20'", "L1"),), STOCHASTIC, ("seconds",)),
    )
}


@lru_cache(maxsize=1)
def data_of(name: str, scale: Scale) -> tuple[Any, Any, str]:
    """Return X with all non-zeros set to 1, y, and the name to report: the paper's set, a stand-in, or generated."""
    base = name.removesuffix("'")
    if scale.side is None:
        here = [info.name for info in list_datasets() if info.available]
        for candidate in SETS[base]:
            if candidate in here:
                found = load_dataset(candidate + name[len(base) :])
                return with_ones(found.X), found.y, found.name
        n_samples, n_features, seed = SHAPES[name]
    else:
        n_samples = n_features = scale.side
        seed = SHAPES[name][2]
    X, y = make_bag_of_words(n_samples, n_features, random_state=seed)
    return with_ones(X), y, f"bag_of_words, seed {seed}"


def readings(problem: ss.Problem, penalty: str) -> dict[str, float]:
    """Return what the paper's lambda = 0.1 may mean, by name, as strengths of the penalty.

    The paper's ridge term is lambda ||x||^2, ours is alpha / 2 ||x||^2.
    """
    if penalty == "L2":
        return {"lambda = 0.1": 2.0 * LAMBDA}
    largest = problem.alpha_max()
    return {
        "lambda = 0.1": LAMBDA,
        "lambda_max / 10": largest / 10.0,
        "lambda_max / 100": largest / 100.0,
        "lambda = 0.1 / N (summed loss)": LAMBDA / problem.n_samples,
    }


def problem_of(X: Any, y: Any, loss: str, penalty: str) -> ss.Problem:
    """Return the problem of a panel, of strength 1."""
    return ss.Problem(X, np.asarray(y), loss, ss.L1(1.0) if penalty == "L1" else ss.L2(1.0))
