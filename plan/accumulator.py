"""What a sum of products of codes comes to: both runtimes add in 32 bits, and NumPy takes single
products for exact in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.ops.spec import Array
from ..ir.types import DType

__all__ = ["ACCUMULATOR", "CODE_REACH", "WEIGHTS_ZERO_POINTS", "accumulated", "reach_of"]

ACCUMULATOR = (1 << 31) - 1
"""What 32 bits hold."""

CODE_REACH = 1 << 16
"""How far a code may lie from its zero point: f32 holds that many times a difference of two 8-bit
codes, and no much larger number.
"""

WEIGHTS_ZERO_POINTS = range(-128, 128)
"""The zero points of s8 weights: those among their codes, so that no difference exceeds 255."""


def reach_of(dtype: DType, zero_point: float) -> float:
    """How far the codes of a type lie from a zero point, at most."""
    low, high = dtype.range
    return max(abs(low - zero_point), abs(high - zero_point))


def accumulated(
    shape: Sequence[int], data: Array | None, zero_point: int, summed: Sequence[int], reach: float
) -> float:
    """A bound on the sums of products of codes.

    Args:
        shape: of the weights.
        data: the weights; None where they are computed at run time.
        zero_point: of the weights.
        summed: axes of the weights that are summed over.
        reach: of the source, see `reach_of`.
    """
    bound = math.prod(shape[axis] for axis in summed) * 255 * reach
    if bound <= ACCUMULATOR or data is None:
        return bound
    # the weights themselves say more
    sums = np.abs(data.astype(np.int32) - zero_point).sum(tuple(summed), dtype=np.int64)
    return float(sums.max(initial=0)) * reach
