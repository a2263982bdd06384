"""Rows of activation functions."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from ..types import Shape
from .rows import A, Call, number, row, text, unary
from .spec import Attrs, Effort, OpSpec, Trait
from .special import erf

_APPROXIMATIONS = ("none", "tanh")

_E, _S = Trait.ELEMENTWISE, Trait.SCALE_COMMUTING


def _constant(x: A, value: float) -> A:
    # In the array's own type: a Python float would do the same for f32, a 0-d f64 array would not.
    return np.asarray(value, x.dtype)


def _sigmoid(x: A) -> A:
    y: A = 1 / (1 + np.exp(-x))  # exp overflows to inf far below 0, and 1/inf is the right limit
    return y


def _softplus(x: A) -> A:
    return np.logaddexp(x, _constant(x, 0))


def _hard_sigmoid(x: A, alpha: float, beta: float) -> A:
    y: A = np.clip(x * _constant(x, alpha) + _constant(x, beta), _constant(x, 0), _constant(x, 1))
    return y


def _leaky_relu(x: A, attrs: Attrs) -> A:
    return np.where(x >= 0, x, x * _constant(x, number(attrs, "alpha")))


def _elu(x: A, attrs: Attrs) -> A:
    return np.where(x >= 0, x, np.expm1(np.minimum(x, 0)) * _constant(x, number(attrs, "alpha")))


def _selu(x: A, attrs: Attrs) -> A:
    return _elu(x, attrs) * _constant(x, number(attrs, "gamma"))


def _celu(x: A, attrs: Attrs) -> A:
    alpha = _constant(x, number(attrs, "alpha"))
    y: A = np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))
    return y


def _gelu(x: A, attrs: Attrs) -> A:
    if text(attrs, "approximate", _APPROXIMATIONS) == "tanh":
        inner = x * (_constant(x, math.sqrt(2 / math.pi)) * (1 + _constant(x, 0.044715) * x * x))
        twice: A = 1 + np.tanh(inner)
    else:
        twice = 1 + erf(x * _constant(x, math.sqrt(0.5)))
    return x * _constant(x, 0.5) * twice


def _gelu_shape(call: Call) -> Shape:
    text(call.attrs, "approximate", _APPROXIMATIONS)
    return call.shape(0)


def _swish(x: A, attrs: Attrs) -> A:
    return x * _sigmoid(x * _constant(x, number(attrs, "alpha")))


def _mish(x: A) -> A:
    return x * np.tanh(_softplus(x))


def _prelu(x: A, slope: A) -> A:
    return np.where(x >= 0, x, x * slope)


def _prelu_shape(call: Call) -> Shape:
    call.broadcasts(1, call.shape(0))
    return call.shape(0)


_activation = partial(unary, wide=1)


ACTIVATION: tuple[OpSpec, ...] = (
    _activation(
        "Relu",
        "max(x, 0).",
        lambda x: np.maximum(x, _constant(x, 0)),
        traits={_S},
        eltwise="relu",
        letter="N",
    ),
    _activation(
        "LeakyRelu",
        "x where x >= 0, else alpha * x.",
        _leaky_relu,
        attrs={"alpha": 0.01},
        traits={_S},
        eltwise="relu",
        parameters=("alpha",),
        effort=Effort.LOOPS,
    ),
    _activation(
        "Elu",
        "x where x >= 0, else alpha * (e**x - 1).",
        _elu,
        attrs={"alpha": 1.0},
        eltwise="elu",
        parameters=("alpha",),
        effort=Effort.LOOPS,
    ),
    _activation(
        "Selu",
        "gamma * elu(x, alpha).",
        _selu,
        attrs={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        effort=Effort.LOOPS,
    ),
    _activation(
        "Celu",
        "max(x, 0) + min(0, alpha * (e**(x/alpha) - 1)).",
        _celu,
        attrs={"alpha": 1.0},
        effort=Effort.LOOPS,
    ),
    _activation("Sigmoid", "1 / (1 + e**-x).", _sigmoid, eltwise="logistic"),
    _activation("Tanh", "Hyperbolic tangent.", np.tanh, eltwise="tanh"),
    _activation("Erf", "The error function.", erf, effort=Effort.SERIES),
    _activation(
        "Softplus",
        "log(1 + e**x).",
        _softplus,
        eltwise="soft_relu",
        parameters=(1.0,),
        effort=Effort.FUNCTIONS,
    ),
    _activation("Softsign", "x / (1 + |x|).", lambda x: x / (1 + np.abs(x))),
    _activation(
        "HardSigmoid",
        "alpha * x + beta, held between 0 and 1.",
        lambda x, attrs: _hard_sigmoid(x, number(attrs, "alpha"), number(attrs, "beta")),
        attrs={"alpha": 0.2, "beta": 0.5},
        eltwise="hardsigmoid",
        parameters=("alpha", "beta"),
    ),
    _activation(
        "HardSwish",
        "x * hardsigmoid(x; 1/6, 1/2).",
        lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
        eltwise="hardswish",
        parameters=(1 / 6, 0.5),
    ),
    _activation(
        "Swish",
        "x * sigmoid(alpha * x).",
        _swish,
        attrs={"alpha": 1.0},
        eltwise="swish",
        parameters=("alpha",),
    ),
    _activation("Mish", "x * tanh(log(1 + e**x)).", _mish, eltwise="mish", effort=Effort.FUNCTIONS),
    _activation(
        "Gelu",
        'x * Phi(x), exactly or by the tanh formula (approximate="tanh").',
        _gelu,
        attrs={"approximate": "none"},
        shape=_gelu_shape,
        eltwise="gelu_erf",  # gelu_tanh when approximate is "tanh"
        effort=Effort.SERIES,
    ),
    row(
        "PRelu",
        "x where x >= 0, else slope * x; slope broadcasts to x.",
        "x:N slope:N",
        shape=_prelu_shape,
        compute=_prelu,
        traits={_E, _S, Trait.POST_OP},
        primitive="prelu",
        effort=Effort.LOOPS,
    ),
)
