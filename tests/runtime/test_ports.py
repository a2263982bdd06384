"""Sequences and optionals as inputs and outputs of models: what a session takes and gives, and what plans keep."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.judge import ort_session
from support.onnx_cases import node, tensor

import fqfuse
from fqfuse import FqfuseError, InferenceSession
from fqfuse.errors import InvalidInput, PlanError
from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.ports import PACKED, ROWS, Port, Ports, unpacked
from fqfuse.ir.text_parse import parse_graph
from fqfuse.ir.text_print import print_graph
from fqfuse.plan.file import plan_bytes, read_plan
from fqfuse.plan.metadata import ports_of
from fqfuse.plan.parse import parse_plan
from fqfuse.plan.text import print_plan
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.onnx_backend import prepare

BACKENDS = ("numpy", "onednn")
SHAPES = {"fixed": [1, 3, 6, 6], "open": [1, 3, None, None], "any": None}
"""What a model says of the tensors in a sequence."""


def tensors_of(shape, kind=TensorProto.FLOAT):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(kind, shape))


def optional(kind):
    return helper.make_optional_type_proto(kind)


def model(nodes, inputs, outputs, constants=None):
    """A model whose inputs and outputs have any types."""
    infos = [
        [helper.make_value_info(name, kind) for name, kind in half.items()]
        for half in (inputs, outputs)
    ]
    held = [tensor(name, value) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "ports", *infos, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def detector(shape):
    """An int8 convolution of each of several images."""
    rng = np.random.default_rng(0)
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
    }
    body = helper.make_graph(
        [
            node("QuantizeLinear", ["e", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["d"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
            node("Conv", ["d", "v"], ["c"], name="conv"),
            node("Relu", ["c"], ["r"]),
        ],
        "map",
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )
    nodes = [node("SequenceMap", ["images"], ["maps"], name="map", body=body)]
    return model(nodes, {"images": tensors_of(shape)}, {"maps": tensors_of(None)}, constants)


def judged(proto, feeds):
    """What ONNX Runtime gives."""
    return ort_session(proto, optimized=True).run(None, feeds)


def images(told, count=3):
    rng = np.random.default_rng(1)
    sizes = [(6, 6), (6, 6), (6, 6)] if told == "fixed" else [(6, 6), (9, 4), (3, 20)]
    return [rng.standard_normal((1, 3, *size)).astype(np.float32) for size in sizes[:count]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("told", SHAPES)
@pytest.mark.parametrize("count", [3, 1, 0])
def test_a_list_goes_in_and_comes_out(told, backend, count):
    proto = detector(SHAPES[told])
    session = InferenceSession(proto, backend)
    feeds = {"images": images(told, count)}
    (found,) = session.run(None, feeds)
    (wanted,) = judged(proto, feeds)
    assert isinstance(found, list)
    assert len(found) == count
    for mine, theirs in zip(found, wanted, strict=True):
        # f32 sums in another order: a few units of the last place of values up to 4
        np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=0)
        mine[...] = 0  # they are the caller's own
    (again,) = session.run(["maps"], feeds)
    assert all(map(np.any, again)) or not count


@pytest.mark.parametrize("told", ["fixed", "open"])
def test_the_body_of_a_map_runs_in_int8(told):
    plan = fqfuse.compile(detector(SHAPES[told]))
    ((_, body),) = plan.within
    (convolution,) = (step for step in body.steps if step.primitive == "convolution")
    assert body.type(convolution.arg("src")).dtype.value == "u8"


def test_a_session_says_what_it_takes_as_onnx_runtime_does():
    session = InferenceSession(detector(SHAPES["open"]))
    (given,), (found,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type) == ("images", "seq(tensor(float))")
    assert (found.name, found.type) == ("maps", "seq(tensor(float))")
    held = optional(helper.make_tensor_type_proto(TensorProto.INT8, [2]))
    proto = model([node("Identity", ["o"], ["p"])], {"o": held}, {"p": held})
    assert InferenceSession(proto).get_inputs()[0].type == "optional(tensor(int8))"


@pytest.mark.parametrize(
    ("told", "fed", "message"),
    [
        ("open", None, "fed None, and is no optional"),
        ("open", np.zeros((1, 3, 6, 6), np.float32), "fed as a ndarray"),
        ("open", [np.zeros((1, 3, 6, 6))], "elements of type float64, expected float32"),
        ("open", [np.zeros((3, 6, 6), np.float32)], "ranks 3, expected 4"),
        ("any", [*images("open"), np.zeros(3, np.float32)], "ranks 1, 4, and they must be of one"),
        ("fixed", images("open"), r"shape \[1, 3, 9, 4\], expected \[1, 3, 6, 6\]"),
        ("fixed", [object()], "elements of type object"),
    ],
)
def test_what_does_not_fit_is_said(told, fed, message):
    session = InferenceSession(detector(SHAPES[told]), "numpy")
    with pytest.raises(InvalidInput, match=message) as refused:
        session.run(None, {"images": fed})
    assert "input images" in refused.value.where
    with pytest.raises(InvalidInput, match="unknown inputs: pictures"):
        session.run(None, {"pictures": []})
    with pytest.raises(InvalidInput, match="unknown outputs: images"):
        session.run(["images"], {"images": []})


# -- optionals -----------------------------------------------------------------------------------------

KINDS = {
    "tensor": helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2]),
    "sequence": tensors_of([None, 2]),
}
HELD = {
    "tensor": np.float32([[1, 2], [3, 4]]),
    "sequence": [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])],
}


def either(kind):
    """What an optional holds, or else another of the kind."""
    result = KINDS[kind]
    held = helper.make_graph(
        [node("OptionalGetElement", ["o"], ["got"])],
        "then",
        [],
        [helper.make_value_info("got", result)],
    )
    op, given = ("Identity", ["x"]) if kind == "tensor" else ("SequenceConstruct", ["x", "x"])
    other = helper.make_graph(
        [node(op, given, ["made"])], "else", [], [helper.make_value_info("made", result)]
    )
    nodes = [
        node("OptionalHasElement", ["o"], ["there"]),
        node("If", ["there"], ["y"], then_branch=held, else_branch=other),
        node("Identity", ["o"], ["same"]),
    ]
    inputs = {
        "o": optional(result),
        "x": helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2]),
    }
    outputs = {
        "y": result,
        "there": helper.make_tensor_type_proto(TensorProto.BOOL, []),
        "same": optional(result),
    }
    return model(nodes, inputs, outputs)


def same(mine, theirs):
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)
    elif theirs is None:
        assert mine is None
    else:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("there", [True, False])
def test_an_optional_holds_something_or_not(kind, backend, there):
    session = InferenceSession(either(kind), backend)
    x = np.float32([[7, 8]])
    held = HELD[kind] if there else None
    otherwise = x if kind == "tensor" else [x, x]
    for _ in range(2):
        found = session.run(None, {"o": held, "x": x})
        same(found, [held if there else otherwise, np.asarray(there), held])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_an_optional_does_not_hold_ends_the_run(kind, backend):
    last = "t" if kind == "tensor" else "y"
    nodes = [node("OptionalGetElement", ["o"], ["t"], name="got")]
    if kind == "sequence":
        nodes.append(node("ConcatFromSequence", ["t"], ["y"], axis=0))
    result = helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2])
    session = InferenceSession(model(nodes, {"o": optional(KINDS[kind])}, {last: result}), backend)
    (found,) = session.run(None, {"o": HELD[kind]})
    same(found, HELD[kind] if kind == "tensor" else np.concatenate(HELD[kind]))
    with pytest.raises(InvalidInput) as refused:
        session.run(None, {"o": None})
    assert "what the optional holds" in refused.value.where


# -- plans ---------------------------------------------------------------------------------------------


def test_a_plan_keeps_its_ports():
    plan = fqfuse.compile(detector(SHAPES["open"]))
    assert plan.ports == Ports(
        (Port("images", PACKED, ("images.data", "images.sizes")),),
        (Port("maps", PACKED, plan.outputs),),
    )
    again = read_plan(plan_bytes(plan))
    assert again == plan
    assert plan_bytes(again) == plan_bytes(plan)
    assert parse_plan(print_plan(plan)) == plan
    graph = graph_from_onnx(detector(SHAPES["open"]))
    assert parse_graph(print_graph(graph)) == graph
    assert "port in images = packed(%images.data, %images.sizes)" in print_plan(plan)
    feeds = {"images": images("open")}
    session = pickle.loads(pickle.dumps(InferenceSession(again)))  # noqa: S301
    same(session.run(None, feeds), InferenceSession(plan).run(None, feeds))
    packed = dict(zip(plan.inputs, _packed(feeds["images"]), strict=True))
    same(session.run(None, packed), session.run(None, feeds))


def _packed(tensors):
    yield np.concatenate([tensor.reshape(-1) for tensor in tensors])
    yield np.int64([tensor.shape for tensor in tensors])


@pytest.mark.parametrize(
    "changed",
    [
        lambda port: replace(port, form="heap"),
        lambda port: replace(port, form=ROWS),
        lambda port: replace(port, values=port.values[::-1]),
        lambda port: replace(port, there=port.values[0]),
        lambda port: replace(port, name=""),
    ],
)
def test_ports_that_cannot_hold_are_refused(changed):
    plan = fqfuse.compile(detector(SHAPES["open"]))
    (given,) = plan.ports.inputs
    broken = replace(plan, ports=replace(plan.ports, inputs=(changed(given),)))
    assert verify_plan(broken)
    assert not verify_plan(plan)
    with pytest.raises(PlanError):
        plan_bytes(broken)


@pytest.mark.parametrize(
    "told", ["[]", "3", "[[],[[]]]", '[[["a","packed",[1],""]],[]]', "[[1],[]]", "[[],3]", "{"]
)
def test_a_broken_file_is_refused(told):
    with pytest.raises(PlanError):
        ports_of({"fqfuse.ports": told})


def test_the_backend_of_onnx_takes_lists():
    proto = detector(SHAPES["open"])
    feeds = images("open")
    (by_place,) = prepare(proto).run([feeds])
    (by_name,) = prepare(proto).run({"images": feeds})
    same(by_place, by_name)


@pytest.mark.parametrize(
    "use",
    [
        lambda path: fqfuse.export(path, path.with_name("out.onnx")),
        lambda path: fqfuse.compare(path, path),
        fqfuse.bench,
    ],
)
def test_what_knows_tensors_alone_says_so(use, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(detector(SHAPES["open"]), path)
    with pytest.raises(FqfuseError, match="images is a sequence or an optional"):
        use(path)


@pytest.mark.parametrize("sizes", [[[1], [7]], [[-1], [4]], [[1]], np.empty((0, 1), np.int64)])
def test_shapes_of_other_elements_are_refused(sizes):
    with pytest.raises(InvalidInput, match="3 elements, and shapes of"):
        unpacked(np.ones(3, np.float32), np.asarray(sizes))
