"""What a sum of products of codes comes to: both runtimes add in 32 bits, and NumPy takes single
products for exact in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.ops.spec import Array
from ..ir.types import DType
from .arguments import SOURCE_AT_RUN_TIME, WEIGHTS_AT_RUN_TIME
from .types import Step

ACCUMULATOR = (1 << 31) - 1
"""What 32 bits hold."""

CODE_REACH = 1 << 16
"""How far a code may lie from its zero point: f32 holds that many times a difference of two 8-bit
codes, and no much larger number.
"""

EXACT_IN_F32 = 1 << 24
"""Up to here f32 holds every integer."""

WEIGHTS_ZERO_POINTS = range(-128, 128)
"""The zero points of s8 weights: those among their codes, so that no difference exceeds 255."""


_AT_ONCE = 1 << 18
"""So many weights are looked at together: their copies in f32 stay in the processor's second cache."""


def reach_of(dtype: DType, zero_point: float) -> float:
    """How far the codes of a type lie from a zero point, at most."""
    low, high = dtype.range
    return max(abs(low - zero_point), abs(high - zero_point))


def accumulated(
    shape: Sequence[int],
    data: Array | None,
    zero_point: int,
    summed: Sequence[int],
    reach: float,
    limit: float = ACCUMULATOR,
) -> float:
    """A bound on the sums of products of codes.

    Args:
        shape: of the weights.
        data: the weights; None where they are computed at run time.
        zero_point: of the weights.
        summed: axes of the weights that are summed over.
        reach: of the source, see `reach_of`.
        limit: what the bound is held against: it is no finer than that needs.
    """
    bound = math.prod(shape[axis] for axis in summed) * 255 * reach
    if bound <= limit or data is None:
        return bound
    # the weights themselves say more
    sums = np.abs(data.astype(np.int32) - zero_point).sum(tuple(summed), dtype=np.int64)
    return float(sums.max(initial=0)) * reach


def largest_sum(weights: Array, codes: tuple[int, int], summed: Sequence[int]) -> float:
    """A bound on the magnitude of sums of some of the products of weights with codes: the largest that there is
    where f32 holds the sums of the weights, and else no less than 2^24.

    Args:
        weights: integers, of any type.
        codes: the least and the largest one, with 0 between them.
        summed: the axes of the weights that are summed over.
    """
    kept = [axis for axis in range(weights.ndim) if axis not in summed]
    many, terms = (math.prod(weights.shape[axis] for axis in axes) for axes in (kept, summed))
    rows = weights.transpose(*kept, *summed).reshape(many, terms)
    least, most = codes
    largest, ones = 0.0, np.ones(terms, np.float32)
    at_once = max(1, _AT_ONCE // max(1, terms))
    for start in range(0, many, at_once):
        part = rows[start : start + at_once].astype(np.float32)
        total = (part @ ones).astype(np.float64)
        # a sum of integers of one sign in f32 is exact below 2^24, and else not below it either
        magnitude = (np.abs(part, out=part) @ ones).astype(np.float64)
        if magnitude.max(initial=0) >= EXACT_IN_F32:
            return EXACT_IN_F32 * float(max(most, -least, 1))
        positive, negative = (total + magnitude) / 2, (total - magnitude) / 2
        for found in (positive * most + negative * least, positive * least + negative * most):
            largest = max(largest, float(np.abs(found).max(initial=0)))
    return largest


def source_reach(step: Step, dtype: DType) -> float:
    """How far the codes of a step's source lie from its zero points, at most."""
    if step.arg(SOURCE_AT_RUN_TIME[1]) is not None:  # a zero point that is computed is a code
        return float(dtype.range[1] - dtype.range[0])
    zeros = step.attr.zero_points.get("src")
    values = (0,) if zeros is None else zeros.values
    # the library takes the nearest integer; one of Python may be longer than NumPy's
    nearest = (np.rint(zero) if isinstance(zero, float) else zero for zero in values)
    return max((reach_of(dtype, zero) for zero in nearest), default=0.0)


def sums_of(
    step: Step,
    dtype: DType,
    shape: Sequence[int],
    data: Array | None,
    limit: float = ACCUMULATOR,
) -> float:
    """A bound on the sums of products of codes of a step.

    Args:
        step: a convolution, deconvolution or matmul.
        dtype: of its source.
        shape: of its weights.
        data: the weights; None where they are computed at run time.
        limit: see `accumulated`.
    """
    zeros: tuple[int, ...] = (0,)
    if step.arg(WEIGHTS_AT_RUN_TIME[1]) is not None:
        zeros = DType.S8.range
    elif "weights" in step.attr.zero_points:
        zeros = tuple(int(zero) for zero in step.attr.zero_points["weights"].values)
    summed: Sequence[int] = (len(shape) - 2,)
    if step.primitive == "convolution":
        summed = range(1, len(shape))
    elif step.primitive == "deconvolution":
        summed = (0, *range(2, len(shape)))
    reach = source_reach(step, dtype)
    bounds = (accumulated(shape, data, zero, summed, reach, limit) for zero in set(zeros))
    return max(bounds, default=0.0)


def as_s8(codes: Array, kind: DType) -> Array:
    """Codes of 8 bits or fewer as s8 codes: those of u8 less 128, others as they are."""
    return (codes.astype(np.int16) - kind.beyond_s8).astype(np.int8)


def less_zero_points(codes: Array, zeros: Array, axis: int | None) -> Array | None:
    """Codes less their zero points, one for all or one for each index of an axis, as s8 codes; None
    where s8 does not hold them.
    """
    if codes.dtype == np.int8 and not zeros.any():
        return codes
    shape = [1] * codes.ndim
    if axis is not None and zeros.size > 1:
        shape[axis] = zeros.size
    # 16 bits hold a code of 8 less any zero point of 8; more memory is taken where they may not
    small = codes.dtype.itemsize == 1 and np.abs(zeros).max(initial=0) <= DType.U8.range[1]
    wide: type[np.signedinteger[Any]] = np.int16 if small else np.int64
    less = codes.astype(wide) - zeros.astype(wide).reshape(shape if zeros.size > 1 else ())
    low, high = DType.S8.range
    fits = less.size == 0 or (less.min() >= low and less.max() <= high)
    return less.astype(np.int8) if fits else None
