"""Losses: how bad a prediction z is for a target y.

A loss is a ``NamedTuple`` of its parameters. What it is mathematically, it says by the generics below, scalar functions
that run in Python and in compiled kernels alike. Losses know no data. Classification losses have targets -1 and +1.

==================  ====================================  ==========  ============================================
loss                value(z, y)                           smoothness  conjugate of u, with a = -u y
==================  ====================================  ==========  ============================================
``Squared()``       (z - y)^2 / 2                         1           u^2 / 2 + u y
``Huber(delta)``    the same within delta, linear beyond  1           the same for -delta <= u <= delta
``SquaredHinge()``  max(0, 1 - y z)^2 / 2                 1           a^2 / 2 - a for a >= 0
``Logistic()``      log(1 + exp(-y z))                    1/4         a log a + (1 - a) log(1 - a) for 0 <= a <= 1
==================  ====================================  ==========  ============================================

A loss of your own
------------------
Write a class and register what the table has, under the argument names of the generics. The class must live in a
module that can be imported, or its kernels are compiled anew in every process. Here is a smoothed absolute error::

    import math
    from typing import NamedTuple
    from surestep import losses

    class PseudoHuber(NamedTuple):
        "sqrt(1 + (z - y)^2) - 1."

    @losses.value.register(PseudoHuber)
    def _(loss, z, y):
        return math.hypot(1.0, z - y) - 1.0

    @losses.derivative.register(PseudoHuber)
    def _(loss, z, y):
        return (z - y) / math.hypot(1.0, z - y)

    @losses.second_derivative.register(PseudoHuber)
    def _(loss, z, y):
        return math.hypot(1.0, z - y) ** -3

    @losses.smoothness.register(PseudoHuber)
    def _(loss):
        return 1.0

    @losses.conjugate.register(PseudoHuber)
    def _(loss, u, y):
        if abs(u) > 1.0:
            return math.inf
        return 1.0 - math.sqrt(1.0 - u * u) + u * y

    @losses.is_classification.register(PseudoHuber)
    def _(loss):
        return False

    problem = surestep.Problem(X, y, loss=PseudoHuber())

What the rest of the library relies on: the loss is convex and bounded below and its derivative is continuous, so the
derivative rises with z; `smoothness` bounds the second derivative; the conjugate is finite at 0 and at every value the
derivative takes. A derivative computed in floating point may leave the conjugate's domain by rounding: treat a few ulp
beyond it as on its edge. A function that is left out is only missed where it is needed, by a `TypeError` that names it;
`largest_curvature` need not be there: with it stochastic gradient descent can tell rows that matter from others.
"""

# mypy: allow-untyped-defs
# (Numba wants a registered implementation to have the signature of its generic's template, which has no annotations.)

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from surestep._elementary import exp, log, log1p
from surestep._jit import generic, generic_of_numbers

EDGE = 4 * float(np.finfo(np.float64).eps)  # how far outside a conjugate's domain counts as rounding, relatively


class Squared(NamedTuple):
    """Squared error (z - y)^2 / 2."""


class SquaredHinge(NamedTuple):
    """Squared hinge max(0, 1 - y z)^2 / 2, for labels y in {-1, +1}."""


class Logistic(NamedTuple):
    """Logistic loss log(1 + exp(-y z)), for labels y in {-1, +1}."""


class Huber(NamedTuple):
    """Huber loss of the error d = z - y: d^2 / 2 where abs(d) <= delta, delta (abs(d) - delta / 2) beyond.

    The default delta loses 5 % of efficiency against the squared loss when the errors are standard normal.
    """

    delta: float = 1.35


_NAMES: dict[str, type[Any]] = {
    "squared": Squared,
    "squared_hinge": SquaredHinge,
    "logistic": Logistic,
    "huber": Huber,
}


def as_loss(loss: Any) -> Any:
    """Turn a name, "squared", "squared_hinge", "logistic" or "huber", into a loss; a loss is returned as it is."""
    if isinstance(loss, str):
        if loss not in _NAMES:
            raise ValueError(
                f"loss={loss!r} is not known; choose one of {', '.join(map(repr, _NAMES))}, or pass a loss"
            )
        return _NAMES[loss]()
    if not (isinstance(loss, tuple) and hasattr(loss, "_fields")):
        raise ValueError(f"loss must be a name or a loss such as Squared(), but is {loss!r}")
    if isinstance(loss, Huber) and not 0.0 < loss.delta < math.inf:
        raise ValueError(f"loss: the delta of Huber must be positive and finite, but is {loss.delta}")
    return loss


def is_never_negative(loss: Any) -> bool:
    """Whether it is one of this package, of which none ever is."""
    return type(loss) in _NAMES.values()


@generic_of_numbers
def value(loss: Any, z: Any, y: Any) -> Any:
    """Loss of the prediction z for the target y."""


