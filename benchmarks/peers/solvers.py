"""The solvers compared: how each is called for which task, and what its effort levels are.

Each is called as its authors would: in the layout it works in, with its own stopping rule, from loose to tight. Its
scaling of our objective (mean loss + alpha * penalty) stands with it. Its packages are imported when it first runs, so
one file serves all environments.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from objective import TASKS

MANY = 1_000_000
L1_TASKS = ("lasso", "elastic_net", "logistic_l1", "squared_hinge_l1")
L2_TASKS = ("logistic_l2", "squared_hinge_l2", "ridge")


@dataclass(frozen=True)
class Solver:
    """``fit(X, y, task, alpha, level)`` returns the coefficients; for a path alpha is a vector, and they are a list."""

    name: str
    package: str
    tasks: tuple
    layout: Any  # its name, or two: for penalties with an L1 part, and without
    levels: tuple
    fit: Callable[..., Any]
    # Given (shape, is it sparse): whether its authors would use it there.
    applies: Callable[..., bool] = lambda shape, sparse: True

    def layout_for(self, task):
        """Return the name of the layout it likes best."""
        return self.layout if isinstance(self.layout, str) else self.layout[task in L2_TASKS]


SOLVERS = {}


def solver(name, package, tasks, layout, levels, **more):
    def register(fit):
        SOLVERS[name] = Solver(name, package, tuple(tasks), layout, tuple(levels), fit, **more)
        return fit

    return register


def tolerances(loosest, tightest):
    """10^loosest, ..., 10^tightest."""
    return tuple(10.0**k for k in range(loosest, tightest - 1, -1))


# --- Layouts: what is done to the data before the clock starts


def by_columns(X, y):
    return (X if sp.issparse(X) else np.asfortranarray(X)), y


def by_rows(X, y):
    return (sp.csr_matrix(X) if sp.issparse(X) else np.ascontiguousarray(X)), y


def for_liblinear(X, y):
    from liblinear.liblinearutil import problem

    X = sp.csr_matrix(X)
    return problem(y, X), X.shape[1]


def for_adelie(X, y):
    import adelie

    if sp.issparse(X):
        return adelie.matrix.sparse(X, method="naive", n_threads=1), y
    return adelie.matrix.dense(np.asfortranarray(X), method="naive", n_threads=1), y


LAYOUTS = {"columns": by_columns, "rows": by_rows, "liblinear": for_liblinear, "adelie": for_adelie}


# --- Ours: the clock counts the making of the Problem


@solver("surestep", "surestep", (*L1_TASKS, *L2_TASKS, "lasso_path"), ("columns", "rows"), tolerances(-1, -12))
def surestep(X, y, task, alpha, tol):
    from surestep import minimize, path

    problem = our_problem(X, y, task, alpha if np.isscalar(alpha) else alpha[0])
    if np.isscalar(alpha):
        return minimize(problem, tol=tol).coef
    return [result.coef for result in path(problem, alpha, tol=tol).results]


def our_problem(X, y, task, alpha):
    import surestep as ss

    loss, l1_ratio = TASKS[task]
    regularizer = {1.0: ss.L1(alpha), 0.0: ss.L2(alpha)}.get(l1_ratio) or ss.ElasticNet(alpha, l1_ratio)
    return ss.Problem(X, y, loss=loss, regularizer=regularizer)


def seconds_of_gradient(X, y, task):
    """Seconds of z = X w, the derivatives of the losses and X' r by our kernels: the unit of "passes over the data"."""
    problem = our_problem(by_columns(X, y)[0], y, task, 1.0)
    w = np.random.default_rng(0).normal(size=problem.n_coordinates)
    seconds = []
    for _ in range(7):
        begin = time.perf_counter()
        problem.gradient(w)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


# --- scikit-learn


def gram_is_smaller(X):
    return not sp.issparse(X) and X.shape[0] > X.shape[1]


