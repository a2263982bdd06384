"""Rules that give each operation that is left in a chain a post-op.

A rule looks at the start of what is left, and says how much of it becomes which post-ops. The first
rule of `PLACING` that fires is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ...ir.rule import Equation, Refusal
from ...ir.types import DType
from ...plan.attributes import Binary, Eltwise, PostOp, Prelu, Scale, Sum
from ...plan.targets import Target
from ..formula.algebra import is_normal
from ..formula.exact_zeros import exact_zeros
from ..formula.formula import (
    Add,
    BasicOp,
    BinaryOp,
    Clip,
    EltwiseOp,
    PreluOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)
from .composed import Front
from .legacy_eltwise import distinct_eltwise

__all__ = ["PLACING", "Placed", "PlacingRule", "Slot", "place"]

Constants = dict[str, npt.NDArray[np.float32]]

_FLT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Slot:
    """Where a post-op goes.

    Attributes:
        target: the rules of post-ops.
        dst: element type of the destination.
        last: the post-op in front, or None.
        operand: files a vector as a constant of the step, given how many post-ops of this operation
            stand in front, and returns its name.
    """

    target: Target
    dst: DType
    last: PostOp | None
    operand: Callable[[Vec, int], str]


@dataclass(frozen=True)
class Placed:
    """What became of the operations at the start of what is left.

    Attributes:
        taken: how many they are.
        post_ops: what they became.
        instead: the first post-op takes the place of the one in front.
    """

    taken: int
    post_ops: tuple[PostOp, ...]
    instead: bool = False


class PlacingRule(Equation[Callable[[Sequence[BasicOp], Slot], "Placed | Refusal | None"]]):
    """One equation about the start of what is left of a chain."""


def place(
    target: Target, front: Front, dst: DType, ops: Sequence[BasicOp]
) -> tuple[tuple[PostOp, ...], Constants] | Refusal:
    """The post-ops of a chain behind `front`, and the constants that they name; or why oneDNN 2
    cannot have them all.
    """
    post_ops: list[PostOp] = []
    constants: Constants = {}

    def operand(values: Vec, behind: int = 0) -> str:
        name = f"{front.step}/post_op{len(post_ops) + behind}"
        shape = [1] * front.rank
        if values.size > 1:
            shape[front.channel_axis] = values.size
        constants[name] = values.astype(np.float32).reshape(shape)
        return name

    left = exact_zeros(ops, told=front.zero_shows and dst is DType.F32)  # another store rounds
    start = 0
    while start < len(left):
        slot = Slot(target, dst, post_ops[-1] if post_ops else None, operand)
        placed = next(
            found
            for rule in PLACING
            if isinstance(found := rule.apply(left[start : start + 2], slot), Placed)
        )
        if placed.instead:
            post_ops.pop()
        post_ops += placed.post_ops
        start += placed.taken
    if not target.legacy_eltwise:
        return tuple(post_ops), constants
    distinct = distinct_eltwise(post_ops, front.step, front.rank, constants)
    return distinct if isinstance(distinct, Refusal) else (distinct, constants)


# -- scales and shifts -----------------------------------------------------------------------------


def _eltwise_scale(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A factor behind an eltwise joins its scale.

    Legal because: an eltwise of oneDNN 2 multiplies its result by a scale; (k*f(x))*A = (k*A)*f(x).
    Refuses when: the target's eltwise has no scale, there is one A for each channel, no eltwise
    stands in front, a shift behind the factor would need a post-op anyway, or f32 does not hold
    k*A.
    """
    op, last = ops[0], slot.last
    if not isinstance(op, ScaleBy):
        return None
    if not slot.target.eltwise_scale or not isinstance(last, Eltwise):
        found = "an eltwise without one" if isinstance(last, Eltwise) else "no eltwise"
        return Refusal(
            "f(x)*A is one eltwise where that has a scale",
            "an eltwise with a scale in front",
            found,
        )
    if op.values.size != 1 or _scalar_shift(ops) is not None:
        found = "one for each channel" if op.values.size != 1 else "a shift behind the factor"
        return Refusal("f(x)*A is one eltwise where A stands alone", "one factor", found)
    scale = last.scale * float(op.values[0])
    if not is_normal(vec(scale)):
        return Refusal(
            "f(x)*A is one eltwise where f32 holds its scale", "a normal f32", f"{scale:g}"
        )
    return Placed(1, (replace(last, scale=_f32(scale)),), instead=True)


def _scalar_shift(ops: Sequence[BasicOp]) -> float | None:
    """The shift behind the first operation, where it is one number for the tensor."""
    return (
        float(ops[1].values[0])
        if len(ops) > 1 and isinstance(ops[1], Shift) and ops[1].values.size == 1
        else None
    )


