"""Linear classification with a penalty chosen by cross-validation: LogisticRegressionCV."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.callback import with_callbacks
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils import check_scalar
from sklearn.utils.metadata_routing import (
    UNUSED,
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, validate_data

from surestep import regularizers
from surestep.estimators._base import Array, Data, Option, n_iterations, refuse_partitions
from surestep.estimators._folds import CrossValidated
from surestep.estimators.classification import LogisticClassifier, LogisticRegression
from surestep.path import RegularizationPath
from surestep.regularizers import Regularizer


class LogisticRegressionCV(LogisticClassifier, CrossValidated):
    """`LogisticRegression` with ``C`` and ``l1_ratio`` chosen by cross-validation.

    Parameters
    ----------
    Cs : int or array-like
        The C to choose from, or how many of them, from 1e-4 to 1e4.
    l1_ratios : array-like
        The shares of the L1 penalty to choose from.
    cv : int, splitter, iterable or None
        As in scikit-learn; None means five stratified folds.
    scoring : str, callable or None
        What to choose by, as in scikit-learn; None means accuracy.
    n_jobs : int or None
        Threads, one a fold; None means 1.
    refit : bool
        Whether to fit on all data with what was chosen; else the best coefficients of the folds are averaged.
    use_legacy_attributes : bool
        Only False: the attributes are those that scikit-learn has from 1.10 on.
    fit_intercept, dual, penalty, solver, tol, max_iter, class_weight, verbose, intercept_scaling, random_state
        As in `LogisticRegression`.
    multi_class, positive, sampling, penalty_weights
        As in `LogisticRegression`.

    Attributes
    ----------
    C_, l1_ratio_ : float
        Those chosen.
    Cs_, l1_ratios_ : ndarray
    scores_ : ndarray of shape (n_folds, n_l1_ratios, n_cs)
    coefs_paths_ : ndarray of shape (n_folds, n_l1_ratios, n_cs, n_classes, n_dof)
        Coefficients, then the intercept if there is one; one class instead of two.
    n_iter_ : ndarray of shape (n_folds, n_l1_ratios, n_cs)
        The largest over the classes.
    coef_, intercept_, classes_ : as in `LogisticRegression`
    dual_gap_, status_, trace_ : as in `LogisticRegression`, of the fit on all data
    """

    _options: ClassVar[dict[str, Option]] = {
        **LogisticRegression._options,
        "penalty": (("deprecated", "l1", "l2", "elasticnet"), "it is deprecated, use l1_ratios and Cs"),
        "use_legacy_attributes": ((False,), "there are only the attributes scikit-learn has from 1.10 on"),
        "refit": ((True, False), "it is a yes or a no"),
    }
    # sample_weight of `score` is handed on to the scorer.
    __metadata_request__score: ClassVar[dict[str, Any]] = {"sample_weight": UNUSED}

    def __init__(
        self,
        *,
        Cs: Any = 10,
        l1_ratios: Any = (0.0,),
        fit_intercept: bool = True,
        cv: Any = None,
        dual: bool = False,
        penalty: str = "deprecated",
        scoring: Any = None,
        solver: str = "lbfgs",
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        refit: bool = True,
        intercept_scaling: float = 1.0,
        random_state: Any = None,
        use_legacy_attributes: bool = False,
        multi_class: str = "ovr",
        positive: bool = False,
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.Cs = Cs
        self.l1_ratios = l1_ratios
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.dual = dual
        self.penalty = penalty
        self.scoring = scoring
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.refit = refit
        self.intercept_scaling = intercept_scaling
        self.random_state = random_state
        self.use_legacy_attributes = use_legacy_attributes
        self.multi_class = multi_class
        self.positive = positive
        self.sampling = sampling
        self.penalty_weights = penalty_weights

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, **params: Any) -> Any:
        """Choose the penalty by cross-validation, and fit on all data with it.

        Parameters
        ----------
        X : array-like or sparse, shape (n_samples, n_features)
        y : array-like, shape (n_samples,)
        sample_weight : float or array-like, shape (n_samples,), optional
            Weights of the fits, and of the scores on the folds.
        **params
            For the splitter and the scorer, with metadata routing.

        Returns
        -------
        self
        """
        _raise_for_params(params, self, "fit")
        self._check_options()
        refuse_partitions(self, X)
        X, y = validate_data(self, X, y, accept_sparse=("csc", "csr"), dtype=(np.float64, np.float32))
        check_classification_targets(y)
        data = Data.of(X, sample_weight, self.fit_intercept)
        labels, class_weight = self._put_classes(y, data.weights)
        self._put_grid()
        to_splitter: dict[str, Any] = {}
        to_scorer = {} if data.weights is None else {"sample_weight": data.weights}
        if _routing_enabled():
            routed = process_routing(self, "fit", sample_weight=sample_weight, **params)
            to_splitter, to_scorer = routed.splitter.split, routed.scorer.score
        folds = list(check_cv(self.cv, y, classifier=True).split(X, y, **to_splitter))
        scorer = self._scorer()
        seed = self._seed()  # once: threads must not take turns at a generator
        rows = X.tocsr() if scipy.sparse.issparse(X) else X

        def fit_fold(train: Array, test: Array) -> tuple[Array, Array, list[RegularizationPath]]:
            self._check_fold(labels, train)
            part = Data.of(rows[train], None if data.weights is None else data.weights[train], self.fit_intercept)
            problems = self._problems(part, labels[train], class_weight)
            paths = [
                self._path(
                    problem.with_regularizer(self._penalty_of(1.0, ratio)), problem.regularizer.alpha / self.Cs_, seed
                )
                for problem in problems
                for ratio in self.l1_ratios_
            ]
            points = self._in_order([_points(one, part.offset) for one in paths])
            points = np.moveaxis(points, 0, 2)  # l1_ratio, C, class, coordinate
            score_params = _check_method_params(rows, to_scorer, indices=test)
            model = LogisticRegression()
            model.classes_ = self.classes_
            scores = np.empty(points.shape[:2])
            for at in np.ndindex(scores.shape):
                model.coef_, model.intercept_ = points[at][:, :-1], points[at][:, -1]
                scores[at] = scorer(model, rows[test], y[test], **score_params)
            return points, scores, paths

        shown = data.shown(X, y)
        context = self._init_callback_context(max_subtasks=len(folds) + 1)
        context.call_on_fit_task_begin(estimator=self, **shown)
        outcomes = self._each_fold(fit_fold, folds, context, shown)
        points = np.stack([points for points, _, _ in outcomes])
        self.coefs_paths_ = points if self.fit_intercept else points[..., :-1]
        self.scores_ = np.stack([scores for _, scores, _ in outcomes])
        self._warn_of_paths([one for _, _, paths in outcomes for one in paths])
        task = context.subcontext(task_name="refit", max_subtasks=None if self._n_problems == 1 else self._n_problems)
        task.call_on_fit_task_begin(estimator=self, **shown)
        if self.refit:
            # C before l1_ratio, so that of equal scores the one scikit-learn takes is taken
            best = np.unravel_index(np.argmax(np.sum(self.scores_, axis=0).T), self.scores_.shape[:0:-1])
            self.C_, self.l1_ratio_ = float(self.Cs_[best[0]]), float(self.l1_ratios_[best[1]])
            chosen = (
                problem.with_regularizer(self._penalty_of(problem.regularizer.alpha / self.C_, self.l1_ratio_))
                for problem in self._problems(data, labels, class_weight)
            )
            self._solve_problems(chosen, self._n_problems, data, shown, False, task)
        else:
            self._average(points, data.design.dtype)
        task.call_on_fit_task_end(estimator=self, **shown)
        n_iter = [self._in_order([_n_iter(one) for one in paths]).max(axis=0) for _, _, paths in outcomes]
        self.n_iter_ = np.stack(n_iter)
        context.call_on_fit_task_end(estimator=self, reconstruction_attributes={}, **shown)
        return self

    def _put_grid(self) -> None:
        if isinstance(self.Cs, Integral):
            check_scalar(self.Cs, "Cs", Integral, min_val=1)
            self.Cs_ = np.logspace(-4, 4, self.Cs)
        else:
            self.Cs_ = np.array(self.Cs, dtype=np.float64)
        if self.Cs_.ndim != 1 or self.Cs_.size == 0 or not (self.Cs_ > 0.0).all():
            raise ValueError(f"Cs must be a number of them or a sequence of positive numbers, got {self.Cs!r}")
        l1_ratios = {"l1": (1.0,), "l2": (0.0,)}.get(self.penalty, self.l1_ratios)
        self.l1_ratios_ = np.array(l1_ratios, dtype=np.float64)
        if self.l1_ratios_.ndim != 1 or self.l1_ratios_.size == 0:
            raise ValueError(f"l1_ratios must be a sequence of numbers between 0 and 1, got {self.l1_ratios!r}")

    def _check_fold(self, labels: Array, train: Array) -> None:
        missing = np.setdiff1d(labels, labels[train])
        if missing.size:
            raise ValueError(
                f"class {self.classes_[missing[0]]} does not occur in the training part of a fold; take fewer folds, "
                "or stratified ones such as cv=StratifiedKFold()"
            )

    def _penalty(self, total: float) -> Regularizer:
        """Return the penalty for C = 1, to be scaled."""
        return regularizers.ElasticNet(1.0 / total, 1.0, self.penalty_weights)

    def _in_order(self, paths: list[Array]) -> Array:
        """Stack what the paths of all classes and l1_ratios have; from falling alphas to the order of Cs."""
        place = np.argsort(np.argsort(self.Cs_, kind="stable"))
        stacked = np.stack([one[place] for one in paths])
        return stacked.reshape(-1, self.l1_ratios_.size, *stacked.shape[1:])

    def _average(self, points: Array, dtype: Any) -> None:
        """Take the mean of what is best on each fold."""
        for name in ("dual_gap_", "status_", "trace_"):  # of a fit before, perhaps: a mean has none
            self.__dict__.pop(name, None)
        n_folds, _, n_cs = self.scores_.shape
        flat = np.argmax(np.swapaxes(self.scores_, 1, 2).reshape(n_folds, -1), axis=1)
        at_C, at_ratio = np.unravel_index(flat, (n_cs, self.l1_ratios_.size))
        self.C_, self.l1_ratio_ = float(np.mean(self.Cs_[at_C])), float(np.mean(self.l1_ratios_[at_ratio]))
        mean = np.mean(points[np.arange(n_folds), at_ratio, at_C], axis=0).astype(dtype)
        self.coef_, self.intercept_ = mean[:, :-1], mean[:, -1]

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring is None else self.scoring)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **score_params: Any) -> float:
        """Score predictions for X by ``scoring``."""
        _raise_for_params(score_params, self, "score")
        to_scorer = {} if sample_weight is None else {"sample_weight": sample_weight}
        if _routing_enabled():
            to_scorer = process_routing(self, "score", sample_weight=sample_weight, **score_params).scorer.score
        return float(self._scorer()(self, X, y, **to_scorer))

    def get_metadata_routing(self) -> Any:
        """Return what metadata the splitter and the scorer are handed."""
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(splitter=check_cv(self.cv), method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(
                scorer=self._scorer(),
                method_mapping=MethodMapping().add(caller="fit", callee="score").add(caller="score", callee="score"),
            )
        )


def _points(path: RegularizationPath, offset: Array) -> Array:
    """Coefficients and intercept for data that are not centred, a row for each alpha."""
    return np.column_stack([path.coefs.T, path.intercepts - offset @ path.coefs])


def _n_iter(path: RegularizationPath) -> Array:
    return np.array([n_iterations(result) for result in path.results])
