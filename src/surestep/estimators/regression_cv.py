"""Linear regression with a penalty chosen by cross-validation: LassoCV, ElasticNetCV."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import RegressorMixin
from sklearn.callback import with_callbacks
from sklearn.model_selection import check_cv
from sklearn.utils import check_scalar
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import column_or_1d, validate_data

from surestep.estimators._base import Array, Data, Option, refuse_partitions
from surestep.estimators._folds import CrossValidated
from surestep.estimators.regression import ElasticNet
from surestep.losses import Squared
from surestep.path import RegularizationPath, alpha_grid
from surestep.problem import Problem


class RegressorCV(RegressorMixin, CrossValidated):
    """Least squares whose penalty is chosen by the mean squared error on the folds."""

    _options: ClassVar[dict[str, Option]] = {
        **ElasticNet._options,
        "precompute": (("auto", True, False), "a Gram matrix of your own is not used"),
    }

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:
        """Choose the penalty by cross-validation, and fit on all data with it.

        Parameters
        ----------
        X : array-like or sparse, shape (n_samples, n_features)
        y : array-like, shape (n_samples,)
        sample_weight : float or array-like, shape (n_samples,), optional
            Weights of the fits and of the errors on the folds.
        **params
            For the splitter, with metadata routing.

        Returns
        -------
        self
        """
        _raise_for_params(params, self, "fit")
        self._check_options()
        refuse_partitions(self, X)
        X, y = validate_data(
            self, X, y, accept_sparse=("csc", "csr"), dtype=(np.float64, np.float32), multi_output=True, y_numeric=True
        )
        if y.ndim == 2 and y.shape[1] > 1:
            raise ValueError(
                f"{type(self).__name__} chooses one penalty for one target, but y has {y.shape[1]} columns: fit each "
                "by itself, or use sklearn.multioutput.MultiOutputRegressor"
            )
        y = column_or_1d(y, warn=True)
        data = Data.of(X, sample_weight, self.fit_intercept)
        l1_ratios = np.atleast_1d(getattr(self, "l1_ratio", 1.0))
        problem = Problem(data.design, y, Squared(), None, data.weights, self.fit_intercept)
        grids = np.stack([self._grid(problem.with_regularizer(self._penalty_of(1.0, ratio))) for ratio in l1_ratios])
        routed = {}
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params).splitter.split
        folds = list(check_cv(self.cv).split(X, y, **routed))

        shown = data.shown(X, y)
        context = self._init_callback_context(max_subtasks=len(folds) + 1)
        context.call_on_fit_task_begin(estimator=self, **shown)

        seed = self._seed()  # once: threads must not take turns at a generator
        rows = X.tocsr() if scipy.sparse.issparse(X) else X

        def fit_fold(train: Array, test: Array) -> tuple[Array, list[RegularizationPath]]:
            part = Data.of(rows[train], None if data.weights is None else data.weights[train], self.fit_intercept)
            problem = Problem(part.design, y[train], Squared(), None, part.weights, self.fit_intercept)
            test_weights = None if data.weights is None else data.weights[test]
            errors, paths = [], []
            for ratio, grid in zip(l1_ratios, grids, strict=True):
                fitted = self._path(problem.with_regularizer(self._penalty_of(1.0, ratio)), grid, seed)
                intercepts = fitted.intercepts - part.offset @ fitted.coefs
                residuals = safe_sparse_dot(rows[test], fitted.coefs) + intercepts - y[test][:, None]
                errors.append(np.average(residuals**2, axis=0, weights=test_weights))
                paths.append(fitted)
            return np.stack(errors), paths

        outcomes = self._each_fold(fit_fold, folds, context, shown)
        self._warn_of_paths([one for _, paths in outcomes for one in paths])
        errors = np.stack([error for error, _ in outcomes], axis=-1)  # l1_ratio, alpha, fold
        best = np.unravel_index(np.argmin(np.mean(errors, axis=-1)), errors.shape[:2])
        self.mse_path_ = np.squeeze(errors)
        self.alphas_ = grids[0] if len(grids) == 1 or not isinstance(self.alphas, Integral) else grids
        self.alpha_ = float(grids[best])
        l1_ratio = float(l1_ratios[best[0]])
        if hasattr(self, "l1_ratio"):
            self.l1_ratio_ = l1_ratio

        refit = context.subcontext(task_name="refit", max_subtasks=None)
        refit.call_on_fit_task_begin(estimator=self, **shown)
        chosen = problem.with_regularizer(self._penalty_of(self.alpha_, l1_ratio))
        self._solve_problems([chosen], 1, data, shown, True, refit)
        refit.call_on_fit_task_end(estimator=self, **shown)
        context.call_on_fit_task_end(estimator=self, reconstruction_attributes={}, **shown)
        return self

    def _grid(self, problem: Problem) -> Array:
        if isinstance(self.alphas, Integral):
            return alpha_grid(problem, int(self.alphas), self.eps)
        if np.ndim(self.alphas) != 1:
            raise TypeError(f"alphas must be a number of them or a sequence of numbers >= 0, got {self.alphas!r}")
        for alpha in self.alphas:
            check_scalar(alpha, "alphas", Real, min_val=0.0)
        return np.sort(np.asarray(self.alphas, dtype=np.float64))[::-1]

    def predict(self, X: Any) -> Array:
        """Predict targets for X, of shape (n_samples,)."""
        return self._decide(X)

    def get_metadata_routing(self) -> Any:
        """Return what metadata the splitter is handed."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=check_cv(self.cv), method_mapping=MethodMapping().add(caller="fit", callee="split"))
        )


