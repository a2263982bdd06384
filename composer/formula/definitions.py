"""What an operation with another operand is in basic operations, and a quantizer that rounds
first: definitions, and two rules for what needs a guard.

Elementwise functions are in `steps/chain.py`; comparisons, maximum and minimum with codes depend on
what stands in front, see `compared_codes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...ir.rule import Refusal, Rule
from .formula import (
    LARGEST,
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    Store,
    Vec,
    vec,
)

_TURNED = ScaleBy(vec(-1.0))


def with_itself(algorithm: str) -> list[BasicOp] | None:
    """x + x = x*2 and x*x = square(x), for a chain has its value once; None for others."""
    if algorithm == "add":
        return [ScaleBy(vec(2.0))]
    return [EltwiseOp("square")] if algorithm == "mul" else None


def with_constant(
    algorithm: str, c: Vec, operand: Callable[[], str], *, first: bool = True
) -> list[BasicOp]:
    """The chain x and a constant c; the other way round where x is not `first`::

        x - c = x + (-c)                c - x = x*(-1) + c
        x/c = x*(1/c)                   c/x = pow(x, c, -1), [c, ...]/x = pow(x, 1, -1)*[c, ...]
        max(x, c) = clip(x, c, inf)     min(x, c) = clip(x, -inf, c)
        f(x, c) = f(x, t), t = c        otherwise: comparisons; c = 0, for rules divide by factors;
                                        max(x, inf), for an infinite bound is none; NaN

    `operand` files c as a constant of the step. A comparison has the chain first.
    """
    if algorithm == "add":
        return [Shift(c)]
    if algorithm == "sub":
        return [Shift(-c)] if first else [_TURNED, Shift(c)]
    if algorithm == "max" and bool((c < np.inf).all()):
        return [Clip(c, vec(np.inf))]
    if algorithm == "min" and bool((c > -np.inf).all()):
        return [Clip(vec(-np.inf), c)]
    if algorithm == "div" and not first:
        if c.size == 1:
            return [EltwiseOp("pow", float(c[0]), -1.0)]
        return [EltwiseOp("pow", 1.0, -1.0), BinaryOp("mul", operand())]
    if algorithm in ("mul", "div") and c.all():
        factor = c if algorithm == "mul" else 1.0 / c
        if bool((np.abs(factor) <= LARGEST).all()):
            return [ScaleBy(factor)]
    return [BinaryOp(algorithm, operand())]


def with_tensor(algorithm: str, t: Add, *, first: bool = True) -> list[BasicOp] | Refusal:
    """The chain x and a tensor t = k*(q-z), or the other way round; f32 values have k = 1, z = 0::

        t - x = x*(-1) + t              x - k*(q-z) = x + (-k)*(q-z), of codes
        f(x, t) = binary_f(x, t)        otherwise

    Products and quotients are those of `PRODUCT_OF_CODES`. Comparisons, maximum and minimum are
    with f32 values, and have the chain first.
    """
    if algorithm in ("mul", "div"):
        return _product_of_codes(algorithm, t, first)
    if algorithm == "add":
        return [t]
    if algorithm == "sub" and not first:
        return [_TURNED, t]
    if algorithm == "sub" and t.dtype.is_integer:
        return [replace(t, scale=-t.scale)]
    return [BinaryOp(algorithm, t.operand)]


def _product_of_codes(algorithm: str, t: Add, first: bool) -> list[BasicOp] | Refusal:
    """A product with codes, or a quotient of the two, takes the scale of the codes apart.

    Legal because: x*(k*q) = (x*k)*q, x/(k*q) = (x*(1/k))/q, (k*q)/x = (k*x^-1)*q.
    Refuses when: the codes have a zero point: x*(q - z) = x*q - x*z would need x twice.
    """
    if t.zero_point:
        return Refusal(
            "x*(q - z) would need x twice",
            "zero point 0",
            f"{t.zero_point:g}",
            "quantize the operand symmetrically",
        )
    if algorithm == "div" and not first:
        return [EltwiseOp("pow", t.scale, -1.0), BinaryOp("mul", t.operand)]
    scale = vec(t.scale if algorithm == "mul" else 1.0 / t.scale)
    return [*([] if t.scale == 1 else [ScaleBy(scale)]), BinaryOp(algorithm, t.operand)]


PRODUCT_OF_CODES = Rule("x*(k*q) = (x*k)*q", _product_of_codes)


def rounded_first(end: Store) -> list[ChainOp]:
    """A quantizer that adds its zero point behind the rounding, clip(round(x/s) + z, l, h): a store
    by `ROUNDED_FIRST`, or a rounding and a store without a scale.
    """
    if isinstance(_rounded_first(end), Store):
        return [end]
    return [ScaleBy(vec(1.0 / end.scale)), Round(), replace(end, scale=vec(1.0), exact=False)]


def _rounded_first(end: Store) -> Store | Refusal:
    """A quantizer that adds an even zero point behind its rounding is a store.

    Legal because: round half even of x + n is n more than that of x for even n.
    Refuses when: a zero point is not even: ties would part.
    """
    odd = end.zero_point[end.zero_point % 2 != 0]
    if odd.size:
        return Refusal(
            "round(x/s) + z = round(x/s + z) needs an even z",
            "even integers",
            f"{odd[0]:g}",
            "nothing to change: an odd zero point moves ties, and is added behind the rounding",
        )
    return end


ROUNDED_FIRST = Rule("round(x/s) + z = store(x, s, z), z even", _rounded_first, float="ties")
