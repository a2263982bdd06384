"""oneDNN's eltwise algorithms on f32 arrays, in place.

relu, abs, sqrt, square, clip, round, linear, hardsigmoid and hardswish are exact: the same
operations in the same order as the library's kernels. The others hold within a few ulp of them
(reference: oneDNN's own polynomials differ between instruction sets).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..numerics import F32Array, FmaWork, NumericsProfile, fused_multiply_add
from .base import Recorder

__all__ = ["ALGORITHMS", "Algorithm", "EltwiseCall"]


@dataclass(frozen=True, slots=True)
class EltwiseCall:
    """Arguments of an algorithm.

    Attributes:
        y: f32, contiguous, changed in place.
        alpha, beta: the algorithm's parameters.
        record: takes the calls down, gives scratch: at most 24 bytes an element.
        profile: the float order.
        finite: no element of y is a NaN.
        signed_zero: the sign of a zero will be seen (the destination is f32).
        exact: alpha * y + beta is exact in f64 for every y that there can be.
    """

    y: F32Array
    alpha: np.float32
    beta: np.float32
    record: Recorder
    profile: NumericsProfile
    finite: bool
    signed_zero: bool
    exact: bool = False

    def take(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Scratch."""
        return self.record.take(shape, dtype)


Algorithm = Callable[[EltwiseCall], None]
"""Takes down y = algorithm(y; alpha, beta), in place."""

_F = np.float32
_SMALLEST_FMA_ADDEND = 2.0**-100


def _relu(c: EltwiseCall) -> None:
    if c.alpha == 0:
        _record_clip(c, _F(0), _F(np.inf))
        return
    scaled = c.take(c.y.shape, np.float32)
    c.record(np.multiply, c.y, c.alpha, scaled)
    keep = c.take(c.y.shape, np.bool_)
    c.record(np.greater, c.y, _F(0), keep)
    c.record(np.copyto, scaled, c.y, "same_kind", keep)
    c.record(np.copyto, c.y, scaled)


def _linear(c: EltwiseCall) -> None:
    if c.beta == 0:
        c.record(np.multiply, c.y, c.alpha, c.y)
        if not np.signbit(c.beta):
            c.record(np.add, c.y, c.beta, c.y)  # -0 + 0 = +0
    elif c.profile.fma and c.exact:
        wide = c.take(c.y.shape, np.float64)
        c.record(np.copyto, wide, c.y)
        c.record(np.multiply, wide, np.float64(c.alpha), wide)
        c.record(np.add, wide, np.float64(c.beta), wide)
        c.record.copy(c.y, wide)
    elif c.profile.fma:
        # Terms that cancel to a subnormal are multiples of 2**-149 when the addend is not tiny
        # itself: nothing is left to round.
        work = FmaWork(c.take(c.y.shape, np.float64), c.take(c.y.shape, np.int64))
        c.record(
            fused_multiply_add,
            c.y,
            float(c.alpha),
            c.beta,
            c.y,
            work,
            abs(float(c.beta)) < _SMALLEST_FMA_ADDEND,
        )
    else:
        c.record(np.multiply, c.y, c.alpha, c.y)
        c.record(np.add, c.y, c.beta, c.y)


def _clip(c: EltwiseCall) -> None:
    _record_clip(c, c.alpha, c.beta)


def _record_clip(c: EltwiseCall, low: np.float32, high: np.float32) -> None:
    """min(max(y, low), high), where a NaN becomes `low`, and -0 becomes +0 for low = 0: the
    instruction's second operand.
    """
    if not c.finite:
        c.record(np.fmax, c.y, low, c.y)
    c.record(c.y.clip, low, high, c.y)  # the fastest of NumPy's ways, but it keeps NaN and -0
    if c.signed_zero and low == 0:
        c.record(np.add, c.y, _F(0), c.y)


def _abs(c: EltwiseCall) -> None:
    c.record(np.abs, c.y, c.y)


def _sqrt(c: EltwiseCall) -> None:
    c.record(np.sqrt, c.y, c.y)


def _square(c: EltwiseCall) -> None:
    c.record(np.multiply, c.y, c.y, c.y)


def _round(c: EltwiseCall) -> None:
    c.record(np.rint, c.y, c.y)


def _tanh(c: EltwiseCall) -> None:
    c.record(np.tanh, c.y, c.y)


def _exp(c: EltwiseCall) -> None:
    c.record(np.exp, c.y, c.y)


def _log(c: EltwiseCall) -> None:
    c.record(np.log, c.y, c.y)


