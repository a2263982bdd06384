"""The passes of an epilogue: each changes one tile of f32 values in place, with one f32 rounding
where oneDNN rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...errors import InternalError
from ...ir.algorithms import BINARY, ELTWISE
from ...ir.ops.spec import Array
from ...ir.types import DType
from ..numerics import F32Array, FmaWork, NumericsProfile, finish_scaled_codes, fused_multiply_add
from .base import Recorder, Tile
from .eltwise_math import ALGORITHMS, EltwiseCall

__all__ = [
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
    "codes_behind",
    "exact_on_codes",
    "record_binary",
]

_SMALLEST_FMA_SCALE = 2.0**-100
# elements: NumPy's buffer; an inner loop of that length takes half the time of the same work in
# shorter ones
_LONG = 8192
_FEWEST_LOOPS = 4  # where repeated values make fewer, repeating them takes memory and saves little


@dataclass(frozen=True, slots=True)
class Block:
    """Where a tile lies, and what its passes may read.

    Attributes:
        tile: its box in the destination, physical order.
        operands: the run-time operands of the epilogue, physical views.
        record: takes the calls down, gives scratch.
    """

    tile: Tile
    operands: Sequence[Array]
    record: Recorder


@dataclass(frozen=True)
class Source:
    """The operand of a pass: constant data in physical order (rank 0: a scalar), or the index of a
    run-time operand.

    Constants that were repeated are kept: (columns, how often) -> values.
    """

    data: F32Array | None = None
    index: int = -1
    _repeated: dict[tuple[int, int, int], F32Array] = field(
        default_factory=dict, repr=False, compare=False
    )

    def read(self, block: Block) -> Array:
        """The part of the operand that broadcasts against the tile."""
        array = self.data if self.data is not None else block.operands[self.index]
        if array.ndim == 0:
            return array
        return array[
            tuple(
                cut if size != 1 else slice(None)
                for size, cut in zip(array.shape, block.tile, strict=True)
            )
        ]

    def read_f32(self, block: Block) -> F32Array:
        """The same as f32 (a copy in scratch where it has another type)."""
        part = self.read(block)
        if part.dtype == np.float32:
            return part  # type: ignore[return-value]
        copy = block.record.take(part.shape, np.float32)
        block.record.copy(copy, part)
        return copy

    def against(self, y: F32Array, block: Block) -> tuple[F32Array, F32Array]:
        """(view of y, operand that broadcasts against it): constants along the last dimension are
        repeated, for longer inner loops.
        """
        part = self.read_f32(block)
        if (
            self.data is None
            or part.ndim == 0
            or part.shape[-1] != part.size
            or not y.flags.c_contiguous
        ):
            return y, part
        width, rows = part.size, y.size // part.size
        least = -(-_LONG // width)
        times = next(
            (n for n in range(least, min(4 * least, rows // _FEWEST_LOOPS) + 1) if rows % n == 0), 1
        )
        if times == 1 or width != y.shape[-1]:
            return y, part
        columns = block.tile[-1]
        key = (columns.start, columns.stop, times)
        if key not in self._repeated:
            self._repeated[key] = np.tile(part.reshape(-1), times)
        return y.reshape(-1, times * width), self._repeated[key]


class Pass(Protocol):
    """Changes a tile of f32 values in place."""

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = pass(y)."""
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
        """Takes down y *= factor."""
        view, factor = self.factor.against(y, block)
        block.record(np.multiply, view, factor, view)


@dataclass(frozen=True)
class DividePass:
    """y / divisor."""

    divisor: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y /= divisor."""
        view, divisor = self.divisor.against(y, block)
        block.record(np.divide, view, divisor, view)


@dataclass(frozen=True)
class PlusPass:
    """y + addend."""

    addend: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y += addend."""
        view, addend = self.addend.against(y, block)
        block.record(np.add, view, addend, view)


