"""Ops without a row, subgraphs, uses that a row does not cover, and model-local functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from support.onnx_cases import compare, model, node, ops, random, run_import

from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend import Budgets, graph_from_onnx
from fqfuse.frontend.bodies import CARRIED_KEY
from fqfuse.ir.decision import Outcome
from fqfuse.ir.types import DType
from fqfuse.plan.foreign import INPUTS_KEY, OPSETS_KEY

FEEDS = {"x": random([2, 3, 4, 5])}


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def test_an_op_without_a_row_stays_and_runs():
    graph = compare(
        model([node("Tan", ["x"], ["t"], name="tan"), node("Relu", ["t"])]), FEEDS, rtol=1e-6
    )
    assert ops(graph) == ["Onnx", "Relu"]
    kept = graph.node("tan")
    assert (kept.attrs["op_type"], kept.attrs["domain"], kept.attrs["opset"]) == ("Tan", "", 21)
    assert NodeProto.FromString(kept.attrs["proto"]).op_type == "Tan"
    assert graph.type("t").shape == (2, 3, 4, 5)
    assert kept.origin == ("tan",)


def test_symbolic_sizes_pass_through_foreign_ops():
    proto = model(
        [node("Relu", ["x"], ["a"]), node("Concat", ["a", "a"], ["b"], axis=1), node("Tan", ["b"])],
        inputs={"x": ["N", "H", 4]},
    )
    assert graph_from_onnx(proto).type("y").shape == ("N", "2*H", 4)


def test_unknown_sizes_of_foreign_ops_do_not_look_equal():
    graph = graph_from_onnx(model([node("NonZero", ["x"])]))
    assert graph.type("y") == type(graph.type("y"))(DType.S64, (4, "?"))


def test_ops_of_machine_learning_models():
    nodes = [node("Normalizer", ["x"], domain="ai.onnx.ml", norm="L2")]
    graph = compare(
        model(nodes, inputs={"x": [2, 3]}, domains={"ai.onnx.ml": 1}),
        {"x": random([2, 3])},
        rtol=1e-6,
    )
    assert graph.nodes()[0].attrs["domain"] == "ai.onnx.ml"


def test_optional_inputs_and_outputs_keep_their_places():
    constants = {"w": random([1, 12, 5], 1), "r": random([1, 12, 3], 2), "h": random([1, 4, 3], 3)}
    nodes = [node("LSTM", ["x", "w", "r", "", "", "h"], ["", "h_out"], name="lstm", hidden_size=3)]
    proto = model(nodes, inputs={"x": [6, 4, 5]}, outputs=["h_out"], constants=constants)
    graph = compare(proto, {"x": random([6, 4, 5])}, rtol=1e-5, atol=1e-6)
    assert graph.node("lstm").inputs == ("x", "w", "r", "", "", "h")
    assert graph.node("lstm").outputs == ("", "h_out")


def test_what_the_reference_evaluator_does_not_have():
    roi = node("MaxRoiPool", ["x", "r"], name="roi", pooled_shape=[1, 1])
    with pytest.raises(UnsupportedOp, match="MaxRoiPool of opset 21 cannot be run") as caught:
        graph_from_onnx(model([roi], constants={"r": np.zeros((1, 5), np.float32)}))
    assert "MaxRoiPool node 'roi'" in caught.value.where


def test_a_branch_that_returns_a_list():
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    made = [node("SequenceConstruct", ["x"], ["out"])]
    bodies = {
        name: helper.make_graph(made, name, [], [helper.make_value_info("out", kind)])
        for name in ("then_branch", "else_branch")
    }
    nodes = [node("If", ["c"], ["s"], **bodies), node("SequenceAt", ["s", "i"])]
    types = {"x": TensorProto.FLOAT, "c": TensorProto.BOOL}
    proto = model(nodes, inputs={"x": [3], "c": []}, constants={"i": np.int64(0)}, types=types)
    compare(proto, {"x": np.float32([1, 2, 3]), "c": np.asarray(True)})


def test_declared_types_help_where_inference_knows_nothing():
    imputer = node(
        "Imputer", ["x"], domain="ai.onnx.ml", imputed_value_floats=[5.0], replaced_value_float=1.0
    )
    proto = model([imputer], inputs={"x": [1, 2]}, domains={"ai.onnx.ml": 1})
    with pytest.raises(UnsupportedOp, match="the type of the output 'y' cannot be told"):
        graph_from_onnx(proto)
    proto.graph.output[0].CopyFrom(info("y", TensorProto.FLOAT, ["N", 2]))
    graph = compare(proto, {"x": np.float32([[1, 0]])})
    assert str(graph.type("y")) == "f32[?,2]"


# -- uses that a row does not cover ----------------------------------------------------------------


def test_training_stays_foreign_and_says_why():
    constants = {name: random([3], seed) ** 2 for seed, name in enumerate(("s", "b", "m", "v"))}
    nodes = [
        node("BatchNormalization", ["x", *constants], ["y", "m2", "v2"], name="bn", training_mode=1)
    ]
    graph = compare(
        model(nodes, outputs=["y", "m2"], constants=constants), FEEDS, rtol=1e-4, atol=1e-4
    )
    assert ops(graph) == ["Onnx"]
    (decision,) = graph.decisions
    assert (decision.rule, decision.subject, decision.outcome) == (
        "import_by_row",
        "bn",
        Outcome.REFUSED,
    )
    assert "training" in decision.found


def test_a_second_output_that_is_read_stays_foreign():
    nodes = [node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])]
    assert ops(graph_from_onnx(model(nodes, outputs=["y", "i"]))) == ["Onnx"]
    assert ops(compare(model(nodes, outputs=["y"]), FEEDS)) == ["MaxPool"]


def test_a_mask_of_dropout_that_is_read_stays_foreign():
    nodes = [node("Dropout", ["x"], ["y", "m"])]
    graph = compare(model(nodes, outputs=["y", "m"]), FEEDS)
    assert ops(graph) == ["Onnx"]
    assert ops(
        compare(model([node("Dropout", ["x", "", "t"])], constants={"t": np.bool_(False)}), FEEDS)
    ) == ["Identity"]


def test_old_forms_are_kept_in_their_newest_form():
    graph = compare(model([node("Hardmax", ["x"], axis=2)], opset=11), FEEDS)
    assert ops(graph) == ["Flatten", "Onnx", "Reshape"]
    assert graph.nodes()[1].attrs["opset"] == onnx.defs.onnx_opset_version()
    constants = {"i": np.asarray([[[[1]]]]), "u": np.float32([[[[9.0]]]])}
    graph = compare(
        model([node("Scatter", ["x", *constants])], constants=constants, opset=9), FEEDS
    )
    assert graph.nodes()[0].attrs["op_type"] == "ScatterElements"


# -- subgraphs -------------------------------------------------------------------------------------


def conditional(**attributes):
    """y = x + c or x * d, depending on an input; both branches read values of the graph around
    them.
    """
    plus = helper.make_graph([node("Add", ["x", "c"], ["p"])], "plus", [], [info("p")])
    inner = helper.make_graph([node("Mul", ["x", "d"], ["m"])], "times", [], [info("m")])
    nested = helper.make_graph(
        [node("If", ["k"], ["n"], then_branch=inner, else_branch=plus)], "nested", [], [info("n")]
    )
    return node("If", ["k"], name="choice", then_branch=plus, else_branch=nested, **attributes)


@pytest.mark.parametrize("chosen", [True, False])
def test_values_that_subgraphs_capture_become_inputs(chosen):
    nodes = [node("Relu", ["x0"], ["x"]), conditional()]
    proto = model(
        nodes,
        inputs={"x0": [2, 3], "k": []},
        types={"k": TensorProto.BOOL},
        constants={"c": np.float32(1), "d": np.float32(2)},
    )
    graph = compare(proto, {"x0": random([2, 3]), "k": np.bool_(chosen)})
    kept = graph.node("choice")
    assert kept.inputs == ("k", "x", "c", "d")
    notes = {
        entry.key: entry.value for entry in NodeProto.FromString(kept.attrs["proto"]).metadata_props
    }
    assert notes == {INPUTS_KEY: "k\nx\nc\nd", OPSETS_KEY: " 21", CARRIED_KEY: "0 0"}


def test_nodes_are_sorted_by_what_their_subgraphs_read():
    nodes = [conditional(), node("Relu", ["x0"], ["x"])]
    proto = model(
        nodes,
        inputs={"x0": [2, 3], "k": []},
        types={"k": TensorProto.BOOL},
        constants={"c": np.float32(1), "d": np.float32(2)},
    )
    assert [found.op for found in graph_from_onnx(proto).nodes()] == ["Relu", "Onnx"]


def test_loops_run():
    body = helper.make_graph(
        [
            node("Add", ["a", "x"], ["a2"]),
            node("Identity", ["go"], ["go2"]),
            node("Identity", ["a2"], ["row"]),
        ],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("a", shape=[2, 3]),
        ],
        [info("go2", TensorProto.BOOL, []), info("a2", shape=[2, 3]), info("row", shape=[2, 3])],
    )
    nodes = [node("Loop", ["n", "", "x"], ["last", "rows"], body=body), node("Neg", ["last"])]
    for count in (4, 0):
        proto = model(
            nodes, inputs={"x": [2, 3]}, outputs=["y", "rows"], constants={"n": np.int64(count)}
        )
        graph = compare(proto, {"x": random([2, 3])}, rtol=1e-6)
        assert ops(graph) == ["Onnx", "Neg"]


def test_loops_end_by_their_condition():
    body = helper.make_graph(
        [
            node("Add", ["a", "x"], ["a2"]),
            node("ReduceSum", ["a2"], ["s"], keepdims=0),
            node("Less", ["s", "limit"], ["go2"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("a", shape=[2])],
        [info("go2", TensorProto.BOOL, []), info("a2", shape=[2]), info("s", shape=[])],
    )
    nodes = [node("Loop", ["", "go0", "x"], ["y", "sums"], body=body)]
    proto = model(
        nodes,
        inputs={"x": [2]},
        outputs=["y", "sums"],
        constants={"go0": np.bool_(True), "limit": np.float32(10)},
    )
    compare(proto, {"x": np.float32([1, 1])})


def test_unknown_ops_inside_subgraphs_are_listed():
    hidden = node("Unheard", ["x"], ["p"], name="hidden", domain="org.openvinotoolkit")
    inner = helper.make_graph([hidden], "b", [], [info("p")])
    nodes = [node("If", ["k"], then_branch=inner, else_branch=inner)]
    proto = model(
        nodes,
        inputs={"x": [2], "k": []},
        types={"k": TensorProto.BOOL},
        domains={"org.openvinotoolkit": 1},
    )
    with pytest.raises(UnsupportedOp, match=r"org\.openvinotoolkit\.Unheard"):
        graph_from_onnx(proto)


def test_external_data_inside_subgraphs_comes_along(tmp_path):
    weights = np.float32([1, 2, 3])
    (tmp_path / "w.bin").write_bytes(weights.tobytes())
    outside = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[3], data_location=TensorProto.EXTERNAL
    )
    outside.external_data.add(key="location", value="w.bin")
    branches = [
        helper.make_graph([node(op, ["x", "w"], ["p"])], op, [], [info("p")], [outside])
        for op in ("Add", "Mul")
    ]
    choice = node("If", ["k"], then_branch=branches[0], else_branch=branches[1])
    proto = model([choice], inputs={"x": [3], "k": []}, types={"k": TensorProto.BOOL})
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    graph = graph_from_onnx(tmp_path / "m.onnx")
    body = NodeProto.FromString(graph.nodes()[0].attrs["proto"]).attribute[0].g
    np.testing.assert_array_equal(numpy_helper.to_array(body.initializer[0]), weights)
    with pytest.raises(InvalidModel, match="came without a folder"):
        graph_from_onnx(proto)


# -- model-local functions -------------------------------------------------------------------------


def function(name, nodes, inputs, outputs, *, domain="local", attributes=(), opset=21, also=()):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1), *also]
    return helper.make_function(
        domain, name, list(inputs), list(outputs), list(nodes), imports, attributes=list(attributes)
    )


def test_functions_are_inlined():
    scaled = node("Constant", [], ["k"])
    scaled.attribute.append(
        onnx.AttributeProto(
            name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT
        )
    )
    functions = [
        function(
            "Scaled", [scaled, node("Mul", ["a", "k"], ["b"])], ["a"], ["b"], attributes=["factor"]
        ),
        function(
            "Twice",
            [
                node("Scaled", ["a"], ["t"], domain="local", factor=3.0),
                node("Add", ["t", "t"], ["b"]),
            ],
            ["a"],
            ["b"],
        ),
    ]
    nodes = [node("Twice", ["x"], ["t"], domain="local"), node("Add", ["t", "c"])]
    proto = model(nodes, functions=functions, domains={"local": 1}, constants={"c": random([5], 1)})
    graph = compare(proto, FEEDS)
    assert ops(graph) == ["Mul", "Add", "Add"]
    np.testing.assert_array_equal(graph.constants["c"], random([5], 1))


def test_a_function_with_a_known_meaning_stays_a_call():
    ranges = ["il", "ih", "ol", "oh"]
    domain = "org.openvinotoolkit"
    clip = node("Clip", ["x", "il", "ih"], ["y"])
    body = function(
        "FakeQuantize", [clip], ["x", *ranges], ["y"], domain=domain, attributes=["levels"]
    )
    nodes = [node("FakeQuantize", ["x", *ranges], domain=domain, levels=256)]
    constants = dict(zip(ranges, np.float32([-1, 1, -1, 1]), strict=True))
    graph = graph_from_onnx(
        model(nodes, functions=[body], domains={domain: 1}, constants=constants)
    )
    assert ops(graph) == ["FakeQuantize"]


def test_functions_that_call_each_other_in_a_circle():
    functions = [
        function("F", [node("G", ["a"], ["b"], domain="local")], ["a"], ["b"]),
        function("G", [node("F", ["a"], ["b"], domain="local")], ["a"], ["b"]),
    ]
    with pytest.raises(InvalidModel, match=r"in a circle: local\.F -> local\.G -> local\.F"):
        graph_from_onnx(
            model([node("F", ["x"], domain="local")], functions=functions, domains={"local": 1})
        )


def test_functions_that_grow_are_counted_before_they_grow():
    functions = [function("F0", [node("Relu", ["a"], ["b"])], ["a"], ["b"])]
    for level in range(1, 40):
        calls = [
            node(f"F{level - 1}", ["a" if i == 0 else f"t{i - 1}"], [f"t{i}"], domain="local")
            for i in range(10)
        ]
        functions.append(function(f"F{level}", calls, ["a"], ["t9"]))
    with pytest.raises(InvalidModel, match="with its functions inlined"):
        graph_from_onnx(
            model([node("F39", ["x"], domain="local")], functions=functions, domains={"local": 1})
        )
    small = model(
        [node("F2", ["x"], domain="local")], functions=functions[:3], domains={"local": 1}
    )
    assert len(graph_from_onnx(small, budgets=Budgets(nodes=100))) == 100
    with pytest.raises(InvalidModel):
        graph_from_onnx(small, budgets=Budgets(nodes=99))


def test_two_functions_of_one_name():
    functions = [function("F", [node("Relu", ["a"], ["b"])], ["a"], ["b"])] * 2
    with pytest.raises(InvalidModel, match=r"two local functions local\.F"):
        graph_from_onnx(
            model([node("F", ["x"], domain="local")], functions=functions, domains={"local": 1})
        )


def test_functions_without_calls_change_nothing():
    functions = [function("F", [node("Relu", ["a"], ["b"])], ["a"], ["b"])]
    _, (found,) = run_import(
        model([node("Neg", ["x"])], functions=functions, domains={"local": 1}), FEEDS
    )
    np.testing.assert_array_equal(found, -FEEDS["x"])


def test_functions_of_another_opset_than_the_models():
    functions = [function("F", [node("Softmax", ["a"], ["b"])], ["a"], ["b"], opset=11)]
    with pytest.raises(InvalidModel, match="incompatible opset versions") as caught:
        graph_from_onnx(
            model([node("F", ["x"], domain="local")], functions=functions, domains={"local": 1})
        )
    assert "inline" in caught.value.hint


# -- what the onnx package's shape inference crashes or never ends on ------------------------------


def inside_if(inner):
    branch = helper.make_graph([inner], "branch", [], [onnx.ValueInfoProto(name="inner")])
    return model(
        [node("If", ["c"], then_branch=branch, else_branch=branch)],
        inputs={"x": [2, 3, 4, 5], "i": [2, 1], "c": []},
        types={"c": TensorProto.BOOL, "i": TensorProto.INT64},
    )


@pytest.mark.parametrize(
    "equation", ["[ab", "1ab", "1...", "a1->a", "ab..", "a....", "a-b", "a->b->c"]
)
def test_einsum_gets_equations_only(equation):
    """ONNX's inference reads on behind the end of a text that it cannot take apart."""
    einsum = node("Einsum", ["x"], ["inner"], equation=equation)
    for proto in (model([einsum], outputs=("inner",)), inside_if(einsum)):
        with pytest.raises(InvalidModel, match="no equation of an Einsum"):
            graph_from_onnx(proto)