def sklearn_descent(selection):
    def fit(X, y, task, alpha, tol):
        from sklearn.linear_model import ElasticNet, Lasso

        options = dict(fit_intercept=False, precompute=gram_is_smaller(X), tol=tol, max_iter=MANY)
        options |= dict(selection=selection, random_state=0)
        model = Lasso(alpha, **options) if task == "lasso" else ElasticNet(alpha, l1_ratio=TASKS[task][1], **options)
        return model.fit(X, y).coef_

    return fit


for selection in ("cyclic", "random"):
    solver(f"sklearn {selection}", "scikit-learn", ("lasso", "elastic_net"), "columns", tolerances(-1, -13))(
        sklearn_descent(selection)
    )


@solver("sklearn path", "scikit-learn", ("lasso_path",), "columns", tolerances(-1, -12))
def sklearn_path(X, y, task, alphas, tol):
    from sklearn.linear_model import lasso_path

    return lasso_path(X, y, alphas=alphas, tol=tol, max_iter=MANY, precompute=gram_is_smaller(X))[1].T


def sklearn_logistic(method):
    def fit(X, y, task, alpha, tol):
        from sklearn.linear_model import LogisticRegression

        # ||w||_1 or ||w||^2 / 2, plus C times the sum of losses.
        options = dict(C=1.0 / (alpha * y.size), tol=tol, max_iter=MANY, fit_intercept=False, random_state=0)
        return LogisticRegression(l1_ratio=TASKS[task][1], solver=method, **options).fit(X, y).coef_[0]

    return fit


for method in ("liblinear", "saga"):
    solver(f"sklearn {method}", "scikit-learn", ("logistic_l1", "logistic_l2"), "rows", tolerances(-1, -10))(
        sklearn_logistic(method)
    )
solver("sklearn lbfgs", "scikit-learn", ("logistic_l2",), "rows", tolerances(-1, -10))(sklearn_logistic("lbfgs"))
solver(
    "sklearn newton-cholesky",
    "scikit-learn",
    ("logistic_l2",),
    "columns",
    tolerances(-1, -10),
    applies=lambda shape, sparse: shape[1] <= 3000 and shape[0] > shape[1],
)(sklearn_logistic("newton-cholesky"))


def sklearn_svc(dual):
    def fit(X, y, task, alpha, tol):
        from sklearn.svm import LinearSVC

        penalty = "l1" if TASKS[task][1] else "l2"
        # ||w||_1 or ||w||^2 / 2, plus C times the sum of squared hinges; ours are halves of these.
        options = dict(C=0.5 / (alpha * y.size), tol=tol, max_iter=MANY, fit_intercept=False, random_state=0)
        return LinearSVC(penalty=penalty, loss="squared_hinge", dual=dual, **options).fit(X, y).coef_[0]

    return fit


solver("sklearn LinearSVC", "scikit-learn", ("squared_hinge_l1", "squared_hinge_l2"), "rows", tolerances(0, -10))(
    sklearn_svc(False)
)
solver("sklearn LinearSVC dual", "scikit-learn", ("squared_hinge_l2",), "rows", tolerances(0, -10))(sklearn_svc(True))


def sklearn_ridge(method):
    def fit(X, y, task, alpha, tol):
        from sklearn.linear_model import Ridge

        # ||y - X w||^2 + alpha ||w||^2.
        return Ridge(alpha * y.size, fit_intercept=False, tol=tol, max_iter=MANY, solver=method).fit(X, y).coef_

    return fit


for method in ("auto", "lsqr", "sparse_cg"):
    solver(f"sklearn {method}", "scikit-learn", ("ridge",), "rows", tolerances(-1, -12))(sklearn_ridge(method))
solver(
    "sklearn cholesky",
    "scikit-learn",
    ("ridge",),
    "columns",
    (0.0,),
    applies=lambda shape, sparse: min(shape) <= 3000,
)(sklearn_ridge("cholesky"))


# --- celer and skglm


@solver("celer", "celer", ("lasso", "elastic_net", "logistic_l1"), "columns", tolerances(-1, -13))
def celer(X, y, task, alpha, tol):
    from celer import ElasticNet, Lasso, LogisticRegression

    options = dict(tol=tol, max_iter=1000, fit_intercept=False)
    if task == "lasso":
        return Lasso(alpha, **options).fit(X, y).coef_
    if task == "elastic_net":
        return ElasticNet(alpha, l1_ratio=TASKS[task][1], **options).fit(X, y).coef_
    # C times the sum of losses plus ||w||_1.
    return LogisticRegression(C=1.0 / (alpha * y.size), **options).fit(X, y).coef_[0]


