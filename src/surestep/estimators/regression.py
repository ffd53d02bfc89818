"""Linear regression with scikit-learn's faces: ElasticNet, Lasso, Ridge."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.callback import with_callbacks
from sklearn.utils import check_scalar
from sklearn.utils.validation import validate_data

from surestep import regularizers
from surestep.distributed import PartitionedProblem, Targets
from surestep.estimators._base import Array, Data, LinearModel, Option
from surestep.losses import Squared
from surestep.problem import Problem, is_partitioned
from surestep.regularizers import Regularizer


class LinearRegressor(MultiOutputMixin, RegressorMixin, LinearModel):
    """Least squares with a penalty; a target of several columns is fitted column by column."""

    def _loss(self) -> Any:
        return Squared()

    def _penalties(self, n_targets: int, total: float) -> list[Regularizer]:
        """Return the penalties of the targets, where the sample weights sum to total."""
        raise NotImplementedError

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse, shape (n_samples, n_features)
            float32 and float64 are kept. A dask array or DataFrame is fitted where its partitions are, on the workers
            of the active client; see `surestep.distributed`.
        y : array-like, shape (n_samples,) or (n_samples, n_targets)
        sample_weight : float or array-like, shape (n_samples,), optional
            Weights >= 0; a sample of weight 0 is left out.

        Returns
        -------
        self
        """
        self._check_options()
        if is_partitioned(X):
            return self._fit_partitioned(X, y, sample_weight)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=("csc", "csr"),
            dtype=(np.float64, np.float32),
            multi_output=True,
            y_numeric=True,
        )
        data = Data.of(X, sample_weight, self.fit_intercept)
        targets = y.reshape(y.shape[0], -1)
        penalties = self._penalties(targets.shape[1], data.total_weight)
        problems = (
            Problem(data.design, target, self._loss(), self._bounded(penalty), data.weights, self.fit_intercept)
            for target, penalty in zip(targets.T, penalties, strict=True)
        )
        self._fit_problems(problems, targets.shape[1], data, X, y, flat=targets.shape[1] == 1)
        if y.ndim == 2:
            self.intercept_ = np.atleast_1d(self.intercept_)
        return self

    def _fit_partitioned(self, X: Any, y: Any, sample_weight: Any) -> Any:
        data = self._partitioned(X, y, sample_weight)
        partitions = data.partitions
        n_targets = partitions.y_shape[0] if partitions.y_shape else 1

        def problem(t: int) -> Problem:
            targets = Targets(column=t if partitions.y_shape else None)
            free = PartitionedProblem.over(partitions, targets, self._loss(), self.fit_intercept)
            penalties = self._penalties(n_targets, free.total_weight)
            return free.with_regularizer(self._bounded(penalties[t]))

        self._fit_problems(map(problem, range(n_targets)), n_targets, data, X, y, flat=n_targets == 1)
        if partitions.y_shape:
            self.intercept_ = np.atleast_1d(self.intercept_)
        return self

    def predict(self, X: Any) -> Array:
        """Predict targets for X, of shape (n_samples,) or (n_samples, n_targets)."""
        return self._decide(X)


