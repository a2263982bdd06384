"""Sequences: random programs of what ONNX does with them, in branches and in loops, between tensors, give what
ONNX Runtime gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper
from support.judge import ort_session

import fqfuse
from fqfuse.errors import InvalidInput

SEEDS = range(60)
COLUMNS = 3
"""The size of the last dimension of every tensor: what is joined along the first differs in that alone."""


NOTHING = "Must have 1 or more inputs"
"""What ONNX Runtime says of joining no tensor. ONNX does not say what that gives, and of tensors whose shape is
known it is none of them here.
"""


def sequence_type(shape: list[Any] | None) -> onnx.TypeProto:
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))


@dataclass
class Program:
    """A random program, and what it is fed.

    Attributes:
        lists: names of sequences of f32 that are there.
        tensors: names of f32 tensors [rows, 3].
        places: names of s64 numbers.
    """

    rng: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    count: int = 0

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def any_of(self, names: list[str]) -> str:
        return names[int(self.rng.integers(len(names)))]

    def add(self, op: str, inputs: list[str], kind: str, **attrs: Any) -> str:
        name = self.fresh(kind)
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attrs))
        if kind in ("s", "t"):
            (self.lists if kind == "s" else self.tensors).append(name)
        return name

    # -- what a program does -----------------------------------------------------------------------

    def place(self) -> str:
        """0, -1, or what is fed, at which there may be no tensor."""
        return ("zero", "minus", "p")[int(self.rng.integers(3))]

    def insert(self) -> None:
        given = [self.any_of(self.lists), self.any_of(self.tensors)]
        if self.rng.integers(3):
            given.append(self.place())
        self.add("SequenceInsert", given, "s")

    def insert_and_erase(self) -> None:
        longer = self.add(
            "SequenceInsert", [self.any_of(self.lists), self.any_of(self.tensors), "zero"], "x"
        )
        given = [longer, self.place()] if self.rng.integers(3) else [longer]
        self.add("SequenceErase", given, "s")

    def pick(self) -> None:
        self.add("SequenceAt", [self.any_of(self.lists), self.place()], "t")

    def joined(self) -> None:
        self.add("ConcatFromSequence", [self.any_of(self.lists)], "t", axis=0)

    def length(self) -> None:
        """A tensor times the number of tensors in a sequence."""
        count = self.add("SequenceLength", [self.any_of(self.lists)], "n")
        factor = self.add("Cast", [count], "f", to=TensorProto.FLOAT)
        small = self.add("Mul", [factor, "small"], "f")
        self.add("Mul", [self.any_of(self.tensors), small], "t")

    def split(self) -> None:
        pieces = ("one", "two", "k")[int(self.rng.integers(3))]
        self.add("SplitToSequence", [self.any_of(self.tensors), pieces], "s", axis=0)

    def split_columns(self) -> None:
        pieces = self.add("SplitToSequence", [self.any_of(self.tensors), "k"], "x", axis=1)
        self.add("ConcatFromSequence", [pieces], "t", axis=1)

    def identity(self) -> None:
        self.add("Identity", [self.any_of(self.lists)], "s")

    def mapped(self) -> None:
        inner = Program(self.rng, tensors=["e", "f"], count=100 * (self.count + 1))
        inner.add("Add", ["e", "small"], "t")
        result = inner.add("Concat", [inner.tensors[-1], "f"], "t", axis=0)
        body = helper.make_graph(
            inner.nodes,
            "map",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("e", "f")],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        )
        given = [self.any_of(self.lists), self.any_of(self.tensors)]
        self.add("SequenceMap", given, "s", body=body)

    def branch(self) -> None:
        bodies = {}
        for which in ("then_branch", "else_branch"):
            inner = self.inside()
            inner.step()
            inner.identity()
            bodies[which] = helper.make_graph(
                alive(inner.nodes, {inner.lists[-1]}),
                which,
                [],
                [helper.make_value_info(inner.lists[-1], sequence_type(None))],
            )
        self.add("If", ["c"], "s", **bodies)

    def loop(self) -> None:
        inner = self.inside()
        state = inner.fresh("state")
        inner.lists = [*inner.lists, state]
        inner.nodes.append(helper.make_node("Identity", ["on"], ["on2"]))
        inner.step()
        inner.add("SequenceInsert", [state, inner.any_of(inner.tensors)], "s")
        body = helper.make_graph(
            alive(inner.nodes, {"on2", inner.lists[-1]}),
            "trips",
            [
                helper.make_tensor_value_info("trip", TensorProto.INT64, []),
                helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                helper.make_value_info(state, sequence_type(None)),
            ],
            [
                helper.make_tensor_value_info("on2", TensorProto.BOOL, []),
                helper.make_value_info(inner.lists[-1], sequence_type(None)),
            ],
        )
        self.add("Loop", ["k", "", self.any_of(self.lists)], "s", body=body)

    def inside(self) -> Program:
        return Program(
            self.rng, lists=[*self.lists], tensors=[*self.tensors], count=100 * (self.count + 1)
        )

    def step(self) -> None:
        kinds = (
            self.insert,
            self.insert_and_erase,
            self.pick,
            self.joined,
            self.length,
            self.split,
            self.split_columns,
        )
        kinds[int(self.rng.integers(len(kinds)))]()

    def any_step(self) -> None:
        kinds = (self.step, self.step, self.mapped, self.branch, self.loop, self.identity)
        kinds[int(self.rng.integers(len(kinds)))]()


def alive(nodes: list[NodeProto], results: set[str]) -> list[NodeProto]:
    """The nodes that results depend on: what nobody reads need not fail as ONNX Runtime does."""
    kept, wanted = [], set(results)
    for made in reversed(nodes):
        if wanted.isdisjoint(made.output):
            continue
        kept.append(made)
        wanted.update(made.input)
        for attribute in made.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                wanted.update(name for inner in attribute.g.node for name in inner.input)
    return kept[::-1]


def drawn(seed: int) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A model, and what it is fed in three runs."""
    rng = np.random.default_rng(seed)
    program = Program(rng, lists=["s"], tensors=["x"])
    begun = int(
        rng.integers(3)
    )  # a sequence that is empty, or one of the tensor that is fed, once or twice
    for _ in range(int(rng.integers(2, 6))):
        program.any_step()
    program.joined()
    first = {
        0: [helper.make_node("SequenceEmpty", [], ["s"])],
        1: [
            helper.make_node("SequenceEmpty", [], ["none"]),
            helper.make_node("SequenceInsert", ["none", "x"], ["s"]),
        ],
        2: [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])],
    }[begun]
    rows: Any = ([None, COLUMNS], ["rows", COLUMNS], [2, COLUMNS])[int(rng.integers(3))]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, rows),
        helper.make_tensor_value_info("p", TensorProto.INT64, []),
        helper.make_tensor_value_info("k", TensorProto.INT64, []),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    constants = {
        "zero": np.int64(0),
        "minus": np.int64(-1),
        "one": np.int64(1),
        "two": np.int64(2),
        "small": np.float32(0.25),
    }
    results = list(dict.fromkeys(program.tensors[1:][-3:]))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph(
        alive([*first, *program.nodes], set(results)),
        "program",
        inputs,
        outputs,
        [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model, [dict(_feeds(rng, rows)) for _ in range(3)]


def _feeds(rng: np.random.Generator, rows: Any) -> Iterator[tuple[str, Any]]:
    count = 2 if rows[0] == 2 else int(rng.integers(1, 6))
    yield "x", rng.standard_normal((count, COLUMNS)).astype(np.float32)
    yield "p", np.asarray(rng.integers(-6, 5))
    yield "k", np.asarray(rng.integers(1, 4))
    yield "c", np.asarray(bool(rng.integers(2)))


def with_names_of_the_import(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """The model with names in its bodies that the import likes for what leaves a part."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    bodies = [inner for node in model.graph.node for inner in bodies_of(node)]
    made = {name for body in bodies for node in body.node for name in node.output}
    held = {name for node in model.graph.node for name in node.output}
    liked = [
        f"{name}.{part}" for name in sorted(held) for part in ("inside", "condition", "inside.1")
    ]
    new = dict(zip(sorted(made), rng.permutation(liked).tolist(), strict=False))

    def rename(body: onnx.GraphProto) -> None:
        for value in body.output:
            value.name = new.get(value.name, value.name)
        for node in body.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
            for inner in bodies_of(node):
                rename(inner)

    for body in bodies:
        rename(body)
    return model


def bodies_of(node: NodeProto) -> list[onnx.GraphProto]:
    return [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_give_what_onnx_runtime_gives(seed: int) -> None:
    model, runs = drawn(seed)
    if seed % 2:
        model = with_names_of_the_import(model, np.random.default_rng(seed))
    judge = ort_session(model, optimized=True)
    sessions = [fqfuse.InferenceSession(model, backend) for backend in ("numpy", "onednn")]
    for feeds in runs:
        try:
            wanted = judge.run(None, feeds)
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's own; sizes that do not fit, an index
            if NOTHING in str(error):
                continue
            for session in sessions:
                with pytest.raises(InvalidInput):
                    session.run(None, feeds)
            continue
        for session in sessions:
            for mine, theirs in zip(session.run(None, feeds), wanted, strict=True):
                np.testing.assert_array_equal(mine, theirs, strict=True)
