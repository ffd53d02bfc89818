"""Our fast solver and its peers, in one run: seconds to relative suboptimality 1e-3, 1e-6 and 1e-9.

    python benchmarks/peers/run.py [--data ...] [--task ...] [--fraction ...] [--solver ...] [--out DIR] [--quick]
                                   [--resume]

A row is a data set, a task and an alpha (a fraction of lambda_max). Every solver runs from loose to tight tolerances,
each run from scratch, in one thread, after compiling; "seconds to 1e-6" is its shortest run that got there.
Suboptimality is (f - f*) / (f(0) - f*) with f* the least objective anybody found; how far f* may be from the minimum
is certified by a dual bound. For ours the clock counts the making of the Problem; for peers it does not count the
conversion to the layout they like best. A solver is first checked on a corner of the data: one that does not find
the optimum of our objective there is an error, not slow.
"""
# ruff: noqa: E402

import argparse
import contextlib
import json
import math
import select
import subprocess
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import data
import environments
import report
from objective import (
    TASKS,
    lambda_max,
    objective,
    path_alphas,
    reference_optimum,
    small_problem,
    suboptimality,
    targets,
)
from solvers import SOLVERS
from worker import load

DATA = {
    "rcv1_subset": lambda: data.real("rcv1_subset.binary"),
    "imdb_tfidf": data.imdb_tfidf,
    "news20_bigram": lambda: data.real("news20_bigram.binary"),
    "dorothea": lambda: data.real("dorothea"),
    "leu": data.leu,
    "madelon": data.madelon,
    "a9a": lambda: data.real("a9a"),
    "dense_100000x200": lambda: data.dense_gaussian(100_000, 200),
    "dense_1000x10000": lambda: data.dense_gaussian(1_000, 10_000),
}
FRACTIONS = (0.1, 0.01, 0.001)
QUICK = {"data": ("rcv1_subset", "leu", "a9a"), "fraction": (0.1, 0.01)}
TARGETS = report.TARGETS

# A solver's sequence ends when a run takes longer than this many times the best so far at 1e-6, or than MOST_SECONDS;
# where no peer has got there then, they go on, beside the best so far of a peer.
TIMES_BEST, LEAST_SECONDS, MOST_SECONDS = 3.0, 0.2, 4.0
CHECK_SECONDS = 180.0

# Data may be laid out for so long, and so long for each of their entries.
LAYOUT_SECONDS, PER_ENTRY = 4.0, 1e-6

# How near the reference a solver of our objective must come on a small problem.
AGREEMENT = 1e-8


class SolverError(Exception):
    """Why a solver has nothing to show; the sentence begins with its kind."""


class TooSlowError(SolverError):
    """It was ended."""


