"""Floats of 8 and 4 bits against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fqfuse.ir.ops.small_floats import decoded, rounded
from fqfuse.ir.types import DType

THEIRS = {
    DType.F8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    DType.F8E5M2: ml_dtypes.float8_e5m2,
    DType.F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    DType.F4E2M1: ml_dtypes.float4_e2m1fn,
}
EACH = pytest.mark.parametrize("dtype", THEIRS)


def numbers_of(dtype: DType) -> np.ndarray:
    return np.arange(1 << dtype.bits, dtype=np.uint8).view(THEIRS[dtype]).astype(np.float32)


@EACH
def test_each_code(dtype: DType) -> None:
    np.testing.assert_array_equal(decoded(dtype), numbers_of(dtype))


@EACH
def test_rounding(dtype: DType) -> None:
    """Numbers of the format, the middles between them, what lies around, and what is far."""
    own = numbers_of(dtype)
    finite = np.sort(own[np.isfinite(own)])
    middles = (finite[1:] + finite[:-1]) / 2
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal(9999) * 10 ** rng.uniform(-9, 9, 9999)
    around = [np.nextafter(middles, np.float32(way)) for way in (-np.inf, np.inf)]
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, finite[-1] * 1.07]
    x = np.concatenate([own, middles, *around, drawn, odd]).astype(np.float32)
    expected = x.astype(THEIRS[dtype]).astype(np.float32)
    found = rounded(x, dtype, saturate=False)
    np.testing.assert_array_equal(found, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


@EACH
def test_saturation(dtype: DType) -> None:
    largest = np.nanmax(np.where(np.isinf(decoded(dtype)), np.nan, decoded(dtype)))
    x = np.float32([np.inf, -np.inf, 3e38, -3e38])
    found = rounded(x, dtype, saturate=True)
    np.testing.assert_array_equal(found, [largest, -largest, largest, -largest])
