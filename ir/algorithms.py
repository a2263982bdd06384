"""oneDNN's eltwise and binary algorithms, a row each: what rules, verifier, cost model and runtimes
need to know of one.

What a row does not say is decided elsewhere, once: the arithmetic in NumPy
(`runtime/kernels/eltwise_math.py`), the number that oneDNN gives it (`onednn/enums.py`), and which
ONNX operators it computes (`ir/ops/`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass


class Cost(enum.Enum):
    """Instructions for each vector."""

    CHEAP = "one or two"
    FEW = "three to five"
    MANY = "a polynomial of 10 to 20, a root, a division or a table"


@dataclass(frozen=True)
class EltwiseAlgorithm:
    """f(x; alpha, beta).

    Attributes:
        doc: the definition.
        cost: how long it takes.
        reach: (alpha, beta, bound) -> a bound on |f(x)| for |x| <= bound; infinity where a NaN or
            an infinity cannot be ruled out.
        transcendental: libraries compute it by polynomials: a quantized result may be 1 off, and
            f32 differs in the last bits.
        tells_zero: 0 and the numbers next to it give NaN, infinity and something else.
        jumps: some number and those next to it give results that are far apart, and finite.
        clips: alpha and beta are bounds, which may be infinite; even a NaN comes out between them.
    """

    doc: str
    cost: Cost
    reach: Callable[[float, float, float], float]
    transcendental: bool = False
    tells_zero: bool = False
    jumps: bool = False
    clips: bool = False


@dataclass(frozen=True)
class BinaryAlgorithm:
    """f(x, y); comparisons give 1 and 0.

    Attributes:
        doc: the definition.
        tells_zero, jumps: see `EltwiseAlgorithm`.
    """

    doc: str
    tells_zero: bool = False
    jumps: bool = False


def _everything(*_: float) -> float:
    return math.inf


def _one(*_: float) -> float:
    return 1.0


def _same(_alpha: float, _beta: float, bound: float) -> float:
    return bound


def _one_more(_alpha: float, _beta: float, bound: float) -> float:
    return bound + 1


def _row(
    doc: str, reach: Callable[[float, float, float], float], cost: Cost = Cost.MANY, **more: bool
) -> EltwiseAlgorithm:
    return EltwiseAlgorithm(
        doc,
        cost,
        lambda alpha, beta, bound: math.inf if math.isinf(bound) else reach(alpha, beta, bound),
        **more,
    )


def _clip(doc: str) -> EltwiseAlgorithm:
    return EltwiseAlgorithm(
        doc, Cost.CHEAP, lambda alpha, beta, _: max(abs(alpha), abs(beta)), clips=True
    )


ELTWISE: Mapping[str, EltwiseAlgorithm] = {
    "abs": _row("|x|", _same, Cost.CHEAP),
    "clip": _clip("min(max(x, alpha), beta)"),
    "clip_v2": _clip("min(max(x, alpha), beta)"),
    "elu": _row(
        "x where x > 0, else alpha * (e**x - 1)",
        lambda alpha, _, bound: bound + abs(alpha),
        transcendental=True,
    ),
    "exp": _row(
        "e**x",
        lambda _alpha, _beta, bound: math.exp(bound) if bound < 80 else math.inf,
        transcendental=True,
    ),
    "gelu_erf": _row("x * Phi(x)", _one_more, transcendental=True),
    "gelu_tanh": _row(
        "0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))", _one_more, transcendental=True
    ),
    "hardsigmoid": _row("min(max(alpha * x + beta, 0), 1)", _one, Cost.FEW),
    "hardswish": _row("x * min(max(alpha * x + beta, 0), 1)", _same, Cost.FEW),
    "linear": _row(
        "alpha * x + beta", lambda alpha, beta, bound: abs(alpha) * bound + abs(beta), Cost.CHEAP
    ),
    "log": _row("ln x", _everything, transcendental=True, tells_zero=True),
    "logistic": _row("1 / (1 + e**-x)", _one, transcendental=True),
    "mish": _row("x * tanh(ln(1 + e**x))", _one_more, transcendental=True),
    "pow": _row("alpha * x**beta", _everything, transcendental=True, tells_zero=True),
    "relu": _row(
        "x where x > 0, else alpha * x",
        lambda alpha, _, bound: max(1.0, abs(alpha)) * bound,
        Cost.CHEAP,
    ),
    "round": _row("the nearest integer, ties to even", _one_more, Cost.CHEAP, jumps=True),
    "soft_relu": _row(
        "ln(1 + e**(alpha * x)) / alpha",
        lambda alpha, _, bound: bound + 1 / abs(alpha) if alpha else math.inf,
        transcendental=True,
    ),
    "sqrt": _row("the square root", _everything, tells_zero=True),
    "square": _row("x * x", lambda _alpha, _beta, bound: bound * bound, Cost.CHEAP),
    "swish": _row("x / (1 + e**(-alpha * x))", _same, transcendental=True),
    "tanh": _row("the hyperbolic tangent", _one, transcendental=True),
}

BINARY: Mapping[str, BinaryAlgorithm] = {
    "add": BinaryAlgorithm("x + y"),
    "sub": BinaryAlgorithm("x - y"),
    "mul": BinaryAlgorithm("x * y"),
    "div": BinaryAlgorithm("x / y"),
    "max": BinaryAlgorithm("the larger"),
    "min": BinaryAlgorithm("the smaller"),
    "ge": BinaryAlgorithm("x >= y", tells_zero=True, jumps=True),
    "gt": BinaryAlgorithm("x > y", tells_zero=True, jumps=True),
    "le": BinaryAlgorithm("x <= y", tells_zero=True, jumps=True),
    "lt": BinaryAlgorithm("x < y", tells_zero=True, jumps=True),
    "eq": BinaryAlgorithm("x == y", tells_zero=True, jumps=True),
    "ne": BinaryAlgorithm("x != y", tells_zero=True, jumps=True),
}
