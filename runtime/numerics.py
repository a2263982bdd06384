"""Which of the legal float orders a run follows, and the f32 arithmetic that NumPy does not have:
the fused multiply-add.

An int8 primitive accumulates in exact integers; what follows is f32, and two libraries (or two
implementations in one library) may multiply and round in different orders. `NumericsProfile` says
which order is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InvalidInput
from ..ir.types import DType
from ..plan.summation import Summation

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]

U32Array = npt.NDArray[np.uint32]

_LOW_BITS = np.int64(0x1FFFFFFF)
_TIE = np.int64(0x10000000)
_SMALLEST_NORMAL = 2.0**-126
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class NumericsProfile:
    """The float order of a oneDNN version and implementation.

    Attributes:
        name: what the order belongs to.
        combine: True: `acc * (src_scale * weights_scale)`, as `factors_of` has it;
            False: `(acc * src_scale) * weights_scale`.
        reciprocal: True: `y * f32(1 / dst_scale)`; False: `y / dst_scale`.
        fma: True: the sum and linear post-ops round once (`fma`); False: multiply, round, add,
            round.
        nan_s8, nan_u8, nan_s32: what a NaN becomes in an integer destination.
        isa: whose integer products they are, see `plan/summation.py`: those of `vnni` are exact.
        sums: how these are summed, where a step does not tell (an inner product, which runs as a
            matmul); None: it does.
    """

    name: str = "oneDNN 3.2, VNNI"
    combine: bool = True
    reciprocal: bool = True
    fma: bool = True
    nan_s8: int = 127
    nan_u8: int = 0
    nan_s32: int = 2147483520
    isa: str = "vnni"
    sums: Summation | None = None

    def nan(self, dtype: DType) -> int:
        """The integer that a NaN becomes in a destination of this type (0 where oneDNN has no such
        destination).
        """
        return {DType.S8: self.nan_s8, DType.U8: self.nan_u8, DType.S32: self.nan_s32}.get(dtype, 0)


VNNI_3_2 = NumericsProfile()
"""The VNNI kernels of oneDNN 3.2 (implementations `*:avx512_core_vnni` and `*:avx2_vnni`)."""

PROFILES = {
    "vnni": VNNI_3_2,
    "avx512_core": NumericsProfile("oneDNN 3.2, AVX-512 without VNNI", isa="avx512_core"),
    "avx2": NumericsProfile("oneDNN 3.2, AVX2", isa="avx2"),
    # SSE4.1 has no fused multiply-add
    "sse41": NumericsProfile("oneDNN 3.2, SSE4.1", fma=False, isa="sse41"),
}
"""Instruction set -> what its kernels in oneDNN 3.2 compute; the sums of products are in
`plan/summation.py`."""


def check_isa(isa: object, backend: str, *, needed: bool = False) -> None:
    """Refuses what is no instruction set to emulate, or not for this backend; None is none, where one is
    not `needed`.

    Raises:
        InvalidInput: there is none of this name, or the real library is asked for.
    """
    if isa is None and not needed:
        return
    if not isinstance(isa, str) or isa not in PROFILES:
        raise InvalidInput(
            f"no instruction set {isa!r}", hint=f"choose one of: {', '.join(PROFILES)}"
        )
    if backend == "onednn":
        raise InvalidInput(
            f"the backend onednn runs on this CPU, and emulates no {isa}",
            hint=f"take the backend numpy, or start the process with ONEDNN_MAX_CPU_ISA={isa.upper()}",
        )


def factors_of(first: F32Array, second: F32Array) -> tuple[F32Array, ...]:
    """Scales of source and weights as factors of an integer: their product, rounded first; where f32
    does not hold it to full precision, the smaller one and then the larger one. The sum 0 stays 0
    so, and no other one is lost.
    """
    with np.errstate(all="ignore"):
        product = np.multiply(first, second)
    size, one, other = np.abs(product), np.abs(first), np.abs(second)
    held = (size >= _SMALLEST_NORMAL) & (size <= _LARGEST)
    if held.all():
        return (product,)
    given = [(each == 0) | ~np.isfinite(each) for each in (one, other)]
    apart = ~(held | given[0] | given[1])
    if not apart.any():
        return (product,)
    small, large = (np.where(one <= other, *pair) for pair in ((first, second), (second, first)))
    return np.where(apart, small, product), np.where(apart, large, np.float32(1))


def fused_multiply_add(
    x: F32Array,
    factor: float,
    addend: F32Array | np.float32,
    out: F32Array,
    wide: F64Array,
    bits: npt.NDArray[np.int64],
    subnormal: bool,
) -> None:
    """out = fma(x, factor, addend): the sum is rounded to f32 once.

    The product of two f32 values is exact in f64. Their sum with the addend is rounded to 53 bits
    and then to 24, which differs from one rounding only where the f64 sum lies exactly between two
    f32 values; there the sign of its rounding error decides.

    Args:
        x: f32.
        factor: an f32 value.
        addend: f32, broadcast against x.
        out: f32, contiguous, x's shape; may be x or `addend`.
        wide, bits: scratch of that shape.
        subnormal: whether a result below 2**-126 may have to be rounded (False where the caller
            knows better: it saves three passes).
    """
    np.copyto(wide, x)
    np.multiply(wide, np.float64(factor), wide)
    np.add(wide, addend, wide)
    np.bitwise_and(wide.view(np.int64), _LOW_BITS, bits)
    suspects = np.equal(bits, _TIE)
    if subnormal:
        suspects |= (np.abs(wide) < _SMALLEST_NORMAL) & (wide != 0)
    _store_sum(
        wide,
        np.flatnonzero(suspects),
        lambda places: _at(x, places) * np.float64(factor),
        addend,
        out,
    )


def finish_scaled_codes(
    codes: npt.NDArray[np.generic],
    zero_point: int,
    scale: float,
    y: F32Array,
    wide: F64Array,
    size: U32Array,
) -> None:
    """y = fma(scale, codes - zero_point, y) for 8-bit codes: the last step, which rounds the exact
    sum.

    scale * (code - zero_point) is a multiple of the scale's last bit, so its f64 sum with y is
    exact, and rounded to f32 once, unless y is
    much smaller than the scale (and not 0): those elements are looked for. The caller rules out
    that y is much larger.

    Args:
        codes: u8 or s8, y's shape.
        zero_point: of magnitude at most 1024.
        scale: an f32 value of magnitude at least 2**-100.
        y: f32, contiguous, magnitude at most 2**20 * |scale|; gets the result.
        wide: scale * (codes - zero_point) + y in f64.
        size: the bits of |y|, minus 1 so that 0 wraps around to the top: the order of positive
            floats is that of their bits.
    """
    # With b bits in code - zero_point, the sum spans 53 bits or fewer from |y| = 2**(b - 28) *
    # (power of two below the scale) upwards.
    limit = np.float32(
        2.0 ** (math.frexp(scale)[1] - 1 + (255 + abs(zero_point)).bit_length() - 28)
    ).view(np.uint32)
    if size.size and size.min() < limit:
        suspects = np.flatnonzero(size < limit)
        _store_sum(
            wide,
            suspects,
            lambda places: (_at(codes, places) - zero_point) * np.float64(scale),
            y,
            y,
        )
    else:
        np.copyto(y, wide, casting="unsafe")


def _store_sum(
    wide: F64Array,
    suspects: npt.NDArray[np.int64],
    product: Callable[[npt.NDArray[np.int64]], F64Array],
    addend: F32Array | np.float32,
    out: F32Array,
) -> None:
    """out = f32(wide), but rounded once at the suspects (flat indices)."""
    if not suspects.size:
        np.copyto(out, wide, casting="unsafe")
        return
    other = (
        np.float64(addend)
        if np.ndim(addend) == 0
        else _at(np.broadcast_to(addend, out.shape), suspects)
    )
    repaired = _round_once(product(suspects), other)
    np.copyto(out, wide, casting="unsafe")
    out.reshape(-1)[suspects] = repaired


def _at(array: npt.NDArray[np.generic], places: npt.NDArray[np.int64]) -> F64Array:
    """The elements at flat indices, as f64, whatever the strides."""
    if array.flags.c_contiguous:
        return array.reshape(-1)[places].astype(np.float64)
    return array[np.unravel_index(places, array.shape)].astype(np.float64)


def _round_once(a: F64Array, b: F64Array | np.float64) -> F32Array:
    """f32(a + b) with one rounding, a and b exact f64 values (TwoSum gives the f64 sum's error)."""
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    result = total.astype(np.float32)
    off = total - result.astype(np.float64)
    neighbour = np.nextafter(result, np.where(off > 0, np.float32(np.inf), np.float32(-np.inf)))
    # One past the largest f32 stands for the value that overflow rounds from.
    beyond = np.where(
        np.isinf(neighbour),
        np.copysign(np.float64(2.0**128), neighbour),
        neighbour.astype(np.float64),
    )
    tie = (off != 0) & (beyond - total == off)
    upper, lower = np.maximum(result, neighbour), np.minimum(result, neighbour)
    return np.where(tie & (error > 0), upper, np.where(tie & (error < 0), lower, result)).astype(
        np.float32
    )
