"""Codes that meet in a concatenation get one element type, where they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from .base import Contract, fired, refused
from .group import Group, Rewrite, Visitor
from .retyping import made_by, readers_behind, retype

__all__ = ["Joins", "UnifyConcatTypes"]


@dataclass(frozen=True)
class UnifyConcatTypes:
    """Writes s8 codes as u8 codes with 128 more, when u8 and s8 codes meet in a concatenation.

    Before -> after::

        Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z}: s8){s, z})
        ->  Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z+128}: u8){s, z+128})

    so that the concatenation can copy codes. Data movement between Quantize and Dequantize moves
    the new codes.

    Legal because: round(x/s + z) + 128 = round(x/s + z + 128), 128 being even; both ranges have 256
    codes.
    Refuses when: the codes of a branch are read by something else than Dequantize, or are not made
    by a Quantize.
    """

    name: ClassVar[str] = "unify_concat_types"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Looks at every concatenation of decoded values."""
        Group((self,)).run(graph)

    def visitor(self, graph: Graph) -> Visitor:
        """What looks at a concatenation. It ends: each rewrite leaves fewer Quantize that make s8
        codes.
        """
        return _Unifier(self, graph)

    def unify(self, graph: Graph, node: Node) -> Rewrite | None:
        """Rewrites the s8 codes that meet u8 codes in a concatenation; what reads their values is
        looked at next.
        """
        decodes = [graph.producer(value) for value in node.inputs]
        if any(d is None or d.op != "Dequantize" for d in decodes):
            return None
        codes = dict.fromkeys(d.inputs[0] for d in decodes if d is not None)
        if {graph.type(value).dtype for value in codes} != {DType.U8, DType.S8}:
            return None
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
                return None
        anew: dict[str, str] = {}
        for value in signed:
            path = made_by(graph, value)
            assert path is not None
            anew |= retype(graph, path, 128, DType.U8)
        fired(graph, self.name, node, f"{len(signed)} of {len(codes)} inputs are written as u8")
        return Rewrite(readers_behind(graph, anew.values()), anew)


class _Unifier(Visitor):
    """The pass at work on a graph."""

    def __init__(self, step: UnifyConcatTypes, graph: Graph) -> None:
        self._step, self._graph, self._joins = step, graph, Joins(graph)

    def visit(self, node: Node) -> Rewrite | None:
        return (
            None
            if node.op != "Concat" or self._joins.waits(node)
            else self._step.unify(self._graph, node)
        )


class Joins:
    """How far each concatenation is known to join decoded values: one of N inputs is met again
    whenever one of them is decoded.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._decoded: dict[str, int] = {}

    def waits(self, node: Node) -> bool:
        """True of a concatenation of which an input is not decoded yet."""
        if node.op != "Concat":
            return False
        count = self._decoded.get(node.name, 0)
        while (
            count < len(node.inputs)
            and (maker := self._graph.producer(node.inputs[count])) is not None
            and maker.op == "Dequantize"
        ):
            count += 1
        self._decoded[node.name] = count
        return count < len(node.inputs)
