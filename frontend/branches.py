"""A branch of If in the place of the node: its nodes, with names that the model does not use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import GraphProto, NodeProto, TensorProto

from .nodes import origin_of_proto
from .structure import subgraphs


def branch_nodes(
    body: GraphProto,
    outputs: Sequence[str],
    fresh: Callable[[str], str],
) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes and constants of a branch, as those of the graph around it.

    Args:
        body: the branch.
        outputs: names of the node's outputs, '' where one is absent: an Identity makes each.
        fresh: a name that nothing has, made of another.
    """
    inner = [tensor.name for tensor in body.initializer]
    inner += [name for node in body.node for name in node.output if name]
    names = {name: fresh(name) for name in inner}
    constants = []
    for tensor in body.initializer:
        copied = TensorProto()
        copied.CopyFrom(tensor)
        copied.name = names[tensor.name]
        constants.append(copied)
    nodes = [renamed(node, names) for node in body.node]
    for wanted, value in zip(outputs, body.output, strict=True):
        if wanted:
            source = names.get(value.name, value.name)
            nodes.append(NodeProto(op_type="Identity", input=[source], output=[wanted]))
    return nodes, constants


def renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """A copy of a node that calls values by other names, in its bodies, too."""
    copied = NodeProto()
    copied.CopyFrom(node)
    copied.name = origin_of_proto(node)  # a node without a name is called as its result was
    copied.input[:] = [names.get(name, name) for name in node.input]
    copied.output[:] = [names.get(name, name) for name in node.output]
    for body in subgraphs(copied):
        _rename_captured(body, names)
    return copied


def _rename_captured(body: GraphProto, names: Mapping[str, str]) -> None:
    """Renames what a nested body reads of the branch around it; what it makes itself has its own names."""
    own = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    own.update(name for node in body.node for name in node.output)
    outer = {name: new for name, new in names.items() if name not in own}
    for node in body.node:
        node.input[:] = [outer.get(name, name) for name in node.input]
        for nested in subgraphs(node):
            _rename_captured(nested, outer)
    for value in body.output:
        value.name = outer.get(value.name, value.name)
