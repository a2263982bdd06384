"""Of the last bit: what is rounded twice where other implementations round once."""

from __future__ import annotations

import math

from ..attributes import Eltwise, Sum
from ..enums import AlgKind, DataType
from ..primitive_desc import Request
from .defect import BOTH, Defect, operand

_SUMMING = ("convolution", "deconvolution", "matmul")


def rounded_twice(request: Request) -> bool:
    """True where something is added to a product that f32 does not hold: one rounding, or two,
    makes a difference.
    """
    terms = [
        (op.alg, op.alpha, op.beta) for op in request.attributes.post_ops if isinstance(op, Eltwise)
    ]
    if request.kind == "eltwise":
        terms.append(tuple(request.parameters[name] for name in ("alg", "alpha", "beta")))
    return any(
        alg == AlgKind.eltwise_linear and beta != 0 and not _keeps_every_bit(alpha)
        for alg, alpha, beta in terms
    ) or any(
        isinstance(op, Sum) and not _keeps_every_bit(op.scale) for op in request.attributes.post_ops
    )


def _keeps_every_bit(factor: float) -> bool:
    """True where a product with it is exact, as with 0 and powers of two (but below 2**-126)."""
    return abs(math.frexp(factor)[0]) in (0.0, 0.5)


def _without_fma(request: Request) -> bool:
    if operand(request, "dst").library.effective_isa().has_fma:
        return False
    if request.kind in _SUMMING and operand(request, "src").dtype == DataType.f32:
        return False  # sums in no defined order
    return rounded_twice(request)


_TWICE = "the product and the sum are rounded one by one: the last bit differs from that of other implementations, which round once"
_INEXACT = "linear with a shift, or a sum, whose factor is no power of two, so that f32 does not hold each product"
_DIFFERENT = "1.3363229 * x + 0.5486123 differs {}"
_OF_NORMAL, _OF_SUMS = "for 36 % of normal x", "for 28 % of x that are sums of codes"

ROUNDING: tuple[Defect, ...] = (
    *(
        Defect(
            f"{kind} that rounds twice",
            kind,
            implementation,
            rounded_twice,
            _INEXACT,
            _TWICE,
            "the next implementation, or NumPy",
            _DIFFERENT.format(_OF_SUMS if kind in _SUMMING else _OF_NORMAL),
            versions=BOTH,
        )
        for kind, implementation in (
            ("pooling", r"simple_|jit:sse41|jit:avx$"),
            ("resampling", r"simple:|jit:sse41|jit:avx$"),
            ("convolution", r"jit_uni_int8:sse41|jit_uni_int8_1x1:sse41"),
            (
                "deconvolution",
                r"jit_uni_int8:sse41|jit_uni_int8_1x1:sse41|jit_deconvolution:sse41",
            ),
        )
    ),
    *(
        Defect(
            f"{kind} without FMA",
            kind,
            r"",
            _without_fma,
            f"{_INEXACT}; on a CPU without AVX2{' (sources of codes)' if kind in _SUMMING else ''}",
            _TWICE,
            "NumPy",
            _DIFFERENT.format(_OF_SUMS if kind in _SUMMING else _OF_NORMAL),
            versions=BOTH,
        )
        for kind in ("binary", "eltwise", *_SUMMING, "pooling", "resampling")
    ),
)
