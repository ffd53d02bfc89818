"""One process of one environment and one data set: reads orders as JSON lines, answers with seconds and objectives.

    {"do": "check", "solver": s, "task": t}                   -> objective on a corner of the data (and compiles)
    {"do": "fit", ..., "alpha": a, "level": k, "first": bool} -> seconds, objective and a lower bound of it
    {"do": "gradient", "solver": s, "task": t}                -> seconds of one full gradient, by our own kernels

The clock runs during the complete call of the fit, and stands still while data are brought to the layout the solver
likes best and while the objective is evaluated.
"""

import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import solvers
from objective import TASKS, dual_objective, lambda_max, objective, path_alphas, small_problem, targets

# A short fit is repeated, and the shortest counts: for all alike.
REPEATS, SHORT = 3, 0.5


def load(folder):
    sparse = folder / "X.npz"
    X = sp.csc_matrix(sp.load_npz(sparse)) if sparse.exists() else np.load(folder / "X.npy")
    return X, np.load(folder / "y.npy")


def evaluated(function, task, X, y, alpha, w):
    """Return the function (objective or its lower bound) at the coefficients; at all of them for a path."""
    y = targets(task, y)
    if task == "lasso_path":
        return [function(task, X, y, a, v) for a, v in zip(path_alphas(alpha), w)]  # noqa: B905 (old Pythons)
    return function(task, X, y, alpha, w)


class Worker:
    """The data, and their layout for the solver that ran last."""

    def __init__(self, folder):
        self.X, self.y = load(Path(folder))
        self.laid_out = None, None

    def answer(self, do, solver, task, **order):
        """Carry out one order."""
        if do == "gradient":
            return {"seconds": solvers.seconds_of_gradient(self.X, targets(task, self.y), task)}
        return {"check": self.check, "fit": self.fit}[do](solvers.SOLVERS[solver], task, **order)

    def check(self, solver, task):
        """Solve a small problem as well as the solver can."""
        X, y = small_problem(self.X, self.y)
        alpha = 0.1 * lambda_max(task, X, targets(task, y))
        data = solvers.LAYOUTS[solver.layout_for(task)](X, targets(task, y))
        for level in (solver.levels[0], solver.levels[-1]):
            w = solver.fit(*data, task, strengths(task, alpha), level)
        return {"found": evaluated(objective, task, X, y, alpha, w), "alpha": alpha}

    def fit(self, solver, task, alpha, level, first):
        """Time a fit; if it is the first on these data, after one that is not counted (not all is compiled by then)."""
        key = solver.layout_for(task), TASKS[task][0]
        if self.laid_out[0] != key:
            self.laid_out = None, None  # make room
            self.laid_out = key, solvers.LAYOUTS[key[0]](self.X, targets(task, self.y))
        arguments = *self.laid_out[1], task, strengths(task, alpha), solver.levels[level]
        if first:
            solver.fit(*arguments)
        seconds = []
        while not seconds or (len(seconds) < REPEATS and sum(seconds) < SHORT):
            begin = time.perf_counter()
            w = solver.fit(*arguments)
            seconds.append(time.perf_counter() - begin)
        return {
            "seconds": min(seconds),
            "objective": evaluated(objective, task, self.X, self.y, alpha, w),
            "bound": evaluated(dual_objective, task, self.X, self.y, alpha, w),
        }


def strengths(task, alpha):
    return path_alphas(alpha) if task == "lasso_path" else alpha


def main(folder):
    warnings.filterwarnings("ignore")  # of not converging: the loose levels are meant to
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not get among the answers
    worker = Worker(folder)
    for line in sys.stdin:
        try:
            answer = worker.answer(**json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
