"""What a run leaves behind: the curve, the result, and why it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


class Status(Enum):
    """Why a run stopped; the value is a sentence."""

    CONVERGED = "The duality gap certifies that the tolerance is reached."
    CONVERGED_WITHOUT_CERTIFICATE = (
        "The largest optimality violation reached the tolerance; this problem has no duality gap to certify it."
    )
    OPTIMAL = "Every coordinate is certified optimal: no step can improve the objective."
    PRECISION = "Rounding keeps the gap from falling further: this is as accurate as float64 allows; raise tol."
    MAX_EPOCHS = (
        "The largest number of epochs or rounds was reached before the tolerance; raise max_epochs (max_rounds) or tol."
    )
    STOPPED = "A callback asked to stop."
    INTERRUPTED = "The run was interrupted; this is the best point so far."
    DIVERGED = (
        "The objective grew without bound or became non-finite; this is the best point seen. "
        "Steps or bounds of your own are the usual cause: try step='exact', or check_bounds=True."
    )

    @property
    def success(self) -> bool:
        """Whether the tolerance was reached."""
        return self in (Status.CONVERGED, Status.CONVERGED_WITHOUT_CERTIFICATE, Status.OPTIMAL)


class Trace(Mapping[str, Array]):
    """The curve of a run, a column a quantity: ``trace["gap"]`` is an array with one number a row.

    The clock behind ``seconds`` counts setting up, and stands still while the objective and the gap are evaluated; not
    in `minimize`, where that is a part of the work.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []

    def append(self, row: dict[str, float]) -> None:
        """Add a row; all rows have the same columns."""
        self._rows.append(row)

    def __getitem__(self, name: str) -> Array:
        if not self._rows or name not in self._rows[0]:
            raise KeyError(f"the trace has no column {name!r}; it has {', '.join(self)}")
        return np.array([row[name] for row in self._rows], dtype=np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows[0] if self._rows else ())

    def __len__(self) -> int:
        return len(self._rows[0]) if self._rows else 0

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def first(self) -> dict[str, float]:
        """The oldest row."""
        return dict(self._rows[0])

    @property
    def last(self) -> dict[str, float]:
        """The newest row."""
        return dict(self._rows[-1])

    def to_frame(self) -> pd.DataFrame:
        """Return the trace as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas; dict(trace) gives the columns without it") from error
        return pd.DataFrame(self._rows)

    def plot(self, x: str = "epoch", y: str = "gap", ax: Any = None, **style: Any) -> Any:
        """Plot one column against another, on a logarithmic scale, and return the axes (needs matplotlib)."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("plot needs matplotlib: pip install 'surestep[plot]'") from error
        if ax is None:
            _, ax = plt.subplots()
        values = self[y]
        ax.plot(self[x], np.where(values > 0.0, values, np.nan), **style)
        ax.set(xlabel=x, ylabel=y, yscale="log")
        return ax

    def __repr__(self) -> str:
        return f"Trace({self.n_rows} rows: {', '.join(self)})"


@dataclass(frozen=True, eq=False)
class Result:
    """A fitted point and its certificate.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    intercept : float
        0.0 if none was fitted.
    objective : float
        f at that point.
    gap : float
        Certified upper bound on f - min f; inf where the problem has no certificate.
    status : Status
        Why the run stopped, as a sentence: ``status.value``.
    message : str
        The same with the numbers of this run.
    trace : Trace
    n_epochs, n_steps : number of passes and of coordinate updates
    seconds : float
        Time spent in the solver, evaluations not counted.
    """

    coef: Array = field(repr=False)
    intercept: float
    objective: float
    gap: float
    status: Status
    message: str = field(repr=False)
    trace: Trace = field(repr=False)
    n_epochs: float
    n_steps: int
    seconds: float