def _elu(c: EltwiseCall) -> None:
    below = c.take(c.y.shape, np.float32)
    c.record(np.minimum, c.y, _F(0), out=below)  # no overflow where the result is not used
    c.record(np.expm1, below, below)
    c.record(np.multiply, below, c.alpha, below)
    positive = c.take(c.y.shape, np.bool_)
    c.record(np.greater, c.y, _F(0), positive)
    c.record(np.copyto, below, c.y, "same_kind", positive)
    c.record(np.copyto, c.y, below)


def _logistic(c: EltwiseCall) -> None:
    c.record(np.negative, c.y, c.y)
    c.record(np.exp, c.y, c.y)
    c.record(np.add, c.y, _F(1), c.y)
    c.record(np.divide, _F(1), c.y, c.y)


def _swish(c: EltwiseCall) -> None:
    gate = c.take(c.y.shape, np.float32)
    c.record(np.multiply, c.y, c.alpha, gate)
    _logistic(replace(c, y=gate))
    c.record(np.multiply, c.y, gate, c.y)


def _soft_relu(c: EltwiseCall) -> None:
    # ln(1 + e^t) / alpha with t = alpha*y, as max(t, 0) + log1p(e^-|t|): e^t overflows.
    c.record(np.multiply, c.y, c.alpha, c.y)
    tail = c.take(c.y.shape, np.float32)
    c.record(np.abs, c.y, tail)
    c.record(np.negative, tail, tail)
    c.record(np.exp, tail, tail)
    c.record(np.log1p, tail, tail)
    c.record(np.maximum, c.y, _F(0), out=c.y)
    c.record(np.add, c.y, tail, c.y)
    c.record(np.divide, c.y, c.alpha, c.y)


def _mish(c: EltwiseCall) -> None:
    gate = c.take(c.y.shape, np.float32)
    c.record(np.copyto, gate, c.y)
    _soft_relu(replace(c, y=gate, alpha=_F(1)))
    c.record(np.tanh, gate, gate)
    c.record(np.multiply, c.y, gate, c.y)


def _gelu_tanh(c: EltwiseCall) -> None:
    inner = c.take(c.y.shape, np.float32)
    c.record(np.multiply, c.y, c.y, inner)
    c.record(np.multiply, inner, _F(0.044715), inner)
    c.record(np.add, inner, _F(1), inner)
    c.record(np.multiply, inner, c.y, inner)
    c.record(np.multiply, inner, _F(math.sqrt(2 / math.pi)), inner)
    c.record(np.tanh, inner, inner)
    c.record(np.add, inner, _F(1), inner)
    c.record(np.multiply, c.y, _F(0.5), c.y)
    c.record(np.multiply, c.y, inner, c.y)


_ERF_P = _F(0.3275911)
_ERF_A = tuple(_F(a) for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))


def _gelu_erf(c: EltwiseCall) -> None:
    # erf by Abramowitz and Stegun 7.1.26 (|error| <= 1.5e-7): erf(x) = sign(x) * (1 - poly(t) *
    # exp(-x*x)), t = 1 / (1 + p*|x|).
    x = c.take(c.y.shape, np.float32)
    c.record(np.multiply, c.y, _F(1 / math.sqrt(2)), x)
    t = c.take(c.y.shape, np.float32)
    c.record(np.abs, x, t)
    c.record(np.multiply, t, _ERF_P, t)
    c.record(np.add, t, _F(1), t)
    c.record(np.divide, _F(1), t, t)
    decay = c.take(c.y.shape, np.float32)
    c.record(np.multiply, x, x, decay)
    c.record(np.negative, decay, decay)
    c.record(np.exp, decay, decay)
    poly = c.take(c.y.shape, np.float32)
    c.record(np.multiply, t, _ERF_A[0], poly)
    for coefficient in _ERF_A[1:]:
        c.record(np.add, poly, coefficient, poly)
        c.record(np.multiply, poly, t, poly)
    c.record(np.multiply, poly, decay, poly)
    c.record(np.subtract, _F(1), poly, poly)
    c.record(np.copysign, poly, x, poly)
    c.record(np.add, poly, _F(1), poly)
    c.record(np.multiply, c.y, _F(0.5), c.y)
    c.record(np.multiply, c.y, poly, c.y)


def _hardsigmoid(c: EltwiseCall) -> None:
    c.record(np.multiply, c.y, c.alpha, c.y)
    c.record(np.add, c.y, c.beta, c.y)
    _record_clip(c, _F(0), _F(1))


def _hardswish(c: EltwiseCall) -> None:
    gate = c.take(c.y.shape, np.float32)
    c.record(np.copyto, gate, c.y)
    _hardsigmoid(replace(c, y=gate))
    c.record(np.multiply, c.y, gate, c.y)


def _pow(c: EltwiseCall) -> None:
    c.record(np.power, c.y, c.beta, c.y)
    c.record(np.multiply, c.y, c.alpha, c.y)


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
