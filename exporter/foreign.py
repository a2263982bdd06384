"""Operators that no row of the op table describes, as they were in the user's model."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, NodeProto, defs

from ..frontend.structure import captured_names
from ..ir.graph import Graph
from ..ir.node import Node
from ..plan.foreign import foreign_model
from .names import Writer
from .rows import refused


def write_foreign(writer: Writer, graph: Graph, node: Node) -> None:  # noqa: ARG001  # as the others
    """Writes the node that it was, reading and writing the values by their names of today.

    Raises:
        UnsupportedOp: an operator in it means something else at the model's opset, or a subgraph
            reads a value whose name is taken.
    """
    model, reads = foreign_model(node.attrs, ", ".join(node.origin) or node.name)
    proto, own = model.graph.node[0], len(model.graph.node[0].input)
    captured = set(captured_names(proto))
    names = dict(zip(reads, node.inputs, strict=False))
    for was, now in names.items():
        if was in captured and was != now:
            if writer.fresh(was) != was:
                raise refused(node, f"its subgraph reads {was}, and another value has that name")
            writer.node("Identity", [now], [was], f"{node.name}/{was}")
    versions = {entry.domain: entry.version for entry in model.opset_import}
    for inner in _nested(proto):
        _settle(writer, node, inner, versions.get(inner.domain, versions[proto.domain]))
    del proto.metadata_props[:]
    proto.input[:], proto.output[:] = node.inputs[:own], node.outputs
    writer.append(proto, node.name)


def _nested(proto: NodeProto) -> Iterator[NodeProto]:
    """The node, and those of its subgraphs."""
    yield proto
    for attribute in proto.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for graph in graphs:
            for inner in graph.node:
                yield from _nested(inner)


def _settle(writer: Writer, node: Node, inner: NodeProto, opset: int) -> None:
    """Takes the opset that an operator needs; one that is older must say the same at the model's."""
    if inner.domain:
        writer.opsets[inner.domain] = max(opset, writer.opsets.get(inner.domain, 1))
        return
    then = defs.get_schema(inner.op_type, opset, "")
    writer.opsets[""] = max(writer.opsets[""], then.since_version)
    now = defs.get_schema(inner.op_type, writer.opsets[""], "")
    if not _says_the_same(then, now):
        raise refused(
            node,
            f"{inner.op_type} of opset {opset} has another form at opset {writer.opsets['']}",
        )


_OTHER_WITHOUT = frozenset({"RoiAlign", "Split"})
"""Operators that do not do as before where a newer attribute is absent: other coordinates; the count of parts
has to be told. (ONNX operators, RoiAlign-16 and Split-18.)
"""


def _says_the_same(then: defs.OpSchema, now: defs.OpSchema) -> bool:
    """True where a node of an older version is one of the newer version, too, which may have more that is absent."""
    before, today = _form(then), _form(now)
    if before == today:
        return True
    more = all(
        names == newer[: len(names)] for names, newer in zip(before[:2], today[:2], strict=True)
    )
    return more and set(before[2]) <= set(today[2]) and now.name not in _OTHER_WITHOUT


def _form(schema: defs.OpSchema) -> tuple[list[str], list[str], list[str]]:
    return (
        [value.name for value in schema.inputs],
        [value.name for value in schema.outputs],
        sorted(schema.attributes),
    )
