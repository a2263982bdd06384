"""The wires of a graph: names, order, cycles, counts, inputs and outputs."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws.runtimes import RUNTIMES
from onnx import TensorProto, helper
from support.onnx_cases import compare, model, node, ops, random

import fqfuse
from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend import Budgets, graph_from_onnx
from fqfuse.ir.types import DType

FEEDS = {"x": random([2, 3, 4, 5])}


def refused(proto, text, kind=InvalidModel):
    with pytest.raises(kind, match=text) as caught:
        graph_from_onnx(proto)
    assert caught.value.hint
    return caught.value


# -- names -----------------------------------------------------------------------------------------


def test_a_value_made_twice():
    twice = model([node("Relu", ["x"], name="a"), node("Neg", ["x"], name="b")])
    error = refused(twice, "'y' is made twice: it is also made by Relu node 'a'")
    assert error.where == "ModelProto: Neg node 'b'"
    refused(
        model([node("Relu", ["x"], ["x"])], outputs=["x"]),
        "'x' is made twice: it is also an input or initializer",
    )


def test_values_that_nothing_makes_are_listed():
    proto = model(
        [node("Add", ["x", "lost"], name="a"), node("Mul", ["x", "gone"], ["z"], name="b")],
        outputs=["y", "nowhere"],
    )
    error = refused(proto, "values that nothing makes")
    assert "'lost' (read by Add node 'a')" in error.what
    assert "'gone' (read by Mul node 'b')" in error.what
    assert "'nowhere' (an output of the graph)" in error.what


def test_two_inputs_or_initializers_of_one_name():
    proto = model([node("Relu", ["x"])])
    proto.graph.input.append(proto.graph.input[0])
    refused(proto, "two graph inputs 'x'")
    proto = model([node("Add", ["x", "c"])], constants={"c": np.float32(1)})
    proto.graph.initializer.append(proto.graph.initializer[0])
    refused(proto, "two initializers 'c'")
    proto.graph.initializer[1].name = ""
    refused(proto, "an initializer has no name")


def test_nodes_of_one_name_and_of_none():
    nodes = [
        node("Relu", ["x"], ["a"], name="n"),
        node("Neg", ["a"], ["b"], name="n"),
        node("Abs", ["b"], ["y"]),
    ]
    graph = graph_from_onnx(model(nodes))
    assert [found.name for found in graph.nodes()] == ["n", "n.1", "y"]
    assert [found.origin for found in graph.nodes()] == [("n",), ("n",), ("y",)]


def test_names_that_the_import_adds_avoid_the_models():
    nodes = [
        node("Slice", ["x"], ["a"], name="s", starts=[0], ends=[2]),
        node("Relu", ["a"], ["s.starts"], name="s.ends"),
        node("Neg", ["s.starts"]),
    ]
    graph = compare(model(nodes, opset=9), FEEDS)
    assert graph.node("s").inputs == ("x", "s.starts.1", "s.ends")


def test_a_node_may_be_called_like_a_value():
    nodes = [
        node("Relu", ["x"], ["a"], name="b"),
        node("Neg", ["a"], ["b"], name="a"),
        node("Abs", ["b"], name="x"),
    ]
    graph = compare(model(nodes), FEEDS)
    assert {found.name for found in graph.nodes()} == {"a", "b", "x"}


# -- order -----------------------------------------------------------------------------------------


@given(st.permutations(range(6)))
def test_unsorted_nodes_are_sorted(order):
    chain = [
        node("Relu", ["x"], ["v0"]),
        *(node("Add", [f"v{i}", "x"], [f"v{i + 1}"]) for i in range(5)),
    ]
    graph = graph_from_onnx(model([chain[i] for i in order], outputs=["v5"]))
    assert [found.output for found in graph.nodes()] == [f"v{i}" for i in range(6)]


def test_the_models_own_order_is_kept():
    nodes = [node("Relu", ["x"], ["b"]), node("Neg", ["x"], ["a"]), node("Add", ["a", "b"])]
    assert [found.output for found in graph_from_onnx(model(nodes)).nodes()] == ["b", "a", "y"]


def test_cycles_are_named():
    nodes = [
        node("Relu", ["x"], ["r"], name="before"),
        node("Add", ["r", "c"], ["a"], name="first"),
        node("Neg", ["a"], ["b"], name="second"),
        node("Abs", ["b"], ["c"], name="third"),
        node("Exp", ["c"], ["y"], name="behind"),
    ]
    error = refused(model(nodes), "nodes wait for each other")
    for name in ("first", "second", "third"):
        assert repr(name) in error.what
    assert "before" not in error.what
    assert "behind" not in error.what
    refused(model([node("Add", ["x", "y"], name="self")]), "Add node 'self' -> Add node 'self'")


# -- nodes against their schema --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (node("Relu", ["x", "x"]), "Relu of opset 21 takes 1 inputs, not 2"),
        (node("Add", ["x"]), "Add of opset 21 takes 2 inputs, not 1"),
        (node("Add", ["", "x"]), "Add of opset 21 needs its input 0, which is absent"),
        (node("Relu", ["x"], ["y", "z"]), "at most 1 outputs, not 2"),
        (node("Relu", ["x"], slope=2), "has no attribute 'slope'"),
        (node("Concat", ["x"]), "needs the attribute 'axis'"),
        (
            node("Concat", ["x"], axis=1.5),
            "the attribute 'axis' of Concat is of kind INT, not FLOAT",
        ),
        (node("Concat", ["x"], axis=9), "axis"),
        (
            node("MaxPool", ["x"], kernel_shape=[2]),
            "kernel_shape has 1 entries for 2 spatial dimensions",
        ),
        (node("MaxPool", ["x"], kernel_shape=[2, 2], strides=[0, 1]), "must be positive"),
        (
            node("MaxPool", ["x"], kernel_shape=[2, 2], pads=[1]),
            "pads has 1 entries where 4 belong",
        ),
        (node("MaxPool", ["x"], kernel_shape=[2, 2], auto_pad="SOMEHOW"), "auto_pad is 'SOMEHOW'"),
        (node("MaxPool", ["x"], kernel_shape=[9, 9]), "window"),
        (node("Transpose", ["x"], perm=[0, 0, 1, 2]), "perm"),
        (
            node("Split", ["x"], ["y", "z"], axis=1, num_outputs=2**62),
            "num_outputs is 4611686018427387904, and the node has 2 outputs",
        ),
    ],
)
def test_invalid_nodes(bad, text):
    bad.name = "bad"
    error = refused(model([bad]), text)
    assert "node 'bad'" in error.where


def test_a_node_without_outputs():
    error = refused(
        model([node("Relu", ["x"]), node("Neg", ["x"], [""], name="useless")]), "Neg has no output"
    )
    assert "node 'useless'" in error.where


def test_repeated_and_broken_attributes():
    bad = node("Concat", ["x"], axis=1)
    bad.attribute.append(bad.attribute[0])
    refused(model([bad]), "the attribute 'axis' is there twice")
    bad = node("MaxPool", ["x"], kernel_shape=[2, 2], auto_pad="NOTSET")
    next(a for a in bad.attribute if a.name == "auto_pad").s = b"\xff"
    refused(model([bad]), "the attribute 'auto_pad' is no UTF-8 text")
    bad = node("Concat", ["x"], axis=1)
    bad.attribute[0].type = 0
    bad.attribute[0].ClearField("i")
    refused(model([bad]), "no known kind")
    bad = node("Concat", ["x"], axis=1)
    bad.attribute[0].ref_attr_name = "outer"
    refused(model([bad]), "refers to a function's attribute")


def test_notes_of_tools_are_no_attributes():
    assert ops(compare(model([node("Relu", ["x"])]), FEEDS)) == ["Relu"]
    noted = node("Relu", ["x"])
    noted.attribute.append(helper.make_attribute("__fused_by", "a tool"))
    assert ops(graph_from_onnx(model([noted]))) == ["Relu"]


# -- inputs and outputs ----------------------------------------------------------------------------


def test_symbolic_sizes():
    proto = model([node("Relu", ["x"])], inputs={"x": ["batch size", None, 3, -1]})
    graph = graph_from_onnx(proto)
    assert graph.type("y").shape == ("batch_size", "x_1", 3, "x_3")


def test_size_names_that_read_alike_stay_apart():
    graph = graph_from_onnx(model([node("Relu", ["x"])], inputs={"x": ["a b", "a_b", "a,b", "?"]}))
    assert graph.type("x").shape == ("a_b", "a_b_1", "a_b_2", "x_3")


@pytest.mark.parametrize("name", ["?", "-1", "None", "unk__12", "", "*"])
def test_what_is_no_name_says_nothing_of_other_sizes(name):
    proto = model([node("Add", ["x", "z"])], inputs={"x": [name, name], "z": [name]})
    graph = graph_from_onnx(proto)
    assert graph.type("x").shape == ("x_0", "x_1")
    assert graph.type("z").shape == ("z_0",)


def test_new_size_names_avoid_the_models():
    graph = graph_from_onnx(
        model([node("Relu", ["x"])], inputs={"x": ["x_1", None], "u": [None, "?"]})
    )
    assert graph.type("x").shape == ("x_1", "x_1_1")
    assert len({*graph.type("x").shape, *graph.type("u").shape}) == 4


def test_input_of_unknown_rank():
    proto = model([node("Relu", ["x"])])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert graph_from_onnx(proto).type("y").shape is None


def test_negative_sizes_other_than_minus_one():
    refused(model([node("Relu", ["x"])], inputs={"x": [2, -2]}), "dimension 1 has the size -2")


def test_inputs_that_are_no_tensors():
    proto = model([node("Relu", ["x"])])
    proto.graph.input[0].ClearField("type")
    refused(proto, "the input has no type")
    proto.graph.input[0].CopyFrom(
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    )
    refused(proto, "no tensor but a sequence", UnsupportedOp)
    pairs = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    proto.graph.input[0].CopyFrom(helper.make_value_info("x", pairs))
    refused(proto, "no tensor but a map", UnsupportedOp)
    nested = helper.make_sequence_type_proto(helper.make_sequence_type_proto(pairs))
    proto.graph.input[0].CopyFrom(helper.make_value_info("x", nested))
    refused(proto, "no tensor but a sequence", UnsupportedOp)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [2]))
    refused(proto, "complex64", UnsupportedOp)


def test_an_input_with_an_initializer_is_a_constant():
    proto = model(
        [node("Add", ["x", "c"])], inputs={"x": [2], "c": [2]}, constants={"c": np.float32([1, 2])}
    )
    graph = graph_from_onnx(proto)
    assert graph.inputs == ("x",)
    assert set(graph.constants) == {"c"}


def test_outputs_may_be_inputs_and_constants():
    proto = model(
        [node("Relu", ["x"])], outputs=["x", "c", "y"], constants={"c": np.float32([1, 2])}
    )
    assert graph_from_onnx(proto).outputs == ("x", "c", "y")
    refused(model([node("Relu", ["x"])], outputs=[]), "has no outputs")


def test_every_kind_of_constant_node():
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", 1, [1], [5.0]), helper.make_tensor("i", 7, [1], [2]), [3]
    )
    values = {
        "a": ({"value": helper.make_tensor("v", TensorProto.INT8, [2], [1, 2])}, np.int8([1, 2])),
        "b": ({"value_int": 3}, np.int64(3)),
        "c": ({"value_ints": [3, 4]}, np.int64([3, 4])),
        "d": ({"value_float": 0.5}, np.float32(0.5)),
        "e": ({"value_floats": [0.5, 1.5]}, np.float32([0.5, 1.5])),
        "f": ({"sparse_value": sparse}, np.float32([0, 0, 5])),
        "g": ({"value_string": b"t"}, np.asarray("t", object)),
        "h": ({"value_strings": [b"t", b"u"]}, np.asarray(["t", "u"], object)),
    }
    nodes = [node("Constant", [], [name], **attributes) for name, (attributes, _) in values.items()]
    graph = graph_from_onnx(model(nodes, outputs=list(values)))
    for name, (_, expected) in values.items():
        np.testing.assert_array_equal(graph.constants[name], expected)
        assert graph.constants[name].dtype == expected.dtype
    assert graph.type("h").dtype is DType.STRING
    assert len(graph) == 0


def test_a_constant_node_needs_one_value():
    refused(
        model([node("Constant", [], value_int=1, value_float=2.0)]), "has 2 values, and needs one"
    )
    refused(model([node("Constant", [])]), "has 0 values, and needs one")


# -- opsets and unknown ops ------------------------------------------------------------------------


def test_opsets_are_checked():
    proto = model([node("Relu", ["x"])])
    proto.opset_import[0].version = 999
    refused(proto, "opset 999, which is not known here")
    proto.opset_import[0].version = 0
    refused(proto, "opset 0")
    del proto.opset_import[:]
    refused(proto, "no opset is imported")
    proto.opset_import.extend([helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx", 14)])
    refused(proto, "two opsets are imported")


def test_files_from_before_opsets():
    proto = model([node("Relu", ["x"])])
    del proto.opset_import[:]
    proto.ir_version = 2
    assert ops(graph_from_onnx(proto)) == ["Relu"]


def test_all_unknown_ops_are_listed_with_their_nodes():
    nodes = [
        node("Foo", ["x"], ["a"], name="f1", domain="com.acme"),
        node("Foo", ["a"], ["b"], name="f2", domain="com.acme"),
        node("BeamSearch", ["b"], ["c"], name="m", domain="com.microsoft"),
        node("AttnLSTM", ["c"], ["d"], name="i", domain="com.microsoft"),
        node("Relux", ["d"], name="r"),
    ]
    error = refused(
        model(nodes, domains={"com.acme": 1, "com.microsoft": 1}),
        "4 operators that nothing here can run",
        UnsupportedOp,
    )
    for part in (
        "com.acme.Foo (node 'f1', 'f2')",
        "com.microsoft.BeamSearch (node 'm')",
        "Relux (node 'r')",
    ):
        assert part in error.what
    for part in ("write the search around it", "local functions", "ORT_DISABLE_ALL"):
        assert part in error.hint
    alone = refused(model([node("Relux", ["x"])]), "that nothing here can run", UnsupportedOp)
    assert alone.hint == "ONNX has no op Relux: check its name and its domain"


def test_an_op_of_a_newer_opset_says_which():
    error = refused(
        model([node("Gelu", ["x"])], opset=13),
        "an operator that nothing here can run: Gelu",
        UnsupportedOp,
    )
    assert "exists from opset 20 on, and the model imports 13" in error.hint


def test_many_unknown_nodes_are_counted():
    nodes = [node("Foo", ["x"], [f"y{i}"], name=f"n{i}", domain="com.acme") for i in range(9)]
    error = refused(model(nodes, outputs=["y0"]), "'n0', 'n1', 'n2' and 6 more", UnsupportedOp)
    assert "n5" not in error.what


# -- size ------------------------------------------------------------------------------------------


def test_import_takes_linear_time():
    def seconds(count):
        nodes = [
            node("Add", [f"v{i - 1}" if i else "x", "c"], [f"v{i}"], name="same")
            for i in range(count)
        ]
        data = model(
            nodes, inputs={"x": [2]}, outputs=[f"v{count - 1}"], constants={"c": np.float32(1)}
        ).SerializeToString()
        started = time.process_time()
        assert len(graph_from_onnx(data)) == count
        return time.process_time() - started

    small, large = min(seconds(1000) for _ in range(3)), seconds(16000)
    # four times: the garbage collector and the caches; quadratic time would be 16 times
    assert large < 16 * small * 4


def test_node_budget_counts_subgraphs():
    inner = helper.make_graph(
        [node("Identity", ["x"], [f"b{i}"]) for i in range(5)],
        "body",
        [],
        [onnx.ValueInfoProto(name="b4")],
    )
    nodes = [node("If", ["c"], then_branch=inner, else_branch=inner)]
    proto = model(nodes, inputs={"x": [2], "c": []}, types={"c": TensorProto.BOOL})
    graph_from_onnx(proto, budgets=Budgets(nodes=11))
    with pytest.raises(InvalidModel, match="and the budget allows 10"):
        graph_from_onnx(proto, budgets=Budgets(nodes=10))


# -- ranks -----------------------------------------------------------------------------------------


def of_rank(rank: int) -> onnx.ModelProto:
    """Relu, and a sum, of a tensor with so many dimensions."""
    nodes = [node("Relu", ["x"], ["r"]), node("Add", ["r", "c"])]
    shape = [*[1] * (rank - 1), 3]
    return model(nodes, inputs={"x": shape}, constants={"c": np.float32([1, 2, 3])})


@pytest.mark.parametrize("rank", [12, 13, 32])
def test_as_many_dimensions_as_arrays_have(rank: int) -> None:
    x = np.full([*[1] * (rank - 1), 3], 2, np.float32)
    for runtime in RUNTIMES:
        (found,) = fqfuse.InferenceSession(of_rank(rank), runtime, 1).run(None, {"x": x})
        np.testing.assert_array_equal(found.reshape(-1), [3, 4, 5])


@pytest.mark.parametrize("rank", [33, 64, 70])
def test_more_dimensions_than_arrays_have(rank: int) -> None:
    refused(of_rank(rank), f"'x' has {rank} dimensions, and at most 32", UnsupportedOp)
    axes = np.arange(rank - 1)
    nodes = [node("Unsqueeze", ["x", "axes"], ["t"]), node("Squeeze", ["t", "axes"])]
    inner = model(nodes, inputs={"x": [3]}, constants={"axes": axes})
    error = refused(inner, f"'t' has {rank} dimensions, and at most 32", UnsupportedOp)
    assert "t" in error.where
