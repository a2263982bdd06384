"""A table of codes stays one: what is picked from it is decoded, and not the table."""

from __future__ import annotations

import math

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization, is_static
from .base import Contract, NodePass, Refusal, Verdict, swap

__all__ = ["GatherCodes"]


class GatherCodes(NodePass):
    """Picks codes from a constant table, such as the embedding of words, and decodes those.

    Before -> after::

        Gather(Dequantize(@q){s, z}, i)        ->  Dequantize(Gather(@q, i)){s, z}                     per tensor, or along another axis
        Gather(Dequantize(@q){s[axis], z}, i)  ->  Mul(Dequantize(Gather(@q, i)){1, z}, Gather(@s, i))  along the gathered axis
        Gather(DequantizeBlocks(@q, @s), i)    ->  DequantizeBlocks(Gather(@q, i), Gather(@s, i))       along another axis than the blocks'

    The table takes a quarter of the memory, in the plan and in a session.

    Legal because: Gather moves elements, and each is decoded by the same operations as before; a
    product with 1 changes nothing.
    Refuses when: at least as many elements are picked as the table has, so that decoding it once is
    less work; or the zero points differ along the gathered axis, or blocks lie along it.
    """

    name = "gather_codes"
    contract = Contract("identity", "bitwise")
    ops = ("Gather",)

    def rewrite(self, graph: Graph, node: Node) -> Verdict:
        """Rewrites a Gather at run time from constant codes."""
        table, indices = node.inputs
        blocks = graph.producer(table, "DequantizeBlocks")
        if blocks is not None:
            return _pick_blocks(graph, node, blocks)
        decode = graph.producer(table, "Dequantize")
        codes = None if decode is None else graph.constant(decode.input)
        picked = graph.type(indices).shape
        if decode is None or codes is None or not graph.computed([indices]) or picked is None:
            return None
        if not graph.type(decode.input).dtype.is_code:
            return None
        made = graph.type(node.output).shape
        if is_static(made) and math.prod(graph.type(node.output).static_shape) >= codes.size:
            return Refusal(
                "as many elements are picked as the table has: it is decoded once",
                f"fewer than {codes.size}",
                f"shape {list(made or ())}",
            )
        quant, axis = decode.quant, node.attr("axis", int) % codes.ndim
        along = quant.axis == axis
        if along and len(set(quant.zero_point)) > 1:
            return Refusal(
                "the zero points differ along the gathered axis",
                "one zero point",
                f"{len(set(quant.zero_point))} different ones",
                "quantize the table symmetrically",
            )
        if along:
            own = Quantization((1.0,), quant.zero_point[:1])
        elif quant.axis is not None and quant.axis > axis:
            own = quant.with_axis(quant.axis + len(picked) - 1)
        else:
            own = quant
        value = graph.again(node, [decode.input, indices], value=f"{node.output}/codes").output
        value = graph.again(
            decode,
            [value],
            {"quant": own},
            value=f"{node.output}/values",
            origin=(*decode.origin, *node.origin),
        ).output
        if along:
            shape = [-1 if i == axis else 1 for i in range(codes.ndim)]
            scales = graph.add_constant(f"{decode.input}/scales", quant.scales.reshape(shape))
            factor = graph.part(node, "Gather", [scales, indices], "scales", {"axis": axis})
            value = graph.part(node, "Mul", [value, factor], "scaled")
        swap(graph, node, value)
        erase_unread(graph, [decode])
        return "the table keeps its codes; what is picked is decoded"


def _pick_blocks(graph: Graph, node: Node, decode: Node) -> Verdict:
    """The same of codes in blocks, whose scales and zero points are tables, too."""
    indices = node.inputs[1]
    if graph.computed(decode.inputs) or not graph.computed([indices]):
        return None
    made, shape = graph.type(node.output).shape, graph.type(decode.output).static_shape
    axis = node.attr("axis", int) % len(shape)
    if axis == len(shape) - 1:
        return Refusal(
            "the codes of a block lie along the gathered axis",
            f"an axis in front of {axis}",
            str(axis),
            "quantize the table along its other axis",
        )
    if is_static(made) and math.prod(graph.type(node.output).static_shape) >= math.prod(shape):
        return Refusal(
            "as many elements are picked as the table has: it is decoded once",
            f"fewer than {math.prod(shape)}",
            f"shape {list(made or ())}",
        )
    picked = [
        graph.part(node, "Gather", [table, indices], what, {"axis": axis})
        for table, what in zip(decode.inputs, ("codes", "scales", "zero_points"), strict=False)
        if table
    ]
    value = graph.again(
        decode, picked, value=f"{node.output}/values", origin=(*decode.origin, *node.origin)
    ).output
    swap(graph, node, value)
    erase_unread(graph, [decode])
    return "the table keeps its codes; what is picked is decoded"
