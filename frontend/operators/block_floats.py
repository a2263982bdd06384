"""Numbers rounded to floats of few bits, each with an exponent of its own, or with one for a block.

ONNX has no types for these, so that they are written out in f32. The exponent of a number is a Cast to
float8e8m0 that rounds down, which is exact; to divide by a power of two is exact, too::

    power(x)     = 2^floor(log2 |x|), at least 2^-127
    float(x)     = round(x / step) * step, step = max(power(x), 2^least) * 2^-mantissa
    block float  = clip(round(x / step)) * step, step = power(max |x| of the block) * 2^-digits
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from ...errors import UnsupportedOp
from ...ir.ops.spec import Attr
from ...ir.types import DType
from ..nodes import OnnxNode
from .derived import Derived
from .heads import known_size

_LARGEST: Final = float(np.finfo(np.float32).max)

Work = Callable[[str], str]
"""A value of the graph -> one that is computed from it."""


@dataclass(frozen=True)
class Floats:
    """A format of floats with a sign.

    Attributes:
        exponent, mantissa: how many bits.
        bias: of the exponent.
        largest: the largest number, and what is larger becomes it.
    """

    exponent: int
    mantissa: int
    bias: int
    largest: float

    @property
    def dtype(self) -> DType | None:
        """ONNX's type of such numbers, None where there is none."""
        return _TYPES.get(self)


_TYPES: Final = {
    Floats(4, 3, 7, 448): DType.F8E4M3FN,
    Floats(4, 3, 8, 240): DType.F8E4M3FNUZ,
    Floats(5, 2, 15, 57344): DType.F8E5M2,
    Floats(5, 2, 16, 57344): DType.F8E5M2FNUZ,
    Floats(2, 1, 1, 6): DType.F4E2M1,
}


HALVES: Final[Mapping[DType, Floats]] = {
    DType.F16: Floats(5, 10, 15, 65504),
    DType.BF16: Floats(8, 7, 127, (2 - 2.0**-7) * 2.0**127),
}


def to_half(at: Derived, x: str, dtype: DType, names: Sequence[str] = ()) -> str:
    """Floats of 16 bits, in f32: infinities become the largest f16, and stay what they are in bf16."""
    near = to_floats(at, x, HALVES[dtype], partial(half_even, at), names)
    if dtype is DType.F16:
        return near
    return at.real("Where", [finite(at, x), near, x], role="or infinite")


def to_floats(at: Derived, x: str, floats: Floats, rounded: Work, names: Sequence[str] = ()) -> str:
    """The numbers of a format nearest to x, in the sense of `rounded`; beyond the largest one it."""
    x = clipped(at, x, -floats.largest, floats.largest)
    step = power(at, at.real("Abs", [x], role="size"), "power", names)
    least = at.constant("least power", 2.0 ** (1 - floats.bias))
    step = at.real("Max", [step, least], role="power of normal numbers")
    step = scaled(at, step, -floats.mantissa, "step")
    value = rounded(at.real("Div", [x, step], role="in steps"))
    return at.real("Mul", [value, step], role="near")


def power(at: Derived, size: str, role: str, names: Sequence[str] = ()) -> str:
    """The largest power of two that is not above a number >= 0, and at least 2^-127; `names`: of the quantizers whose
    codes have it as their exponent.
    """
    attrs: dict[str, Attr] = {"to": DType.F8E8M0, "round_mode": "down"}
    ctx, node = at.ctx, at.node
    made = ctx.emit(node, "Cast", (size,), attrs, role=f"{role} code", quantizer=names)
    return ctx.emit(node, "Cast", (made,), {"to": DType.F32}, role=role, quantizer=names)


def scaled(at: Derived, value: str, exponent: int, role: str) -> str:
    """The value times 2^exponent."""
    factor = at.constant(f"factor of {role}", 2.0**exponent)
    return at.real("Mul", [value, factor], role=role)


