"""Losses: derivatives, conjugates and extremes, compiled and in Python."""

import math
import textwrap
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from surestep import losses
from surestep._jit import jit
from surestep.losses import Huber, Logistic, Squared, SquaredHinge, as_loss
from zoo import PseudoHuber

ALL = [Squared(), Huber(), Huber(0.2), SquaredHinge(), Logistic()]
EPS = np.finfo(float).eps

each_loss = pytest.mark.parametrize("loss", ALL, ids=str)
z_values = st.floats(-50, 50)


def targets(loss):
    return st.sampled_from([-1.0, 1.0]) if losses.is_classification(loss) else st.floats(-50, 50)


@jit
def compiled(loss, z, u, y):
    return (
        losses.value(loss, z, y),
        losses.derivative(loss, z, y),
        losses.second_derivative(loss, z, y),
        losses.smoothness(loss),
        losses.conjugate(loss, u, y),
    )


def definition(loss, z, y):
    """The value as the module's table has it, in the most direct way."""
    match loss:
        case Squared():
            return (z - y) ** 2 / 2
        case Huber(delta):
            return (z - y) ** 2 / 2 if abs(z - y) <= delta else delta * abs(z - y) - delta**2 / 2
        case SquaredHinge():
            return max(0.0, 1 - y * z) ** 2 / 2
        case Logistic():
            return np.logaddexp(0.0, -y * z)


@each_loss
@given(st.data())
def test_compiled_equals_python(loss, data):
    z, y, other = data.draw(z_values), data.draw(targets(loss)), data.draw(z_values)
    u = losses.derivative(loss, other, y)
    plain = [
        losses.value(loss, z, y),
        losses.derivative(loss, z, y),
        losses.second_derivative(loss, z, y),
        losses.smoothness(loss),
        losses.conjugate(loss, u, y),
    ]
    np.testing.assert_allclose(compiled(loss, z, u, y), plain, rtol=1e-12, atol=1e-12)


@each_loss
@given(st.data())
def test_value_is_the_definition_and_derivatives_are_its_slopes(loss, data):
    z, y = data.draw(z_values), data.draw(targets(loss))
    kink = {Huber: abs(abs(z - y) - getattr(loss, "delta", 0.0)), SquaredHinge: abs(1 - y * z)}
    assume(kink.get(type(loss), 1.0) > 1e-3)
    h = 1e-4
    assert losses.value(loss, z, y) == pytest.approx(definition(loss, z, y), rel=1e-12, abs=1e-300)
    slope = (definition(loss, z + h, y) - definition(loss, z - h, y)) / (2 * h)
    assert losses.derivative(loss, z, y) == pytest.approx(slope, rel=1e-6, abs=1e-7)
    curvature = (losses.derivative(loss, z + h, y) - losses.derivative(loss, z - h, y)) / (2 * h)
    assert losses.second_derivative(loss, z, y) == pytest.approx(curvature, rel=1e-6, abs=1e-7)


@each_loss
@given(st.data())
def test_derivative_rises_and_not_faster_than_smoothness(loss, data):
    y = data.draw(targets(loss))
    low, high = sorted([data.draw(z_values), data.draw(z_values)])
    rise = losses.derivative(loss, high, y) - losses.derivative(loss, low, y)
    assert 0.0 <= rise <= losses.smoothness(loss) * (high - low) * (1 + 1e-12) + 1e-13
    assert 0.0 <= losses.second_derivative(loss, low, y) <= losses.smoothness(loss)


@each_loss
def test_smoothness_is_attained(loss):
    most = max(losses.second_derivative(loss, z, 1.0) for z in (0.0, 0.5, 1.0))
    assert most == losses.smoothness(loss)


@each_loss
@given(st.data())
def test_fenchel_young(loss, data):
    z, other, y = data.draw(z_values), data.draw(z_values), data.draw(targets(loss))
    u = losses.derivative(loss, other, y)
    slack = losses.value(loss, z, y) + losses.conjugate(loss, u, y) - u * z
    size = 1.0 + abs(u * z) + abs(u * y) + losses.value(loss, z, y)
    assert slack >= -8 * EPS * size
    touching = losses.derivative(loss, z, y)
    size = 1.0 + abs(touching * z) + abs(touching * y) + losses.value(loss, z, y)
    slack = losses.value(loss, z, y) + losses.conjugate(loss, touching, y) - touching * z
    assert slack == pytest.approx(0.0, abs=8 * EPS * size)


