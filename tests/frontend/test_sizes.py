"""Shape arithmetic: what exporters write around reshapes gives types, for symbolic sizes too, and
the right ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto
from support.onnx_cases import compare, model, node, ops, random, run_import

import fqfuse
from fqfuse.errors import InvalidModel
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.ops import dims

INPUT = {"x": ["N", "S", 12]}


def types_hold(graph: Graph, feeds) -> None:
    """Every size that a type states is the size that the value has when it is computed."""
    everything = run_graph(graph, feeds, keep_all=True)
    sizes = {
        name: n
        for value in graph.inputs
        for name, n in zip(graph.type(value).shape, feeds[value].shape, strict=True)
        if isinstance(name, str)
    }
    for value, array in everything.items():
        shape = graph.type(value).shape
        for stated, actual in zip(
            shape if shape is not None else array.shape, array.shape, strict=True
        ):
            assert stated == dims.UNKNOWN or dims.evaluate(stated, sizes) == actual, value


def check(nodes, constants, expected, *, inputs=None, opset=17, outputs=("y",)):
    """The output's type reads `expected`; numbers agree with ONNX Runtime for several sizes."""
    proto = model(nodes, inputs=inputs or INPUT, constants=constants, opset=opset, outputs=outputs)
    for n, s in ((2, 5), (1, 1), (3, 7)):
        feeds = {
            name: random([{"N": n, "S": s}.get(d, d) for d in shape])
            for name, shape in (inputs or INPUT).items()
        }
        graph = compare(proto, feeds)
        types_hold(graph, feeds)
    assert str(graph.type("y")) == expected
    return graph


def sizes_of(*axes):
    """Nodes that give each named axis of x as a 1-D tensor `d<axis>`."""
    nodes = [node("Shape", ["x"], ["shape"])]
    for axis in axes:
        nodes += [
            node("Gather", ["shape", f"i{axis}"], [f"g{axis}"]),
            node("Unsqueeze", [f"g{axis}", "zero"], [f"d{axis}"]),
        ]
    return nodes, {f"i{axis}": np.asarray(axis) for axis in axes} | {"zero": np.asarray([0])}


def test_heads_of_attention():
    nodes, constants = sizes_of(0, 1)
    nodes += [
        node("Concat", ["d0", "d1", "heads"], ["target"], axis=0),
        node("Reshape", ["x", "target"]),
    ]
    graph = check(nodes, constants | {"heads": np.asarray([3, 4])}, "f32[N,S,3,4]")
    (reshape,) = (found for found in graph.nodes() if found.op == "Reshape")
    np.testing.assert_array_equal(graph.constants[reshape.inputs[1]], [0, 0, 3, 4])


def test_flattening_of_a_batch():
    nodes, constants = sizes_of(0)
    nodes += [node("Concat", ["d0", "rest"], ["target"], axis=0), node("Reshape", ["x", "target"])]
    check(nodes, constants | {"rest": np.asarray([-1])}, "f32[N,12*S]")


def test_sizes_that_are_multiplied_are_inferred():
    nodes, constants = sizes_of(0, 1)
    nodes += [
        node("Mul", ["d0", "d1"], ["rows"]),
        node("Concat", ["rows", "last"], ["target"], axis=0),
        node("Reshape", ["x", "target"]),
    ]
    check(nodes, constants | {"last": np.asarray([12])}, "f32[N*S,12]")


def test_division_of_sizes():
    nodes, constants = sizes_of(2)
    nodes += [
        node("Div", ["d2", "heads"], ["width"]),
        node("Concat", ["keep", "keep", "heads", "width"], ["target"], axis=0),
        node("Reshape", ["x", "target"]),
    ]
    check(nodes, constants | {"heads": np.asarray([3]), "keep": np.asarray([0])}, "f32[N,S,3,4]")


def test_expand_to_the_same_shape_is_the_identity():
    graph = check([node("Shape", ["x"], ["t"]), node("Expand", ["x", "t"])], {}, "f32[N,S,12]")
    assert "Expand" not in ops(graph)


