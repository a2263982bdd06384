"""QONNX: Quant, BipolarQuant and Trunc, held against their descriptions written down in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from support.onnx_cases import compare, model, node, ops, random, run_import

from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import Outcome, Quantizer
from fqfuse.ir.types import DType

DOMAIN = "qonnx.custom_op.general"
X = random([2, 3, 4, 5], scale=3)
TIES = np.arange(-60, 60, dtype=np.float32).reshape(2, 3, 4, 5) / 4


def case(op, constants, *, domain=DOMAIN, inputs=None, opset=13, **attributes):
    nodes = [node(op, ["x", *constants], name="q", domain=domain, **attributes)]
    return model(
        nodes,
        constants={k: v for k, v in constants.items() if v is not None},
        domains={domain: 1},
        inputs=inputs,
        opset=opset,
    )


def quant(scale, zero=0.0, bits=8, **attributes):
    return case(
        "Quant",
        {"s": np.float32(scale), "z": np.float32(zero), "b": np.float32(bits)},
        **attributes,
    )


ROUNDING = {
    "ROUND": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": lambda x: np.sign(x) * np.floor(np.abs(x)),
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}


def described(x, scale, zero=0.0, bits=8, signed=1, narrow=0, rounding_mode="ROUND"):
    """x/scale + zero, clipped, rounded, and back: f32 throughout."""
    scale, zero = np.float32(scale), np.float32(zero)
    low, high = (
        (-(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)
    )
    y = np.clip(x / scale + zero, np.float32(low), np.float32(high))
    return ((ROUNDING[rounding_mode.upper()](y) - zero) * scale).astype(np.float32)


@pytest.mark.parametrize("domain", [DOMAIN, "finn.custom_op.general", "onnx.brevitas"])
@pytest.mark.parametrize("op", ["Quant", "IntQuant"])
def test_under_every_name(op, domain):
    proto = case(op, {"s": np.float32(0.05), "z": np.float32(0), "b": np.float32(8)}, domain=domain)
    graph = compare(proto, {"x": X}, expected=[described(X, 0.05)])
    assert ops(graph) == ["Quantize", "Dequantize"]
    assert graph.quantizers == {"q": Quantizer("q", op, "x")}
    assert [found.quantizer for found in graph.nodes()] == [("q",), ("q",)]


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize(
    ("bits", "zero"), [(2, 0), (3, 1), (4, 0), (8, 0), (8, 17), (8, 3.5), (12, 0), (16, 5), (20, 0)]
)
def test_bits_ranges_and_zero_points(bits, zero, signed, narrow):
    attributes = {"signed": signed, "narrow": narrow}
    for data, scale in ((X, 0.037), (TIES, 0.5)):
        expected = described(data, scale, zero, bits, **attributes)
        graph = compare(quant(scale, zero, bits, **attributes), {"x": data}, expected=[expected])
        assert ops(graph) == ["Quantize", "Dequantize"]


@pytest.mark.parametrize(
    ("bits", "signed", "dtype"),
    [
        (8, 1, DType.S8),
        (8, 0, DType.U8),
        (4, 1, DType.S8),
        (9, 1, DType.S16),
        (16, 0, DType.U16),
        (17, 1, DType.S32),
        (32, 0, DType.U32),
    ],
)
def test_codes_have_the_smallest_type_of_whole_bytes(bits, signed, dtype):
    assert graph_from_onnx(quant(0.1, bits=bits, signed=signed)).nodes()[0].attrs["dtype"] is dtype


@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1, 1)])
def test_along_one_axis(shape):
    scale = np.float32([0.05, 0.1, 0.2]).reshape(shape)
    graph = compare(quant(scale, narrow=1), {"x": X}, expected=[described(X, scale, narrow=1)])
    assert graph.nodes()[0].attrs["quant"].axis == 1
    zero = np.float32([1, 2, 3]).reshape(shape)
    compare(quant(0.05, zero), {"x": X}, expected=[described(X, 0.05, zero)])


@pytest.mark.parametrize("mode", ["CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN", "floor"])
def test_other_rounding_runs_as_float_arithmetic(mode):
    for data in (X, TIES):
        proto = quant(0.5, 0, 4, rounding_mode=mode)
        graph = compare(
            proto, {"x": data}, expected=[described(data, 0.5, 0, 4, rounding_mode=mode)]
        )
    assert "Quantize" not in ops(graph)
    (decision,) = graph.decisions
    assert (decision.rule, decision.subject, decision.outcome) == (
        "import_qonnx",
        "q",
        Outcome.REFUSED,
    )
    assert decision.found == f"rounding mode {mode.upper()}"
    assert graph.node("q").output == "y"


def test_rounding_modes_follow_the_published_table():
    numbers = np.float32([5.5, 2.5, 1.6, 1.1, 1.0, -1.0, -1.1, -1.6, -2.5, -5.5])
    table = {
        "ROUND": [6, 2, 2, 1, 1, -1, -1, -2, -2, -6],
        "CEIL": [6, 3, 2, 2, 1, -1, -1, -1, -2, -5],
        "FLOOR": [5, 2, 1, 1, 1, -1, -2, -2, -3, -6],
        "UP": [6, 3, 2, 2, 1, -1, -2, -2, -3, -6],
        "DOWN": [5, 2, 1, 1, 1, -1, -1, -1, -2, -5],
        "HALF_UP": [6, 3, 2, 1, 1, -1, -1, -2, -3, -6],
        "HALF_DOWN": [5, 2, 2, 1, 1, -1, -1, -2, -2, -5],
    }
    for mode, expected in table.items():
        _, (found,) = run_import(quant(1.0, rounding_mode=mode, inputs={"x": [10]}), {"x": numbers})
        np.testing.assert_array_equal(found, np.float32(expected), err_msg=mode)


def test_parameters_over_two_axes_run_as_float_arithmetic():
    scale = np.float32(np.linspace(0.05, 0.5, 15)).reshape(3, 1, 5)
    graph = compare(quant(scale), {"x": X}, expected=[described(X, scale)])
    assert graph.decisions[0].found == "scale or zero point in another form"


def test_a_scale_known_at_run_time_runs_as_float_arithmetic():
    constants = {"s": None, "z": np.float32(0), "b": np.float32(8)}
    graph = compare(
        case("Quant", constants, inputs={"x": [2, 3, 4, 5], "s": []}),
        {"x": X, "s": np.float32(0.05)},
        expected=[described(X, 0.05)],
    )
    assert "Div" in ops(graph)


def test_more_than_32_bits_run_as_float_arithmetic():
    graph = compare(quant(0.5, bits=40), {"x": X}, expected=[described(X, 0.5, bits=40)])
    assert graph.decisions[0].found == "more than 32 bits"


# -- two levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.7, np.float32([0.5, 1.0, 2.0]).reshape(3, 1, 1)])
def test_bipolar(scale):
    data = X.copy()
    data.flat[:4] = [
        0.0,
        -0.0,
        -np.finfo(np.float32).smallest_subnormal,
        np.finfo(np.float32).smallest_subnormal,
    ]
    expected = np.where(data >= 0, np.float32(scale), -np.float32(scale)).astype(np.float32)
    graph = compare(
        case("BipolarQuant", {"s": np.float32(scale)}), {"x": data}, expected=[expected]
    )
    assert ops(graph) == ["FakeQuantize"]
    assert graph.quantizers == {"q": Quantizer("q", "BipolarQuant", "x")}
    compare(quant(scale, bits=1), {"x": data}, expected=[expected])


def test_one_bit_with_a_zero_point():
    with pytest.raises(UnsupportedOp, match="one bit and a zero point"):
        graph_from_onnx(quant(0.5, 1.0, bits=1))


# -- Trunc -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
@pytest.mark.parametrize("zero", [0.0, 2.0])
def test_trunc_of_version_1(mode, zero):
    constants = {
        "s": np.float32(0.25),
        "z": np.float32(zero),
        "i": np.float32(8),
        "o": np.float32(5),
    }
    steps = np.rint(X / np.float32(0.25) + np.float32(zero)) / np.float32(8)
    expected = (ROUNDING[mode](steps) - np.float32(zero)) * np.float32(0.25)
    attributes = {} if mode == "FLOOR" else {"rounding_mode": mode}
    compare(
        case("Trunc", constants, **attributes), {"x": X}, expected=[expected.astype(np.float32)]
    )


@pytest.mark.parametrize("inputs", [6, 7])
@pytest.mark.parametrize("attributes", [{}, {"signed": 0}, {"narrow": 1}])
def test_trunc_of_version_2(inputs, attributes):
    constants = {
        "s": np.float32(0.25),
        "z": np.float32(0),
        "i": np.float32(8),
        "os": np.float32(1.0),
        "o": np.float32(3),
    }
    if inputs == 7:
        constants = {
            "s": np.float32(0.25),
            "z": np.float32(0),
            "i": np.float32(8),
            "os": np.float32(1),
            "oz": np.float32(0),
            "o": np.float32(3),
        }
    signed, narrow = attributes.get("signed", 1), attributes.get("narrow", 0)
    low, high = (-4 + narrow, 3) if signed else (0, 7 - narrow)
    expected = np.floor(np.clip(np.rint(X / np.float32(0.25)) / np.float32(4), low, high))
    graph = compare(
        case("Trunc", constants, **attributes), {"x": X}, expected=[expected.astype(np.float32)]
    )
    assert graph.decisions[0].found == "Trunc, which drops bits"


# -- floats of few bits ----------------------------------------------------------------------------


def float_quant(scale, exponent, mantissa, bias, largest, **attributes):
    numbers = {"e": exponent, "m": mantissa, "b": bias, "l": largest}
    constants = {"s": scale, **numbers}
    typed = {name: np.float32(value) for name, value in constants.items()}
    return case("FloatQuant", typed, **{"has_nan": 1, "has_subnormal": 1, **attributes})


def as_floats(x, scale, exponent, mantissa, bias, largest, rounding=np.rint):
    """QONNX's description in f64, but for the quotient, which is one of f32."""
    value = (x / np.float32(scale)).astype(np.float64)
    highest = min((2 - 2.0**-mantissa) * 2.0 ** (2**exponent - 1 - bias), largest)
    _, power = np.frexp(value)
    step = np.exp2(np.maximum(power - 1.0, 1.0 - bias) - mantissa)
    codes = np.clip(rounding(value / step) * step, -highest, highest).astype(np.float32)
    return codes * np.float32(scale)


