"""Rules that give the factors of oneDNN 2 a place among the attributes of oneDNN 3, with every
float operation as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.ops.spec import Array
from ...ir.rule import Refusal, Rule
from ...masks import mask_text
from ..attributes import Binary, Eltwise, PostOp, Scale
from ..types import Plan, Step


def argument_of(plan: Plan, step: Step, scale: Scale) -> tuple[str, int | None]:
    """The argument of a step that an output scale multiplies, and the mask that the scale has
    there; None where it runs along no dimension of the argument."""
    if step.primitive in ("reorder", "softmax"):
        return "src", scale.mask
    if len(scale.values) == 1:
        return "weights", 0
    axis, mask = 1, 1 if step.params.get("group", 1) == 1 else 3
    if step.primitive == "matmul":
        axis, mask = plan.type(step.output).rank - 1, 1 << (plan.type(step.args[1][1]).rank - 1)
    return "weights", mask if scale.mask == 1 << axis else None


def _of_argument(
    scale: Scale, mask: int | None, bias: str | None, fraction: float = 0.0
) -> Scale | Refusal:
    """The output scale of a reorder is the scale of its source, that of a product without a bias
    the scale of its weights.

    `scale`: o; `mask`: what o has there, None where s has no such dimension; `bias`: of the
    product, None where there is none; `fraction`: of the source's zero point, which is a bias too.

    Legal because: both multiply the source, or the accumulator, before anything else does.
    Refuses when: a bias is added to the accumulator first, or o runs along another dimension than
    the output channels.
    """
    if bias is not None or fraction:
        found = bias or f"a zero point {fraction:g} from an integer"
        return Refusal(
            "o*x = s*x, s = o needs an accumulator alone",
            "no bias",
            found,
            "nothing to change: the scale stays a post-op",
        )
    if mask is None:
        return Refusal(
            "o*x = s*x, s = o needs a dimension that s has",
            "one scale, or one for each output channel",
            f"mask {mask_text(scale.mask)}",
            "nothing to change: the scale stays a post-op",
        )
    return Scale(scale.values, mask)


def _factor(scale: Scale, rank: int, operand: Callable[[Array], str]) -> PostOp:
    """Any other output scale is a linear, or a binary with a constant, in front of the other
    post-ops.

    So is the scale of the weights of a depthwise post-op with a bias, behind that.

    `scale`: o, along dimensions of dst; `rank`: how many those are; `operand`: files a constant,
    and returns its name.

    Legal because: it is the definition of eltwise_linear and of binary_mul; a shift of 0 rounds
    nothing.
    Refuses when: never.
    """
    if len(scale.values) == 1:
        return Eltwise("linear", scale.values[0], 0.0)
    return Binary(
        "mul",
        operand(scale.array.reshape([-1 if scale.mask >> axis & 1 else 1 for axis in range(rank)])),
    )


def _unscaled(op: Eltwise) -> tuple[PostOp, ...]:
    """The scale of an eltwise is a linear behind it.

    Legal because: it is the definition of eltwise_linear; a shift of 0 rounds nothing.
    Refuses when: never.
    """
    return replace(op, scale=1.0), Eltwise("linear", op.scale, 0.0)


OF_ARGUMENT = Rule("o*x = s*x, s = o", _of_argument, float="bitwise")
FACTOR = Rule("o*(x + b) = mul(x + b, o)", _factor, float="bitwise")
UNSCALED = Rule("k*f(x) = linear(f(x), k, 0)", _unscaled, float="bitwise")
