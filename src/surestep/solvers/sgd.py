"""Stochastic gradient descent under any sampling: Section 2.2 and Appendix A.2 of the paper, and variance reduction."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surestep.problem import Problem
from surestep.solvers._checks import check_choice, check_run, starting_point
from surestep.solvers._loop import Callback, run, target_of
from surestep.solvers._sgd_blocks import StochasticGradientDescent
from surestep.trace import Result

SAMPLINGS = ("safe", "optimal", "importance", "uniform")
STEPS = ("auto", "constant", "inverse", "sqrt")
AVERAGES = ("uniform", "weighted", "tail")
BOUNDS = ("auto", "delegated")


def stochastic_gradient_descent(
    problem: Problem,
    *,
    sampling: str = "safe",
    variance_reduction: bool = True,
    step: str = "auto",
    stepsize: float | None = None,
    batch_size: int = 1,
    average: str | None = None,
    radius: float | None = None,
    max_epochs: float = 1000,
    tol: float = 1e-6,
    random_state: int | np.random.Generator | None = 0,
    callbacks: Iterable[Callback] = (),
    trace_every: float = 1,
    warm_start: Result | ArrayLike | None = None,
    bounds: str = "auto",
    client: Any = None,
    check_bounds: bool = False,
) -> Result:
    """Minimise a problem one row at a time.

    In every step a row i is drawn with probability p_i, and

        x <- prox_{eta psi}(x - eta (g + s_i / p_i (h_i'(<a_i, x>) - anchor_i) a_i)),

    an unbiased estimate of a gradient step on the mean loss; with eta / (N p_i) as in the paper for equal weights.
    With variance reduction (SVRG) anchor_i are the derivatives, and g the gradient, at an anchor that is moved to x
    after every N/2 rows: the variance vanishes as x comes to rest, and the gap falls to zero at a linear rate. Without
    it both are zero, and the stepsize has to fall. A step costs O(entries of the row) whatever the penalty: what it
    does to all other coordinates is put off until they are needed.

    Parameters
    ----------
    problem : Problem
        Bounds of its regularizer (`Box`, `NonNegative`) are kept to by every iterate. One in row partitions needs
        ``bounds="delegated"``.
    sampling : {"safe", "optimal", "importance", "uniform"}
        How rows are drawn. "uniform": p = 1/N. "importance": p_i ~ s_i ||a_i||, the best where nothing is known of
        the gradients, or with variance reduction p_i ~ s_i ||a_i||^2, by smoothness. "optimal": by the true gradient
        norms p_i ~ c_i = s_i ||a_i|| |h_i'(<a_i, x>) - anchor_i|, at the price of a pass over the data in every
        step. "safe": by bounds on what these can be within a distance from where they were known, which is watched; see
        the notes.
    variance_reduction : bool
    step : {"auto", "constant", "inverse", "sqrt"}
        With L = max_i s_i beta ||a_i||^2 / p_i, the smoothness that the sampling implies, and steps counted by k:
        "constant" is 1/(2L); "inverse" is 1 / (2L + mu k), which tends to the 1 / (mu k) of the paper's theorem and is
        defined at k = 0, mu the least ridge term of a feature; "sqrt" is 1 / (2L sqrt(1 + k/N)). These fall in stairs,
        by an eighth at once. "auto" needs no tuning: with variance reduction it is 1/(2L), for the L that holds within
        the distance that the iterates keep from the anchor, halved whenever the objective at a new anchor turns out
        larger than before (which is then given up for the old one); without, it goes by the distance that x has come,
        see the notes.
    stepsize : float, optional
        In place of 1/(2L).
    batch_size : int
        Rows drawn for a step, with replacement; their mean is taken.
    average : {None, "uniform", "weighted", "tail"}
        Return an average of the iterates: of all of them, the same with weights that rise like k (in stairs), or of
        those since the last power of two. None: the last one.
    radius : float, optional
        Project the features of every iterate onto the ball of this radius. For problems without an L1 term and bounds,
        without variance reduction. The duality gap is that of the problem without the ball.
    max_epochs : float
        An epoch is N rows looked at; anchors count, the passes from which samplings learn do not (but the clock does).
    tol, random_state, callbacks, trace_every, warm_start
        As in `coordinate_descent`.
    bounds : {"auto", "delegated"}
        Who looks at all rows for "safe": the solver itself, between steps, or others, all the while; see the notes.
    client : dask.distributed.Client, optional
        Whose workers are to do it where bounds are delegated. None: the active client, or a thread of this process if
        there is none.
    check_bounds : bool
        Compare every bound with the truth after every step, and raise `BoundViolationError` at the first that does not
        hold. Slow.

    Returns
    -------
    Result
        ``trace`` has the columns epoch, steps, seconds, objective, gap, nonzeros, stepsize, value_ratio (worst case
        under the present sampling relative to that under "importance") and still (rows certified to have nothing to
        tell); where bounds are delegated, also staleness (mean distance of x from where margins are known) and arrived
        (how many times margins of a part of the rows have come in), and over row partitions bytes_received (rows) and
        communication (seconds in which the steps waited for rows).

    Notes
    -----
    Plain "safe" takes the margins of all rows at the start of a block and bounds c_i, from both sides, for all x
    within a distance; it draws from the safe sampling of these bounds (eq. 7), which for no gradients within them is
    worse than p ~ s_i ||a_i||: uniform sampling, where rows are of equal norm and weight. When x leaves that distance,
    a larger one is allowed. It does without in the first epoch, and for longer and longer wherever bounds tell little.
    One could draw from bounds for the present x in every step instead, by the index behind `SafeSampler`. Where its
    drift rates are equal (rows of unit norm), the most it could know lowers the variance by a few per cent below that
    of blocks, at best by a fifth (``benchmarks/bench_sgd_bounds.py``), while a draw takes as long as one to five steps
    on sparse rows; to solve for the sampling in every step, as "optimal" does, costs a pass. So blocks draw for all.

    How long plain steps should be depends on how far the solution is and on how noisy the estimates g_k of the gradient
    are. Both show on the way: "auto" is

        eta_k = 1 / (1 / min(1 / (2L), D_k / sqrt(sum_{j<k} |g_j|^2)) + mu k),

    where the expectation of |g_j|^2 is the sum of c_i^2 / p_i of Appendix A.2, for the sampling in force: a
    sampling of less variance makes for longer steps, by itself. Constants L do not count where noise is what matters;
    1/(2L) is longer for p_i ~ s_i ||a_i|| than for uniform sampling, and too long for both on most data. D_k, from 1/50
    of the longest step on, is the largest distance from the start so far, without what noise alone would have made of
    it: D_k^2 = max_{j<k} |x_j - x_0|^2 - sum_{i<j} |eta_i g_i|^2. (Without that correction the rule is "distance over
    gradients", Ivgi, Hinder and Carmon, 2023.)

    With variance reduction the lower bounds are zero: at the anchor nothing needs to be drawn at all. What counts is
    how fast c_i can grow with the distance of x from the anchor, c_i <= s_i ||a_i|| l_i |<a_i, x - anchor>|, where l_i
    is the largest second derivative of h_i in the interval that the margin cannot leave. All that proofs of the linear
    rate need of a row is that Lipschitz constant s_i ||a_i||^2 l_i =: L_i, divided by p_i; its maximum is least for
    p_i ~ L_i, where it is sum_i L_i. That is importance sampling with local constants: never above that with global
    ones, so steps are never shorter, and rows with L_i = 0 (beyond the hinge) are not drawn. If x leaves the distance,
    an anchor is taken there.

    Delegated bounds are for plain "safe": with variance reduction they come from the anchor, where all margins are
    known anyway. Rows are split among workers, who keep computing the margins of theirs at the last x they were sent.
    The steps wait for none of it. Margins that arrive are those of an x at some distance from the present one, and
    bounds hold within that distance and the one that is still allowed: stale margins make them wider, not wrong, and
    rows that nobody has reported on are drawn as if nothing were known of them. A worker that dies is replaced; the run
    goes on meanwhile. The draws depend on what has arrived when, so such runs are not repeatable by their seed.

    Over row partitions workers draw, too, each from the safe sampling of its rows, and which partition is next is drawn
    from the safe sampling of all partitions: the same promise for three numbers a partition. Rows come some thousands
    at a time, the next while the present ones are worked on, and nothing as long as the rows is kept here; see
    docs/distributed.md. Such runs are repeatable.

    Examples
    --------
    >>> import numpy as np, surestep as ss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 5))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, 1, -1)
    >>> problem = ss.Problem(X, y, "logistic", ss.L2(0.01), sample_weight=1 + rng.pareto(1.5, size=200))
    >>> result = ss.stochastic_gradient_descent(problem, tol=1e-8)
    >>> result.status.name
    'CONVERGED'
    """
    check_run(problem, max_epochs, tol, trace_every)
    check_choice("sampling", sampling, SAMPLINGS)
    check_choice("step", step, STEPS)
    if average is not None:
        check_choice("average", average, AVERAGES)
    if not isinstance(variance_reduction, bool):
        raise ValueError(f"variance_reduction must be True or False, got {variance_reduction!r}")
    if stepsize is not None and not 0.0 < stepsize < math.inf:
        raise ValueError(f"stepsize must be positive and finite, got {stepsize}")
    if not (isinstance(batch_size, int | np.integer) and batch_size >= 1):
        raise ValueError(f"batch_size must be a whole number of at least 1, got {batch_size!r}")
    check_choice("bounds", bounds, BOUNDS)
    if bounds == "delegated" and (sampling != "safe" or variance_reduction):
        raise ValueError(
            "bounds='delegated' needs sampling='safe' and variance_reduction=False: other samplings need no bounds, "
            "and those of variance reduction come from its anchor, where the solver looks at all rows itself"
        )
    if client is not None and bounds != "delegated":
        raise ValueError("client is for bounds='delegated'; otherwise nothing is computed on its workers")
    begin_time = time.perf_counter()
    with contextlib.ExitStack() as stack:
        kind, crew = StochasticGradientDescent, None
        if bounds == "delegated":
            from surestep.distributed.delegated import delegated

            kind, crew = delegated(problem, client)
            stack.enter_context(crew)
        method = kind(
            problem,
            sampling,
            variance_reduction,
            step,
            starting_point(problem, warm_start),
            random_state,
            stepsize=stepsize,
            batch_size=int(batch_size),
            average=average,
            radius=radius,
            crew=crew,
        )
        method.check_bounds = check_bounds
        return run(
            method,
            problem,
            max_epochs=max_epochs,
            target=target_of(problem, tol),
            callbacks=callbacks,
            trace_every=trace_every,
            seconds=time.perf_counter() - begin_time,
        )
