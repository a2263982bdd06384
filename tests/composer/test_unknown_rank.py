"""Tensors whose number of dimensions the model does not tell: everything compiles, and runs as
ONNX's own operators do.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import fqfuse
from fqfuse.ir.decision import QuantizeFate

SCALE = 2**-4
SHAPE = (2, 8, 4, 4)


def model(*nodes: onnx.NodeProto, inputs: int = 1) -> onnx.ModelProto:
    """Nodes over x0, x1 ... of unknown rank, decoded from codes as d0, d1 ...; the result is
    `y`.
    """
    chains = [
        node
        for i in range(inputs)
        for node in (
            helper.make_node("QuantizeLinear", [f"x{i}", "s", "z"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
        )
    ]
    constants = {
        "s": np.float32(SCALE),
        "z": np.uint8(100),
        "factors": np.linspace(0.5, 1.5, 8, dtype=np.float32).reshape(8, 1, 1),
        "channels": np.linspace(0.5, 1.5, 8, dtype=np.float32),
    }
    graph = helper.make_graph(
        [*chains, *nodes],
        "unknown_rank",
        [
            helper.make_value_info(f"x{i}", helper.make_tensor_type_proto(TensorProto.FLOAT, None))
            for i in range(inputs)
        ],
        [helper.make_value_info("y", helper.make_tensor_type_proto(TensorProto.FLOAT, None))],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def stored(value: str) -> list[onnx.NodeProto]:
    """A value quantized and decoded as `y`."""
    return [
        helper.make_node("QuantizeLinear", [value, "s", "z"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["y"]),
    ]


CASES = {
    "quantized alone": (1, stored("d0")),
    "times constants": (1, [helper.make_node("Mul", ["d0", "factors"], ["t"]), *stored("t")]),
    "activation": (1, [helper.make_node("HardSwish", ["d0"], ["t"]), *stored("t")]),
    "batch normalization": (
        1,
        [helper.make_node("BatchNormalization", ["d0", *["channels"] * 4], ["t"]), *stored("t")],
    ),
    "foreign operator": (
        1,
        [helper.make_node("MeanVarianceNormalization", ["d0"], ["t"]), *stored("t")],
    ),
    "sum": (2, [helper.make_node("Add", ["d0", "d1"], ["t"]), *stored("t")]),
    "concatenation": (2, [helper.make_node("Concat", ["d0", "d1"], ["y"], axis=2)]),
}


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_quantized_compiles_and_runs(case: str, target: str) -> None:
    inputs, nodes = CASES[case]
    made = model(*nodes, inputs=inputs)
    plan = fqfuse.compile(made, target=target)
    assert {fate.quantizer for fate in plan.fate_records} == set(plan.quantizers)
    rng = np.random.default_rng(4)
    feeds = {f"x{i}": rng.standard_normal(SHAPE).astype(np.float32) for i in range(inputs)}
    found = fqfuse.InferenceSession(plan, backend="numpy").run(None, feeds)[0]
    wanted = ReferenceEvaluator(made).run(None, feeds)[0]
    # A code may be the next one where f32 rounds a tie the other way; everything else is exact.
    assert np.abs(found - wanted).max() <= SCALE * 1.01
    assert np.mean(found != wanted) < 0.02


def test_the_fate_says_that_the_rank_is_unknown() -> None:
    plan = fqfuse.compile(model(*stored("d0")))
    fates = [fate for fate in plan.fate_records if fate.fate is QuantizeFate.FALLBACK]
    assert fates
    assert all("how many dimensions" in fate.reason for fate in fates)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub", "Div", "Max"])
def test_a_constant_that_may_be_larger_than_a_value_of_unknown_shape(op: str, first: bool) -> None:
    """As NNCF's SmoothQuant writes it behind a Reshape whose target is computed: `binary` takes both
    as they are, and stores codes.
    """
    factors = np.linspace(0.5, 2, 64, dtype=np.float32).reshape(1, 1, 64)
    operands = ["r", "c"] if first else ["c", "r"]
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node(op, operands, ["m"]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "unknown_shape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["a", "b", 64])],
        [
            numpy_helper.from_array(factors, "c"),
            numpy_helper.from_array(np.float32(2**-4), "s"),
            numpy_helper.from_array(np.uint8(100), "z"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["onnx.Reshape", "binary"]
    sessions = [fqfuse.InferenceSession(plan, backend) for backend in ("numpy", "auto")]
    for shape in ((2, 3, 64), (2, 3, 1), (1, 1, 1), (1, 1, 64)):
        x = np.random.default_rng(0).integers(1, 9, math.prod(shape)).astype(np.float32)
        feeds = {"x": x, "shape": np.array(shape)}
        (want,) = ReferenceEvaluator(proto).run(None, feeds)
        for session in sessions:
            (got,) = session.run(None, feeds)
            assert got.shape == want.shape
            # one code at ties: the post-ops multiply by 16 what the quantizer divides by 1/16
            assert np.abs(got.astype(int) - want).max() <= 1


@pytest.mark.parametrize("ends", [[3, 3, 3], [1, 2, 3]])
@pytest.mark.parametrize("channels", ["c", None])
def test_ranges_that_tell_how_many_channels_there_are(
    channels: str | None, ends: list[int]
) -> None:
    """Even equal ones: as one scale for all, they would not tell any more."""
    high = np.asarray(ends, np.float32).reshape(1, 3, 1, 1)
    nodes = [
        helper.make_node(
            "FakeQuantize",
            ["x", "low", "high", "low", "high"],
            ["f"],
            levels=256,
            domain="org.openvinotoolkit",
        ),
        helper.make_node("Relu", ["f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "channels",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.zeros_like(high), "low"),
            numpy_helper.from_array(high, "high"),
        ],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("org.openvinotoolkit", 1)]
    plan = fqfuse.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    assert plan.type("y").shape == (1, 3, 4, 4)
    x = np.random.default_rng(0).uniform(-1, 4, (1, 3, 4, 4)).astype(np.float32)
    want = np.rint(np.clip(x, 0, high) / high * 255) / 255 * high
    for backend in ("numpy", "auto"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, {"x": x})
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)  # f32 of numbers below 4