@dataclass(frozen=True)
class EltwisePass:
    """scale * algorithm(y; alpha, beta); `finite`, `signed_zero` and `exact` as in
    `EltwiseCall`.
    """

    algorithm: str
    alpha: np.float32
    beta: np.float32
    scale: np.float32
    profile: NumericsProfile
    finite: bool
    signed_zero: bool
    exact: bool = False

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise InternalError(f"no eltwise algorithm {self.algorithm}")

    @property
    def plain_relu(self) -> bool:
        """True for max(y, 0)."""
        return self.algorithm == "relu" and bool(self.alpha == 0) and bool(self.scale == 1)

    def bound(self, magnitude: float) -> float:
        """A bound on the result for |y| <= magnitude."""
        return abs(float(self.scale)) * ELTWISE[self.algorithm].reach(
            float(self.alpha), float(self.beta), magnitude
        )

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = scale * algorithm(y)."""
        ALGORITHMS[self.algorithm](
            EltwiseCall(
                y,
                self.alpha,
                self.beta,
                block.record,
                self.profile,
                self.finite,
                self.signed_zero,
                self.exact,
            )
        )
        if self.scale != 1:
            block.record(np.multiply, y, self.scale, y)


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
            old = old.view(
                self.dtype.numpy
            )  # oneDNN reads the same bytes as another type of that size
        if self._codes_suffice:
            self._scaled_codes(old, y, record)
            return
        addend = record.take(y.shape, np.float32)
        record.copy(addend, old)
        if self.zero_point:
            record(np.subtract, addend, np.float32(self.zero_point), addend)
        if self.scale != 1 and self.fma:
            work = FmaWork(record.take(y.shape, np.float64), record.take(y.shape, np.int64))
            record(fused_multiply_add, addend, self.scale, y, y, work, True)
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


_Ufunc = Callable[..., Array]

_ARITHMETIC: dict[str, _Ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}
_WITHOUT_NAN: dict[str, _Ufunc] = {"max": np.fmax, "min": np.fmin}
_COMPARE: dict[str, _Ufunc] = {
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "eq": np.equal,
    "ne": np.not_equal,
}


def record_binary(
    algorithm: str, y: F32Array, other: F32Array, record: Recorder, *, finite: bool
) -> None:
    """Takes down y = algorithm(y, other), in place; comparisons give 0 and 1.

    A maximum or minimum with a NaN on either side is the second operand, as of the instruction
    (measured on oneDNN 3.2 and 2.6).
    `finite`: no element of y is a NaN.
    """
    if algorithm in _WITHOUT_NAN and not finite:
        record(
            _WITHOUT_NAN[algorithm], y, other, out=y
        )  # then a NaN of y is gone; one of `other` comes back below
    if algorithm in _ARITHMETIC:
        record(_ARITHMETIC[algorithm], y, other, out=y)
        return
    answer = record.take(y.shape, np.bool_)
    record(_COMPARE[algorithm], y, other, answer)
    record(np.copyto, y, answer)


@dataclass(frozen=True)
class BinaryPass:
    """algorithm(y, operand * scale); `finite`: no element of y is a NaN."""

    algorithm: str
    operand: Source
    scale: Source | None = None
    finite: bool = False

    def __post_init__(self) -> None:
        if self.algorithm not in BINARY:
            raise InternalError(f"no binary algorithm {self.algorithm}")

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = algorithm(y, operand * scale)."""
        other, record = self.operand.read_f32(block), block.record
        if self.scale is not None:
            factor = self.scale.read_f32(block)
            scaled = record.take(np.broadcast_shapes(other.shape, factor.shape), np.float32)
            record(np.multiply, other, factor, scaled)
            other = scaled
        record_binary(self.algorithm, y, other, record, finite=self.finite)


@dataclass(frozen=True)
class PreluPass:
    """y where y >= 0, else slope * y."""

    slope: Source

    def __call__(self, y: F32Array, block: Block) -> None:
        """Takes down y = prelu(y)."""
        record = block.record
        scaled, keep = record.take(y.shape, np.float32), record.take(y.shape, np.bool_)
        record(np.multiply, y, self.slope.read_f32(block), scaled)
        record(np.greater_equal, y, np.float32(0), keep)
        record(np.copyto, scaled, y, "same_kind", keep)
        record(np.copyto, y, scaled)


def codes_behind(passes: Sequence[Pass]) -> tuple[int, int] | None:
    """The range of the integers that every value is behind the passes, or None: a `round` and a
    `clip` at the end, in either order.
    """
    low, high, integral = -np.inf, np.inf, False
    for step in passes:
        if isinstance(step, EltwisePass) and step.algorithm == "round" and step.scale == 1:
            low, high, integral = float(np.rint(low)), float(np.rint(high)), True
        elif (
            isinstance(step, EltwisePass)
            and step.algorithm in ("clip", "clip_v2")
            and step.scale == 1
        ):
            ends = float(step.alpha), float(step.beta)
            integral = integral and all(end.is_integer() for end in ends)
            low, high = ends
        else:
            low, high, integral = -np.inf, np.inf, False
    return (int(low), int(high)) if integral and np.isfinite(low) and np.isfinite(high) else None


def exact_on_codes(alpha: np.float32, beta: np.float32, codes: tuple[int, int] | None) -> bool:
    """True when alpha * k + beta is exact in f64 for every integer k of a (small) range."""
    if codes is None or codes[1] - codes[0] > 1 << 16:
        return False
    product = np.arange(codes[0], codes[1] + 1, dtype=np.float64) * np.float64(alpha)
    total = product + np.float64(beta)
    part = total - product
    return bool(
        np.all((product - (total - part)) + (np.float64(beta) - part) == 0)
    )  # TwoSum's error
