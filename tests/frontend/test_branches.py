"""If by a condition that is known at compile time: the branch in its place, compiled like all else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse

FLOAT = TensorProto.FLOAT


def body(name, nodes, outputs, constants=()):
    infos = [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs]
    tensors = [onnx.numpy_helper.from_array(data, n) for n, data in dict(constants).items()]
    return helper.make_graph(nodes, name, [], infos, tensors)


def quantized(prefix, source):
    """A quantized product of a captured value, in a body."""
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "w": np.random.default_rng(len(prefix)).integers(-127, 128, (4, 4)).astype(np.int8),
    }
    nodes = [
        node("QuantizeLinear", [source, "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        node("MatMul", ["d", "v"], ["out"], name=f"{prefix}.product"),
    ]
    return body(prefix, nodes, ["out"], constants)


def both(condition):
    """If with a product in each branch, whose values have the same names."""
    bodies = {
        "then_branch": quantized("then", "x"),
        "else_branch": quantized("otherwise", "x"),
    }
    return model(
        [node("If", ["c"], ["i"], name="choice", **bodies), node("Relu", ["i"], ["y"])],
        inputs={"x": [3, 4]},
        constants={"c": np.asarray(condition)},
    )


@pytest.mark.parametrize("condition", [False, True])
def test_a_constant_condition_takes_its_branch(condition) -> None:
    proto, feeds = both(condition), {"x": random([3, 4])}
    plan = fqfuse.compile(proto)
    quantize, step = plan.steps
    assert (quantize.primitive, step.primitive) == ("reorder", "matmul")
    assert len(step.attr.post_ops) == 1  # the relu behind the If
    assert plan.constants[step.arg("weights")].dtype == np.int8
    (wanted,) = run_ort(proto, feeds)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert f"always {condition}" in next(
        d.reason for d in plan.decision_records if d.rule == "take_branch"
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_condition_that_follows_from_sizes_takes_its_branch(channels) -> None:
    """What TorchScript writes of a squeeze(1)."""
    squeeze = body("squeeze", [node("Squeeze", ["x", "axis"], ["out"])], ["out"])
    same = body("same", [node("Identity", ["x"], ["out"])], ["out"])
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["size"]),
        node("Equal", ["size", "one"], ["c"]),
        node("If", ["c"], ["i"], then_branch=squeeze, else_branch=same),
        node("Neg", ["i"], ["y"]),
    ]
    constants = {"one": np.asarray(1, np.int64), "axis": np.int64([1])}
    proto = model(nodes, inputs={"x": [2, channels, 4]}, constants=constants)
    plan = fqfuse.compile(proto)
    assert "onnx.If" not in {step.primitive for step in plan.steps}
    x = random([2, channels, 4])
    (found,) = fqfuse.InferenceSession(plan).run(None, {"x": x})
    np.testing.assert_array_equal(found, -x[:, 0] if channels == 1 else -x)


def test_branches_nest_and_capture() -> None:
    inner = body("inner", [node("Add", ["out", "k"], ["sum"])], ["sum"], {"k": np.float32([2])})
    other = body("other", [node("Sub", ["out", "x"], ["sum"])], ["sum"])
    held = helper.make_node("Constant", [], ["held"], value_float=3.0)
    outer = body(
        "outer",
        [
            held,
            node("Mul", ["x", "held"], ["out"]),
            node("If", ["dynamic"], ["made"], then_branch=inner, else_branch=other),
            node("If", ["c"], ["last"], then_branch=inner, else_branch=other),
        ],
        ["made", "last", "held"],
    )
    nodes = [node("Neg", ["x"], ["o1"]), node("Neg", ["o1"], ["o2"]), node("Abs", ["x"], ["o3"])]
    nothing = body("nothing", nodes, ["o1", "o2", "o3"])
    nodes = [
        node("If", ["c"], ["a", "b", "same"], then_branch=outer, else_branch=nothing),
        node("Add", ["a", "b"], ["ab"]),
        node("Add", ["ab", "same"], ["y"]),
    ]
    types = {"x": FLOAT, "dynamic": TensorProto.BOOL}
    inputs, constants = {"x": [4], "dynamic": []}, {"c": np.asarray(True)}
    proto = model(nodes, inputs=inputs, constants=constants, types=types)
    for dynamic in (False, True):
        feeds = {"x": random([4]), "dynamic": np.asarray(dynamic)}
        (wanted,) = run_ort(proto, feeds)
        for backend in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(proto, backend).run(None, feeds)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_condition_that_is_fed_stays_an_if() -> None:
    proto = both(True)
    del proto.graph.initializer[:]
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    assert "onnx.If" in {step.primitive for step in fqfuse.compile(proto).steps}
