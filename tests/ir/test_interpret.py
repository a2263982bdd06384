"""The reference run: values, order, freeing, and errors that name the place."""

from __future__ import annotations

import re
import weakref

import numpy as np
import pytest

from fqfuse.errors import InternalError, InvalidInput, UnsupportedOp
from fqfuse.ir import interpret
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, TensorType

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def graph_of(*shape: int | str, dtype: DType = DType.F32) -> Graph:
    graph = Graph("model")
    graph.add_input("x", TensorType(dtype, shape))
    return graph


def test_runs_nodes_in_order_and_returns_the_outputs_in_theirs():
    graph = graph_of("N", 4)
    relu = graph.add("Relu", ["x"], outputs=["r"])
    total = graph.add("Add", [relu.output, "x"], outputs=["t"])
    two = graph.add_constant("two", np.asarray(2, np.float32))
    graph.add("Mul", [total.output, two], outputs=["m"])
    graph.set_outputs(["m", "r", "x", two])
    found = run_graph(graph, {"x": X})
    assert list(found) == ["m", "r", "x", "two"]
    np.testing.assert_array_equal(found["m"], (np.maximum(X, 0) + X) * 2)
    np.testing.assert_array_equal(found["r"], np.maximum(X, 0))
    np.testing.assert_array_equal(found["two"], 2)


def test_keep_all_returns_every_value_that_is_computed():
    graph = graph_of(3, 4)
    graph.add("Relu", ["x"], outputs=["r"])
    graph.add("Neg", ["r"], outputs=["n"])
    graph.add("Add", ["n", graph.add_constant("c", X)], outputs=["s"])
    graph.set_outputs(["s"])
    assert list(run_graph(graph, {"x": X}, keep_all=True)) == ["x", "r", "n", "s"]
    assert list(run_graph(graph, {"x": X})) == ["s"]


def test_absent_inputs_and_outputs():
    graph = graph_of(3, 4)
    graph.add(
        "Clip", ["x", "", graph.add_constant("high", np.asarray(2, np.float32))], outputs=["c"]
    )
    k = graph.add_constant("k", np.asarray([1], np.int64))
    graph.add("TopK", ["c", k], outputs=["", "where"])
    graph.set_outputs(["where"])
    np.testing.assert_array_equal(
        run_graph(graph, {"x": X})["where"], np.argmax(np.minimum(X, 2), axis=1)[:, None]
    )


def test_values_are_freed_after_their_last_use(monkeypatch):
    graph = graph_of(3, 4)
    for index in range(4):
        graph.add(
            "Exp" if index % 2 else "Tanh",
            ["x" if index == 0 else f"v{index - 1}"],
            outputs=[f"v{index}"],
        )
    graph.add("Add", ["v3", "v1"], outputs=["y"])
    graph.set_outputs(["y"])
    alive: dict[str, weakref.ref[np.ndarray]] = {}
    seen: dict[str, list[str]] = {}
    run_node = interpret.run_node

    def watched(node, arrays, foreign):
        del foreign
        found = run_node(node, arrays)
        seen[node.outputs[0]] = [name for name, ref in alive.items() if ref() is not None]
        alive[node.outputs[0]] = weakref.ref(found[0])
        return found

    monkeypatch.setattr(interpret, "run_node", watched)
    run_graph(graph, {"x": X})
    assert seen == {"v0": [], "v1": ["v0"], "v2": ["v1"], "v3": ["v1", "v2"], "y": ["v1", "v3"]}


def test_results_never_share_memory_with_feeds():
    graph = graph_of(3, 4)
    graph.add("Identity", ["x"], outputs=["same"])
    graph.add("Transpose", ["x"], outputs=["turned"])
    graph.set_outputs(["same", "turned", "x"])
    feed = X.copy()
    found = run_graph(graph, {"x": feed})
    feed += 1
    np.testing.assert_array_equal(found["same"], X)
    np.testing.assert_array_equal(found["turned"], X.T)
    np.testing.assert_array_equal(found["x"], X)