FORMATS = {
    (4, 3, 7, 448): "f8e4m3fn",
    (4, 3, 8, 240): "f8e4m3fnuz",
    (5, 2, 15, 57344): "f8e5m2",
    (5, 2, 16, 57344): "f8e5m2fnuz",
    (2, 1, 1, 6): "f4e2m1",
    (4, 3, 7, 480): "",
    (3, 2, 3, 28): "",
    (2, 3, 1, 7.5): "",
    (5, 7, 15, 1e9): "",
    (3, 4, 3, 31): "",
}
"""Bits, bias and largest number -> the type of such codes."""


@pytest.mark.parametrize("numbers", FORMATS)
def test_floats_of_few_bits(numbers):
    sizes = random([2, 3, 4, 5]) * np.exp2(random([2, 3, 4, 5], 1, 5)).astype(np.float32)
    scales = random([3, 1, 1], 2) ** 2 + np.float32(0.1)
    for data, scale in ((sizes, 0.25), (TIES, 0.5), (sizes, scales)):
        expected = as_floats(data, scale, *numbers)
        graph = compare(float_quant(scale, *numbers), {"x": data}, expected=[expected])
    kinds = {graph.type(found.output).dtype.value for found in graph.nodes()}
    assert not FORMATS[numbers] or FORMATS[numbers] in kinds
    assert set(graph.quantizers) == {"q"}


