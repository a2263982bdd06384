"""The second operand of a matrix product of two activations becomes s8, where it is made."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from .base import Contract, NodePass, Refusal, Verdict
from .retyping import made_with, retype

__all__ = ["RetypeMatmulOperand"]


class RetypeMatmulOperand(NodePass):
    """Writes u8 codes that are the second operand of a MatMul as s8 codes with 128 less.

    Before -> after::

        MatMul(a, Dequantize(Move(Quantize(x){s, z}: u8)){s, z})
        ->  MatMul(a, Dequantize(Move(Quantize(x){s, z-128}: s8)){s, z-128})

    with all other codes that data movement makes of the same ones, because integer matrix products
    take s8 weights only. Attention has two such products in each layer; the three operands may be
    parts of one product's codes. A first operand is read as s8, too, then, which costs less than a
    product in f32.

    Legal because: round(x/s + z) - 128 = round(x/s + z - 128), 128 being even; both ranges have 256
    codes.
    Refuses when: the codes are read by something else than Dequantize and data movement, or are not
    made by a Quantize; the operand is constant (the composer rewrites those).
    """

    name = "retype_matmul_operand"
    contract = Contract("identity", "ties")
    ops = ("MatMul",)

    def rewrite(self, graph: Graph, node: Node) -> Verdict:
        """Retypes the second operand of a MatMul whose operands are both decoded codes."""
        first, second = graph.producer(node.input, "Dequantize"), graph.decoder(node.inputs[1])
        if first is None or second is None:
            return None
        codes = second.input
        if graph.type(codes).dtype is not DType.U8:
            return None
        path = made_with(graph, codes)
        if path is None:
            return Refusal(
                "the second operand cannot be written as s8",
                "codes that only Dequantize and data movement read",
                f"{codes} is read or made by others",
                "give this operand a quantizer of its own",
            )
        retype(graph, path, -128, DType.S8)
        return f"{codes} is s8 now"
