"""A fused chain as a formula over basic operations, before it becomes attributes.

The formula starts from what the anchor computes, y = scale * accumulator + bias, and goes on with
the operations below, each on the f32 value y. Vectors are f64 arrays of size 1 (per tensor) or C
(one entry for each channel of the destination's channel axis); they are rounded to f32 once, when
they become attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ...ir.types import DType

Vec = npt.NDArray[np.float64]

LARGEST = float(np.finfo(np.float32).max)
"""The largest f32."""

SMALLEST_NORMAL = 2.0**-126
"""The smallest f32 with all its bits; its reciprocal is an f32, too."""


def vec(values: npt.ArrayLike) -> Vec:
    """A 1-D f64 vector; equal entries shrink to one, which serves every channel."""
    entries = np.asarray(values, np.float64).reshape(-1)
    return entries[:1] if entries.size > 1 and bool((entries == entries[0]).all()) else entries


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """An operation of a chain. `of`: the parts of the chain whose work it does, a bit for each."""

    of: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class ScaleBy(Part):
    """y = y * values. `why`: what keeps it from moving into the front."""

    values: Vec
    why: str = field(default="", repr=False)


@dataclass(frozen=True, eq=False)
class Shift(Part):
    """y = y + values; `why` as above.

    Attributes:
        values: what is added.
        added: of several shifts in a row that became one, what was added behind the first, as the
            model adds and scales it, in f32: the chain is that where the first one made it 0, as it
            does of codes that are their zero point. None of a single one.
    """

    values: Vec
    why: str = field(default="", repr=False)
    added: tuple[Vec, Vec] | None = field(default=None, repr=False)

    @property
    def parts(self) -> tuple[Vec, Vec]:
        """The first shift, and what was added behind it."""
        return self.added or (self.values, vec(0.0))

    def then(self, other: Shift) -> Shift:
        """Both in a row."""
        first, behind = self.parts
        together = vec(self.values + other.values)
        return replace(self, values=together, added=(first, _single(behind + other.values)))

    def scaled(self, factor: Vec) -> Shift:
        """What it is behind a factor that stood behind it."""
        values = vec(self.values * factor)
        if self.added is None:
            return replace(self, values=values)
        first, behind = self.added
        return replace(self, values=values, added=(vec(first * factor), _single(behind * factor)))


def _single(values: Vec) -> Vec:
    """Rounded to f32, and clipped to what that holds."""
    return vec(np.clip(values, -LARGEST, LARGEST).astype(np.float32))


@dataclass(frozen=True)
class Round(Part):
    """y = round half even of y.

    `to_codes`: of a quantizer, which numbers next to each other have one code of; else the model's
    own operation. (What it computes is the same.)
    """

    to_codes: bool = field(default=True, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class Clip(Part):
    """y = min(high, max(low, y)); infinite bounds are absent ones."""

    low: Vec
    high: Vec


@dataclass(frozen=True)
class EltwiseOp(Part):
    """y = algorithm(y; alpha, beta) by oneDNN's names; relu with alpha is the leaky one."""

    algorithm: str
    alpha: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True)
class PreluOp(Part):
    """y = y where y >= 0, else slope * y; `operand` names the slopes (f32, destination's rank, one
    entry for each channel or one).
    """

    operand: str
    mask: int


@dataclass(frozen=True)
class BinaryOp(Part):
    """y = algorithm(y, scale * operand): f32 (or codes as plain numbers), destination's rank,
    dimensions 1 or the destination's.

    `scale` is 1 but on a target that scales the operands of binary post-ops: one, or, where the
    operand has `channels`, one for each.
    """

    algorithm: str
    operand: str
    scale: float | tuple[float, ...] = 1.0
    channels: bool = True

    def scaled(self, factor: Vec) -> BinaryOp:
        """With the operand's scale multiplied."""
        scale = tuple((np.asarray(self.scale) * factor).tolist())
        return replace(self, scale=scale if len(scale) > 1 else scale[0])


@dataclass(frozen=True)
class CodesOp(Part):
    """y = algorithm(y, scale * (operand - zero_point)): a comparison, maximum or minimum with
    codes, all per tensor.

    Written before anything else is: its basic operations depend on what stands in front of it, see
    `compared_codes.py`. `nothing` names
    a constant 0 where the target compares with a single number only: the difference is compared
    with it.
    """

    algorithm: str
    operand: str
    dtype: DType
    scale: float
    zero_point: float
    nothing: str = ""


@dataclass(frozen=True)
class Add(Part):
    """y = y + scale * (operand - zero_point): the other branch of a residual add.

    `in_place` says that the destination may overwrite the operand: it dies here, with the
    destination's shape; otherwise `why_not` says why not. `channels`: it has as many as that.
    """

    operand: str
    dtype: DType
    scale: float = 1.0
    zero_point: float = 0.0
    in_place: bool = False
    why_not: str = ""
    channels: bool = True


@dataclass(frozen=True, eq=False)
class Store(Part):
    """The end of a chain in 8 bits: codes = clip(round(y / scale + zero_point), low, high).

    `exact`: y / scale + zero_point is an integer between low and high already, so that nothing must
    round or clip it.
    """

    dtype: DType
    scale: Vec
    zero_point: Vec
    low: int
    high: int
    exact: bool = False


BasicOp = ScaleBy | Shift | Round | Clip | EltwiseOp | PreluOp | BinaryOp | Add

ChainOp = BasicOp | CodesOp | Store
"""What a chain is given: what is no basic operation yet is written as such."""


def decoding(scale: npt.ArrayLike, zero_point: npt.ArrayLike) -> list[BasicOp]:
    """scale * (y - zero_point) as (y + (-zero_point)) * scale: two operations, each with a home of
    its own.
    """
    return [Shift(vec(np.negative(zero_point))), ScaleBy(vec(scale))]
