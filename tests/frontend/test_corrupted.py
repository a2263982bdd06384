"""Whatever bytes come in, only errors of fqfuse come out: no traceback from protobuf, NumPy or
onnx.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random

from fqfuse.errors import FqfuseError
from fqfuse.frontend import Budgets, graph_from_onnx

SMALL = Budgets(
    file_bytes=1 << 20,
    nodes=1000,
    tensor_bytes=1 << 20,
    constant_bytes=1 << 22,
    folded_bytes=1 << 16,
)


def sample() -> bytes:
    """A model with something of everything that the frontend reads."""
    constants = {
        "w": np.arange(36, dtype=np.int8).reshape(4, 1, 3, 3),
        "ws": np.float32([0.1, 0.2, 0.3, 0.4]),
        "s": np.float32(0.1),
        "z": np.uint8(128),
        "low": np.float32(-1),
        "high": np.float32(1),
        "w2": random([4, 6], 3),
        "target": np.asarray([0, -1]),
        "four": helper.make_tensor("four", TensorProto.INT4, [3], [1, -2, 3]),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], name="dq"),
        node("DequantizeLinear", ["w", "ws"], ["wd"], axis=0),
        node(
            "Conv", ["d", "wd"], ["c"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]
        ),
        node(
            "FakeQuantize",
            ["c", "low", "high", "low", "high"],
            ["f"],
            domain="org.openvinotoolkit",
            levels=255,
        ),
        node("MaxPool", ["f"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["g"]),
        node("Reshape", ["g", "target"], ["r"]),
        node("MatMul", ["r", "w2"], ["m"]),
        node("Softmax", ["m"], ["soft"], axis=1),
        node("Tan", ["soft"], ["t"]),
        node("Split", ["t"], ["y", "y2"], axis=1, num_outputs=2),
        node("Cast", ["four"], ["y3"], to=TensorProto.FLOAT),
    ]
    domains = {"org.openvinotoolkit": 1}
    return model(
        nodes,
        inputs={"x": ["N", 1, 16, 16]},
        outputs=["y", "y2", "y3"],
        constants=constants,
        domains=domains,
    ).SerializeToString()


def sample_of_dialects() -> bytes:
    """A model with an op of each other dialect."""
    constants = {
        "s": np.float32(0.1),
        "z": np.uint8(128),
        "w": np.arange(36, dtype=np.int8).reshape(4, 1, 3, 3),
        "ws": np.float32([0.1, 0.2, 0.3, 0.4]),
        "wz": np.zeros(4, np.int8),
        "b": np.int32([1, 2, 3, 4]),
        "m": np.arange(256, dtype=np.uint8).reshape(64, 4),
        "bits": np.float32(4),
        "zero": np.float32(0),
        "target": np.asarray([0, 64]),
    }
    ms, qonnx = "com.microsoft", "qonnx.custom_op.general"
    nodes = [
        node(
            "QLinearConv",
            ["x", "s", "z", "w", "ws", "wz", "s", "z", "b"],
            ["c"],
            pads=[1, 1, 1, 1],
            strides=[2, 2],
        ),
        node(
            "QLinearAveragePool",
            ["c", "s", "z", "s", "z"],
            ["p"],
            domain=ms,
            kernel_shape=[2, 2],
            strides=[2, 2],
            channels_last=0,
        ),
        node("QLinearAdd", ["p", "s", "z", "p", "s", "z", "s", "z"], ["a"], domain=ms),
        node("QLinearConcat", ["s", "z", "a", "s", "z", "p", "s", "z"], ["k"], domain=ms, axis=1),
        node("QLinearSoftmax", ["a", "s", "z", "s", "z"], ["t"], domain=ms, axis=1, opset=11),
        node("QLinearGlobalAveragePool", ["k", "s", "z", "s", "z"], ["g"], domain=ms),
        node("Reshape", ["a", "target"], ["r"]),
        node("QLinearMatMul", ["r", "s", "z", "m", "s", "z", "s", "z"], ["mm"]),
        node("QGemm", ["r", "s", "z", "m", "ws", "z4", "b"], ["gg"], domain=ms, alpha=0.5),
        node("DequantizeLinear", ["mm", "s", "z"], ["f"]),
        node(
            "Quant",
            ["f", "s", "zero", "bits"],
            ["q"],
            domain=qonnx,
            signed=1,
            narrow=0,
            rounding_mode="ROUND",
        ),
        node("BipolarQuant", ["gg", "s"], ["bip"], domain=qonnx),
        node(
            "Trunc", ["q", "s", "zero", "bits", "bits"], ["y"], domain=qonnx, rounding_mode="FLOOR"
        ),
    ]
    constants["z4"] = np.zeros(4, np.uint8)
    proto = model(
        nodes,
        inputs={"x": ["N", 1, 16, 16]},
        outputs=["y", "bip", "g", "t"],
        constants=constants,
        domains={ms: 1, qonnx: 1},
        types={"x": TensorProto.UINT8},
    )
    return proto.SerializeToString()


SAMPLE = sample()
DIALECTS = sample_of_dialects()


def test_the_samples_themselves_are_sound():
    assert len(graph_from_onnx(SAMPLE, budgets=SMALL)) == 13
    assert len(graph_from_onnx(DIALECTS, budgets=SMALL)) > 40


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_changed_bytes(changes):
    data = bytearray(SAMPLE)
    for place, value in changes:
        data[place] = value
    accept(bytes(data))


@given(st.integers(0, len(SAMPLE)), st.integers(0, len(SAMPLE)), st.binary(max_size=20))
def test_bytes_cut_out_and_put_in(start, end, between):
    accept(SAMPLE[:start] + between + SAMPLE[end:])


@given(st.binary(max_size=200))
def test_any_bytes(data):
    accept(data)


NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 3, 7, 255, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_changed_attributes_and_shapes(data):
    """Changes that keep the file a valid protobuf message reach much deeper."""
    proto = model([], inputs={"x": [1]})
    proto.ParseFromString(data.draw(st.sampled_from([SAMPLE, DIALECTS])))
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(
            st.sampled_from(
                ["attribute", "dims", "type", "input", "op", "opset", "input shape", "swap"]
            )
        )
        nodes = proto.graph.node
        chosen = nodes[data.draw(st.integers(0, len(nodes) - 1))]
        tensor = proto.graph.initializer[
            data.draw(st.integers(0, len(proto.graph.initializer) - 1))
        ]
        if kind == "attribute" and chosen.attribute:
            attribute = chosen.attribute[data.draw(st.integers(0, len(chosen.attribute) - 1))]
            attribute.i = data.draw(NUMBERS)
            attribute.ints[:] = data.draw(st.lists(NUMBERS, max_size=5))
            attribute.type = data.draw(
                st.sampled_from([attribute.type, attribute.type, 1, 2, 3, 7])
            )
        elif kind == "dims":
            tensor.dims[:] = data.draw(st.lists(NUMBERS, max_size=4))
        elif kind == "type":
            tensor.data_type = data.draw(st.integers(0, 28))
        elif kind == "input" and chosen.input:
            names = [
                *dict.fromkeys(value for other in nodes for value in (*other.input, *other.output)),
                "",
                "nothing",
            ]
            chosen.input[data.draw(st.integers(0, len(chosen.input) - 1))] = data.draw(
                st.sampled_from(names)
            )
        elif kind == "op":
            types = [
                *(other.op_type for other in nodes),
                "Gemm",
                "Concat",
                "Transpose",
                "Resize",
                "Pad",
                "If",
            ]
            chosen.op_type = data.draw(st.sampled_from(types))
        elif kind == "opset":
            proto.opset_import[0].version = data.draw(st.integers(1, 28))
        elif kind == "input shape":
            sizes = proto.graph.input[0].type.tensor_type.shape.dim
            sizes[data.draw(st.integers(0, 3))].dim_value = data.draw(NUMBERS)
        elif kind == "swap":
            nodes[0].output[0], chosen.output[0] = chosen.output[0], nodes[0].output[0]
    accept(proto.SerializeToString())


def accept(data: bytes) -> None:
    """A graph or an error of fqfuse; anything else fails the test by itself."""
    try:
        graph_from_onnx(data, budgets=SMALL)
    except FqfuseError as error:
        check_message(error)


def check_message(error: FqfuseError) -> None:
    assert error.what
    assert error.where
    if not error.hint:
        pytest.fail(f"no remedy: {error}")
