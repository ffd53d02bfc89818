"""Linear models with scikit-learn's faces: change the import, keep the rest; docs/differences.md has what differs."""

from surestep.estimators.classification import LinearSVC as LinearSVC
from surestep.estimators.classification import LogisticRegression as LogisticRegression
from surestep.estimators.classification_cv import LogisticRegressionCV as LogisticRegressionCV
from surestep.estimators.regression import ElasticNet as ElasticNet
from surestep.estimators.regression import Lasso as Lasso
from surestep.estimators.regression import Ridge as Ridge
from surestep.estimators.regression_cv import ElasticNetCV as ElasticNetCV
from surestep.estimators.regression_cv import LassoCV as LassoCV
from surestep.estimators.stochastic import SGDClassifier as SGDClassifier
from surestep.estimators.stochastic import SGDRegressor as SGDRegressor
