"""The meaning of formulas and of attributes in exact rational arithmetic, for one element of one
channel.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from fractions import Fraction

from fqfuse.composer.formula.formula import (
    Add,
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)
from fqfuse.composer.mapping.composed import Composed, Front
from fqfuse.plan.attributes import Binary, Eltwise, PostOp, Prelu, Sum
from fqfuse.plan.targets import Target

Operands = Mapping[str, Fraction]
"""What each operand holds at the element."""


def entry(values: Vec, channel: int) -> float:
    """The entry of a vector that serves a channel."""
    return float(values[0] if values.size == 1 else values[channel])


def clipped(y: Fraction, low: float, high: float) -> Fraction:
    """min(high, max(low, y)); the bounds may be infinite."""
    if not math.isinf(low):
        y = max(y, Fraction(low))
    return y if math.isinf(high) else min(y, Fraction(high))


def eltwise(algorithm: str, y: Fraction, alpha: float, beta: float) -> Fraction:
    """oneDNN's eltwise algorithms that are rational."""
    a, b = Fraction(alpha), Fraction(beta)
    if algorithm == "pow":  # with a whole exponent
        return a * y ** int(beta)
    gate = clipped(a * y + b, 0, 1)
    return {
        "relu": y if y > 0 else a * y,
        "linear": a * y + b,
        "clip": clipped(y, alpha, beta),
        "round": Fraction(round(y)),
        "abs": abs(y),
        "square": y * y,
        "hardsigmoid": gate,
        "hardswish": y * gate,
    }[algorithm]


def binary(algorithm: str, y: Fraction, operand: Fraction) -> Fraction:
    """oneDNN's binary algorithms."""
    if algorithm == "div":
        return y / operand
    if algorithm in ("gt", "ge", "lt", "le", "eq"):
        return Fraction(getattr(operator, algorithm)(y, operand))
    return {
        "add": y + operand,
        "sub": y - operand,
        "mul": y * operand,
        "max": max(y, operand),
        "min": min(y, operand),
    }[algorithm]


def after(op: ChainOp, y: Fraction, channel: int, operands: Operands) -> Fraction:
    """What a basic operation makes of y; a Store gives the code."""
    if isinstance(op, ScaleBy):
        return y * Fraction(entry(op.values, channel))
    if isinstance(op, Shift):
        return y + Fraction(entry(op.values, channel))
    if isinstance(op, Round):
        return Fraction(round(y))
    if isinstance(op, Clip):
        return clipped(y, entry(op.low, channel), entry(op.high, channel))
    if isinstance(op, EltwiseOp):
        return eltwise(op.algorithm, y, op.alpha, op.beta)
    if isinstance(op, PreluOp):
        return y if y >= 0 else y * operands[op.operand]
    if isinstance(op, BinaryOp):
        return binary(
            op.algorithm, y, Fraction(entry(vec(op.scale), channel)) * operands[op.operand]
        )
    if isinstance(op, Add):
        return y + Fraction(op.scale) * (operands[op.operand] - Fraction(op.zero_point))
    if isinstance(op, CodesOp):
        return binary(
            op.algorithm, y, Fraction(op.scale) * (operands[op.operand] - Fraction(op.zero_point))
        )
    code = round(y / Fraction(entry(op.scale, channel)) + Fraction(entry(op.zero_point, channel)))
    return Fraction(min(op.high, max(op.low, code)))


def after_all(ops: Sequence[ChainOp], y: Fraction, channel: int, operands: Operands) -> Fraction:
    """What a chain makes of y."""
    for op in ops:
        y = after(op, y, channel, operands)
    return y


def front_value(
    scale: Vec | None, bias: Vec | None, accumulator: Fraction, channel: int
) -> Fraction:
    """scale * accumulator + bias."""
    y = accumulator if scale is None else accumulator * Fraction(entry(scale, channel))
    return y if bias is None else y + Fraction(entry(bias, channel))


def composed_value(
    target: Target,
    front: Front,
    composed: Composed,
    accumulator: Fraction,
    channel: int,
    operands: Operands,
) -> Fraction:
    """What a primitive with these attributes stores: the order of plan/attributes.py."""
    constants = {
        name: Fraction(float(array.reshape(-1)[0 if array.size == 1 else channel]))
        for name, array in composed.constants.items()
    }
    for array in composed.constants.values():
        assert array.ndim == front.rank
        assert array.size in (1, array.shape[front.channel_axis])
    y = front_value(composed.scale, composed.bias, accumulator, channel)
    for op in composed.post_ops:
        y = after_post_op(op, y, {**operands, **constants}, channel)
    if not composed.dst.is_integer:
        assert composed.dst_scale is None
        assert composed.dst_zero_point is None
        return y
    assert composed.dst_scale is None or target.capability(front.primitive).dst_scale
    code = round(y / Fraction(composed.dst_scale or 1) + (composed.dst_zero_point or 0))
    low, high = composed.dst.range
    return Fraction(min(high, max(low, code)))


def after_post_op(op: PostOp, y: Fraction, operands: Operands, channel: int = 0) -> Fraction:
    """What a post-op makes of y."""
    if isinstance(op, Eltwise):
        return Fraction(op.scale) * eltwise(op.algorithm, y, op.alpha, op.beta)
    if isinstance(op, Binary):
        return binary(
            op.algorithm,
            y,
            Fraction(entry(vec(op.scale.values), channel) if op.scale else 1)
            * operands[op.operand],
        )
    if isinstance(op, Sum):
        return y + Fraction(op.scale) * (operands[op.operand] - op.zero_point)
    assert isinstance(op, Prelu)
    return y if y >= 0 else y * operands[op.operand]
