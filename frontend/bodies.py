"""The bodies of If, Loop and Scan as models of their own, each of which is compiled into a plan.

The inputs of such a model are the body's own, then what the node's bodies read of the graph around
them and is no constant, in one order for all of them; constants come along as initializers. The
types of the body's own inputs hold in every trip: what a loop hands on may have another size each
time, so that its type says what all trips agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ..ir.element_types import ELEMENT_TYPES
from ..ir.graph import Graph
from ..ir.lifting import Lifted
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.spec import Array
from ..ir.types import Dim, DType, Shape, TensorType
from ..plan.foreign import INPUTS_KEY, OPSETS_KEY, declared
from .nodes import DEFAULT_DOMAIN, OnnxNode, normal_domain
from .source import Source
from .structure import captured_names, initializer_names, read_of_others, subgraphs

BODIES: Final[Mapping[str, tuple[str, ...]]] = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body",),
}
"""Operator -> its bodies, in the order of the plan."""

CARRIED_KEY: Final = "fqfuse.carried"
"""Metadata of a NodeProto whose bodies can be compiled: how many values it hands on, and how many it
scans.
"""

_OF_CONSTANTS: Final = frozenset(
    {"DequantizeLinear", "FakeQuantize", "Identity", "Quant", "QuantizeLinear", "Transpose"}
)
"""What a quantizer writes behind constant weights."""

_MOST_BEHIND: Final = 8  # of those, one behind the other

Known = Mapping[str, tuple[TensorType, Array | None]]
"""Name, as the bodies have it -> the type of the value, and its data where it is constant."""

ImportBody = Callable[[Source], Graph]

LARGE: Final = 1 << 10
"""Bytes from which on a constant goes beside the model of a body, and is not copied into it."""


def has_bodies(node: OnnxNode | NodeProto) -> bool:
    """True of If, Loop and Scan."""
    op = node.op if isinstance(node, OnnxNode) else node.op_type
    return op in BODIES and normal_domain(node.domain) == DEFAULT_DOMAIN


# -- weights -------------------------------------------------------------------------------------------


def with_weights_inside(graph: GraphProto, constants: GraphProto) -> GraphProto:
    """The graph with what bodies read of quantized constants decoded inside them: behind a border
    between two plans a product would read f32.

    Args:
        graph: stays as it is.
        constants: has its initializers.
    """
    if not any(map(has_bodies, graph.node)):
        return graph
    known = set(initializer_names(constants)) - {value.name for value in graph.input}
    makers = {name: node for node in graph.node for name in node.output if name}
    known |= {name for name, node in makers.items() if node.op_type == "Constant"}
    wanted = {
        index: found
        for index, node in enumerate(graph.node)
        if has_bodies(node) and (found := _decoding(captured_names(node), makers, known))
    }
    if not wanted:
        return graph
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    for index in wanted:
        for body in subgraphs(nodes[index]):
            _prepend(body, _decoding(read_of_others(body), makers, known, own_names(body)))
    return GraphProto(
        name=graph.name,
        input=graph.input,
        output=graph.output,
        value_info=graph.value_info,
        node=_still_read(
            nodes, graph, {id_ for found in wanted.values() for id_ in map(_key, found)}
        ),
    )


def _decoding(
    names: Sequence[str],
    makers: Mapping[str, NodeProto],
    known: AbstractSet[str],
    hidden: AbstractSet[str] = frozenset(),
) -> list[NodeProto]:
    """The nodes that make some values of constants alone, in order; none for other values, and none that
    reads one of the ``hidden`` names: where it goes, they mean something else.
    """
    found: dict[str, NodeProto] = {}

    def visit(name: str, depth: int) -> bool:
        node = makers.get(name)
        if name in hidden:
            return False
        if name in known or not name:
            return True
        if node is None or node.op_type not in _OF_CONSTANTS or depth >= _MOST_BEHIND:
            return False
        if not all(visit(source, depth + 1) for source in node.input):
            return False
        found.setdefault(_key(node), node)
        return True

    for name in names:
        before = dict(found)
        if not visit(name, 0):
            found = before
    return list(found.values())


def own_names(body: GraphProto) -> set[str]:
    """The names that a body gives values itself, whatever they are around it."""
    own = {value.name for value in body.input} | set(initializer_names(body))
    return own | {name for node in body.node for name in node.output}


def _key(node: NodeProto) -> str:
    return next(filter(None, node.output), "")


def _prepend(body: GraphProto, nodes: Sequence[NodeProto]) -> None:
    kept = [*nodes, *body.node]
    copied = [NodeProto.FromString(node.SerializeToString()) for node in kept]
    del body.node[:]
    body.node.extend(copied)


def _still_read(
    nodes: Sequence[NodeProto], graph: GraphProto, moved: AbstractSet[str]
) -> Iterator[NodeProto]:
    """The nodes without those that were moved and that nobody reads any more."""
    left, gone = list(nodes), True
    while gone:
        read = {value.name for value in graph.output}
        read.update(name for node in left for name in (*node.input, *captured_names(node)))
        kept = [node for node in left if _key(node) not in moved or set(node.output) & read]
        left, gone = kept, len(kept) < len(left)
    yield from left


# -- models --------------------------------------------------------------------------------------------


def models_of(proto: NodeProto, known: Known, opsets: Mapping[str, int], name: str) -> list[Source]:
    """The bodies of a node as models, in the order of `BODIES`; they share large constants.

    Args:
        proto: the node; the inputs of its bodies have types.
        known: what its bodies read of the graph around them.
        opsets: domain -> version.
        name: of the node.
    """
    captured = captured_names(proto)
    fed = [value for value in captured if known[value][1] is None]
    graphs = {attribute.name: attribute.g for attribute in proto.attribute}
    found = []
    for which in BODIES[proto.op_type]:
        graph, lifted = _alone(graphs[which], f"{name}.{which}", known, fed)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid(*entry) for entry in opsets.items()],
            ir_version=10,
        )
        found.append(Source(model, None, graph.name, lifted))
    return found


def _alone(
    body: GraphProto, name: str, known: Known, fed: Sequence[str]
) -> tuple[GraphProto, Lifted]:
    """A body as the graph of a model, without the data of large constants, and that."""
    read = set(read_of_others(body))
    taken = own_names(body) | read
    result = GraphProto(
        name=name,
        node=body.node,
        input=body.input,
        initializer=body.initializer,
        sparse_initializer=body.sparse_initializer,
        value_info=body.value_info,
    )
    for value in fed:
        own = value
        while own not in read and own in taken:  # another body reads it
            own += ".unread"
        result.input.append(declared(own, known[value][0]))
        taken.add(own)
    lifted: Lifted = {}
    for value in sorted(read):
        type_, data = known[value]
        if data is None:
            continue
        if data.nbytes < LARGE or type_.dtype.is_carried or type_.dtype is DType.STRING:
            result.initializer.append(_tensor(value, type_.dtype, data))
            continue
        lifted[len(result.initializer)] = _little(data).reshape(-1).view(np.uint8)
        kind = ELEMENT_TYPES[type_.dtype]
        result.initializer.append(
            TensorProto(name=value, data_type=kind, dims=data.shape, raw_data=b"")
        )
    seen: set[str] = set()
    for position, output in enumerate(body.output):
        if output.name in seen:  # a graph returns a value once
            copied = f"{output.name}.again{position}"
            result.node.append(NodeProto(op_type="Identity", input=[output.name], output=[copied]))
            result.output.append(ValueInfoProto(name=copied))
        else:
            result.output.append(output)
        seen.add(output.name)
    return result, lifted


def _tensor(name: str, dtype: DType, data: Array) -> TensorProto:
    kind, held = ELEMENT_TYPES[dtype], np.ascontiguousarray(data)
    if not dtype.is_carried and dtype is not DType.STRING:
        raw = _little(data).tobytes()
        return TensorProto(name=name, data_type=kind, dims=data.shape, raw_data=raw)
    if dtype.is_carried:  # `make_tensor` makes the largest number of an infinity in 8 bits
        return numpy_helper.from_array(held.astype(helper.tensor_dtype_to_np_dtype(kind)), name)
    return helper.make_tensor(name, kind, data.shape, held.reshape(-1).tolist())


def _little(data: Array) -> Array:
    """The data as raw_data has it: contiguous, the lowest byte in front."""
    return np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<"), copy=False)


# -- types ---------------------------------------------------------------------------------------------


def settle(
    node: OnnxNode, proto: NodeProto, known: Known, opsets: Mapping[str, int], run: ImportBody
) -> list[TensorType]:
    """Gives the inputs of a node's bodies the types that hold in every trip, and says in the node's
    metadata that its bodies can be compiled.

    Args:
        node: the node.
        proto: the same, self-contained; it is changed.
        known: what the node and its bodies read, by the names that they have there.
        opsets: domain -> version.
        run: imports the model of a body.

    Returns:
        The types of its outputs.

    Raises:
        FqfuseError: a body cannot be imported, or does not fit the node.
    """
    inner = _Types(node, proto, known, opsets, run)
    carried, types = {"If": inner.of_if, "Loop": inner.of_loop, "Scan": inner.of_scan}[node.op]()
    proto.metadata_props.add(key=CARRIED_KEY, value="{} {}".format(*carried))
    seen = {dim for type_, _ in known.values() for dim in type_.shape or () if isinstance(dim, str)}
    return [_told_outside(type_, seen) for type_ in types[: len(node.outputs)]]


class _Types:
    """What flows in and out of the bodies of one node."""

    def __init__(
        self,
        node: OnnxNode,
        proto: NodeProto,
        known: Known,
        opsets: Mapping[str, int],
        run: ImportBody,
    ) -> None:
        self._node, self._proto, self._known = node, proto, known
        self._opsets, self._run = opsets, run
        graphs = {attribute.name: attribute.g for attribute in proto.attribute}
        if not set(BODIES[node.op]) <= graphs.keys():
            raise node.invalid(f"{node.op} lacks a body")
        self._bodies = [graphs[which] for which in BODIES[node.op]]

    def of_if(self) -> tuple[tuple[int, int], list[TensorType]]:
        then, otherwise = self._results(())
        return (0, 0), [self._joined(*pair) for pair in self._pairs(then, otherwise)]

    def of_loop(self) -> tuple[tuple[int, int], list[TensorType]]:
        initial = [self._input(name) for name in self._node.inputs[2:]]
        states, found = self._stable(self._counters(), initial, [], behind=1)
        if found[0].dtype is not DType.BOOL:
            raise self._node.invalid(
                "the condition that the body of a Loop returns is no truth value"
            )
        rows = [_stacked(dims.UNKNOWN, row) for row in found[1 + len(states) :]]
        return (len(states), 0), [*states, *rows]

    def _counters(self) -> list[TensorType]:
        """Of the number of the trip, and the condition."""
        return [
            TensorType(dtype, (1,) if _rank(value) == 1 else ())
            for dtype, value in zip((DType.S64, DType.BOOL), self._bodies[0].input, strict=False)
        ]

    def of_scan(self) -> tuple[tuple[int, int], list[TensorType]]:
        scanned = int(self._node.attr("num_scan_inputs", 0))
        split = len(self._node.inputs) - scanned
        if scanned < 1 or split < 0:
            raise self._node.invalid(f"a Scan cannot run over {scanned} inputs")
        initial = [self._input(name) for name in self._node.inputs[:split]]
        sources = [self._input(name) for name in self._node.inputs[split:]]
        if any(source.shape == () for source in sources):
            raise self._node.invalid("a Scan runs over the rows of a tensor, and a number has none")
        rows = [TensorType(s.dtype, None if s.shape is None else s.shape[1:]) for s in sources]
        states, found = self._stable([], initial, rows, behind=0)
        counts: list[Dim] = [source.shape[0] for source in sources if source.shape]
        count = next(
            (dim for dim in counts if isinstance(dim, int)), next(iter(counts), dims.UNKNOWN)
        )
        stacked = [_stacked(count, row) for row in found[len(states) :]]
        return (len(states), scanned), [*states, *stacked]

    def _input(self, name: str) -> TensorType:
        if not name:
            raise self._node.invalid(f"{self._node.op} lacks an input that its body reads")
        return self._known[name][0].with_quant(None)

    def _stable(
        self,
        front: Sequence[TensorType],
        initial: Sequence[TensorType],
        rows: Sequence[TensorType],
        *,
        behind: int,
    ) -> tuple[list[TensorType], list[TensorType]]:
        """The types of the states that each trip keeps, and what the body returns for them; `behind`:
        how many of its outputs stand in front of the states.

        Each time that a trip changes a size, the size is open from then on, so that this ends; the
        third time all sizes are.
        """
        states = list(initial)
        for attempt in range(4):
            (found,) = self._results((*front, *states, *rows))
            if len(found) < behind + len(states):
                raise self._node.invalid(
                    f"the body of {self._node.op} returns {len(found)} values, and is given {len(states)} to hand on"
                )
            handed = found[behind : behind + len(states)]
            joined = [self._joined(*pair) for pair in self._pairs(states, handed)]
            if joined == states:
                return states, found
            states = (
                joined
                if attempt < 1
                else [_open(*pair) for pair in zip(states, joined, strict=True)]
            )
            if attempt == 2:  # a rank that changes for ever
                states = [TensorType(state.dtype, None) for state in states]
        raise self._node.invalid(f"the types of what {self._node.op} hands on cannot be told")

    def _results(self, types: Sequence[TensorType]) -> list[list[TensorType]]:
        """The types of what the bodies return, given those of their own inputs."""
        for body in self._bodies:
            if len(body.input) != len(types):
                raise self._node.invalid(
                    f"a body of {self._node.op} has {len(body.input)} inputs, and is given {len(types)}"
                )
            for own, type_ in zip(body.input, types, strict=True):
                told = own.type.tensor_type.elem_type
                if own.type.WhichOneof("value") not in (None, "tensor_type") or told not in (
                    0,
                    ELEMENT_TYPES[type_.dtype],
                ):
                    raise self._node.invalid(
                        f"the input {own.name!r} of its body is of another type than what it is given, {type_}"
                    )
                own.CopyFrom(declared(own.name, type_))
        models = models_of(self._proto, self._known, self._opsets, self._node.name)
        graphs = map(self._run, models)
        return [[graph.type(value).with_quant(None) for value in graph.outputs] for graph in graphs]

    def _pairs(
        self, one: Sequence[TensorType], other: Sequence[TensorType]
    ) -> Iterator[tuple[TensorType, TensorType]]:
        if len(one) != len(other):
            raise self._node.invalid(
                f"the branches of {self._node.op} return {len(one)} and {len(other)} values"
            )
        yield from zip(one, other, strict=True)

    def _joined(self, one: TensorType, other: TensorType) -> TensorType:
        """What both types have in common."""
        if one.dtype is not other.dtype:
            raise self._node.invalid(f"a value of {self._node.op} is once {one} and once {other}")
        if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
            return TensorType(one.dtype, None)
        shape = tuple(
            a if dims.same(a, b) else dims.UNKNOWN
            for a, b in zip(one.shape, other.shape, strict=True)
        )
        return TensorType(one.dtype, shape)


def _rank(value: ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)


def _open(before: TensorType, joined: TensorType) -> TensorType:
    """A type that has changed again, with all sizes open."""
    if before == joined or joined.shape is None:
        return joined
    return TensorType(joined.dtype, (dims.UNKNOWN,) * len(joined.shape))


def _stacked(count: Dim, row: TensorType) -> TensorType:
    return TensorType(row.dtype, None if row.shape is None else (count, *row.shape))


def _told_outside(type_: TensorType, seen: AbstractSet[str]) -> TensorType:
    """The type with the sizes that the graph around the node knows, too."""
    if type_.shape is None:
        return type_
    shape: Shape = tuple(dim if _is_known(dim, seen) else dims.UNKNOWN for dim in type_.shape)
    return TensorType(type_.dtype, shape)


def _is_known(dim: Dim, seen: AbstractSet[str]) -> bool:
    if isinstance(dim, int) or dim in seen:
        return True
    try:
        dims.evaluate(dim, dict.fromkeys(seen, 1))
    except (KeyError, ZeroDivisionError):
        return False
    return True


# -- of a graph ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BodyModels:
    """The bodies of a node.

    Attributes:
        models: the bodies, in the order of `BODIES`.
        inputs: how many inputs the node has in the graph.
        own: how many of them are the node's own, in front.
        fed: which of the inputs that it has in the graph all bodies are fed behind their own.
        states: how many values each trip takes from the one before.
        scanned: of how many values each trip takes a row.
    """

    models: tuple[Source, ...]
    inputs: int
    own: int
    fed: tuple[int, ...]
    states: int
    scanned: int

    @property
    def inside(self) -> frozenset[int]:
        """Which of the inputs in the graph are constants that the bodies hold themselves."""
        return frozenset(range(self.own, self.inputs)) - {*self.fed}


def bodies_of(graph: Graph, node: Node) -> BodyModels | None:
    """The bodies of a node of an imported graph; None where it has none that can be compiled."""
    if node.op != "Onnx":
        return None
    proto = NodeProto.FromString(node.attr("proto", bytes))
    notes = {entry.key: entry.value for entry in proto.metadata_props}
    if not has_bodies(proto) or CARRIED_KEY not in notes:
        return None
    reads = notes[INPUTS_KEY].split("\n")
    places = {name: place for place, name in reversed([*enumerate(reads)])}
    captured = {name: places[name] for name in captured_names(proto)}
    known = {
        name: (graph.type(node.inputs[place]), graph.constant(node.inputs[place]))
        for name, place in captured.items()
    }
    rows = (line.rpartition(" ") for line in notes[OPSETS_KEY].splitlines())
    opsets = {domain: int(version) for domain, _, version in rows}
    fed = tuple(place for name, place in captured.items() if known[name][1] is None)
    models = tuple(models_of(proto, known, opsets, node.name))
    states, scanned = map(int, notes[CARRIED_KEY].split())
    own = len(proto.input)
    return BodyModels(models, len(node.inputs), own, fed, states, scanned)
