"""Which branch of a residual add takes the add into its primitive."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.paths import chain_anchor
from .base import Contract, Pass, decide


def choose_residual_sum(graph: Graph) -> None:
    """Puts the branch that shall absorb a residual add first.

    Before -> after::

        Add(skip, Conv(...))           ->  Add(Conv(...), skip)
        Add(Conv1(...), Conv2(...))    ->  the one whose peer is quantized first; else the one that runs later

    The composer lets the first operand's primitive absorb the add, so this order is the choice, and
    it is visible in the text form.

    Legal because: addition commutes, in f32 too.
    Refuses when: neither operand comes from a convolution or matrix product over a path that
    nothing else reads.
    """
    place = graph.places()
    for node in graph.each("Add"):
        if node.input != node.inputs[1] and len(graph.computed(node.inputs)) == 2:
            decide(graph, CHOOSE_RESIDUAL_SUM.name, node, _ordered(graph, node, place))


CHOOSE_RESIDUAL_SUM = Pass(
    "choose_residual_sum", Contract("identity", "bitwise"), choose_residual_sum
)


def _ordered(graph: Graph, node: Node, place: Mapping[str, int]) -> str | None:
    first, second = (chain_anchor(graph, value) for value in node.inputs)
    if second is None or (
        first is not None
        and _rank(graph, node.inputs[1], first, place) >= _rank(graph, node.input, second, place)
    ):
        return None
    graph.set_inputs(node, [node.inputs[1], node.input])
    return f"{subject(second)} absorbs the add"


def _rank(graph: Graph, peer: str, anchor: Node, place: Mapping[str, int]) -> tuple[bool, int]:
    """How good it is that `anchor` absorbs an add whose other operand is `peer`."""
    return graph.producer(peer, "Dequantize") is not None, place.get(anchor.name, 0)
