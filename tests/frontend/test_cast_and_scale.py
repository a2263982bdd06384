"""Constant codes decoded by Cast -> (Sub) -> Mul: one Dequantize, the same bits, int8 products."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import compare, model, node, ops, random, run_ort

import fqfuse
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import DequantizeFate, Half
from fqfuse.ir.types import DType, Quantization

CODES = np.random.default_rng(5).integers(-128, 128, (6, 3, 2, 4))
ZEROS = {
    "absent": None,
    "code": lambda kind: kind(3),
    "codes": lambda kind: np.arange(6).astype(kind).reshape(6, 1, 1, 1),
    "float": lambda _: np.float32(7),
    "fraction": lambda _: np.float32([0.3, 1.7, -20.1]).reshape(3, 1, 1),
}
SCALES = {
    "scalar": np.float32(0.013),
    "one": np.float32([0.1]),
    "axis 0": random((6, 1, 1, 1)),
    "axis 1": random((3, 1, 1), 1),
    "axis 3": random((4,), 2),
}


def decoding(codes, zero=None, scale=SCALES["scalar"], *, swapped=False, to=TensorProto.FLOAT):
    """w -> Cast -> (Sub zero) -> Mul scale -> d; nodes and constants."""
    constants = {"w": codes, "scale": scale}
    nodes = [node("Cast", ["w"], ["wide"], name="cast", to=to)]
    value, kind = "wide", helper.tensor_dtype_to_np_dtype(to)
    if zero is not None:
        constants["zero"] = zero
        shift = "zero"
        if zero.dtype != kind:
            nodes.append(node("Cast", ["zero"], ["wide_zero"], to=to))
            shift = "wide_zero"
        nodes.append(node("Sub", [value, shift], ["shifted"], name="sub"))
        value = "shifted"
    operands = ["scale", value] if swapped else [value, "scale"]
    return [*nodes, node("Mul", operands, ["d"], name="mul")], constants


@pytest.mark.parametrize(("zero", "scale"), list(product(ZEROS, SCALES)))
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_it_gives_the_bits_that_the_three_nodes_give(kind, zero, scale):
    own = ZEROS[zero] and ZEROS[zero](kind)
    axes = {0 if zero == "codes" else 1 if zero == "fraction" else None}
    axes |= {int(scale[-1]) if scale.startswith("axis") else None}
    for swapped in (False, True):
        nodes, constants = decoding(CODES.astype(kind), own, SCALES[scale], swapped=swapped)
        graph = compare(model(nodes, inputs={}, outputs=["d"], constants=constants), {})
        made = graph.producer(graph.outputs[0])
        assert made.op == ("Mul" if len(axes - {None}) > 1 else "Dequantize")
        if made.op == "Dequantize":
            assert graph.constant(made.input) is not None
            assert made.quantizer == ("mul",)
            assert {"cast", "mul"} <= set(made.origin)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(TensorProto.INT4, DType.S4), (TensorProto.UINT4, DType.U4)]
)
def test_four_bits(kind, dtype):
    low = 0 if dtype is DType.U4 else -8
    codes = helper.make_tensor("w", kind, (4, 4), np.arange(16) + low)
    nodes, constants = decoding(codes, np.float32(2), random((4,)))
    graph = compare(model(nodes, inputs={}, outputs=["d"], constants=constants), {})
    made = graph.producer("d", "Dequantize")
    assert made is not None
    assert graph.type(made.input).dtype is dtype


def test_parameters_and_codes_may_be_computed_from_constants():
    constants = {
        "w": CODES.astype(np.int8),
        "z": np.int8([1, 2, 3, 4]),
        "s": np.float16([0.5, 0.25, 0.1, 2]),
        "shape": np.int64([4, 1, 1]),
    }
    nodes = [
        node("Transpose", ["w"], ["turned"], perm=[0, 3, 1, 2]),
        node("Cast", ["turned"], ["wide"], to=TensorProto.FLOAT),
        node("Cast", ["z"], ["wide_z"], to=TensorProto.FLOAT),
        node("Reshape", ["wide_z", "shape"], ["shift"]),
        node("Cast", ["s"], ["wide_s"], to=TensorProto.FLOAT),
        node("Reshape", ["wide_s", "shape"], ["factor"]),
        node("Sub", ["wide", "shift"], ["shifted"]),
        node("Mul", ["factor", "shifted"], ["y"]),
    ]
    graph = compare(model(nodes, inputs={}, constants=constants), {})
    made = graph.producer("y", "Dequantize")
    assert made is not None
    assert made.quant == Quantization.of(constants["s"], constants["z"], 1)


def test_two_readers_of_one_cast_are_two_quantizers():
    nodes, constants = decoding(CODES.astype(np.int8))
    again = [*nodes, node("Mul", ["scale2", "wide"], ["e"], name="mul2")]
    proto = model(
        again, inputs={}, outputs=["d", "e"], constants=constants | {"scale2": random((4,))}
    )
    graph = compare(proto, {})
    assert set(graph.quantizers) == {"mul", "mul2"}
    assert {q.form for q in graph.quantizers.values()} == {"Cast and Mul on a constant"}


F64 = {"scale": np.float64(0.1), "to": TensorProto.DOUBLE}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (F64, "decoded in f64"),
        ({"scale": np.float32(0)}, "zero or not finite"),
        ({"scale": np.float32(np.inf)}, "zero or not finite"),
        ({"zero": np.float32(np.nan)}, "zero or not finite"),
        ({"scale": random((6, 1, 1, 4))}, "of one axis"),
    ],
)
def test_what_dequantize_cannot_say_stays_arithmetic_and_is_told(arguments, reason):
    nodes, constants = decoding(CODES.astype(np.int8), **arguments)
    graph = compare(model(nodes, inputs={}, outputs=["d"], constants=constants), {})
    assert graph.producer("d").op == "Mul"
    assert not graph.quantizers
    (decision,) = graph.decisions
    assert reason in decision.reason
    assert decision.subject == "mul"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_weights_decoded_in_half_floats_are_codes(dtype):
    """NNCF and OpenVINO write the scales of compressed weights so."""
    scales = random((1, 4)).astype(dtype)
    to = helper.np_dtype_to_tensor_dtype(scales.dtype)
    codes = CODES[0, 0].astype(np.int8)
    nodes, constants = decoding(codes, scale=scales, to=to)
    product = node("MatMul", ["x", "d"], ["y"], name="product")
    shape = [3, codes.shape[0]]
    proto = model([*nodes, product], inputs={"x": shape}, constants=constants, types={"x": to})
    plan = fqfuse.compile(proto, dynamic="matmul")
    (step,) = (step for step in plan.steps if step.primitive == "matmul")
    assert plan.constants[step.arg("weights")].dtype == np.int8


def test_other_products_of_a_cast_are_left_alone():
    wide = decoding(CODES.astype(np.int16))
    large = decoding(np.int8([2]), scale=random((5,)))  # the constant with more numbers is no scale
    for nodes, constants in (wide, large):
        graph = compare(model(nodes, inputs={}, outputs=["d"], constants=constants), {})
        assert "Dequantize" not in ops(graph)
        assert not graph.decisions
    nodes = [
        node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        node("Mul", ["wide", "s"], ["y"]),
    ]
    image = model(
        nodes,
        inputs={"x": [4]},
        types={"x": TensorProto.UINT8},
        constants={"s": np.float32(0.1)},
    )
    assert "Dequantize" not in ops(compare(image, {"x": np.uint8([1, 2, 3, 255])}))


def network(op: str, codes, zero, scale, x_shape, **attributes) -> onnx.ModelProto:
    """A quantized source times weights by Cast -> (Sub) -> Mul, with a relu and a quantizer."""
    nodes, constants = decoding(codes, zero, scale)
    constants |= {"s": np.float32(0.04), "z": np.uint8(120), "t": np.float32(0.15)}
    nodes += [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["xd"], name="dq"),
        node(op, ["xd", "d"], ["p"], name="product", **attributes),
        node("Relu", ["p"], ["r"], name="relu"),
        node("QuantizeLinear", ["r", "t", "z"], ["y"], name="out"),
    ]
    return model(nodes, inputs={"x": x_shape}, constants=constants)


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize(
    ("op", "zero", "scale", "x_shape"),
    [
        ("Conv", None, np.abs(SCALES["axis 0"]) / 50, [2, 3, 9, 9]),
        ("Conv", np.float32(0), np.float32(0.01), [2, 3, 9, 9]),
        ("ConvTranspose", None, np.float32(0.01), [2, 6, 5, 5]),
        ("ConvTranspose in 6 groups", None, np.abs(SCALES["axis 0"]) / 50, [2, 6, 5, 5]),
        ("MatMul", np.int8(5), np.abs(random((8,))) / 50, [7, 18]),
        ("Gemm", np.int8(0), np.abs(random((18, 1))) / 50, [7, 8]),
    ],
)
@pytest.mark.each_case
def test_products_run_in_int8_and_agree_with_onnx_runtime(op, zero, scale, x_shape, backend):
    codes = CODES.astype(np.int8)
    if op in ("MatMul", "Gemm"):
        codes = codes.reshape(18, 8)
    attributes = {"transB": 1} if op == "Gemm" else {}
    if "groups" in op:
        op, attributes = "ConvTranspose", {"group": 6}
    proto = network(op, codes, zero, scale, x_shape, **attributes)
    x = random(x_shape, 3, 2)
    plan = fqfuse.compile(proto)
    (step,) = (step for step in plan.steps if "product" in step.origin)
    assert plan.constants[step.inputs[1]].dtype == np.int8
    (fate,) = (f for f in plan.fate_records if f.quantizer == "mul" and f.half is Half.DEQUANTIZE)
    assert fate.fate is DequantizeFate.WEIGHTS_SCALE
    (found,) = fqfuse.InferenceSession(plan, backend=backend).run(None, {"x": x})
    (wanted,) = run_ort(proto, {"x": x})
    # f32 sums of a few hundred products are off by rounding: a code, next to a tie
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    assert (found != wanted).mean() < 0.01
    assert len(np.unique(wanted)) > 15


def test_weights_of_an_unquantized_source_are_what_onnx_runtime_multiplies():
    nodes, constants = decoding(CODES.astype(np.uint8), np.uint8(9), SCALES["axis 0"])
    proto = model(
        [*nodes, node("Conv", ["x", "d"])], inputs={"x": [1, 3, 5, 5]}, constants=constants
    )
    plan = fqfuse.compile(proto)
    (weights,) = (v for v in plan.constants.values() if v.shape == CODES.shape)
    own = CODES.astype(np.uint8).astype(np.float32) - np.float32(9)
    np.testing.assert_array_equal(weights, own * SCALES["axis 0"])


def test_the_import_leaves_nothing_of_the_three_nodes_in_the_plan():
    proto = network("Conv", CODES.astype(np.int8), np.int8(1), np.float32(0.1), [1, 3, 4, 4])
    assert [n.op for n in graph_from_onnx(proto).nodes()].count("Dequantize") == 2
    assert {step.primitive for step in fqfuse.compile(proto).steps} <= {"reorder", "convolution"}
