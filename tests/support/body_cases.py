"""Models with a quantized body in an If, a Loop or a Scan, and the same models unrolled.

Scales are powers of two, codes small, and inputs multiples of a quantum, so that f32 is exact: every
order of the operations gives the same bits, and ties are the same ties.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper
from support.onnx_cases import model, node, tensor

F32, S64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WIDTH = 4
LAYERS = (
    "matmul",
    "matmul",
    "per channel",
    "fake",
    "captured",
    "turn",
    "nested",
    "relu",
    "convolution",
)
PLACES = ("inside", "outside", "decoded outside")
Body = list[NodeProto]


def info(name: str, kind: int = F32, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_tensor_type_proto(kind, shape))


@dataclass
class Writer:
    """Writes the layers of a body.

    Attributes:
        layers: kinds of layers, in order.
        place: where constants and what decodes them lie.
        seed: of the weights.
        inside: initializers of the body.
        outside: constants of the model.
        around: nodes of the model.
    """

    layers: Sequence[str]
    place: str
    seed: int
    inside: dict[str, Any] = field(default_factory=dict)
    outside: dict[str, Any] = field(default_factory=dict)
    around: Body = field(default_factory=list)

    def trip(self, state: str, mark: str) -> tuple[Body, str]:
        """One trip over a state [N, WIDTH]; what it calls its values begins with a mark."""
        nodes: Body = []
        for number, kind in enumerate(self.layers):
            made = f"{mark}{number}"
            state = {
                "matmul": self._matmul,
                "per channel": self._matmul,
                "fake": self._fake,
                "captured": self._captured,
                "turn": self._turn,
                "nested": self._nested,
                "relu": self._relu,
                "convolution": self._convolution,
            }[kind](nodes, state, made, number)
        return nodes, self._quantized(nodes, state, f"{mark}end")

    def _constant(self, name: str, value: Any, *, inside: bool | None = None) -> str:
        within = self.place == "inside" if inside is None else inside
        (self.inside if within else self.outside)[name] = value
        return name

    def _number(self, name: str, value: Any) -> str:
        return self._constant(name, value)

    def _quantized(self, nodes: Body, value: str, made: str, scale: float = 2**-4) -> str:
        step, zero = self._number("step4", np.float32(scale)), self._number("middle", np.uint8(128))
        nodes.append(node("QuantizeLinear", [value, step, zero], [f"{made}.q"]))
        nodes.append(node("DequantizeLinear", [f"{made}.q", step, zero], [f"{made}.dq"]))
        return f"{made}.dq"

    def _weights(
        self, nodes: Body, number: int, made: str, shape: Sequence[int], axis: int | None
    ) -> str:
        random = np.random.default_rng(self.seed + number)
        codes = random.integers(-9, 10, shape).astype(np.int8)
        scales: Any = np.float32(2**-3)
        told = {}
        if axis is not None:
            scales = (2.0 ** random.integers(-5, -2, shape[axis])).astype(np.float32)
            told = {"axis": axis}
        w, s = self._constant(f"w{number}", codes), self._constant(f"s{number}", scales)
        z = self._constant(f"z{number}", np.zeros_like(scales, np.int8))
        if self.place == "decoded outside":
            name = f"{w}.dq"
            if name not in {made for other in self.around for made in other.output}:
                self.around.append(node("DequantizeLinear", [w, s, z], [name], **told))
            return name
        nodes.append(node("DequantizeLinear", [w, s, z], [f"{made}.w"], **told))
        return f"{made}.w"

    def _matmul(self, nodes: Body, value: str, made: str, number: int) -> str:
        axis = 1 if self.layers[number] == "per channel" else None
        source = self._quantized(nodes, value, made)
        weights = self._weights(nodes, number, made, (WIDTH, WIDTH), axis)
        nodes.append(node("MatMul", [source, weights], [f"{made}.mm"]))
        random = np.random.default_rng(self.seed + 100 + number)
        bias = self._constant(
            f"b{number}", (random.integers(-32, 33, WIDTH) / 8).astype(np.float32)
        )
        nodes.append(node("Add", [f"{made}.mm", bias], [made]))
        return made

    def _convolution(self, nodes: Body, value: str, made: str, number: int) -> str:
        source = self._quantized(nodes, value, made)
        shape, back = (
            self._number("image", np.array([-1, 1, 2, 2])),
            self._number("rows", np.array([-1, WIDTH])),
        )
        weights = self._weights(nodes, number, made, (1, 1, 3, 3), None)
        nodes.append(node("Reshape", [source, shape], [f"{made}.im"]))
        nodes.append(node("Conv", [f"{made}.im", weights], [f"{made}.cv"], pads=[1, 1, 1, 1]))
        nodes.append(node("Reshape", [f"{made}.cv", back], [made]))
        return made

    def _fake(self, nodes: Body, value: str, made: str, number: int) -> str:  # noqa: ARG002
        low, high = self._number("low", np.float32(-8)), self._number("high", np.float32(7.9375))
        fake = node(
            "FakeQuantize",
            [value, low, high, low, high],
            [made],
            domain="org.openvinotoolkit",
            levels=256,
        )
        nodes.append(fake)
        return made

    def _captured(self, nodes: Body, value: str, made: str, number: int) -> str:  # noqa: ARG002
        nodes.append(node("Add", [value, "around"], [f"{made}.a"]))
        return self._quantized(nodes, f"{made}.a", made)

    def _turn(self, nodes: Body, value: str, made: str, number: int) -> str:  # noqa: ARG002
        nodes.append(node("Neg", [value], [made]))
        return made

    def _relu(self, nodes: Body, value: str, made: str, number: int) -> str:  # noqa: ARG002
        nodes.append(node("Relu", [value], [made]))
        return made

    def _nested(self, nodes: Body, value: str, made: str, number: int) -> str:
        """An If whose condition the state decides."""
        nodes.append(node("ReduceSum", [value], [f"{made}.sum"], keepdims=0))
        nodes.append(
            node("Less", [f"{made}.sum", self._number("none", np.float32(0))], [f"{made}.if"])
        )
        twin = Writer(
            ("matmul",),
            self.place,
            self.seed + 7 * number + 50,
            self.inside,
            self.outside,
            self.around,
        )
        twin = Renamed(twin, f"n{number}")
        then, result = twin.trip(value, f"{made}.t")
        branch = helper.make_graph(then, "then", [], [info(result, F32)])
        other = helper.make_graph(
            [node("Relu", [value], [f"{made}.e"])], "else", [], [info(f"{made}.e", F32)]
        )
        nodes.append(
            node(
                "If",
                [f"{made}.if"],
                [made],
                name=f"{made}.if",
                then_branch=branch,
                else_branch=other,
            )
        )
        return made


class Renamed(Writer):
    """A writer whose constants have names of their own."""

    def __init__(self, other: Writer, mark: str) -> None:
        super().__init__(
            other.layers, other.place, other.seed, other.inside, other.outside, other.around
        )
        self._mark = mark

    def _constant(self, name: str, value: Any, *, inside: bool | None = None) -> str:
        return super()._constant(f"{self._mark}{name}", value, inside=inside)


def looped(writer: Writer, trips: int, *, how: str, until: int = 0) -> onnx.ModelProto:
    """x [2, WIDTH] through a Loop of so many trips (`constant` or `fed`), or as many as a condition
    allows; y is what the last one leaves, `kept` what each does.
    """
    nodes, result = writer.trip("state", "t")
    condition = [node("Identity", ["going"], ["on"])]
    if how == "condition":
        writer.inside["until"] = np.int64(until)
        writer.inside["one"] = np.int64(1)
        condition = [
            node("Add", ["trip", "one"], ["next"]),
            node("Less", ["next", "until"], ["on"]),
        ]
    body = helper.make_graph(
        [*nodes, *condition, node("Identity", [result], ["row"])],
        "body",
        [info("trip", S64, []), info("going", BOOL, []), info("state", F32, None)],
        [info("on", BOOL, []), info(result, F32, None), info("row", F32, None)],
        [tensor(name, value) for name, value in writer.inside.items()],
    )
    count = "" if how == "condition" else "n"
    loop = node("Loop", [count, "always", "x"], ["y", "kept"], name="loop", body=body)
    constants = {**writer.outside, "always": np.bool_(True)}
    inputs: dict[str, Any] = {"x": [2, WIDTH], "around": [2, WIDTH]}
    types = {}
    if how == "fed":
        inputs["n"], types["n"] = [], S64
    elif how == "constant":
        constants["n"] = np.int64(trips)
    return _model([*writer.around, loop], inputs, ["y", "kept"], constants, types)


def unrolled(writer: Writer, trips: int) -> onnx.ModelProto:
    """The same without a Loop; without a trip there are no rows."""
    nodes: Body = []
    state, rows = "x", []
    for trip in range(trips):
        more, state = writer.trip(state, f"u{trip}.")
        nodes += more
        rows.append(f"row{trip}")
        nodes.append(node("Unsqueeze", [state, "first"], [rows[-1]]))
    nodes += [node("Identity", [state], ["y"]), node("Concat", rows, ["kept"], axis=0)]
    constants = {**writer.outside, **writer.inside, "first": np.array([0])}
    return _model(
        [*writer.around, *nodes],
        {"x": [2, WIDTH], "around": [2, WIDTH]},
        ["y", "kept"],
        constants,
        {},
    )


def scanned(
    writer: Writer, *, axis: int = 0, back: bool = False, out_axis: int = 0, out_back: bool = False
) -> onnx.ModelProto:
    """A Scan over x [L, 2, WIDTH] along an axis: the state and a row are added, and go through the body."""
    nodes, result = writer.trip("sum", "t")
    body = helper.make_graph(
        [node("Add", ["state", "part"], ["sum"]), *nodes, node("Identity", [result], ["row"])],
        "body",
        [info("state", F32, None), info("part", F32, None)],
        [info(result, F32, None), info("row", F32, None)],
        [tensor(name, value) for name, value in writer.inside.items()],
    )
    scan = node(
        "Scan",
        ["first", "x"],
        ["y", "kept"],
        name="scan",
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_input_directions=[int(back)],
        scan_output_axes=[out_axis],
        scan_output_directions=[int(out_back)],
    )
    shape: list[int] = [2, WIDTH]
    shape.insert(axis % 3, 3)
    inputs = {"x": shape, "around": [2, WIDTH], "first": [2, WIDTH]}
    return _model([*writer.around, scan], inputs, ["y", "kept"], writer.outside, {})


def branched(then: Writer, otherwise: Writer) -> onnx.ModelProto:
    """One body or another, as an input says."""
    graphs = []
    for mark, writer in (("t", then), ("e", Renamed(otherwise, "e."))):
        nodes, result = writer.trip("x", mark)
        constants = [tensor(name, value) for name, value in writer.inside.items()]
        graphs.append(helper.make_graph(nodes, mark, [], [info(result, F32)], constants))
    choice = node("If", ["go"], name="choice", then_branch=graphs[0], else_branch=graphs[1])
    inputs = {"x": [2, WIDTH], "around": [2, WIDTH], "go": []}
    nodes = [*then.around, *otherwise.around, choice]
    return _model(nodes, inputs, ["y"], {**then.outside, **otherwise.outside}, {"go": BOOL})


def in_each_other(levels: int) -> onnx.ModelProto:
    """An If in an If, so many: all branches of the innermost one bend x."""

    def body(left: int) -> onnx.GraphProto:
        if not left:
            nodes = [node("Tan", ["x"], ["z"])]
        else:
            inner = body(left - 1)
            branches = {"then_branch": inner, "else_branch": inner}
            nodes = [node("If", ["k"], [f"z{left}"], name=f"if{left}", **branches)]
        result = onnx.ValueInfoProto(name=nodes[0].output[0])
        return helper.make_graph(nodes, f"level{left}", [], [result])

    (outermost,) = body(levels).node
    outermost.output[0] = "y"
    return model([outermost], inputs={"x": [2], "k": []}, types={"k": BOOL})


def _model(
    nodes: Body,
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
    types: Mapping[str, int],
) -> onnx.ModelProto:
    return model(
        nodes,
        inputs=inputs,
        outputs=outputs,
        constants=constants,
        types=types,
        domains={"org.openvinotoolkit": 1},
    )


def fed(shape: Sequence[int], seed: int) -> NDArray[np.float32]:
    """Multiples of a quantum."""
    return (np.random.default_rng(seed).integers(-64, 65, shape) / 16).astype(np.float32)


def without_fakes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each FakeQuantize as ONNX Runtime knows it: the quantizer of 256 levels that it is."""
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    result.graph.initializer.extend(
        [tensor("fake.s", np.float32(2**-4)), tensor("fake.z", np.uint8(128))]
    )
    _replace(result.graph)
    del result.opset_import[1:]
    return result


def _replace(graph: onnx.GraphProto) -> None:
    nodes: Body = []
    for found in graph.node:
        for attribute in found.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _replace(attribute.g)
        if found.op_type != "FakeQuantize":
            nodes.append(found)
            continue
        source, result = found.input[0], found.output[0]
        nodes.append(node("QuantizeLinear", [source, "fake.s", "fake.z"], [f"{result}.fq"]))
        nodes.append(node("DequantizeLinear", [f"{result}.fq", "fake.s", "fake.z"], [result]))
    kept = [NodeProto.FromString(found.SerializeToString()) for found in nodes]
    del graph.node[:]
    graph.node.extend(kept)