def test_results_can_be_written_into():
    graph = graph_of(3, 1)
    graph.add("Expand", ["x", graph.add_constant("shape", np.asarray([3, 4]))], outputs=["wide"])
    constant = graph.add_constant("c", X)
    graph.set_outputs(["wide", constant])
    for array in run_graph(graph, {"x": X[:, :1]}).values():
        array[...] = 1
    np.testing.assert_array_equal(graph.constants[constant], X)


# -- foreign ops -----------------------------------------------------------------------------------


def foreign_graph() -> Graph:
    graph = graph_of(3, 4)
    attrs = {"op_type": "Hardmax", "opset": 13, "proto": b""}
    graph.add(
        "Onnx",
        ["x", ""],
        attrs,
        name="odd",
        outputs=["y"],
        origin=["layer/odd"],
        types=[TensorType(DType.F32, (3, 4))],
    )
    graph.set_outputs(["y"])
    return graph


def test_foreign_ops_are_run_by_the_caller():
    def run(node, arrays):
        assert (node.attrs["op_type"], len(arrays), arrays[1]) == ("Hardmax", 2, None)
        return [arrays[0] * 2]

    np.testing.assert_array_equal(run_graph(foreign_graph(), {"x": X}, foreign=run)["y"], X * 2)


def test_foreign_ops_without_a_caller():
    with pytest.raises(UnsupportedOp, match=r"Hardmax[\s\S]*layer/odd"):
        run_graph(foreign_graph(), {"x": X})


def test_a_foreign_result_of_another_type_is_a_bug():
    for result in (X.astype(np.float64), X[:2], X[0]):
        with pytest.raises(
            InternalError, match=r"Hardmax at layer/odd gave .* for y, whose type is f32\[3,4\]"
        ):
            run_graph(foreign_graph(), {"x": X}, foreign=lambda _, __, result=result: [result])


# -- feeds -----------------------------------------------------------------------------------------


def two_inputs() -> Graph:
    graph = graph_of("N", 4)
    graph.add_input("other", TensorType(DType.F32, ("N", "M")))
    graph.add("Relu", ["x"], outputs=["y"])
    graph.set_outputs(["y"])
    return graph


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": X}, "missing inputs: other"),
        ({"x": X, "other": X, "z": X}, "unknown inputs: z"),
        ({"x": X.astype(np.float64), "other": X}, "expected float32 elements, found float64"),
        ({"x": X[:, :3], "other": X}, "expected shape f32[N,4], found [3, 3]"),
        ({"x": X[0], "other": X}, "expected shape f32[N,4], found [4]"),
        ({"x": X, "other": X[:2]}, "expected shape f32[N,M], found [2, 4]"),
    ],
)
def test_feeds_that_do_not_fit(feeds, message):
    with pytest.raises(InvalidInput, match=re.escape(message)) as caught:
        run_graph(two_inputs(), feeds)
    assert "input" in str(caught.value)


def test_a_symbol_takes_the_same_size_everywhere():
    with pytest.raises(InvalidInput, match="N=3"):
        run_graph(two_inputs(), {"x": X, "other": X[:2]})
    run_graph(two_inputs(), {"x": X, "other": X[:, :1]})


def test_a_node_that_cannot_be_computed_is_named():
    graph = graph_of("N", "M")
    weights = graph.add_constant("w", np.ones((4, 2), np.float32))
    graph.add("MatMul", ["x", weights], name="dense", outputs=["y"], origin=["encoder/dense"])
    graph.set_outputs(["y"])
    with pytest.raises(
        InvalidInput,
        match=r"MatMul cannot be computed on float32\[3, 5\], float32\[4, 2\][\s\S]*encoder/dense",
    ):
        run_graph(graph, {"x": np.ones((3, 5), np.float32)})
