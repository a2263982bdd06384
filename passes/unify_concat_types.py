"""Codes that meet in a concatenation get one element type, where they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from .base import Contract, fired, refused
from .retyping import made_by, retype

__all__ = ["UnifyConcatTypes"]


@dataclass(frozen=True)
class UnifyConcatTypes:
    """Writes s8 codes as u8 codes with 128 more, when u8 and s8 codes meet in a concatenation.

    Before -> after::

        Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z}: s8){s, z})
        ->  Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z+128}: u8){s, z+128})

    so that the concatenation can copy codes. Data movement between Quantize and Dequantize moves the new codes.

    Legal because: round(x/s + z) + 128 = round(x/s + z + 128), 128 being even; both ranges have 256 codes.
    Refuses when: the codes of a branch are read by something else than Dequantize, or are not made by a Quantize.
    """

    name: ClassVar[str] = "unify_concat_types"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Looks at every concatenation of decoded values."""
        for node in graph.each("Concat"):
            self._unify(graph, node)

    def _unify(self, graph: Graph, node: Node) -> None:
        decodes = [graph.producer(value) for value in node.inputs]
        if any(d is None or d.op != "Dequantize" for d in decodes):
            return
        codes = dict.fromkeys(d.inputs[0] for d in decodes if d is not None)
        if {graph.type(value).dtype for value in codes} != {DType.U8, DType.S8}:
            return
        signed = [value for value in codes if graph.type(value).dtype is DType.S8]
        for value in signed:
            if made_by(graph, value) is None:
                refused(
                    graph,
                    self.name,
                    node,
                    f"the codes {value} cannot be written as u8",
                    expected="codes that only Dequantize reads",
                    found="others",
                )
                return
        for value in signed:
            path = made_by(graph, value)
            assert path is not None
            retype(graph, path, 128, DType.U8)
        fired(graph, self.name, node, f"{len(signed)} of {len(codes)} inputs are written as u8")
