"""One process of one environment and one data set: reads orders as JSON lines, answers with seconds and objectives.

    {"do": "check", "solver": s, "task": t}                       -> objective on a corner of the data (compiles, too)
    {"do": "fit", "solver": s, "task": t, "alpha": a, "level": k} -> seconds and objective at effort level k
    {"do": "gradient", "task": t}                                 -> seconds of one full gradient, by our own kernels

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

sys.path.insert(0, str(Path(__file__).resolve().parent))
import solvers
from objective import TASKS, lambda_max, objective, path_alphas, small_problem, targets

# A short fit is repeated, and the shortest counts: for all alike.
REPEATS, SHORT = 3, 1.0


def load(folder):
    sparse = folder / "X.npz"
    X = sp.csc_matrix(sp.load_npz(sparse)) if sparse.exists() else np.load(folder / "X.npy")
    return X, np.load(folder / "y.npy")


class Worker:
    def __init__(self, folder):
        self.X, self.y = load(Path(folder))
        self.corner = small_problem(self.X, self.y)
        self.laid_out = None, None

    def run(self, order):
        solver = solvers.SOLVERS[order["solver"]]
        task = order["task"]
        if order["do"] == "check":
            return self.check(solver, task)
        if order["do"] == "gradient":
            return {"seconds": solvers.seconds_of_gradient(self.X, targets(task, self.y), task)}
        key = solver.layout, TASKS[task][0]
        if self.laid_out[0] != key:
            self.laid_out = None, None
            self.laid_out = key, solvers.LAYOUTS[solver.layout](self.X, targets(task, self.y))
        data = self.laid_out[1]
        level = solver.levels[order["level"]]
        if order["level"] == 0 and order.get("first"):
            solver.fit(*data, task, self.alphas(task, order["alpha"]), level)
        seconds = []
        while not seconds or (len(seconds) < REPEATS and sum(seconds) < SHORT):
            begin = time.perf_counter()
            w = solver.fit(*data, task, self.alphas(task, order["alpha"]), level)
            seconds.append(time.perf_counter() - begin)
        return {"seconds": min(seconds), "objective": self.value(task, self.X, self.y, order["alpha"], w)}

    def check(self, solver, task):
        X, y = self.corner
        alpha = 0.1 * lambda_max(task, X, targets(task, y))
        data = solvers.LAYOUTS[solver.layout](X, targets(task, y))
        for level in (solver.levels[0], solver.levels[-1]):
            w = solver.fit(*data, task, self.alphas(task, alpha), level)
        return {"objective": self.value(task, X, y, alpha, w), "alpha": alpha}

    @staticmethod
    def alphas(task, alpha):
        return path_alphas(alpha) if task == "lasso_path" else alpha

    @staticmethod
    def value(task, X, y, alpha, w):
        y = targets(task, y)
        if task == "lasso_path":
            return [objective(task, X, y, a, v) for a, v in zip(path_alphas(alpha), w)]  # noqa: B905  (old Pythons)
        return objective(task, X, y, alpha, w)


def main(folder):
    warnings.filterwarnings("ignore")  # of not converging: the loose levels are meant to
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not get among the answers
    worker = Worker(folder)
    for line in sys.stdin:
        try:
            answer = worker.run(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
