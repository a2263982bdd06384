"""Equal quantization steps on one value become one."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops import OPS
from ..ir.ops.spec import Trait
from .base import Contract, Pass, decide

_MERGED = frozenset(name for name, row in OPS.items() if Trait.QUANTIZER in row.traits)


def merge_duplicates(graph: Graph) -> None:
    """Merges Quantize, Dequantize and FakeQuantize nodes that do the same to the same value.

    Before -> after::

        a = Quantize(x){p}; b = Quantize(x){p}   ->  a = Quantize(x){p}, read by the readers of both

    ONNX Runtime's quantizer writes one Dequantize for each reader, NNCF one quantizer for each
    input of a layer.

    Legal because: same function, same input.
    Refuses when: the graph returns both (each output keeps its name), or the value is constant.
    """
    # In topological order chains of duplicates collapse in one sweep. Another sweep follows where an
    # output of the graph took the place of an earlier node, whose readers were compared by then.
    while _sweep(graph):
        pass


MERGE_DUPLICATES = Pass("merge_duplicates", Contract("identity", "bitwise"), merge_duplicates)


def _sweep(graph: Graph) -> bool:
    again = False
    first: dict[tuple[object, ...], str] = {}
    merged: dict[str, list[Node]] = {}
    for node in graph.each(*_MERGED):
        if graph.constant(node.input) is not None:
            # nothing is computed twice: constants are stored once, and each reader has a
            # quantizer of its own
            continue
        key = (node.op, node.inputs, tuple(node.attrs.items()))
        kept = graph.node(first.setdefault(key, node.name))
        if kept.name == node.name or (
            graph.is_output(node.output) and graph.is_output(kept.output)
        ):
            continue
        if graph.is_output(node.output):
            kept, gone, again = node, kept, True
        else:
            gone = node
        graph.replace_uses(gone.output, kept.output)
        graph.erase(gone)
        decide(graph, MERGE_DUPLICATES.name, gone, f"the same as {subject(kept)}")
        merged.setdefault(kept.name, [kept]).extend(merged.pop(gone.name, [gone]))
        first[key] = kept.name
    for name, nodes in merged.items():
        quantizers = tuple(
            dict.fromkeys(quantizer for node in nodes for quantizer in node.quantizer)
        )
        graph.relabel(replace(graph.node(name), origin=origin_of(*nodes), quantizer=quantizers))
    return again