@each_loss
@given(st.data())
def test_conjugate_is_a_supremum(loss, data):
    y, best = data.draw(targets(loss)), data.draw(st.floats(-5, 5))
    u = losses.derivative(loss, best, y)
    scan = np.linspace(best - 1, best + 1, 101)
    reached = max(u * z - losses.value(loss, z, y) for z in scan)
    assert losses.conjugate(loss, u, y) == pytest.approx(reached, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("loss", "edge", "outward", "y"),
    [
        (Huber(1.5), 1.5, 1.0, 3.0),
        (Huber(1.5), -1.5, -1.0, 3.0),
        (SquaredHinge(), 0.0, 1.0, 1.0),
        (SquaredHinge(), 0.0, -1.0, -1.0),
        (Logistic(), 0.0, 1.0, 1.0),
        (Logistic(), -1.0, -1.0, 1.0),
        (Logistic(), 1.0, 1.0, -1.0),
    ],
)
def test_conjugate_ends_where_its_domain_does(loss, edge, outward, y):
    def at(u):
        return losses.conjugate(loss, u, y)

    assert math.isfinite(at(edge))
    assert at(edge + outward * EPS) == pytest.approx(at(edge), rel=4 * EPS, abs=4 * EPS)  # rounding is forgiven
    assert at(edge + outward * 1e-9) == math.inf
    assert at(edge - outward * 1e-9) == pytest.approx(at(edge), abs=1e-7)


def test_logistic_conjugate_by_hand():
    assert losses.conjugate(Logistic(), 0.0, 1.0) == 0.0
    assert losses.conjugate(Logistic(), -1.0, 1.0) == 0.0
    assert losses.conjugate(Logistic(), -0.5, 1.0) == pytest.approx(-math.log(2), rel=1e-15)
    tiny = 1e-300
    assert losses.conjugate(Logistic(), -tiny, 1.0) == pytest.approx(tiny * math.log(tiny) - tiny, rel=1e-13, abs=0)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logistic_far_out(y):
    for z in (800.0, 1e308):
        assert compiled(Logistic(), y * z, 0.0, y)[:3] == (0.0, 0.0, 0.0)
        assert compiled(Logistic(), -y * z, 0.0, y)[:3] == (z, -y, 0.0)
    assert losses.value(Logistic(), y * 40.0, y) == pytest.approx(math.exp(-40.0), rel=1e-14, abs=0)
    assert losses.derivative(Logistic(), y * 700.0, y) == pytest.approx(-y * math.exp(-700.0), rel=1e-12, abs=0)


def test_as_loss():
    named = {"squared": Squared(), "squared_hinge": SquaredHinge(), "logistic": Logistic(), "huber": Huber(1.35)}
    for name, loss in named.items():
        made = as_loss(name)
        assert type(made) is type(loss)
        assert made == loss
        assert as_loss(loss) is loss
    with pytest.raises(ValueError, match="'hinge' is not known; choose one of 'squared', 'squared_hinge', 'logistic'"):
        as_loss("hinge")
    for bad in (None, 3, (1.0, 2.0), Squared):
        with pytest.raises(ValueError, match="loss must be a name or a loss"):
            as_loss(bad)
    for delta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="delta of Huber must be positive and finite"):
            as_loss(Huber(delta))


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_a_loss_of_ones_own_needs_no_more_than_its_registration(z, other, y):
    u = losses.derivative(PseudoHuber(), other, y)
    value, derivative, second, bound, conjugate = compiled(PseudoHuber(), z, u, y)
    assert value + conjugate - u * z >= -1e-12
    assert derivative == pytest.approx((z - y) / math.hypot(1, z - y), rel=1e-12, abs=1e-15)
    assert second <= bound == 1.0


def test_the_example_of_the_docstring_runs():
    text = losses.__doc__.split("smoothed absolute error::")[1].split("    problem = ")[0]
    scope = {}
    exec(textwrap.dedent(text), scope)
    mine = scope["PseudoHuber"]()
    assert not losses.is_classification(mine)
    for function, arguments in [("value", 2), ("derivative", 2), ("second_derivative", 2), ("smoothness", 0)]:
        call = getattr(losses, function)
        assert call(mine, *(0.7, -1.2)[:arguments]) == call(PseudoHuber(), *(0.7, -1.2)[:arguments])
    assert losses.conjugate(mine, 0.6, 2.0) == losses.conjugate(PseudoHuber(), 0.6, 2.0) == pytest.approx(0.2 + 1.2)


class Nameless(NamedTuple):
    """A loss that registers nothing."""


def test_what_is_not_registered_is_named():
    with pytest.raises(TypeError, match=r"Nameless has no `value`; register one with @value.register"):
        losses.value(Nameless(), 0.0, 0.0)
