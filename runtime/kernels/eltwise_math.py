"""oneDNN's eltwise algorithms on f32 arrays, in place.

relu, abs, sqrt, square, clip, round, linear, hardsigmoid and hardswish are exact: the same operations in the same order as the library's
kernels. The others hold within a few ulp of them (reference: oneDNN's own polynomials differ between instruction sets).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..numerics import F32Array, NumericsProfile, Take, fused_multiply_add

__all__ = ["ALGORITHMS", "TRANSCENDENTAL", "Algorithm", "EltwiseCall", "bound_of"]


@dataclass(frozen=True, slots=True)
class EltwiseCall:
    """Arguments of an algorithm.

    Attributes:
        y: f32, changed in place.
        alpha, beta: the algorithm's parameters.
        take: gives scratch: at most 24 bytes an element.
        profile: the float order.
    """

    y: F32Array
    alpha: np.float32
    beta: np.float32
    take: Take
    profile: NumericsProfile


Algorithm = Callable[[EltwiseCall], None]
"""y = algorithm(y; alpha, beta), in place."""

_F = np.float32
_SMALLEST_FMA_ADDEND = 2.0**-100

TRANSCENDENTAL = frozenset({"tanh", "elu", "soft_relu", "logistic", "exp", "gelu_tanh", "gelu_erf", "swish", "log", "pow", "mish"})
"""Algorithms that oneDNN computes by polynomials: a quantized result may be 1 LSB off."""


def _relu(c: EltwiseCall) -> None:
    if c.alpha == 0:
        np.clip(c.y, _F(0), _F(np.inf), out=c.y)  # clip is the fastest of NumPy's ways to max(y, 0)
        return
    scaled = np.multiply(c.y, c.alpha, out=c.take(c.y.shape, np.float32))
    keep = np.greater(c.y, _F(0), out=c.take(c.y.shape, np.bool_))
    np.copyto(scaled, c.y, where=keep)
    np.copyto(c.y, scaled)


def _linear(c: EltwiseCall) -> None:
    if c.beta == 0:
        np.multiply(c.y, c.alpha, out=c.y)
        if np.signbit(c.beta) or not c.profile.fma:
            return
        np.add(c.y, c.beta, out=c.y)  # -0 + 0 = +0
    elif c.profile.fma:
        # Terms that cancel to a subnormal are multiples of 2**-149 when the addend is not tiny itself: nothing is left to round.
        fused_multiply_add(c.y, 0, float(c.alpha), c.beta, c.y, c.take, subnormal=abs(float(c.beta)) < _SMALLEST_FMA_ADDEND)
    else:
        np.multiply(c.y, c.alpha, out=c.y)
        np.add(c.y, c.beta, out=c.y)


def _clip(c: EltwiseCall) -> None:
    np.clip(c.y, c.alpha, c.beta, out=c.y)


def _abs(c: EltwiseCall) -> None:
    np.abs(c.y, out=c.y)


def _sqrt(c: EltwiseCall) -> None:
    np.sqrt(c.y, out=c.y)


def _square(c: EltwiseCall) -> None:
    np.multiply(c.y, c.y, out=c.y)


def _round(c: EltwiseCall) -> None:
    np.rint(c.y, out=c.y)


def _tanh(c: EltwiseCall) -> None:
    np.tanh(c.y, out=c.y)


def _exp(c: EltwiseCall) -> None:
    np.exp(c.y, out=c.y)


def _log(c: EltwiseCall) -> None:
    np.log(c.y, out=c.y)


def _elu(c: EltwiseCall) -> None:
    below = np.minimum(c.y, _F(0), out=c.take(c.y.shape, np.float32))  # no overflow where the result is not used
    np.expm1(below, out=below)
    np.multiply(below, c.alpha, out=below)
    positive = np.greater(c.y, _F(0), out=c.take(c.y.shape, np.bool_))
    np.copyto(below, c.y, where=positive)
    np.copyto(c.y, below)


def _logistic(c: EltwiseCall) -> None:
    np.negative(c.y, out=c.y)
    np.exp(c.y, out=c.y)
    np.add(c.y, _F(1), out=c.y)
    np.divide(_F(1), c.y, out=c.y)


def _swish(c: EltwiseCall) -> None:
    gate = np.multiply(c.y, c.alpha, out=c.take(c.y.shape, np.float32))
    _logistic(replace(c, y=gate))
    np.multiply(c.y, gate, out=c.y)


def _soft_relu(c: EltwiseCall) -> None:
    # ln(1 + e^t) / alpha with t = alpha*y, as max(t, 0) + log1p(e^-|t|): e^t overflows.
    np.multiply(c.y, c.alpha, out=c.y)
    tail = np.abs(c.y, out=c.take(c.y.shape, np.float32))
    np.negative(tail, out=tail)
    np.exp(tail, out=tail)
    np.log1p(tail, out=tail)
    np.maximum(c.y, _F(0), out=c.y)
    np.add(c.y, tail, out=c.y)
    np.divide(c.y, c.alpha, out=c.y)


def _mish(c: EltwiseCall) -> None:
    gate = c.take(c.y.shape, np.float32)
    np.copyto(gate, c.y)
    _soft_relu(replace(c, y=gate, alpha=_F(1)))
    np.tanh(gate, out=gate)
    np.multiply(c.y, gate, out=c.y)


def _gelu_tanh(c: EltwiseCall) -> None:
    inner = np.multiply(c.y, c.y, out=c.take(c.y.shape, np.float32))
    np.multiply(inner, _F(0.044715), out=inner)
    np.add(inner, _F(1), out=inner)
    np.multiply(inner, c.y, out=inner)
    np.multiply(inner, _F(math.sqrt(2 / math.pi)), out=inner)
    np.tanh(inner, out=inner)
    np.add(inner, _F(1), out=inner)
    np.multiply(c.y, _F(0.5), out=c.y)
    np.multiply(c.y, inner, out=c.y)


_ERF_P = _F(0.3275911)
_ERF_A = tuple(_F(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))


def _gelu_erf(c: EltwiseCall) -> None:
    # erf by Abramowitz and Stegun 7.1.26 (|error| <= 1.5e-7): erf(x) = sign(x) * (1 - poly(t) * exp(-x*x)), t = 1 / (1 + p*|x|).
    x = np.multiply(c.y, _F(1 / math.sqrt(2)), out=c.take(c.y.shape, np.float32))
    t = np.abs(x, out=c.take(c.y.shape, np.float32))
    np.multiply(t, _ERF_P, out=t)
    np.add(t, _F(1), out=t)
    np.divide(_F(1), t, out=t)
    decay = np.multiply(x, x, out=c.take(c.y.shape, np.float32))
    np.negative(decay, out=decay)
    np.exp(decay, out=decay)
    poly = np.multiply(t, _ERF_A[0], out=c.take(c.y.shape, np.float32))
    for coefficient in _ERF_A[1:]:
        np.add(poly, coefficient, out=poly)
        np.multiply(poly, t, out=poly)
    np.multiply(poly, decay, out=poly)
    np.subtract(_F(1), poly, out=poly)
    np.copysign(poly, x, out=poly)
    np.add(poly, _F(1), out=poly)
    np.multiply(c.y, _F(0.5), out=c.y)
    np.multiply(c.y, poly, out=c.y)


def _hardsigmoid(c: EltwiseCall) -> None:
    np.multiply(c.y, c.alpha, out=c.y)
    np.add(c.y, c.beta, out=c.y)
    np.clip(c.y, _F(0), _F(1), out=c.y)


def _hardswish(c: EltwiseCall) -> None:
    gate = c.take(c.y.shape, np.float32)
    np.copyto(gate, c.y)
    _hardsigmoid(replace(c, y=gate))
    np.multiply(c.y, gate, out=c.y)


def _pow(c: EltwiseCall) -> None:
    np.power(c.y, c.beta, out=c.y)
    np.multiply(c.y, c.alpha, out=c.y)


ALGORITHMS: dict[str, Algorithm] = {
    "relu": _relu,
    "linear": _linear,
    "clip": _clip,
    "clip_v2": _clip,
    "abs": _abs,
    "sqrt": _sqrt,
    "square": _square,
    "round": _round,
    "tanh": _tanh,
    "exp": _exp,
    "log": _log,
    "elu": _elu,
    "logistic": _logistic,
    "swish": _swish,
    "soft_relu": _soft_relu,
    "mish": _mish,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "pow": _pow,
}
"""oneDNN's name of an eltwise algorithm -> the function; scratch: at most 24 bytes an element."""


def bound_of(algorithm: str, alpha: float, beta: float, bound: float) -> float:
    """A bound on |algorithm(y)| for |y| <= bound; infinity where a NaN or an infinity cannot be ruled out."""
    if algorithm in ("log", "pow", "sqrt"):
        return math.inf
    if algorithm == "exp":
        return math.exp(bound) if bound < 80 else math.inf
    return {
        "linear": abs(alpha) * bound + abs(beta),
        "clip": max(abs(alpha), abs(beta)),
        "clip_v2": max(abs(alpha), abs(beta)),
        "relu": max(1.0, abs(alpha)) * bound,
        "elu": bound + abs(alpha),
        "square": bound * bound,
        "hardswish": bound,
        "round": bound + 1,
        "swish": bound,
        "soft_relu": bound + 1 / abs(alpha) if alpha else math.inf,
        "tanh": 1.0,
        "logistic": 1.0,
        "hardsigmoid": 1.0,
    }.get(algorithm, bound + 1)
