"""The fast solver: by a working set where a problem has kinks, everywhere at once where it has none."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack

import numpy as np
from numpy.typing import ArrayLike

from surestep._jit import jit
from surestep.problem import Problem
from surestep.regularizers import Separable
from surestep.solvers._checks import check_run, starting_point
from surestep.solvers._everywhere import Everywhere
from surestep.solvers._local import samples_of
from surestep.solvers._loop import Callback, run, target_of
from surestep.solvers._on_working_set import OnWorkingSet
from surestep.solvers._rounds import Rounds
from surestep.trace import Result


def minimize(
    problem: Problem,
    *,
    tol: float = 1e-6,
    max_rounds: int = 1000,
    n_jobs: int = 1,
    callbacks: Iterable[Callback] = (),
    warm_start: Result | ArrayLike | None = None,
) -> Result:
    """Minimise a problem fast, with a certificate.

    Works in rounds. In each, the coordinates that promise most join a working set W; the problem is solved on W, with
    all its gradient entries known exactly; then one pass over the columns that are not certified to stay at zero, and
    whose gradient entries the Gram matrix does not tell, gives the duality gap, and what promises most now. On W:
    adaptive descent by its Gram matrix, which is extended and kept up to date, and direct solves for the coordinates
    that are not zero; or random sweeps over the columns and conjugate gradients, where that is less work. Losses that
    are not quadratic go by quadratic models (Newton's method); where rows outnumber W by far, the Gram matrix of a
    model is that of a sample of the rows, corrected by what every step shows of that of all.
    Where W grows to a good part of the number of samples, stronger penalties go first, roughly: it is near their
    minimisers that one can tell which coordinates matter. Each is a round, and f may rise in it.
    Problems without an L1 part and bounds are left to Newton's method as a whole: by conjugate gradients until these
    have taken the time of a matrix over features or samples, then by that. Where a few sweeps of dual coordinate
    descent over the samples should be less work, these go first.

    Parameters
    ----------
    problem : Problem
    tol : float
        Stop when the certified duality gap is at most ``tol`` times the objective at zero. For problems without a
        certificate, see `Problem.certificate_reason`: when the largest violation of optimality is ``tol`` times that at
        zero.
    max_rounds : int
    n_jobs : int
        Threads for the passes over the data; -1 means as many as there are processors. The result is the same. Of no
        effect on data in row partitions, where the workers are at work.
    callbacks : iterable of callables
        Each is called with a `Progress` after every round.
    warm_start : Result or array, optional
        Where to start, instead of zero.

    Returns
    -------
    Result
        ``trace`` has a row a round, with the columns epoch (the round), steps, seconds (all of them: looking at the gap
        is part of the work), objective, gap, nonzeros, working_set (its size), gram (whether its Gram matrix is used)
        and passes (entries of X read so far, over all there are). On data in row partitions also exchanges (with all
        workers), bytes_sent, bytes_received, and communication (seconds in which no worker was computing).

    Examples
    --------
    >>> import numpy as np, surestep as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 200))
    >>> y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=50)
    >>> result = ss.minimize(ss.Problem(X, y, regularizer=ss.L1(0.4)), tol=1e-10)
    >>> result.status.name, np.flatnonzero(result.coef)
    ('CONVERGED', array([0, 1]))
    """
    with Minimizer(n_jobs) as minimizer:
        return minimizer(problem, tol=tol, max_rounds=max_rounds, callbacks=callbacks, warm_start=warm_start)


class Minimizer(AbstractContextManager["Minimizer"]):
    """`minimize` for one problem after another that differ in their regularizers only, each from where the last ended.

    The fit, the working set with its Gram matrix, and what is known of gradient entries are kept from one to the next.
    """

    def __init__(self, n_jobs: int = 1) -> None:
        if not (isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool) and (n_jobs > 0 or n_jobs == -1)):
            raise ValueError(f"n_jobs must be a positive int, or -1 for all processors, got {n_jobs!r}")
        self._n_threads = None if n_jobs == -1 else int(n_jobs)
        self._resources = ExitStack()
        self._rounds: Rounds | None = None

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def __call__(
        self,
        problem: Problem,
        *,
        tol: float,
        max_rounds: int,
        callbacks: Iterable[Callback],
        warm_start: Result | ArrayLike | None = None,
    ) -> Result:
        """Minimise; ``warm_start`` is where to start if nothing was minimised before."""
        begin = time.perf_counter()
        check_run(problem, max_rounds, tol, 1, limit="max_rounds")
        if not isinstance(problem.penalty, Separable):
            raise TypeError(f"minimize needs a regularizer of this package, not {problem.regularizer!r}")
        target = target_of(problem, tol)
        if self._rounds is not None and self._rounds.smooth == _is_smooth(problem):
            self._rounds.take_up(problem, target)
        else:
            start = starting_point(problem, warm_start if self._rounds is None else self._rounds.x)
            self._resources.close()
            samples = self._resources.enter_context(samples_of(problem, self._n_threads))
            kind = Everywhere if _is_smooth(problem) else OnWorkingSet
            self._rounds = kind(problem, start, target, samples)
        return run(
            self._rounds,
            problem,
            max_epochs=max_rounds,
            target=target,
            callbacks=callbacks,
            trace_every=1,
            seconds=time.perf_counter() - begin,
            support=self._rounds.support,
        )


def _is_smooth(problem: Problem) -> bool:
    """Whether there is neither an L1 part nor a bound."""
    return not _has_kinks(
        problem.penalty, 1 if getattr(problem.regularizer, "is_uniform", False) else problem.n_features
    )


@jit
def _has_kinks(reg: Separable, n_features: int) -> bool:
    """Whether one of the first features has an L1 part or a bound."""
    for j in range(n_features):  # noqa: SIM110  Numba has no generator expressions
        if reg.l1[j] > 0.0 or reg.lower[j] > -np.inf or reg.upper[j] < np.inf:
            return True
    return False
