"""Operands of a lower rank get the dimensions of length 1 that broadcasting gives them."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict


def widen_operands(graph: Graph, node: Node) -> Verdict:
    """Writes out the leading dimensions that an operand computed at run time is broadcast along.

    Before -> after::

        Mul(x: [N,C,H,W], s: [])        ->  Mul(x, Unsqueeze(s){0,1,2,3})
        Add(x: [N,C], Cast(z: u8 []))   ->  Add(x, Dequantize(Unsqueeze(z){0,1}){1, 0})

    so that it can be the operand of a post-op, which has the destination's rank; the Unsqueeze is
    another view of the same bytes. Codes that are cast stay codes, which a post-op reads as they
    are.

    Legal because: broadcasting puts dimensions of length 1 in front.
    Refuses when: never.
    """
    if not node.has(Trait.ELEMENTWISE) or node.spec.binary is None:
        return None
    types = [graph.type(value) for value in node.inputs]
    if any(type_.dtype is not DType.F32 or type_.shape is None for type_ in types):
        return None
    rank = max(type_.rank for type_ in types)
    wide = [
        value
        if type_.rank == rank or graph.constant(value) is not None
        else _widened(graph, node, value, rank - type_.rank)
        for value, type_ in zip(node.inputs, types, strict=True)
    ]
    if wide == list(node.inputs):
        return None
    graph.set_inputs(node, wide)
    return f"{rank} dimensions"


WIDEN_OPERANDS = NodePass("widen_operands", Contract("identity", "bitwise"), widen_operands)


def _widened(graph: Graph, node: Node, value: str, more: int) -> str:
    axes = graph.add_constant(f"{value}/axes", np.arange(more, dtype=np.int64))
    cast = graph.producer(value, "Cast")
    if cast is None or graph.type(cast.input).dtype not in (DType.U8, DType.S8):
        return graph.part(node, "Unsqueeze", [value, axes], "wide")
    codes = graph.part(node, "Unsqueeze", [cast.input, axes], "wide")
    quant = {"quant": Quantization.of(1.0)}
    return graph.part(node, "Dequantize", [codes], "decoded", quant)
