"""Sequences and optionals of known length: nothing is left of them, and quantizers fuse across."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random, run_ort

import fqfuse
from fqfuse.errors import InvalidModel

X = random([6, 4])
INTS = {f"i{n}" if n >= 0 else f"m{-n}": np.asarray(n, np.int64) for n in (-2, -1, 0, 1, 2)}
SIZES = {
    "two": np.asarray(2, np.int64),
    "four": np.asarray(4, np.int64),
    "sizes": np.int64([1, 3, 2]),
}


def agree(nodes, *, constants=(), inputs=None, types=None, feeds=None):
    """Both runtimes give what ONNX Runtime gives, by no step of the reference evaluator; the plan."""
    given = {**INTS, **SIZES, **dict(constants)}
    read = {name for made in nodes for name in made.input}
    proto = model(
        nodes,
        inputs=inputs or {"x": [6, 4]},
        constants={name: data for name, data in given.items() if name in read},
        types=types,
    )
    feeds = {"x": X} | (feeds or {})
    wanted = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    assert not any(step.op == "Onnx" and step.bodies is None for step in plan.steps)
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, feeds)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    return plan


@pytest.mark.parametrize("split", ["", "two", "four", "sizes"])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_what_is_split_is_joined_again(split, axis, keepdims) -> None:
    if (axis == -1 and split == "sizes") or (split and not keepdims):
        return  # sizes add up to 6; with sizes ONNX ignores keepdims, and ONNX Runtime fails
    inputs = ["x", split] if split else ["x"]
    stack = int(not split and not keepdims)
    nodes = [
        node("SplitToSequence", inputs, ["s"], axis=axis, keepdims=keepdims),
        node("ConcatFromSequence", ["s"], ["y"], axis=axis, new_axis=stack),
    ]
    agree(nodes)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1, "one"])
def test_pieces_of_one_element_are_rows_where_the_size_is_open(axis, keepdims) -> None:
    """Of a size that only a run tells; `one`: by a length of 1."""
    inputs, keep = (["x", "i1"], 1) if keepdims == "one" else (["x"], keepdims)
    nodes = [
        node("SplitToSequence", inputs, ["s"], axis=axis, keepdims=keep),
        node("SequenceAt", ["s", "m2"], ["piece"]),
        node("SequenceLength", ["s"], ["count"]),
        node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        node("Mul", ["piece", "number"], ["scaled"]),
        node("ConcatFromSequence", ["s"], ["joined"], axis=axis, new_axis=int(not keep)),
        node("Add", ["joined", "i0f"], ["whole"]),
        node("Unsqueeze", ["scaled", "axes"], ["again"])
        if not keep
        else node("Neg", ["scaled"], ["again"]),
        node("Concat", ["whole", "again"], ["y"], axis=axis),
    ]
    constants = {"axes": np.int64([axis]), "i0f": np.float32(0)}
    agree(nodes, inputs={"x": ["n", "m", 5]}, constants=constants, feeds={"x": random([2, 3, 5])})


def test_sizes_that_a_run_tells_cut_into_as_many_pieces() -> None:
    nodes = [
        node("SplitToSequence", ["x", "p"], ["s"], axis=1),
        node("SequenceAt", ["s", "m1"], ["last"]),
        node("SequenceAt", ["s", "i0"], ["first"]),
        node("Concat", ["last", "first"], ["y"], axis=1),
    ]
    agree(
        nodes,
        inputs={"x": [6, "n"], "p": [3]},
        types={"x": TensorProto.FLOAT, "p": TensorProto.INT64},
        feeds={"p": np.int64([1, 0, 3])},
    )


def test_sequences_are_made_changed_and_read() -> None:
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Abs", ["x"], ["b"]),
        node("SequenceConstruct", ["x", "a"], ["s0"]),
        node("SequenceInsert", ["s0", "b", "i1"], ["s1"]),
        node("SequenceInsert", ["s1", "b"], ["s2"]),
        node("SequenceErase", ["s2", "m2"], ["s3"]),
        node("SequenceErase", ["s3"], ["s4"]),
        node("Identity", ["s4"], ["s5"]),
        node("SequenceAt", ["s5", "m1"], ["last"]),
        node("SequenceLength", ["s5"], ["count"]),
        node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        node("Mul", ["last", "number"], ["y"]),
    ]
    agree(nodes)


def test_an_empty_sequence_grows() -> None:
    nodes = [
        node("SequenceEmpty", [], ["s0"], dtype=TensorProto.FLOAT),
        node("SequenceInsert", ["s0", "x"], ["s1"]),
        node("SequenceInsert", ["s1", "x", "i0"], ["s2"]),
        node("ConcatFromSequence", ["s2"], ["y"], axis=1),
    ]
    agree(nodes)


def test_a_place_that_is_fed_picks_among_tensors_of_one_shape() -> None:
    nodes = [
        node("SplitToSequence", ["x", "two"], ["s"]),
        node("SequenceAt", ["s", "p"], ["y"]),
    ]
    for place in (-3, 0, 2, [1]):
        agree(
            nodes,
            inputs={"x": [6, 4], "p": list(np.shape(place))},
            types={"x": TensorProto.FLOAT, "p": TensorProto.INT64},
            feeds={"p": np.asarray(place, np.int64)},
        )


def test_optionals_are_what_they_hold() -> None:
    nodes = [
        node("Optional", ["x"], ["o"]),
        node("OptionalHasElement", ["o"], ["there"]),
        node("OptionalGetElement", ["o"], ["held"]),
        node("Where", ["there", "held", "i0f"], ["y"]),
    ]
    agree(nodes, constants={"i0f": np.float32(0)})


def test_quantizers_fuse_across_a_sequence() -> None:
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "w": np.random.default_rng(0).integers(-127, 128, (4, 4)).astype(np.int8),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("SplitToSequence", ["d", "two"], ["pieces"]),
        node("SequenceAt", ["pieces", "i1"], ["piece"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        node("MatMul", ["piece", "v"], ["y"]),
    ]
    given = constants | {"two": SIZES["two"], "i1": INTS["i1"]}
    plan = fqfuse.compile(model(nodes, inputs={"x": [6, 4]}, constants=given))
    (product,) = (step for step in plan.steps if step.primitive == "matmul")
    assert plan.constants[product.arg("weights")].dtype == np.int8
    assert plan.type(product.arg("src")).dtype.value == "u8"


@pytest.mark.parametrize("rows", [6, 5, 1])
def test_what_only_a_run_tells(rows: int) -> None:
    split = [
        node("SplitToSequence", ["x", "two"], ["s"]),
        node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    agree(split, inputs={"x": ["n", 4]}, feeds={"x": random([rows, 4])})
    insert = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("Neg", ["x"], ["z"]),
        node("SequenceInsert", ["s", "z", "p"], ["t"]),
        node("SequenceErase", ["t", "p"], ["u"]),
        node("SequenceAt", ["t", "p"], ["one"]),
        node("ConcatFromSequence", ["u"], ["left"], axis=0),
        node("Concat", ["one", "left"], ["y"], axis=0),
    ]
    types = {"x": TensorProto.FLOAT, "p": TensorProto.INT64}
    for place in (-2, -1, 0, 1):
        agree(insert, inputs={"x": [6, 4], "p": []}, types=types, feeds={"p": np.int64(place)})


def test_a_place_that_is_none_is_a_fault() -> None:
    nodes = [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i1"], ["y"])]
    with pytest.raises(InvalidModel, match="a sequence of 1 has no place 1"):
        fqfuse.compile(model(nodes, inputs={"x": [6, 4]}, constants={"i1": INTS["i1"]}))


def branches() -> dict[str, onnx.GraphProto]:
    """The first tensor of a sequence, or the second."""
    info = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    return {
        name: helper.make_graph([node("SequenceAt", ["s", place], ["out"])], name, [], [info])
        for name, place in (("then_branch", "i0"), ("else_branch", "i1"))
    }


@pytest.mark.parametrize("cut", [["x"], ["x", "two"]], ids=["rows", "pieces"])
@pytest.mark.parametrize("open_size", [False, True])
def test_bodies_read_rows_in_the_place_of_tensors(cut, open_size) -> None:
    if open_size and len(cut) > 1:
        return  # the number of pieces is not known
    nodes = [
        node("SplitToSequence", cut, ["s"], axis=0),
        node("If", ["c"], ["y"], **branches()),
    ]
    constants = {name: (INTS | SIZES)[name] for name in ("i0", "i1", *cut[1:])}
    types = {"x": TensorProto.FLOAT, "c": TensorProto.BOOL}
    inputs = {"x": ["n" if open_size else 6, 4], "c": []}
    proto = model(nodes, inputs=inputs, constants=constants, types=types)
    plan = fqfuse.compile(proto)
    assert not any("Sequence" in str(step.params.get("op_type")) for step in plan.steps)
    for chosen in (True, False):
        feeds = {"x": X, "c": np.asarray(chosen)}
        for backend in ("numpy", "onednn"):
            (found,) = fqfuse.InferenceSession(plan, backend).run(None, feeds)
            np.testing.assert_array_equal(found, run_ort(proto, feeds)[0])


def test_a_branch_that_is_always_taken_reads_any_sequence() -> None:
    nodes = [
        node("Concat", ["x", "x"], ["xx"], axis=0),
        node("SequenceConstruct", ["x", "xx"], ["s"]),
        node("If", ["always"], ["y"], **branches()),
    ]
    constants = {"always": np.asarray(False), "i0": INTS["i0"], "i1": INTS["i1"]}
    proto = model(nodes, inputs={"x": [6, 4]}, constants=constants)
    (found,) = fqfuse.InferenceSession(proto).run(None, {"x": X})
    np.testing.assert_array_equal(found, run_ort(proto, {"x": X})[0])


@pytest.mark.parametrize("chosen", [True, False])
def test_a_body_that_reads_tensors_of_several_shapes(chosen: bool) -> None:
    nodes = [
        node("Concat", ["x", "x"], ["xx"], axis=0),
        node("SequenceConstruct", ["x", "xx"], ["s"]),
        node("If", ["c"], ["y"], **branches()),
    ]
    types = {"x": TensorProto.FLOAT, "c": TensorProto.BOOL}
    constants = {name: INTS[name] for name in ("i0", "i1")}
    proto = model(nodes, inputs={"x": [6, 4], "c": []}, constants=constants, types=types)
    feeds = {"x": X, "c": np.asarray(chosen)}
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(proto, backend).run(None, feeds)
        np.testing.assert_array_equal(found, run_ort(proto, feeds)[0])


def grown(axis: int = 0, new_axis: int = 1, *, at: str = "") -> onnx.ModelProto:
    """A list that a Loop appends to, as scripted PyTorch writes it, and all that reads one."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    told = {
        "i": (TensorProto.INT64, []),
        "g": (TensorProto.BOOL, []),
        "a": (TensorProto.FLOAT, None),
    }
    given = [helper.make_tensor_value_info(name, *type_) for name, type_ in told.items()]
    body = helper.make_graph(
        [
            node("Add", ["a", "x"], ["b"]),
            node("SequenceInsert", ["s", "b", *filter(None, [at])], ["longer"]),
            node("Identity", ["g"], ["on"]),
        ],
        "body",
        [*given, helper.make_value_info("s", kind)],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
            helper.make_value_info("longer", kind),
        ],
    )
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["n", "", "x", "e"], ["last", "q"], name="loop", body=body),
        node("ConcatFromSequence", ["q"], ["y"], axis=axis, new_axis=new_axis),
        node("SequenceLength", ["q"], ["length"]),
        node("SequenceAt", ["q", "k"], ["one"]),
    ]
    return model(
        nodes,
        inputs={"x": [2, "N"], "n": [], "k": []},
        types={"n": TensorProto.INT64, "k": TensorProto.INT64},
        outputs=["last", "y", "length", "one"],
        constants={"zero": np.int64(0)},
    )


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("axis", "new_axis"), [(0, 1), (1, 1), (2, 1), (-1, 1), (0, 0), (1, 0), (-2, 0)]
)
def test_a_list_that_a_loop_grows_is_rows(axis: int, new_axis: int) -> None:
    feeds = {"x": random([2, 3]), "n": np.array(4), "k": np.array(-2)}
    proto = grown(axis, new_axis)
    found = fqfuse.InferenceSession(proto, backend="numpy").run(None, feeds)
    for one, other in zip(found, run_ort(proto, feeds), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_a_list_that_a_loop_grows_from_its_front() -> None:
    feeds = {"x": random([2, 3]), "n": np.array(4), "k": np.array(-2)}
    proto = grown(at="zero")
    found = fqfuse.InferenceSession(proto, backend="numpy").run(None, feeds)
    for one, other in zip(found, run_ort(proto, feeds), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def mapped(body, *, inputs=("s",), outputs=("t",)) -> onnx.NodeProto:
    return helper.make_node("SequenceMap", list(inputs), list(outputs), name="map", body=body)


def body_of(nodes, inputs=("e",), outputs=("r",), constants=None) -> onnx.GraphProto:
    """A body on f32 tensors of unknown sizes; it may read what the model around it makes."""
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        for names in (inputs, outputs)
    ]
    held = [onnx.numpy_helper.from_array(data, name) for name, data in (constants or {}).items()]
    return helper.make_graph(nodes, "body", *infos, held)


def test_a_body_stands_once_for_each_tensor_of_a_list() -> None:
    """With a list and a tensor beside it, a constant of its own, a value from outside, an output that is an
    input, and a branch that reads all of them.
    """
    branch = [node("Add", ["m", "far"], ["inner"]), node("Sub", ["inner", "e"], ["b"])]
    made = helper.make_graph(
        branch, "b", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)]
    )
    body = body_of(
        [
            node("Mul", ["e", "w"], ["m"]),
            node("ReduceMax", ["m"], ["top"], keepdims=0),
            node("Greater", ["top", "zero"], ["positive"]),
            node("If", ["positive"], ["r"], then_branch=made, else_branch=made),
            node("MatMul", ["f", "g"], ["q"]),
        ],
        inputs=["e", "f", "g"],
        outputs=["r", "q", "g"],
        constants={"w": random([4]), "zero": np.float32(0)},
    )
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"]),
        node("SplitToSequence", ["x", "sizes"], ["u"]),
        node("Neg", ["x0"], ["far"]),
        mapped(body, inputs=["s", "u", "square"], outputs=["t", "p", "same"]),
        node("ConcatFromSequence", ["t"], ["joined"], axis=0),
        node("ConcatFromSequence", ["p"], ["products"], axis=0),
        node("SequenceAt", ["same", "i1"], ["one"]),
        node("Add", ["joined", "products"], ["sum"]),
        node("MatMul", ["sum", "one"], ["y"]),
    ]
    constants = {"square": random([4, 4]), "x0": random([4])}
    proto = model(nodes, inputs={"x": [6, 4]}, constants=constants | INTS | SIZES)
    plan = fqfuse.compile(proto)
    assert not any("SequenceMap" in step.op for step in plan.steps)
    (wanted,) = run_ort(proto, {"x": X})
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, {"x": X})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_bodies_in_bodies_and_lists_of_nothing() -> None:
    inside = [
        node("SequenceConstruct", ["e", "e"], ["pair"]),
        mapped(body_of([node("Abs", ["e2"], ["r2"])], ["e2"], ["r2"]), inputs=["pair"]),
        node("ConcatFromSequence", ["t"], ["r"], axis=0),
    ]
    nodes = [
        node("SplitToSequence", ["x", "two"], ["s"]),
        mapped(body_of(inside), outputs=["o"]),
        node("ConcatFromSequence", ["o"], ["y"], axis=1),
    ]
    proto = model(nodes, inputs={"x": [6, 4]}, constants={"two": SIZES["two"]})
    pieces = [np.abs(np.concatenate([piece, piece])) for piece in np.split(X, 3)]
    (found,) = fqfuse.InferenceSession(proto).run(None, {"x": X})  # ONNX Runtime refuses the model
    np.testing.assert_array_equal(found, np.concatenate(pieces, axis=1))
    agree(
        [
            node("SequenceEmpty", [], ["s"]),
            mapped(body_of([node("Abs", ["e"], ["r"])])),
            node("SequenceLength", ["t"], ["y"]),
        ]
    )


