"""Codes that meet in a concatenation get one element type, where they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType, Quantization
from .base import Contract, fired, swap

__all__ = ["UnifyConcatTypes", "retype"]


@dataclass(frozen=True)
class UnifyConcatTypes:
    """Writes s8 codes as u8 codes with 128 more, when u8 and s8 codes meet in a concatenation.

    Before -> after::

        Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z}: s8))
        ->  Concat(Dequantize(a: u8), Dequantize(Quantize(x){s, z+128}: u8){s, z+128})

    so that the concatenation can copy codes.

    Legal because: round(x/s + z) + 128 = round(x/s + z + 128), 128 being even; both ranges have 256 codes.
    Refuses when: the codes of a branch are read by something else than Dequantize, or are not made by a Quantize.
    """

    name: ClassVar[str] = "unify_concat_types"
    contract: ClassVar[Contract] = Contract("identity", "ties")

    def run(self, graph: Graph) -> None:
        """Looks at every concatenation of decoded values."""
        for node in graph.nodes():
            if node.op == "Concat":
                self._unify(graph, node)

    def _unify(self, graph: Graph, node: Node) -> None:
        decodes = [graph.producer(value) for value in node.inputs]
        if any(d is None or d.op != "Dequantize" for d in decodes):
            return
        codes = dict.fromkeys(d.inputs[0] for d in decodes if d is not None)
        if {graph.type(value).dtype for value in codes} != {DType.U8, DType.S8}:
            return
        signed = [value for value in codes if graph.type(value).dtype is DType.S8]
        if not all(retypable(graph, value) for value in signed):
            return
        for value in signed:
            retype(graph, value, 128, DType.U8)
        fired(graph, self.name, node, f"{len(signed)} of {len(codes)} inputs are written as u8")


def retypable(graph: Graph, value: str) -> bool:
    """True when a Quantize makes the codes, and nothing but Dequantize reads them."""
    quantize = graph.producer(value)
    if quantize is None or quantize.op != "Quantize" or graph.is_output(value):
        return False
    return all(reader.op == "Dequantize" for reader in graph.consumers(value))


def retype(graph: Graph, value: str, offset: int, dtype: DType) -> str:
    """Shifts all codes of `value` by `offset` into another type, in the Quantize that makes them and every Dequantize that reads them."""
    quantize = graph.producer(value)
    assert quantize is not None
    low, high, quant = quantize.attr("lo", int), quantize.attr("hi", int), quantize.attr("quant", Quantization)
    attrs = {**quantize.attrs, "quant": shifted(quant, offset), "dtype": dtype, "lo": low + offset, "hi": high + offset}
    twin = graph.add(
        "Quantize",
        quantize.inputs,
        attrs,
        name=quantize.name,
        outputs=[graph.fresh(f"{value}/{dtype.value}")],
        origin=quantize.origin,
        quantizer=quantize.quantizer,
    )
    for reader in graph.consumers(value):
        inner = reader.attr("quant", Quantization)
        again = graph.add(
            "Dequantize",
            [twin.output],
            {"quant": shifted(inner, offset)},
            name=reader.name,
            outputs=[graph.fresh(f"{reader.output}/values")],
            origin=reader.origin,
            quantizer=reader.quantizer,
        )
        swap(graph, reader, again.output)
    graph.erase(quantize)
    return twin.output


def shifted(quant: Quantization, offset: int) -> Quantization:
    """The parameters of codes that are all larger by `offset`."""
    return Quantization(quant.scale, tuple(zero + offset for zero in quant.zero_point), quant.axis)
