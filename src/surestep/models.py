"""Models in files: a Result and what is needed to predict with it, in a format that cannot run code when it is read."""

from __future__ import annotations

import json
import math
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surestep.problem import Problem
from surestep.trace import Result, Status, Trace

Array = NDArray[np.float64]

FORMAT = "surestep model"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted linear model.

    Attributes
    ----------
    result : Result
        Coefficients, certificate and trace.
    loss, regularizer : str
        What was minimised, for people to read.
    classes : ndarray or None
        The two labels, smaller first, of a classification model.
    about : dict of str to str
        Anything else worth keeping: the data, the options.
    """

    result: Result
    loss: str
    regularizer: str
    classes: Array | None
    about: dict[str, str]

    @classmethod
    def of(cls, problem: Problem, result: Result, about: dict[str, str] | None = None) -> Model:
        """Return the model that a solver found for a problem."""
        return cls(result, repr(problem.loss), repr(problem.regularizer), problem.classes, dict(about or {}))

    @property
    def n_features(self) -> int:
        """Number of columns that X must have."""
        return self.result.coef.size

    def decision_function(self, X: Any) -> Array:
        """Return X coef + intercept."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} columns, but the model was fitted on {self.n_features}")
        return np.asarray(X @ self.result.coef + self.result.intercept)

    def predict(self, X: Any) -> Array:
        """Return the predicted targets, or labels."""
        z = self.decision_function(X)
        return z if self.classes is None else np.where(z > 0.0, self.classes[1], self.classes[0])

    def save(self, path: os.PathLike[str] | str) -> None:
        """Write the model to a file; a file of that name is replaced as a whole, or not at all."""
        result, path = self.result, Path(path)
        support = np.flatnonzero(result.coef)
        columns = list(result.trace)
        head = {
            "format": FORMAT,
            "version": VERSION,
            "loss": self.loss,
            "regularizer": self.regularizer,
            "status": result.status.name,
            "message": result.message,
            "columns": columns,
            "about": self.about,
        }
        scalars = [result.intercept, result.objective, result.gap, result.n_epochs, result.n_steps, result.seconds]
        partial = path.with_name(path.name + ".partial")
        with open(partial, "wb") as file:
            np.savez_compressed(
                file,
                head=np.frombuffer(json.dumps(head).encode(), np.uint8),
                n_features=np.array(result.coef.size),
                support=support,
                values=result.coef[support],
                scalars=np.array(scalars, dtype=np.float64),
                classes=np.empty(0) if self.classes is None else np.asarray(self.classes, dtype=np.float64),
                trace=np.array([result.trace[name] for name in columns], dtype=np.float64),
            )
        os.replace(partial, path)

    @classmethod
    def load(cls, path: os.PathLike[str] | str) -> Model:
        """Read a model, and check every part of it: ValueError says what is wrong with a file that is none."""
        try:
            with np.load(path, allow_pickle=False) as file:
                parts = {name: file[name] for name in file.files}
            head = json.loads(parts["head"].tobytes())
            known = head["format"] == FORMAT and isinstance(head["version"], int)
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a model that surestep has saved ({error})") from error
        if not known:
            raise ValueError(f"{path} is not a model that surestep has saved")
        if head["version"] > VERSION:
            raise ValueError(
                f"{path} has version {head['version']} of the format, this surestep reads up to {VERSION}: upgrade it"
            )
        try:
            return cls._of_parts(head, parts)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"{path} is damaged: {error}") from error

    @classmethod
    def _of_parts(cls, head: dict[str, Any], parts: dict[str, Any]) -> Model:
        n, support, values = int(parts["n_features"]), parts["support"], np.asarray(parts["values"], dtype=np.float64)
        if n < 0 or support.dtype.kind != "i" or support.shape != values.shape or support.ndim != 1:
            raise ValueError("its coefficients do not fit together")
        if support.size and not (support[0] >= 0 and support[-1] < n and (np.diff(support) > 0).all()):
            raise ValueError(f"its coefficients are not among {n} features")
        intercept, objective, gap, n_epochs, n_steps, seconds = map(float, parts["scalars"])
        if not (np.isfinite(values).all() and math.isfinite(intercept)):
            raise ValueError("it has coefficients that are not finite")
        classes = np.asarray(parts["classes"], dtype=np.float64)
        if classes.shape not in ((0,), (2,)):
            raise ValueError(f"it has {classes.size} classes")
        coef = np.zeros(n)
        coef[support] = values
        trace, columns = Trace(), [str(name) for name in head["columns"]]
        for row in np.asarray(parts["trace"], dtype=np.float64).reshape(len(columns), -1).T:
            trace.append(dict(zip(columns, row.tolist(), strict=True)))
        result = Result(
            coef=coef,
            intercept=intercept,
            objective=objective,
            gap=gap,
            status=Status[head["status"]],
            message=str(head["message"]),
            trace=trace,
            n_epochs=n_epochs,
            n_steps=int(n_steps),
            seconds=seconds,
        )
        about = {str(key): str(value) for key, value in head["about"].items()}
        return cls(result, str(head["loss"]), str(head["regularizer"]), classes if classes.size else None, about)
