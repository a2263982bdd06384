"""Scan of opset 8, which runs over the sequences of a batch: as a Scan of opset 9 over the batch, in whose body
lies another one over one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper
from onnx.numpy_helper import from_array

from ..importer import Importer
from ..nodes import DEFAULT_DOMAIN, OnnxNode, free_name, normal_domain, read_node
from ..structure import captured_names, read_of_others, subgraphs

WRITTEN_IN: Final = 9
"""The opset of what is written. It says of all operators what opset 8 does, but of those that
`_of_written` knows.
"""


def unbatched(ctx: Importer, node: OnnxNode) -> None:
    """Imports a Scan of opset 8 by way of one of opset 9.

    Args:
        ctx: the import.
        node: the Scan.

    Raises:
        InvalidModel: its attributes do not fit its inputs, or an output of its body has no type.
    """
    proto = _over_batch(node, node.as_proto())
    made = read_node(proto, node.name, {**ctx.opsets, DEFAULT_DOMAIN: WRITTEN_IN})
    ctx.take(made)


@dataclass(frozen=True)
class _Names:
    """Names that nothing around or in a body has."""

    taken: set[str]

    def __call__(self, base: str) -> str:
        return free_name(base, self.taken, ".")


def _over_batch(node: OnnxNode, proto: NodeProto) -> NodeProto:
    """The Scan over the batch. Its states are rows as all else: no sequence knows of the one before."""
    attrs = {attribute.name: attribute for attribute in proto.attribute}
    given = list(proto.input[1:])
    scanned = attrs["num_scan_inputs"].i
    states = len(given) - scanned
    directions = list(attrs["directions"].ints) if "directions" in attrs else [0] * scanned
    body = GraphProto()
    body.CopyFrom(attrs["body"].g)
    if scanned < 1 or states < 0 or len(directions) != scanned:
        raise node.invalid(
            f"a Scan of {len(given)} inputs has num_scan_inputs {scanned}, and {len(directions)} directions"
        )
    if len(body.input) != len(given) or len(body.output) != len(proto.output):
        raise node.invalid(f"the body of {node.op} does not fit its inputs and outputs")
    _of_written(node, body)
    names = _Names({*_all_names(body), *proto.input, *proto.output})
    rows = [names(f"{value}.of.one") for value in given]
    lengths = [names("length")] if proto.input[0] else []
    if lengths:
        body = _cut(node, body, states, directions, rows[states:], lengths[0], names)
        constants = [from_array(np.array(0, np.int64), names("first trip"))]
        inner_inputs = [constants[0].name, *rows]
        inner_outputs = [names("trips")]
        directions = [0] * scanned
    else:
        constants, inner_inputs, inner_outputs = [], rows, []
    results = [names(f"{value.name}.of.one") for value in body.output[len(inner_outputs) :]]
    inner = helper.make_node(
        "Scan",
        inner_inputs,
        [*inner_outputs, *results],
        proto.name or "over time",
        body=body,
        num_scan_inputs=scanned,
        scan_input_directions=directions,
    )
    outer = helper.make_graph(
        [inner], "one sequence", _values([*lengths, *rows]), _values(results), constants
    )
    return helper.make_node(
        "Scan",
        [*filter(None, proto.input[:1]), *given],
        proto.output,
        proto.name,
        body=outer,
        num_scan_inputs=len(lengths) + len(rows),
    )


def _values(names: Sequence[str]) -> list[ValueInfoProto]:
    return [ValueInfoProto(name=name) for name in names]


def _cut(
    node: OnnxNode,
    body: GraphProto,
    states: int,
    directions: Sequence[int],
    sequences: Sequence[str],
    length: str,
    names: _Names,
) -> GraphProto:
    """The body for sequences that end after `length` trips: it counts them in a state of its own, keeps its
    states from then on, and makes rows of zeros, as ONNX Runtime does. Rows that go backwards begin with the
    last one of the sequence.
    """
    trip, following, goes, place = map(names, ("trip", "following", "goes", "place"))
    one, zero = names("one"), names("zero")
    constants = [from_array(np.array(k, np.int64), name) for k, name in ((1, one), (0, zero))]
    before = [
        helper.make_node("Add", [trip, one], [following]),
        helper.make_node("Less", [trip, length], [goes]),
    ]
    inputs = [ValueInfoProto(name=trip), *body.input]
    if any(directions):
        back = names("back")
        before += [
            helper.make_node("Sub", [length, following], [back]),
            helper.make_node("Where", [goes, back, zero], [place]),
        ]
    for index, (direction, sequence) in enumerate(zip(directions, sequences, strict=True)):
        if direction:
            position = 1 + states + index
            own = inputs[position].name
            inputs[position] = ValueInfoProto(name=names(f"{own}.unread"))
            before.append(helper.make_node("Gather", [sequence, place], [own]))
    after, outputs = [], [following]
    for index, value in enumerate(body.output):
        otherwise = body.input[index].name
        if index >= states:
            kind = value.type.tensor_type.elem_type
            if not kind:
                raise node.invalid(f"the output {value.name!r} of its body has no type")
            otherwise = names(f"{value.name}.none")
            nothing: Any = [b""] if kind == TensorProto.STRING else [0]
            constants.append(helper.make_tensor(otherwise, kind, [], nothing))
        outputs.append(names(f"{value.name}.kept"))
        after.append(helper.make_node("Where", [goes, value.name, otherwise], outputs[-1:]))
    nodes = [*before, *body.node, *after]
    result = helper.make_graph(
        nodes, body.name or "one trip", inputs, _values(outputs), [*body.initializer, *constants]
    )
    result.sparse_initializer.extend(body.sparse_initializer)
    return result


def _all_names(body: GraphProto) -> Iterator[str]:
    """What a body, and those in it, call their values, and read of others."""
    yield from read_of_others(body)
    yield from (value.name for value in (*body.input, *body.output, *body.initializer))
    for node in body.node:
        yield from (*node.input, *node.output, *captured_names(node))
        for inner in subgraphs(node):
            yield from _all_names(inner)


def _of_written(node: OnnxNode, body: GraphProto) -> None:
    """Brings the nodes of a body of opset 8 to the opset that is written."""
    for index, inner in enumerate(body.node):
        for deeper in subgraphs(inner):
            _of_written(node, deeper)
        if normal_domain(inner.domain):
            continue
        attrs = {attribute.name: attribute for attribute in inner.attribute}
        if inner.op_type == "Scan":
            made = _over_batch(node, inner)
            inner.CopyFrom(made)
        elif inner.op_type == "Upsample" and "scales" in attrs:
            name = f"{inner.output[0]}.scales"
            body.initializer.append(from_array(np.array(attrs["scales"].floats, np.float32), name))
            inner.input.append(name)
            _drop(inner, attrs["scales"])
        elif inner.op_type == "BatchNormalization" and "spatial" in attrs:
            if attrs["spatial"].i != 1:
                raise node.invalid(f"node {index} of its body has statistics for each element")
            _drop(inner, attrs["spatial"])


def _drop(node: NodeProto, attribute: AttributeProto) -> None:
    node.attribute.remove(attribute)
