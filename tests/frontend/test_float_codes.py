"""Quantizers whose codes are floats of 8 bits, against ONNX Runtime."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from laws.runtimes import RUNTIMES
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.onnx_cases import model, node, run_ort

import fqfuse
from fqfuse.errors import InvalidModel, UnsupportedOp

FORMATS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
rng = np.random.default_rng(0)
KERNEL = rng.standard_normal((8, 3, 3, 3)).astype(np.float32)


def network(form: str, *, scales: str = "constant", half: bool = False) -> onnx.ModelProto:
    """Codes of the input, a convolution by codes with a scale for each channel, a stored result."""
    kind = getattr(TensorProto, form)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    by_channel = (np.abs(KERNEL).max((1, 2, 3)) / 200).astype(np.float32)
    parameter = np.float16 if half else np.float32
    constants = {
        "w": (KERNEL / by_channel.reshape(-1, 1, 1, 1)).astype(dtype),
        "ws": by_channel,
        "wz": np.zeros(8, np.float32).astype(dtype),
        "z": np.zeros((), np.float32).astype(dtype),
        "os": np.asarray(0.07, parameter),
    }
    if scales == "constant":
        constants["s"] = np.asarray(0.011, parameter)
    result = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Cast", ["d"], ["f"], to=TensorProto.FLOAT),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0),
        node("Conv", ["f", "v"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("Cast", ["r"], ["p"], to=result),
        node("QuantizeLinear", ["p", "os", "z"], ["o"]),
        node("DequantizeLinear", ["o", "os", "z"], ["y"]),
    ]
    inputs: dict[str, list[int]] = {"x": [2, 3, 9, 9]}
    if scales == "fed":
        inputs["s"] = []
    types = dict.fromkeys((*inputs, "y"), result)
    return model(nodes, inputs=inputs, constants=constants, types=types, opset=21)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("scales", ["constant", "fed"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_network(form: str, scales: str, runtime: str) -> None:
    proto = network(form, scales=scales)
    feeds = {"x": (rng.standard_normal((2, 3, 9, 9)) * 2).astype(np.float32)}
    if scales == "fed":
        feeds["s"] = np.float32(0.013)
    (expected,) = run_ort(proto, feeds)
    (found,) = fqfuse.InferenceSession(proto, runtime, 1).run(None, feeds)
    # codes next to each other where the sum of a convolution lies at a tie: 2^-2 of them at most
    assert np.count_nonzero(found != expected) <= found.size / 100
    np.testing.assert_allclose(found, expected, rtol=0.25)


def test_half_floats_around_it() -> None:
    proto = network("FLOAT8E4M3FN", half=True)
    feeds = {"x": rng.standard_normal((2, 3, 9, 9)).astype(np.float16)}
    (found,) = fqfuse.InferenceSession(proto, "numpy").run(None, feeds)
    assert found.dtype == np.float16
    (expected,) = run_ort(proto, feeds)
    # f16 scales: x/s is rounded to f16 in one of them
    assert np.count_nonzero(found != expected) <= found.size / 20


def test_what_is_said_of_it() -> None:
    plan = fqfuse.compile(network("FLOAT8E5M2"))
    fates = {(fate["quantizer"], fate["half"]): fate["fate"] for fate in plan.fates()}
    assert fates == {
        ("q", "quantize"): "fallback",
        ("q", "dequantize"): "fallback",
        ("v", "quantize"): "constant",
        ("v", "dequantize"): "constant",
        ("o", "quantize"): "fallback",
        ("o", "dequantize"): "fallback",
    }
    told = [
        d for d in plan.decisions() if "no primitive of oneDNN 3.2 has such codes" in d["reason"]
    ]
    assert {d["found"] for d in told} == {"float8e5m2"}
    assert plan.findings()[0]["code"] == "float-codes"


def test_what_is_refused() -> None:
    proto = network("FLOAT8E4M3FN")
    del proto.graph.node[3].attribute[:]
    proto.graph.node[3].attribute.append(helper.make_attribute("axis", 1))
    with pytest.raises(InvalidModel, match="8 scales do not fit dimension 1 of size 3"):
        fqfuse.compile(proto)
    blocks = network("FLOAT8E4M3FN")
    blocks.graph.node[3].attribute.append(helper.make_attribute("block_size", 2))
    with pytest.raises(
        InvalidModel, match=r"f32\[8\] does not fit f8e4m3fn\[8,3,3,3\] in blocks of 2"
    ):
        fqfuse.compile(blocks)
    fed = block_network([3, 4], 9, np.ones((3, 2), np.float32), axis=1)
    with pytest.raises(InvalidModel) as caught:
        fqfuse.compile(fed)
    assert caught.value.hint


# -- blocks ----------------------------------------------------------------------------------------


def block_network(shape, block: int, scales, *, form="FLOAT8E4M3FN", axis=1) -> onnx.ModelProto:
    kind = getattr(TensorProto, form)
    nodes = [
        node("QuantizeLinear", ["x", "s"], ["q"], axis=axis, block_size=block, output_dtype=kind),
        node("DequantizeLinear", ["q", "s"], ["y"], axis=axis, block_size=block),
    ]
    return model(nodes, inputs={"x": shape}, constants={"s": scales}, opset=23)


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_blocks_along_an_axis_of_open_size(backend: str) -> None:
    scales = np.float32([[0.5, 0.3], [2, 0.01], [1, 7]])
    session = fqfuse.InferenceSession(block_network(["n", "m"], 2, scales), backend)
    for columns in (4, 3):
        x = (rng.normal(size=(3, columns)) * 3).astype(np.float32)
        each = np.repeat(scales, 2, axis=1)[:, :columns]
        (y,) = session.run(None, {"x": x})
        codes = np.clip(x / each, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        np.testing.assert_array_equal(y, codes * each)


BLOCKS = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}


def test_blocks_against_their_definition() -> None:
    """MXFP8, MXFP4 and NVFP4: codes of weights, and values that a run quantizes, in blocks along an axis; the last
    block may be shorter.
    """
    for trial in range(12):
        form = list(BLOCKS)[trial % 3]
        shape = tuple(map(int, rng.integers(2, 9, rng.integers(1, 4))))
        axis, block = int(rng.integers(-len(shape), len(shape))), int(rng.integers(1, 5))
        blocks = [*shape]
        blocks[axis] = -(-shape[axis] // block)
        scales = np.exp2(rng.integers(-3, 3, blocks)).astype(np.float32)
        each = scales.take(np.arange(shape[axis]) // block, axis)
        x = (rng.standard_normal(shape) * 4).astype(np.float32)
        largest = float(ml_dtypes.finfo(BLOCKS[form]).max)
        codes = np.clip(x / each, -largest, largest).astype(BLOCKS[form])
        expected = codes.astype(np.float32) * each
        proto = block_network(shape, block, scales, form=form, axis=axis)
        (found,) = fqfuse.InferenceSession(proto, RUNTIMES[trial % len(RUNTIMES)], 1).run(
            None, {"x": x}
        )
        np.testing.assert_array_equal(found, expected)
        stored = model(
            [node("DequantizeLinear", ["q", "t"], ["y"], axis=axis, block_size=block)],
            inputs={},
            constants={"q": codes, "t": scales.astype(ml_dtypes.float8_e8m0fnu)},
            opset=23,
        )
        np.testing.assert_array_equal(
            fqfuse.InferenceSession(stored, "numpy").run(None, {})[0], expected
        )


def test_scales_of_blocks_that_are_codes_themselves() -> None:
    """NVFP4: weights of 4 bits in blocks of 16, whose scales are float8 with a scale of the tensor."""
    codes = (rng.standard_normal((8, 64)) * 2).astype(ml_dtypes.float4_e2m1fn)
    scales = rng.uniform(0.5, 2, (8, 4)).astype(ml_dtypes.float8_e4m3fn)
    nodes = [
        node("DequantizeLinear", ["t", "g"], ["s"]),
        node("DequantizeLinear", ["q", "s"], ["w"], axis=1, block_size=16),
        node("Transpose", ["w"], ["v"], perm=[1, 0]),
        node("MatMul", ["x", "v"]),
    ]
    constants = {"q": codes, "t": scales, "g": np.float32(0.01)}
    proto = model(nodes, inputs={"x": [3, 64]}, constants=constants, opset=23)
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["matmul"]
    x = rng.standard_normal((3, 64)).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    for runtime in RUNTIMES:
        (found,) = fqfuse.InferenceSession(plan, runtime, 1).run(None, {"x": x})
        # a sum of 64 products in f32, in another order
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", FORMATS)
def test_nvidias_names_for_the_same(form: str) -> None:
    """As TensorRT Model Optimizer writes it: domain trt, a zero point with one element, of float8."""
    proto, other = network(form), network(form)
    for each in other.graph.node:
        if each.op_type in ("QuantizeLinear", "DequantizeLinear"):
            each.domain = "trt"
    other.opset_import.append(helper.make_opsetid("trt", 1))
    x = {"x": rng.standard_normal((2, 3, 9, 9)).astype(np.float32)}
    results = [fqfuse.InferenceSession(each, "numpy").run(None, x)[0] for each in (proto, other)]
    np.testing.assert_array_equal(*results)
    del other.graph.node[0].input[2]
    with pytest.raises(UnsupportedOp, match="without a zero point"):
        fqfuse.compile(other)