@solver("celer path", "celer", ("lasso_path",), "columns", tolerances(-1, -12))
def celer_path(X, y, task, alphas, tol):
    from celer import celer_path

    return celer_path(X, y, pb="lasso", alphas=alphas, tol=tol, max_iter=1000)[1].T


# skglm stops by the largest violation of the optimality conditions, which are of the size of alpha.
@solver("skglm", "skglm", ("lasso", "elastic_net", "logistic_l1"), "columns", tolerances(-1, -11))
def skglm(X, y, task, alpha, tol):
    from skglm import ElasticNet, Lasso, SparseLogisticRegression

    options = dict(tol=tol * alpha, max_iter=1000, fit_intercept=False)
    if task == "lasso":
        return Lasso(alpha, **options).fit(X, y).coef_
    if task == "elastic_net":
        return ElasticNet(alpha, l1_ratio=TASKS[task][1], **options).fit(X, y).coef_
    return np.ravel(SparseLogisticRegression(alpha, **options).fit(X, y).coef_)


@solver("skglm lbfgs", "skglm", ("logistic_l2",), "columns", tolerances(-1, -11))
def skglm_lbfgs(X, y, task, alpha, tol):
    from skglm.datafits import Logistic
    from skglm.penalties import L2
    from skglm.solvers import LBFGS

    return LBFGS(max_iter=MANY, tol=tol * alpha).solve(X, y, Logistic(), L2(alpha))[0]


@solver("skglm path", "skglm", ("lasso_path",), "columns", tolerances(-1, -9))
def skglm_path(X, y, task, alphas, tol):
    from skglm import Lasso

    return Lasso(tol=tol * alphas[-1], max_iter=1000, fit_intercept=False).path(X, y, alphas)[1].T


# --- liblinear

# ||w||_1 or ||w||^2 / 2, plus C times the sum of losses; its squared hinge is twice ours.
LIBLINEAR = {
    "liblinear": {"logistic_l1": 6, "squared_hinge_l1": 5, "logistic_l2": 0, "squared_hinge_l2": 2},
    "liblinear dual": {"logistic_l2": 7, "squared_hinge_l2": 1},
}


def liblinear(kinds):
    def fit(problem, n_features, task, alpha, tol):
        from liblinear.liblinearutil import parameter, train

        C = (1.0 if TASKS[task][0] == "logistic" else 0.5) / (alpha * problem.l)
        model = train(problem, parameter(f"-s {kinds[task]} -c {C:.17g} -e {tol:g} -B -1 -q"))
        w = np.ctypeslib.as_array(model.w, (n_features,)).copy()
        return w if model.label[0] == 1 else -w

    return fit


for name, kinds in LIBLINEAR.items():
    solver(name, "liblinear-official", tuple(kinds), "liblinear", tolerances(0, -10))(liblinear(kinds))


# --- snapml: all data are float32 inside, so it ends somewhere near 1e-7


def snapml(dual):
    def fit(X, y, task, alpha, tol):
        import snapml

        # Sum of losses plus regularizer times ||w||_1 or ||w||^2 / 2.
        options = dict(regularizer=alpha * y.size, max_iter=MANY, tol=tol, n_jobs=1, fit_intercept=False)
        if task.startswith("squared_hinge"):
            options["regularizer"] *= 2.0  # its squared hinge is twice ours
            return snapml.SupportVectorMachine(loss="squared_hinge", **options).fit(X, y).coef_.ravel()
        model = snapml.LogisticRegression if task.startswith("logistic") else snapml.LinearRegression
        return model(penalty="l1" if TASKS[task][1] else "l2", dual=dual, **options).fit(X, y).coef_.ravel()

    return fit


