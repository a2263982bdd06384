"""A Split becomes one Slice for each piece."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from .base import Contract, fired, refused

__all__ = ["SlicePieces"]


@dataclass(frozen=True)
class SlicePieces:
    """Writes a Split as slices, which have one output each.

    Before -> after::

        a, b = Split(x, [2, 6]){axis}  ->  a = Slice(x, 0, 2, axis), b = Slice(x, 2, 8, axis)
        a, b = Split(x){axis, num_outputs=2}  ->  likewise, in pieces of equal size, the last one smaller

    so that the halves of quantizers move over it, each piece with its own, and a runtime reads a
    piece where it lies: channel splits, the three parts of an attention's product, boxes and
    classes of a detector.

    Legal because: a Split is defined as these slices.
    Refuses when: the pieces or the size of what is split are known at run time only.
    """

    name: ClassVar[str] = "slice_pieces"
    contract: ClassVar[Contract] = Contract("identity", "bitwise")

    def run(self, graph: Graph) -> None:
        """Rewrites every Split whose bounds are known."""
        for node in graph.each("Split"):
            bounds = _bounds(graph, node)
            if bounds is None:
                found = str(graph.type(node.inputs[0]))
                refused(
                    graph,
                    self.name,
                    node,
                    "where the pieces begin is known at run time only",
                    expected="constant sizes",
                    found=found,
                )
            else:
                self._rewrite(graph, node, bounds)

    def _rewrite(self, graph: Graph, node: Node, bounds: list[tuple[int, int]]) -> None:
        axis = _indices(graph, node, "axis", node.attr("axis", int))
        pieces: list[tuple[str, str]] = []
        for number, (value, (start, end)) in enumerate(zip(node.outputs, bounds, strict=True)):
            if value:
                inputs = [
                    node.inputs[0],
                    _indices(graph, node, f"start{number}", start),
                    _indices(graph, node, f"end{number}", end),
                    axis,
                ]
                piece = graph.add(
                    "Slice",
                    inputs,
                    name=graph.fresh(f"{node.name}/piece{number}"),
                    origin=node.origin,
                )
                graph.replace_uses(value, piece.output)
                pieces.append((piece.output, value))
        fired(graph, self.name, node, f"{len(pieces)} pieces, each a slice")
        graph.erase(node)
        for piece_name, value in pieces:
            graph.rename_value(piece_name, value)


def _bounds(graph: Graph, node: Node) -> list[tuple[int, int]] | None:
    """First and last + 1 of each piece along the axis; None where only a run knows them."""
    shape, outputs = graph.type(node.inputs[0]).shape, len(node.outputs)
    size = None if shape is None else shape[node.attr("axis", int)]
    if not isinstance(size, int):
        return None
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    if not given:
        piece = -(-size // node.attr("num_outputs", int))
        ends = [min(piece * number, size) for number in range(1, outputs + 1)]
        return list(pairwise([0, *ends]))
    sizes = graph.constant(given)
    return (
        None if sizes is None else list(pairwise(accumulate(sizes.reshape(-1).tolist(), initial=0)))
    )


def _indices(graph: Graph, node: Node, what: str, value: int) -> str:
    return graph.add_constant(graph.fresh(f"{node.name}/{what}"), np.array([value], np.int64))
