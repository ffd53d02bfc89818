"""Our fast solver and its peers, in one run: seconds to relative suboptimality 1e-3, 1e-6 and 1e-9.

    python benchmarks/peers/run.py [--data ...] [--task ...] [--fraction ...] [--solver ...] [--out DIR] [--quick] [--resume]

A row is a data set, a task and an alpha (a fraction of lambda_max). Every solver runs from loose to tight tolerances, each
run from scratch, in one thread, after compiling; "seconds to 1e-6" is its shortest run that got there. Suboptimality is
(f - f*) / (f(0) - f*) with f* the least objective anybody found. For ours the clock counts the making of the Problem;
for peers it does not count the conversion to the layout they like best. A solver is first checked on a corner of the
data: one that does not find the optimum of our objective there is an error, not slow.
"""

import argparse
import csv
import json
import math
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import data
import environments
import report
from objective import TASKS, lambda_max, objective, path_alphas, reference_optimum, small_problem, suboptimality, targets
from solvers import SOLVERS

DATA = {
    "rcv1_subset": data.rcv1_subset,
    "imdb_tfidf": data.imdb_tfidf,
    "news20_bigram": data.news20_bigram,
    "dorothea": data.dorothea,
    "leu": data.leu,
    "madelon": data.madelon,
    "a9a": data.a9a,
    "dense_100000x200": lambda: data.dense_gaussian(100_000, 200),
    "dense_1000x10000": lambda: data.dense_gaussian(1_000, 10_000),
}
FRACTIONS = (0.1, 0.01, 0.001)
QUICK = {"data": ("rcv1_subset", "leu", "a9a"), "fraction": (0.1, 0.01)}
TARGETS = report.TARGETS

# A solver's sequence ends when a run takes longer than this many times the best so far at 1e-6, or than MOST_SECONDS.
TIMES_BEST, LEAST_SECONDS, MOST_SECONDS = 20.0, 2.0, 60.0
CHECK_SECONDS = 180.0


class Failure(Exception):
    pass