def clipped(at: Derived, value: str, low: float, high: float) -> str:
    """The value within two bounds."""
    bounds = [at.constant(role, bound) for role, bound in (("lowest", low), ("highest", high))]
    return at.real("Clip", [value, *bounds], role="clip")


def half_up(at: Derived, value: str) -> str:
    """The nearest integer, of two the larger one."""
    floor = at.real("Floor", [value], role="floor")
    rest = at.real("Sub", [value, floor], role="rest")
    more = at.real("GreaterOrEqual", [rest, at.constant("half", 0.5)], role="is half")
    return at.real("Add", [floor, at.ctx.cast(at.node, more, DType.F32, "one")], role="round")


def half_away(at: Derived, value: str) -> str:
    """The nearest integer, of two the one farther from 0."""
    whole = half_up(at, at.real("Abs", [value], role="of size"))
    return at.real("Mul", [whole, at.real("Sign", [value], role="sign")], role="signed")


def half_even(at: Derived, value: str) -> str:
    """The nearest integer, of two the even one."""
    return at.real("Round", [value], role="round")


def finite(at: Derived, value: str) -> str:
    """Truth of a number: neither infinite nor NaN."""
    size = at.real("Abs", [value], role="distance")
    return at.real("LessOrEqual", [size, at.constant("largest", _LARGEST)], role="is finite")


def in_blocks(at: Derived, axis: int, block: int, work: Work) -> None:
    """The node's output: its input with `work` done to the blocks along an axis, [..., blocks, block].

    The last block is filled up with zeros. A vector has one axis; one number alone stays as it is.
    """
    x, node = at.input(0), at.node
    shape, rank = at.ctx.type(x).shape or (), at.ctx.rank(node, x)
    if block < 1:
        raise node.invalid(f"the attribute block_size is {block}, and must be positive")
    if all(isinstance(size, int) for size in shape) and math.prod(map(int, shape)) == 1:
        at.real("Identity", [x], output=node.output(0))
        return
    axis = axis_of(node, axis, rank) if rank > 1 else 0
    size = known_size(at, x, axis, "dimension in blocks")
    turn = list(range(rank))
    turn[axis], turn[-1] = turn[-1], turn[axis]
    value = (
        at.real("Transpose", [x], {"perm": tuple(turn)}, role="turned") if axis < rank - 1 else x
    )
    behind = -size % block
    if behind:
        pads = at.integers("filling", [0] * (2 * rank - 1) + [behind])
        value = at.real("Pad", [value, pads], role="filled")
    front, whole = (0,) * (rank - 1), size + behind
    apart = at.integers("blocks", (*front, whole // block, block))
    value = work(at.real("Reshape", [value, apart], role="in blocks"))
    last = "" if axis < rank - 1 else node.output(0)
    together = at.integers("row", (*front, whole))
    output = "" if behind else last
    value = at.real("Reshape", [value, together], role="" if output else "rows", output=output)
    if behind:
        ends = [at.integers(role, [n]) for role, n in (("from", 0), ("to", size), ("along", -1))]
        value = at.real("Slice", [value, *ends], role="" if last else "cut", output=last)
    if not last:
        at.real("Transpose", [value], {"perm": tuple(turn)}, output=node.output(0))


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """The axis counted from the first one."""
    if not -rank <= axis < rank:
        raise node.invalid(f"the attribute axis is {axis}, and its data has {rank} dimensions")
    return axis % rank


def largest_of_block(at: Derived, size: str, role: str) -> str:
    """The largest number of each block, [..., blocks, 1]."""
    axes = at.integers(f"{role} axes", [-1])
    return at.real("ReduceMax", [size, axes], {"keepdims": 1}, role=role)


def unknown(node: OnnxNode, name: str, hint: str) -> UnsupportedOp:
    """The error for an attribute with a value that is not read."""
    found = node.attrs[name]
    return UnsupportedOp(
        f"the attribute {name} of {node.op} is {found!r}", where=node.where, hint=hint
    )
