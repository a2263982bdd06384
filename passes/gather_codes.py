"""A table of codes stays one: what is picked from it is decoded, and not the table."""

from __future__ import annotations

import math

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.blocks import packed
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization, is_static
from .base import Contract, NodePass, Verdict, swap

_PICKED = "the table keeps its codes; what is picked is decoded"


def gather_codes(graph: Graph, node: Node) -> Verdict:
    """Picks codes from a constant table, such as the embedding of words, and decodes those.

    Before -> after::

        Gather(Dequantize(@q){s, z}, i)        ->  Dequantize(Gather(@q, i)){s, z}                     per tensor, or along another axis
        Gather(Dequantize(@q){s[axis], z}, i)  ->  Mul(Dequantize(Gather(@q, i)){1, z}, Gather(@s, i))  along the gathered axis
        Gather(Dequantize(@q){s[0], z[0]}, i)  ->  DequantizeBlocks(Gather(@q, i), Gather(@s, i), Gather(@z, i))  4 bits, or z differ
        Gather(DequantizeBlocks(@q, @s), i)    ->  DequantizeBlocks(Gather(@q, i), Gather(@s, i))  where no blocks lie

    The table takes a quarter of the memory, in the plan and in a session.

    Legal because: Gather moves elements, and each is decoded by the same operations as before; a
    product with 1 changes nothing.
    Refuses when: at least as many elements are picked as the table has, so that decoding it once is
    less work; or blocks lie along the gathered axis; or codes of 4 bits, or whose zero points
    differ, are no rows of a matrix.
    """
    table, indices = node.inputs
    blocks = graph.producer(table, "DequantizeBlocks")
    if blocks is not None:
        return _pick_blocks(graph, node, blocks)
    decode = graph.producer(table, "Dequantize")
    codes = None if decode is None else graph.constant(decode.input)
    picked = graph.type(indices).shape
    if decode is None or codes is None or not graph.computed([indices]) or picked is None:
        return None
    kind = graph.type(decode.input).dtype
    narrow = kind in (DType.S4, DType.U4)
    if not (kind.is_code or narrow):
        return None
    if (refusal := _picks_all(graph, node, codes.size)) is not None:
        return refusal
    along = decode.quant.axis == node.attr("axis", int) % codes.ndim
    several = along and len(set(decode.quant.zero_point)) > 1
    return (_pick_rows if narrow or several else _pick)(graph, node, decode)


GATHER_CODES = NodePass("gather_codes", Contract("identity", "bitwise"), gather_codes, ("Gather",))


def _picks_all(graph: Graph, node: Node, count: int) -> Refusal | None:
    """Why a table of so many elements is decoded before some are picked."""
    made = graph.type(node.output)
    if not is_static(made.shape) or math.prod(made.static_shape) < count:
        return None
    return Refusal(
        "as many elements are picked as the table has: it is decoded once",
        f"fewer than {count}",
        f"shape {list(made.static_shape)}",
        "nothing to change: decoding the table once is no more work",
    )


def _pick(graph: Graph, node: Node, decode: Node) -> Verdict:
    """Codes of 8 bits with one zero point, or with parameters along another axis than the gathered
    one; scales along that are picked, too.
    """
    indices, quant, rank = node.inputs[1], decode.quant, graph.type(decode.input).rank
    axis = node.attr("axis", int) % rank
    along, own = quant.axis == axis, quant
    if along:
        own = Quantization((1.0,), quant.zero_point[:1])
    elif quant.axis is not None and quant.axis > axis:
        own = quant.with_axis(quant.axis + graph.type(indices).rank - 1)
    value = graph.again(node, [decode.input, indices], value=f"{node.output}/codes").output
    value = graph.again(
        decode,
        [value],
        {"quant": own},
        value=f"{node.output}/values",
        origin=(*decode.origin, *node.origin),
    ).output
    if along:
        shape = [-1 if i == axis else 1 for i in range(rank)]
        scales = graph.add_constant(f"{decode.input}/scales", quant.scales.reshape(shape))
        factor = graph.part(node, "Gather", [scales, indices], "scales", {"axis": axis})
        value = graph.part(node, "Mul", [value, factor], "scaled")
    swap(graph, node, value)
    erase_unread(graph, [decode])
    return _PICKED


def _pick_rows(graph: Graph, node: Node, decode: Node) -> Verdict:
    """Rows of a matrix of codes: each is a block, with a scale and a zero point of its own."""
    codes, quant = graph.constant(decode.input), decode.quant
    kind = graph.type(decode.input).dtype
    assert codes is not None
    low, high = kind.range
    zeros = quant.zero_points - low
    rows = codes.ndim == 2 and node.attr("axis", int) % codes.ndim == 0 and quant.axis in (None, 0)
    if not (rows and quant.integral and zeros.min() >= 0 and zeros.max() <= high - low):
        return Refusal(
            "codes of 4 bits, or whose zero points differ, are picked by rows of a matrix only",
            "axis 0 of two dimensions, zero points among the codes",
            f"axis {node.attr('axis', int)} of {codes.ndim}, zero points {sorted(set(quant.zero_point))[:3]}",
            "quantize the table symmetrically, to 8 bits",
        )
    bits = 4 if high - low < 1 << 4 else 8
    count, size = codes.shape
    block = -(-size * bits // 8) * 8 // bits
    whole = np.zeros((count, block), np.uint8)
    whole[:, :size] = codes.astype(np.int16) - low
    scales, points = (
        np.ascontiguousarray(np.broadcast_to(values, (count,)).reshape(count, 1))
        for values in (quant.scales, zeros.astype(np.uint8))
    )
    tables = {"codes": packed(whole, bits), "scales": scales, "zero_points": points}
    picked = [
        graph.part(
            node,
            "Gather",
            [graph.add_constant(f"{decode.input}/{what}", table), node.inputs[1]],
            what,
            {"axis": 0},
        )
        for what, table in tables.items()
    ]
    value = graph.add(
        "DequantizeBlocks",
        picked,
        {"bits": bits, "block": block, "size": size},
        name=decode.name,
        outputs=[graph.fresh(f"{node.output}/values")],
        origin=(*decode.origin, *node.origin),
        quantizer=decode.quantizer,
    ).output
    swap(graph, node, value)
    erase_unread(graph, [decode])
    return _PICKED


def _pick_blocks(graph: Graph, node: Node, decode: Node) -> Verdict:
    """The same of codes in blocks, whose scales and zero points are tables, too."""
    indices = node.inputs[1]
    if graph.computed(decode.inputs) or not graph.computed([indices]):
        return None
    shape = graph.type(decode.output).static_shape
    axis = node.attr("axis", int) % len(shape)
    if axis == len(shape) - 1:
        return Refusal(
            "the codes of a block lie along the gathered axis",
            f"an axis in front of {axis}",
            str(axis),
            "quantize the table along its other axis",
        )
    if (refusal := _picks_all(graph, node, math.prod(shape))) is not None:
        return refusal
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
    return _PICKED
