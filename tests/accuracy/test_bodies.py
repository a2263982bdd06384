"""Models whose bodies hold operators that ONNX does not define: what they compute is compared all the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.onnx_cases import run_ort

import fqfuse

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
info = helper.make_tensor_value_info


def product(value: str, out: str) -> onnx.NodeProto:
    told = {"K": 64, "N": 64, "bits": 4, "block_size": 32}
    return helper.make_node(
        "MatMulNBits", [value, "B", "s"], [out], domain="com.microsoft", name=out, **told
    )


def model(op: str) -> onnx.ModelProto:
    """Products of packed weights in the bodies of an If, a Loop or a Scan."""
    if op == "If":
        bodies = {
            f"{name}_branch": helper.make_graph(
                [product("x", f"{name}/m"), helper.make_node(last, [f"{name}/m"], [name])],
                name,
                [],
                [info(name, FLOAT, [2, 64])],
            )
            for name, last in (("then", "Neg"), ("else", "Relu"))
        }
        node = helper.make_node("If", ["going"], ["y"], name="inner", **bodies)
    elif op == "Loop":
        nodes = [product("state", "m"), helper.make_node("Tanh", ["m"], ["next"])]
        nodes.append(helper.make_node("Identity", ["on"], ["still"]))
        inputs = [info("trip", INT64, []), info("on", BOOL, []), info("state", FLOAT, [2, 64])]
        outputs = [info("still", BOOL, []), info("next", FLOAT, [2, 64])]
        body = helper.make_graph(nodes, "body", inputs, outputs)
        node = helper.make_node("Loop", ["trips", "going", "x"], ["y"], name="inner", body=body)
    else:
        nodes = [product("row", "m"), helper.make_node("Add", ["m", "state"], ["next"])]
        nodes.append(helper.make_node("Tanh", ["next"], ["out"]))
        inputs = [info("state", FLOAT, [64]), info("row", FLOAT, [64])]
        outputs = [info("next", FLOAT, [64]), info("out", FLOAT, [64])]
        body = helper.make_graph(nodes, "body", inputs, outputs)
        told = {"num_scan_inputs": 1, "body": body}
        node = helper.make_node("Scan", ["zeros", "x"], ["last", "y"], name="inner", **told)
    rng = np.random.default_rng(1)
    constants = {
        "B": rng.integers(0, 256, (64, 2, 16)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.03, (64, 2)).astype(np.float32),
        "trips": np.int64(3),
        "zeros": np.zeros(64, np.float32),
    }
    inputs = [info("x", FLOAT, [2, 64]), info("going", BOOL, [])]
    tensors = [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [info("y", FLOAT, [2, 64])], tensors)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_a_dialect_in_a_body_is_compared_and_simulated(op: str, going: bool) -> None:
    given, feeds = model(op), {"x": np.random.default_rng(2).normal(0, 1, (2, 64)), "going": going}
    feeds = {"x": feeds["x"].astype(np.float32), "going": np.asarray(going)}
    (wanted,) = run_ort(given, feeds)
    with fqfuse.InferenceSession(given) as session:
        (ours,) = session.run(None, feeds)
    # sums of 64 products in f32, in the order of each, through three trips
    np.testing.assert_allclose(ours, wanted, atol=1e-4)
    found = fqfuse.compare(given, given, data=feeds)
    assert found["outputs"]["y"]["sqnr"] > 100
    assert found["agreement"]["fqfuse"]["y"]["sqnr"] > 100
    assert fqfuse.simulate(given, data=feeds)["schema"] == "fqfuse.simulate/1"
