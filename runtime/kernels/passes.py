"""The passes of an epilogue: each changes one tile of f32 values in place, with one f32 rounding
where oneDNN rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...errors import InternalError
from ...ir.algorithms import BINARY
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array, NumericsProfile, finish_scaled_codes, fused_multiply_add
from .base import Block, Recorder, as_f32, part_of, record_choice

_SMALLEST_FMA_SCALE = 2.0**-100


@dataclass(frozen=True)
class Source:
    """The operand of a pass: constant data in physical order (rank 0: a scalar), or the index of a
    run-time operand.
    """

    data: F32Array | None = None
    index: int = -1

    def read(self, block: Block) -> Array:
        """The part of the operand that broadcasts against the tile."""
        return part_of(
            self.data if self.data is not None else block.operands[self.index], block.tile
        )

    def read_f32(self, block: Block) -> F32Array:
        """The same as f32 (a copy in scratch where it has another type)."""
        return as_f32(self.read(block), block.record)


class Pass(Protocol):
    """Changes a tile of f32 values in place."""

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = pass(y)."""
        ...


@dataclass(frozen=True)
class SumPass:
    """y + scale * (old - zero_point), with one rounding for the product and the sum where the
    profile has FMA.

    Attributes:
        old: what the destination held.
        scale, zero_point, dtype: as in the post-op; `dtype` is how the bytes are read.
        fma: the profile's.
        bound: a bound on |y|.
    """

    old: Source
    scale: float
    zero_point: int
    dtype: DType
    fma: bool
    bound: float

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y += scale * (old - zero_point)."""
        old, record = self.old.read(block), block.record
        if old.dtype != self.dtype.numpy:
            # oneDNN reads the same bytes as another type of that size
            old = old.view(self.dtype.numpy)
        if self._codes_suffice:
            self._scaled_codes(old, y, record)
            return
        addend = record.take(y.shape, np.float32)
        record.copy(addend, old)
        if self.zero_point:
            record(np.subtract, addend, np.float32(self.zero_point), addend)
        if self.scale != 1 and self.fma:
            wide, bits = record.take(y.shape, np.float64), record.take(y.shape, np.int64)
            record(fused_multiply_add, addend, self.scale, y, y, wide, bits, True)
            return
        if self.scale != 1:
            record(np.multiply, addend, np.float32(self.scale), addend)
        record(np.add, y, addend, y)

    @property
    def _codes_suffice(self) -> bool:
        """The conditions of `finish_scaled_codes`."""
        codes = self.dtype in (DType.U8, DType.S8) and abs(self.zero_point) <= 1024
        size = abs(self.scale)
        return (
            self.fma
            and self.scale != 1
            and codes
            and size >= _SMALLEST_FMA_SCALE
            and self.bound <= size * 2.0**20
        )

    def _scaled_codes(self, old: Array, y: F32Array, record: Recorder) -> None:
        wide = record.take(y.shape, np.float64)
        record(np.copyto, wide, old)
        if self.zero_point:
            record(np.subtract, wide, np.float64(self.zero_point), wide)
        record(np.multiply, wide, np.float64(self.scale), wide)
        record(np.add, wide, y, wide)
        size = record.take(y.shape, np.uint32)
        record(np.bitwise_and, y.view(np.uint32), np.uint32(0x7FFFFFFF), size)
        record(np.subtract, size, np.uint32(1), size)
        record(finish_scaled_codes, old, self.zero_point, self.scale, y, wide, size)


_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_EXTREMES = {"max": (np.maximum, np.fmax), "min": (np.minimum, np.fmin)}  # and those without NaN
_COMPARE = {
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


@dataclass(frozen=True)
class BinaryPass:
    """algorithm(y, (operand - zero) * scale); comparisons give 0 and 1.

    A maximum or minimum with a NaN on either side is the second operand, as of the instruction
    (measured on oneDNN 3.2 and 2.6).

    Attributes:
        algorithm: oneDNN's name.
        operand, scale, zero: what it reads; None: no scale, or no zero point.
        nan_stays: no element of y is a NaN, or the result is one then.
    """

    algorithm: str
    operand: Source
    scale: Source | None = None
    nan_stays: bool = False
    zero: Source | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in BINARY:
            raise InternalError(f"no binary algorithm {self.algorithm}")

    @property
    def factor(self) -> F32Array | None:
        """The constant that y is multiplied by; None where it is something else."""
        plain = self.scale is None and self.zero is None
        return self.operand.data if self.algorithm == "mul" and plain else None

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = algorithm(y, (operand - zero) * scale)."""
        record, other = block.record, self.operand.read_f32(block)
        for function, source in ((np.subtract, self.zero), (np.multiply, self.scale)):
            if source is not None:
                term = source.read_f32(block)
                room = record.take(np.broadcast_shapes(other.shape, term.shape), np.float32)
                record(function, other, term, room)
                other = room
        if self.algorithm in _ARITHMETIC:
            record(_ARITHMETIC[self.algorithm], y, other, y)
        elif self.algorithm in _EXTREMES:
            extreme, without_nan = _EXTREMES[self.algorithm]
            if not self.nan_stays:  # a NaN of y is gone behind this; one of `other` comes back
                record(without_nan, y, other, y)
            record(extreme, y, other, out=y)
        else:
            answer = record.take(y.shape, np.bool_)
            record(_COMPARE[self.algorithm], y, other, answer)
            record(np.copyto, y, answer)


@dataclass(frozen=True)
class PreluPass:
    """y where y >= 0, else slope * y."""

    slope: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = prelu(y)."""
        scaled = block.record.take(y.shape, np.float32)
        block.record(np.multiply, y, self.slope.read_f32(block), scaled)
        record_choice(np.greater_equal, y, scaled, block.record)


# -- the last pass: an f32 value becomes an element of the destination ----------------------------

_LARGEST_S32 = 2147483520
"""The largest f32 below 2**31: what oneDNN saturates s32 to."""


@dataclass(frozen=True)
class Store:
    """Clips, rounds half to even and stores; an f32 destination takes the value as it is.

    Attributes:
        dtype: of the destination.
        profile: says what a NaN becomes.
        finite: no value is a NaN.
    """

    dtype: DType
    profile: NumericsProfile
    finite: bool

    @property
    def limits(self) -> tuple[np.float32, np.float32] | None:
        """What values are clipped to; None for a float."""
        if not self.dtype.is_integer:
            return None
        low, high = self.dtype.range
        return np.float32(low), np.float32(min(high, _LARGEST_S32))

    def __call__(self, y: F32Array, target: Array, block: Block) -> None:
        """Takes down target = saturate(round(y))."""
        if self.limits is not None:
            if not self.finite:
                block.record(_replace_nan, y, np.float32(self.profile.nan(self.dtype)))
            block.record(y.clip, *self.limits, y)
            block.record(np.rint, y, y)
        block.record.copy(target, y)


def _replace_nan(y: F32Array, value: np.float32) -> None:
    """y = value where y is NaN."""
    np.copyto(y, value, where=np.isnan(y))
