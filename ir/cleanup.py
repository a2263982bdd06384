"""Dropping what nothing reads any more."""

from __future__ import annotations

from collections.abc import Iterable

from .graph import Graph
from .node import Node


def erase_unread(graph: Graph, nodes: Iterable[Node]) -> None:
    """Erases those of the nodes that are still there and that nothing reads; the last ones first,
    so that chains go whole.
    """
    for name in reversed(list(dict.fromkeys(node.name for node in nodes))):
        if name in graph and not _is_read(graph, graph.node(name)):
            graph.erase(graph.node(name))


def erase_dead(graph: Graph) -> int:
    """Erases every node that no graph output depends on, and unused constants; returns how many
    nodes went.
    """
    before = len(graph)
    erase_unread(graph, graph.nodes())
    for value in [value for value in graph.constants if not graph.is_read(value)]:
        graph.forget_constant(value)
    return before - len(graph)


def _is_read(graph: Graph, node: Node) -> bool:
    return any(value and graph.is_read(value) for value in node.outputs)
