"""Which branch of a residual add takes the add into its primitive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.paths import chain_anchor
from .base import Contract, fired

__all__ = ["ChooseResidualSum"]


@dataclass(frozen=True)
class ChooseResidualSum:
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

    name: ClassVar[str] = "choose_residual_sum"
    contract: ClassVar[Contract] = Contract("identity", "bitwise")

    def run(self, graph: Graph) -> None:
        """Orders the operands of every Add of two computed values."""
        place = graph.places()
        for node in graph.each("Add"):
            if (
                all(graph.constant(value) is None for value in node.inputs)
                and node.inputs[0] != node.inputs[1]
            ):
                self._order(graph, node, place)

    def _order(self, graph: Graph, node: Node, place: Mapping[str, int]) -> None:
        first, second = (chain_anchor(graph, value) for value in node.inputs)
        if second is None or (
            first is not None
            and _rank(graph, node.inputs[1], first, place)
            >= _rank(graph, node.inputs[0], second, place)
        ):
            return
        graph.set_inputs(node, [node.inputs[1], node.inputs[0]])
        fired(graph, self.name, node, f"{second.name} absorbs the add")


def _rank(graph: Graph, peer: str, anchor: Node, place: Mapping[str, int]) -> tuple[bool, int]:
    """How good it is that `anchor` absorbs an add whose other operand is `peer`."""
    producer = graph.producer(peer)
    return producer is not None and producer.op == "Dequantize", place.get(anchor.name, 0)
