"""Codes that meet in a concatenation get one element type, where they are made."""

from __future__ import annotations

from functools import partial

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.rule import Refusal
from ..ir.types import DType
from .base import Contract, decide
from .group import Local, Rewrite, Visitor
from .retyping import made_by, readers_behind, retype


def unify_concat_types(graph: Graph) -> Visitor:
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
    # It ends: each rewrite leaves fewer Quantize that make s8 codes.
    return Visitor(partial(_unified, graph, Joins(graph)))


UNIFY_CONCAT_TYPES = Local("unify_concat_types", Contract("identity", "ties"), unify_concat_types)


def _unified(graph: Graph, joins: Joins, node: Node) -> Rewrite | None:
    """Rewrites the s8 codes that meet u8 codes in a concatenation; what reads their values is looked
    at next.
    """
    if node.op != "Concat" or joins.waits(node):
        return None
    decodes = [graph.producer(value, "Dequantize") for value in node.inputs]
    codes = {d.input: graph.type(d.input).dtype for d in decodes if d is not None}
    if None in decodes or set(codes.values()) != {DType.U8, DType.S8}:
        return None
    signed = [value for value, dtype in codes.items() if dtype is DType.S8]
    for value in signed:
        if made_by(graph, value) is None:
            reason = f"the codes {value} cannot be written as u8"
            refusal = Refusal(
                reason,
                "codes that only Dequantize reads",
                "others",
                "quantize all inputs of the concatenation to one type, QUInt8 or QInt8",
            )
            decide(graph, UNIFY_CONCAT_TYPES.name, node, refusal)
            return None
    anew: dict[str, str] = {}
    for value in signed:
        anew |= retype(graph, made_by(graph, value) or [], 128, DType.U8)
    verdict = f"{len(signed)} of {len(codes)} inputs are written as u8"
    decide(graph, UNIFY_CONCAT_TYPES.name, node, verdict)
    return Rewrite(readers_behind(graph, anew.values()), anew)


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
        while count < len(node.inputs) and self._graph.producer(node.inputs[count], "Dequantize"):
            count += 1
        self._decoded[node.name] = count
        return count < len(node.inputs)
