"""Floats of 8 and 4 bits: the numbers that there are, and rounding to them.

The formats are those of ONNX (https://onnx.ai/onnx/technical/float8.html, float4.html). Such values
are carried in f32, which holds every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..types import DType


@dataclass(frozen=True)
class _Format:
    """A sign, an exponent and a mantissa, from the highest bit.

    Attributes:
        exponent, mantissa: how many bits.
        bias: of the exponent.
        special: which codes are no finite numbers: `ieee`: those of the highest exponent; `fn`: NaN
            is the last one; `fnuz`: NaN is what would be -0; `finite`: none.
    """

    exponent: int
    mantissa: int
    bias: int
    special: Literal["ieee", "fn", "fnuz", "finite"]


_FORMATS = {
    DType.F8E4M3FN: _Format(4, 3, 7, "fn"),
    DType.F8E4M3FNUZ: _Format(4, 3, 8, "fnuz"),
    DType.F8E5M2: _Format(5, 2, 15, "ieee"),
    DType.F8E5M2FNUZ: _Format(5, 2, 16, "fnuz"),
    DType.F4E2M1: _Format(2, 1, 1, "finite"),
}


_BIAS_OF_POWERS = 127  # of float8e8m0: an exponent and nothing more


@cache
def decoded(dtype: DType) -> npt.NDArray[np.float32]:
    """What each code of a format stands for."""
    if dtype is DType.F8E8M0:
        powers = np.ldexp(np.float32(1), np.arange(255) - _BIAS_OF_POWERS)
        powers = np.append(powers, np.float32(np.nan)).astype(np.float32)
        powers.setflags(write=False)
        return powers
    form = _FORMATS[dtype]
    codes = np.arange(1 << (form.exponent + form.mantissa))
    exponent, mantissa = codes >> form.mantissa, codes % (1 << form.mantissa)
    steps = mantissa + ((exponent > 0) << form.mantissa)
    values = np.ldexp(steps.astype(np.float32), np.maximum(exponent, 1) - form.bias - form.mantissa)
    if form.special == "ieee":
        highest = exponent == exponent[-1]
        values[highest] = np.where(mantissa[highest] == 0, np.inf, np.nan)
    elif form.special == "fn":
        values[-1] = np.nan
    both = np.concatenate([values, -values])
    if form.special == "fnuz":
        both[len(values)] = np.nan
    both.setflags(write=False)
    return both


def rounded(x: npt.NDArray[Any], dtype: DType, *, saturate: bool) -> npt.NDArray[np.float32]:
    """The nearest number of a format (ties to the even mantissa), carried in f32.

    Args:
        x: floats.
        dtype: the format.
        saturate: what is beyond the largest number becomes that one; otherwise infinity, or NaN
            where the format has no infinity. A format without NaN always saturates, and makes -0 of
            NaN.
    """
    form, table = _FORMATS[dtype], decoded(dtype)
    numbers = table[: len(table) // 2].astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    beyond = 2 * numbers[-1] - numbers[-2]  # where the next one would be
    middles = (numbers + np.append(numbers[1:], beyond)) / 2
    size = np.abs(x.astype(np.float64))
    index = np.searchsorted(middles, size)
    # in the middle of two, searchsorted takes the lower one
    tie = middles[np.minimum(index, len(middles) - 1)] == size
    index += tie & (index % 2 == 1)
    largest = numbers[-1]
    if not saturate and form.special != "finite":
        largest = np.inf if form.special == "ieee" else np.nan
    found = np.append(numbers, largest)[index]
    found = np.copysign(found, x)
    if form.special == "fnuz":
        found = found + 0.0  # no -0
    nothing = -0.0 if form.special == "finite" else np.nan  # as ml_dtypes has it
    found = np.where(np.isnan(x), nothing, found)
    return np.asarray(found, np.float32)


def power_of_two(x: npt.NDArray[Any], how: str, *, saturate: bool) -> npt.NDArray[np.float32]:
    """A number of float8e8m0, carried in f32: a power of two near |x|.

    Args:
        x: floats, which are taken as f32; the sign is dropped, infinities become NaN.
        how: the next power `up` or `down`, or the `nearest` one.
        saturate: what is beyond 2^127 becomes that; otherwise NaN.
    """
    bits = x.astype(np.float32).view(np.uint32)
    code, fraction = (bits >> 23).astype(np.int64) & 255, bits & 0x7FFFFF
    half = 1 << 22
    # half of the step: up, but for subnormal numbers, where ONNX's own function goes down
    nearest = (fraction > half) | ((fraction == half) & (code > 0))
    more = {"up": fraction > 0, "down": np.zeros_like(nearest), "nearest": nearest}[how]
    found = np.where(code == 255, code, code + more)
    if saturate:
        found = np.where((code < 255) & (found == 255), 254, found)
    return np.asarray(decoded(DType.F8E8M0)[found])
