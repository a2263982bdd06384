"""Rules that fold a factor or shift which has reached the front of a chain into the front: weights,
argument scales, bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...ir.rule import Equation, Refusal
from ..formula.algebra import is_normal
from ..formula.formula import BasicOp, ScaleBy, Shift, vec
from .composed import Front

__all__ = ["FOLDING", "FoldingRule"]


class FoldingRule(Equation[Callable[[Front, BasicOp], "Front | Refusal | None"]]):
    """One equation about the front, scale * accumulator + bias, and the operation behind it."""


def _factor(front: Front, op: BasicOp) -> Front | Refusal | None:
    """A factor goes into the front's scale, and into its bias.

    Legal because: multiplication distributes over addition.
    Refuses when: the front has no scale, or one for the tensor against a factor for each channel;
    it is a maximum or minimum and the factor is not positive; it holds a bias that is computed at
    run time, which the factor would have to pass; f32 does not hold the product.
    """
    if not isinstance(op, ScaleBy):
        return None
    if front.scale is None:
        return Refusal("the front has no place for a factor", "a scale", "none")
    if op.values.size > 1 and not front.per_channel:
        return Refusal(
            "the front has one scale for the tensor", "one factor", f"{op.values.size} factors"
        )
    if front.positive and bool((op.values <= 0).any()):
        return Refusal(
            "a maximum or minimum is the other one of negated operands",
            "positive factors",
            f"{op.values.min():g}",
        )
    if front.bias is None and front.primitive != "binary":
        return Refusal("the bias is computed at run time", "a constant bias", "a computed one")
    scale = front.scale * op.values
    if not is_normal(scale):
        return Refusal(
            "f32 does not hold the product of the factors", "a normal f32", f"{abs(scale).max():g}"
        )
    return replace(
        front, scale=vec(scale), bias=None if front.bias is None else vec(front.bias * op.values)
    )


def _shift(front: Front, op: BasicOp) -> Front | Refusal | None:
    """A shift goes into the front's bias.

    Legal because: addition is associative.
    Refuses when: the front has no place for a constant bias.
    """
    if not isinstance(op, Shift):
        return None
    if front.bias is None:
        return Refusal(
            "the front has no place for a shift", "a constant bias", "none, or a computed one"
        )
    return replace(front, bias=vec(front.bias + op.values))


FOLDING: tuple[FoldingRule, ...] = (
    FoldingRule("(a*x + b)*c = (a*c)*x + b*c", _factor),
    FoldingRule("(a*x + b) + c = a*x + (b + c)", _shift),
)
