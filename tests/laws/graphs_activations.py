"""Activations, whole and decomposed; plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.types import DType

_ACTIVATIONS: dict[str, dict[str, object]] = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.125},
    "Elu": {"alpha": 0.75},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.5},
    "HardSwish": {},
    "Swish": {"alpha": 1.0},
    "Mish": {},
    "Gelu": {},
    "Abs": {},
    "Exp": {},
    "Round": {},
    "Neg": {},
}


def _activation(op: str, attrs: dict[str, object]) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
        y = n.qdq(
            n.op(op, n.conv(x, 4, scale=2**-8, bias=[0.5, -0.5, 0.25, 0]), **attrs), 2**-6, 60
        )
        return n.conv(y, 2, 1), n.qdq(n.op(op, x, **attrs), 2**-6, 60)

    build.__name__ = f"activation_{op.lower()}"
    case(build)


for _op, _attrs in _ACTIVATIONS.items():
    _activation(_op, _attrs)


@case
def activation_clip_and_prelu(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
    a = n.qdq(n.op("Clip", n.conv(x, 4, scale=2**-8), 0.0, 1.5), 2**-7)
    b = n.qdq(
        n.op("PRelu", n.conv(x, 4, scale=2**-8), np.array([0.25, 0.5, -0.5, 1]).reshape(4, 1, 1)),
        2**-6,
        50,
    )
    return n.conv(a, 2, 1), n.conv(b, 2, 1), n.op("Clip", n.conv(a, 2, 1), -0.5, "")


def _gelu_erf(n: Net, x: Value) -> Value:
    return n.op(
        "Mul", n.op("Mul", x, n.op("Add", n.op("Erf", n.op("Div", x, math.sqrt(2))), 1.0)), 0.5
    )


def _gelu_tanh(n: Net, x: Value) -> Value:
    cube = n.op("Mul", n.op("Pow", x, 3.0), 0.044715)
    inner = n.op("Tanh", n.op("Mul", n.op("Add", x, cube), math.sqrt(2 / math.pi)))
    return n.op("Mul", n.op("Mul", x, 0.5), n.op("Add", inner, 1.0))


def _hard_swish(n: Net, x: Value) -> Value:
    return n.op("Div", n.op("Mul", x, n.op("Clip", n.op("Add", x, 3.0), 0.0, 6.0)), 6.0)


_DECOMPOSED: dict[str, Callable[[Net, Value], Value]] = {
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda n, x: n.op("Mul", x, n.op("Sigmoid", x)),
    "hardswish": _hard_swish,
    "hardsigmoid": lambda n, x: n.op("Mul", n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x),
    "mish": lambda n, x: n.op("Mul", x, n.op("Tanh", n.op("Softplus", x))),
}


def _decomposed(name: str, expand: Callable[[Net, Value], Value]) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
        return n.qdq(expand(n, n.conv(x, 2, scale=2**-8)), 2**-6, 30), expand(n, n.input(("N", 4)))

    build.__name__ = f"decomposed_{name}"
    case(build)


for _name, _expand in _DECOMPOSED.items():
    _decomposed(_name, _expand)


@case
def decomposed_activation_read_elsewhere(n: Net) -> tuple[Value, ...]:
    x = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128), 2, scale=2**-8)
    gate = n.op("Sigmoid", x)
    return n.qdq(n.op("Mul", x, gate), 2**-6, 30), gate


@case
def activation_quantized_at_every_step(n: Net) -> Value:
    x = n.qdq(
        n.op("MatMul", n.qdq(n.input(("N", 8)), 2**-6, 128), n.weights((8, 4), 2**-8)), 2**-5, 128
    )
    erf = n.qdq(n.op("Erf", n.qdq(n.op("Div", x, math.sqrt(2)), 2**-5, 120)), 2**-7, 128)
    product = n.qdq(n.op("Mul", x, n.qdq(n.op("Add", erf, 1.0), 2**-7)), 2**-5, 10)
    return n.op("MatMul", n.qdq(n.op("Mul", product, 0.5), 2**-6, 10), n.weights((4, 4), 2**-8))


@case
def tabulated_in_two_sweeps(n: Net) -> tuple[Value, ...]:
    a = n.qdq(n.input(("N", 8)), -(2**-7))
    b = n.qdq(a, 2**-7)
    return a, b, n.qdq(b, -(2**-7))


@case
def tabulated_with_a_constant_of_more_dimensions(n: Net) -> Value:
    x = n.qdq(n.input((3, 4)), 2**-5, 128)
    return n.qdq(n.op("Erf", n.op("Mul", x, np.full((1, 1, 1), 0.5))), 2**-7, 128)


@case
def squeeze_and_excitation(n: Net) -> Value:
    x = n.qdq(
        n.op("HardSwish", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4, scale=2**-8)), 2**-6, 20
    )
    gate = n.qdq(n.op("GlobalAveragePool", x), 2**-6, 20)
    gate = n.qdq(n.op("Relu", n.conv(gate, 2, 1, scale=2**-8)), 2**-6)
    gate = n.qdq(n.op("HardSigmoid", n.conv(gate, 4, 1, scale=2**-8), alpha=1 / 6, beta=0.5), 2**-8)
    return n.conv(n.qdq(n.op("Mul", x, gate), 2**-6, 20), 2, 1, scale=2**-8)


@case
def float_arithmetic(n: Net) -> tuple[Value, ...]:
    a, b = n.input(("N", 4)), n.input(("N", 4))
    y = n.op("Relu", n.op("Sub", n.op("Mul", n.op("Add", a, b), 0.5), [1, 2, 3, 4]))
    return (
        y,
        n.op("Max", n.op("Min", a, b), 0.0),
        n.op("Div", n.op("Abs", a), n.op("Exp", b)),
        n.op("Add", n.op("Neg", a), a),
    )


@case
def shapes_computed_from_shapes(n: Net) -> tuple[Value, ...]:
    """As exporters write Flatten: it is known at compile time where the sizes are, and the types
    with it.
    """
    x = n.input((2, 3, 4))
    first = n.op(
        "Unsqueeze",
        n.op("Gather", n.op("Shape", x), n.graph.add_constant("at", np.asarray(0))),
        n.ints(0),
    )
    y = n.op("Reshape", x, n.op("Concat", first, n.ints(-1), axis=0))
    return n.op("Relu", y), n.qdq(
        n.op("MatMul", n.qdq(y, 2**-6, 128), n.weights((12, 3))), 2**-5, 128
    )


@case
def constant_arithmetic(n: Net) -> tuple[Value, ...]:
    c = n.op(
        "Reshape",
        n.op("Mul", n.const(np.arange(6.0)), 0.5),
        n.op("Concat", n.ints(1), n.ints(6), axis=0),
    )
    x = n.input(("N", 6))
    return (
        n.op("Add", n.op("Identity", x), c),
        n.op("Cast", n.op("Identity", x), to=DType.F32),
        n.op("Relu", c),
    )
