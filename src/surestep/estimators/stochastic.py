"""Linear models by stochastic gradient descent with scikit-learn's faces: SGDRegressor, SGDClassifier."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if

from surestep import losses, regularizers
from surestep.estimators._base import Array, LinearModel, Option
from surestep.estimators.classification import LinearClassifier, probabilities
from surestep.estimators.regression import LinearRegressor
from surestep.problem import Problem
from surestep.regularizers import Regularizer
from surestep.solvers._loop import Callback
from surestep.solvers.sgd import stochastic_gradient_descent
from surestep.trace import Result


class Stochastic(LinearModel):
    """What the two share: the solver and its options."""

    _options: ClassVar[dict[str, Option]] = {
        "penalty": (("l2", "l1", "elasticnet", None), "there are no others"),
        "shuffle": ((True,), "samples are drawn by sampling"),
        "learning_rate": (("optimal",), "the step is the one that goes with the sampling"),
        "early_stopping": ((False,), "a certificate says when to stop, at the tolerance"),
        "average": ((False, True), "it is a yes or a no"),
    }

    def _check_sampling(self) -> None:
        pass  # the solver knows which it has

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _solve(self, problem: Problem, tol: float, callbacks: Iterable[Callback], start: Array | None) -> Result:
        return stochastic_gradient_descent(
            problem,
            sampling=self.sampling,
            average="uniform" if self.average else None,
            max_epochs=self._max_iter(),
            tol=tol,
            random_state=self._seed(),
            callbacks=callbacks,
            warm_start=problem.null_point() if start is None else start,
        )

    def _scaled_penalty(self, factor: float) -> Regularizer:
        l1_ratio = {"l1": 1.0, "l2": 0.0, None: 0.0, "elasticnet": self.l1_ratio}[self.penalty]
        alpha = 0.0 if self.penalty is None else factor * self.alpha
        return regularizers.ElasticNet(alpha, l1_ratio, self.penalty_weights)


class SGDRegressor(LinearRegressor, Stochastic):
    """Linear regression by stochastic gradient descent.

    Minimises, over coefficients w and an intercept b that is not penalised,

        mean_i loss(<x_i, w> + b, y_i) + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2),

    the mean weighted by ``sample_weight``: the objective of `sklearn.linear_model.SGDRegressor`, to a certified
    tolerance.

    Parameters
    ----------
    loss : {"squared_error", "huber"}
        (z - y)^2 / 2, or Huber's loss, linear where the error is above ``epsilon``.
    penalty : {"l2", "l1", "elasticnet", None}
    alpha : float
        Strength of the penalty, >= 0.
    l1_ratio : float
        Share of the L1 penalty, for "elasticnet".
    fit_intercept : bool
    max_iter : int
        Largest number of epochs.
    tol : float
        The objective is within ``tol`` times that of the best constant model of its minimum, by a certificate.
    shuffle : bool
        Only True: samples are drawn.
    verbose : int
        No effect: progress is logged to the logger "surestep", and shown by scikit-learn's callbacks.
    epsilon : float
        For the loss "huber".
    random_state : int, RandomState instance or None
    learning_rate : {"optimal"}
        Only this one: the step that goes with the sampling.
    eta0, power_t
        No effect, as with that learning_rate in scikit-learn.
    early_stopping : bool
        Only False: a certificate says when to stop.
    validation_fraction, n_iter_no_change
        No effect, as there is no early stopping.
    warm_start : bool
        Whether a fit starts from the solution of the one before.
    average : bool
        Whether the average of the iterates is taken.
    sampling : str
        How samples are drawn, see `surestep.stochastic_gradient_descent`.
    positive, penalty_weights
        As in `surestep.estimators.ElasticNet`.

    Attributes
    ----------
    coef_, dual_gap_, n_iter_, status_, trace_ : as in `surestep.estimators.ElasticNet`
    intercept_ : ndarray of shape (1,)
    """

    _options: ClassVar[dict[str, Option]] = {
        **Stochastic._options,
        "loss": (("squared_error", "huber"), "the others are not smooth, which the bounds on gradients need"),
    }

    def __init__(
        self,
        loss: str = "squared_error",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        shuffle: bool = True,
        verbose: int = 0,
        epsilon: float = 0.1,
        random_state: Any = None,
        learning_rate: str = "optimal",
        eta0: float = 0.01,
        power_t: float = 0.25,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        warm_start: bool = False,
        average: bool = False,
        sampling: str = "safe",
        positive: bool = False,
        penalty_weights: Any = None,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.verbose = verbose
        self.epsilon = epsilon
        self.random_state = random_state
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.average = average
        self.sampling = sampling
        self.positive = positive
        self.penalty_weights = penalty_weights

    def _loss(self) -> Any:
        return losses.Huber(self.epsilon) if self.loss == "huber" else losses.Squared()

    def _penalties(self, n_targets: int, total: float) -> list[Regularizer]:
        return [self._scaled_penalty(1.0)] * n_targets

    def _put_results(self, results: list[Result]) -> None:
        super()._put_results(results)
        self.intercept_ = np.atleast_1d(self.intercept_)


class SGDClassifier(LinearClassifier, Stochastic):
    """Linear classification by stochastic gradient descent.

    Minimises, over coefficients w and an intercept b that is not penalised, for labels y_i = -1 or +1,

        mean_i loss(y_i (<x_i, w> + b)) + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) / 2 ||w||^2),

    the mean weighted by ``sample_weight`` times the class weights: the objective of
    `sklearn.linear_model.SGDClassifier`, to a certified tolerance. More than two classes are fitted one-vs-rest.

    Parameters
    ----------
    loss : {"squared_hinge", "log_loss"}
        max(0, 1 - m)^2 or log(1 + exp(-m)) of a margin m. scikit-learn's default, "hinge", is refused: it is not
        smooth.
    class_weight : dict, "balanced" or None
        Factors of the sample weights, as in scikit-learn: with more than two classes, of the one class only and not of
        the rest.
    epsilon, n_jobs
        No effect.
    penalty, alpha, l1_ratio, fit_intercept, max_iter, tol, shuffle, verbose, random_state, learning_rate
        As in `SGDRegressor`.
    eta0, power_t, early_stopping, validation_fraction, n_iter_no_change, warm_start, average, sampling
        As in `SGDRegressor`.
    positive, penalty_weights
        As in `surestep.estimators.ElasticNet`.

    Attributes
    ----------
    classes_, coef_, intercept_, dual_gap_, status_, trace_ : as in `surestep.estimators.LogisticRegression`
    n_iter_ : int
        The largest of the numbers of epochs.
    """

    _options: ClassVar[dict[str, Option]] = {
        **Stochastic._options,
        "loss": (("squared_hinge", "log_loss"), "the others are not smooth, which the bounds on gradients need"),
    }
    _rest_is_weighted: ClassVar[bool] = False

    def __init__(
        self,
        loss: str = "squared_hinge",
        *,
        penalty: str | None = "l2",
        alpha: float = 0.0001,
        l1_ratio: float = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        shuffle: bool = True,
        verbose: int = 0,
        epsilon: float = 0.1,
        n_jobs: int | None = None,
        random_state: Any = None,
        learning_rate: str = "optimal",
        eta0: float = 0.01,
        power_t: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        class_weight: Any = None,
        warm_start: bool = False,
        average: bool = False,
        sampling: str = "safe",
        positive: bool = False,
        penalty_weights: Any = None,
    ) -> None:
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.verbose = verbose
        self.epsilon = epsilon
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.average = average
        self.sampling = sampling
        self.positive = positive
        self.penalty_weights = penalty_weights

    def _loss(self) -> Any:
        return losses.Logistic() if self.loss == "log_loss" else losses.SquaredHinge()

    def _penalty(self, total: float) -> Regularizer:
        # Our squared hinge has a factor 1/2.
        return self._scaled_penalty(1.0 if self.loss == "log_loss" else 0.5)

    def _put_results(self, results: list[Result]) -> None:
        super()._put_results(results)
        self.n_iter_ = int(np.max(self.n_iter_))

    def _has_probabilities(self) -> bool:
        if self.loss != "log_loss":
            raise AttributeError(f"probabilities need loss='log_loss', but it is {self.loss!r}")
        return True

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, of shape (n_samples, n_classes), for the loss "log_loss"."""
        return probabilities(self.decision_function(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))
