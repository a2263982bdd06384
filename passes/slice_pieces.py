"""A Split becomes one Slice for each piece."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict


def slice_pieces(graph: Graph, node: Node) -> Verdict:
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
    bounds = _bounds(graph, node)
    if bounds is None:
        found = str(graph.type(node.input))
        reason = "where the pieces begin is known at run time only"
        hint = "nothing to change in the quantizer: in the network, make the sizes of the pieces constants"
        return Refusal(reason, "constant sizes", found, hint)
    axis = _indices(graph, node, "axis", node.attr("axis", int))
    pieces: list[tuple[str, str]] = []
    for number, (value, ends) in enumerate(zip(node.outputs, bounds, strict=True)):
        if value:
            start, end = (
                _indices(graph, node, f"{what}{number}", place)
                for what, place in zip(("start", "end"), ends, strict=True)
            )
            inputs = [node.input, start, end, axis]
            piece = graph.part(node, "Slice", inputs, f"piece{number}")
            graph.replace_uses(value, piece)
            pieces.append((piece, value))
    graph.erase(node)
    for piece_name, value in pieces:
        graph.rename_value(piece_name, value)
    return f"{len(pieces)} pieces, each a slice"


SLICE_PIECES = NodePass("slice_pieces", Contract("identity", "bitwise"), slice_pieces, ("Split",))


def _bounds(graph: Graph, node: Node) -> list[tuple[int, int]] | None:
    """First and last + 1 of each piece along the axis; None where only a run knows them."""
    shape, outputs = graph.type(node.input).shape, len(node.outputs)
    size = None if shape is None else shape[node.attr("axis", int)]
    if not isinstance(size, int):
        return None
    if not node.operand(1):
        piece = -(-size // node.attr("num_outputs", int))
        ends = [min(piece * number, size) for number in range(1, outputs + 1)]
        return list(pairwise([0, *ends]))
    sizes = graph.constant(node.inputs[1])
    return (
        None if sizes is None else list(pairwise(accumulate(sizes.reshape(-1).tolist(), initial=0)))
    )


def _indices(graph: Graph, node: Node, what: str, value: int) -> str:
    return graph.add_constant(f"{node.name}/{what}", np.array([value], np.int64))