def _linear(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A factor and the shift behind it are one eltwise.

    Legal because: it is eltwise_linear's definition; an implementation may round once, or behind
    each operation.
    Refuses when: the factor or the shift has an entry for each channel.
    """
    op = ops[0]
    if not isinstance(op, ScaleBy) or len(ops) < 2 or not isinstance(ops[1], Shift):
        return None
    shift = _scalar_shift(ops)
    if op.values.size != 1 or shift is None:
        return _one_number("x*A + B = linear(x, A, B) needs one A and one B")
    return Placed(2, (Eltwise("linear", _f32(float(op.values[0])), _f32(shift)),))


def _one_number(reason: str) -> Refusal:
    return Refusal(reason, "one for the tensor", "one for each channel")


def _linear_scale(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A factor alone is an eltwise.

    Legal because: it is eltwise_linear's definition.
    Refuses when: there is one factor for each channel.
    """
    op = ops[0]
    if not isinstance(op, ScaleBy):
        return None
    if op.values.size != 1:
        return _one_number("x*A = linear(x, A, 0) needs one A")
    return Placed(1, (Eltwise("linear", _f32(float(op.values[0]))),))


def _linear_shift(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A shift alone is an eltwise.

    Legal because: it is eltwise_linear's definition; a factor of 1 rounds nothing.
    Refuses when: there is one shift for each channel.
    """
    op = ops[0]
    if not isinstance(op, Shift):
        return None
    if op.values.size != 1:
        return _one_number("x + B = linear(x, 1, B) needs one B")
    return Placed(1, (Eltwise("linear", 1.0, _f32(float(op.values[0]))),))


def _binary_mul(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A factor for each channel is a binary with a constant.

    Legal because: it is binary_mul's definition; the constant has the destination's rank, and 1
    where it is broadcast.
    Refuses when: never.
    """
    op = ops[0]
    return (
        Placed(1, (Binary("mul", slot.operand(op.values, 0)),)) if isinstance(op, ScaleBy) else None
    )


def _binary_add(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A shift for each channel is a binary with a constant.

    Legal because: it is binary_add's definition.
    Refuses when: never.
    """
    op = ops[0]
    return (
        Placed(1, (Binary("add", slot.operand(op.values, 0)),)) if isinstance(op, Shift) else None
    )


# -- clips -----------------------------------------------------------------------------------------


def _no_clip(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A clip without bounds goes.

    Legal because: every number lies between them.
    Refuses when: there is a bound.
    """
    op = ops[0]
    if not isinstance(op, Clip):
        return None
    if bool(np.isfinite(op.low).any() or np.isfinite(op.high).any()):
        return Refusal("clip(x, -inf, inf) = x", "no bound", f"{op.low[0]:g} and {op.high[0]:g}")
    return Placed(1, ())


def _relu(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A clip to what is not negative is a relu.

    Legal because: it is relu's definition.
    Refuses when: the bounds are others.
    """
    op = ops[0]
    if not isinstance(op, Clip):
        return None
    if op.low.size != 1 or op.high.size != 1 or op.low[0] != 0 or op.high[0] != np.inf:
        return Refusal(
            "clip(x, 0, inf) = relu(x)", "0 and inf", f"{op.low[0]:g} and {op.high[0]:g}"
        )
    return Placed(1, (Eltwise("relu"),))


def _eltwise_clip(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A clip is an eltwise.

    Legal because: it is eltwise_clip's definition; an absent bound is the largest f32, so that an
    infinity becomes that.
    Refuses when: a bound has an entry for each channel.
    """
    op = ops[0]
    if not isinstance(op, Clip):
        return None
    if op.low.size != 1 or op.high.size != 1:
        return _one_number("clip(x, l, h) = eltwise_clip(x, l, h) needs one l and one h")
    low, high = float(op.low[0]), float(op.high[0])
    return Placed(1, (Eltwise("clip", _f32(max(low, -_FLT_MAX)), _f32(min(high, _FLT_MAX))),))


def _binary_clip(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A clip with bounds for each channel is a maximum and a minimum with constants, either of
    which may be absent.

    Legal because: clip(x, l, h) = min(max(x, l), h).
    Refuses when: never.
    """
    op = ops[0]
    if not isinstance(op, Clip):
        return None
    found: list[PostOp] = []
    if bool((op.low > -np.inf).any()):
        found.append(Binary("max", slot.operand(np.maximum(op.low, -_FLT_MAX), 0)))
    if bool((op.high < np.inf).any()):
        found.append(Binary("min", slot.operand(np.minimum(op.high, _FLT_MAX), len(found))))
    return Placed(1, tuple(found))


# -- what is a post-op already ---------------------------------------------------------------------


def _round(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A rounding is an eltwise.

    Legal because: both round half to even.
    Refuses when: never.
    """
    return Placed(1, (Eltwise("round"),)) if isinstance(ops[0], Round) else None


def _hardsigmoid(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A hardsigmoid is a linear and a clip for oneDNN 2.6, which lacks it.

    Legal because: it is hardsigmoid's definition.
    Refuses when: the target has the algorithm.
    """
    op = ops[0]
    if not isinstance(op, EltwiseOp) or op.algorithm != "hardsigmoid":
        return None
    if not slot.target.legacy_eltwise:
        return Refusal(
            "hardsigmoid is spelled out where the target lacks it", "oneDNN 2.6", slot.target.name
        )
    return Placed(1, (Eltwise("linear", _f32(op.alpha), _f32(op.beta)), Eltwise("clip", 0.0, 1.0)))


def _eltwise(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """An elementwise function is an eltwise, by oneDNN's names.

    Legal because: `EltwiseOp` has oneDNN's definitions.
    Refuses when: never.
    """
    op = ops[0]
    return (
        Placed(1, (Eltwise(op.algorithm, _f32(op.alpha), _f32(op.beta)),))
        if isinstance(op, EltwiseOp)
        else None
    )


def _prelu(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """A prelu is a prelu post-op.

    Legal because: `PreluOp` has oneDNN's definition.
    Refuses when: never.
    """
    op = ops[0]
    return Placed(1, (Prelu(op.operand, op.mask),)) if isinstance(op, PreluOp) else None


def _binary(ops: Sequence[BasicOp], _: Slot) -> Placed | Refusal | None:
    """An operation with another tensor is a binary, by oneDNN's names.

    Legal because: `BinaryOp` has oneDNN's definitions.
    Refuses when: never.
    """
    op = ops[0]
    if not isinstance(op, BinaryOp):
        return None
    return Placed(
        1, (Binary(op.algorithm, op.operand, None if op.scale == 1 else Scale((_f32(op.scale),))),)
    )


def _sum(ops: Sequence[BasicOp], slot: Slot) -> Placed | Refusal | None:
    """A residual add whose operand the destination may overwrite is a sum, which reads the operand
    as its own type.

    Legal because: it is the sum's definition: dst = x + scale*(dst - zero point).
    Refuses when: the zero point is no integer, see the rule that moves it in front.
    """
    op = ops[0]
    if not isinstance(op, Add):
        return None
    if not float(op.zero_point).is_integer():
        return Refusal(
            "x + k*(dst-z) = sum(x, k, z) needs an integer z", "an integer", f"{op.zero_point:g}"
        )
    return Placed(
        1,
        (
            Sum(
                op.operand,
                _f32(op.scale),
                int(op.zero_point),
                None if op.dtype is slot.dst else op.dtype,
            ),
        ),
    )


PLACING: tuple[PlacingRule, ...] = (
    PlacingRule("k*f(x)*A = (k*A)*f(x)", _eltwise_scale),
    PlacingRule("x*A + B = linear(x, A, B)", _linear),
    PlacingRule("x*A = linear(x, A, 0)", _linear_scale),
    PlacingRule("x*[a, b, ...] = binary_mul(x, [a, b, ...])", _binary_mul),
    PlacingRule("x + B = linear(x, 1, B)", _linear_shift),
    PlacingRule("x + [a, b, ...] = binary_add(x, [a, b, ...])", _binary_add),
    PlacingRule("clip(x, -inf, inf) = x", _no_clip),
    PlacingRule("clip(x, 0, inf) = relu(x)", _relu),
    PlacingRule("clip(x, l, h) = eltwise_clip(x, l, h)", _eltwise_clip),
    PlacingRule(
        "clip(x, [l, ...], [h, ...]) = binary_min(binary_max(x, [l, ...]), [h, ...])", _binary_clip
    ),
    PlacingRule("round(x) = eltwise_round(x)", _round),
    PlacingRule("hardsigmoid(x, a, b) = clip(linear(x, a, b), 0, 1)", _hardsigmoid),
    PlacingRule("f(x, a, b) = eltwise_f(x, a, b)", _eltwise),
    PlacingRule("prelu(x, slope) = prelu post-op(x, slope)", _prelu),
    PlacingRule("f(x, k*t) = binary_f(x, k*t)", _binary),
    PlacingRule("x + k*(dst-z) = sum(x, k, z)", _sum),
)


def _f32(value: float) -> float:
    return float(np.float32(value))
