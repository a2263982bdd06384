"""oneDNN's eltwise algorithms on f32 arrays, in place.

relu, abs, sqrt, square, clip, round, linear, hardsigmoid and hardswish are exact: the same
operations in the same order as the library's kernels. The others hold within a few ulp of them
(reference: oneDNN's own polynomials differ between instruction sets).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InternalError
from ...ir.algorithms import ELTWISE
from ..numerics import F32Array, NumericsProfile, fused_multiply_add
from .base import Block, Recorder, record_choice


@dataclass(frozen=True, slots=True)
class EltwisePass:
    """y = scale * algorithm(y; alpha, beta).

    Attributes:
        algorithm: oneDNN's name.
        alpha, beta: the algorithm's parameters.
        scale: of the result.
        profile: the float order.
        finite: no element of y is a NaN.
        signed_zero: the sign of a zero will be seen (the destination is f32).
        exact: alpha * y + beta is exact in f64 for every y that there can be.
    """

    algorithm: str
    alpha: np.float32
    beta: np.float32
    scale: np.float32
    profile: NumericsProfile
    finite: bool
    signed_zero: bool
    exact: bool = False

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise InternalError(f"no eltwise algorithm {self.algorithm}")

    @property
    def plain_relu(self) -> bool:
        """True for max(y, 0)."""
        return self.algorithm == "relu" and bool(self.alpha == 0) and bool(self.scale == 1)

    def bound(self, magnitude: float) -> float:
        """A bound on the result for |y| <= magnitude."""
        return abs(float(self.scale)) * ELTWISE[self.algorithm].reach(
            float(self.alpha), float(self.beta), magnitude
        )

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = scale * algorithm(y); y is contiguous."""
        ALGORITHMS[self.algorithm](self, y, block.record)
        if self.scale != 1:
            block.record(np.multiply, y, self.scale, y)


Algorithm = Callable[[EltwisePass, F32Array, Recorder], None]
"""Takes down y = algorithm(y; alpha, beta), in place, with at most 24 bytes of scratch an
element.
"""

_F = np.float32
_SMALLEST_FMA_ADDEND = 2.0**-100