@generic_of_numbers
def derivative(loss: Any, z: Any, y: Any) -> Any:
    """Give the derivative of the loss in z; it never falls as z rises."""


@generic_of_numbers
def second_derivative(loss: Any, z: Any, y: Any) -> Any:
    """Second derivative of the loss in z (one side's value where the two sides differ)."""


@generic
def smoothness(loss: Any) -> Any:
    """Smallest number that bounds the second derivative everywhere."""


@generic
def largest_curvature(loss: Any, low: Any, high: Any, y: Any) -> Any:
    """Bound the second derivative on low <= z <= high; `smoothness`, where a loss says no better."""


@generic_of_numbers
def conjugate(loss: Any, u: Any, y: Any) -> Any:
    """Fenchel conjugate in z, sup_z u z - value(z, y): infinite outside its domain, up to a few ulp of rounding."""


@generic
def is_classification(loss: Any) -> Any:
    """Whether targets are the labels -1 and +1."""


@largest_curvature.register(tuple)
def _(loss, low, high, y):
    return smoothness(loss)


# --- Squared


@value.register(Squared)
def _(loss, z, y):
    return 0.5 * (z - y) ** 2


@derivative.register(Squared)
def _(loss, z, y):
    return z - y


@second_derivative.register(Squared)
def _(loss, z, y):
    return 1.0


@smoothness.register(Squared)
def _(loss):
    return 1.0


@conjugate.register(Squared)
def _(loss, u, y):
    return 0.5 * u * u + u * y


@is_classification.register(Squared)
def _(loss):
    return False


# --- Huber


@value.register(Huber)
def _(loss, z, y):
    error = abs(z - y)
    if error <= loss.delta:
        return 0.5 * error * error
    return loss.delta * (error - 0.5 * loss.delta)


@derivative.register(Huber)
def _(loss, z, y):
    return min(max(z - y, -loss.delta), loss.delta)


@second_derivative.register(Huber)
def _(loss, z, y):
    return 1.0 if abs(z - y) <= loss.delta else 0.0


@largest_curvature.register(Huber)
def _(loss, low, high, y):
    return 1.0 if low - y <= loss.delta and high - y >= -loss.delta else 0.0


@smoothness.register(Huber)
def _(loss):
    return 1.0


@conjugate.register(Huber)
def _(loss, u, y):
    if abs(u) > loss.delta * (1.0 + EDGE):
        return math.inf
    u = min(max(u, -loss.delta), loss.delta)
    return 0.5 * u * u + u * y


@is_classification.register(Huber)
def _(loss):
    return False


# --- SquaredHinge


@value.register(SquaredHinge)
def _(loss, z, y):
    return 0.5 * max(0.0, 1.0 - y * z) ** 2


@derivative.register(SquaredHinge)
def _(loss, z, y):
    return -y * max(0.0, 1.0 - y * z)


@second_derivative.register(SquaredHinge)
def _(loss, z, y):
    return 1.0 if y * z < 1.0 else 0.0


@largest_curvature.register(SquaredHinge)
def _(loss, low, high, y):
    return 1.0 if y * (low if y > 0.0 else high) < 1.0 else 0.0


@smoothness.register(SquaredHinge)
def _(loss):
    return 1.0


@conjugate.register(SquaredHinge)
def _(loss, u, y):
    a = -u * y
    if a < -EDGE:
        return math.inf
    a = max(a, 0.0)
    return a * (0.5 * a - 1.0)


@is_classification.register(SquaredHinge)
def _(loss):
    return True


# --- Logistic


@value.register(Logistic)
def _(loss, z, y):
    margin = y * z
    return log1p(exp(-abs(margin))) + max(-margin, 0.0)


@derivative.register(Logistic)
def _(loss, z, y):
    margin = y * z
    e = exp(-abs(margin))
    return -y * (e if margin > 0.0 else 1.0) / (1.0 + e)  # signs of margins are hard to predict: no branches


@second_derivative.register(Logistic)
def _(loss, z, y):
    e = exp(-abs(y * z))  # as above: who needs all three has one exponential
    return min(e / (1.0 + e) ** 2, 0.25)  # rounding must not lift it above the smoothness


@largest_curvature.register(Logistic)
def _(loss, low, high, y):
    # It falls with the distance from 0.
    e = exp(-max(low, -high, 0.0))
    return min(e / (1.0 + e) ** 2 * (1.0 + 8.0 * EDGE), 0.25)


@smoothness.register(Logistic)
def _(loss):
    return 0.25


@conjugate.register(Logistic)
def _(loss, u, y):
    a = -u * y
    if a < -EDGE or a > 1.0 + EDGE:
        return math.inf
    a = min(max(a, 0.0), 1.0)
    if a == 0.0 or a == 1.0:
        return 0.0
    rest = 1.0 - a
    return a * log(a) + rest * (log(rest) - (a - (1.0 - rest)) / rest)  # with what rounding took from the rest


@is_classification.register(Logistic)
def _(loss):
    return True
