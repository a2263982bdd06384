"""Quantizers whose codes are floats of 8 bits, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from laws.runtimes import RUNTIMES
from onnx import TensorProto, helper
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
    with pytest.raises((UnsupportedOp, InvalidModel), match=r"blocks|shape"):
        fqfuse.compile(blocks)
