"""The piece of a model between one value that both models have and those in front of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..ir.graph import Graph
from ..ir.node import Node


@dataclass(frozen=True)
class Segment:
    """Some nodes of a graph.

    Attributes:
        nodes: in the order of execution; the last computes the value.
        inputs: values that they read and do not compute; no constants.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]


def segment_of(graph: Graph, value: str, known: Collection[str]) -> Segment:
    """What computes a value from known ones and inputs of the graph."""
    nodes: dict[str, Node] = {}
    inputs: dict[str, None] = {}
    waiting = [value]
    while waiting:
        name = waiting.pop()
        node = graph.producer(name)
        if node is None or (name in known and name != value):
            if name and graph.constant(name) is None:
                inputs[name] = None
        elif node.name not in nodes:
            nodes[node.name] = node
            waiting.extend(node.inputs)
    return Segment(tuple(graph.in_order(nodes.values())), tuple(inputs))
