"""SGD over rows that are elsewhere, in parts: they are drawn where they are, some at a time, and dealt to the solver.

Nothing here is as long as the rows. A part draws from the safe sampling of its own rows, and which part is next is
drawn from the safe sampling of the parts (`surestep.bounds.parts`): no more than three numbers a part are needed for
it. While the steps of one hand are done, the next is dealt, by bounds around the point where these steps began. So x
has moved on when it comes; but distances are measured, and as long as x is within the one that the bounds hold for,
stale bounds are safe. When it is not, what is left of a hand is given up: whether that happens is decided by steps
that are done, so the draws that are used stay unbiased.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surestep import losses
from surestep.bounds.delegated import distance_between
from surestep.design import Design
from surestep.lines import Dense, Sparse
from surestep.problem import Problem
from surestep.solvers._orbit import REFERENCE, X, make_ball, make_powers
from surestep.solvers._sgd_blocks import StochasticGradientDescent
from surestep.solvers._stochastic import BUDGET, NORM, SHARE, TARGET, TIME, begin, flush

Array = NDArray[np.float64]

# Rows of a hand: a quarter of all, but no more than this; and no fewer than a step takes.
_PART, _MOST = 0.25, 8192

# Bounds around the beginning of one block are to hold until the end of the next: for twice the way of a block, and more
# where that turned out to be too little.
_ROOM, _MORE_ROOM = 3.0, 1.5

# Columns of `Hand.facts`, a line for each row: the target; s_i / p_i; ||a_i|| with and without the 1 of the intercept;
# s_i; bounds on the norm of the gradient.
GOAL, RATIO, LENGTH, BARE_LENGTH, WEIGHT, LEAST, GREATEST = range(7)


class Rows(NamedTuple):
    """What has to be known of all rows: the sum of s_i ||a_i||, the longest, and the most entries of one."""

    scale: float
    length: float
    n_entries: float


class Hand(NamedTuple):
    """Rows that were drawn, each once, and the order in which to take them.

    The sampling is safe while x is ``within`` a distance of ``point``. ``value_ratio`` and ``still`` as in the trace.
    """

    point: Array
    within: float
    rows: Dense | Sparse
    facts: Array
    order: NDArray[np.int64]
    value_ratio: float
    still: float


class Dealer(Protocol):
    """Who draws rows. It is asked for one hand at a time."""

    n_parts: int
    known: Rows
    n_bytes: int

    def ask(self, point: Array, within: float, n_rows: int, seed: int) -> None:
        """Have a hand dealt; do not wait for it. For an infinite distance, from the sampling that needs no bounds."""

    def hand(self) -> Hand:
        """Wait for the hand that was asked for."""


class DealtDescent(StochasticGradientDescent):
    """Steps on rows that a dealer draws; a block is a hand."""

    _dealer: Dealer
    _hand: Hand

    def _take_rows(self, crew: Dealer) -> Array:
        """Ask the dealer what has to be known of all rows."""
        problem, self._dealer = self.problem, crew
        known = crew.known
        # p_i = s_i ||a_i|| / sum, so that s_i beta ||a_i||^2 / p_i = beta ||a_i|| sum.
        self.smoothness = losses.smoothness(problem.loss) * known.length * known.scale
        self.longest = known.n_entries
        self._room, self._way, self._n_hands, self._waited = _ROOM, math.inf, 0, 0.0
        return np.zeros((0, 8))

    def columns(self) -> dict[str, float]:
        """Return what is added to the trace."""
        if self._n_hands:
            flush(self.penalty, self.powers, self.state)
        staleness = distance_between(self.state.coordinates[:, X], self._hand.point) if self._n_hands else math.nan
        return {
            "stepsize": self.powers.step,
            "value_ratio": self._value_ratio,
            "still": self._hand.still if self._n_hands else 0.0,
            "staleness": staleness,
            "arrived": float(self._n_hands * self._dealer.n_parts),
            "bytes_received": float(self._dealer.n_bytes),
            "communication": self._waited,
        }

    # --- Blocks

    def _begin_block(self) -> None:
        state, totals, batch = self.state, self.state.totals, self.state.drawn.size
        flush(self.penalty, self.powers, state)
        self._close_average()
        x = state.coordinates[:, X].copy()
        used = int(totals[TIME]) * batch
        if self._length > 0:
            self._look_back()
            self._way = distance_between(x, state.coordinates[:, REFERENCE])
        if self._length > 0 and used < state.dealt.size and _room_around(x, self._hand) > 0.0:
            dealt = state.dealt[used:].copy()  # the block ended for another reason, see `CLOSED`
        else:
            dealt = self._next_hand(x)
        hand = self._hand
        self._length = dealt.size // batch
        samples = np.zeros((hand.facts.shape[0], 8))
        samples[:, TARGET], samples[:, SHARE] = hand.facts[:, GOAL], hand.facts[:, RATIO] / batch
        samples[:, NORM] = hand.facts[:, BARE_LENGTH if self._is_affine() else LENGTH]
        self.state = state = state._replace(samples=samples, dealt=dealt)
        begin(state)
        step, _ = self._plan()
        if step != self.powers.step or self.powers.table.shape[0] <= self._length:
            self.powers = make_powers(step, self.l2, self.has_one_l2, self._length)
        if self.radius is not None:
            self.penalty = make_ball(self.radius, x[: self.problem.n_features].copy(), self._length)
        totals[BUDGET] = _room_around(x, hand)
        if totals[BUDGET] < np.inf:
            self._follow_distance()

    def _draw_within(self, budget: float) -> None:
        """X has left the distance: what is left of the hand is given up."""
        self._room *= _MORE_ROOM
        self._hand = self._hand._replace(within=0.0)
        self._begin_block()

    def _next_hand(self, x: Array) -> NDArray[np.int64]:
        """Take the hand that was asked for, and ask for the next; return the rows of all its steps."""
        start = time.perf_counter()
        if self._n_hands == 0:
            self._ask(x, math.inf)
        hand = self._dealer.hand()
        while not _room_around(x, hand) > 0.0:  # x was faster
            self._room *= _MORE_ROOM
            self._ask(x, self._room * self._way)
            hand = self._dealer.hand()
        self._ask(x, self._room * self._way)
        self._waited += time.perf_counter() - start
        self._n_hands += 1
        self._hand, self._value_ratio, self.rows = hand, hand.value_ratio, hand.rows
        if self.check_bounds:
            weights, length = hand.facts[:, WEIGHT], hand.facts[:, LENGTH]
            self.scale, self.lower, self.upper = weights * length, hand.facts[:, LEAST], hand.facts[:, GREATEST]
        return hand.order

    def _ask(self, x: Array, within: float) -> None:
        batch = self.state.drawn.size
        n_steps = max(int(min(_PART * self.problem.n_samples, _MOST)) // batch, 1)
        self._dealer.ask(x, within if within > 0.0 else math.inf, n_steps * batch, int(self.rng.integers(2**63)))

    def _derivatives(self, z: Array) -> Array:
        """Return h_i'(z_i) of the rows of the hand."""
        facts = self._hand.facts
        local = Problem.made_of(
            Design(self._hand.rows, False), facts[:, GOAL].copy(), self.problem.loss, facts[:, WEIGHT].copy(), False
        )
        return local.derivative(z)


def _room_around(x: Array, hand: Hand) -> float:
    """How far x may go before it leaves the distance from the point that the hand is safe for."""
    return math.inf if hand.within == math.inf else hand.within - distance_between(x, hand.point)
