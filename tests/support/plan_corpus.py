"""Plans of every kind that the compiler makes, small: what the plan fuzzer starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from laws.corpus import CORPUS
from laws.recurrent import draw_dynamic
from onnx import TensorProto, helper
from support.onnx_cases import model, node, random
from support.packed_models import Net, Scheme
from support.plan_strategies import full_plan, tiny_plan

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.frontend import graph_from_onnx
from fqfuse.passes import optimize
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.types import Plan

S64, F32, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def info(name: str, kind: int = F32, shape: Sequence[int | str] | None = ()) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _loop(**told: Any) -> onnx.NodeProto:
    """Doubles its state in every trip, and keeps each; reads the model's x."""
    nodes = [
        node("Add", ["state", "x"], ["next"]),
        node("Identity", ["going"], ["on"]),
        node("Identity", ["next"], ["row"]),
    ]
    inputs = [info("trip", S64), info("going", BOOL), info("state", F32, [2, 3])]
    body = helper.make_graph(
        nodes,
        "body",
        inputs,
        [info("on", BOOL), info("next", F32, [2, 3]), info("row", F32, [2, 3])],
    )
    return node("Loop", ["trips", "", "x"], ["y", "rows"], body=body, **told)


def _branch() -> onnx.NodeProto:
    sides = [
        helper.make_graph([node(op, ["x"], ["z"])], op, [], [info("z", F32, [2, 3])])
        for op in ("Tan", "Relu")
    ]
    return node("If", ["yes"], ["y"], then_branch=sides[0], else_branch=sides[1])


def _scan() -> onnx.NodeProto:
    nodes = [node("Add", ["sum", "part"], ["total"]), node("Identity", ["total"], ["kept"])]
    body = helper.make_graph(
        nodes,
        "body",
        [info("sum", F32, [3]), info("part", F32, [3])],
        [info("total", F32, [3]), info("kept", F32, [3])],
    )
    return node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)


