"""Which of the legal float orders a run follows, and the f32 arithmetic that NumPy does not have: the fused multiply-add.

An int8 primitive accumulates in exact integers; what follows is f32, and two libraries (or two implementations in one library)
may multiply and round in different orders. `NumericsProfile` says which order is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.types import DType

__all__ = ["VNNI_3_2", "F32Array", "F64Array", "NumericsProfile", "Take", "fused_multiply_add"]

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]

Take = Callable[[Sequence[int], npt.DTypeLike], npt.NDArray[Any]]
"""Gives uninitialized scratch of a shape and type."""

_LOW_BITS = np.int64(0x1FFFFFFF)
_TIE = np.int64(0x10000000)
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class NumericsProfile:
    """The float order of a oneDNN version and implementation.

    Attributes:
        name: what the order belongs to.
        combine: True: `acc * (src_scale * weights_scale)`, the scales' product rounded first; False: `(acc * src_scale) * weights_scale`.
        reciprocal: True: `y * f32(1 / dst_scale)`; False: `y / dst_scale`.
        fma: True: the sum and linear post-ops round once (`fma`); False: multiply, round, add, round.
        nan_s8, nan_u8, nan_s32: what a NaN becomes in an integer destination.
    """

    name: str = "oneDNN 3.2, VNNI"
    combine: bool = True
    reciprocal: bool = True
    fma: bool = True
    nan_s8: int = 127
    nan_u8: int = 255
    nan_s32: int = 2147483520

    def nan(self, dtype: DType) -> int:
        """The integer that a NaN becomes in a destination of this type (0 where oneDNN has no such destination)."""
        return {DType.S8: self.nan_s8, DType.U8: self.nan_u8, DType.S32: self.nan_s32}.get(dtype, 0)


VNNI_3_2 = NumericsProfile()
"""The VNNI kernels of oneDNN 3.2 (implementations `*:avx512_core_vnni` and `*:avx2_vnni`)."""


def fused_multiply_add(
    x: npt.NDArray[np.generic], shift: float, factor: float, addend: F32Array | np.float32, out: F32Array, take: Take, *, subnormal: bool
) -> None:
    """out = fma(x - shift, factor, addend): the sum is rounded to f32 once.

    The product of two f32 values is exact in f64. Their sum with the addend is rounded to 53 bits and then to 24, which differs from one
    rounding only where the f64 sum lies exactly between two f32 values; there the sign of its rounding error decides.

    Args:
        x: f32 values with shift 0, or integers such that x - shift is an integer below 2**24.
        shift: an integer.
        factor: an f32 value.
        addend: f32, broadcast against x.
        out: f32, x's shape; may be `addend`.
        take: gives scratch: 17 bytes an element.
        subnormal: whether a result below 2**-126 may have to be rounded (False where the caller knows better: it saves three passes).
    """
    wide = take(out.shape, np.float64)
    np.copyto(wide, x, casting="unsafe")
    if shift:
        np.subtract(wide, np.float64(shift), out=wide)
    np.multiply(wide, np.float64(factor), out=wide)
    np.add(wide, addend, out=wide)
    bits = take(out.shape, np.int64)
    np.bitwise_and(wide.view(np.int64), _LOW_BITS, out=bits)
    suspects = np.equal(bits, _TIE, out=take(out.shape, np.bool_))
    if subnormal:
        suspects |= (np.abs(wide) < _SMALLEST_NORMAL) & (wide != 0)
    if not suspects.any():
        np.copyto(out, wide, casting="unsafe")
        return
    where = np.nonzero(suspects)
    product = (x[where].astype(np.float64) - shift) * np.float64(factor)
    repaired = _round_once(product, np.broadcast_to(addend, out.shape)[where].astype(np.float64))
    np.copyto(out, wide, casting="unsafe")
    out[where] = repaired


def _round_once(a: F64Array, b: F64Array) -> F32Array:
    """f32(a + b) with one rounding, a and b exact f64 values (TwoSum gives the f64 sum's error)."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    result = total.astype(np.float32)
    off = total - result.astype(np.float64)
    neighbour = np.nextafter(result, np.where(off > 0, np.float32(np.inf), np.float32(-np.inf)))
    # One past the largest f32 stands for the value that overflow rounds from.
    beyond = np.where(np.isinf(neighbour), np.copysign(2.0**128, neighbour), neighbour.astype(np.float64))
    tie = (off != 0) & (beyond - total == off)
    upper, lower = np.maximum(result, neighbour), np.minimum(result, neighbour)
    return np.where(tie & (error > 0), upper, np.where(tie & (error < 0), lower, result)).astype(np.float32)
