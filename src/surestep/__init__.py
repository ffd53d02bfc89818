"""surestep: coordinate descent and SGD under safe adaptive importance sampling (Stich, Raj, Jaggi, NIPS 2017)."""

from surestep.design import Design as Design
from surestep.displays import ConvergenceDisplay as ConvergenceDisplay
from surestep.displays import PathDisplay as PathDisplay
from surestep.displays import SamplingDisplay as SamplingDisplay
from surestep.losses import Huber as Huber
from surestep.losses import Logistic as Logistic
from surestep.losses import Squared as Squared
from surestep.losses import SquaredHinge as SquaredHinge
from surestep.models import Model as Model
from surestep.path import RegularizationPath as RegularizationPath
from surestep.path import path as path
from surestep.problem import Problem as Problem
from surestep.regularizers import L1 as L1
from surestep.regularizers import L2 as L2
from surestep.regularizers import Box as Box
from surestep.regularizers import ElasticNet as ElasticNet
from surestep.regularizers import NonNegative as NonNegative
from surestep.regularizers import NoPenalty as NoPenalty
from surestep.sampling.distribution import Sampling as Sampling
from surestep.sampling.distribution import importance_sampling as importance_sampling
from surestep.sampling.distribution import optimal_sampling as optimal_sampling
from surestep.sampling.distribution import safe_sampling as safe_sampling
from surestep.sampling.distribution import uniform_sampling as uniform_sampling
from surestep.sampling.incremental import SafeSampler as SafeSampler
from surestep.sampling.progress import progress_model as progress_model
from surestep.sampling.progress import progress_stepsize as progress_stepsize
from surestep.solvers._checks import BoundViolationError as BoundViolationError
from surestep.solvers._loop import Progress as Progress
from surestep.solvers.coordinate import coordinate_descent as coordinate_descent
from surestep.solvers.minimizer import minimize as minimize
from surestep.solvers.sgd import stochastic_gradient_descent as stochastic_gradient_descent
from surestep.trace import Result as Result
from surestep.trace import Status as Status
from surestep.trace import Trace as Trace

__version__ = "0.1.0.dev0"

# Estimators, loaded when first asked for: importing scikit-learn takes twice the time of everything else. The name
# ElasticNet is that of the regularizer here; the estimator is surestep.estimators.ElasticNet.
_ESTIMATORS = frozenset(
    {
        "ElasticNetCV",
        "Lasso",
        "LassoCV",
        "LinearSVC",
        "LogisticRegression",
        "LogisticRegressionCV",
        "Ridge",
        "SGDClassifier",
        "SGDRegressor",
    }
)


def __getattr__(name: str) -> object:
    if name in _ESTIMATORS:
        from surestep import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'surestep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ESTIMATORS})
