"""Writing codes in the other 8-bit type, from the Quantize that makes them over data movement to
the Dequantize that reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.types import DType, Quantization
from .base import swap


def moves_codes(node: Node) -> bool:
    """True when an operation only moves or selects the codes of its first input, or of all its
    inputs, into one output.
    """
    return (
        node.has(Trait.LAYOUT_ONLY, Trait.SELECTS, Trait.JOINS)
        and len([v for v in node.outputs if v]) == 1
    )


def carries_codes(node: Node) -> bool:
    """True when an operation only moves or selects the codes of its first input, into one output;
    what else it reads are indices and shapes.
    """
    return moves_codes(node) and not node.has(Trait.JOINS)


def made_by(graph: Graph, value: str) -> list[Node] | None:
    """The Quantize that makes the codes `value`, and the data movement behind it, in order; None
    when they cannot be retyped.

    They can when nothing but Dequantize reads `value`, and nothing else reads what lies in between.
    """
    if graph.is_output(value) or any(
        reader.op != "Dequantize" for reader in graph.consumers(value)
    ):
        return None
    path: list[Node] = []
    while (node := graph.producer(value)) is not None:
        path.append(node)
        if node.op == "Quantize":
            return path[::-1]
        value = node.input
        if not carries_codes(node) or graph.sole_consumer(value) is not node:
            return None
    return None


def made_with(graph: Graph, value: str) -> list[Node] | None:
    """The Quantize that makes the codes `value`, and all data movement of its codes, in order; None
    when they cannot be retyped together.

    They can when nothing but Dequantize reads what data movement leaves: one product that is split
    into the operands of others, say.
    """
    maker = maker_of(graph, value)
    if maker is None:
        return None
    region, pending = {maker.name: maker}, [maker.output]
    while pending:
        codes = pending.pop()
        movers = [reader for reader in graph.consumers(codes) if reader.op != "Dequantize"]
        if graph.is_output(codes) or not all(map(carries_codes, movers)):
            return None
        region |= {mover.name: mover for mover in movers}
        pending += [mover.output for mover in movers]
    return graph.in_order(region.values())


def maker_of(graph: Graph, value: str) -> Node | None:
    """The Quantize that makes the codes `value`, maybe in front of data movement."""
    maker = graph.producer(value)
    while maker is not None and carries_codes(maker):
        maker = graph.producer(maker.input)
    return maker if maker is not None and maker.op == "Quantize" else None


def retype(graph: Graph, nodes: Sequence[Node], offset: int, dtype: DType) -> dict[str, str]:
    """Writes codes as codes of `dtype` that are all larger by `offset`, in everything that makes
    and reads them.

    Args:
        graph: edited in place.
        nodes: the Quantize that make the codes and what `moves_codes`, makers before readers; only
            Dequantize reads them otherwise.
        offset: what is added to each code; even, so that ties round alike.
        dtype: the type of the new codes.

    Returns:
        The Dequantize that were made anew: the name of the old one -> that of the new one.
    """
    again: dict[str, str] = {}
    decodes: dict[str, str] = {}
    for node in nodes:
        attrs = dict(node.attrs)
        if node.op == "Quantize":
            low, high = node.attr("lo", int) + offset, node.attr("hi", int) + offset
            attrs |= {"quant": shifted(node.quant, offset), "dtype": dtype, "lo": low, "hi": high}
        inputs = [again.get(value, value) for value in node.inputs]
        made = graph.again(node, inputs, attrs, value=f"{node.output}/{dtype.value}")
        again[node.output] = made.output
    for old, new in again.items():
        for reader in graph.consumers(old):
            if reader.op == "Dequantize":
                attrs = {"quant": shifted(reader.quant, offset)}
                values = graph.again(reader, [new], attrs, value=f"{reader.output}/values")
                swap(graph, reader, values.output)
                decodes[reader.name] = values.name
    for node in reversed(nodes):
        graph.erase(
            graph.node(node.name)
            # as it is now: a Quantize of what was decoded from other codes of `nodes` reads another
            # value
        )
    return decodes


def readers_behind(graph: Graph, nodes: Iterable[str]) -> list[str]:
    """The names of the nodes that read what nodes give, each once."""
    return list(
        dict.fromkeys(
            reader.name for name in nodes for reader in graph.consumers(graph.node(name).output)
        )
    )


def shifted(quant: Quantization, offset: int) -> Quantization:
    """The parameters of codes that are all larger by `offset`."""
    return Quantization(quant.scale, tuple(zero + offset for zero in quant.zero_point), quant.axis)


def is_padded(node: Node) -> bool:
    """True of a convolution or pool that pads its input."""
    automatic = node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    return automatic or ("pads" in node.attrs and any(node.attr("pads", tuple)))
