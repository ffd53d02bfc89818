"""What workers have and do: parts of the rows, fits over them, and sums."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surestep._inputs import checked_vector, refuse
from surestep._intercept import shift_sums
from surestep.design import Design
from surestep.problem import Problem
from surestep.solvers._local import LocalSamples

Array = NDArray[Any]

# A name of something to do, and what it needs.
Command = tuple[str, tuple[Any, ...]]


class Targets(NamedTuple):
    """How y is made the targets of one problem.

    ``column`` of a y that has several; ``positive``, the label that becomes +1 where all others become -1, if any;
    ``labels`` and ``factors``, by which the weights of their samples are multiplied, if any.
    """

    column: int | None = None
    positive: Any = None
    labels: Array | None = None
    factors: Array | None = None


class Spec(NamedTuple):
    """What makes a part of the rows a part of a problem; weights become weight / largest / total."""

    loss: Any
    fit_intercept: bool
    targets: Targets
    n_samples: int
    largest: float
    total: float


class Part:
    """Some rows of the data, on the worker that holds them, and the fits over them.

    A fit is lost when the part goes elsewhere, and is made anew there from what the coordinator knows; it ends, at the
    latest, when Dask frees the part.
    """

    def __init__(self, number: int, design: Design | None, y: Array, weights: Array | None) -> None:
        self.number, self.design, self.y, self.weights = number, design, y, weights
        self.fits: dict[str, tuple[int, LocalSamples]] = {}
        self.ended: set[str] = set()

    @classmethod
    def of(cls, number: int, X: Any, y: Any, weights: Any) -> Part:
        """Check a partition of the data; what is wrong with it is said with its number."""
        y = np.asarray(y)
        if X.shape[0] == 0:
            return cls(number, None, y, None)
        try:
            design = Design.of(X)
            design = Design(design.columns, True)  # no other layout is needed
            if y.shape[:1] != (design.n_samples,) or y.ndim > 2:
                raise ValueError(f"y must have one value for each of the {design.n_samples} rows, but is {y.shape}")
            if y.dtype.kind == "f":
                for targets in np.atleast_2d(y.T):
                    refuse("y", targets, ~np.isfinite(targets), "targets must be finite: drop such samples")
            if weights is not None:
                weights = checked_vector("sample_weight", weights, design.n_samples)
                bad = ~(np.isfinite(weights) & (weights >= 0.0))
                refuse("sample_weight", weights, bad, "weights must be finite and >= 0; 0 leaves a sample out")
        except ValueError as error:
            raise ValueError(f"partition {number}: {error}") from error
        return cls(number, design, y, weights)

    def __reduce__(self) -> Any:
        return _unpacked, (self.number, self.design, self.y, self.weights)

    def __sizeof__(self) -> int:
        """Return the bytes that Dask has to count for it."""
        arrays = () if self.design is None else (*self.design.columns, self.y, self.weights)
        return 500 + sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def targets(self, targets: Targets) -> Array:
        """Return y as the problem wants it."""
        y = self.y if targets.column is None else self.y[:, targets.column]
        if targets.positive is not None:
            return np.where(y == targets.positive, 1.0, -1.0)
        return checked_vector(f"partition {self.number}: y", y, y.shape[0])

    def own_weights(self, targets: Targets) -> Array | None:
        """Return the weights of the samples, times those of their classes; None where all are one."""
        if targets.labels is None or targets.factors is None:
            return self.weights
        factors = targets.factors[np.searchsorted(targets.labels, self.y)]
        return np.asarray(factors if self.weights is None else self.weights * factors)

    def problem(self, spec: Spec) -> Problem:
        """Return the part of the mean loss that these rows are, as a problem without a penalty."""
        weights = self.own_weights(spec.targets)
        if weights is None:
            weights = np.full(self.y.shape[0], 1.0 / spec.n_samples)
        else:
            weights = weights / spec.largest / spec.total
        assert self.design is not None
        return Problem.made_of(self.design, self.targets(spec.targets), spec.loss, weights, spec.fit_intercept)

    # --- Fits

    def take(self, order: Order) -> LocalSamples | None:
        """Take a fit away, where the order finds it, so that nobody finds it half done; None if it is not known how."""
        version, samples = self.fits.pop(order.fit, (-1, None))
        if version == order.version:
            return samples
        if order.log is None:
            return None
        samples = LocalSamples(self.problem(order.spec))
        _obey(samples, order.log)
        return samples

    def keep(self, fit: str, version: int, samples: LocalSamples) -> None:
        """Keep a fit for the next order, unless it was ended meanwhile."""
        self.fits[fit] = version, samples
        if fit in self.ended:
            self.fits.pop(fit, None)

    def end(self, fit: str) -> None:
        """Have a fit no more, nor what is just being done for it."""
        self.ended.add(fit)
        self.fits.pop(fit, None)


def _unpacked(number: int, design: Design | None, y: Array, weights: Array | None) -> Part:
    """Return a part as it was on another worker; arrays arrive writable, for which kernels would be compiled anew."""
    if design is not None:
        for array in design.columns:
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
    return Part(number, design, y, weights)


# --- What is asked of each part alone, once


class Summary(NamedTuple):
    """What the coordinator has to know of a part."""

    n_samples: int
    n_features: int
    dtype: str
    is_sparse: bool
    y_shape: tuple[int, ...]
    y_kind: str
    has_weights: bool


def summary(part: Part) -> Summary:
    """Return what the coordinator has to know."""
    if part.design is None:
        return Summary(0, 0, "", False, (), "", False)
    design, y = part.design, part.y
    return Summary(
        *design.shape, str(design.dtype), design.is_sparse, y.shape[1:], y.dtype.kind, part.weights is not None
    )


def number(part: Part) -> int:
    """Return its number: it is there."""
    return part.number


def itself(part: Part) -> Part:
    """Return the part, to have it on another worker."""
    return part


def labels_of(part: Part) -> tuple[Array, Array]:
    """Return the different labels, and the row of the first of each."""
    return np.unique(part.y, return_index=True)


def largest_weight(part: Part, targets: Targets) -> float:
    """Return the largest weight of a sample."""
    weights = part.own_weights(targets)
    return 1.0 if weights is None else float(np.max(weights))


def weight_sum(part: Part, targets: Targets, largest: float) -> float:
    """Return the sum of the weights over the largest of all."""
    weights = part.own_weights(targets)
    return float(part.y.shape[0]) if weights is None else float(np.sum(weights / largest))


def label_weights(part: Part, labels: Array) -> Array:
    """Return the sum of the weights of the samples with each label."""
    return np.bincount(np.searchsorted(labels, part.y), part.weights, minlength=labels.size).astype(float)


def column_sums(part: Part) -> Array:
    """Return the weighted sums of the columns, and last the sum of the weights."""
    assert part.design is not None
    weights = np.ones(part.y.shape[0]) if part.weights is None else part.weights
    return np.append(part.design.columns.values @ weights, np.sum(weights))


def centred(part: Part, offset: Array) -> Part:
    """Return the part with an offset taken off every row of a dense design."""
    assert part.design is not None
    values = part.design.columns.values - offset[:, None]
    return Part(part.number, Design.of(values.T), part.y, part.weights)


# --- What is asked of all parts, time and again: sums over rows


class Order(NamedTuple):
    """What a worker is to do with every part it holds.

    Without a ``fit``, one command of `_SUMS`. Else commands to the `LocalSamples` of that fit, which must stand at
    ``version``; where it does not, it is brought there by the commands of ``log``, if that is given. The answer is that
    of the last command.
    """

    spec: Spec
    commands: tuple[Command, ...]
    fit: str = ""
    version: int = 0
    log: tuple[Command, ...] | None = None


class Served(NamedTuple):
    """The sum over some parts, or ``is_stale``: the fit is not where the order finds it; and the seconds it took."""

    value: Any
    is_stale: bool
    seconds: float


def serve(parts: list[Part], order: Order) -> Served:
    """Do what is asked with some parts, and add up."""
    begin = time.perf_counter()
    if not order.fit:
        ((name, arguments),) = order.commands
        value = total([_SUMS[name](part.problem(order.spec), *arguments) for part in parts])
        return Served(value, False, time.perf_counter() - begin)
    taken = [part.take(order) for part in parts]
    fits = [samples for samples in taken if samples is not None]
    if len(fits) < len(parts):
        for part, samples in zip(parts, taken, strict=True):
            if samples is not None:
                part.keep(order.fit, order.version, samples)
        return Served(None, True, time.perf_counter() - begin)
    for samples in fits:
        _obey(samples, order.commands[:-1])
    name, arguments = order.commands[-1]
    if name == "lines":
        value = _packed_lines(fits, *arguments)
    elif name in ("matrix", "model_matrix"):  # of all rows
        matrix = getattr(fits[0], name)(*arguments)
        n = matrix.shape[0]
        value = matrix[:, :n][lower(n, n)]
    else:
        value = total([getattr(samples, name)(*arguments) for samples in fits])
    for part, samples in zip(parts, fits, strict=True):
        part.keep(order.fit, order.version + 1, samples)
    return Served(value, False, time.perf_counter() - begin)


def total(values: Iterable[Any]) -> Any:
    """Return the sum of numbers or arrays, or of the entries of tuples of them; one alone is returned as it is."""
    first, *others = values
    if not others:
        return first
    if isinstance(first, tuple):
        return tuple(total(entries) for entries in zip(first, *others, strict=True))
    for other in others:
        first = first + other
    return first


def _obey(samples: LocalSamples, commands: Iterable[Command]) -> None:
    for name, arguments in commands:
        getattr(samples, name)(*arguments)


def lower(n_lines: int, n: int) -> NDArray[np.bool_]:
    """Tell where the last lines of a symmetric matrix of n lines are on or below its diagonal."""
    return np.tri(n_lines, n, n - n_lines, dtype=bool)


def _packed_lines(fits: Iterable[LocalSamples], first: int, n: int) -> Array:
    """Return what the parts add to the last lines of the Gram matrix, on and below its diagonal."""
    lines = np.zeros((n - first, n))
    for samples in fits:
        samples.add_lines(first, lines)
    return np.asarray(lines[lower(n - first, n)])


def _shift_sums(problem: Problem, x: Array, b: float) -> tuple[float, ...]:
    return tuple(shift_sums(problem.loss, problem.predictor(x), problem.y, problem.weights, b))


def _sides(problem: Problem, x: Array, b: float) -> tuple[float, float]:
    """Sums of the positive and of the negative s_i u_i, where z is shifted by b."""
    r = problem.residual(problem.predictor(x) + b)
    return float(np.sum(r[r > 0.0])), float(-np.sum(r[r < 0.0]))


def _scaled(problem: Problem, x: Array, b: float, rising: float, falling: float) -> tuple[Array, Array]:
    """Return z, and u where z is shifted by b, with its positive and negative entries scaled."""
    z = problem.predictor(x)
    u = problem.derivative(z + b)
    return z, np.where(u > 0.0, rising * u, falling * u)


def _correlations(problem: Problem, *dual: Any) -> Array:
    return problem.correlations(_scaled(problem, *dual)[1])


def _fenchel_young(problem: Problem, tau: float, *dual: Any) -> float:
    z, u = _scaled(problem, *dual)
    return problem.fenchel_young(z, tau * u)


_SUMS: dict[str, Any] = {
    "squared_norms": lambda problem: problem.squared_norms(problem.weights),
    "objective": Problem.objective,
    "gradient": Problem.gradient,
    "shift_sums": _shift_sums,
    "sums_at": Problem.sums_at,
    "sides": _sides,
    "correlations": _correlations,
    "fenchel_young": _fenchel_young,
}
