"""Rules that write a residual add as a binary addition of plain codes, on their grid.

A rule looks at the end of a chain and says what replaces how much of it; the first that is legal is
taken. Whether the add is a sum instead is chosen by the homes (`homes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from ...ir.rule import Refusal, Rule
from .algebra import is_normal
from .formula import (
    Add,
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    EltwiseOp,
    Round,
    ScaleBy,
    Shift,
    Vec,
    vec,
)


@dataclass(frozen=True, eq=False)
class Written:
    """The end of a chain written otherwise: how many operations go, and what comes.

    `error`: of an approximation, by how much the value behind may differ at most; None: by nothing.
    """

    replaced: int
    ops: tuple[BasicOp, ...]
    error: Vec | None = field(default=None, repr=False)

    def credited(self, gone: Sequence[ChainOp]) -> tuple[BasicOp, ...]:
        """The operations with the parts of those that they replace: up to a binary operation they do the work
        of all, from there on that of the last.
        """
        every, found = reduce(or_, (op.of for op in gone)), list[BasicOp]()
        for op in self.ops:
            every = gone[-1].of if isinstance(op, BinaryOp | Add) else every
            found.append(op if op.of else replace(op, of=every))
        return tuple(found)


def zero_point_in_front(add: Add) -> tuple[Shift, Add]:
    """x + k*(q-z) = (x - k*z) + k*q."""
    return Shift(vec(-add.scale * add.zero_point)), replace(add, zero_point=0.0)


AddingRule = Rule[Callable[[Sequence[ChainOp]], Written | Refusal | None]]


def _reciprocal(equation: str, add: Add) -> ScaleBy | Refusal:
    """The factor 1/k that brings a chain to the grid of the codes, where f32 holds it."""
    if is_normal(vec(add.scale)):
        return ScaleBy(vec(1.0 / add.scale))
    return Refusal(
        f"{equation} needs 1/k in f32",
        "a normal f32",
        f"k {add.scale:g}",
        "calibrate the other input of the addition again: its scale is too small for f32",
    )


def _add_of_codes(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A residual add is written as a binary addition of plain codes, on the grid of the codes.

    Legal because: k*(q - z) = ((0/k - z) + q)*k, and multiplication distributes over addition. The
    scale and shift in front, and the scale behind, find homes of their own.
    Refuses when: f32 does not hold 1/k.
    """
    add = chain[-1]
    if not isinstance(add, Add):
        return None
    factor = _reciprocal("x + k*(q-z) = ((x/k - z) + q)*k", add)
    if isinstance(factor, Refusal):
        return factor
    back = ScaleBy(vec(add.scale))
    return Written(1, (factor, Shift(vec(-add.zero_point)), BinaryOp("add", add.operand), back))


def _add_in_units(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A residual add behind decoded codes is written in units of the operand's codes, so that codes
    of 0 and 0 add up to exactly 0.

    Legal because: (x + b)*a + k*(q - z) = ((x + b)*(a/k) - z + q)*k; each linear gives exactly 0
    for a code of 0, while x*(a/k) + (b*a/k - z) would round the shift. As eltwise operations, for a
    scale and a shift would be moved and joined.
    Refuses when: what stands in front decodes no codes, or does so with one factor or shift for
    each channel.
    """
    add = chain[-1]
    if not isinstance(add, Add):
        return None
    found = _decoding(chain[:-1])
    if isinstance(found, Refusal):
        return found
    shift, factor, length = found
    if shift.size != 1 or factor.size != 1:
        reason = "an eltwise_linear has one factor and one shift"
        return Refusal(
            reason,
            "one for the tensor",
            "one for each channel",
            "quantize both operands of the addition per tensor",
        )
    linear = ((1.0, float(shift[0])), (float(factor[0]) / add.scale, -add.zero_point))
    front = (EltwiseOp("linear", *numbers) for numbers in linear if numbers != (1.0, 0.0))
    back = ScaleBy(vec(add.scale))
    return Written(1 + length, (*front, BinaryOp("add", add.operand), back))


def _add_in_units_of_channels(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """The same where codes are decoded with one factor or shift for each channel: the operand's
    zero point goes behind the addition.

    Legal because: x + k*(q - z) = ((x/k + q) - z)*k. With no shift between the factor and the
    addition, `EXACT_ZERO` finds the one in front of the factor again; the one behind is an eltwise
    operation, for a shift would be moved in front.
    Refuses when: what stands in front decodes no codes, or f32 does not hold 1/k.
    """
    add = chain[-1]
    if not isinstance(add, Add):
        return None
    found = _decoding(chain[:-1])
    if isinstance(found, Refusal):
        return found
    factor = _reciprocal("x + k*(q-z) = ((x/k + q) - z)*k", add)
    if isinstance(factor, Refusal):
        return factor
    zero_point = () if add.zero_point == 0 else (EltwiseOp("linear", 1.0, -add.zero_point),)
    back = ScaleBy(vec(add.scale))
    return Written(1, (factor, BinaryOp("add", add.operand), *zero_point, back))


def _decoding(chain: Sequence[ChainOp]) -> tuple[Vec, Vec, int] | Refusal:
    """What decodes codes at the end of the chain, and further factors, as (x + shift)*factor, by so
    many operations: codes that the step reads, has rounded, or compares with others.

    Behind anything else than the front, factors alone are such a decoding: nothing must be joined
    with what stands in front of them.
    """
    factor, end = vec(1.0), len(chain)
    while end and isinstance(scale := chain[end - 1], ScaleBy):
        factor, end = factor * scale.values, end - 1
    codes = chain[end - 2] if end > 1 else None
    are_codes = (
        codes is None
        or isinstance(codes, Round | Clip)
        or (isinstance(codes, BinaryOp) and codes.algorithm in ("max", "min"))
    )
    if end and isinstance(shift := chain[end - 1], Shift):
        if are_codes and end < len(chain):
            return shift.values, factor, len(chain) - end + 1
    elif end:
        return vec(0.0), factor, len(chain) - end
    return Refusal(
        "codes of 0 add up to 0 where both operands are decoded codes",
        "a shift and a scale behind codes",
        "something else",
        "quantize both operands of the addition",
    )


ADD_OF_CODES: AddingRule = Rule("x + k*(q-z) = ((x*(1/k) - z) + q)*k", _add_of_codes)

ADDING: tuple[AddingRule, ...] = (
    Rule("(x+b)*a + k*(q-z) = (((x+b)*(a/k) - z) + q)*k", _add_in_units),
    Rule("(x+b)*[a, ...] + k*(q-z) = (((x+b)*[a/k, ...] + q) - z)*k", _add_in_units_of_channels),
    ADD_OF_CODES,
)
