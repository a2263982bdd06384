"""FakeQuantize against its formula in exact fractions; Quantize and Dequantize against ONNX Runtime
and against exact arithmetic.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.judge import ort_session

from fqfuse.ir.ops import OPS
from fqfuse.ir.types import DType, Quantization

from .harness import ELEMENT_TYPES, normal, rng

F32 = st.floats(
    width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**40), max_value=2.0**40
)
MODEST = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000)


# -- FakeQuantize ----------------------------------------------------------------------------------


def fake_quantize(x: np.ndarray, *ranges: Any, levels: int) -> np.ndarray:
    spec = OPS["FakeQuantize"]
    arrays = [x, *(np.asarray(r, np.float32) for r in ranges)]
    return spec.evaluate(arrays, spec.complete({"levels": levels}))[0]


def definition(x: float, il: float, ih: float, ol: float, oh: float, levels: int) -> float:
    """One element in Python floats, which are float64."""
    if x <= min(il, ih):
        return ol
    if x > max(il, ih):
        return oh
    return round((x - il) / (ih - il) * (levels - 1)) / (levels - 1) * (oh - ol) + ol


@given(
    st.lists(F32, min_size=1, max_size=8),
    F32,
    F32,
    MODEST,
    MODEST,
    st.sampled_from([2, 3, 16, 255, 256, 65536]),
)
@example([0.5, 1.5, 2.5, 3.5, -0.5], 0.0, 255.0, 0.0, 255.0, 256)  # ties go to even
@example([1.0, 0.5, -1.0, 3.0], 1.0, 1.0, -2.0, 5.0, 256)  # il == ih: a threshold
@example([1.0, 0.5, -1.0, 3.0], 2.0, -2.0, -2.0, 5.0, 8)  # inverted input range
@example([0.0, 0.25], -1.0, 1.0, 3.0, -3.0, 4)  # inverted output range
def test_fake_quantize_is_the_definition_in_float64(xs, il, ih, ol, oh, levels):
    expected = np.asarray([definition(x, il, ih, ol, oh, levels) for x in xs], np.float64).astype(
        np.float32
    )
    np.testing.assert_array_equal(
        fake_quantize(np.asarray(xs, np.float32), il, ih, ol, oh, levels=levels), expected
    )


@given(MODEST, MODEST, MODEST, MODEST, MODEST, st.sampled_from([2, 5, 255, 256]))
def test_fake_quantize_is_right_in_exact_arithmetic(x, il, ih, ol, oh, levels):
    assume(il != ih and min(il, ih) < x <= max(il, ih))
    position = (Fraction(x) - Fraction(il)) / (Fraction(ih) - Fraction(il)) * (levels - 1)
    # float64 may round a position apart that lies within its own error of a tie; the bound is far
    # above that error.
    assume(
        abs(position % 1 - Fraction(1, 2)) > Fraction(1, 10**9) * levels
        or position % 1 == Fraction(1, 2)
    )
    assume(position % 1 != Fraction(1, 2) or float(position) == position)
    exact = Fraction(round(position), levels - 1) * (Fraction(oh) - Fraction(ol)) + Fraction(ol)
    # Half an ulp for the store in f32, and a little for float64 where terms cancel.
    bound = (
        Fraction(float(np.spacing(np.float32(abs(float(exact)))))) / 2
        + Fraction(max(abs(ol), abs(oh))) / 2**48
    )
    got = Fraction(
        float(fake_quantize(np.asarray([x], np.float32), il, ih, ol, oh, levels=levels)[0])
    )
    assert abs(got - exact) <= bound


def test_fake_quantize_of_special_values():
    x = np.asarray([np.nan, np.inf, -np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(
        fake_quantize(x, -1, 1, -4, 4, levels=256)[:3], np.asarray([np.nan, 4, -4], np.float32)
    )
    # Fractional zero point (il = -ih, 256 levels): no level at 0, and -0.0 lies on the tie between
    # 127 and 128: to even.
    assert fake_quantize(x, -1, 1, -4, 4, levels=256)[3] == np.float32(128 / 255 * 8 - 4)
    np.testing.assert_array_equal(
        fake_quantize(x, 1, 1, -4, 4, levels=2), np.asarray([np.nan, 4, -4, -4], np.float32)
    )


def test_fake_quantize_of_ranges_along_channels():
    x, low, high = normal(2, 3, 4, 5, scale=2), normal(3, 1, 1), normal(1, 3, 1, 1) + 3
    y = fake_quantize(x, low, high, low, high, levels=16)
    for channel in range(3):
        one = fake_quantize(
            x[:, channel], low[channel], high[0, channel], low[channel], high[0, channel], levels=16
        )
        np.testing.assert_array_equal(y[:, channel], one)


@given(st.sampled_from([2, 15, 255, 256]), st.integers(0, 10**6))
def test_fake_quantize_twice_is_once(levels, seed):
    """With equal input and output ranges its values are its own grid, unless float64's rounding
    puts a level on the other side of a tie.
    """
    x = rng("idempotent", seed).normal(size=50).astype(np.float32)
    low, high = np.float32(-1.3), np.float32(2.1)
    once = fake_quantize(x, low, high, low, high, levels=levels)
    np.testing.assert_array_equal(fake_quantize(once, low, high, low, high, levels=levels), once)


# -- Quantize --------------------------------------------------------------------------------------

_TIES = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, 127.5, -128.5, 254.5, 255.5, 32767.5, 65535.5]
TIES = np.asarray([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 0, -0.0, *_TIES], np.float32)


def quantize(
    x: np.ndarray,
    quant: Quantization,
    dtype: DType,
    order: str,
    lo: int | None = None,
    hi: int | None = None,
) -> np.ndarray:
    spec = OPS["Quantize"]
    low, high = dtype.range
    attrs = {
        "quant": quant,
        "dtype": dtype,
        "order": order,
        "lo": low if lo is None else lo,
        "hi": high if hi is None else hi,
    }
    return spec.evaluate([x], spec.complete(attrs))[0]


def dequantize(codes: np.ndarray, quant: Quantization) -> np.ndarray:
    return OPS["Dequantize"].evaluate([codes], {"quant": quant})[0]


def ort_quantizer(
    op: str, x: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 1
) -> np.ndarray:
    code_type = ELEMENT_TYPES[DType.from_numpy(zero.dtype)]
    kinds = [
        TensorProto.FLOAT if op == "QuantizeLinear" else code_type,
        TensorProto.FLOAT,
        code_type,
    ]
    infos = [
        helper.make_tensor_value_info(n, k, a.shape)
        for n, k, a in zip("xsz", kinds, (x, scale, zero), strict=True)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "s", "z"], ["y"], axis=axis)],
        op,
        infos,
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = ort_session(model, optimized=True)
    return session.run(None, {"x": x, "s": scale, "z": zero})[0]


CODES = [
    (DType.U8, 128),
    (DType.U8, 3),
    (DType.S8, 0),
    (DType.S8, -7),
    (DType.U16, 32769),
    (DType.S16, -5),
]


@pytest.mark.parametrize(("dtype", "zero"), CODES, ids=lambda v: getattr(v, "value", v))
@pytest.mark.parametrize("scale", [1.0, 0.1, 0.5, 3e-3, 7.0])
def test_quantize_round_first_is_onnx(dtype, zero, scale):
    # every tie near the range
    grid = (np.arange(-600, 600, dtype=np.float32) * np.float32(0.5)) * np.float32(scale)
    with np.errstate(over="ignore"):
        scaled = TIES * np.float32(scale)
    x = np.concatenate([TIES, scaled, grid, normal(500, scale=100 * scale)])
    expected = ort_quantizer(
        "QuantizeLinear", x, np.asarray(scale, np.float32), np.asarray(zero, dtype.numpy)
    )
    np.testing.assert_array_equal(
        quantize(x, Quantization.of(scale, zero), dtype, "round_first"), expected
    )


@pytest.mark.parametrize(("dtype", "zero"), CODES, ids=lambda v: getattr(v, "value", v))
def test_dequantize_is_onnx(dtype, zero):
    low, high = dtype.range
    codes = np.unique(np.linspace(low, high, 1000).astype(dtype.numpy))
    expected = ort_quantizer(
        "DequantizeLinear", codes, np.asarray(0.037, np.float32), np.asarray(zero, dtype.numpy)
    )
    np.testing.assert_array_equal(dequantize(codes, Quantization.of(0.037, zero)), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_axis_is_onnx(axis):
    x = normal(3, 4, 5, scale=4)
    size = x.shape[axis]
    scales, zeros = (
        np.linspace(0.02, 0.3, size, dtype=np.float32),
        np.arange(-2, size - 2, dtype=np.int8),
    )
    quant = Quantization.of(scales, zeros, axis)
    codes = quantize(x, quant, DType.S8, "round_first")
    np.testing.assert_array_equal(codes, ort_quantizer("QuantizeLinear", x, scales, zeros, axis))
    np.testing.assert_array_equal(
        dequantize(codes, quant), ort_quantizer("DequantizeLinear", codes, scales, zeros, axis)
    )


@given(
    st.lists(F32, min_size=1, max_size=8),
    st.sampled_from([0.25, 0.1, 1.0, 300.0]),
    st.integers(-300, 300),
    st.sampled_from(["zp_first", "round_first"]),
)
# 0.5 + 1 is a tie as well, and 0.49999997 + 1 rounds to one in f32
@example([0.5, 1.5, 2.5, 0.49999997], 1.0, 1, "zp_first")
@example([0.5, 1.5, 2.5, -0.5, -1.5], 1.0, 3, "round_first")
def test_quantize_steps_are_rounded_to_f32_each(xs, scale, zero, order):
    """t = f32(x/s); f32(t + z) before or after rounding to even; then the bounds: with Python
    integers and single f32 operations.
    """
    expected = []
    for x in xs:
        t = np.float32(x) / np.float32(scale)
        real = (
            np.rint(t) + np.float32(zero)
            if order == "round_first"
            else np.rint(t + np.float32(zero))
        )
        expected.append(min(max(int(real), -120), 110))
    quant = Quantization.of(scale, zero)
    actual = quantize(np.asarray(xs, np.float32), quant, DType.S8, order, lo=-120, hi=110)
    np.testing.assert_array_equal(actual, np.asarray(expected, np.int8))


def test_orders_differ_at_ties_with_an_odd_zero_point_only():
    x = np.arange(-40, 40, dtype=np.float32) / 4
    for zero, differs in ((1, True), (2, False), (0, False)):
        quant = Quantization.of(1, zero)
        a, b = (quantize(x, quant, DType.S8, order) for order in ("zp_first", "round_first"))
        assert (not np.array_equal(a, b)) == differs


def test_quantize_with_a_fractional_zero_point():
    quant = Quantization.of(2 / 255, 127.5)
    np.testing.assert_array_equal(
        quantize(np.asarray([-1, 0, 1, 5], np.float32), quant, DType.U8, "zp_first"),
        np.asarray([0, 128, 255, 255], np.uint8),
    )


@pytest.mark.parametrize("dtype", [DType.S32, DType.U32])
def test_quantize_to_32_bits_holds_the_bounds(dtype):
    low, high = dtype.range
    x = np.asarray([-np.inf, np.inf, np.nan, 3e9, -3e9, 2147483520, 16777216, 5.5], np.float32)
    expected = [low if not v > low else high if v >= high else int(np.rint(v)) for v in x.tolist()]
    np.testing.assert_array_equal(
        quantize(x, Quantization.of(1), dtype, "zp_first"), np.asarray(expected, dtype.numpy)
    )


def test_four_bit_codes_travel_in_bytes():
    quant = Quantization.of(1.0)
    for dtype in (DType.S4, DType.U4):
        codes = quantize(np.arange(-20, 20, dtype=np.float32), quant, dtype, "round_first")
        assert (codes.dtype, int(codes.min()), int(codes.max())) == (dtype.numpy, *dtype.range)
        np.testing.assert_array_equal(dequantize(codes, quant), codes.astype(np.float32))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-128, 127), st.sampled_from([0.1, 1e-3, 2.5]))
def test_dequantize_of_s32(code, zero, scale):
    expected = (np.float32(code) - np.float32(zero)) * np.float32(scale)
    assert dequantize(np.asarray([code], np.int32), Quantization.of(scale, zero))[0] == expected


def test_dequantize_then_quantize_gives_the_codes_back():
    codes = np.arange(256, dtype=np.uint8)
    for scale in (0.1, 0.0039, 3.7):
        for order in ("zp_first", "round_first"):
            quant = Quantization.of(scale, 77)
            np.testing.assert_array_equal(
                quantize(dequantize(codes, quant), quant, DType.U8, order), codes
            )
