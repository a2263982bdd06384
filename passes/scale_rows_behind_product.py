"""Scales of the rows of a matrix of codes are multiplied behind its product."""

from __future__ import annotations

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import Quantization
from .base import Contract, NodePass, Verdict, swap


def scale_rows_behind_product(graph: Graph, node: Node) -> Verdict:
    """Multiplies the rows of a product by the scales of the rows of its source.

    Before -> after::

        MatMul(RunTimeDequantize(q, s, z){axis}, Dequantize(@w))
        ->  Mul(MatMul(Dequantize(q){1, z}, Dequantize(@w)), Reshape(s))                    z: one constant

    so that the product reads codes. Dynamic quantization by token has such scales. Constant scales
    of a Dequantize likewise.

    Legal because: a row of a product is linear in the row of its source.
    Refuses when: the scales run along what is summed up, zero points are computed or not the same
    for all rows, or the weights are no constant codes, or have more dimensions than the source.
    """
    decode = graph.producer(node.input, "RunTimeDequantize", "Dequantize")
    weights = graph.producer(node.inputs[1], "RunTimeDequantize", "Dequantize")
    if decode is None or weights is None or graph.constant(weights.input) is None:
        return None
    constant = decode.op == "Dequantize"
    axis = decode.quant.axis if constant else decode.attrs["axis"]
    ours, theirs = (graph.type(value).shape for value in node.inputs[:2])
    if not isinstance(axis, int) or ours is None or theirs is None or len(theirs) > len(ours):
        return None
    if constant:
        zeros: Array | None = decode.quant.zero_points
    else:
        zeros = graph.constant(decode.inputs[2]) if decode.operand(2) else np.zeros(1)
    if zeros is None or len(np.unique(zeros)) != 1 or axis == len(ours) - 1:
        return None
    if not graph.type(decode.input).dtype.is_code:
        return None
    whole = graph.add(
        "Dequantize",
        [decode.input],
        {"quant": Quantization.of(1.0, int(np.ravel(zeros)[0]))},
        name=decode.name,
        origin=decode.origin,
        quantizer=decode.quantizer,
    )
    product = graph.again(node, [whole.output, *node.inputs[1:]])
    shape = np.array([-1 if index == axis else 1 for index in range(len(ours))], np.int64)
    if constant:
        rows = graph.add_constant(f"{node.output}/rows", decode.quant.scales.reshape(shape))
    else:
        wanted = graph.add_constant(f"{node.output}/along", shape)
        rows = graph.part(node, "Reshape", [decode.inputs[1], wanted], "rows")
    swap(graph, node, graph.part(node, "Mul", [product.output, rows], "scaled"))
    erase_unread(graph, [decode])
    return "behind the product, for each row"


SCALE_ROWS_BEHIND_PRODUCT = NodePass(
    "scale_rows_behind_product",
    Contract("identity", "ulp", 8),
    scale_rows_behind_product,
    ("MatMul",),
)
