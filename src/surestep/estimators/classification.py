"""Linear classification with scikit-learn's faces: LogisticRegression, LinearSVC; several classes one-vs-rest."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.callback import with_callbacks
from sklearn.utils import check_scalar
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from surestep import regularizers
from surestep.distributed import PartitionedProblem, Targets
from surestep.estimators._base import Array, Data, LinearModel, Option, warn_user
from surestep.losses import Logistic, SquaredHinge
from surestep.problem import Problem, is_partitioned
from surestep.regularizers import Regularizer


class LinearClassifier(ClassifierMixin, LinearModel):
    """A loss of the margin with a penalty; with more than two classes, each against the rest."""

    # Whether, with several classes, the weights of the other classes count where one stands against the rest.
    _rest_is_weighted: ClassVar[bool] = True

    def _loss(self) -> Any:
        raise NotImplementedError

    def _penalty(self, total: float) -> Regularizer:
        """Return the penalty of a problem whose sample weights sum to total."""
        raise NotImplementedError

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse, shape (n_samples, n_features)
            float32 and float64 are kept. A dask array or DataFrame is fitted where its partitions are, on the workers
            of the active client; see `surestep.distributed`.
        y : array-like, shape (n_samples,)
            Labels of any kind.
        sample_weight : float or array-like, shape (n_samples,), optional
            Weights >= 0; a sample of weight 0 is left out.

        Returns
        -------
        self
        """
        self._check_options()
        if is_partitioned(X):
            return self._fit_partitioned(X, y, sample_weight)
        X, y = validate_data(self, X, y, accept_sparse=("csc", "csr"), dtype=(np.float64, np.float32))
        check_classification_targets(y)
        data = Data.of(X, sample_weight, self.fit_intercept)
        labels, class_weight = self._put_classes(y, data.weights)
        self._fit_problems(self._problems(data, labels, class_weight), self._n_problems, data, X, y, flat=False)
        return self

    def _fit_partitioned(self, X: Any, y: Any, sample_weight: Any) -> Any:
        data = self._partitioned(X, y, sample_weight)
        partitions = data.partitions
        if partitions.y_shape:
            raise ValueError(f"y must be one-dimensional, but has {partitions.y_shape[0]} columns")
        self.classes_ = np.unique(np.concatenate([labels for labels, _ in partitions.labels()]))
        check_classification_targets(self.classes_)
        if self.classes_.size < 2:
            raise ValueError(f"y must have at least two classes, but has one class only: {self.classes_[0]}")
        weights = partitions.label_weights(self.classes_)
        class_weight = self._class_weights(self.classes_, weights)

        def problem(k: int) -> Problem:
            factors = self._class_factors(np.arange(self.classes_.size), k, class_weight)
            targets = Targets(positive=self.classes_[k], labels=self.classes_, factors=factors)
            free = PartitionedProblem.over(partitions, targets, self._loss(), self.fit_intercept)
            return free.with_regularizer(self._bounded(self._penalty(free.total_weight)))

        chosen = range(self.classes_.size) if self.classes_.size > 2 else (1,)
        self._fit_problems(map(problem, chosen), self._n_problems, data, X, y, flat=False)
        return self

    def _put_classes(self, y: Array, weights: Array | None) -> tuple[Array, Array]:
        """Set classes_; return the position of each label there, and the weights of the classes."""
        self.classes_, labels = np.unique(y, return_inverse=True)
        if self.classes_.size < 2:
            raise ValueError(f"y must have at least two classes, but has one class only: {self.classes_[0]}")
        return labels, self._class_weights(y, weights)

    def _class_weights(self, y: Array, weights: Array | None) -> Array:
        class_weight = compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weights)
        bad = np.flatnonzero(~(np.isfinite(class_weight) & (class_weight >= 0.0)))
        if bad.size:
            raise ValueError(
                f"class_weight must be finite and >= 0, but that of class {self.classes_[bad[0]]} is "
                f"{class_weight[bad[0]]}"
            )
        return np.asarray(class_weight)

    @property
    def _n_problems(self) -> int:
        return 1 if self.classes_.size == 2 else self.classes_.size

    def _problems(self, data: Data, labels: Array, class_weight: Array) -> Iterator[Problem]:
        """Yield the second of two classes against the first, or each of several against the rest."""
        n_classes = class_weight.size
        for k in range(n_classes) if n_classes > 2 else (1,):
            weights = self._class_factors(labels, k, class_weight)
            if data.weights is not None:
                weights = data.weights * weights
            yield Problem(
                data.design,
                np.where(labels == k, 1.0, -1.0),
                self._loss(),
                self._bounded(self._penalty(float(np.sum(weights)))),
                weights,
                self.fit_intercept,
            )

    def _class_factors(self, labels: Array, k: int, class_weight: Array) -> Array:
        """Factors of the sample weights where class k stands against the rest."""
        if class_weight.size > 2 and not self._rest_is_weighted:
            return np.where(labels == k, class_weight[k], 1.0)
        return np.asarray(class_weight[labels])

    def decision_function(self, X: Any) -> Array:
        """Margins, of shape (n_samples,) for two classes (positive: the second), else (n_samples, n_classes)."""
        margins = self._decide(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Array:
        """Predict a class label for every sample."""
        margins = self.decision_function(X)
        chosen = (margins > 0.0).astype(int) if margins.ndim == 1 else np.argmax(margins, axis=1)
        return np.asarray(self.classes_[chosen])

    def sparsify(self) -> Any:
        """Make ``coef_`` a sparse matrix: smaller where most coefficients are zero. Returns self."""
        check_is_fitted(self)
        self.coef_ = scipy.sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Any:
        """Make ``coef_`` an array again. Returns self."""
        check_is_fitted(self)
        if scipy.sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self


def _refuse_nan(C: float) -> None:
    if math.isnan(C):
        raise ValueError("C must be a positive number, got nan")


def probabilities(margins: Array) -> Array:
    """From margins of the logistic loss to probabilities of the classes."""
    p: Array = expit(margins)
    if p.ndim == 1:
        return np.stack([1.0 - p, p], axis=1)
    total = np.sum(p, axis=1, keepdims=True)
    shares = np.full_like(p, 1.0 / p.shape[1])  # where all underflow
    np.divide(p, total, out=shares, where=total > 0.0)
    return shares


class LogisticClassifier(LinearClassifier):
    """The logistic loss, and probabilities."""

    def _check_options(self) -> None:
        super()._check_options()
        if self.penalty != "deprecated":
            warn_user(
                f"penalty is deprecated, as in scikit-learn: instead of penalty={self.penalty!r} say l1_ratio=0 for "
                "'l2', l1_ratio=1 for 'l1', C=np.inf for None, and only the l1_ratio for 'elasticnet'",
                FutureWarning,
            )

    def _loss(self) -> Any:
        return Logistic()

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, of shape (n_samples, n_classes), in the order of ``classes_``.

        With more than two classes, the probability of each against the rest, divided by their sum.
        """
        return probabilities(self.decision_function(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


class LogisticRegression(LogisticClassifier):
    """Logistic regression with an L1, L2 or elastic-net penalty.

    Minimises, over coefficients w and an intercept b that is not penalised, for labels y_i = -1 or +1,

        C sum_i s_i log(1 + exp(-y_i (<x_i, w> + b))) + l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2,

    with the sample weights s times the class weights: the objective of `sklearn.linear_model.LogisticRegression` for
    two classes. More classes are fitted one-vs-rest, where scikit-learn has the multinomial loss.

    Parameters
    ----------
    penalty : {"l1", "l2", "elasticnet", None}
        Deprecated as in scikit-learn: use ``l1_ratio``, and ``C=np.inf`` for None.
    C : float
        Inverse strength of the penalty, > 0; `numpy.inf` for none.
    l1_ratio : float
        Share of the L1 penalty, between 0 and 1.
    dual : bool
        Only False.
    tol : float
        The objective is within ``tol`` times that of the best constant model of its minimum, by a certificate.
    fit_intercept : bool
    intercept_scaling : float
        Only 1: the intercept is not penalised.
    class_weight : dict, "balanced" or None
        Factors of the sample weights, as in scikit-learn.
    random_state : int, RandomState instance or None
        For a ``sampling`` that draws.
    solver : str
        The names of scikit-learn are taken and have no effect: see ``sampling``.
    max_iter : int
        Largest number of rounds of the solver, or of epochs with a ``sampling``.
    verbose : int
        No effect: progress is logged to the logger "surestep", and shown by scikit-learn's callbacks.
    warm_start : bool
        Whether a fit starts from the solution of the one before.
    n_jobs : int or None
        Threads of the solver.
    multi_class : {"ovr"}
        One-vs-rest; "multinomial" is refused.
    positive, sampling, penalty_weights
        As in `surestep.estimators.ElasticNet`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray or sparse of shape (1, n_features) or (n_classes, n_features)
        Of the dtype of X; see `sparsify`.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    n_iter_ : ndarray of shape (1,) or (n_classes,)
    dual_gap_ : float or ndarray of shape (n_classes,)
        Certified bound on how far the mean form of the objective, divided by C sum_i s_i, is from its minimum.
    status_, trace_ : as in `surestep.estimators.ElasticNet`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import numpy as np
    >>> from surestep.estimators import LogisticRegression
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = LogisticRegression(l1_ratio=1).fit(X, ["no", "no", "yes", "yes"])
    >>> model.predict([[-3.0], [0.5]])
    array(['no', 'yes'], dtype='<U3')
    """

    _options: ClassVar[dict[str, Option]] = {
        "penalty": (("deprecated", "l1", "l2", "elasticnet", None), "it is deprecated, use l1_ratio and C"),
        "dual": ((False,), "the primal is solved, with a certificate from its dual"),
        "intercept_scaling": ((1,), "the intercept is not penalised, there is nothing to scale"),
        "solver": (
            ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga"),
            "none has an effect, see sampling",
        ),
        "multi_class": (("ovr",), "the multinomial loss is not there yet, classes are fitted one-vs-rest"),
    }

    def __init__(
        self,
        penalty: str | None = "deprecated",
        *,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        dual: bool = False,
        tol: float = 1e-6,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        random_state: Any = None,
        solver: str = "lbfgs",
        max_iter: int = 1000,
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        multi_class: str = "ovr",
        positive: bool = False,
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.penalty = penalty
        self.C = C
        self.l1_ratio = l1_ratio
        self.dual = dual
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.random_state = random_state
        self.solver = solver
        self.max_iter = max_iter
        self.verbose = verbose
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.multi_class = multi_class
        self.positive = positive
        self.sampling = sampling
        self.penalty_weights = penalty_weights

    def _check_options(self) -> None:
        super()._check_options()
        check_scalar(self.C, "C", Real, min_val=0.0, include_boundaries="right", max_val=math.inf)
        _refuse_nan(self.C)
        check_scalar(self.l1_ratio, "l1_ratio", Real, min_val=0.0, max_val=1.0)

    def _penalty(self, total: float) -> Regularizer:
        if self.penalty is None or math.inf == self.C:
            return regularizers.NoPenalty()
        l1_ratio = {"l1": 1.0, "l2": 0.0}.get(self.penalty, self.l1_ratio)
        return regularizers.ElasticNet(1.0 / (self.C * total), l1_ratio, self.penalty_weights)

    def _put_results(self, results: list[Any]) -> None:
        super()._put_results(results)
        self.n_iter_ = np.atleast_1d(self.n_iter_)


class LinearSVC(LinearClassifier):
    """Linear support vector classification with the squared hinge loss and an L1 or L2 penalty.

    Minimises, over coefficients w and an intercept b that is not penalised, for labels y_i = -1 or +1,

        C sum_i s_i max(0, 1 - y_i (<x_i, w> + b))^2 + ||w||^2 / 2    (or ||w||_1),

    with the sample weights s times the class weights: the objective of `sklearn.svm.LinearSVC`, whose intercept is
    penalised, however. More than two classes are fitted one-vs-rest.

    Parameters
    ----------
    penalty : {"l2", "l1"}
    loss : {"squared_hinge"}
        "hinge" is refused: it is not smooth.
    dual : bool or "auto"
        No effect.
    tol : float
        The objective is within ``tol`` times that of the best constant model of its minimum, by a certificate.
    C : float
        Inverse strength of the penalty, > 0.
    multi_class : {"ovr"}
        One-vs-rest; "crammer_singer" is refused.
    fit_intercept : bool
    intercept_scaling : float
        Only 1: the intercept is not penalised.
    class_weight : dict, "balanced" or None
        Factors of the sample weights, as in scikit-learn: with more than two classes, of the one class only and not of
        the rest.
    verbose : int
        No effect: progress is logged to the logger "surestep", and shown by scikit-learn's callbacks.
    random_state, max_iter, positive, sampling, penalty_weights
        As in `surestep.estimators.ElasticNet`.

    Attributes
    ----------
    classes_, coef_, intercept_, dual_gap_, status_, trace_ : as in `surestep.estimators.LogisticRegression`
    n_iter_ : int
        The largest of the numbers of rounds or epochs.

    Examples
    --------
    >>> import numpy as np
    >>> from surestep.estimators import LinearSVC
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> LinearSVC().fit(X, [0, 0, 1, 1]).predict([[-3.0], [0.5]])
    array([0, 1])
    """

    _options: ClassVar[dict[str, Option]] = {
        "penalty": (("l2", "l1"), "there are no others"),
        "loss": (("squared_hinge",), "the hinge is not smooth, which coordinate descent on w needs"),
        "dual": (("auto", True, False), "none has an effect"),
        "intercept_scaling": ((1,), "the intercept is not penalised, there is nothing to scale"),
        "multi_class": (("ovr",), "classes are fitted one-vs-rest"),
    }
    _rest_is_weighted: ClassVar[bool] = False  # as in liblinear

    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: bool | str = "auto",
        tol: float = 1e-6,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        positive: bool = False,
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.positive = positive
        self.sampling = sampling
        self.penalty_weights = penalty_weights

    def _check_options(self) -> None:
        super()._check_options()
        check_scalar(self.C, "C", Real, min_val=0.0, include_boundaries="neither")
        _refuse_nan(self.C)

    def _loss(self) -> Any:
        return SquaredHinge()

    def _penalty(self, total: float) -> Regularizer:
        # Our squared hinge has a factor 1/2.
        alpha = 1.0 / (2.0 * self.C * total)
        return (regularizers.L1 if self.penalty == "l1" else regularizers.L2)(alpha, self.penalty_weights)

    def _put_results(self, results: list[Any]) -> None:
        super()._put_results(results)
        self.n_iter_ = int(np.max(self.n_iter_))
