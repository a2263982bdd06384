"""The second operand of a matrix product of two activations becomes s8, where it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from .base import Contract, fired, refused
from .retyping import made_with, retype

__all__ = ["RetypeMatmulOperand"]


@dataclass(frozen=True)
class RetypeMatmulOperand:
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

    name: ClassVar[str] = "retype_matmul_operand"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Looks at every MatMul whose first operand is decoded 8-bit codes too."""
        for node in graph.each("MatMul"):
            self._retype(graph, node)

    def _retype(self, graph: Graph, node: Node) -> None:
        first, second = (graph.producer(value) for value in node.inputs)
        if first is None or second is None or first.op != "Dequantize" or second.op != "Dequantize":
            return
        codes = second.inputs[0]
        if graph.type(codes).dtype is not DType.U8 or graph.constant(codes) is not None:
            return
        path = made_with(graph, codes)
        if path is None:
            refused(
                graph,
                self.name,
                node,
                "the second operand cannot be written as s8",
                expected="codes that only Dequantize and data movement read",
                found=f"{codes} is read or made by others",
                hint="give this operand a quantizer of its own",
            )
            return
        retype(graph, path, -128, DType.S8)
        fired(graph, self.name, node, f"{codes} is s8 now")