def test_floats_rounded_otherwise_are_written_out():
    expected = as_floats(X, 0.25, 4, 3, 7, 448, np.floor)
    proto = float_quant(0.25, 4, 3, 7, 448, rounding_mode="FLOOR")
    graph = compare(proto, {"x": X}, expected=[expected])
    assert "Floats" in graph.decisions[0].found


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proto", "kind", "text"),
    [
        (quant(0.1, bits=2.5), InvalidModel, "the bit width is 2.5"),
        (quant(0.1, bits=0), InvalidModel, "the bit width is 0.0"),
        (quant(0.1, bits=[4, 8]), UnsupportedOp, "bit widths that differ"),
        (quant(0.1, rounding_mode="STOCHASTIC"), InvalidModel, "'STOCHASTIC' is unknown"),
        (case("Quant", {"s": np.float32(1)}), InvalidModel, "Quant needs 4 inputs"),
        (case("BipolarQuant", {}), InvalidModel, "BipolarQuant needs 2 inputs"),
        (case("Trunc", {"s": np.float32(1)}), InvalidModel, "Trunc has 5 to 7 inputs"),
        (case("FloatQuant", {"s": np.float32(1)}), InvalidModel, "FloatQuant needs 6 inputs"),
        (float_quant(1, 4, 2.5, 7, 448), InvalidModel, "no floats have"),
        (float_quant(1, 4, 3, 7, 447), InvalidModel, "447.0 is none of the floats"),
        (float_quant(1, 3, 2, 3, 28, saturation=0), UnsupportedOp, "without saturation"),
        (float_quant(1, [4, 5], 3, 7, 448), UnsupportedOp, "exponent's bit widths that differ"),
        (
            case(
                "Quant",
                {"s": np.float32(1), "z": np.float32(0), "b": None},
                inputs={"x": [2], "b": []},
            ),
            UnsupportedOp,
            "run time",
        ),
    ],
)
def test_faults(proto, kind, text):
    with pytest.raises(kind, match=text) as caught:
        graph_from_onnx(proto)
    assert caught.value.hint
