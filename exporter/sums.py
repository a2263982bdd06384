"""Sums in front of a normalization, in the words that runtimes compute fastest."""

from __future__ import annotations

from ..ir.graph import Graph
from ..passes.base import swap


def place_sums(graph: Graph) -> None:
    """Writes the Add of two computed values in front of a LayerNormalization as a Sum.

    They are the same. ONNX Runtime 1.31 makes SkipLayerNormalization of the Add, whose kernel takes
    0.25 ms for [128, 384], while LayerNormalization alone takes 0.03 (one thread at 2.6 GHz): a
    fifth of the time of a transformer whose products are on codes.
    """
    for node in list(graph.each("LayerNormalization")):
        add = graph.producer(node.inputs[0], "Add")
        if add is None or len(graph.computed(add.inputs)) < 2:
            continue
        made = graph.add("Sum", add.inputs, name=add.name, origin=add.origin)
        swap(graph, add, made.output)