solver("snapml", "snapml", ("lasso", "logistic_l1", "logistic_l2", "ridge"), "columns", tolerances(-1, -8))(
    snapml(False)
)
solver("snapml dual", "snapml", ("logistic_l2", "squared_hinge_l2", "ridge"), "rows", tolerances(-1, -8))(snapml(True))


# --- adelie: groups of one


ADELIE = ("lasso", "elastic_net", "ridge", "logistic_l1", "logistic_l2", "lasso_path")


@solver("adelie", "adelie", ADELIE, "adelie", tolerances(-1, -16))
def adelie(X, y, task, alpha, tol):
    import adelie

    glm = adelie.glm.gaussian(y) if TASKS[task][0] == "squared" else adelie.glm.binomial((y + 1.0) / 2.0)
    state = adelie.grpnet(
        X,
        glm,
        alpha=TASKS[task][1],
        lmda_path=np.atleast_1d(alpha),
        tol=tol,
        irls_tol=tol,
        early_exit=False,
        intercept=False,
        progress_bar=False,
        n_threads=1,
    )
    coefficients = np.asarray(state.betas.todense())
    return coefficients if task == "lasso_path" else coefficients[0]


# --- cyanure


@solver("cyanure", "cyanure", (*L1_TASKS, *L2_TASKS), "rows", tolerances(-1, -11))
def cyanure(X, y, task, alpha, tol):
    from cyanure.estimators import Classifier, Regression

    loss, l1_ratio = TASKS[task]
    options = dict(tol=tol, max_iter=100_000, fit_intercept=False, verbose=False, n_threads=1)
    if task == "elastic_net":
        options |= dict(penalty="elasticnet", lambda_1=alpha * l1_ratio, lambda_2=alpha * (1.0 - l1_ratio))
    else:
        options |= dict(penalty="l1" if l1_ratio else "l2", lambda_1=alpha)
    if loss == "squared":
        return np.ravel(Regression(**options).fit(X, y).get_weights())
    name = {"logistic": "logistic", "squared_hinge": "sqhinge"}[loss]
    return np.ravel(Classifier(loss=name, **options).fit(X, y).get_weights())


# --- lightning


@solver("lightning", "sklearn-contrib-lightning", (*L1_TASKS[2:], *L2_TASKS, "lasso"), "columns", tolerances(-1, -10))
def lightning(X, y, task, alpha, tol):
    from lightning.classification import CDClassifier
    from lightning.regression import CDRegressor

    # C times the sum of losses plus alpha times ||w||_1 or ||w||^2 / 2; its squared losses have no half.
    loss, l1_ratio = TASKS[task]
    options = dict(
        C=(1.0 if loss == "logistic" else 0.5) / y.size,
        alpha=alpha,
        penalty="l1" if l1_ratio else "l2",
        tol=tol,
        max_iter=100_000,
        random_state=0,
    )
    if loss == "squared":
        return np.ravel(CDRegressor(loss="squared", **options).fit(X, y).coef_)
    name = {"logistic": "log", "squared_hinge": "squared_hinge"}[loss]
    return np.ravel(CDClassifier(loss=name, **options).fit(X, y).coef_)


# --- glmnet: its Fortran of old, through python-glmnet


@solver("glmnet", "python-glmnet", ADELIE, "columns", tolerances(-1, -20))
def glmnet(X, y, task, alpha, tol):
    from glmnet import ElasticNet, LogitNet

    loss, l1_ratio = TASKS[task]
    # For the squared loss y is divided by its deviation first, which divides the ridge part (not the L1 part) by it.
    deviation = np.std(y) if loss == "squared" else 1.0
    strength = alpha * (l1_ratio + (1.0 - l1_ratio) * deviation)
    ratio = l1_ratio / (l1_ratio + (1.0 - l1_ratio) * deviation)
    options = dict(alpha=ratio, lambda_path=np.atleast_1d(strength), standardize=False, fit_intercept=False, n_splits=0)
    model = (ElasticNet if loss == "squared" else LogitNet)(tol=tol, max_iter=MANY, **options).fit(X, y)
    coefficients = model.coef_path_.reshape(X.shape[1], -1).T
    return coefficients if task == "lasso_path" else coefficients[0]