def _relu(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    if op.alpha == 0:
        _record_clip(op, _F(0), _F(np.inf), y, record)
        return
    scaled = record.take(y.shape, np.float32)
    record(np.multiply, y, op.alpha, scaled)
    record_choice(np.greater, y, scaled, record)


def _linear(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    if op.beta == 0:
        record(np.multiply, y, op.alpha, y)
        if not np.signbit(op.beta):
            record(np.add, y, op.beta, y)  # -0 + 0 = +0
    elif op.profile.fma and op.exact:
        wide = record.take(y.shape, np.float64)
        record(np.copyto, wide, y)
        record(np.multiply, wide, np.float64(op.alpha), wide)
        record(np.add, wide, np.float64(op.beta), wide)
        record.copy(y, wide)
    elif op.profile.fma:
        # Terms that cancel to a subnormal are multiples of 2**-149 when the addend is not tiny
        # itself: nothing is left to round.
        wide, bits = record.take(y.shape, np.float64), record.take(y.shape, np.int64)
        subnormal = abs(float(op.beta)) < _SMALLEST_FMA_ADDEND
        record(fused_multiply_add, y, float(op.alpha), op.beta, y, wide, bits, subnormal)
    else:
        record(np.multiply, y, op.alpha, y)
        record(np.add, y, op.beta, y)


def _clip(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    _record_clip(op, op.alpha, op.beta, y, record)


def _record_clip(
    op: EltwisePass, low: np.float32, high: np.float32, y: F32Array, record: Recorder
) -> None:
    """min(max(y, low), high), where a NaN becomes `low`, and -0 becomes +0 for low = 0: the
    instruction's second operand.
    """
    if not op.finite:
        record(np.fmax, y, low, y)
    record(y.clip, low, high, y)  # the fastest of NumPy's ways, but it keeps NaN and -0
    if op.signed_zero and low == 0:
        record(np.add, y, _F(0), y)


def _elu(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    below = record.take(y.shape, np.float32)
    record(np.minimum, y, _F(0), out=below)  # no overflow where the result is not used
    record(np.expm1, below, below)
    record(np.multiply, below, op.alpha, below)
    record_choice(np.greater, y, below, record)


def _each(*functions: np.ufunc) -> Algorithm:
    """Takes down the functions of one argument, one after the other."""

    def algorithm(_: EltwisePass, y: F32Array, record: Recorder) -> None:
        for function in functions:
            record(function, y, y)

    return algorithm


def _gated(gate: Algorithm) -> Algorithm:
    """Takes down y = y * gate(y)."""

    def algorithm(op: EltwisePass, y: F32Array, record: Recorder) -> None:
        copy = record.take(y.shape, np.float32)
        record(np.copyto, copy, y)
        gate(op, copy, record)
        record(np.multiply, y, copy, y)

    return algorithm


def _square(_: EltwisePass, y: F32Array, record: Recorder) -> None:
    record(np.multiply, y, y, y)


def _logistic(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    _each(np.negative, np.exp)(op, y, record)
    record(np.add, y, _F(1), y)
    record(np.divide, _F(1), y, y)


def _swish(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    gate = record.take(y.shape, np.float32)
    record(np.multiply, y, op.alpha, gate)
    _logistic(op, gate, record)
    record(np.multiply, y, gate, y)


def _soft_relu(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    # ln(1 + e^t) / alpha with t = alpha*y, as max(t, 0) + log1p(e^-|t|): e^t overflows.
    record(np.multiply, y, op.alpha, y)
    tail = record.take(y.shape, np.float32)
    record(np.abs, y, tail)
    _each(np.negative, np.exp, np.log1p)(op, tail, record)
    record(np.maximum, y, _F(0), out=y)
    record(np.add, y, tail, y)
    record(np.divide, y, op.alpha, y)


def _mish_gate(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    _soft_relu(replace(op, alpha=_F(1)), y, record)
    record(np.tanh, y, y)


def _gelu_tanh(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    inner = record.take(y.shape, np.float32)
    record(np.multiply, y, y, inner)
    record(np.multiply, inner, _F(0.044715), inner)
    record(np.add, inner, _F(1), inner)
    record(np.multiply, inner, y, inner)
    record(np.multiply, inner, _F(math.sqrt(2 / math.pi)), inner)
    record(np.tanh, inner, inner)
    record(np.add, inner, _F(1), inner)
    record(np.multiply, y, _F(0.5), y)
    record(np.multiply, y, inner, y)


_ERF_P = _F(0.3275911)
_ERF_A = tuple(_F(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))


def _gelu_erf(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    # erf by Abramowitz and Stegun 7.1.26 (|error| <= 1.5e-7): erf(x) = sign(x) * (1 - poly(t) *
    # exp(-x*x)), t = 1 / (1 + p*|x|).
    x = record.take(y.shape, np.float32)
    record(np.multiply, y, _F(1 / math.sqrt(2)), x)
    t = record.take(y.shape, np.float32)
    record(np.abs, x, t)
    record(np.multiply, t, _ERF_P, t)
    record(np.add, t, _F(1), t)
    record(np.divide, _F(1), t, t)
    decay = record.take(y.shape, np.float32)
    record(np.multiply, x, x, decay)
    _each(np.negative, np.exp)(op, decay, record)
    poly = record.take(y.shape, np.float32)
    record(np.multiply, t, _ERF_A[0], poly)
    for coefficient in _ERF_A[1:]:
        record(np.add, poly, coefficient, poly)
        record(np.multiply, poly, t, poly)
    record(np.multiply, poly, decay, poly)
    record(np.subtract, _F(1), poly, poly)
    record(np.copysign, poly, x, poly)
    record(np.add, poly, _F(1), poly)
    record(np.multiply, y, _F(0.5), y)
    record(np.multiply, y, poly, y)


def _hardsigmoid(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    record(np.multiply, y, op.alpha, y)
    record(np.add, y, op.beta, y)
    _record_clip(op, _F(0), _F(1), y, record)


def _pow(op: EltwisePass, y: F32Array, record: Recorder) -> None:
    record(np.power, y, op.beta, y)
    record(np.multiply, y, op.alpha, y)


ALGORITHMS: dict[str, Algorithm] = {
    "relu": _relu,
    "linear": _linear,
    "clip": _clip,
    "clip_v2": _clip,
    "abs": _each(np.abs),
    "sqrt": _each(np.sqrt),
    "square": _square,
    "round": _each(np.rint),
    "tanh": _each(np.tanh),
    "exp": _each(np.exp),
    "log": _each(np.log),
    "elu": _elu,
    "logistic": _logistic,
    "swish": _swish,
    "soft_relu": _soft_relu,
    "mish": _gated(_mish_gate),
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _gated(_hardsigmoid),
    "pow": _pow,
}
"""oneDNN's name of an eltwise algorithm -> the function."""
