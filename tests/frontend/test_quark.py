"""AMD Quark's operators: against their formulas in exact arithmetic, and numbers that Quark's own kernels give."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from laws.runtimes import RUNTIMES
from onnx import TensorProto
from support.onnx_cases import model, node, ops, run_import, tensor

import fqfuse
from fqfuse.errors import InvalidModel, UnsupportedOp

DOMAIN = "com.amd.quark"
BFP, MX = "BFPQuantizeDequantize", "MXQuantizeDequantize"
OLD = {BFP: "BFPFixNeuron", MX: "MXFixNeuron"}
ROUNDING = (
    lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5),
    lambda v: np.floor(v + 0.5),
    np.rint,
)
ELEMENTS = {
    "fp8_e5m2": (2, -14, 57344, 15),
    "fp8_e4m3": (3, -6, 448, 8),
    "fp6_e3m2": (2, -2, 28, 4),
    "fp6_e2m3": (3, 0, 7.5, 2),
    "fp4_e2m1": (1, 0, 6, 2),
}
"""Bits of the mantissa, the exponent of the least normal number, the largest one, and its exponent."""


def case(op: str, shape, *, domain: str = DOMAIN, **attributes) -> onnx.ModelProto:
    nodes = [node(op, ["x"], name="q", domain=domain, **attributes)]
    return model(nodes, inputs={"x": shape}, domains={domain: 1})


# -- in f64, which holds every number and quotient by a power of two here ---------------------------


def power(size):
    """2^floor(log2 size), at least 2^-127."""
    _, exponent = np.frexp(size)
    return np.exp2(np.maximum(np.where(size == 0, -127, exponent - 1), -127).astype(np.float64))


def highest(v, seen):
    return np.where(seen, np.abs(v), 0).max(-1, keepdims=True)


def bfp(v, bit_width=16, rounding_mode=0, convert_to_bfloat_before_bfp=0, **_):
    if convert_to_bfloat_before_bfp:
        v = v.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    digits, seen = bit_width - 9, np.isfinite(v)
    step = power(highest(v, seen)) * 2.0 ** (1 - digits)
    codes = ROUNDING[rounding_mode](np.where(seen, v, 0) / step)
    return np.where(seen, np.clip(codes, 1 - 2**digits, 2**digits - 1) * step, v)


def prime(v, bit_width=16, rounding_mode=0, sub_block_size=2, sub_block_shift_bits=1, **_):
    digits, known = bit_width - 9, np.isfinite(v).all(-1, keepdims=True)
    v = np.where(known & (np.abs(v) >= 2.0**-126), v, 0)
    least = power(highest(v, True)) / 2 ** (2**sub_block_shift_bits - 1)
    parts = v.reshape(*v.shape[:-1], -1, sub_block_size)
    step = np.maximum(power(highest(parts, True)), least[..., None]) * 2.0 ** (1 - digits)
    codes = ROUNDING[rounding_mode](parts / step)
    made = (np.clip(codes, 1 - 2**digits, 2**digits - 1) * step).reshape(v.shape)
    return np.where(known, made, np.nan)


def mx(v, element_dtype="int8", rounding_mode=0, **_):
    seen = np.isfinite(v)
    top, finite = power(highest(v, seen)), np.where(seen, v, 0)
    if element_dtype == "int8":
        step = top / 64
        made = np.clip(ROUNDING[rounding_mode](finite / step), -128, 127) * step
    else:
        mantissa, least, largest, above = ELEMENTS[element_dtype]
        shared = top * 2.0**-above
        inner = finite / shared
        step = np.maximum(power(np.abs(inner)), 2.0**least) * 2.0**-mantissa
        made = np.clip(np.rint(inner / step) * step, -largest, largest) * shared
    return np.where(seen, made, v)


def by_blocks(x, formula, axis=1, block_size=8, **attributes):
    """What a formula makes of the blocks along an axis, the last one filled up with zeros."""
    axis = axis if x.ndim > 1 else 0
    turned = np.swapaxes(x, axis, -1).astype(np.float64)
    size = turned.shape[-1]
    wide = np.pad(turned, [(0, 0)] * (x.ndim - 1) + [(0, -size % block_size)])
    made = formula(wide.reshape(*wide.shape[:-1], -1, block_size), **attributes)
    cut = made.reshape(wide.shape)[..., :size]
    return np.swapaxes(cut, axis, -1).astype(np.float32)


# -- laws ------------------------------------------------------------------------------------------


def draw(rng, shape):
    """Numbers of one size, ties, numbers far apart, and what is no number."""
    kind = rng.integers(4)
    x = rng.standard_normal(shape)
    if kind == 1:
        x = np.rint(x * 8) / 16
    if kind > 1:
        x = x * np.exp2(rng.integers(-140, 120, shape).astype(np.float64))
    x = x.astype(np.float32)
    if kind == 3:
        x[rng.random(shape) < 0.1] = rng.choice(np.float32([np.inf, -np.inf, np.nan, 3e38, 1e-40]))
    return x


def drawn(rng):
    """An operator, its formula and its attributes."""
    parts = int(rng.integers(1, 4))
    shared = {"block_size": parts * int(rng.integers(1, 4)), "rounding_mode": int(rng.integers(3))}
    chosen = rng.integers(3)
    if chosen == 2:
        return MX, mx, {"element_dtype": str(rng.choice(["int8", *ELEMENTS])), **shared}
    shared["bit_width"] = int(rng.integers(10, 20))
    if chosen == 1:
        inner = {"sub_block_size": parts, "sub_block_shift_bits": int(rng.integers(3))}
        return BFP, prime, {"bfp_method": "to_bfp_prime", **inner, **shared}
    return BFP, bfp, {"convert_to_bfloat_before_bfp": int(rng.integers(2)), **shared}


@pytest.mark.slow
def test_blocks_are_what_the_formulas_say_on_each_runtime():
    rng = np.random.default_rng(0)
    for trial in range(60):
        shape = tuple(map(int, rng.integers(2, 12, rng.integers(1, 4))))
        op, formula, attributes = drawn(rng)
        attributes["axis"] = int(rng.integers(-len(shape), len(shape)))
        x = draw(rng, shape)
        old = trial % 5 == 0
        proto = case(
            OLD[op] if old else op,
            shape,
            domain="com.vai.quantize" if old else DOMAIN,
            **attributes,
        )
        expected = by_blocks(x, formula, **attributes)
        results = {"import": run_import(proto, {"x": x})[1]}
        if trial % 6 == 0:
            for runtime in RUNTIMES:
                results[runtime] = fqfuse.InferenceSession(proto, runtime, 1).run(None, {"x": x})
        for where, (found,) in results.items():
            np.testing.assert_array_equal(found, expected, err_msg=f"{where} {op} {attributes}")


GOLDEN = np.float32([1.0625, -0.53125, 3.71875, -0.0625, 100.5, -7.4375, 0.001953125, -64.25])


@pytest.mark.parametrize(
    ("op", "attributes", "expected"),
    [
        (BFP, {"bit_width": 13}, [1, -0.5, 3.75, 0, 104, -8, 0, -64]),
        (
            BFP,
            {"bit_width": 13, "bfp_method": "to_bfp_prime"},
            [1.125, -0.5, 3.75, 0, 104, -8, 0, -64],
        ),
        (MX, {}, [1.0625, -0.53125, 3.71875, -0.0625, 101, -7, 0, -64]),
        (MX, {"rounding_mode": 2}, [1.0625, -0.53125, 3.71875, -0.0625, 100, -7, 0, -64]),
        (MX, {"element_dtype": "fp8_e5m2"}, [1, -0.5, 3.5, -0.0625, 96, -7, 2**-9, -64]),
        (MX, {"element_dtype": "fp8_e4m3"}, [1, -0.5, 3.5, -0.0625, 104, -7.5, 2**-9, -64]),
        (MX, {"element_dtype": "fp6_e3m2"}, [1, -0.5, 3.5, -0.0625, 96, -7, 0, -64]),
        (MX, {"element_dtype": "fp6_e2m3"}, [1, -0.5, 3.75, -0.0625, 104, -8, 0, -64]),
        (MX, {"element_dtype": "fp4_e2m1"}, [1, -0.5, 3, 0, 96, -8, 0, -64]),
    ],
)
def test_the_numbers_of_quarks_own_kernels(op, attributes, expected):
    """Of amd-quark 0.13, in blocks of 4."""
    proto = case(op, [8], block_size=4, **attributes)
    np.testing.assert_array_equal(run_import(proto, {"x": GOLDEN})[1][0], np.float32(expected))


def test_one_number_alone_stays_and_half_floats_stay_half_floats():
    x = np.float32([[1.2345]])
    np.testing.assert_array_equal(run_import(case(MX, [1, 1]), {"x": x})[1][0], x)
    proto = case(MX, [2, 8])
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    half = GOLDEN.reshape(1, 8).repeat(2, 0).astype(np.float16)
    (found,) = fqfuse.InferenceSession(proto, "numpy").run(None, {"x": half})
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, by_blocks(half, mx, block_size=32).astype(np.float16))


# -- codes -----------------------------------------------------------------------------------------


def pair(kind: int, scale, zero, *, old: bool = False, **attributes) -> onnx.ModelProto:
    domain = "com.vai.quantize" if old else DOMAIN
    first, second = (
        (f"Vitis{op}" if old else f"Extended{op}") for op in ("QuantizeLinear", "DequantizeLinear")
    )
    nodes = [
        node(first, ["x", "s", "z"], ["q"], name="q", domain=domain, **attributes),
        node(second, ["q", "s", "z"], name="d", domain=domain, **attributes),
    ]
    zeros = onnx.helper.make_tensor("z", kind, np.shape(zero), np.ravel(zero).tolist())
    constants = {"s": np.float32(scale), "z": tensor("z", zeros)}
    return model(nodes, constants=constants, domains={domain: 1})


@pytest.mark.parametrize("old", [False, True])
def test_integers_are_those_of_quantize_linear(old):
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32) * 3
    for kind, bounds in ((TensorProto.INT8, (-128, 127)), (TensorProto.UINT16, (0, 65535))):
        proto = pair(kind, 0.03125, 3, old=old)
        graph, (found,) = run_import(proto, {"x": x})
        assert ops(graph) == ["Quantize", "Dequantize"]
        expected = (np.clip(np.rint(x / 0.03125) + 3, *bounds) - 3) * np.float32(0.03125)
        np.testing.assert_array_equal(found, expected)
    scales = np.float32([0.5, 0.25])  # without an axis the first one is meant
    graph, (found,) = run_import(pair(TensorProto.INT8, scales, [0, 0], old=old), {"x": x})
    along = scales.reshape(2, 1, 1, 1)
    np.testing.assert_array_equal(found, np.clip(np.rint(x / along), -128, 127) * along)
    assert {fate["quantizer"] for fate in fqfuse.compile(proto).fates()} == {"q"}


def test_floats_of_16_bits_are_rounded():
    x = np.random.default_rng(2).standard_normal((2, 3, 4, 5)).astype(np.float32)
    x.flat[:6] = [1e6, -1e6, 1e-7, 1 + 2**-8, 1 + 3 * 2**-8, 3e-41]
    for kind, dtype, most in (
        (TensorProto.FLOAT16, np.float16, 65504.0),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, np.inf),
    ):
        for scale, zero in ((1.0, 0.0), (0.5, 1.0)):
            value = np.clip(x / np.float32(scale) + np.float32(zero), -most, most)
            codes = value.astype(dtype).astype(np.float32)
            expected = (codes - np.float32(zero)) * np.float32(scale)
            proto = pair(kind, scale, zero)
            for runtime in RUNTIMES:
                (found,) = fqfuse.InferenceSession(proto, runtime, 1).run(None, {"x": x})
                np.testing.assert_array_equal(found, expected, err_msg=f"{dtype} {runtime}")
    told = fqfuse.compile(proto).decisions()
    assert {d["found"] for d in told if "has such codes" in d["reason"]} == {"bfloat16"}


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proto", "kind", "text"),
    [
        (case(BFP, [2, 8], bfp_method="to_other"), UnsupportedOp, "bfp_method"),
        (case(BFP, [2, 8], bit_width=9), UnsupportedOp, "bit_width"),
        (case(BFP, [2, 8], block_size=0), InvalidModel, "block_size is 0"),
        (case(BFP, [2, 8], axis=2), InvalidModel, "axis is 2"),
        (case(BFP, [2, 8], rounding_mode=3), UnsupportedOp, "rounding_mode"),
        (
            case(BFP, [2, 8], bfp_method="to_bfp_prime", sub_block_size=3),
            UnsupportedOp,
            "sub_block_size",
        ),
        (case(BFP, [2, 8], use_compiler_version_cpu_kernel=1), UnsupportedOp, "compiler_version"),
        (case(BFP, [2, "n"]), UnsupportedOp, "known at run time only"),
        (case(MX, [2, 8], element_dtype="fp3"), UnsupportedOp, "element_dtype"),
        (case("ExtendedQuantizeLinear", [2]), InvalidModel, "a scale and a zero point"),
    ],
)
def test_what_is_refused(proto, kind, text):
    with pytest.raises(kind, match=text) as caught:
        fqfuse.compile(proto)
    assert caught.value.hint


def test_what_is_said_of_block_floats():
    """They are quantizers, of which nothing runs in int8."""
    nodes = [
        node(BFP, ["x"], ["a"], name="source", domain=DOMAIN),
        node(BFP, ["w"], ["b"], name="weights", domain=DOMAIN),
        node("Conv", ["a", "b"], name="conv"),
    ]
    kernel = np.random.default_rng(3).standard_normal((8, 8, 1, 1)).astype(np.float32)
    constants, domains = {"w": kernel}, {DOMAIN: 1}
    proto = model(nodes, inputs={"x": [1, 8, 6, 6]}, constants=constants, domains=domains)
    plan = fqfuse.compile(proto)
    fates = {(f.quantizer, f.half.value, f.consumer): f.fate.value for f in plan.fate_records}
    assert fates == {
        ("source", "quantize", ""): "fallback",
        ("source", "dequantize", "source"): "fallback",
        ("weights", "quantize", ""): "constant",
        ("weights", "dequantize", "conv"): "constant",
    }
    assert [found["code"] for found in plan.findings()] == ["float-codes"]
