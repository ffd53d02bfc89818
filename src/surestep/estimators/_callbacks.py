"""The adapter from a solver's progress to the callbacks of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep.solvers._loop import Progress


class Reporter:
    """Show every row of a trace to the callbacks of an estimator, as one task; any of them may stop the run.

    Parameters
    ----------
    estimator : the estimator that is fitted
    context : sklearn.callback.CallbackContext
        The task that the rows are parts of.
    point : ndarray
        Where the solver's point is put.
    attributes : callable
        Returns the fitted attributes at that point.
    shown : dict
        X, y and metadata, for callbacks that ask for them.
    """

    def __init__(
        self,
        estimator: Any,
        context: Any,
        point: NDArray[np.float64],
        attributes: Callable[[], dict[str, Any]],
        shown: dict[str, Any],
    ) -> None:
        self.estimator = estimator
        self.context = context
        self.point = point
        self.attributes = attributes
        self.shown = shown

    def __call__(self, progress: Progress) -> None:
        """Begin and end a task."""
        self.point[:] = progress.x
        task = self.context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=self.estimator, **self.shown)
        stop = task.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=self.attributes, **self.shown
        )
        progress.stop = progress.stop or stop
