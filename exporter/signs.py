"""Signed codes as unsigned ones: operators on codes want one type throughout."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.types import DType
from ..passes.retyping import moves_codes, retype


def unsigned_codes(graph: Graph) -> None:
    """Writes s8 codes that the graph makes as u8 codes with 128 more.

    Legal because: round(x/s) + z + 128 is the code with a zero point of z + 128, and both ranges
    have 256 codes. ONNX Runtime's QLinearConv, QLinearMatMul and their like have kernels for u8
    sources with u8 destinations; its CPU multiplies u8 by s8 faster than s8 by s8.
    Codes that come from outside, are returned, or meet an operation that is neither a Dequantize
    nor data movement stay.
    """
    settled: set[str] = set()
    for node in graph.each("Quantize"):
        if node.output in settled or graph.type(node.output).dtype is not DType.S8:
            continue
        values, makers = _region(graph, node.output)
        settled |= values
        if makers is not None:
            retype(graph, graph.in_order(makers.values()), 128, DType.U8)


def _region(graph: Graph, start: str) -> tuple[set[str], dict[str, Node] | None]:
    """The codes that must have one type with these, and what makes them; None where something else
    makes or reads one.
    """
    values: set[str] = set()
    makers: dict[str, Node] = {}
    pending, free = [start], True
    while pending:
        value = pending.pop()
        if value in values:
            continue
        values.add(value)
        maker = graph.producer(value)
        readers = graph.consumers(value)
        moved = [reader for reader in readers if moves_codes(reader)]
        free &= not graph.is_output(value)
        free &= all(reader.op == "Dequantize" or moves_codes(reader) for reader in readers)
        pending += [reader.output for reader in moved]
        if maker is None or not (maker.op == "Quantize" or moves_codes(maker)):
            free = False
            continue
        makers[maker.name] = maker
        if maker.op != "Quantize":
            pending += maker.inputs if maker.has(Trait.JOINS) else [maker.input]
    return values, makers if free else None
