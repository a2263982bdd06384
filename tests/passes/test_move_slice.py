"""move_slice: golden cases, each held to the laws."""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.golden import check_pass
from support.onnx_cases import model, node

import fqfuse
from fqfuse.passes.move_slice import MOVE_SLICE, moving


@pytest.mark.golden("move_slice")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_SLICE)


def test_what_is_quantized_by_its_range_keeps_all_rows_that_the_range_is_of() -> None:
    n = Net()
    product = n.op("MatMul", n.input(("N", 6, 4)), n.const(np.eye(4, dtype=np.float32)))
    graph = n.done(n.op("Gather", product, n.ints(-1), axis=1))
    for dynamic, fired in ((None, True), ("matmul", False)):
        after = graph.copy()
        moving(dynamic).run(after)
        assert (after != graph) is fired


def test_another_result_than_the_first_stays_as_it_is() -> None:
    nodes = [
        node("LayerNormalization", ["x", "scale"], ["y", "mean"], axis=-1),
        node("Gather", ["mean", "i"], ["z"], axis=1),
    ]
    constants = {"scale": np.ones(4, np.float32), "i": np.int64(-1)}
    proto = model(nodes, inputs={"x": ["N", 6, 4]}, outputs=["y", "z"], constants=constants)
    x = np.arange(48, dtype=np.float32).reshape(2, 6, 4)
    _, found = fqfuse.InferenceSession(proto, "numpy").run(None, {"x": x})
    np.testing.assert_array_equal(found[:, 0], x[:, -1].mean(axis=-1))


def test_rows_that_the_graph_returns_twice() -> None:
    cut = ["start", "end", "start"]
    nodes = [
        node("MatMul", ["x", "w"], ["y"]),
        *(node("Slice", ["y", *cut], [name]) for name in ("a", "b", "c")),
        node("Relu", ["c"], ["d"]),
    ]
    constants = {"w": np.eye(4, 3, dtype=np.float32), "start": np.array([0]), "end": np.array([2])}
    proto = model(nodes, inputs={"x": [6, 4]}, outputs=["a", "b", "d"], constants=constants)
    plan = fqfuse.compile(proto)
    (product,) = (step for step in plan.steps if step.op == "MatMul")
    assert plan.type(product.arg("src")).shape == (2, 4)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for found in fqfuse.InferenceSession(plan, "numpy").run(None, {"x": x}):
        np.testing.assert_array_equal(found, x[:2, :3])


def test_the_last_result_of_a_split_is_cut_as_it_is() -> None:
    nodes = [
        node("Split", ["x", "sizes"], ["a", "b"], axis=1),
        node("Tanh", ["b"], ["t"]),
        node("Softmax", ["t"], ["s"], axis=-1),
        node("Gather", ["s", "i"], ["z"], axis=1),
    ]
    constants = {"sizes": np.asarray([2, 4]), "i": np.int64(-1)}
    proto = model(nodes, inputs={"x": ["N", 6, 4]}, outputs=["z"], constants=constants)
    x = np.arange(48, dtype=np.float32).reshape(2, 6, 4) / 48
    (found,) = fqfuse.InferenceSession(proto, "numpy").run(None, {"x": x})
    power = np.exp(np.tanh(x[:, -1]))
    # a few roundings of f32
    np.testing.assert_allclose(found, power / power.sum(-1, keepdims=True), rtol=1e-6)


def test_a_transpose_without_perm_behind_which_rows_are_cut() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Transpose", ["a"], ["t"]),
        node("Gather", ["t", "i"], ["y"], axis=1),
    ]
    proto = model(nodes, inputs={"x": ["N", 6, 4]}, constants={"i": np.int64(-2)})
    x = np.arange(-12, 36, dtype=np.float32).reshape(2, 6, 4)
    (found,) = fqfuse.InferenceSession(proto, "numpy").run(None, {"x": x})
    np.testing.assert_array_equal(found, np.maximum(x, 0).T[:, -2])


def test_the_rows_of_an_operand_are_read_by_the_node_that_reads_it_in_the_model() -> None:
    """Not by the Gather far behind, in front of which nobody in the model knows this quantizer."""
    nodes = [
        node("QuantizeLinear", ["mask", "scale", "zero"], ["codes"], name="quantizer"),
        node("DequantizeLinear", ["codes", "scale", "zero"], ["decoded"]),
        node("MatMul", ["x", "w"], ["scores"], name="scores"),
        node("Add", ["scores", "decoded"], ["masked"], name="add"),
        node("Softmax", ["masked"], ["s"], axis=-1),
        node("Gather", ["s", "first"], ["y"], name="pooler", axis=1),
    ]
    constants = {
        "w": np.eye(4, 6, dtype=np.float32),
        "scale": np.float32(np.inf),  # stays an operator of its own
        "zero": np.uint8(0),
        "first": np.int64(0),
    }
    proto = model(nodes, inputs={"x": ["N", 6, 4], "mask": ["N", 6, 6]}, constants=constants)
    plan = fqfuse.compile(proto)
    cut = next(step for step in plan.steps if step.primitive == "onnx.Slice")
    assert cut.origin[-1] == "pooler"
    consumers = {row["consumer"] for row in plan.fates() if row["half"] == "dequantize"}
    assert consumers == {"add"}


@pytest.mark.parametrize("opset", [23, 17])
@pytest.mark.parametrize("kept", [0, 1, -1])
def test_rows_behind_the_mean_of_a_normalization(opset: int, kept: int) -> None:
    """RMSNormalization, or its arithmetic as PyTorch exports it: one row of a product is left."""
    nodes = [node("MatMul", ["x", "w"], ["p"])]
    if opset == 23:
        nodes.append(node("RMSNormalization", ["p", "g"], ["n"]))
    else:
        nodes += [
            node("Pow", ["p", "two"], ["s"]),
            node("ReduceMean", ["s"], ["m"], axes=[-1], keepdims=1),
            node("Add", ["m", "e"], ["v"]),
            node("Sqrt", ["v"], ["r"]),
            node("Reciprocal", ["r"], ["f"]),
            node("Mul", ["p", "f"], ["q"]),
            node("Mul", ["q", "g"], ["n"]),
        ]
    nodes.append(node("Gather", ["n", "i"], ["y"], axis=1))
    rng = np.random.default_rng(0)
    g, w, x = (rng.normal(size=size).astype(np.float32) for size in ((5,), (4, 5), (2, 6, 4)))
    constants = {"w": w, "g": g, "i": np.int64(kept), "two": np.float32(2), "e": np.float32(1e-5)}
    used = {name for each in nodes for name in each.input}
    constants = {name: data for name, data in constants.items() if name in used}
    plan = fqfuse.compile(model(nodes, inputs={"x": [2, 6, 4]}, constants=constants, opset=opset))
    (product,) = (step for step in plan.steps if step.op == "MatMul")
    assert plan.type(product.output).shape == (2, 1, 5)
    row = (x.astype(np.float64) @ w)[:, kept]
    wanted = row / np.sqrt((row**2).mean(-1, keepdims=True) + 1e-5) * g
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, {"x": x})
        # a few roundings of f32, and those of four products
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_rows_behind_a_mean_over_them_stay() -> None:
    n = Net()
    product = n.op("MatMul", n.input((2, 6, 4)), n.const(np.eye(4, dtype=np.float32)))
    mean = n.op("ReduceMean", product, n.ints(1), keepdims=1)
    graph = n.done(n.op("Gather", mean, n.ints(0), axis=1))
    after = graph.copy()
    MOVE_SLICE.run(after)
    assert after == graph