def test_expand_along_dimensions_of_one_keeps_the_others():
    """As exporters repeat the keys of grouped heads, and with more dimensions than the input has."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "two"], ["front"]),
        node("Unsqueeze", ["x", "two"], ["u"]),
        node("Concat", ["five", "front", "four", "twelve"], ["t"], axis=0),
        node("Expand", ["u", "t"]),
    ]
    sizes = {"zero": 0, "two": 2, "four": 4, "five": 5, "twelve": 12}
    constants = {name: np.asarray([size]) for name, size in sizes.items()}
    check(nodes, constants, "f32[5,N,S,4,12]")


def test_expand_as_torch_writes_it():
    """Where(shape == -1, ones, shape): -1 keeps a dimension."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("ConstantOfShape", ["three"], ["ones"], value=one()),
        node("Mul", ["ones", "minus"], ["keep"]),
        node("Equal", ["shape", "keep"], ["kept"]),
        node("Where", ["kept", "ones", "shape"], ["t"]),
        node("Expand", ["x", "t"]),
    ]
    check(nodes, {"three": np.asarray([3]), "minus": np.asarray(-1)}, "f32[N,S,12]")


def one():
    return TensorProto(data_type=TensorProto.INT64, dims=[1], int64_data=[1])


def test_resize_to_the_size_of_another():
    inputs = {"x": ["N", 3, 4, 5], "z": ["N", 3, 8, 10]}
    nodes = [
        node("Shape", ["x"], ["a"]),
        node("Slice", ["a", "zero", "two"], ["front"]),
        node("Shape", ["z"], ["b"]),
        node("Slice", ["b", "two", "four"], ["back"]),
        node("Concat", ["front", "back"], ["t"], axis=0),
        node(
            "Resize",
            ["x", "", "", "t"],
            ["r"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("Add", ["r", "z"]),
    ]
    constants = {
        name: np.asarray([value]) for name, value in (("zero", 0), ("two", 2), ("four", 4))
    }
    check(nodes, constants, "f32[N,3,8,10]", inputs=inputs)


def test_slice_up_to_the_length():
    nodes, constants = sizes_of(1)
    nodes += [node("Slice", ["x", "zero", "d1", "axis"])]
    check(nodes, constants | {"axis": np.asarray([1])}, "f32[N,S,12]")


def test_static_shapes_fold_through_floats():
    """Upsampling by 2 as older exporters write it: the size goes through Cast, Mul and Floor."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "two", "four"], ["hw"]),
        node("Cast", ["hw"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "factor"], ["scaled"]),
        node("Floor", ["scaled"], ["whole"]),
        node("Cast", ["whole"], ["back"], to=TensorProto.INT64),
        node("Slice", ["s", "zero", "two"], ["front"]),
        node("Concat", ["front", "back"], ["t"], axis=0),
        node(
            "Resize",
            ["x", "", "", "t"],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    ]
    constants = {
        name: np.asarray([value]) for name, value in (("zero", 0), ("two", 2), ("four", 4))
    } | {"factor": np.float32([2, 2])}
    check(nodes, constants, "f32[2,3,8,10]", inputs={"x": [2, 3, 4, 5]})


def test_ones_of_a_symbolic_shape_have_a_rank():
    nodes, constants = sizes_of(0, 1)
    nodes += [
        node("Concat", ["d0", "d1"], ["t"], axis=0),
        node("ConstantOfShape", ["t"], ["o"]),
        node("Unsqueeze", ["o", "last"], ["u"]),
    ]
    nodes += [node("Add", ["x", "u"])]
    check(nodes, constants | {"last": np.asarray([2])}, "f32[?,?,12]")


def test_size_product_and_split():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Split", ["s", "parts"], ["front", "back"], axis=0),
        node("ReduceProd", ["front"], ["rows"], keepdims=1),
        node("Concat", ["rows", "back"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Size", ["r"], ["count"]),
        node("Unsqueeze", ["count", "zero"], ["flat"]),
        node("Reshape", ["r", "flat"]),
    ]
    check(nodes, {"parts": np.asarray([2, 1]), "zero": np.asarray([0])}, "f32[12*N*S]")


@pytest.mark.parametrize(
    ("rest", "expected"),
    [([3, 4], "f32[N,S,3,4]"), ([12], "f32[N,S,12]"), ([0, 3], "f32[?,?,?,?]")],
)
def test_reshape_that_allows_zero(rest: list[int], expected: str) -> None:
    """As PyTorch's exporter writes each view; sizes that are copied may be 0."""
    nodes, sizes = sizes_of(0, 1)
    nodes += [
        node("Concat", ["d0", "d1", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"], allowzero=1),
    ]
    proto = model(nodes, inputs=INPUT, constants=sizes | {"rest": np.asarray(rest)})
    assert str(graph_from_onnx(proto).type("y")) == expected
    for n, s in ((2, 5), (0, 4), (3, 0), (1, 1)):
        if 0 in rest and n * s:
            continue
        x = random([n, s, 12])
        for backend in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(proto, backend).run(None, {"x": x})
            assert np.array_equal(found, x.reshape(n, s, *rest))


def test_nothing_is_inferred_from_no_elements() -> None:
    """A size that a run tells, beside one that may be 0, where allowzero takes that for a size."""
    nodes, sizes = sizes_of(0)
    nodes += [
        node("Concat", ["d0", "given"], ["t"], axis=0),
        node("Reshape", ["x", "t"], allowzero=1),
    ]
    types = {"x": TensorProto.FLOAT, "given": TensorProto.INT64}
    proto = model(nodes, inputs={"x": ["N", "M"], "given": [1]}, constants=sizes, types=types)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(proto, backend)
        for n, m, told in ((0, 0, 4), (0, 3, 5), (2, 3, 3), (3, 0, 0)):
            feeds = {"x": np.ones((n, m), np.float32), "given": np.asarray([told])}
            (found,) = session.run(None, feeds)
            assert found.shape == (n, told)


def test_two_unknown_sizes_are_left_alone():
    proto = model(
        [node("Concat", ["n", "n", "rest"], ["t"], axis=0), node("Reshape", ["x", "t"])],
        inputs={"x": ["N", 12], "n": [1]},
        constants={"rest": np.asarray([-1])},
        types={"n": TensorProto.INT64},
    )
    graph, _ = run_import(proto, {"x": random([4, 12]), "n": np.asarray([2])})
    assert str(graph.type("y")) == "f32[?,?,?]"


def test_constants_that_stand_for_a_value_are_shared():
    nodes, constants = sizes_of(0)
    nodes += [node("Concat", ["d0", "rest"], ["t"], axis=0)]
    nodes += [
        node("Reshape", ["x", "t"], ["a"]),
        node("Reshape", ["x", "t"], ["b"]),
        node("Add", ["a", "b"]),
    ]
    graph = check(nodes, constants | {"rest": np.asarray([-1])}, "f32[N,12*S]")
    assert len({found.inputs[1] for found in graph.nodes() if found.op == "Reshape"}) == 1


def test_formulas_that_grow_are_given_up():
    """N squared again and again: each step would double the formula."""
    nodes, constants = sizes_of(0)
    nodes += [node("Mul", [f"m{i - 1}" if i else "d0"] * 2, [f"m{i}"]) for i in range(60)]
    nodes += [node("Concat", ["m59", "rest"], ["t"], axis=0), node("Reshape", ["x", "t"])]
    graph = graph_from_onnx(
        model(nodes, inputs=INPUT, constants=constants | {"rest": np.asarray([-1])})
    )
    assert str(graph.type("y")) == "f32[?,?]"


STEPS = ["Add", "Sub", "Mul", "Div", "Concat", "Slice", "Gather", "Squeeze", "Where", "ReduceProd"]


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-3, 4), st.integers(0, 3)), max_size=6),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_random_arithmetic_is_followed_rightly(steps, n, s):
    """Whatever is known of the entries, is true: ConstantOfShape of a random expression over sizes
    has the shape that its type says.
    """
    nodes, constants = (
        [node("Shape", ["x"], ["v"])],
        {"zero": np.asarray([0]), "one": np.asarray([1])},
    )
    value = "v"
    for index, (op, number, place) in enumerate(steps):
        out = f"v{index}"
        constants[f"c{index}"] = np.asarray([number])
        constants[f"p{index}"] = np.asarray([place])
        if op in {"Add", "Sub", "Mul"}:
            nodes.append(node(op, [value, f"c{index}"], [out]))
        elif op == "Div":
            constants[f"c{index}"] = np.asarray([abs(number) + 1])
            nodes.append(node(op, [value, f"c{index}"], [out]))
        elif op == "Concat":
            nodes.append(node(op, [value, f"c{index}"], [out], axis=0))
        elif op == "Slice":
            nodes.append(node(op, [value, "zero", f"p{index}"], [out]))
        elif op == "Gather":
            nodes += [
                node("Concat", [value, "one"], [f"w{index}"], axis=0),
                node(op, [f"w{index}", "zero"], [out]),
            ]
        elif op == "Squeeze":
            nodes += [
                node("Unsqueeze", [value, "one"], [f"w{index}"]),
                node(op, [f"w{index}", "one"], [out]),
            ]
        elif op == "Where":
            nodes += [
                node("Equal", [value, f"c{index}"], [f"w{index}"]),
                node(op, [f"w{index}", f"p{index}", value], [out]),
            ]
        else:
            nodes.append(node(op, [value], [out], keepdims=1))
        value = out
    # Sizes must not be negative, and not huge: x * 0 + min(max(v, 0), 3) would hide the arithmetic,
    # so only the outcome is clipped.
    nodes += [
        node("Max", [value, "zero"], ["positive"]),
        node("Min", ["positive", "three"], ["small"]),
        node("ConstantOfShape", ["small"]),
    ]
    proto = model(
        nodes,
        inputs={"x": ["N", "S", 3]},
        constants=constants | {"three": np.asarray([3])},
        opset=17,
    )
    graph = graph_from_onnx(proto)
    types_hold(graph, {"x": np.zeros((n, s, 3), np.float32)})
    known = graph_from_onnx(
        model(
            nodes[:-3], inputs={"x": ["N", "S", 3]}, constants=constants, outputs=[value], opset=17
        )
    )
    types_hold(known, {"x": np.zeros((n, s, 3), np.float32)})


@given(st.sampled_from(["Add", "Sub", "Mul", "Div"]), st.integers(-6, 6), st.integers(1, 9))
def test_arithmetic_reaches_the_reshape(op, number, n):
    """Reshape to [N op c op c ...] of as many elements: the type must say what comes out."""
    number = number or 1
    nodes, constants = sizes_of(0)
    nodes += [
        node(op, ["d0", "c"], ["a"]),
        node({"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul"}[op], ["a", "c"], ["b"]),
        node("Concat", ["b", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]
    constants |= {"c": np.asarray([number]), "rest": np.asarray([-1])}
    graph = graph_from_onnx(model(nodes, inputs={"x": ["N", 4]}, constants=constants, opset=17))
    if op != "Div" or n % abs(number) == 0:
        types_hold(graph, {"x": np.zeros((n, 4), np.float32)})


@pytest.mark.parametrize("op", ["Div"])
def test_division_rounds_towards_zero(op):
    nodes, constants = sizes_of(0)
    nodes += [
        node("Sub", ["d0", "nine"], ["a"]),
        node(op, ["a", "two"], ["b"]),
        node("Neg", ["b"], ["c"]),
        node("ConstantOfShape", ["c"]),
    ]
    constants |= {"nine": np.asarray([9]), "two": np.asarray([2])}
    feeds = {"x": np.zeros((4, 2), np.float32)}
    # -5 / 2 rounds towards 0
    graph = compare(model(nodes, inputs={"x": ["N", 2]}, constants=constants, opset=17), feeds)
    types_hold(graph, feeds)


def test_products_that_overflow_are_unknown():
    nodes = [node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["i"], to=TensorProto.INT32)]
    nodes += [node("Mul", [f"m{i - 1}" if i else "i"] * 2, [f"m{i}"]) for i in range(7)]
    nodes += [node("Cast", ["m6"], ["l"], to=TensorProto.INT64), node("Reshape", ["x", "l"])]
    graph = graph_from_onnx(model(nodes, inputs={"x": ["N", 5]}))
    assert str(graph.type("y")) == "f32[?,?]"  # 5 ** 128 is no s32
    # without a symbol it is computed, and wraps as it will at run time
    with pytest.raises(InvalidModel, match="shape must hold sizes"):
        graph_from_onnx(model(nodes, inputs={"x": [3, 5]}))


def test_constants_that_cannot_be_computed_are_left_to_the_run():
    nodes = [node("Gather", ["shape", "i"], ["t"]), node("Reshape", ["x", "t"])]
    graph = graph_from_onnx(
        model(
            nodes,
            inputs={"x": [4]},
            constants={"shape": np.asarray([2, 2]), "i": np.asarray([0, 9])},
        )
    )
    assert ops(graph) == ["Gather", "Reshape"]


@pytest.mark.parametrize("size", ["N", "2*N+3*M+1"])
def test_types_whose_formulas_square_again_and_again_are_given_up(size):
    """[A] -> [1, A] + [A, 1] -> [A * A], ten times: the formula would take more memory than any
    machine has.
    """
    nodes = []
    for step in range(10):
        last = f"v{step - 1}" if step else "x"
        nodes += [
            node("Unsqueeze", [last, "zero"], [f"row{step}"]),
            node("Unsqueeze", [last, "one"], [f"column{step}"]),
            node("Add", [f"row{step}", f"column{step}"], [f"square{step}"]),
            node("Reshape", [f"square{step}", "flat"], [f"v{step}"]),
        ]
    constants = {"zero": np.asarray([0]), "one": np.asarray([1]), "flat": np.asarray([-1])}
    graph = graph_from_onnx(model(nodes, inputs={"x": [size]}, outputs=["v9"], constants=constants))
    assert str(graph.type("v9")) == "f32[?]"
