"""Rules that write an operation by others: residual adds, stores inside a chain, and what a store
at its end leaves to the post-ops.

A rule looks at the end of a chain and says what replaces how much of it. Which of several forms an
operation gets is chosen by the homes that they lead to (`homes.py`), or by what the target has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ir.rule import Equation, Refusal
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
    Store,
    Vec,
    vec,
)

__all__ = [
    "ADD_IN_UNITS",
    "ADD_IN_UNITS_OF_CHANNELS",
    "ADD_OF_CODES",
    "ADD_SCALED",
    "FACTOR_INTO_STORE",
    "FACTOR_OF_STORE",
    "NARROW_STORE",
    "SHIFT_OF_STORE",
    "STORE_INSIDE",
    "SUM_OF_CODES",
    "WRITING",
    "ZERO_POINT_OF_STORE",
    "WritingRule",
    "Written",
    "first_written",
]


@dataclass(frozen=True, eq=False)
class Written:
    """The end of a chain written otherwise: how many operations go, and what comes."""

    replaced: int
    ops: tuple[ChainOp, ...]

    @property
    def basic(self) -> tuple[BasicOp, ...]:
        """What comes, where that is basic operations alone."""
        return tuple(op for op in self.ops if isinstance(op, BasicOp))


class WritingRule(Equation[Callable[[Sequence[ChainOp]], "Written | Refusal | None"]]):
    """One equation about the end of a chain."""


# -- residual adds ---------------------------------------------------------------------------------


def _add_of_codes(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A residual add is written as a binary addition of plain codes, on the grid of the codes.

    Legal because: k*(q - z) = ((0/k - z) + q)*k, and multiplication distributes over addition. The
    scale and shift in front, and the scale behind, find homes of their own.
    Refuses when: f32 does not hold 1/k.
    """
    op = chain[-1]
    if not isinstance(op, Add):
        return None
    if not is_normal(vec(op.scale)):
        return Refusal(
            "x + k*(q-z) = ((x/k - z) + q)*k needs 1/k in f32", "a normal f32", f"k {op.scale:g}"
        )
    return Written(
        1,
        (
            ScaleBy(vec(1.0 / op.scale)),
            Shift(vec(-op.zero_point)),
            BinaryOp("add", op.operand),
            ScaleBy(vec(op.scale)),
        ),
    )


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
    decoding = _decoding(chain[:-1])
    if isinstance(decoding, Refusal):
        return decoding
    if decoding.shift.size != 1 or decoding.factor.size != 1:
        return Refusal(
            "an eltwise_linear has one factor and one shift",
            "one for the tensor",
            "one for each channel",
        )
    linear = (
        (1.0, float(decoding.shift[0])),
        (float(decoding.factor[0]) / add.scale, -add.zero_point),
    )
    front = (
        EltwiseOp("linear", alpha, beta) for alpha, beta in linear if (alpha, beta) != (1.0, 0.0)
    )
    return Written(
        1 + decoding.length, (*front, BinaryOp("add", add.operand), ScaleBy(vec(add.scale)))
    )


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
    decoding = _decoding(chain[:-1])
    if isinstance(decoding, Refusal):
        return decoding
    if not is_normal(vec(add.scale)):
        return Refusal(
            "x + k*(q-z) = ((x/k + q) - z)*k needs 1/k in f32", "a normal f32", f"k {add.scale:g}"
        )
    zero_point = () if add.zero_point == 0 else (EltwiseOp("linear", 1.0, -add.zero_point),)
    return Written(
        1,
        (
            ScaleBy(vec(1.0 / add.scale)),
            BinaryOp("add", add.operand),
            *zero_point,
            ScaleBy(vec(add.scale)),
        ),
    )


@dataclass(frozen=True, eq=False)
class _Decoding:
    """(x + shift)*factor, by so many operations."""

    shift: Vec
    factor: Vec
    length: int


def _decoding(chain: Sequence[ChainOp]) -> _Decoding | Refusal:
    """What decodes codes at the end of the chain, and further factors: codes that the step reads,
    has rounded, or compares with others.

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
            return _Decoding(shift.values, factor, len(chain) - end + 1)
    elif end:
        return _Decoding(vec(0.0), factor, len(chain) - end)
    return Refusal(
        "codes of 0 add up to 0 where both operands are decoded codes",
        "a shift and a scale behind codes",
        "something else",
    )


def _add_scaled(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A residual add is written as a binary addition whose operand has a scale, behind a shift.

    Legal because: k*(q - z) = k*q - k*z.
    Refuses when: never; it is taken on a target that scales operands.
    """
    op = chain[-1]
    if not isinstance(op, Add):
        return None
    return Written(
        1, (Shift(vec(-op.scale * op.zero_point)), BinaryOp("add", op.operand, op.scale))
    )