Case = tuple[Sequence[onnx.NodeProto], Mapping[str, Any]]
_SMALL, _IMAGE = {"x": [2, 3]}, {"x": [1, 2, 4, 4]}


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Operators that stay themselves: rows of the op table whose shapes come from data, and foreign
    ones.
    """
    plain: dict[str, Case] = {
        "loop": ([_loop()], {"trips": np.int64(3)}),
        "branch": ([_branch()], {"yes": np.bool_(True)}),
        "scan": ([_scan()], {"start": np.zeros(3, np.float32)}),
        "tile": ([node("Tile", ["x", "n"])], {"n": np.array([2, 3])}),
        "expand": ([node("Expand", ["x", "n"])], {"n": np.array([4, 2, 3])}),
        "range": (
            [node("Range", ["a", "b", "c"], ["r"]), node("Add", ["x", "r"])],
            dict(zip("abc", np.float32([0, 3, 1]), strict=True)),
        ),
        "filled": (
            [node("ConstantOfShape", ["n"], ["z"]), node("Add", ["x", "z"])],
            {"n": np.array([2, 3])},
        ),
        "pad": ([node("Pad", ["x", "n"], mode="reflect")], {"n": np.array([0, 1, 0, 1])}),
        "top": (
            [node("TopK", ["x", "k"], ["v", "i"]), node("Cast", ["i"], to=F32)],
            {"k": np.array([2])},
        ),
        "one_hot": (
            [node("Cast", ["x"], ["i"], to=S64), node("OneHot", ["i", "d", "v"])],
            {"d": np.int64(4), "v": np.float32([0, 1])},
        ),
        "eye": ([node("EyeLike", ["x"], ["e"]), node("Mul", ["x", "e"])], {}),
        "einsum": ([node("Einsum", ["x", "x"], equation="ij,kj->ik")], {}),
        "tan_between": (
            [node("Relu", ["x"], ["a"]), node("Tan", ["a"], ["b"]), node("Add", ["b", "x"])],
            {},
        ),
        "non_zero": ([node("NonZero", ["x"], ["i"]), node("Cast", ["i"], to=F32)], {}),
        "gather": (
            [node("Gather", ["table", "i"], ["g"]), node("Add", ["x", "g"])],
            {"table": random([5, 3]), "i": np.array([4, 0])},
        ),
        "where": (
            [node("Greater", ["x", "zero"], ["m"]), node("Where", ["m", "x", "zero"])],
            {"zero": np.float32(0)},
        ),
        "unique": ([node("Unique", ["x"], ["y"])], {}),
        "cumsum": ([node("CumSum", ["x", "axis"])], {"axis": np.int64(1)}),
        "random": (
            [
                node("RandomUniformLike", ["x"], ["r"], seed=1.0),
                node("Mul", ["r", "zero"], ["z"]),
                node("Add", ["x", "z"]),
            ],
            {"zero": np.float32(0)},
        ),
        "lstm": (
            [node("LSTM", ["s", "w", "r"], ["", "y"], hidden_size=3)],
            {"s": random([2, 1, 4]), "w": random([1, 12, 4], 1), "r": random([1, 12, 3], 2)},
        ),
        "layers": (
            [
                node("Unsqueeze", ["x", "one"], ["s"]),
                node("GRU", ["s", "w", "r", "b", "n", "h"], ["g", "h_n"], hidden_size=2),
                node("Squeeze", ["g", "one"], ["d"]),
                node("RNN", ["d", "u", "v"], ["", "y"], hidden_size=4, direction="reverse"),
                node("LSTM", ["d", "k", "l"], ["z"], hidden_size=1),
            ],
            {
                "one": np.array([1]),
                "w": random([1, 6, 3], 1),
                "r": random([1, 6, 2], 2),
                "b": random([1, 12], 3),
                "n": np.array([2], np.int32),
                "h": random([1, 1, 2], 4),
                "u": random([1, 4, 2], 5),
                "v": random([1, 4, 4], 6),
                "k": random([1, 4, 2], 7),
                "l": random([1, 4, 1], 8),
            },
        ),
    }
    for name, (nodes, constants) in plain.items():
        yield (
            name,
            model(
                nodes,
                inputs=_SMALL,
                constants=constants,
                outputs=["y", "rows"] if name == "loop" else ["y"],
            ),
        )
    images: dict[str, Case] = {
        "cubic": ([node("Resize", ["x", "", "s"], mode="cubic")], {"s": np.float32([1, 1, 2, 2])}),
        "linear": (
            [node("Resize", ["x", "", "", "n"], mode="linear")],
            {"n": np.array([1, 2, 8, 8])},
        ),
        "indices": (
            [
                node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2]),
                node("Cast", ["i"], ["f"], to=F32),
                node("Add", ["p", "f"]),
            ],
            {},
        ),
        "grid": ([node("GridSample", ["x", "g"])], {"g": random([1, 2, 2, 2])}),
        "depth": (
            [
                node("SpaceToDepth", ["x"], ["d"], blocksize=2),
                node("DepthToSpace", ["d"], blocksize=2),
            ],
            {},
        ),
        "lrn": ([node("LRN", ["x"], size=3)], {}),
        "slices": (
            [node("Slice", ["x", "a", "b", "c", "d"], ["s"]), node("Concat", ["s", "s"], axis=1)],
            {"a": np.array([0]), "b": np.array([4]), "c": np.array([2]), "d": np.array([2])},
        ),
        "shuffle": (
            [
                node("Reshape", ["x", "n"], ["r"]),
                node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3, 4]),
                node("Reshape", ["t", "m"]),
            ],
            {"n": np.array([1, 2, 1, 4, 4]), "m": np.array([1, 2, 4, 4])},
        ),
        "sizes": (
            [
                node("Shape", ["x"], ["n"]),
                node("Gather", ["n", "i"], ["m"]),
                node("Reshape", ["x", "m"]),
            ],
            {"i": np.array([0, 3, 1, 2])},
        ),
    }
    for name, (nodes, constants) in images.items():
        yield name, model(nodes, inputs=_IMAGE, constants=constants)
    for bits, rows in ((4, 2), (4, 5), (8, 5)):
        net = Net(Scheme("nbits", bits, 32))
        yield f"packed_{bits}_{rows}", net.model(net.linear("x", 40, 6), (rows, 40))
    yield "indices_symbolic", model(images["indices"][0], inputs={"x": ["N", 2, "H", 4]})


def _layers_in_int8() -> Iterator[tuple[str, Plan]]:
    """A layer of LSTM in both directions and one of GRU behind it, in int8, for each target."""
    nodes = [
        node(
            "LSTM", ["x", "w", "r", "b"], ["a", "", "c"], hidden_size=2, direction="bidirectional"
        ),
        node("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "n"], ["s"]),
        node("GRU", ["s", "u", "v", "", "", "h"], ["y", "z"], hidden_size=3),
    ]
    constants = {
        "w": random([2, 8, 4], 1),
        "r": random([2, 8, 2], 2),
        "b": random([2, 16], 3),
        "n": np.array([0, 0, -1]),
        "u": random([1, 9, 4], 4),
        "v": random([1, 9, 3], 5),
        "h": random([1, 2, 3], 6),
    }
    proto = model(nodes, inputs={"x": [3, 2, 4]}, constants=constants, outputs=["y", "z", "c"])
    for target in TARGETS:
        name = f"layers_in_int8.{target}"
        yield name, fqfuse.compile(proto, target=target, approximate=["int8-recurrence"])


def _kinds(plan: Plan) -> set[object]:
    """What its steps are made of: primitives with the types that they read and write, with their
    post-ops, and with their parameters.
    """
    found: set[object] = set()
    for step in plan.steps:
        types = (
            *(plan.type(value).dtype for _, value in step.args),
            *(plan.type(value).dtype for value in step.outputs if value),
        )
        parts = (
            types,
            *map(type, step.attr.post_ops),
            *step.attr.scales,
            *step.attr.zero_points,
            *(isinstance(zero.values[0], float) for zero in step.attr.zero_points.values()),
            *(role for role, _ in step.args),
            *step.params,
        )
        found |= {(plan.target, step.primitive, part) for part in parts}
    return found


def every_plan(corpus: Sequence[str] = tuple(CORPUS)) -> Iterator[tuple[str, Plan]]:
    """Names and plans; of the laws' corpus those that hold a step of a kind that none in front of
    them has.
    """
    yield "everything", full_plan()
    yield "tiny", tiny_plan()
    first, *others = TARGETS
    for name, proto in models():
        yield name, plan_from_graph(optimize(graph_from_onnx(proto)), first)
    yield from _layers_in_int8()
    # one whose steps the library takes, and one with lengths
    for seed in (4, 2):
        yield f"dynamic_layer_{seed}", fqfuse.compile(draw_dynamic(seed).model)
    seen: set[object] = set()
    for target in (first, *others):
        for name in corpus:
            plan = plan_from_graph(optimize(CORPUS[name]()), target)
            if not _kinds(plan) <= seen:
                seen |= _kinds(plan)
                yield f"{name}.{target}", plan


def save_plans(folder: Path) -> None:
    """Writes every plan into the folder."""
    for name, plan in every_plan():
        fqfuse.save_plan(plan, folder / f"{name}.onnx")