class ElasticNet(LinearRegressor):
    """Linear regression with an L1 and an L2 penalty.

    Minimises, over coefficients w and an intercept b that is not penalised,

        1/2 mean_i (y_i - <x_i, w> - b)^2 + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2),

    the mean weighted by ``sample_weight``: the objective of `sklearn.linear_model.ElasticNet`.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, >= 0.
    l1_ratio : float
        Share of the L1 penalty, between 0 and 1.
    fit_intercept : bool
    precompute : bool
        No effect: the solver decides where a Gram matrix pays. One of your own is refused.
    max_iter : int
        Largest number of rounds of the solver, or of epochs with a ``sampling``.
    copy_X : bool
        No effect: X is never written to.
    tol : float
        The objective is within ``tol`` times that of the best constant model of its minimum, by a certificate.
    warm_start : bool
        Whether a fit starts from the solution of the one before.
    positive : bool
        Whether coefficients must be >= 0.
    random_state : int, RandomState instance or None
        For a ``sampling`` that draws.
    selection : {"cyclic", "random"}
        No effect: see ``sampling``.
    sampling : {"auto", "safe", "optimal", "importance", "uniform", "cyclic", "greedy"}
        "auto": the fast solver, `surestep.minimize`. Else `surestep.coordinate_descent` under that sampling.
    penalty_weights : array-like of shape (n_features,), optional
        Factors >= 0 of the penalty, one a feature; 0 leaves a feature unpenalised.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Of the dtype of X.
    intercept_ : float or ndarray of shape (n_targets,)
    dual_gap_ : float or ndarray of shape (n_targets,)
        Certified bound on how far the objective is from its minimum.
    n_iter_ : int or ndarray of shape (n_targets,)
        Rounds or epochs.
    status_ : Status or list of them
        Why the solver stopped, ``status_.value`` is a sentence.
    trace_ : Trace or list of them
        The curve of the run.
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> import numpy as np
    >>> from surestep.estimators import ElasticNet
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> model = ElasticNet(alpha=0.1).fit(X, [0.0, 1.0, 2.0, 3.0])
    >>> model.coef_.round(3)
    array([0.923, 0.   ])
    """

    _options: ClassVar[dict[str, Option]] = {
        "precompute": ((False, True), "a Gram matrix of your own is not used"),
        "copy_X": ((True, False), "X is never written to"),
        "selection": (("cyclic", "random"), "neither has an effect, see sampling"),
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: bool = False,
        max_iter: int = 1000,
        copy_X: bool = True,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.sampling = sampling
        self.penalty_weights = penalty_weights

    @property
    def sparse_coef_(self) -> Any:
        """coef_ as a sparse array of shape (n_targets, n_features)."""
        return scipy.sparse.csr_array(np.atleast_2d(self.coef_))

    def _penalties(self, n_targets: int, total: float) -> list[Regularizer]:
        return [regularizers.ElasticNet(self.alpha, self.l1_ratio, self.penalty_weights)] * n_targets


class Lasso(ElasticNet):
    """Linear regression with an L1 penalty.

    Minimises, over coefficients w and an intercept b that is not penalised,

        1/2 mean_i (y_i - <x_i, w> - b)^2 + alpha ||w||_1,

    the mean weighted by ``sample_weight``: the objective of `sklearn.linear_model.Lasso`. Where ``alpha`` is at least
    `surestep.Problem.alpha_max` all coefficients are zero, at once.

    Parameters and attributes are those of `ElasticNet` without ``l1_ratio``.

    Examples
    --------
    >>> import numpy as np
    >>> from surestep.estimators import Lasso
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> model = Lasso(alpha=0.1).fit(X, [0.0, 1.0, 2.0, 3.0])
    >>> model.coef_.round(3), model.status_.success
    (array([0.92, 0.  ]), True)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        precompute: bool = False,
        copy_X: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-6,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            precompute=precompute,
            max_iter=max_iter,
            copy_X=copy_X,
            tol=tol,
            warm_start=warm_start,
            positive=positive,
            random_state=random_state,
            selection=selection,
            sampling=sampling,
            penalty_weights=penalty_weights,
        )


class Ridge(LinearRegressor):
    """Linear regression with an L2 penalty.

    Minimises, over coefficients w and an intercept b that is not penalised,

        sum_i s_i (y_i - <x_i, w> - b)^2 + alpha ||w||^2,

    with the sample weights s (ones by default): the objective of `sklearn.linear_model.Ridge`, a sum, not a mean.

    Parameters
    ----------
    alpha : float or array-like of shape (n_targets,)
        Strength of the penalty, >= 0.
    fit_intercept : bool
    copy_X : bool
        No effect: X is never written to.
    max_iter : int or None
        Largest number of rounds of the solver, or of epochs with a ``sampling``; None means 1000.
    tol : float
        The objective is within ``tol`` times that of the best constant model of its minimum, by a certificate.
    solver : str
        The names of scikit-learn are taken and have no effect: see ``sampling``.
    positive, random_state, sampling, penalty_weights
        As in `ElasticNet`.

    Attributes
    ----------
    coef_, intercept_, dual_gap_, n_iter_, status_, trace_ : as in `ElasticNet`

    Examples
    --------
    >>> import numpy as np
    >>> from surestep.estimators import Ridge
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> Ridge(alpha=1.0).fit(X, [0.0, 1.0, 2.0, 3.0]).coef_.round(3)
    array([ 0.818, -0.091])
    """

    _options: ClassVar[dict[str, Option]] = {
        "copy_X": ((True, False), "X is never written to"),
        "solver": (
            ("auto", "svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga", "lbfgs"),
            "none has an effect, see sampling",
        ),
    }

    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-10,
        solver: str = "auto",
        positive: bool = False,
        random_state: Any = None,
        sampling: str = "auto",
        penalty_weights: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.max_iter = max_iter
        self.tol = tol
        self.solver = solver
        self.positive = positive
        self.random_state = random_state
        self.sampling = sampling
        self.penalty_weights = penalty_weights

    def _penalties(self, n_targets: int, total: float) -> list[Regularizer]:
        alphas = list(np.ravel(self.alpha))
        if len(alphas) not in (1, n_targets):
            raise ValueError(f"alpha must be one number or one a target, but has {len(alphas)} for {n_targets} targets")
        for alpha in alphas:
            check_scalar(alpha, "alpha", Real, min_val=0.0)
        penalties: list[Regularizer] = [regularizers.L2(alpha / total, self.penalty_weights) for alpha in alphas]
        return penalties if len(alphas) == n_targets else penalties * n_targets
