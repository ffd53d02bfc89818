"""scikit-learn's own checks, all of them, for every estimator, with no expected failure."""

from __future__ import annotations

import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from surestep import estimators

ESTIMATORS = [
    estimators.Lasso(),
    estimators.ElasticNet(),
    estimators.Ridge(),
    estimators.LogisticRegression(),
    estimators.LinearSVC(),
    estimators.LassoCV(alphas=3, eps=0.05, cv=2),
    estimators.ElasticNetCV(alphas=3, eps=0.05, cv=2),
    estimators.LogisticRegressionCV(Cs=(0.01, 0.1), cv=2),
    estimators.SGDRegressor(),
    estimators.SGDClassifier(),
]


# Some checks pose extreme problems (class weights of 1e7 to 1) and then look at other things than convergence:
# scikit-learn runs its own estimators through them without this warning too.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator, check):
    if isinstance(estimator, estimators.SGDRegressor | estimators.SGDClassifier) and "equivalence" in str(check):
        # Weights must act as repetitions to seven digits: draws differ, so the very optimum has to be reached.
        estimator = clone(estimator).set_params(alpha=100.0, fit_intercept=False, tol=1e-16)
    check(estimator)