def test_a_map_over_what_a_run_tells_and_odd_ones() -> None:
    body = body_of([node("Abs", ["e"], ["r"])])
    join = node("ConcatFromSequence", ["t"], ["y"], axis=0)
    split = node("SplitToSequence", ["x", "two"], ["s"])
    agree([split, mapped(body), join], inputs={"x": ["n", 4]}, feeds={"x": random([5, 4])})
    two = body_of([node("Add", ["e", "f"], ["r"])], ["e", "f"])
    other = node("SplitToSequence", ["x", "sizes"], ["u"])
    third = node("SplitToSequence", ["x"], ["v"])
    for nodes, message in [
        ([split, third, mapped(two, inputs=["s", "v"]), join], "different lengths: 3, 6"),
        ([split, other, mapped(body, inputs=["s", "u"]), join], "are not those of the node"),
    ]:
        with pytest.raises(InvalidModel, match=message):
            fqfuse.compile(model(nodes, inputs={"x": [6, 4]}, constants=SIZES))


@pytest.mark.parametrize("on", ["g", "always"])
def test_a_loop_over_a_list_of_known_length_stands_once_for_each_trip(on: str) -> None:
    """As ONNX writes a SequenceMap without that operator, and with a tensor and rows carried along."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    told = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in ("a", "b", "row")
    }
    counters = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("g", TensorProto.BOOL, []),
    ]
    body = helper.make_graph(
        [
            node("SequenceAt", ["s", "i"], ["piece"]),
            node("ReduceSum", ["piece"], ["row"], keepdims=0),
            node("Add", ["a", "row"], ["b"]),
            node("Mul", ["piece", "b"], ["scaled"]),
            node("SequenceInsert", ["t", "scaled", "i0"], ["longer"]),
            node("Cast", [on], ["on"], to=TensorProto.BOOL),
        ],
        "body",
        [*counters, told["a"], helper.make_value_info("t", kind)],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            told["b"],
            helper.make_value_info("longer", kind),
            told["row"],
        ],
    )
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"]),
        node("SequenceLength", ["s"], ["n"]),
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["n", "", "start", "e"], ["last", "q", "rows"], name="loop", body=body),
        node("ConcatFromSequence", ["q"], ["joined"], axis=0),
        node("Add", ["joined", "last"], ["sum"]),
        node("ReduceSum", ["rows"], ["total"], keepdims=0),
        node("Mul", ["sum", "total"], ["y"]),
    ]
    constants = {"start": np.float32(1), "sizes": SIZES["sizes"], "i0": INTS["i0"]}
    constants["always"] = np.asarray(True)
    proto = model(nodes, inputs={"x": [6, 4]}, constants=constants)
    (wanted,) = run_ort(proto, {"x": X})
    plan = fqfuse.compile(proto)
    assert not any(step.op == "Onnx" and step.bodies is None for step in plan.steps)
    for backend in ("numpy", "onednn"):
        (found,) = fqfuse.InferenceSession(plan, backend).run(None, {"x": X})
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)  # sums in another order


def test_copies_of_bodies_count_as_nodes() -> None:
    chain = body_of([node("Abs", ["e"], ["m"]), node("Sqrt", ["m"], ["r"])])
    nodes = [
        node("SplitToSequence", ["x"], ["s"]),
        mapped(chain),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    proto = model(nodes, inputs={"x": [6, 4]})
    assert fqfuse.compile(proto, budgets=fqfuse.Budgets(nodes=21))
    with pytest.raises(InvalidModel, match="with the branches that are taken, needs 21"):
        fqfuse.compile(proto, budgets=fqfuse.Budgets(nodes=20))


def test_a_loop_of_many_trips_over_a_list_is_not_written_out() -> None:
    """A file may say any number, and this one reads the only tensor again and again."""
    told = [
        helper.make_tensor_value_info("i", TensorProto.INT64, []),
        helper.make_tensor_value_info("g", TensorProto.BOOL, []),
        helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]),
    ]
    body = helper.make_graph(
        [
            node("SequenceAt", ["s", "zero"], ["piece"]),
            node("Add", ["a", "piece"], ["b"]),
            node("Identity", ["g"], ["on"]),
        ],
        "body",
        told,
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]),
        ],
    )
    constants = {"n": np.array(300), "zero": np.array(0)}
    proto = model(
        [
            node("SequenceConstruct", ["x"], ["s"]),
            helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body),
        ],
        inputs={"x": [2]},
        outputs=["y"],
        constants=constants,
    )
    plan = fqfuse.compile(proto)
    assert len(plan.steps) < 10
    feeds = {"x": random([2])}
    (found,) = fqfuse.InferenceSession(plan, backend="numpy").run(None, feeds)
    np.testing.assert_allclose(found, run_ort(proto, feeds)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("joined", "rows"),
    [
        ([("axis", 1), ("new_axis", 1)], True),
        ([("axis", 1)], True),
        ([("axis", 0)], False),
        ([], False),
    ],
)
def test_a_list_whose_tensors_must_be_alike_is_rows(joined, rows: bool) -> None:
    """What joins them along another dimension than the one that a run tells, or along a new one, says so."""
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    told = {
        "i": (TensorProto.INT64, []),
        "g": (TensorProto.BOOL, []),
        "a": (TensorProto.FLOAT, None),
    }
    body = helper.make_graph(
        [
            node("Gather", ["a", "kept"], ["b"], axis=0),
            node("SequenceInsert", ["s", "b"], ["longer"]),
            node("Identity", ["g"], ["on"]),
        ],
        "body",
        [
            *(helper.make_tensor_value_info(name, *type_) for name, type_ in told.items()),
            helper.make_value_info("s", kind),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
            helper.make_value_info("longer", kind),
        ],
    )
    last = (
        node("ConcatFromSequence", ["q"], ["y"], **dict(joined))
        if joined
        else node("SequenceAt", ["q", "i1"], ["y"])
    )
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("NonZero", ["flags"], ["places"]),
        node("Squeeze", ["places", "i0s"], ["kept"]),
        node("Loop", ["n", "", "x", "e"], ["last", "q"], name="loop", body=body),
        last,
    ]
    proto = model(
        nodes,
        inputs={"x": ["N", 4], "n": [], "flags": [2]},
        types={"n": TensorProto.INT64, "flags": TensorProto.BOOL},
        constants={"i1": np.int64(1), "i0s": np.int64([0])},
    )
    plan = fqfuse.compile(proto)
    (loop,) = (step for step in plan.steps if step.bodies is not None)
    assert (len(loop.outputs) == 2) == rows  # the last state, and rows; else elements and shapes
    feeds = {"x": random([3, 4]), "n": np.array(3), "flags": np.array([True, True])}
    (found,) = fqfuse.InferenceSession(plan).run(None, feeds)
    np.testing.assert_array_equal(found, run_ort(proto, feeds)[0], strict=True)
