"""Products with weights in packed blocks, whose rows are output channels."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..passes.base import swap


def join_packed(graph: Graph) -> None:
    """MatMul(x, Transpose(DequantizeBlocks(codes))) is one MatMulBlocks(x, codes).

    (As DequantizeLinear right in front of the product, ONNX Runtime 1.31 would make MatMulNBits of
    it, too, and round the source to codes on the way, which the model does not say.)
    Refuses when: the codes are computed, are no matrix, or have not the bits and blocks that
    MatMulNBits knows.
    """
    for node in list(graph.each("MatMul")):
        packed = _packed(graph, node.inputs[1])
        if packed is not None:
            made = graph.add(
                "MatMulBlocks",
                [node.inputs[0], *packed.inputs],
                packed.attrs,
                name=f"{node.name}/packed",
                origin=node.origin,
            )
            swap(graph, node, made.output)


def _packed(graph: Graph, value: str) -> Node | None:
    turned = graph.producer(value, "Transpose")
    if turned is None or len(graph.type(turned.input).shape or ()) != 2:
        return None
    if turned.attrs["perm"] not in ((), (1, 0)):
        return None
    packed = graph.producer(turned.input, "DequantizeBlocks")
    if (
        packed is None
        or not _is_known(packed)
        or any(graph.constant(name) is None for name in packed.inputs if name)
    ):
        return None
    return packed


def _is_known(packed: Node) -> bool:
    """True for bits and blocks that ONNX Runtime's MatMulNBits takes."""
    block = packed.attr("block", int)
    return packed.attrs["bits"] in (4, 8) and block >= 16 and block & (block - 1) == 0