class Workers:
    """One process for each package on the data set at hand, started when first asked."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}

    def ask(self, package, seconds, **order):
        """Return the answer to an order; a process that takes longer is ended."""
        process = self.process(package)
        with contextlib.suppress(BrokenPipeError):  # a process that is no more: its end of file says so below
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else ""
        if not line:
            self._stop(package)
            if not ready:
                raise TooSlowError("stopped: too slow")
            raise SolverError(f"error: its process died: {self._last_words(package)}")
        answer = json.loads(line)
        if "error" in answer:
            raise SolverError(f"error: {answer['error']}")
        return answer

    def process(self, package):
        """The process of the package, started if need be."""
        if package not in self.processes:
            python, missing = environments.python_of(package)
            if missing:
                raise SolverError(f"not installed: {missing}")
            with (self.folder / f"{package}.log").open("w") as log:
                self.processes[package] = subprocess.Popen(
                    [python, str(HERE / "worker.py"), str(self.folder)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=environments.variables(package),
                )
        return self.processes[package]

    def stop_all(self):
        """End all processes."""
        for package in list(self.processes):
            self._stop(package)

    def _last_words(self, package):
        lines = (self.folder / f"{package}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "no word"

    def _stop(self, package):
        process = self.processes.pop(package)
        process.kill()
        process.wait()


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


class Row:
    """What everybody has done so far: runs, the least objective, a bound on it, and seconds to 1e-6 of that bound."""

    def __init__(self, task, alpha, start, names):
        self.task, self.alpha, self.start = task, alpha, start
        self.best, self.bound, self.fastest = np.inf, -np.inf, {}
        self.runs, self.notes = {name: [] for name in names}, dict.fromkeys(names, "")


class Bench:
    """All rows of one data set."""

    def __init__(self, name):
        self.name = name
        folder = stored(name)
        self.X, self.y = load(folder)
        self.seconds_to_lay_out = LAYOUT_SECONDS + PER_ENTRY * (self.X.nnz if sp.issparse(self.X) else self.X.size)
        self.workers = Workers(folder)
        self.checked, self.gradients = {}, {}
        self.too_slow = set()  # who got nowhere in time on a task: nobody gets faster at weaker penalties

    def row(self, task, fraction, names):
        """Run the solvers in turn; return a record for each."""
        y = targets(task, self.y)
        alpha = fraction * lambda_max(task, self.X, y)
        row = Row(task, alpha, objective(task, self.X, y, alpha, np.zeros(self.X.shape[1])), names)
        peers = [name for name in names if name != environments.OURS]
        for name in names:
            self._run(row, name, names)
        # Where ours is much faster, all were given up for it: a row without any peer would not count.
        if not any(name in row.fastest for name in peers):
            for name in peers:
                self._run(row, name, peers)
        certified = suboptimality(row.best, row.bound, row.start) if np.all(np.isfinite(row.best)) else math.nan
        return [
            report.Record(
                self.name,
                task,
                fraction,
                name,
                *(min((s for s, e in found if e <= target), default=math.nan) for target in TARGETS),
                reached=min((e for _, e in found if not math.isnan(e)), default=math.nan),
                certified=certified,
                gradient=self.gradient(task),
                note=row.notes[name],
            )
            for name in names
            for found in [[(seconds, suboptimality(value, row.best, row.start)) for seconds, value in row.runs[name]]]
        ]

    def _run(self, row, name, rivals):
        """Run a solver from its next tolerance on, until it is done or takes too long beside the best of its rivals."""
        solver, task, done = SOLVERS[name], row.task, row.runs[name]
        if not done and (name, task) in self.too_slow:
            row.notes[name] = "not asked: too slow at a stronger penalty"
        if row.notes[name] or (done and done[-1][0] > MOST_SECONDS):
            return
        try:
            first, finished = self.check(solver, task), False
            for level in range(len(done), len(solver.levels)):
                best = min((row.fastest[rival] for rival in rivals if rival in row.fastest), default=math.inf)
                cap = min(MOST_SECONDS, max(TIMES_BEST * best, LEAST_SECONDS))
                order = {"do": "fit", "solver": name, "task": task, "alpha": row.alpha, "level": level}
                order["first"] = first and level == 0
                # The first time data are laid out, a fit goes before that is not counted, and more is compiled.
                limit = 2.0 * cap + self.seconds_to_lay_out if level == 0 else 1.5 * cap + 5.0
                answer = self.workers.ask(solver.package, limit, **order)
                value, seconds = np.atleast_1d(answer["objective"]), answer["seconds"]
                row.best, row.bound = np.fmin(row.best, value), np.fmax(row.bound, answer["bound"])  # NaN is no best
                # Past 1e-9 ours goes on, uncounted: its bound serves all, but more runs would be more luck.
                if not finished:
                    done.append((seconds, value))
                certified = suboptimality(value, row.bound, row.start)
                if certified <= TARGETS[1]:
                    row.fastest[name] = min(row.fastest.get(name, math.inf), seconds)
                finished = finished or certified <= TARGETS[-1]
                if seconds > MOST_SECONDS and level == 0:
                    self.too_slow.add((name, task))
                if seconds > cap or (finished and name != environments.OURS):
                    break
        except SolverError as error:
            row.notes[name] = str(error)
            if isinstance(error, TooSlowError) and not done:
                self.too_slow.add((name, task))

    def check(self, solver, task):
        """Compile, and see on a corner of the data whether the solver minimises our objective; True if just done.

        Once for each process: one that was ended for being slow is started, and compiles, anew.
        """
        key = solver.name, task, self.workers.process(solver.package).pid
        first = key not in self.checked
        if first:
            order = {"do": "check", "solver": solver.name, "task": task}
            try:
                self.checked[key] = self._disagreement(task, **self.workers.ask(solver.package, CHECK_SECONDS, **order))
            except SolverError as error:
                self.checked[key] = str(error)
        if self.checked[key]:
            raise SolverError(self.checked[key])
        return first

    def _disagreement(self, task, found, alpha):
        X, y = small_problem(self.X, self.y)
        y = targets(task, y)
        if task == "lasso_path":
            found, alpha = found[-1], path_alphas(alpha)[-1]
        optimum = reference_optimum(task, X, y, alpha)
        error = suboptimality(found, optimum, objective(task, X, y, alpha, np.zeros(X.shape[1])))
        return "" if error <= AGREEMENT else f"error: another objective? Off by {error:.0e} on a small problem"

    def gradient(self, task):
        """Seconds of one full gradient."""
        if task not in self.gradients:
            order = {"do": "gradient", "solver": environments.OURS, "task": task}
            try:
                self.gradients[task] = self.workers.ask(environments.OURS, CHECK_SECONDS, **order)["seconds"]
            except SolverError:
                self.gradients[task] = math.nan
        return self.gradients[task]


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
    print(report.HEADER, flush=True)
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
                row = bench.row(task, fraction, applicable)
                print(report.lines(row), flush=True)
                records += row
                report.write(table, records)
                (asked.out / "table.md").write_text(report.table(records))
        if bench:
            bench.workers.stop_all()
    if records:
        report.profile(asked.out, records)
        print(f"\n{report.table(records)}")


if __name__ == "__main__":
    main()
