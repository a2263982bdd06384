"""The homes that are chosen from: of a residual add, the store's scale and its zero point, a factor
or shift at the front, a depthwise convolution.

Each function lists the homes in the order that decides between equal costs, the illegal ones with
their reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.types import DType, TensorType
from ...plan.attributes import Binary, Eltwise, PostOp
from ...plan.targets import Capability, Target
from ..formula.formula import Add, BasicOp, Clip, Store, vec
from .cost import (
    CALL,
    CHEAP,
    WRITE_ALLOCATE,
    Home,
    Saved,
    operand_cost,
    post_op_cost,
)


def chosen_first(homes: Sequence[Home]) -> tuple[Home, ...]:
    """The homes with the cheapest legal one in front; the order of the others stays. At least one
    must be legal.
    """
    best = min((home for home in homes if not home.why_not), key=lambda home: home.cost)
    return (best, *(home for home in homes if home is not best))


def attributes_cost(target: Target, post_ops: Sequence[PostOp], *, dst_scale: bool) -> float:
    """Passes that attributes count for in registers. A destination scale is one multiplication
    more, where the target says so.
    """
    cost = sum(map(post_op_cost, post_ops)) + (
        CHEAP if dst_scale and target.fold_dst_scale else 0.0
    )
    return round(cost, 6)  # equal costs are equal numbers, in whatever order they were added


def adding(op: Add, src: DType, dst: DType, taken: str, capability: Capability) -> tuple[Home, ...]:
    """Homes of a residual add: the sum, which writes where it has read, and the binary post-op.

    Args:
        op: the add.
        src, dst: element types of the source and the destination.
        taken: the operand that the destination's buffer holds already, or ''.
        capability: of the primitive.
    """
    size = dst.numpy.itemsize
    read = op.dtype.numpy.itemsize / size
    many = "s" if size > 1 else ""
    refusals = {
        op.why_not: bool(op.why_not),
        "the skip does not die here": not op.in_place,
        f"{op.dtype.value} does not fill a destination of {size} byte{many} an element": read != 1,
        "the primitive has no sum": "sum" not in capability.post_ops,
        "the primitive's sum reads the destination's type only": op.dtype is not dst
        and not capability.sum_type,
        "the primitive's sum has no zero point": op.zero_point and not capability.sum_zero_point,
        f"the primitive has no sum from {src.value} to {dst.value}": src is not dst
        and not capability.sum_converts,
        f"the destination's buffer holds {taken}": bool(taken),
    }
    why_not = next((why for why, holds in refusals.items() if holds), "")
    binary = read + post_op_cost(Binary("add", op.operand)) + WRITE_ALLOCATE
    return chosen_first([Home("sum", read + CHEAP, why_not), Home("binary", binary)])


def scaling(
    divided: float, other: float, *, why_not: str, refused: str, folds: bool
) -> tuple[Home, ...]:
    """Homes of the store's scale: the destination's, or one that the rest of the primitive takes.

    Args:
        divided: cost of all attributes with a destination scale.
        other: their cost without one.
        why_not: why a destination scale is illegal, or ''.
        refused: why they are illegal without one, or ''.
        folds: without one no post-op is added.
    """
    elsewhere = Home("folded" if folds else "post-op", other, refused)
    return chosen_first([Home("destination scale", divided, why_not), elsewhere])


def shifting(store: Store, capability: Capability, *, bias: bool) -> tuple[Home, ...]:
    """Homes of the store's zero point: the destination's, a shift before or behind the scale, which
    goes on to the bias where it can.

    `bias`: the scale is a destination scale, and the front has a bias.
    """
    why_not = "" if capability.dst_zero_point else "the primitive has none"
    if store.zero_point.size > 1:
        why_not = "there is one for each channel"
    elif not float(store.zero_point[0]).is_integer():
        why_not = f"{store.zero_point[0]:g} is no integer"
    nowhere = "" if bias else "the scale is no destination scale, or there is no bias"
    before = Home("shift before the scale", CHEAP, nowhere)
    return chosen_first(
        [Home("destination zero point", 0.0, why_not), before, Home("shift", CHEAP)]
    )


def saved(op: BasicOp, home: str) -> Saved:
    """An operation that costs nothing in a home, where a post-op would do it, too."""
    vectors = (op.low, op.high) if isinstance(op, Clip) else (getattr(op, "values", vec(1.0)),)
    scalar = all(values.size == 1 for values in vectors)
    return Saved(op.of, home, post_op_cost(Eltwise("linear") if scalar else Binary("mul", "")))


def depthwise(
    between: TensorType, dst: TensorType, target: Target, why_not: str
) -> tuple[Home, ...]:
    """Homes of a depthwise convolution behind a 1x1 convolution: a post-op of that, or a step of
    its own.

    Args:
        between: what the 1x1 convolution gives: a step of its own reads what was written.
        dst: what the depthwise convolution gives.
        target: a library that runs the post-op as the two primitives in turn writes and reads what
            is between, too, and calls once more.
        why_not: why the post-op is illegal, or ''.
    """
    apart = 2.0 * operand_cost(between, dst) + CALL
    return chosen_first(
        [
            Home("post-op", apart + CALL if target.depthwise_is_slow else 0.0, why_not),
            Home("own step", apart),
        ]
    )
