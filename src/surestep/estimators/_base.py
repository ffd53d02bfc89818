"""What all estimators share: options, solving, warnings, attributes. The mathematics is elsewhere."""

# mypy: allow-subclassing-any

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from surestep.design import Design
from surestep.distributed import Partitions
from surestep.estimators._callbacks import Reporter
from surestep.path import relative_tolerance, solve
from surestep.problem import Problem, is_partitioned
from surestep.regularizers import NonNegative, Regularizer
from surestep.solvers._loop import Callback
from surestep.solvers.coordinate import SAMPLINGS
from surestep.trace import Result, Status

Array = NDArray[Any]

# What a user has to know of an option that is refused: the values that are not, and why.
Option = tuple[tuple[Any, ...], str]


class LinearModel(CallbackSupportMixin, BaseEstimator):
    """A linear model: one problem a target or class, solved one after the other.

    A subclass has the parameters ``fit_intercept``, ``tol``, ``max_iter``, ``positive``, ``penalty_weights``,
    ``sampling`` and ``random_state``, perhaps ``warm_start`` and ``n_jobs``.
    """

    # Options of the class of the same name in scikit-learn that have no effect here, or of which only some values are
    # supported: docs/differences.md says so to the user.
    _options: ClassVar[dict[str, Option]] = {}

    coef_: Any
    intercept_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_options(self) -> None:
        """Refuse what is not supported, before any work is done."""
        for name, (choices, reason) in self._options.items():
            value = getattr(self, name)
            if not any(_is(value, choice) for choice in choices):
                shown = repr(value) if np.ndim(value) == 0 else f"<an array of shape {np.shape(value)}>"
                raise ValueError(
                    f"{type(self).__name__}: {name}={shown} is not supported; "
                    f"it may be {' or '.join(map(repr, choices))}: {reason}"
                )
        for name in ("fit_intercept", "positive"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        check_scalar(self.tol, "tol", Real, min_val=0.0, include_boundaries="neither")
        if self.max_iter is not None:
            check_scalar(self.max_iter, "max_iter", Integral, min_val=1)
        self._check_sampling()

    def _check_sampling(self) -> None:
        if self.sampling not in ("auto", *SAMPLINGS):
            choices = ", ".join(map(repr, ("auto", *SAMPLINGS)))
            raise ValueError(f"sampling must be one of {choices}, got {self.sampling!r}")

    def _bounded(self, regularizer: Regularizer) -> Regularizer:
        return regularizer + NonNegative() if self.positive else regularizer

    # --- Fitting

    def _partitioned(self, X: Any, y: Any, sample_weight: Any) -> PartitionedData:
        """Take data in row partitions, and what `validate_data` notes of them."""
        data = PartitionedData.of(X, y, sample_weight, self.fit_intercept)
        self.n_features_in_ = data.n_features
        self.__dict__.pop("feature_names_in_", None)
        names = getattr(X, "columns", ())
        if len(names) and all(isinstance(name, str) for name in names):
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return data

    def _fit_problems(
        self, problems: Iterable[Problem], n_problems: int, data: Data | PartitionedData, X: Any, y: Any, flat: bool
    ) -> None:
        """Solve the problems of a fit and set what is learned; ``flat``: there is one, and its coef_ is a vector."""
        context = self._init_callback_context(max_subtasks=None if n_problems == 1 else n_problems)
        shown = data.shown(X, y)
        context.call_on_fit_task_begin(estimator=self, **shown)
        self._solve_problems(problems, n_problems, data, shown, flat, context)
        context.call_on_fit_task_end(estimator=self, reconstruction_attributes={}, **shown)

    def _solve_problems(
        self,
        problems: Iterable[Problem],
        n_problems: int,
        data: Data | PartitionedData,
        shown: dict[str, Any],
        flat: bool,
        context: Any,
    ) -> None:
        """Solve one problem after the other; ``shown`` is what callbacks see of the data, as parts of ``context``."""
        points = np.zeros((n_problems, data.n_features + 1))
        warm = self._put_previous(points, data.offset)

        def attributes() -> dict[str, Any]:
            return _attributes(points, data.offset, data.dtype, flat)

        results = []
        for k, problem in enumerate(problems):
            callbacks: tuple[Callback, ...] = ()
            task = context
            if getattr(self, "_skl_callbacks", None):
                if n_problems > 1:
                    task = context.subcontext(task_name="target", max_subtasks=None)
                    task.call_on_fit_task_begin(estimator=self, **shown)
                callbacks = (Reporter(self, task, points[k, : problem.n_coordinates], attributes, shown),)
            start = points[k, : problem.n_coordinates].copy() if warm else None
            tol = relative_tolerance(problem, self.tol)
            result = self._solve(problem, tol, callbacks, start)
            raise_interrupt(result)
            points[k, :-1], points[k, -1] = result.coef, result.intercept
            results.append(result)
            self._warn(problem, result, tol)
            if task is not context:
                task.call_on_fit_task_end(estimator=self, reconstruction_attributes=attributes, **shown)
        self.__dict__.update(attributes())
        self._put_results(results)

    def _solve(self, problem: Problem, tol: float, callbacks: Iterable[Callback], start: Array | None) -> Result:
        return solve(
            problem,
            sampling=self.sampling,
            tol=tol,
            max_iter=self._max_iter(),
            n_jobs=effective_n_jobs(getattr(self, "n_jobs", None)),
            random_state=self._seed(),
            callbacks=callbacks,
            warm_start=start,
        )

    def _max_iter(self) -> int:
        return 1000 if self.max_iter is None else int(self.max_iter)

    def _seed(self) -> int:
        """Draw a seed from random_state, for samplings that draw."""
        return 0 if self.sampling == "auto" else int(check_random_state(self.random_state).randint(2**31 - 1))

    def _put_previous(self, points: Array, offset: Array) -> bool:
        """Fill in the points of the fit before, if they are wanted and fit."""
        if not getattr(self, "warm_start", False) or not hasattr(self, "coef_"):
            return False
        coef = self.coef_.toarray() if scipy.sparse.issparse(self.coef_) else np.atleast_2d(self.coef_)
        if coef.shape != (points.shape[0], points.shape[1] - 1):
            return False
        points[:, :-1], points[:, -1] = coef, self.intercept_ + coef @ offset
        return True

    def _put_results(self, results: list[Result]) -> None:
        """Set what is known of each solve: a list or array if there are several."""
        n_iter = [n_iterations(result) for result in results]
        one = len(results) == 1
        self.n_iter_ = n_iter[0] if one else np.array(n_iter)
        self.dual_gap_ = results[0].gap if one else np.array([result.gap for result in results])
        self.status_ = results[0].status if one else [result.status for result in results]
        self.trace_ = results[0].trace if one else [result.trace for result in results]

    def _warn(self, problem: Problem, result: Result, tol: float) -> None:
        """Say what is missing to the tolerance, and what can be done."""
        if result.status.success or result.status is Status.STOPPED:
            return
        done, change = f"after max_iter={self._max_iter()} iterations", "Raise max_iter or tol"
        if result.status is Status.PRECISION:
            done, change = f"rounding ended it after {n_iterations(result)} iterations;", "Raise tol"
        if result.status is Status.DIVERGED:
            missing = result.message
        elif problem.has_certificate:
            asked = tol * problem.objective(np.zeros(problem.n_coordinates))
            missing = (
                f"{done} the objective, {result.objective:.6g}, is certified to be within {result.gap:.2g} of its "
                f"minimum; asked for was {asked:.2g}, which is tol={self.tol:g} times the objective of the best "
                "constant model."
            )
        else:
            missing = (
                f"{done} the violation of optimality is still above tol={self.tol:g} times that at zero; "
                f"{problem.certificate_reason}."
            )
        warn_user(
            f"{type(self).__name__} did not reach its tolerance: {missing} {change}, bring the features to one scale "
            "(StandardScaler, MaxAbsScaler), or strengthen the penalty.",
            ConvergenceWarning,
        )

    # --- Predicting

    def _decide(self, X: Any) -> Array:
        """X coef_ + intercept_, of shape (n_samples,) or (n_samples, n_targets)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), reset=False)
        return np.asarray(safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_)


def _is(value: Any, choice: Any) -> bool:
    """Whether an option has a value; True is not 1."""
    return bool(
        np.ndim(value) == 0 and value == choice and isinstance(value, bool | np.bool_) == isinstance(choice, bool)
    )


def refuse_partitions(estimator: Any, X: Any) -> None:
    """Refuse a dask collection, of which NumPy would quietly make one array."""
    if is_partitioned(X):
        raise TypeError(
            f"{type(estimator).__name__} does not take data in row partitions; the estimators without CV do, and "
            "surestep.path solves for many alphas"
        )


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn where the user called, outside this package and scikit-learn's decorators."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_back.f_globals.get("__name__", "").startswith(("surestep.", "sklearn.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)


def raise_interrupt(result: Result) -> None:
    """Hand a Ctrl-C on that a solver took in: what is around a fit, such as a search, must hear it."""
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt


def n_iterations(result: Result) -> int:
    """Rounds or epochs; looking whether the start is optimal counts as one."""
    return max(int(np.ceil(result.n_epochs)), 1)


@dataclass(frozen=True)
class Data:
    """What a fit works on: the design, centred where that is cheap, and the sample weights.

    An intercept is not penalised, so subtracting ``offset`` from every row changes nothing but the intercept, by
    <offset, coef>; coordinate descent is much faster where the columns have mean zero. Sparse data stay as they are.
    """

    design: Design
    offset: Array
    weights: Array | None

    @classmethod
    def of(cls, X: Any, sample_weight: Any, fit_intercept: bool) -> Data:
        """Take X as `validate_data` returns it."""
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        offset = np.zeros(X.shape[1])
        if fit_intercept and not scipy.sparse.issparse(X):
            offset = np.average(X, axis=0, weights=weights).astype(X.dtype)
            X = np.subtract(X, offset, order="F")  # solvers read columns: no copy in another layout besides
        return cls(Design.of(X), offset.astype(np.float64), weights)

    def shown(self, X: Any, y: Any) -> dict[str, Any]:
        """Return what callbacks are shown."""
        return {"X": X, "y": y, "metadata": None if self.weights is None else {"sample_weight": self.weights}}

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.design.n_features

    @property
    def dtype(self) -> Any:
        """Type of X, and of what is learned."""
        return self.design.dtype

    @property
    def total_weight(self) -> float:
        """S, the sum of the sample weights: our problems are means, some objectives of scikit-learn are sums."""
        return float(self.design.n_samples) if self.weights is None else float(np.sum(self.weights))


@dataclass(frozen=True)
class PartitionedData:
    """What a fit works on, as `Data`, where that is in row partitions on the workers of a cluster."""

    partitions: Partitions
    offset: Array
    weights: Any

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: Any, fit_intercept: bool) -> PartitionedData:
        """Take dask collections."""
        partitions = Partitions.of(X, y, sample_weight)
        offset = np.zeros(partitions.n_features)
        if fit_intercept and not partitions.is_sparse:
            partitions, offset = partitions.centred()
        return cls(partitions, offset.astype(np.float64), sample_weight)

    def shown(self, X: Any, y: Any) -> dict[str, Any]:
        """Return what callbacks are shown."""
        return {"X": X, "y": y, "metadata": None if self.weights is None else {"sample_weight": self.weights}}

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.partitions.n_features

    @property
    def dtype(self) -> Any:
        """Type of X, and of what is learned."""
        return self.partitions.dtype


def _attributes(points: Array, offset: Array, dtype: Any, flat: bool) -> dict[str, Any]:
    """Make coef_ and intercept_ of points, which have the intercept of the centred data last."""
    coef = points[:, :-1].astype(dtype)
    intercept = (points[:, -1] - coef @ offset).astype(dtype)
    return {"coef_": coef[0], "intercept_": intercept[0]} if flat else {"coef_": coef, "intercept_": intercept}
