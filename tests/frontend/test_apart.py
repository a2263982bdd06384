"""Sequences and optionals run on the reference evaluator, between tensors, with a decision; what is around them
stays what it is.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse

X = random([2, 6, 4])
PLACES = {"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "last": np.int64(-1)}


def agree(nodes, *, constants=(), inputs=None, types=None, feeds=None, opset=21):
    """Both runtimes give what ONNX Runtime gives, also of the plan's file; the plan."""
    proto = model(
        nodes,
        inputs=inputs or {"x": [2, 6, 4]},
        constants={**PLACES, **dict(constants)},
        types=types,
        opset=opset,
    )
    fed = {"x": X} | (feeds or {})
    wanted = run_ort(proto, fed)
    plan = fqfuse.compile(proto)
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, fed)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)  # sums of 4 products
    return plan


def refused(plan) -> list[str]:
    """The nodes of which a decision says that they run on the evaluator."""
    return [d.subject for d in plan.decision_records if d.rule == "compile_bodies"]


def test_layers_between_sequences_keep_their_primitives(tmp_path) -> None:
    weights = {f"w{k}": random([4, 4], k) for k in range(2)}
    nodes = [
        node("SplitToSequence", ["x", "two"], ["parts"], name="cut", axis=1),
        node("SequenceAt", ["parts", "zero"], ["a"], name="first"),
        node("SequenceAt", ["parts", "last"], ["b"], name="last one"),
        node("MatMul", ["a", "w0"], ["c"], name="m0"),
        node("MatMul", ["b", "w1"], ["d"], name="m1"),
        node("SequenceConstruct", ["c", "d"], ["list"], name="list"),
        node("ConcatFromSequence", ["list"], ["y"], axis=1, name="join"),
    ]
    plan = agree(nodes, constants=weights)
    assert [step.primitive for step in plan.steps] == ["onnx.If", "matmul", "matmul", "onnx.If"]
    assert refused(plan) == ["cut", "list"]
    fqfuse.save_plan(plan, tmp_path / "plan.onnx")
    again = fqfuse.InferenceSession(fqfuse.load_plan(tmp_path / "plan.onnx"), "numpy")
    whole = fqfuse.InferenceSession(plan, "numpy")
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], whole.run(None, {"x": X})[0])


def test_what_is_computed_between_nodes_of_one_sequence_goes_with_them() -> None:
    nodes = [
        node("SequenceConstruct", ["x"], ["s0"], name="begin"),
        node("SequenceAt", ["s0", "zero"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("SequenceInsert", ["s0", "b", "one"], ["s1"]),
        node("SequenceErase", ["s1", "zero"], ["s2"]),
        node("SequenceLength", ["s2"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("SequenceAt", ["s2", "last"], ["c"]),
        node("Mul", ["c", "f"], ["y"]),
    ]
    plan = agree(nodes)
    assert refused(plan) == ["begin"]
    assert [step.primitive for step in plan.steps].count("onnx.If") == 1


def test_a_list_that_a_loop_grows() -> None:
    """As scripted PyTorch writes it."""
    lists = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    body = helper.make_graph(
        [
            node("Gather", ["x", "trip"], ["row"], axis=0),
            node("MatMul", ["row", "w"], ["made"]),
            node("SequenceInsert", ["list", "made"], ["longer"]),
            node("Identity", ["on"], ["goes"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_value_info("list", lists),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_value_info("longer", lists),
        ],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"], name="none"),
        node("Loop", ["two", "", "none"], ["all"], name="loop", body=body),
        node("ConcatFromSequence", ["all"], ["joined"], axis=0, new_axis=1),
        node("MatMul", ["joined", "w"], ["y"], name="after"),
    ]
    plan = agree(nodes, constants={"w": random([4, 4], 3)})
    assert refused(plan) == ["none"]
    (body,) = (body for _, body in plan.within)
    assert "matmul" in {step.primitive for step in body.steps}
    told = helper.make_tensor_value_info("joined", TensorProto.FLOAT, [2, 6, 4])
    proto = model(nodes, inputs={"x": [2, 6, 4]}, constants={**PLACES, "w": random([4, 4], 3)})
    proto.graph.value_info.append(told)  # of what a sequence gives, ONNX's inference knows less
    assert fqfuse.compile(proto).steps[-1].primitive == "matmul"


@pytest.mark.parametrize("there", [True, False])
def test_optionals_are_what_they_hold(there) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 6, 4])
    made = node("Optional", ["x"], ["o"]) if there else node("Optional", [], ["o"], type=kind)
    nodes = [
        made,
        node("OptionalHasElement", ["o"], ["has"]),
        node("Cast", ["has"], ["number"], to=TensorProto.FLOAT),
        *([node("OptionalGetElement", ["o"], ["held"])] if there else []),
        node("Mul", ["held" if there else "x", "number"], ["y"]),
    ]
    plan = fqfuse.compile(model(nodes, inputs={"x": [2, 6, 4]}, opset=21))
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, {"x": X})
        np.testing.assert_array_equal(found, X * there)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_model_that_takes_or_returns_a_list_is_refused(way) -> None:
    lists = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3]))
    value, x = (
        helper.make_value_info("s", lists),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
    )
    made = (
        node("ConcatFromSequence", ["s"], ["x"], axis=0)
        if way == "in"
        else node("SequenceConstruct", ["x"], ["s"])
    )
    ends = ([value], [x]) if way == "in" else ([x], [value])
    proto = helper.make_model(
        helper.make_graph([made], "g", *ends), opset_imports=[helper.make_opsetid("", 18)]
    )
    with pytest.raises(fqfuse.UnsupportedOp, match=f"the {way}put is no tensor") as caught:
        fqfuse.compile(proto)
    assert "'s'" in caught.value.where
    assert "dense tensors" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "one"], ["y"])],
            "list",
        ),
        (
            [
                node("SplitToSequence", ["x", "sizes"], ["s"], axis=1),
                node("ConcatFromSequence", ["s"], ["y"], axis=1),
            ],
            "pieces of",
        ),
        (
            [
                node("SequenceConstruct", ["x"], ["s"]),
                node("SequenceInsert", ["s", "x", "two"], ["t"]),
                node("ConcatFromSequence", ["t"], ["y"], axis=1),
            ],
            "has no place 2",
        ),
    ],
)
def test_a_place_or_size_that_there_is_not_ends_the_run(nodes, text) -> None:
    constants = {**PLACES, "sizes": np.int64([1, 2])}
    proto = model(nodes, inputs={"x": [2, 6, 4]}, constants=constants)
    with pytest.raises(fqfuse.InvalidInput, match=text):
        fqfuse.InferenceSession(proto, "numpy").run(None, {"x": X})


def test_places_behind_the_last_tensor_and_lists_of_one() -> None:
    nodes = [
        node("SequenceConstruct", ["x"], ["s"]),
        node("Neg", ["x"], ["n"]),
        node("SequenceInsert", ["s", "n", "one"], ["t"]),
        node("SequenceAt", ["t", "last"], ["y"]),
    ]
    agree(nodes)
    nodes[-1] = node("SequenceAt", ["t", "only"], ["y"])  # ONNX asks for a number, and takes this
    plan = fqfuse.compile(
        model(nodes, inputs={"x": [2, 6, 4]}, constants={**PLACES, "only": np.int64([1])})
    )
    np.testing.assert_array_equal(fqfuse.InferenceSession(plan, "numpy").run(None, {"x": X})[0], -X)
