"""Rules that give an output scale of oneDNN 2 a place among the attributes of oneDNN 3, with every float operation as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...ir.ops.spec import Array
from ...ir.rule import Equation, Refusal
from ..attributes import Binary, Eltwise, PostOp, Scale

__all__ = ["OUTPUT_SCALE", "UNSCALED", "OutputScale", "OutputScaleRule", "ScaleHome", "UnscaledRule"]


@dataclass(frozen=True)
class OutputScale:
    """An output scale, and what it multiplies.

    Attributes:
        scale: its values, and the dimension of dst that they stand along.
        copied: it multiplies the source itself, for the primitive is a reorder.
        biased: it multiplies an accumulator with a bias in it.
        mask: of scales along the output channels of the weights.
        rank: dimensions of the destination.
        operand: files an array as a constant of the step, and returns its name.
    """

    scale: Scale
    copied: bool
    biased: bool
    mask: int
    rank: int
    operand: Callable[[Array], str]


@dataclass(frozen=True)
class ScaleHome:
    """What an output scale became: scales of arguments, or a post-op in front of the others."""

    scales: Mapping[str, Scale] = field(default_factory=dict)
    post_ops: tuple[PostOp, ...] = ()


class OutputScaleRule(Equation[Callable[[OutputScale], "ScaleHome | Refusal | None"]]):
    """One equation about an output scale o."""


class UnscaledRule(Equation[Callable[[PostOp], "tuple[PostOp, ...] | Refusal | None"]]):
    """The equation of an eltwise with a scale."""


def _of_a_source(given: OutputScale) -> ScaleHome | Refusal | None:
    """The output scale of a reorder is its source's scale.

    Legal because: both multiply the source, before anything else does.
    Refuses when: there is an accumulator.
    """
    if not given.copied:
        return Refusal("o*x = s*x, s = o is about a reorder", "a source that is copied", "an accumulator")
    return ScaleHome({"src": given.scale})


def _of_weights(given: OutputScale) -> ScaleHome | Refusal | None:
    """The output scale of a product without a bias is the scale of its weights.

    Legal because: both multiply the accumulator, before anything else does.
    Refuses when: there is a bias in the accumulator, which the scale of weights does not multiply.
    """
    if given.copied:
        return None
    if given.biased:
        return Refusal("o*acc = w*acc, w = o needs an accumulator alone", "no bias", "a bias")
    return ScaleHome({"weights": Scale(given.scale.values, given.mask if len(given.scale.values) > 1 else 0)})


def _of_all(given: OutputScale) -> ScaleHome | Refusal | None:
    """One output scale is a linear in front of the other post-ops.

    Legal because: it is eltwise_linear's definition; a shift of 0 rounds nothing.
    Refuses when: there is one scale for each channel.
    """
    if len(given.scale.values) > 1:
        return Refusal("o*(acc + b) = linear(acc + b, o, 0) needs one o", "one for the tensor", "one for each channel")
    return ScaleHome(post_ops=(Eltwise("linear", given.scale.values[0], 0.0),))


def _of_channels(given: OutputScale) -> ScaleHome | Refusal | None:
    """Output scales for each channel are a binary with a constant in front of the other post-ops.

    Legal because: it is binary_mul's definition.
    Refuses when: never.
    """
    axis = given.scale.mask.bit_length() - 1
    shape = [-1 if number == axis else 1 for number in range(given.rank)]
    return ScaleHome(post_ops=(Binary("mul", given.operand(given.scale.array.reshape(shape))),))


def _unscaled(op: PostOp) -> tuple[PostOp, ...] | Refusal | None:
    """The scale of an eltwise is a linear behind it.

    Legal because: it is eltwise_linear's definition; a shift of 0 rounds nothing.
    Refuses when: the scale is 1.
    """
    if not isinstance(op, Eltwise):
        return None
    if op.scale == 1:
        return Refusal("k*f(x) = linear(f(x), k, 0) is about a factor", "another scale than 1", "1")
    return replace(op, scale=1.0), Eltwise("linear", op.scale, 0.0)


OUTPUT_SCALE: tuple[OutputScaleRule, ...] = (
    OutputScaleRule("o*x = s*x, s = o", _of_a_source, float="bitwise"),
    OutputScaleRule("o*acc = w*acc, w = o", _of_weights, float="bitwise"),
    OutputScaleRule("o*(acc + b) = linear(acc + b, o, 0)", _of_all, float="bitwise"),
    OutputScaleRule("[o, ...]*(acc + b) = binary_mul(acc + b, [o, ...])", _of_channels, float="bitwise"),
)

UNSCALED = UnscaledRule("k*f(x) = linear(f(x), k, 0)", _unscaled, float="bitwise")
