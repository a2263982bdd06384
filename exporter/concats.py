"""Concatenations whose parts decode by parameters of their own, in front of a quantizer."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from ..passes.base import swap


def decode_parts(graph: Graph) -> None:
    """Decodes the parts of a concatenation of codes that a Quantize reads, in place of the whole.

    Before -> after::

        Quantize(Dequantize(Concat(a, Concat(b, c))){p, q, r along the axis})
        ->  Quantize(Concat(Dequantize(a){p}, Dequantize(b){q}, Dequantize(c){r}))

    Legal because: Dequantize works element by element. (The passes join codes, since a primitive
    decodes them for less than it joins values. ONNX Runtime has one operator for the second form,
    QLinearConcat, and computes the first in f32.)
    Refuses when: the parameters of a part run along the axis.
    """
    for store in list(graph.each("Quantize")):
        decode = graph.producer(store.input, "Dequantize")
        if decode is None or not store.quant.per_tensor or graph.sole_consumer(store.input) is None:
            continue
        joined = graph.producer(decode.input, "Concat")
        parts = None if joined is None else _parts(graph, joined, decode.quant)
        if joined is None or parts is None or len({quant for _, quant in parts}) == 1:
            continue
        values = [
            graph.part(decode, "Dequantize", [value], f"part{index}", {"quant": quant})
            for index, (value, quant) in enumerate(parts)
        ]
        swap(graph, decode, graph.again(joined, values).output)


def _parts(
    graph: Graph, joined: Node, quant: Quantization
) -> list[tuple[str, Quantization]] | None:
    """The values that a concatenation joins, through those along the same axis in front of it, and
    what each decodes by.
    """
    shape = graph.type(joined.output).shape
    axis = None if shape is None else joined.attr("axis", int) % len(shape)
    if axis is None or quant.axis != axis:
        return None
    found, begin = [], 0
    for value in _leaves(graph, joined):
        size = (graph.type(value).shape or ())[axis]
        assert isinstance(size, int)  # scales run along the axis
        scales = set(quant.scale[begin : begin + size])
        zeros = set(quant.zero_point[begin : begin + size])
        if len(scales) != 1 or len(zeros) != 1:
            return None
        found.append((value, replace(quant, scale=(*scales,), zero_point=(*zeros,), axis=None)))
        begin += size
    return found


def _leaves(graph: Graph, joined: Node) -> list[str]:
    """What a concatenation joins in the end, in order."""
    found, waiting = [], list(reversed(joined.inputs))
    while waiting:
        value = waiting.pop()
        inner = graph.producer(value, "Concat")
        if inner is not None and inner.attrs == joined.attrs:
            waiting += reversed(inner.inputs)
        else:
            found.append(value)
    return found
