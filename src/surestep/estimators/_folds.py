"""What the CV forms share: every fold is one task, a warm-started path for each l1_ratio, in a thread of its own."""

# mypy: allow-subclassing-any

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed

from surestep import regularizers
from surestep.estimators._base import Array, LinearModel, raise_interrupt, warn_user
from surestep.path import RegularizationPath, path
from surestep.problem import Problem
from surestep.regularizers import Regularizer


class CrossValidated(LinearModel):
    """What the CV forms share: folds in threads, and the penalty for an l1_ratio."""

    def _penalty_of(self, alpha: float, l1_ratio: float) -> Regularizer:
        return self._bounded(regularizers.ElasticNet(alpha, l1_ratio, self.penalty_weights))

    def _path(self, problem: Problem, alphas: Array, seed: int) -> RegularizationPath:
        fitted = path(
            problem,
            alphas,
            sampling=self.sampling,
            tol=self.tol,
            max_iter=self._max_iter(),
            random_state=seed,
        )
        raise_interrupt(fitted.results[-1])
        return fitted

    def _each_fold(
        self, fit_fold: Callable[[Array, Array], tuple[Any, ...]], folds: list[Any], context: Any, shown: dict[str, Any]
    ) -> list[Any]:
        """Run fit_fold(train, test) for every fold, in threads; each is a task to callbacks."""

        def run(task: Any, train: Array, test: Array) -> tuple[Any, ...]:
            task.call_on_fit_task_begin(estimator=self, **shown)
            outcome = fit_fold(train, test)
            task.call_on_fit_task_end(estimator=self, **shown)
            return outcome

        tasks = [context.subcontext(task_name="fold") for _ in folds]
        return list(
            Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(run)(task, train, test) for task, (train, test) in zip(tasks, folds, strict=True)
            )
        )

    def _warn_of_paths(self, paths: list[RegularizationPath]) -> None:
        results = [result for one in paths for result in one.results]
        short = [result for result in results if not result.status.success]
        if short:
            worst = max(result.gap for result in short)
            bound = f"the worst is certified to be within {worst:.2g} of its minimum; " if worst < math.inf else ""
            warn_user(
                f"{type(self).__name__}: {len(short)} of {len(results)} fits on folds did not reach their tolerance; "
                f"{bound}raise max_iter (now {self._max_iter()}) or tol (now {self.tol:g}), bring the features to one "
                "scale (StandardScaler, MaxAbsScaler), or leave out the weakest penalties.",
                ConvergenceWarning,
            )
