"""The fused multiply-add in f64 arithmetic, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fqfuse.ir.types import DType
from fqfuse.runtime.kernels.base import Block, Recorder, Scratch
from fqfuse.runtime.kernels.passes import Source, SumPass
from fqfuse.runtime.numerics import VNNI_3_2, fused_multiply_add

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def round_to_f32(exact: Fraction) -> np.float32:
    """The nearest f32, ties to even, in exact arithmetic."""
    if exact == 0:
        return np.float32(0)
    size = abs(exact)
    exponent = max(size.numerator.bit_length() - size.denominator.bit_length(), -126)
    while exponent > -126 and size < Fraction(2) ** exponent:
        exponent -= 1
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    rounded = round(size / unit) * unit  # Python rounds a Fraction half to even
    value = np.float32(np.inf) if rounded >= Fraction(2) ** 128 else np.float32(float(rounded))
    return value if exact > 0 else -value


def fma(a: float, b: float, c: float) -> np.float32:
    with np.errstate(all="ignore"):
        return _fma(a, b, c)


def _fma(a: float, b: float, c: float) -> np.float32:
    x = np.array([a], np.float32)
    out = np.empty(1, np.float32)
    fused_multiply_add(
        x,
        float(np.float32(b)),
        np.array([c], np.float32),
        out,
        np.empty(1),
        np.empty(1, np.int64),
        True,
    )
    return out[0]


@given(FLOATS, FLOATS, FLOATS)
def test_any_operands_round_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert fma(a, b, c) == round_to_f32(exact)


@given(
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(1 << 23, (1 << 24) - 1),
    st.integers(-60, 60),
    st.integers(-3, 3),
    st.integers(-1100, 1100),
)
def test_sums_close_to_a_tie_round_once(a: int, b: int, apart: int, wiggle: int, tiny: int) -> None:
    # c puts the sum on a tie between two f32 values, or a hair off it: where rounding to f64 first
    # goes wrong.
    product = Fraction(a * b)
    c = float(
        np.float32(float(round_to_f32(product * Fraction(2) ** apart)) * (1 + wiggle * 2.0**-23))
    )
    assert fma(float(a), float(b), c) == round_to_f32(product + Fraction(c))
    # (2**12 + 1)**2 = 2**24 + 2**13 + 1 is a tie; whatever is added to it is lost in f64, and
    # decides.
    low = tiny * 2.0**-100
    assert fma(2.0**12 + 1, 2.0**12 + 1, low) == round_to_f32(
        Fraction((2**12 + 1) ** 2) + Fraction(low)
    )


def test_a_tie_that_f64_hides() -> None:
    square = 2.0**24 + 2.0**13  # (2**12 + 1)**2 is 1 more: a tie between this and 2 more
    assert fma(2.0**12 + 1, 2.0**12 + 1, 2.0**-100) == square + 2
    assert fma(2.0**12 + 1, 2.0**12 + 1, -(2.0**-100)) == square
    assert fma(2.0**12 + 1, 2.0**12 + 1, 0.0) == square
    assert fma(2.0**24 + 2, 1.0, 1.0 + 2.0**-23) == 2.0**24 + 4  # above the tie
    assert fma(2.0**24 + 2, 1.0, 1.0) == 2.0**24 + 4  # the tie, to even
    assert fma(2.0**24, 1.0, 1.0) == 2.0**24  # the tie, to even


@pytest.mark.parametrize("zero_point", [0, 3, 255, -1000])
@pytest.mark.parametrize("dtype", [DType.U8, DType.S8], ids=lambda d: d.value)
@settings(max_examples=25)
@given(
    scale=st.floats(2.0**-90, 2.0**40, width=32).filter(lambda s: s != 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_sum_of_codes_rounds_once(dtype: DType, zero_point: int, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = dtype.range
    old = rng.integers(low, high + 1, 64).astype(dtype.numpy)
    y = (rng.choice([-1, 1], 64) * 2.0 ** rng.uniform(-120, 15, 64)).astype(np.float32)
    y = np.where(np.abs(y) > scale * 2.0**19, np.float32(0), y)
    y[::7] = 0
    exact = [
        round_to_f32(Fraction(scale) * (int(o) - zero_point) + Fraction(float(v)))
        for o, v in zip(old, y, strict=True)
    ]
    step = SumPass(Source(index=0), scale, zero_point, dtype, VNNI_3_2.fma, float(np.abs(y).max()))
    assert step._codes_suffice
    record = Recorder(Scratch(1 << 12))
    step(y, Block((slice(0, 64),), [old], record))
    with np.errstate(all="ignore"):
        for call in record.calls:
            call()
    np.testing.assert_array_equal(y, np.array(exact))
