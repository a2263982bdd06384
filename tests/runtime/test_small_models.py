"""Small models as a whole, held against what their operations are defined to give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fqfuse


def model(
    nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], **constants: object
) -> bytes:
    data = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_empty_tensor_value_info("out")], data
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    ).SerializeToString()


def node(op: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


@pytest.mark.parametrize("shape", [(), (5,)])
def test_prelu_of_a_scalar_behind_a_requantization(shape: tuple[int, ...]) -> None:
    nodes = [
        node("DequantizeLinear", "x s z", "d"),
        node("Add", "d b", "a"),
        node("QuantizeLinear", "a s2 z", "q"),
    ]
    nodes += [
        node("DequantizeLinear", "q s2 z", "e"),
        node("PRelu", "e slope", "p"),
        node("QuantizeLinear", "p s z", "out"),
    ]
    scalars = {
        "s": np.float32(0.02),
        "s2": np.float32(0.03),
        "z": np.uint8(140),
        "b": np.float32(-0.3),
        "slope": np.float32(-0.7),
    }
    source = model(nodes, [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)], **scalars)
    x = np.full(shape, 100, np.uint8)
    codes = (
        np.rint(
            ((x.astype(np.float32) - 140) * np.float32(0.02) - np.float32(0.3)) / np.float32(0.03)
        )
        * 0.03
    )
    wanted = np.rint(np.where(codes < 0, codes * -0.7, codes) / 0.02) + 140
    assert (fqfuse.InferenceSession(fqfuse.compile(source)).run(None, {"x": x})[0] == wanted).all()


def test_pieces_of_a_source_of_which_one_has_an_unknown_size() -> None:
    nodes = [
        node("DequantizeLinear", "x s z", "xd"),
        node("DequantizeLinear", "y t z", "yd"),
        node("Concat", "xd yd", "j", axis=1),
    ]
    nodes += [
        node("DequantizeLinear", "w s", "wd"),
        node("MatMul", "j wd", "m"),
        node("QuantizeLinear", "m o z", "out"),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
        for name, shape in (("x", [1, 5]), ("y", [None, 2]))
    ]
    scales = {"s": np.float32(0.02), "t": np.float32(0.013), "o": np.float32(0.5), "z": np.uint8(7)}
    source = model(nodes, inputs, w=np.ones((7, 4), np.int8), **scales)
    feeds = {"x": np.full((1, 5), 200, np.uint8), "y": np.full((1, 2), 250, np.uint8)}
    wanted = np.rint((5 * 193 * 0.02 + 2 * 243 * 0.013) * 0.02 / 0.5) + 7
    assert (fqfuse.InferenceSession(fqfuse.compile(source)).run(None, feeds)[0] == wanted).all()


@pytest.mark.parametrize("backend", ["numpy", "auto"])
@pytest.mark.parametrize(
    "reader", ["NonZero", "Shrink", "Trilu", "CumSum", "ArgMin", "Sign", "Ceil", "Cast"]
)
def test_zeros_for_who_tells_them(reader: str, backend: str) -> None:
    """Codes at their zero point are exact zeros to operations that the composer knows nothing of,
    too.
    """
    nodes = [
        node("DequantizeLinear", "x s z", "d"),
        node("Clip", "d lo hi", "c"),
        node("QuantizeLinear", "c t y", "q"),
    ]
    nodes += [node("DequantizeLinear", "q t y", "e")]
    nodes += {
        "NonZero": [node("NonZero", "e", "out")],
        "Shrink": [node("Shrink", "e", "out", lambd=0.0, bias=1.0)],
        "Trilu": [node("Trilu", "e", "t1"), node("Equal", "t1 zero", "out")],
        "CumSum": [node("CumSum", "e one", "t1"), node("Equal", "t1 zero", "out")],
        "ArgMin": [node("Abs", "e", "t1"), node("ArgMin", "t1", "out", axis=1)],
        "Sign": [node("Sign", "e", "out")],
        "Ceil": [node("Ceil", "e", "out")],
        "Cast": [node("Cast", "e", "out", to=TensorProto.BOOL)],
    }[reader]
    scalars = {
        "s": np.float32(0.0041),
        "z": np.uint8(130),
        "lo": np.float32(-0.2),
        "hi": np.float32(0.2),
        "zero": np.float32(0),
    }
    scalars |= {"t": np.float32(0.02745), "y": np.uint8(137), "one": np.int64(1)}
    source = model(
        nodes, [helper.make_tensor_value_info("x", TensorProto.UINT8, (1, 8, 6, 6))], **scalars
    )
    x = np.random.default_rng(1).integers(0, 256, (1, 8, 6, 6)).astype(np.uint8)
    real = np.clip(
        (x.astype(np.float32) - 130) * np.float32(0.0041), np.float32(-0.2), np.float32(0.2)
    )
    e = np.rint(real / np.float32(0.02745)) * np.float32(0.02745)
    wanted = {
        "NonZero": lambda: np.array(np.nonzero(e)),
        "Shrink": lambda: np.where(e < 0, e + 1, np.where(e > 0, e - 1, 0)),
        "Trilu": lambda: np.triu(e) == 0,
        "CumSum": lambda: np.cumsum(e, 1, dtype=np.float32) == 0,
        "ArgMin": lambda: np.argmin(np.abs(e), 1)[:, None],
        "Sign": lambda: np.sign(e),
        "Ceil": lambda: np.ceil(e),
        "Cast": lambda: e != 0,
    }[reader]()
    (found,) = fqfuse.InferenceSession(fqfuse.compile(source), backend=backend).run(None, {"x": x})
    assert found.shape == wanted.shape
    assert np.allclose(found, wanted, atol=1e-6)