class ElasticNetCV(RegressorCV):
    """`ElasticNet` with ``alpha`` and ``l1_ratio`` chosen by cross-validation.

    Parameters
    ----------
    l1_ratio : float or array-like
        Share of the L1 penalty, or those to choose from; positive where ``alphas`` is a number.
    eps : float
        The smallest alpha of a grid, divided by the largest.
    alphas : int or array-like
        The alphas to choose from, or how many of them, from the smallest that makes all coefficients zero downwards.
    cv : int, splitter, iterable or None
        As in scikit-learn; None means five folds.
    n_jobs : int or None
        Threads, one a fold; None means 1.
    verbose : int
        No effect: progress is logged to the logger "surestep", and shown by scikit-learn's callbacks.
    fit_intercept, precompute, max_iter, tol, copy_X, positive, random_state, selection, sampling, penalty_weights
        As in `ElasticNet`.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        Those chosen.
    alphas_ : ndarray of shape (n_alphas,) or (n_l1_ratios, n_alphas)
    mse_path_ : ndarray of shape (n_l1_ratios, n_alphas, n_folds), or without the first axis for one l1_ratio
        Mean squared errors on the folds.
    coef_, intercept_, dual_gap_, n_iter_, status_, trace_ : as in `ElasticNet`, of the fit on all data
    """

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: Any = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        cv: Any = None,
        copy_X: bool = True,
        verbose: int = 0,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.eps = eps
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.cv = cv
        self.copy_X = copy_X
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.sampling = sampling
        self.penalty_weights = penalty_weights


class LassoCV(RegressorCV):
    """`Lasso` with ``alpha`` chosen by cross-validation.

    Parameters and attributes are those of `ElasticNetCV` without ``l1_ratio`` and ``l1_ratio_``.
    """

    def __init__(
        self,
        *,
        eps: float = 1e-3,
        alphas: Any = 100,
        fit_intercept: bool = True,
        precompute: Any = "auto",
        max_iter: int = 1000,
        tol: float = 1e-6,
        copy_X: bool = True,
        cv: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.eps = eps
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.tol = tol
        self.copy_X = copy_X
        self.cv = cv
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.sampling = sampling
        self.penalty_weights = penalty_weights
