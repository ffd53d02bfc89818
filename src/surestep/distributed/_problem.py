"""The objective over data in row partitions: every sum over rows is an exchange with the workers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from surestep import losses
from surestep._inputs import checked_vector, finite_norms, finite_objective
from surestep._intercept import best_shift
from surestep.distributed._partitions import Partitions
from surestep.distributed._parts import Order, Spec, Targets, largest_weight, weight_sum
from surestep.problem import Array, Gap, Problem
from surestep.regularizers import Regularizer


class PartitionedProblem(Problem):
    """A `Problem` whose rows are in partitions on the workers of a Dask cluster.

    Parameters
    ----------
    X : dask array, with dense or scipy-sparse chunks, or dask DataFrame
    y, sample_weight : dask array, or Series, with partitions that go with those of X; or an array
    loss, regularizer, fit_intercept
        As for `Problem`.
    client : distributed.Client, optional
        By default the active one.

    Attributes
    ----------
    partitions : Partitions
        The data; the partitions stay on the workers as long as this is referred to.
    """

    partitions: Partitions
    spec: Spec

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Any = "squared",
        regularizer: Regularizer | None = None,
        sample_weight: Any = None,
        fit_intercept: bool = False,
        *,
        client: Any = None,
    ) -> None:
        loss = losses.as_loss(loss)
        partitions = Partitions.of(X, y, sample_weight, client)
        if partitions.y_shape:
            raise ValueError(f"y must be one-dimensional, but has {partitions.y_shape[0]} columns")
        if partitions.y_kind not in "biuf":
            raise ValueError(f"y must hold real numbers, but its dtype is of kind {partitions.y_kind!r}; encode labels")
        classes = _two_classes(partitions, loss) if losses.is_classification(loss) else None
        self._fill(partitions, Targets(positive=None if classes is None else classes[1]), classes, loss, fit_intercept)
        self._bind(regularizer)

    @classmethod
    def over(cls, partitions: Partitions, targets: Targets, loss: Any, fit_intercept: bool) -> PartitionedProblem:
        """Return one of several problems over the same data, without a penalty."""
        problem = object.__new__(cls)
        problem._fill(partitions, targets, None, loss, fit_intercept)
        problem._bind(None)
        return problem

    def _fill(
        self, partitions: Partitions, targets: Targets, classes: Array | None, loss: Any, fit_intercept: bool
    ) -> None:
        largest, total = 1.0, float(partitions.n_samples)
        if partitions.has_weights or targets.factors is not None:
            largest = max(partitions.each(largest_weight, targets))
            if largest == 0.0:
                raise ValueError("sample_weight is 0 for every sample; at least one must be positive")
            total = sum(partitions.each(weight_sum, targets, largest))
        vars(self).update(
            partitions=partitions,
            spec=Spec(loss, bool(fit_intercept), targets, partitions.n_samples, largest, total),
            classes=classes,
            loss=loss,
            fit_intercept=bool(fit_intercept),
        )

    def __repr__(self) -> str:
        return (
            f"PartitionedProblem({self.n_samples} x {self.n_features} in {self.partitions.n_parts} partitions, "
            f"loss={self.loss!r}, regularizer={self.regularizer!r}, fit_intercept={self.fit_intercept})"
        )

    @property
    def total_weight(self) -> float:
        """Sum of the sample weights, as they were given."""
        return self.spec.largest * self.spec.total

    # --- What only rows in one place have

    def _needs_rows(self, *_: object) -> NoReturn:
        raise TypeError(
            "the rows of this problem are in partitions on a cluster, where minimize and path solve it, and stochastic "
            "gradient descent with bounds='delegated', sampling='safe' and variance_reduction=False; coordinate "
            "descent, and what else needs every row here, need a Problem of local data"
        )

    design = y = weights = columns = property(_needs_rows)
    predictor = derivative = residual = objective_at = _needs_rows  # type: ignore[assignment]

    # --- What is a sum over rows

    def _sum(self, name: str, *arguments: Any) -> Any:
        self.partitions.look_around()  # to speak to a worker that went takes Dask long to give up
        return self.partitions.exchange(Order(self.spec, ((name, arguments),)))

    @property
    def n_samples(self) -> int:
        """Number of rows of X."""
        return self.partitions.n_samples

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.partitions.n_features

    @cached_property
    def norms(self) -> Array:
        """sqrt(sum_i s_i a_ij^2) for every coordinate; 0 for an empty column."""
        norms = finite_norms(np.sqrt(self._sum("squared_norms")))
        norms.flags.writeable = False
        return norms

    def gradient(self, x: ArrayLike) -> Array:
        """Gradient of the mean loss, for all coordinates."""
        return np.asarray(self._sum("gradient", checked_vector("x", x, self.n_coordinates)))

    def objective(self, x: ArrayLike) -> float:
        """f(x), for an x within the bounds."""
        x = checked_vector("x", x, self.n_coordinates)
        return float(self._sum("objective", x) + self._penalty_at(x))

    @cached_property
    def objective_at_zero(self) -> float:
        """f(0), the same for every regularizer."""
        return finite_objective(self.objective(np.zeros(self.n_coordinates)))

    def sums_at(self, x: Array) -> tuple[Array, float]:
        """Return the gradient of the mean loss, and sum_i s_i u_i^2."""
        gradient, energy = self._sum("sums_at", x)
        return gradient, energy

    def null_point(self) -> Array:
        """x = 0 with the best intercept: the optimum for every ``alpha`` from :meth:`alpha_max` on."""
        x = np.zeros(self.n_coordinates)
        if self.fit_intercept:
            x[-1] = self._shift_at(x)
        return x

    def duality_gap(self, x: ArrayLike) -> Gap:
        """Bound f(x) - min f from above; see `Problem.duality_gap`."""
        x = checked_vector("x", x, self.n_coordinates)
        b, scales = 0.0, (1.0, 1.0)
        if self.fit_intercept:
            b = self._shift_at(x)
            rising, falling = self._sum("sides", x, b)
            scales = (falling / rising, 1.0) if rising > falling else (1.0, rising / falling if falling else 1.0)
        dual = x, b, *scales
        v = -self._sum("correlations", *dual)
        return self._gap(x, self.objective(x), v, lambda tau: float(self._sum("fenchel_young", tau, *dual)))

    def _shift_at(self, x: Array) -> float:
        """Return the best intercept on top of that of x."""
        return best_shift(self.loss, self.n_samples, lambda b: self._sum("shift_sums", x, b))


def _two_classes(partitions: Partitions, loss: Any) -> Array:
    """Return the two labels there are in all partitions; others are named with the place of the first."""
    found = partitions.labels()
    classes, counts = np.unique(np.concatenate([labels for labels, _ in found]), return_counts=True)
    if classes.size == 2:
        return classes
    shown = ", ".join(map(str, classes[:5])) + (", ..." if classes.size > 5 else "")
    message = f"y must have exactly two classes for the loss {loss}, but has {classes.size}: {shown}"
    if classes.size > 2:
        rarest = classes[np.argmin(counts)]
        number, row = next(
            (k, rows[labels == rarest][0]) for k, (labels, rows) in enumerate(found) if np.any(labels == rarest)
        )
        message += f"; partition {number} has {rarest} in its row {row}"
    raise ValueError(message)
