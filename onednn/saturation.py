"""Whether int8 products lose bits: code for CPUs without VNNI multiplies u8 by s8, adds the
products of a pair of neighbours, and saturates that sum to s16.

It is exact where no pair can leave the range, whatever the data; s8 data is shifted by 128 to u8
first. Convolutions of s8 data also halve
their weights, rounding half to even: exact for even weights only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .enums import DataType
from .memory import MemoryDesc
from .primitive_desc import RECURRENT, PrimitiveDesc

_LOWEST, _HIGHEST = -(2**15), 2**15 - 1
# instruction sets in impl_info whose int8 code saturates
_NO_VNNI = frozenset({"sse41", "avx", "avx2", "avx512_core"})
LARGEST = 255
"""Of u8 data."""

_AT_ONCE = 64  # output channels whose pairs are looked at together


def may_saturate(desc: PrimitiveDesc) -> bool:
    """True where int8 products may lose bits, unless the weights forbid it: see `cannot_saturate`.

    The library picks code for instruction sets without VNNI on VNNI machines as well: a strided
    deconvolution with a sum post-op that is not first, or has a zero point, runs as
    `jit_uni_int8:avx2`. Exact all the same are depthwise u8 convolutions, unless they run as
    products (`gemm`, whose pairs are taps).
    """
    operands = desc.request.operands
    src, weights = (
        operands.get(role, operands.get(f"{role}_{end}"))
        for role, end in (("src", "layer"), ("weights", "layer"))
    )
    if src is None or weights is None or weights.dtype != DataType.s8 or desc.kind == "prelu":
        return False
    # recurrent layers multiply by gemm, whatever their implementation is called
    products = desc.kind in RECURRENT or any("gemm" in part for part in desc.impl_parts)
    if (
        desc.kind == "convolution"
        and src.dtype == DataType.u8
        and _is_depthwise(src, weights)
        and not products
    ):
        return False
    without_vnni = products and not desc.library.effective_isa().has_vnni
    return without_vnni or not _NO_VNNI.isdisjoint(desc.impl_parts)


def _is_depthwise(src: MemoryDesc, weights: MemoryDesc) -> bool:
    """One input and one output channel in each group; grouped weights have one dimension more than
    the source.
    """
    return len(weights.dims) == len(src.dims) + 1 and weights.dims[1:3] == (1, 1)


def cannot_saturate(
    desc: PrimitiveDesc,
    weights: NDArray[Any] | None,
    largest: int = LARGEST,
    blocks: Sequence[tuple[int, int]] | None = None,
) -> bool:
    """True where the implementation's result is exact for all data.

    Args:
        desc: of a convolution, deconvolution, matmul or recurrent layer that `may_saturate`.
        weights: s8, in the logical shape of the primitive's weights; of a recurrent layer all, in
            any shape; None where they are computed at run time.
        largest: of the u8 data that the primitive reads.
        blocks: where a matmul by gemm begins and ends to form pairs along K; None: nobody knows.
    """
    if weights is not None and weights.dtype != np.int8:
        return False
    src = desc.request.operands.get("src")
    if desc.kind != "matmul" and src is not None and src.dtype == DataType.s8:
        # Halved weights are at most 64 in magnitude, so their pairs always fit.
        return weights is not None and not bool((weights & 1).any())
    if weights is None:
        return _any_two_fit(-128, 127, largest)
    if desc.kind == "matmul":
        whole = [(0, weights.shape[-2])]
        return _columns_fit(weights, largest, blocks if "gemm" in desc.impl_info else whole)
    # its pairs run along the columns that it lays out, whatever their order
    if desc.kind in RECURRENT or "gemm" in desc.impl_info:
        return _any_two_fit(weights.min(initial=0), weights.max(initial=0), largest)
    grouped = src is not None and weights.ndim == len(src.dims) + 1
    return pairs_fit(weights, 2 if grouped else 1, largest)


def _columns_fit(
    weights: NDArray[Any], largest: int, blocks: Sequence[tuple[int, int]] | None
) -> bool:
    """True where the pairs of neighbours in the columns [..., K, N] fit, of each block of K; with None any
    two neighbours may be a pair.
    """
    depth = weights.shape[-2]
    every = ((0, depth), (min(1, depth), depth)) if blocks is None else blocks
    return all(pairs_fit(weights[..., a:b, :], weights.ndim - 2, largest) for a, b in every)


def _any_two_fit(least: int, most: int, largest: int) -> bool:
    """True where s16 holds the products of any two weights of least..most with values of 0..largest."""
    return 2 * int(most) * largest <= _HIGHEST and 2 * int(least) * largest >= _LOWEST


def pairs_fit(weights: NDArray[Any], axis: int, largest: int = LARGEST) -> bool:
    """True where no pair of neighbours along an axis, each times a value of 0..largest, sums up to
    more than s16 holds.

    Args:
        weights: s8.
        axis: the axis of the input channels; pairs are (0, 1), (2, 3) ...; an odd last one stands
            alone.
        largest: of the values.
    """
    most, least = _HIGHEST // max(largest, 1), -(-_LOWEST // max(largest, 1))
    along = np.moveaxis(weights, axis, 0)
    along = along if along.ndim > 1 else along[:, None]
    for start in range(0, along.shape[1], _AT_ONCE):  # most weights that do not fit soon show it
        part = along[:, start : start + _AT_ONCE]
        for sign, limit in ((np.maximum, most), (np.minimum, least)):
            one, two = (sign(part[first::2], 0, dtype=np.int16) for first in (0, 1))
            one[: len(two)] += two
            if sign is np.maximum and one.max(initial=0) > limit:
                return False
            if sign is np.minimum and one.min(initial=0) < limit:
                return False
    return True
