"""Models with symbolic sizes as exporters write them: one session, many shapes; and sizes that are
not what a model says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from laws.runtimes import EACH_RUNTIME
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import fqfuse
from fqfuse import compiler
from fqfuse.errors import InvalidInput
from fqfuse.runtime.session import InferenceSession

F32, S64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, constants=(), value_info=()):
    """Inputs are (name, element type, dims); constants (name, array)."""
    graph = helper.make_graph(
        nodes,
        "symbolic",
        [helper.make_tensor_value_info(*given) for given in inputs],
        [helper.make_tensor_value_info(*given) for given in outputs],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants],
        value_info=[helper.make_tensor_value_info(*given) for given in value_info],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def ramp(*shape):
    return ((np.arange(np.prod(shape, dtype=int)) % 13 - 6) / 8).astype(np.float32).reshape(shape)


def masked_scores(mask):
    """Products of decoded codes, [N, 4, S, S], and a mask [N, 1, S, S] that is expanded to sizes
    computed from what came before.
    """
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["q", "s", "z"], ["qc"]),
        node("DequantizeLinear", ["qc", "s", "z"], ["qd"]),
        node("QuantizeLinear", ["k", "s", "z"], ["kc"]),
        node("DequantizeLinear", ["kc", "s", "z"], ["kd"]),
        node("Shape", ["rows"], ["n1"], start=0, end=1),
        node("Shape", ["rows"], ["s1"], start=1, end=2),
        node("Concat", ["n1", "s1", "four", "two"], ["split"], axis=0),
        node("Reshape", ["qd", "split"], ["qh"]),
        node("Transpose", ["qh"], ["qt"], perm=[0, 2, 1, 3]),
        node("Reshape", ["kd", "split"], ["kh"]),
        node("Transpose", ["kh"], ["kt"], perm=[0, 2, 3, 1]),
        node("MatMul", ["qt", "kt"], ["scores"]),
        node("Cast", ["rows"], ["seen"], to=TensorProto.BOOL),
        node("Unsqueeze", ["seen", "axes"], ["seen4"]),
        node("Concat", ["n1", "one", "s1", "s1"], ["target"], axis=0),
        node("Expand", ["seen4", "target"], ["seen5"]),
        *(
            [
                node("Where", ["seen5", "zero", "low"], ["where"]),
                node("Add", ["scores", "where"], ["y"]),
            ]
            if mask == "Add"
            else [node("Where", ["seen5", "scores", "low"], ["y"])]
        ),
        node("Softmax", ["y"], ["p"], axis=-1),
    ]
    constants = [
        ("s", np.float32(1 / 16)),
        ("z", np.uint8(128)),
        ("four", np.array([4])),
        ("two", np.array([2])),
        ("one", np.array([1])),
        ("axes", np.array([1, 2])),
        ("zero", np.float32(0)),
        ("low", np.float32(-1e4)),
    ]
    inputs = [("q", F32, ["N", "S", 8]), ("k", F32, ["N", "S", 8]), ("rows", S64, [None, None])]
    return model(nodes, inputs, [("y", F32, [None] * 4), ("p", F32, [None] * 4)], constants)


@EACH_RUNTIME
@pytest.mark.parametrize("mask", ["Add", "Where"])
def test_a_mask_of_one_head_is_no_sum_with_scores_of_four(mask, runtime):
    built = masked_scores(mask)
    session, reference = (
        InferenceSession(compiler.compile(built), runtime, 1),
        ReferenceEvaluator(built),
    )
    for n, s in [(2, 8), (1, 1), (1, 7), (3, 2), (2, 17), (2, 8)]:
        rows = np.ones((n, s), np.int64)
        rows[:, s // 2 + 1 :] = 0
        feeds = {"q": ramp(n, s, 8), "k": ramp(n, s, 8)[:, ::-1].copy(), "rows": rows}
        for found, expected in zip(
            session.run(None, feeds), reference.run(None, feeds), strict=True
        ):
            # softmax: a polynomial for exp
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@EACH_RUNTIME
def test_values_of_unknown_size_may_be_added(runtime):
    """Both are `?` behind a Range of computed length; they fit, or one is broadcast, or they do not
    go together.
    """
    node = helper.make_node
    nodes = [
        node("ConstantOfShape", ["m"], ["a"], value=numpy_helper.from_array(np.float32([2]))),
        node("ConstantOfShape", ["n"], ["b"], value=numpy_helper.from_array(np.float32([3]))),
        node("MatMul", ["a", "w"], ["c"]),
        node("Add", ["c", "b"], ["y"]),
    ]
    plan = compiler.compile(
        model(
            nodes,
            [("m", S64, [2]), ("n", S64, [2])],
            [("y", F32, [None, None])],
            [("w", ramp(4, 4))],
        )
    )
    session = InferenceSession(plan, runtime, 1)
    for m, n in [((3, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 4), (1, 1)), ((1, 4), (5, 4))]:
        (found,) = session.run(None, {"m": np.array(m), "n": np.array(n)})
        np.testing.assert_array_equal(
            found, np.full(m, np.float32(2)) @ ramp(4, 4) + np.full(n, np.float32(3))
        )
    with pytest.raises(InvalidInput, match="broadcast"):
        session.run(None, {"m": np.array((3, 4)), "n": np.array((2, 4))})


@EACH_RUNTIME
def test_inputs_that_do_not_broadcast_are_refused(runtime):
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    session = InferenceSession(
        compiler.compile(
            model(nodes, [("a", F32, ["A"]), ("b", F32, ["B"])], [("y", F32, [None])])
        ),
        runtime,
        1,
    )
    assert session.run(None, {"a": ramp(3), "b": ramp(1)})[0].shape == (3,)
    with pytest.raises(InvalidInput, match="broadcast"):
        session.run(None, {"a": ramp(3), "b": ramp(4)})


@EACH_RUNTIME
def test_heads_of_nothing(runtime):
    """The sizes of a Reshape are computed, one becomes -1 in the plan: an empty batch must leave an
    answer.
    """
    node = helper.make_node
    nodes = [
        node("Slice", ["table", "zero", "s1", "one"], ["places"]),
        node("Shape", ["x"], ["n1"], start=0, end=1),
        node("Shape", ["x"], ["s1"], start=1, end=2),
        node("Add", ["x", "places"], ["sum"]),
        node("Concat", ["n1", "s1", "two", "four"], ["split"], axis=0),
        node("Reshape", ["sum", "split"], ["y"]),
    ]
    nodes = [nodes[2], nodes[0], nodes[1], *nodes[3:]]
    constants = [
        ("table", ramp(1, 9, 8)),
        ("zero", np.array([0])),
        ("one", np.array([1])),
        ("two", np.array([2])),
        ("four", np.array([4])),
    ]
    built = model(nodes, [("x", F32, ["N", "S", 8])], [("y", F32, [None] * 4)], constants)
    session = InferenceSession(compiler.compile(built), runtime, 1)
    for n, s in [(2, 3), (0, 3), (2, 0), (0, 0), (1, 9), (0, 3)]:
        (found,) = session.run(None, {"x": ramp(n, s, 8)})
        assert found.shape == (n, s, 2, 4)
        np.testing.assert_array_equal(found.reshape(n, s, 8), ramp(n, s, 8) + ramp(1, 9, 8)[:, :s])


@EACH_RUNTIME
def test_layer_normalization_over_a_size_that_the_model_does_not_tell(runtime):
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g", "b"], ["l"]),
        helper.make_node("Mul", ["l", "half"], ["y"]),
    ]
    constants = [("g", ramp(4) + 1), ("b", ramp(4)), ("half", np.float32(0.5))]
    built = model(nodes, [("x", F32, ["N", "C"])], [("y", F32, [None, None])], constants)
    session = InferenceSession(compiler.compile(built), runtime, 1)
    for n in (2, 1, 5):
        (found,) = session.run(None, {"x": ramp(n, 4)})
        np.testing.assert_allclose(
            found, ReferenceEvaluator(built).run(None, {"x": ramp(n, 4)})[0], rtol=1e-5, atol=1e-6
        )
    with pytest.raises(InvalidInput, match="broadcast"):
        session.run(None, {"x": ramp(2, 5)})


@EACH_RUNTIME
@pytest.mark.parametrize("front", ["", "Relu", "Conv"])
def test_scales_along_an_axis_whose_size_the_model_does_not_tell(front, runtime):
    node = helper.make_node
    start = {
        "": [],
        "Relu": [node("Relu", ["x"], ["f"])],
        "Conv": [node("Conv", ["x", "w"], ["f"])],
    }[front]
    nodes = [
        *start,
        node(
            "QuantizeLinear",
            ["f" if front else "x", "s", "z"],
            ["c"],
            axis=2 if front == "Conv" else 1,
        ),
        node("DequantizeLinear", ["c", "s", "z"], ["y"], axis=2 if front == "Conv" else 1),
    ]
    constants = [
        ("s", np.float32([0.5, 0.25, 0.125])),
        ("z", np.zeros(3, np.int8)),
        ("w", ramp(2, 2, 1)),
    ]
    built = model(nodes, [("x", F32, ["N", "C", "L"])], [("y", F32, [None] * 3)], constants)
    session = InferenceSession(compiler.compile(built), runtime, 1)
    fitting, other = ((2, 2, 3), (2, 2, 4)) if front == "Conv" else ((2, 3, 5), (2, 4, 5))
    for shape in (fitting, (1, *fitting[1:]), fitting):
        (found,) = session.run(None, {"x": ramp(*shape)})
        np.testing.assert_array_equal(
            found, ReferenceEvaluator(built).run(None, {"x": ramp(*shape)})[0]
        )
    with pytest.raises(InvalidInput):
        session.run(None, {"x": ramp(*other)})


@EACH_RUNTIME
def test_a_foreign_op_whose_result_has_another_shape_than_the_plan_says(runtime):
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["k"], axis=0),
        helper.make_node("Relu", ["k"], ["y"]),
    ]
    plan = compiler.compile(
        model(nodes, [("x", F32, ["N"]), ("c", TensorProto.BOOL, ["N"])], [("y", F32, [None])])
    )
    session, keep = InferenceSession(plan, runtime, 1), np.array([True, True, True, False])
    for chosen in (keep, ~keep, keep):
        np.testing.assert_array_equal(
            session.run(None, {"x": ramp(4), "c": chosen})[0], np.maximum(ramp(4)[chosen], 0)
        )
    wrong = replace(
        plan,
        values={
            name: replace(kind, shape=(3,)) if name in "ky" else kind
            for name, kind in plan.values.items()
        },
    )
    session = InferenceSession(wrong, runtime, 1)
    assert session.run(None, {"x": ramp(4), "c": keep})[0].shape == (3,)
    with pytest.raises(InvalidInput, match=r"is float32\[1\], and the plan says f32\[3\]"):
        session.run(None, {"x": ramp(4), "c": ~keep})


@EACH_RUNTIME
def test_a_size_named_by_a_formula_is_that(runtime):
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=0),
        helper.make_node("Add", ["ab", "c"], ["y"]),
    ]
    built = model(
        nodes, [("a", F32, ["P"]), ("b", F32, ["S"]), ("c", F32, ["P+S"])], [("y", F32, [None])]
    )
    session = InferenceSession(compiler.compile(built), runtime, 1)
    (found,) = session.run(None, {"a": ramp(2), "b": ramp(1), "c": ramp(3)})
    np.testing.assert_array_equal(found, np.concatenate([ramp(2), ramp(1)]) + ramp(3))
    with pytest.raises(InvalidInput, match="make it 3"):
        session.run(None, {"a": ramp(2), "b": ramp(1), "c": ramp(1)})


def test_a_name_that_shape_inference_makes_up_is_no_size_of_the_graph():
    nodes = [helper.make_node("Compress", ["x", "c"], ["k"], axis=0)]
    inputs = [("x", F32, [4]), ("c", TensorProto.BOOL, [4]), ("other", F32, ["unk__0"])]
    nodes.append(helper.make_node("Add", ["k", "other"], ["y"]))
    inferred = onnx.shape_inference.infer_shapes(
        model(nodes, [*inputs[:2], ("other", F32, [None])], [("y", F32, None)])
    )
    made_up = {
        d.dim_param for value in inferred.graph.value_info for d in value.type.tensor_type.shape.dim
    }
    assert made_up == {"unk__0"}  # else the case tells nothing
    plan = compiler.compile(model(nodes, inputs, [("y", F32, [None])]))
    assert plan.type("k").shape == ("?",)


@EACH_RUNTIME
def test_a_scale_that_gives_no_size_is_refused_when_the_shape_is_known(runtime):
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")]
    scales = [("s", np.array([1, 1, 3e38], np.float32))]
    built = model(nodes, [("x", F32, [1, 1, "W"])], [("y", F32, [1, 1, None])], scales)
    session = InferenceSession(compiler.compile(built), runtime, 1)
    with pytest.raises(InvalidInput, match="4 times the scale 3e\\+38 is no size"):
        session.run(None, {"x": np.ones((1, 1, 4), np.float32)})


def positions(rng: np.random.Generator) -> tuple[onnx.ModelProto, int]:
    """A table of positions, of which a network takes as many as its input is long, as in BERT; and its
    length. Numbers and scales are such that every sum is exact.
    """
    node, most = helper.make_node, int(rng.integers(1, 7))
    table = rng.integers(-6, 6, (1, most, 4)).astype(np.float32) / 8
    table = table[0] if rng.integers(2) else table
    axis = int(rng.choice([table.ndim - 2, -2]))
    coded, product, swapped = (bool(flag) for flag in rng.integers(0, 2, 3))
    quantized = [
        node(kind, [value, "s", "z"], [value + end])
        for value in ("x", "table", "y")
        for kind, end in (("QuantizeLinear", "q"), ("DequantizeLinear", "d"))
    ]
    for each in quantized[1::2]:
        each.input[0] = each.input[0] + "q"
    read = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["length"])]
    cut = node("Slice", ["tabled" if coded else "table", "zero", "length", "axis"], ["cut"])
    front = (
        node("MatMul", ["xd", "wd"], ["front"]) if product else node("Identity", ["xd"], ["front"])
    )
    terms = ["cut", "front"] if swapped else ["front", "cut"]
    nodes = [*quantized[:4], node("DequantizeLinear", ["w", "s", "zs"], ["wd"])]
    nodes += [*read, cut, front, node("Add", terms, ["y"]), *quantized[4:]]
    nodes[-1].output[0] = "out"
    constants = {"table": table, "s": np.float32(1 / 8), "z": np.uint8(128), "zs": np.int8(0)}
    constants |= {"w": rng.integers(-3, 4, (4, 4)).astype(np.int8)}
    constants |= {"one": np.array([1]), "zero": np.array([0]), "axis": np.array([axis])}
    ends = [("x", F32, ["N", "L", 4])], [("out", F32, ["N", "L", 4])]
    return model(nodes, *ends, list(constants.items())), most


def primitives(plan):
    """The steps that compute; the part of a table is taken, and viewed, by others."""
    return [step.primitive for step in plan.steps if not step.primitive.startswith("onnx.")]


@pytest.mark.parametrize("draws", [6, pytest.param(1000, marks=pytest.mark.slow)])
@EACH_RUNTIME
def test_positions_are_fused_as_with_fixed_sizes(draws, runtime):
    """One session over all lengths, against ONNX's reference, and the bytes of the plan for that length."""
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        proto, most = positions(rng)
        open_plan = compiler.compile(proto)
        session = InferenceSession(open_plan, runtime)
        judge = ReferenceEvaluator(proto)
        fixed = None
        for length in (*range(most + 1), 1, most + 2, most):
            x = rng.integers(-40, 40, (int(rng.integers(2, 4)), length, 4)).astype(np.float32) / 16
            if length > most > 1:
                with pytest.raises(InvalidInput):
                    session.run(None, {"x": x})
                continue
            (found,) = session.run(None, {"x": x})
            assert found.shape == x.shape, seed
            np.testing.assert_array_equal(found, judge.run(None, {"x": x})[0], str(seed))
            if length > 1 and fixed is None:
                again = onnx.ModelProto.FromString(proto.SerializeToString())
                for at, size in enumerate(x.shape):
                    again.graph.input[0].type.tensor_type.shape.dim[at].dim_value = size
                plan = compiler.compile(again)
                fixed = primitives(plan)
                expected = InferenceSession(plan, runtime).run(None, {"x": x})[0]
                assert found.tobytes() == expected.tobytes(), seed
                # a part of one row may be broadcast
                assert most == 1 or primitives(open_plan) == fixed, seed


def test_positions_are_exported_as_they_were(tmp_path):
    for seed in range(4):
        proto, most = positions(np.random.default_rng(seed))
        fqfuse.export(proto, tmp_path / "out.onnx")
        for length in (0, 1, most):
            feeds = {"x": ramp(2, length, 4)}
            (found,), (expected,) = (
                ReferenceEvaluator(each).run(None, feeds)
                for each in (onnx.load(tmp_path / "out.onnx"), proto)
            )
            np.testing.assert_array_equal(found, expected, str(seed))
