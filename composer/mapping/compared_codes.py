"""Comparisons, maxima and minima of a chain with codes, so that they tell what the f32 graph tells.

A binary post-op reads codes as plain numbers, so the chain in front is brought to their grid: x >
s*(q - z) is x/s + z > q for s > 0. In f32 the two sides of a near tie may change places. Where the
chain is decoded codes as well, all pairs of codes can be looked at, and the form that is taken
gives each of them the truth value of the definition, which compares f32 products. Where no form
does, codes that the step reads are decoded apart. Codes that the step has computed itself are
compared on the operand's grid nevertheless: they were rounded in f32 on the way, so that a near tie
is no better known than they are, and a step more would be paid for on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ...ir.rule import Refusal, Rule
from ...ir.telling import Told
from ...ir.types import DType
from ..formula.formula import (
    BasicOp,
    BinaryOp,
    ChainOp,
    Clip,
    CodesOp,
    EltwiseOp,
    ScaleBy,
    Shift,
    Store,
    decoding,
    vec,
)
from ..formula.writing import Written
from .composed import Front

MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "max": "min", "min": "max"}
"""What a comparison, maximum or minimum is with its operands in the other order, or behind a factor
below 0.
"""

_COMPARISONS = frozenset({"gt", "ge", "lt", "le", "eq"})
_EXTREMES = frozenset({"max", "min"})

_Linear = tuple[tuple[float, float], ...]  # alpha and beta of each eltwise_linear in a row
_F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Codes:
    """Codes and how they decode: scale * (code - zero)."""

    dtype: DType
    scale: float
    zero: float

    def all(self) -> _F32:
        """Every code."""
        low, high = self.dtype.range
        return np.arange(low, high + 1, dtype=np.float32)

    def values(self) -> _F32:
        """What every code decodes to, in f32."""
        return (self.all() - np.float32(self.zero)) * np.float32(self.scale)


def codes_differ(front: Front, chain: Sequence[ChainOp], op: CodesOp, *, told: bool) -> bool:
    """True when `op` behind `chain`, codes that the step reads, could tell otherwise than the
    definition, and on what they decode to not.

    `told`: the result of a maximum or minimum is compared with something in turn, so that it must
    be exact to the bit.
    """
    if op.algorithm in _EXTREMES and not told:
        return False
    return _is_known(front, chain) and _linear(front, chain, op, exact=True) is None


def on_codes(front: Front, chain: Sequence[ChainOp]) -> Written:
    """What becomes of the operation with codes at the end of a chain: by `DECODED_WITH_CODES`, or
    with the chain brought to the grid of the codes::

        x > s*(q-z) = x*(1/s) + z > q            max(x, s*(q-z)) = (max(x*(1/s) + z, q) - z)*s

    for s > 0, else the comparison turns, and a maximum is a minimum. In f32 the two sides of a near
    tie may change places.
    """
    found = _decoded_with_codes(front, chain)
    if isinstance(found, Written):
        return found
    op = chain[-1]
    assert isinstance(op, CodesOp)
    # where it is told, 0 becomes the zero point exactly: a shift would be moved, joined with others
    told = op.algorithm in _COMPARISONS or front.told is not Told.NOTHING
    shift = (
        EltwiseOp("linear", 1.0, op.zero_point)
        if told and op.zero_point
        else Shift(vec(op.zero_point))
    )
    return Written(1, (ScaleBy(vec(1.0 / op.scale)), shift, *_with_plain_codes(op)))


def _with_plain_codes(op: CodesOp) -> tuple[BasicOp, ...]:
    """The operation with the codes as numbers, for a chain on their grid: a scale below 0 turns the
    order. What is not told by it is decoded behind it.
    """
    algorithm = op.algorithm if op.scale > 0 else MIRRORED[op.algorithm]
    if op.algorithm in _EXTREMES:
        return BinaryOp(algorithm, op.operand), *decoding(op.scale, op.zero_point)
    if op.nothing:
        return BinaryOp("sub", op.operand), BinaryOp(algorithm, op.nothing)
    return (BinaryOp(algorithm, op.operand),)


def _decoded_with_codes(front: Front, chain: Sequence[ChainOp]) -> Written | Refusal | None:
    """Decoded codes are compared with codes on the grid of those, in the shortest form that tells
    all pairs as the definition does; so is the maximum or minimum taken, and decoded behind it.

    As eltwise, for a scale and a shift would be moved, joined, rounded elsewhere.

    Legal because: (q1 - z1)*s1 > s*(q - z) = (q1 - z1)*(s1/s) + z > q for s > 0; s < 0 turns the
    comparison, and makes a maximum a minimum. Which form tells all pairs of codes as the definition
    does was tried on all of them; where none does, it is the one that tells two zeros. The maximum
    of codes of one scale, s1 = s, is one of whole numbers, and bitwise the same.
    Refuses when: the chain does not end with what decodes codes by one scale, or the ratio of the
    scales is beyond 2^64.
    """
    op = chain[-1]
    if not isinstance(op, CodesOp):
        return None
    linear = _linear(front, chain[:-1], op, exact=False)
    if linear is None:
        return Refusal(
            "codes are told from codes on the operand's grid where the chain is decoded codes",
            "codes that a step reads, decoded by one scale, in the ratio of the operand's",
            "another chain",
            "quantize both operands per tensor, with one scale",
        )
    before = (EltwiseOp("linear", alpha, beta) for alpha, beta in linear)
    return Written(3, (*before, *_with_plain_codes(op)))


DECODED_WITH_CODES = Rule(
    "f((q1-z1)*s1, s*(q-z)) = f((q1-z1)*(s1/s) + z, q), f = gt, max ...",
    _decoded_with_codes,
    float="ties",
)


# -- where a target compares with a single number only ---------------------------------------------


def _difference(
    op: BinaryOp | CodesOp, nothing: Callable[[], str]
) -> tuple[ChainOp, ...] | Refusal | None:
    """A comparison with a tensor becomes one of the difference with 0, for targets that compare
    with a single number only.

    Legal because: with gradual underflow the f32 difference of two numbers is 0 only where they are
    equal, and else has the sign of the exact one. (Two infinities of one sign have no difference.)
    Refuses when: never; other operations do not match.
    """
    if op.algorithm not in _COMPARISONS:
        return None
    zero = nothing()
    if isinstance(op, CodesOp):
        return (replace(op, nothing=zero),)
    return BinaryOp("sub", op.operand), BinaryOp(op.algorithm, zero)


DIFFERENCE = Rule("x > t = x - t > 0", _difference, float="bitwise")


# -- all pairs of codes ----------------------------------------------------------------------------


def _is_known(front: Front, chain: Sequence[ChainOp]) -> bool:
    """True when the chain is nothing but codes that the step reads, decoded, also behind operations
    that f32 computes exactly.
    """
    end = len(chain)
    while end > 2 and (
        isinstance(chain[end - 1], Clip) or chain[end - 1] in (EltwiseOp("relu"), EltwiseOp("abs"))
    ):
        end -= 1
    return end == 2 and _ends_decoded(front, chain[:end])


def _ends_decoded(front: Front, chain: Sequence[ChainOp]) -> bool:
    """True when the chain ends with what decodes codes: behind a store, or at the start of a step
    that reads them.
    """
    if len(chain) < 2 or not (isinstance(chain[-2], Shift) and isinstance(chain[-1], ScaleBy)):
        return False
    return (
        isinstance(chain[-3], Store)
        if len(chain) > 2
        else front.primitive == "binary" and front.src.is_integer and front.scale is None
    )


def _linear(front: Front, chain: Sequence[ChainOp], op: CodesOp, *, exact: bool) -> _Linear | None:
    """What brings the codes that `chain` decodes to the grid of the operand's; None without such.

    `exact`: for all pairs of codes, not just for those that are further apart than f32 tells, and
    for two zeros.
    """
    if not _ends_decoded(front, chain):
        return None
    shift, scale = chain[-2], chain[-1]
    store = chain[-3] if len(chain) > 2 else None
    if not (
        isinstance(shift, Shift)
        and isinstance(scale, ScaleBy)
        and shift.values.size == scale.values.size == 1
    ):
        return None
    mine = _Codes(
        store.dtype if isinstance(store, Store) else front.src,
        float(scale.values[0]),
        -float(shift.values[0]),
    )
    other = _Codes(op.dtype, op.scale, op.zero_point)
    if exact and op.algorithm in _EXTREMES and mine.scale != other.scale:
        return None
    ratio = mine.scale / other.scale
    if (
        not 2.0**-64 < abs(ratio) < 2.0**64
        or not np.isfinite([*mine.values(), *other.values()]).all()
    ):
        return None
    found = _exact_linear(mine, other)
    return found if exact or found is not None else _shortened(_apart(mine, other))


def _apart(mine: _Codes, other: _Codes) -> _Linear:
    """The codes without their zero point, then on the other grid: what decodes to 0 becomes the
    other's zero point exactly.
    """
    return (1.0, -mine.zero), (mine.scale / other.scale, other.zero)


def _shortened(linear: _Linear) -> _Linear:
    return tuple(step for step in linear if step != (1.0, 0.0))


@lru_cache(maxsize=256)
def _exact_linear(mine: _Codes, other: _Codes) -> _Linear | None:
    """The shortest form of c*r - z1*r + z, r the ratio of the scales, that tells all pairs of codes
    apart as the definition does.
    """
    ratio = mine.scale / other.scale
    merged: _Linear = ((ratio, other.zero - mine.zero * ratio),)
    expected = _order(mine.values(), other.values()) * np.sign(other.scale)
    for linear in (merged, _apart(mine, other)):
        if all(
            np.array_equal(_order(_computed(mine.all(), linear, fused), other.all()), expected)
            for fused in (True, False)
        ):
            return _shortened(linear)
    return None


def _order(a: _F32, b: _F32) -> npt.NDArray[np.float64]:
    """1, 0 or -1 for each pair: a greater, equal, less."""
    return np.sign(np.subtract.outer(a.astype(np.float64), b.astype(np.float64)))


def _computed(x: _F32, linear: _Linear, fused: bool) -> _F32:
    """eltwise_linear in f32, rounded once or behind each operation: targets differ."""
    for alpha, beta in linear:
        a, b = np.float32(alpha), np.float32(beta)
        product = x.astype(np.float64) * np.float64(a)  # 48 bits: exact
        x = (
            (product + np.float64(b)).astype(np.float32)
            if fused
            else product.astype(np.float32) + b
        )
    return x
