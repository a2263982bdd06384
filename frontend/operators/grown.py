"""Sequences that a Loop begins empty and appends one tensor to in each trip, as scripted PyTorch writes
a list: rows that the Loop stacks; and those of which bodies read places: rows of a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from ...ir.ops import dims
from ...ir.types import TensorType
from ..held import Packed, Rows, Tensors
from ..importer import Importer
from ..nodes import OnnxNode
from ..structure import captured_names, subgraphs
from .derived import Derived
from .foreign import types_of_loop

_COUNTERS: Final = 2  # inputs of a Loop in front of its states


def with_rows(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """A Loop without the sequences that it grows, where their tensors are all of one shape: it has rows in their
    place. Any other node, and a Loop that does something else with a sequence, as it is.
    """
    body = node.attr("body") if node.op == "Loop" and not node.domain else None
    states = node.inputs[_COUNTERS:]
    places = [place for place, name in enumerate(states) if name in ctx.sequences]
    held = [ctx.sequences[states[place]] for place in places]
    begun = all(isinstance(each, Tensors) and not each.tensors for each in held)
    if not places or not isinstance(body, GraphProto) or not begun:
        return node
    inserts = {place: found for place in places if (found := _insert(body, place)) is not None}
    if len(inserts) < len(places) or len(body.input) != _COUNTERS + len(states):
        return node
    rows = len(body.output) - 1 - len(states)
    outputs = [*node.outputs, *[""] * (len(states) + rows - len(node.outputs))]
    kept = [name for place, name in enumerate(outputs) if place not in inserts]
    stacked = {place: ctx.fresh(f"{node.name}.rows{place}") for place in places}
    front = node.inputs[:_COUNTERS]
    left = [name for place, name in enumerate(states) if place not in inserts]
    changed = node.rewritten(
        inputs=(*front, *left), outputs=(*kept, *stacked.values()), body=_without(body, inserts)
    )
    changed = replace(changed, proto=changed.as_proto())
    types = types_of_loop(ctx, changed)[-len(places) :]
    if len(types) < len(places) or not all(
        _alike(ctx, type_, outputs[place]) for place, type_ in zip(places, types, strict=True)
    ):
        return node
    for place, value in stacked.items():
        if outputs[place]:
            ctx.sequences[outputs[place]] = Rows(value)
    return changed


def _alike(ctx: Importer, rows: TensorType, name: str) -> bool:
    """Whether the rows that a Loop stacks are of one shape in all trips: by their type, or because a reader joins
    the sequence, which it cannot do otherwise.

    Args:
        ctx: the import.
        rows: their type.
        name: the sequence.
    """
    if rows.shape is None:
        return False
    row = rows.shape[1:]
    free = {axis for axis, dim in enumerate(row) if dim == dims.UNKNOWN}
    for _, proto in ctx.readers(name) if name and free else ():
        if proto.op_type != "ConcatFromSequence" or proto.domain:
            continue
        told = {attribute.name: attribute.i for attribute in proto.attribute}
        free &= set() if told.get("new_axis", 0) else {told.get("axis", 0) % max(len(row), 1)}
    return not free


def with_places(ctx: Importer, node: OnnxNode) -> OnnxNode:
    """An If, Loop or Scan whose bodies read rows in the place of tensors of a sequence that is not theirs,
    where these are all of one shape. Any other node, and what is done otherwise with a sequence, as it is.
    """
    bodies = {name: body for name, body in node.attrs.items() if isinstance(body, GraphProto)}
    rows: dict[str, str] = {}
    for name in captured_names(node.proto) if bodies else ():
        held = ctx.sequences.get(name)
        if held is None or isinstance(held, Packed):
            continue
        tensors = held.tensors if isinstance(held, Tensors) else (held.value,)
        shapes = [ctx.type(value).shape for value in tensors]
        alike = bool(shapes) and all(dims.same_shape(shapes[0], shape) for shape in shapes)
        if not alike or not all(_reads_places(body, name) for body in bodies.values()):
            continue
        rows[name] = held.value if isinstance(held, Rows) else Derived(ctx, node).stacked(tensors)
    if not rows:
        return node
    copies = {
        name: GraphProto.FromString(body.SerializeToString()) for name, body in bodies.items()
    }
    for body in copies.values():
        _gather(ctx, body, rows)
    changed = node.rewritten(**copies)
    return replace(changed, proto=changed.as_proto())


def _reads_places(body: GraphProto, name: str) -> bool:
    """Whether a body, and those in it, read nothing of a sequence but its tensors, and call nothing else so."""
    own = [*(value.name for value in (*body.input, *body.output))]
    own += [made for node in body.node for made in node.output]
    return name not in own and all(
        name not in node.input[int(node.op_type == "SequenceAt" and not node.domain) :]
        and all(_reads_places(inner, name) for inner in subgraphs(node))
        for node in body.node
    )


def _gather(ctx: Importer, body: GraphProto, rows: Mapping[str, str]) -> None:
    nodes = []
    for node in body.node:
        if node.op_type == "SequenceAt" and not node.domain and node.input[0] in rows:
            # a place may be a list of one
            place = ctx.fresh(f"{node.output[0]}.place")
            nodes.append(NodeProto(op_type="Squeeze", input=[node.input[1]], output=[place]))
            node.op_type = "Gather"
            node.input[:] = [rows[node.input[0]], place]
            node.attribute.append(helper.make_attribute("axis", 0))
        for inner in subgraphs(node):
            _gather(ctx, inner, rows)
        nodes.append(NodeProto.FromString(node.SerializeToString()))
    del body.node[:]
    body.node.extend(nodes)


def _insert(body: GraphProto, place: int) -> NodeProto | None:
    """The node that appends to a state, where nothing else is done with it."""
    if len(body.input) <= _COUNTERS + place or len(body.output) <= 1 + place:
        return None
    state, handed = body.input[_COUNTERS + place].name, body.output[1 + place].name
    made = [node for node in body.node if handed in node.output]
    read = [name for node in body.node for name in (*node.input, *captured_names(node))]
    alone = read.count(state) == 1 and handed not in read
    returned = [value.name for value in body.output]
    if len(made) != 1 or not alone or returned.count(handed) != 1 or state in returned:
        return None
    (insert,) = made
    is_append = insert.op_type == "SequenceInsert" and not insert.domain
    at_end = len(insert.input) == 2 or (len(insert.input) == 3 and not insert.input[2])
    return insert if is_append and at_end and insert.input[0] == state else None


def _without(body: GraphProto, inserts: dict[int, NodeProto]) -> GraphProto:
    """The body with what was appended as rows, behind those that it has."""
    gone = [insert.output[0] for insert in inserts.values()]
    nodes = [node for node in body.node if not set(node.output) & set(gone)]
    inputs = [value for place, value in enumerate(body.input) if place - _COUNTERS not in inserts]
    outputs = [value for place, value in enumerate(body.output) if place - 1 not in inserts]
    result = GraphProto(
        name=body.name,
        input=inputs,
        output=outputs,
        initializer=body.initializer,
        sparse_initializer=body.sparse_initializer,
        node=nodes,
    )
    result.value_info.extend(value for value in body.value_info if value.name not in gone)
    for insert in inserts.values():
        (appended,) = insert.output
        result.node.append(
            NodeProto(op_type="Identity", input=[insert.input[1]], output=[appended])
        )
        result.output.append(ValueInfoProto(name=appended))
    return result