def _sum_of_codes(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """The zero point of a residual sum goes in front of it, where it is no integer.

    Legal because: k*(q - z) = k*q - k*z; a sum has a zero point that is an integer.
    Refuses when: the zero point is an integer, which the sum takes.
    """
    op = chain[-1]
    if not isinstance(op, Add):
        return None
    if float(op.zero_point).is_integer():
        return Refusal("the sum takes the zero point", "no integer", f"{op.zero_point:g}")
    return Written(1, (Shift(vec(-op.scale * op.zero_point)), replace(op, zero_point=0.0)))


# -- stores ----------------------------------------------------------------------------------------


def _store_inside(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A store that the chain goes on behind is written out; codes that are known to be codes
    already need no rounding and no clip.

    Legal because: it is the store's definition.
    Refuses when: never.
    """
    op = chain[-1]
    if not isinstance(op, Store):
        return None
    rest: tuple[BasicOp, ...] = (
        () if op.exact else (Round(), Clip(vec(float(op.low)), vec(float(op.high))))
    )
    return Written(1, (ScaleBy(vec(1.0 / op.scale)), Shift(op.zero_point), *rest))


def _factor_of_store(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """The scale of a store becomes a factor in front of it, for a destination without a scale.

    Legal because: x/s = x*(1/s).
    Refuses when: never.
    """
    op = chain[-1]
    if not isinstance(op, Store):
        return None
    return Written(1, (ScaleBy(vec(1.0 / op.scale)), replace(op, scale=vec(1.0))))


def _zero_point_of_store(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """The zero point of a store becomes a shift in front of its scale, towards the bias.

    Legal because: x/s + z = (x + z*s)/s.
    Refuses when: never.
    """
    op = chain[-1]
    if not isinstance(op, Store):
        return None
    return Written(1, (Shift(vec(op.zero_point * op.scale)), replace(op, zero_point=vec(0.0))))


def _shift_of_store(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """The zero point of a store without a scale becomes a shift.

    Legal because: it is the same addition, in front of the same rounding.
    Refuses when: the store has a scale.
    """
    op = chain[-1]
    if not isinstance(op, Store):
        return None
    if bool((op.scale != 1).any()):
        return Refusal(
            "store(x, 1, z) = store(x + z, 1, 0) needs s = 1", "scale 1", f"scale {op.scale[0]:g}"
        )
    return Written(1, (Shift(op.zero_point), replace(op, zero_point=vec(0.0))))


def _narrow_store(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A store that keeps to fewer codes than its type has becomes a clip and a store of all codes.

    Legal because: quantization is non-decreasing for s > 0, so that it clips alike in front and
    behind.
    Refuses when: a scale is not positive: a NaN, which is the lowest code, would become the
    highest.
    """
    op = chain[-1]
    if not isinstance(op, Store):
        return None
    if not bool((op.scale > 0).all()):
        return Refusal(
            "a clip in front of the store needs s > 0", "s > 0", f"smallest s {op.scale.min():g}"
        )
    ends = ((end - op.zero_point) * op.scale for end in (op.low, op.high))
    low, high = op.dtype.range
    return Written(1, (Clip(*(vec(end) for end in ends)), replace(op, low=low, high=high)))


def _factor_into_store(chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """A factor in front of a store joins its scale.

    Legal because: (x*A)/s = x/(s/A).
    Refuses when: there is one A or one s for each channel, for a destination has one scale, or f32
    does not hold s/A.
    """
    if len(chain) < 2 or not (
        isinstance(scale := chain[-2], ScaleBy) and isinstance(op := chain[-1], Store)
    ):
        return None
    many = max(scale.values.size, op.scale.size)
    if many > 1:
        return Refusal(
            "store(x*A, s) = store(x, s/A) needs one A and one s", "one for the tensor", str(many)
        )
    quotient = op.scale / scale.values
    if not is_normal(quotient):
        return Refusal(
            "store(x*A, s) = store(x, s/A) needs s/A in f32", "a normal f32", f"{quotient[0]:g}"
        )
    return Written(2, (replace(op, scale=vec(quotient)),))


ADD_OF_CODES = WritingRule("x + k*(q-z) = ((x*(1/k) - z) + q)*k", _add_of_codes)
ADD_IN_UNITS = WritingRule("(x+b)*a + k*(q-z) = (((x+b)*(a/k) - z) + q)*k", _add_in_units)
ADD_IN_UNITS_OF_CHANNELS = WritingRule(
    "(x+b)*[a, ...] + k*(q-z) = (((x+b)*[a/k, ...] + q) - z)*k", _add_in_units_of_channels
)
ADD_SCALED = WritingRule("x + k*(q-z) = (x - k*z) + k*q", _add_scaled)
SUM_OF_CODES = WritingRule("x + k*(dst-z) = (x - k*z) + k*dst, z no integer", _sum_of_codes)
STORE_INSIDE = WritingRule(
    "store(x, s, z, l, h) = clip(round(x*(1/s) + z), l, h)", _store_inside, float="ties"
)
FACTOR_OF_STORE = WritingRule(
    "store(x, s, z) = store(x*(1/s), 1, z)", _factor_of_store, float="ties"
)
ZERO_POINT_OF_STORE = WritingRule(
    "store(x, s, z) = store(x + z*s, s, 0)", _zero_point_of_store, float="ties"
)
SHIFT_OF_STORE = WritingRule(
    "store(x, 1, z) = store(x + z, 1, 0)", _shift_of_store, float="bitwise"
)
NARROW_STORE = WritingRule(
    "store(x, l, h) = store(clip(x, (l-z)*s, (h-z)*s)), s > 0", _narrow_store, float="bitwise"
)
FACTOR_INTO_STORE = WritingRule("store(x*A, s) = store(x, s/A)", _factor_into_store, float="ties")

WRITING: tuple[WritingRule, ...] = (
    ADD_OF_CODES,
    ADD_IN_UNITS,
    ADD_IN_UNITS_OF_CHANNELS,
    ADD_SCALED,
    SUM_OF_CODES,
    STORE_INSIDE,
    FACTOR_OF_STORE,
    ZERO_POINT_OF_STORE,
    SHIFT_OF_STORE,
    NARROW_STORE,
    FACTOR_INTO_STORE,
)


def first_written(
    forms: Sequence[WritingRule], chain: Sequence[ChainOp]
) -> Written | Refusal | None:
    """What the first form that is legal makes of the end of the chain; why the last one is not,
    where none is.
    """
    found: Written | Refusal | None = None
    for form in forms:
        found = form.apply(chain)
        if isinstance(found, Written):
            return found
    return found