class Workers:
    """One process for each package on the data set at hand, started when first asked."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}

    def ask(self, package, seconds, **order):
        process = self.processes.get(package) or self._start(package)
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.stop(package)
            raise Failure(f"over {seconds:.0f} s" if not ready else f"its process died: {self.last_words(package)}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def _start(self, package):
        python, missing = environments.python_of(package)
        if missing:
            raise Failure(missing)
        log = (self.folder / f"{package}.log").open("w")
        process = subprocess.Popen(
            [python, str(HERE / "worker.py"), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environments.variables(package),
        )
        self.processes[package] = process
        return process

    def last_words(self, package):
        lines = (self.folder / f"{package}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no word"

    def stop(self, package):
        process = self.processes.pop(package)
        process.kill()
        process.wait()

    def stop_all(self):
        for package in list(self.processes):
            self.stop(package)


def stored(name):
    """Folder with X and y of a data set, written on first use for workers of any environment to read."""
    folder = environments.FOLDER / "data" / name
    if not (folder / "y.npy").exists():
        X, y = DATA[name]()
        folder.mkdir(parents=True, exist_ok=True)
        if sp.issparse(X):
            X = sp.csc_matrix(X)
            X.sort_indices()
            sp.save_npz(folder / "X.npz", X, compressed=False)
        else:
            np.save(folder / "X.npy", np.asfortranarray(X))
        np.save(folder / "y.npy", y)
    return folder


class Bench:
    """All rows of one data set."""

    def __init__(self, name):
        from worker import load

        self.name = name
        folder = stored(name)
        self.X, self.y = load(folder)
        self.workers = Workers(folder)
        self.checked = {}
        self.gradients = {}

    def rows(self, task, fraction, names):
        """Yield one record for each solver of the row."""
        y = targets(task, self.y)
        alpha = fraction * lambda_max(task, self.X, y)
        start = objective(task, self.X, y, alpha, np.zeros(self.X.shape[1]))
        if self.X.shape[1] and task not in self.gradients:
            self.gradients[task] = self._gradient(task)
        runs, failures, best, fastest = {}, {}, None, math.inf
        for name in names:
            solver = SOLVERS[name]
            runs[name] = []
            try:
                first = self.check(solver, task)
                for level in range(len(solver.levels)):
                    cap = min(MOST_SECONDS, max(TIMES_BEST * fastest, LEAST_SECONDS))
                    answer = self.workers.ask(
                        solver.package, 3.0 * cap + 30.0, do="fit", solver=name, task=task, alpha=alpha, level=level, first=first
                    )
                    value = np.atleast_1d(answer["objective"])
                    best = value if best is None else np.minimum(best, value)
                    runs[name].append((answer["seconds"], value))
                    accuracy = suboptimality(value, best, start)
                    if accuracy <= 1e-6:
                        fastest = min(fastest, answer["seconds"])
                    # Ours goes on to the end: it finds f* for the others.
                    if (accuracy <= TARGETS[-1] and name != environments.OURS) or answer["seconds"] > cap:
                        break
            except Failure as failure:
                failures[name] = str(failure)
        for name in names:
            found = [(seconds, suboptimality(value, best, start)) for seconds, value in runs[name]]
            reached = [min((s for s, e in found if e <= target), default=math.nan) for target in TARGETS]
            yield report.Record(
                self.name,
                task,
                fraction,
                name,
                *reached,
                best=min((e for _, e in found), default=math.nan),
                gradient=self.gradients[task],
                note=failures.get(name, ""),
            )

    def check(self, solver, task):
        """Compile, and see on a corner of the data whether the solver minimises our objective; True if just done."""
        key = solver.name, task
        first = key not in self.checked
        if first:
            try:
                answer = self.workers.ask(solver.package, CHECK_SECONDS, do="check", solver=solver.name, task=task)
                self.checked[key] = self._disagreement(solver, task, answer)
            except Failure as failure:
                self.checked[key] = str(failure)
        if self.checked[key]:
            raise Failure(self.checked[key])
        return first

    def _disagreement(self, solver, task, answer):
        X, y = small_problem(self.X, self.y)
        y = targets(task, y)
        value, alpha = answer["objective"], answer["alpha"]
        if task == "lasso_path":
            value, alpha = value[-1], path_alphas(alpha)[-1]
        optimum = reference_optimum(task, X, y, alpha)
        error = suboptimality(value, optimum, objective(task, X, y, alpha, np.zeros(X.shape[1])))
        return "" if error <= solver.agreement else f"another objective? relative suboptimality {error:.0e} on a small problem"

    def _gradient(self, task):
        try:
            return self.workers.ask(environments.OURS, CHECK_SECONDS, do="gradient", solver=environments.OURS, task=task)["seconds"]
        except Failure:
            return math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=DATA)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--fraction", nargs="+", type=float)
    parser.add_argument("--solver", nargs="+", help="names, or beginnings of names", default=[""])
    parser.add_argument("--out", type=Path, default=environments.FOLDER / "results")
    parser.add_argument("--quick", action="store_true", help="three data sets, two alphas")
    parser.add_argument("--resume", action="store_true", help="keep the rows of results.csv, run the others")
    asked = parser.parse_args()
    names = asked.data or (QUICK["data"] if asked.quick else list(DATA))
    fractions = asked.fraction or (QUICK["fraction"] if asked.quick else FRACTIONS)
    asked.out.mkdir(parents=True, exist_ok=True)
    table = asked.out / "results.csv"
    records = report.read(table) if asked.resume and table.exists() else []
    done = {(r.data, r.task, r.fraction) for r in records}
    report.write(table, records)
    print(report.HEADER)
    for name in names:
        bench = None
        for task in asked.task:
            for fraction in fractions if task != "lasso_path" else (1.0,):
                if (name, task, fraction) in done:
                    continue
                try:
                    bench = bench or Bench(name)
                except FileNotFoundError as missing:
                    print(f"{name}: {missing.filename} is not there (set SURESTEP_DATA)")
                    break
                applicable = [
                    s.name
                    for s in SOLVERS.values()
                    if task in s.tasks
                    and s.applies(bench.X.shape, sp.issparse(bench.X))
                    and (s.name == environments.OURS or any(s.name.startswith(part) for part in asked.solver))
                ]
                row = list(bench.rows(task, fraction, applicable))
                print(report.lines(row), flush=True)
                records += row
                report.write(table, records)
                report.summarise(asked.out, records)
        if bench:
            bench.workers.stop_all()
    print(f"\n{(asked.out / 'table.md').read_text()}" if records else "Nothing was run.")


if __name__ == "__main__":
    main()
