"""Whether int8 code for CPUs without VNNI computes exactly with given weights.

Such code multiplies u8 by s8, adds the products of a pair of neighbours, and saturates that sum to s16. It is exact where no pair can
leave the range, whatever the data; s8 data is shifted by 128 to u8 first. Convolutions of s8 data also halve their weights, rounding half
to even: exact for even weights only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .enums import DataType, PrimitiveKind
from .primitive_desc import PrimitiveDesc

__all__ = ["cannot_saturate", "pairs_fit"]

_LARGEST = 255  # of u8 data
_SAFE = 64  # any two products with weights of this magnitude fit: 2 * 64 * 255 = 32640


def cannot_saturate(desc: PrimitiveDesc, weights: NDArray[Any]) -> bool:
    """True where the implementation's result is exact for all data.

    Args:
        desc: of a convolution, deconvolution or matmul whose `may_saturate` is true.
        weights: s8, in the logical shape of the primitive's weights.
    """
    if weights.dtype != np.int8:
        return False
    src = desc.request.operands["src"]
    if desc.kind != PrimitiveKind.matmul and src is not None and src.dtype == DataType.s8:
        # Halved weights are at most 64 in magnitude, so their pairs always fit.
        return not bool((weights & 1).any())
    if "gemm" in desc.impl_info:  # its pairs run along the columns that it lays out, whatever their order
        return bool(np.abs(weights.astype(np.int16)).max(initial=0) <= _SAFE)
    if desc.kind == PrimitiveKind.matmul:
        return pairs_fit(weights, weights.ndim - 2)
    grouped = src is not None and weights.ndim == len(src.dims) + 1
    return pairs_fit(weights, 2 if grouped else 1)


def pairs_fit(weights: NDArray[Any], axis: int) -> bool:
    """True where no pair of neighbours along an axis, each times a value of 0..255, sums up to more than s16 holds.

    Args:
        weights: s8.
        axis: the axis of the input channels; pairs are (0, 1), (2, 3) ...; an odd last one stands alone.
    """
    length = weights.shape[axis]
    padded = np.zeros((*weights.shape[:axis], length + length % 2, *weights.shape[axis + 1 :]), np.int32)
    padded[(slice(None),) * axis + (slice(0, length),)] = weights
    pairs = padded.reshape(*weights.shape[:axis], (length + 1) // 2, 2, *weights.shape[axis + 1 :])
    highest = np.maximum(pairs, 0).sum(axis=axis + 1) * _LARGEST
    lowest = np.minimum(pairs, 0).sum(axis=axis + 1) * _LARGEST
    return bool(highest.max(initial=0) <= 32767 and lowest.min(initial=0) >= -32768)
