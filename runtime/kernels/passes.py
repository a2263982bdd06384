"""The passes of an epilogue: each changes one tile of f32 values in place, with one f32 rounding where oneDNN rounds once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ...errors import InternalError
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array, NumericsProfile, fused_multiply_add
from .base import Scratch, Tile
from .eltwise_math import ALGORITHMS, EltwiseCall, bound_of

__all__ = [
    "BINARY",
    "BinaryPass",
    "Block",
    "DividePass",
    "EltwisePass",
    "Pass",
    "PlusPass",
    "PreluPass",
    "Source",
    "SumPass",
    "TimesPass",
    "apply_binary",
]

_SMALLEST_FMA_SCALE = 2.0**-100


@dataclass(frozen=True, slots=True)
class Block:
    """Where a tile lies, and what its passes may read.

    Attributes:
        tile: its box in the destination, physical order.
        operands: the run-time operands of the epilogue, physical views.
        scratch: of this worker.
    """

    tile: Tile
    operands: Sequence[Array]
    scratch: Scratch


@dataclass(frozen=True)
class Source:
    """The operand of a pass: constant data in physical order (rank 0: a scalar), or the index of a run-time operand."""

    data: F32Array | None = None
    index: int = -1

    def read(self, block: Block) -> Array:
        """The part of the operand that broadcasts against the tile."""
        array = self.data if self.data is not None else block.operands[self.index]
        if array.ndim == 0:
            return array
        return array[tuple(cut if size != 1 else slice(None) for size, cut in zip(array.shape, block.tile, strict=True))]

    def read_f32(self, block: Block) -> F32Array:
        """The same as f32 (a copy in scratch where it has another type)."""
        part = self.read(block)
        if part.dtype == np.float32:
            return part  # type: ignore[return-value]
        copy = block.scratch.take(part.shape, np.float32)
        np.copyto(copy, part, casting="unsafe")
        return copy  # type: ignore[return-value]


class Pass(Protocol):
    """Changes a tile of f32 values in place."""

    def __call__(self, y: F32Array, block: Block) -> None:
        """y = pass(y)."""
        ...


@dataclass(frozen=True)
class TimesPass:
    """y * factor."""

    factor: Source

    @property
    def positive(self) -> bool:
        """True when the factors are constants above 0."""
        return self.factor.data is not None and bool(np.all(self.factor.data > 0))

    def __call__(self, y: F32Array, block: Block) -> None:
        """y *= factor."""
        np.multiply(y, self.factor.read_f32(block), out=y)


@dataclass(frozen=True)
class DividePass:
    """y / divisor."""

    divisor: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """y /= divisor."""
        np.divide(y, self.divisor.read_f32(block), out=y)


@dataclass(frozen=True)
class PlusPass:
    """y + addend."""

    addend: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """y += addend."""
        np.add(y, self.addend.read_f32(block), out=y)


@dataclass(frozen=True)
class EltwisePass:
    """scale * algorithm(y; alpha, beta)."""

    algorithm: str
    alpha: np.float32
    beta: np.float32
    scale: np.float32
    profile: NumericsProfile

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise InternalError(f"no eltwise algorithm {self.algorithm}")

    @property
    def plain_relu(self) -> bool:
        """True for max(y, 0)."""
        return self.algorithm == "relu" and bool(self.alpha == 0) and bool(self.scale > 0)

    def bound(self, magnitude: float) -> float:
        """A bound on the result for |y| <= magnitude."""
        return abs(float(self.scale)) * bound_of(self.algorithm, float(self.alpha), float(self.beta), magnitude)

    def __call__(self, y: F32Array, block: Block) -> None:
        """y = scale * algorithm(y)."""
        ALGORITHMS[self.algorithm](EltwiseCall(y, self.alpha, self.beta, block.scratch.take, self.profile))
        if self.scale != 1:
            np.multiply(y, self.scale, out=y)


@dataclass(frozen=True)
class SumPass:
    """y + scale * (old - zero_point), with one rounding for the product and the sum where the profile has FMA."""

    old: Source
    scale: float
    zero_point: int
    dtype: DType
    fma: bool

    def __call__(self, y: F32Array, block: Block) -> None:
        """y += scale * (old - zero_point)."""
        old = self.old.read(block)
        if old.dtype != self.dtype.numpy:
            old = old.view(self.dtype.numpy)  # oneDNN reads the same bytes as another type of that size
        if self.scale != 1 and self.fma and old.dtype.itemsize == 1:
            subnormal = abs(self.scale) < _SMALLEST_FMA_SCALE  # integers times such a scale: nothing below 2**-149 to round
            fused_multiply_add(old, self.zero_point, self.scale, y, y, block.scratch.take, subnormal=subnormal)
            return
        addend = block.scratch.take(y.shape, np.float32)
        np.copyto(addend, old, casting="unsafe")
        if self.zero_point:
            np.subtract(addend, np.float32(self.zero_point), out=addend)
        if self.scale != 1 and self.fma:
            fused_multiply_add(addend, 0, self.scale, y, y, block.scratch.take, subnormal=True)
            return
        if self.scale != 1:
            np.multiply(addend, np.float32(self.scale), out=addend)
        np.add(y, addend, out=y)


_Ufunc = Callable[..., Array]

_ARITHMETIC: dict[str, _Ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_COMPARE: dict[str, _Ufunc] = {
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}
BINARY = frozenset(_ARITHMETIC) | frozenset(_COMPARE)
"""oneDNN's names of the binary algorithms."""


def apply_binary(algorithm: str, y: F32Array, other: F32Array, scratch: Scratch) -> None:
    """y = algorithm(y, other), in place; comparisons give 0 and 1."""
    if algorithm in _ARITHMETIC:
        _ARITHMETIC[algorithm](y, other, out=y)
        return
    answer = scratch.take(y.shape, np.bool_)
    _COMPARE[algorithm](y, other, out=answer)
    np.copyto(y, answer)


@dataclass(frozen=True)
class BinaryPass:
    """algorithm(y, operand * scale)."""

    algorithm: str
    operand: Source
    scale: Source | None = None

    def __post_init__(self) -> None:
        if self.algorithm not in BINARY:
            raise InternalError(f"no binary algorithm {self.algorithm}")

    def __call__(self, y: F32Array, block: Block) -> None:
        """y = algorithm(y, operand * scale)."""
        other = self.operand.read_f32(block)
        if self.scale is not None:
            factor = self.scale.read_f32(block)
            shape = np.broadcast_shapes(other.shape, factor.shape)
            other = np.multiply(other, factor, out=block.scratch.take(shape, np.float32))
        apply_binary(self.algorithm, y, other, block.scratch)


@dataclass(frozen=True)
class PreluPass:
    """y where y >= 0, else slope * y."""

    slope: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """y = prelu(y)."""
        scaled = np.multiply(y, self.slope.read_f32(block), out=block.scratch.take(y.shape, np.float32))
        keep = np.greater_equal(y, np.float32(0), out=block.scratch.take(y.shape, np.bool_))
        np.copyto(scaled, y, where=keep)
        np.copyto(y, scaled)
