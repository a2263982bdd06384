"""Writing codes in the other 8-bit type, from the Quantize that makes them over data movement to the Dequantize that reads them."""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Attr, Trait
from ..ir.types import DType, Quantization
from .base import swap

__all__ = ["made_by", "retype", "shifted"]


def made_by(graph: Graph, value: str) -> list[Node] | None:
    """The Quantize that makes the codes `value`, and the data movement behind it, in order; None when they cannot be retyped.

    They can when nothing but Dequantize reads `value`, and nothing else reads what lies in between.
    """
    if graph.is_output(value) or any(reader.op != "Dequantize" for reader in graph.consumers(value)):
        return None
    path: list[Node] = []
    current = value
    while (node := graph.producer(current)) is not None:
        path.append(node)
        if node.op == "Quantize":
            return path[::-1]
        moves = node.has(Trait.LAYOUT_ONLY) or node.has(Trait.SELECTS)
        if not moves or len([v for v in node.outputs if v]) != 1 or graph.sole_consumer(node.inputs[0]) is not node:
            return None
        current = node.inputs[0]
    return None


def retype(graph: Graph, value: str, path: list[Node], offset: int, dtype: DType) -> str:
    """Writes codes as codes of `dtype` that are all larger by `offset`, in everything that makes and reads them.

    Args:
        graph: edited in place.
        value: the codes.
        path: what `made_by` found.
        offset: what is added to each code; even, so that ties round alike.
        dtype: the type of the new codes.
    """
    quantize = path[0]
    attrs: dict[str, Attr] = {
        **quantize.attrs,
        "quant": shifted(quantize.attr("quant", Quantization), offset),
        "dtype": dtype,
        "lo": quantize.attr("lo", int) + offset,
        "hi": quantize.attr("hi", int) + offset,
    }
    name = graph.fresh(f"{quantize.output}/{dtype.value}")
    codes = graph.add(
        "Quantize", quantize.inputs, attrs, name=quantize.name, outputs=[name], origin=quantize.origin, quantizer=quantize.quantizer
    ).output
    for node in path[1:]:
        name = graph.fresh(f"{node.output}/{dtype.value}")
        codes = graph.add(node.op, [codes, *node.inputs[1:]], node.attrs, name=node.name, outputs=[name], origin=node.origin).output
    for reader in graph.consumers(value):
        quant = shifted(reader.attr("quant", Quantization), offset)
        name = graph.fresh(f"{reader.output}/values")
        again = graph.add(
            "Dequantize", [codes], {"quant": quant}, name=reader.name, outputs=[name], origin=reader.origin, quantizer=reader.quantizer
        )
        swap(graph, reader, again.output)
    for node in reversed(path):
        graph.erase(node)
    return codes


def shifted(quant: Quantization, offset: int) -> Quantization:
    """The parameters of codes that are all larger by `offset`."""
    return Quantization(quant.scale, tuple(zero + offset for zero in quant.zero_point), quant.axis)
