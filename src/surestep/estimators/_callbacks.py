"""The adapter from a solver's progress to the callbacks of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surestep.solvers._loop import Progress


class Reporter:
    """Show every row of a trace to the callbacks of an estimator, as one task; any of them may stop the run.

    Parameters
    ----------
    estimator : the estimator that is fitted
    context : sklearn.callback.CallbackContext
        The task that the rows are parts of.
    attributes : callable
        From a point of the solver to the fitted attributes at that point.
    **data
        X, y and metadata, for callbacks that ask for them.
    """

    def __init__(self, estimator: Any, context: Any, attributes: Callable[[Any], dict[str, Any]], **data: Any) -> None:
        self.estimator = estimator
        self.context = context
        self.attributes = attributes
        self.data = data

    def __call__(self, progress: Progress) -> None:
        """Begin and end a task."""
        task = self.context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=self.estimator, **self.data)
        stop = task.call_on_fit_task_end(
            estimator=self.estimator,
            reconstruction_attributes=lambda: self.attributes(progress.x),
            **self.data,
        )
        progress.stop = progress.stop or stop