def test_an_empty_equation_is_that_of_one_number():
    with pytest.raises(
        InvalidModel, match=r"operand 0 is \[2,3,4,5\], and its term in the equation is ''"
    ):
        graph_from_onnx(model([node("Einsum", ["x"], equation="")]))
    assert (
        graph_from_onnx(model([node("Einsum", ["x"], equation="")], inputs={"x": []}))
        .type("y")
        .shape
        == ()
    )
    graph_from_onnx(inside_if(node("Einsum", ["x"], ["inner"], equation="")))  # its run refuses it


def test_no_text_takes_long_to_be_no_equation():
    with pytest.raises(InvalidModel, match="no equation of an Einsum"):
        graph_from_onnx(model([node("Einsum", ["x"], equation="ab," * 10_000 + "!")]))


@pytest.mark.parametrize(
    "equation", ["abcd->dcba", "abcd", "a...->...a", " a b c d -> a ", "...", "abcd->"]
)
def test_equations_of_einsum_run(equation):
    compare(model([node("Einsum", ["x"], equation=equation)]), FEEDS, rtol=1e-5)


@pytest.mark.parametrize(
    "inner",
    [
        node("LayerNormalization", ["x", "x"], ["inner"], axis=2**63 - 1),
        node("GatherND", ["x", "i"], ["inner"], batch_dims=-2),
        node("GatherND", ["x", "i"], ["inner"], batch_dims=-(2**31)),
        node("Split", ["x"], ["inner", "other"], num_outputs=1),
        node("Split", ["x"], ["inner"], num_outputs=2**31),
        node("DequantizeLinear", ["x", "x"], ["inner"], block_size=2**40),
        node("RoiAlign", ["x", "x", "i"], ["inner"], sampling_ratio=2**40),
        node("Scan", ["x"], ["inner"], num_scan_inputs=2**63 - 1),
        node(
            "TfIdfVectorizer",
            ["i"],
            ["inner"],
            ngram_counts=[2**40],
            pool_int64s=[1],
            ngram_indexes=[0],
        ),
    ],
    ids=lambda inner: f"{inner.op_type}-{helper.get_attribute_value(inner.attribute[0])}",
)
def test_numbers_that_inference_would_follow_are_refused(inner):
    with pytest.raises(InvalidModel, match="correct the attribute"):
        graph_from_onnx(inside_if(inner))


def test_a_declared_size_is_no_work():
    """Propagation of data would multiply 2^40 elements that are only declared."""
    proto = inside_if(node("Mul", ["x", "x"], ["inner"]))
    proto.graph.input[0].CopyFrom(info("x", TensorProto.INT64, [2**40]))
    assert graph_from_onnx(proto).type("y").dtype is DType.S64


@pytest.mark.parametrize(
    "hostile",
    [
        model(
            [node("ArgMax", ["k"], ["a"], select_last_index=7)],
            outputs=("a",),
            constants={"k": np.ones(3, np.float32)},
        ),
        model(
            [node("ArgMax", ["k"], ["a"])], outputs=("a",), constants={"k": np.ones(0, np.float32)}
        ),
        model(
            [node("CumSum", ["k", "axes"], ["a"])],
            outputs=("a",),
            constants={"k": np.ones(3), "axes": np.zeros(4, np.int64)},
        ),
    ],
    ids=["flag", "empty", "axes"],
)
def test_what_no_constant_can_be_computed_of_is_refused_at_import(hostile):
    """These had passed the import, and ended as a bare ValueError where constants are folded."""
    with pytest.raises(InvalidModel):
        graph_from_onnx(hostile)
