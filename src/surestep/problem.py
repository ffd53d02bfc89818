"""The objective, written once: data, loss and regularizer, with gradient, smoothness and duality gap.

    f(x) = sum_i s_i loss(z_i, y_i) + sum_j psi_j(x_j),    z = X x (+ b),    s = sample_weight / sum(sample_weight)

An intercept b, if there is one, is the last coordinate of x. Everything here is float64 and costs at most one or two
passes over the data; solvers ask it where they stand, and do their steps in kernels of their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surestep import losses
from surestep._inputs import checked_vector, finite_norms, finite_objective, refuse, shares
from surestep._intercept import best_shift, shift_sums
from surestep._jit import jit
from surestep.design import Design, readonly
from surestep.lines import Lines, WithIntercept
from surestep.regularizers import (
    NoPenalty,
    Regularizer,
    Separable,
    bound,
    feasible_scale,
    min_subgradient,
    penalty,
    penalty_conjugate,
)

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FENCHEL = "fenchel"


@dataclass(frozen=True)
class Gap:
    """How far from the optimum a point can be: objective - gap = dual_objective <= min f <= objective.

    ``kind`` is "fenchel", or, where the gap is infinite, a sentence that says why.
    """

    gap: float
    objective: float
    dual_objective: float
    kind: str


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Problem:
    """Minimise the weighted mean of the losses plus a separable penalty.

    Parameters
    ----------
    X : array-like or sparse, shape (n_samples, n_features)
        See :meth:`surestep.design.Design.of`; nothing is copied that need not be. A dask array or DataFrame stays in
        its row partitions on the workers of a cluster: see :mod:`surestep.distributed`.
    y : array-like, shape (n_samples,)
        Targets; for a classification loss exactly two different values, of which the larger one becomes +1.
    loss : str or loss
        "squared", "squared_hinge", "logistic", "huber", or a loss of :mod:`surestep.losses` or of your own.
    regularizer : Regularizer, optional
        None means `NoPenalty()`.
    sample_weight : array-like, shape (n_samples,), optional
        Weights >= 0, not all zero; only their ratios matter. A sample of weight 0 is as good as absent.
    fit_intercept : bool
        Whether the last coordinate is an intercept, neither penalised nor bounded.

    Attributes
    ----------
    design : Design
    y : array of float64, shape (n_samples,); -1 and +1 for a classification loss
    classes : array of the two labels, sorted, for a classification loss, else None
    loss, regularizer, fit_intercept : as above
    weights : array, shape (n_samples,); the s_i, which sum to one
    penalty : Separable; the regularizer, spread over the coordinates
    columns : the columns of X as lines, with that of the intercept
    """

    design: Design
    y: Array
    classes: Array | None
    loss: Any
    regularizer: Regularizer
    weights: Array
    penalty: Separable
    fit_intercept: bool

    def __new__(cls, X: Any = None, *_: Any, **__: Any) -> Problem:
        """Make a problem over row partitions where X is a dask collection."""
        if cls is Problem and is_partitioned(X):
            # By name: what is distributed stands far to the right of problems.
            cls = import_module("surestep.distributed").PartitionedProblem
        return object.__new__(cls)

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        loss: Any = "squared",
        regularizer: Regularizer | None = None,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
    ) -> None:
        design, loss = Design.of(X), losses.as_loss(loss)
        targets = checked_vector("y", y, design.n_samples)
        refuse("y", targets, ~np.isfinite(targets), "targets must be finite: drop such samples")
        classes = None
        if losses.is_classification(loss):
            classes = np.unique(np.asarray(y))
            if classes.size != 2:
                found = ", ".join(map(str, classes[:5])) + (", ..." if classes.size > 5 else "")
                raise ValueError(
                    f"y must have exactly two classes for the loss {loss}, but has {classes.size}: {found}"
                )
            targets = np.where(targets == classes[1], 1.0, -1.0)
        self._put(design, targets.copy(), classes, loss, shares(sample_weight, design.n_samples), fit_intercept)
        self._bind(regularizer)

    __new__.__wrapped__ = __init__  # type: ignore[attr-defined]  # for help() and inspect.signature

    @classmethod
    def made_of(cls, design: Design, y: Array, loss: Any, weights: Array, fit_intercept: bool) -> Problem:
        """Return a problem without a penalty, of parts that are known to be good; weights are taken as they are.

        If the weights do not add up to one, it is a part of the mean loss of some problem of more samples.
        """
        problem = object.__new__(cls)
        problem._put(design, y, None, loss, weights, fit_intercept)
        problem._bind(None)
        return problem

    def _put(
        self, design: Design, y: Array, classes: Array | None, loss: Any, weights: Array, fit_intercept: bool
    ) -> None:
        vars(self).update(
            design=design,
            y=readonly(y),
            classes=classes,
            loss=loss,
            weights=readonly(weights),
            fit_intercept=bool(fit_intercept),
        )

    def with_regularizer(self, regularizer: Regularizer | None) -> Problem:
        """Return this problem with another regularizer; data, norms and smoothness are shared."""
        _ = self.smoothness, self.objective_at_zero  # computed here, once, for both
        other = copy.copy(self)
        other._bind(regularizer)
        return other

    def _bind(self, regularizer: Regularizer | None) -> None:
        regularizer, mine = NoPenalty() if regularizer is None else regularizer, vars(self)
        before = mine.get("regularizer"), mine.get("penalty")
        mine.pop("_uncertified", None)  # that of another regularizer
        mine.update(regularizer=regularizer, penalty=bound(regularizer, self.n_features, self.fit_intercept, before))

    def __repr__(self) -> str:
        intercept = ", fit_intercept=True" if self.fit_intercept else ""
        return f"Problem({self.design!r}, loss={self.loss!r}, regularizer={self.regularizer!r}{intercept})"

    # --- Shapes

    @property
    def n_samples(self) -> int:
        """Number of rows of X."""
        return self.design.n_samples

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.design.n_features

    @property
    def n_coordinates(self) -> int:
        """Length of x: n_features, and one for an intercept."""
        return self.n_features + self.fit_intercept

    @property
    def columns(self) -> Lines:
        """The columns of X as lines, one a coordinate: with an intercept the last one is all ones."""
        columns = self.design.columns
        return WithIntercept(columns, self.n_samples) if self.fit_intercept else columns

    # --- The smooth part

    @cached_property
    def norms(self) -> Array:
        """sqrt(sum_i s_i a_ij^2) for every coordinate; 0 for an empty column."""
        return readonly(finite_norms(np.sqrt(self.squared_norms(self.weights))))

    def put_norms(self, norms: Array) -> None:
        """Take :attr:`norms` from somebody who found them in passing."""
        vars(self)["norms"] = readonly(finite_norms(norms))

    def squared_norms(self, weights: Array) -> Array:
        """sum_i weights_i a_ij^2 for every coordinate."""
        squares = self.design.squared_norms(weights)
        return np.append(squares, np.sum(weights)) if self.fit_intercept else squares

    @cached_property
    def smoothness(self) -> Array:
        """L_j = smoothness(loss) * norms_j^2 for every coordinate: how fast gradient entry j changes along it."""
        return readonly(losses.smoothness(self.loss) * self.norms**2)

    def predictor(self, x: ArrayLike) -> Array:
        """Return z = X x, plus the intercept."""
        x = checked_vector("x", x, self.n_coordinates)
        z = self.design.times(x[: self.n_features])
        return z + x[-1] if self.fit_intercept else z

    def derivative(self, z: Array) -> Array:
        """u_i = derivative of loss(z_i, y_i) in z_i, not weighted."""
        u = np.empty(self.n_samples)
        _derivatives(self.loss, checked_vector("z", z, self.n_samples), self.y, u)
        return u

    def residual(self, z: Array) -> Array:
        """r_i = s_i u_i, the derivative of the mean loss in z_i."""
        return self._weighted(self.derivative(z))

    def gradient(self, x: ArrayLike) -> Array:
        """Gradient of the mean loss, <a_j, r> for all coordinates."""
        return self.transposed_times(self.residual(self.predictor(x)))

    def objective(self, x: ArrayLike) -> float:
        """f(x), for an x within the bounds."""
        return self.objective_at(x, self.predictor(x))

    @cached_property
    def objective_at_zero(self) -> float:
        """f(0), the same for every regularizer: nothing costs nothing."""
        return finite_objective(self._mean_loss(np.zeros(self.n_samples)))

    def objective_at(self, x: ArrayLike, z: Array) -> float:
        """f(x) given z = predictor(x)."""
        mean = self._mean_loss(checked_vector("z", z, self.n_samples))
        return mean + self._penalty_at(checked_vector("x", x, self.n_coordinates))

    def optimality(self, x: ArrayLike) -> Array:
        """c_j = smallest absolute value in the subdifferential of f at x, for all coordinates; zero at the optimum."""
        c = np.empty(self.n_coordinates)
        _magnitudes(self.penalty, checked_vector("x", x, self.n_coordinates), self.gradient(x), c)
        return c

    # --- Certificates

    def duality_gap(self, x: ArrayLike) -> Gap:
        """Bound f(x) - min f from above, at any x, by Fenchel duality.

        For any u in the domain of the losses' conjugates, with g_j = sum_i s_i a_ij u_i,

            min f >= -sum_i s_i loss*(u_i, y_i) - sum_j psi_j*(-g_j).

        Here u is the derivative of the losses at z, times the largest tau <= 1 that keeps every psi_j* finite. An
        intercept has psi* infinite but at 0, so u must have mean zero: it is taken at z + b for the b that minimises
        the loss, and what rounding leaves of its mean is taken off its larger side. Since sum_i s_i u_i z_i equals
        sum_j x_j g_j, the gap is a sum of terms that are never negative, and is computed as such, not as a difference:

            sum_i s_i (loss(z_i) + loss*(u_i) - u_i z_i)  +  sum_j (psi_j(x_j) + psi_j*(-g_j) + x_j g_j).

        Where f(x) itself is less, that is the gap: losses and penalties of this package are never negative.
        """
        x = checked_vector("x", x, self.n_coordinates)
        z = self.predictor(x)
        objective = self.objective_at(x, z)
        u = self._balanced(z) if self.fit_intercept else self.derivative(z)
        return self._gap(x, objective, -self.correlations(u), lambda tau: self.fenchel_young(z, tau * u))

    def _gap(self, x: Array, objective: float, v: Array, loss_terms: Callable[[float], float]) -> Gap:
        """Return the gap for the dual point tau u, the largest that is feasible, with v = -A^T (s u)."""
        if self.fit_intercept:
            v[-1] = 0.0  # up to rounding it is
        scales = self._feasible_scales(v)
        tau = float(np.min(scales))
        if tau == 0.0:
            reason = (
                f"no finite dual point: feature {np.argmin(scales)} has neither a penalty nor a finite bound on the "
                "side its gradient pulls it to; add one, or watch `optimality` instead"
            )
            return Gap(math.inf, objective, -math.inf, reason)
        penalties = np.empty(self.n_coordinates)
        _penalty_fenchel_young(self.penalty, x, tau * v, penalties)
        return certified(self, objective, float(loss_terms(tau) + np.sum(penalties)))

    def correlations(self, u: Array) -> Array:
        """sum_i s_i a_ij u_i for all coordinates."""
        return self.transposed_times(self._weighted(u))

    def fenchel_young(self, z: Array, u: Array) -> float:
        """sum_i s_i (loss(z_i) + loss*(u_i) - u_i z_i)."""
        terms = np.empty(self.n_samples)
        _weighted_fenchel_young(self.loss, z, u, self.y, self.weights, terms)
        return float(np.sum(terms))

    @property
    def has_certificate(self) -> bool:
        """Whether :meth:`duality_gap` is finite at every x, so that it falls to zero as x tends to the optimum."""
        return self._uncertified.size == 0

    @property
    def certificate_reason(self) -> str:
        """A sentence that says why :attr:`has_certificate` is what it is."""
        if self.has_certificate:
            return "every feature has a penalty or two finite bounds, so the duality gap is finite everywhere"
        return (
            f"feature {self._uncertified[0]} has no penalty and lacks a finite bound on a side, so the duality gap is "
            "infinite wherever its gradient entry has the wrong sign; add a penalty or bounds, or watch `optimality`"
        )

    def null_point(self) -> Array:
        """x = 0 with the best intercept: the optimum for every ``alpha`` from :meth:`alpha_max` on."""
        x = np.zeros(self.n_coordinates)
        if self.fit_intercept:
            x[-1] = self._best_shift(np.zeros(self.n_samples))
        return x

    def alpha_max(self) -> float:
        """Smallest ``alpha`` of the regularizer for which x = 0, with the best intercept, is optimal.

        With c_j the :meth:`optimality` of the problem without its L1 part at x = 0, this is the maximum of
        c_j / (l1_ratio * weights_j); weights, l1_ratio and bounds are kept.
        """
        if not getattr(self.regularizer, "l1", 0.0) > 0.0:
            raise ValueError(
                f"alpha_max needs a regularizer with an L1 part, but it is {self.regularizer!r}; give alphas yourself"
            )
        gradient, energy = self.sums_at(self.null_point())
        c = np.empty(self.n_coordinates)
        smooth = self.penalty._replace(l1=np.zeros(self.n_coordinates))
        _magnitudes(smooth, np.zeros(self.n_coordinates), gradient, c)
        c, strength = c[: self.n_features], self.penalty.l1[: self.n_features]
        penalised = strength > 0.0
        # Cauchy-Schwarz: what is this small against norm times norm is rounding.
        rounding = 1e-13 * self.norms[: self.n_features] * math.sqrt(energy)
        moving = np.flatnonzero(~penalised & (c > rounding))
        if moving.size:
            raise ValueError(
                f"alpha_max does not exist: feature {moving[0]} has no L1 penalty and its gradient at x = 0 is "
                f"{c[moving[0]]}, so it moves at any alpha; give it a positive weight, or alphas yourself"
            )
        return self.regularizer.alpha * float(np.max(c[penalised] / strength[penalised], initial=0.0))

    # --- Parts

    def sums_at(self, x: Array) -> tuple[Array, float]:
        """Return the gradient of the mean loss, and sum_i s_i u_i^2."""
        z = self.predictor(x)
        r = self.residual(z)
        return self.transposed_times(r), float(np.sum(r * self.derivative(z)))

    def _weighted(self, terms: Array) -> Array:
        """s_i * terms_i, and 0 where s_i = 0 even if the term is infinite."""
        return np.multiply(self.weights, terms, out=np.zeros(self.n_samples), where=self.weights > 0.0)

    def transposed_times(self, r: Array) -> Array:
        """<a_j, r> for all coordinates."""
        g = self.design.transposed_times(r)
        return np.append(g, np.sum(r)) if self.fit_intercept else g

    def _best_shift(self, z: Array) -> float:
        """Return the best intercept on top of z."""
        return best_shift(self.loss, self.n_samples, partial(shift_sums, self.loss, z, self.y, self.weights))

    def _balanced(self, z: Array) -> Array:
        """Return derivatives u with sum_i s_i u_i = 0: at z plus the best intercept, the larger side scaled down.

        Conjugates are finite at 0, so scaling towards 0 keeps u in their domain.
        """
        u = self.derivative(z + self._best_shift(z))
        r = self._weighted(u)
        rising, falling = np.sum(r[r > 0.0]), -np.sum(r[r < 0.0])
        if rising > falling:
            u[u > 0.0] *= falling / rising
        elif falling > rising:
            u[u < 0.0] *= rising / falling
        return u

    def _mean_loss(self, z: Array) -> float:
        terms = np.empty(self.n_samples)
        _weighted_values(self.loss, z, self.y, self.weights, terms)
        return float(np.sum(terms))

    def _penalty_at(self, x: Array) -> float:
        penalties = np.empty(self.n_coordinates)
        _penalties(self.penalty, x, penalties)
        return float(np.sum(penalties))

    def _feasible_scales(self, v: Array) -> Array:
        scales = np.empty(self.n_coordinates)
        _scales(self.penalty, v, scales)
        return scales

    @cached_property
    def _uncertified(self) -> Array:
        """Features that leave no dual point if their gradient has some sign; that of an empty column is always 0."""
        listed = _without_dual_point(self.penalty, self.n_features, getattr(self.regularizer, "is_uniform", False))
        return np.asarray(listed[self.norms[listed] > 0.0] if listed.size else listed)


def certified(problem: Problem, objective: float, gap: float) -> Gap:
    """Return the gap of a dual point; no more than f itself, where nothing that f is a sum of can be negative."""
    if isinstance(problem.penalty, Separable) and losses.is_never_negative(problem.loss):
        gap = min(gap, objective)
    gap = max(gap, 0.0)
    return Gap(gap, objective, objective - gap, FENCHEL)


def is_partitioned(X: Any) -> bool:
    """Whether X is a dask collection: data in partitions, which may be on many machines."""
    return type(X).__module__.startswith("dask.")


# --- Kernels: the generics, for all samples or all coordinates


@jit
def _weighted_values(loss: Any, z: Any, y: Any, weights: Any, out: Any) -> None:
    for i in range(y.size):  # a sample of weight 0 is not even looked at: its loss may overflow
        out[i] = weights[i] * losses.value(loss, z[i], y[i]) if weights[i] > 0.0 else 0.0


@jit
def _derivatives(loss: Any, z: Any, y: Any, out: Any) -> None:
    for i in range(y.size):
        out[i] = losses.derivative(loss, z[i], y[i])


@jit
def _weighted_fenchel_young(loss: Any, z: Any, u: Any, y: Any, weights: Any, out: Any) -> None:
    for i in range(y.size):
        out[i] = 0.0
        if weights[i] > 0.0:
            out[i] = weights[i] * (losses.value(loss, z[i], y[i]) + losses.conjugate(loss, u[i], y[i]) - u[i] * z[i])


@jit
def _penalties(reg: Any, x: Any, out: Any) -> None:
    for j in range(x.size):
        out[j] = penalty(reg, j, x[j])


@jit
def _penalty_fenchel_young(reg: Any, x: Any, v: Any, out: Any) -> None:
    for j in range(x.size):
        out[j] = penalty(reg, j, x[j]) + penalty_conjugate(reg, j, v[j]) - x[j] * v[j]


@jit
def _scales(reg: Any, v: Any, out: Any) -> None:
    for j in range(v.size):
        out[j] = feasible_scale(reg, j, v[j])


@jit
def _without_dual_point(reg: Any, n_features: int, is_uniform: bool) -> Any:
    """List features for which no multiple of a gradient entry of one of the signs is feasible."""
    listed, n = np.empty(n_features, np.int64), 0
    for j in range(n_features):
        if min(feasible_scale(reg, j, 1.0), feasible_scale(reg, j, -1.0)) == 0.0:
            listed[n] = j
            n += 1
        elif is_uniform:  # what holds for one holds for all
            break
    return listed[:n]


@jit
def _magnitudes(reg: Any, x: Any, g: Any, out: Any) -> None:
    for j in range(x.size):
        out[j] = abs(min_subgradient(reg, j, x[j], g[j]))
