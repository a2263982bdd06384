"""Products that another of oneDNN's implementations computes faster than the first one that takes
them. The choice is by shapes and post-ops, as it was measured, so that it is always the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import Enum

from ...ir.ops.windows import Window
from ...onednn.attributes import Eltwise
from ...onednn.enums import AlgKind, DataType
from ...onednn.primitive_desc import PrimitiveDesc
from .binding import Binder

_CODES = (DataType.u8, DataType.s8)
_AMX = "avx512_core_amx"
_BY_VNNI = re.compile(r"(brgconv(_1x1)?|brg):avx512_core_vnni")
_OLDER_AMX = re.compile(f"jit:{_AMX}")
_OLDER_DEPTHWISE = re.compile(r"jit_int8:.*")
_GEMM = re.compile("gemm:jit:f32")
_LARGE_MAP = 28 * 28


class _Heaviest(Enum):
    """The costliest of the post-ops."""

    NONE, PIECES, CURVE = range(3)


_CURVES = frozenset(
    {
        AlgKind.eltwise_elu,
        AlgKind.eltwise_exp,
        AlgKind.eltwise_gelu_erf,
        AlgKind.eltwise_gelu_tanh,
        AlgKind.eltwise_log,
        AlgKind.eltwise_logistic,
        AlgKind.eltwise_mish,
        AlgKind.eltwise_pow,
        AlgKind.eltwise_soft_relu,
        AlgKind.eltwise_swish,
        AlgKind.eltwise_tanh,
    }
)
_FEW_TERMS = {_Heaviest.NONE: 48, _Heaviest.PIECES: 96, _Heaviest.CURVE: 256}
"""Sums of a convolution of so many terms, and fewer, are faster by VNNI. Kernels of AMX multiply four
times as fast, but bring each sum through memory to post-ops that they apply to a few elements at a
time. Measured, one thread, 1x1 convolutions of 16 to 1152 channels and 3x3 ones of 16 to 256: up to
these bounds VNNI takes 0.4 to 0.9 of the time, from about the double on 1.1 to 4.2 times as much.
"""
_FEW_ROWS = 8
"""So many rows, and fewer, are multiplied by a constant matrix faster by VNNI. Tiles have 16 rows, and
both kernels wait for the matrix: 1 to 8 rows, 768 x 768 to 2048 x 768, read from beyond the second
cache, took 1.0 to 1.1 of the time of AMX with the core to oneself, and 0.5 to 0.8 where its other
thread computed as well; 16 rows take the same time by both.
"""
_MANY_COLUMNS = 96
"""From so many columns on, each of which lies in one piece, a row of f32 is multiplied by each of
them faster by gemm: brgemm copies the columns into rows first. One thread, 12 heads of 64 elements: 128
keys took 0.7 of the time, 512 0.7 to 0.75, 2048 0.7; 32 and 64 keys 0.95 to 1.15.
"""


def faster_convolution(binder: Binder, desc: PrimitiveDesc, win: Window) -> PrimitiveDesc:
    """A convolution, on another implementation where that is faster.

    Args:
        binder: the binder.
        desc: the convolution, which is used up where another one is returned.
        win: its window.
    """
    return _moved(binder, desc, _for_convolution(desc, win))


def faster_product(binder: Binder, desc: PrimitiveDesc) -> PrimitiveDesc:
    """A product with a constant matrix, on another implementation where that is faster: see
    `faster_convolution`.
    """
    return _moved(binder, desc, _for_product(desc))


def faster_dots(binder: Binder, desc: PrimitiveDesc) -> PrimitiveDesc:
    """A product of two factors that are computed, as an attention's of queries and keys, on another
    implementation where that is faster: see `faster_convolution`.
    """
    return _moved(binder, desc, _GEMM if _copies_columns(desc) else None)


def sums_dots(desc: PrimitiveDesc) -> bool:
    """Whether a product is several rows, each times columns of its own that lie in one piece each.

    Of such products gemm's threads share matrices and columns, and leave each sum whole: with 1, 2, 3
    and 8 threads random ones have the same bytes.
    """
    row, columns = desc.src_md(), desc.weights_md()
    return (
        math.prod(row.dims[:-2]) > 1
        and row.dims[-2] == 1
        and row.dims[:-2] == columns.dims[:-2]
        and all(factor.is_plain and factor.dtype == DataType.f32 for factor in (row, columns))
        and columns.strides[-2] == 1 < columns.strides[-1]
    )


def _copies_columns(desc: PrimitiveDesc) -> bool:
    """Whether brgemm copies the columns that lie in one piece each, for a single row."""
    many = desc.weights_md().dims[-1] >= _MANY_COLUMNS
    return many and desc.impl_info.startswith("brg:") and sums_dots(desc)


def _for_convolution(desc: PrimitiveDesc, win: Window) -> re.Pattern[str] | None:
    """The name of the implementation that is faster; None where none is."""
    name = desc.impl_info
    if name.startswith("brdgmm_dw"):
        # Measured on AVX-512: for 3x3 windows over maps of 28x28 and more the older kernel takes
        # 0.75 to 0.9 of the time.
        large = max(win.strides) == 1 and math.prod(win.out) >= _LARGE_MAP
        return _OLDER_DEPTHWISE if large and math.prod(win.kernel) > 1 else None
    if not _takes_tiles(desc):
        return None
    heaviest = _heaviest(desc.attributes.post_ops)
    if math.prod(desc.weights_md().dims[-1 - len(win.kernel) :]) <= _FEW_TERMS[heaviest]:
        return _BY_VNNI
    # 3x3 windows in front of a swish: 0.5 to 0.75 of the time of the newer kernel
    return _OLDER_AMX if name == f"brgconv:{_AMX}" and heaviest is _Heaviest.CURVE else None


def _for_product(desc: PrimitiveDesc) -> re.Pattern[str] | None:
    few = desc.src_md().dims[-2] <= _FEW_ROWS
    return _BY_VNNI if few and _takes_tiles(desc) else None


def _takes_tiles(desc: PrimitiveDesc) -> bool:
    """Whether codes are multiplied by AMX."""
    return desc.impl_info.endswith(_AMX) and desc.src_md().dtype in _CODES


def _heaviest(post_ops: Sequence[object]) -> _Heaviest:
    kinds = {op.alg for op in post_ops if isinstance(op, Eltwise)}
    if kinds & _CURVES:
        return _Heaviest.CURVE
    return _Heaviest.PIECES if kinds - {AlgKind.eltwise_relu} else _Heaviest.NONE


def _moved(binder: Binder, desc: PrimitiveDesc, wanted: re.Pattern[str] | None) -> PrimitiveDesc:
    """The same primitive on the implementation of that name; as it was where there is none that does
    as well.
    """
    if wanted is None:
        return desc
    name, layout = desc.impl_info, desc.dst_md()  # in which the operands of post-ops lie, too
    while desc.next_impl():
        if wanted.fullmatch(desc.impl_info):
            exact = not binder.saturates(desc, None, None)
            if desc.dst_md() == layout and exact and not binder.objection(desc):
                return desc
            break
    again = PrimitiveDesc(desc.engine, desc.request)
    while again.impl_info != name and again.next_impl():
        pass
    return again
