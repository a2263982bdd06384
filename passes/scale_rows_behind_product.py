"""Scales of the rows of a matrix of codes are multiplied behind its product."""

from __future__ import annotations

import numpy as np

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType, Quantization
from .base import Contract, NodePass, Verdict, swap


def scale_rows_behind_product(graph: Graph, node: Node) -> Verdict:
    """Multiplies the rows of a product by the scales of the rows of its source.

    Before -> after::

        MatMul(RunTimeDequantize(q, s, z){axis}, Dequantize(@w))
        ->  Mul(MatMul(Dequantize(q){1, z}, Dequantize(@w)), Reshape(s))                    z: one constant
        MatMul(Mul(d, s), Dequantize(@w))  ->  Mul(MatMul(d, Dequantize(@w)), s)            s: [..., 1]

    where d is decoded codes, or Cast(q) or Cast(q) - z, and DequantizeLinear(q, s){block_size} with one
    block in a row is Mul(Cast(q), s); so that the product reads codes. Dynamic quantization by token
    has such scales. Constant scales of a Dequantize likewise.

    Legal because: a row of a product is linear in the row of its source.
    Refuses when: the scales run along what is summed up, zero points are computed or not the same
    for all rows, or the weights are no constant codes, or have more dimensions than the source.
    """
    weights = graph.producer(node.inputs[1], "RunTimeDequantize", "Dequantize")
    if weights is None or graph.constant(weights.input) is None:
        return None
    ours, theirs = (graph.type(value).shape for value in node.inputs[:2])
    if ours is None or theirs is None or len(theirs) > len(ours):
        return None
    found = _along_an_axis(graph, node, len(ours)) or _multiplied(graph, node, len(ours))
    if found is None:
        return None
    whole, rows = found
    read = graph.producer(node.input)
    product = graph.again(node, [whole, *node.inputs[1:]])
    swap(graph, node, graph.part(node, "Mul", [product.output, rows], "scaled"))
    erase_unread(graph, [read] if read is not None else [])
    return "behind the product, for each row"


def _along_an_axis(graph: Graph, node: Node, rank: int) -> tuple[str, str] | None:
    """Codes with scales along an axis, decoded without them, and the scales; None where the source is
    none.
    """
    decode = graph.producer(node.input, "RunTimeDequantize", "Dequantize")
    if decode is None:
        return None
    constant = decode.op == "Dequantize"
    axis = decode.quant.axis if constant else decode.attrs["axis"]
    if constant:
        zeros: Array | None = decode.quant.zero_points
    else:
        zeros = graph.constant(decode.inputs[2]) if decode.operand(2) else np.zeros(1)
    if not isinstance(axis, int) or axis == rank - 1:
        return None
    if zeros is None or len(np.unique(zeros)) != 1:
        return None
    whole = _as_codes(graph, decode, decode.input, float(np.ravel(zeros)[0]))
    if whole is None:
        return None
    shape = np.array([-1 if index == axis else 1 for index in range(rank)], np.int64)
    if constant:
        scales = decode.quant.scales.reshape(shape)
        return whole, graph.add_constant(f"{node.output}/rows", scales)
    wanted = graph.add_constant(f"{node.output}/along", shape)
    return whole, graph.part(node, "Reshape", [decode.inputs[1], wanted], "rows")


def _multiplied(graph: Graph, node: Node, rank: int) -> tuple[str, str] | None:
    """What is decoded in front of a product with one number for each row, and these; None where the
    source is something else.
    """
    read = graph.producer(node.input, "Mul", "DequantizeLinear")
    if read is None:
        return None
    blocks = read.op == "DequantizeLinear"
    if blocks and (read.operand(2) or read.attrs["axis"] not in (-1, rank - 1)):
        return None
    for value, rows in [(read.inputs[0], read.inputs[1]), (read.inputs[1], read.inputs[0])][
        : 2 - blocks
    ]:
        shape = graph.type(rows).shape
        if shape is None or len(shape) != rank or shape[-1] != 1:
            continue
        whole = _as_codes(graph, read, value) if blocks else _decoded(graph, value)
        if whole is not None:
            return whole, rows
    return None


def _decoded(graph: Graph, value: str) -> str | None:
    """A value that is decoded codes, by one scale; what is Cast of them, less an integer or not, is
    written so.
    """
    node = graph.producer(value, "Dequantize", "RunTimeDequantize", "Cast", "Sub")
    if node is None:
        return None
    if node.op in ("Dequantize", "RunTimeDequantize"):
        whole = node.quant.per_tensor if node.op == "Dequantize" else node.attrs["axis"] is None
        return value if whole and graph.type(node.input).dtype.is_code else None
    zero = 0
    if node.op == "Sub":
        data, cast = graph.constant(node.inputs[1]), graph.producer(node.input, "Cast")
        if data is None or data.size != 1 or cast is None or not float(data.item()).is_integer():
            return None
        zero, node = int(data.item()), cast
    return _as_codes(graph, node, node.input, zero)


def _as_codes(graph: Graph, node: Node, codes: str, zero: float = 0) -> str | None:
    """Codes less a zero point, in the place of a node that decodes them; None where they are none."""
    kind = graph.type(codes).dtype
    if not kind.is_code or graph.type(node.output).dtype is not DType.F32:
        return None
    if not kind.range[0] <= zero <= kind.range[1]:
        return None
    return graph.add(
        "Dequantize",
        [codes],
        {"quant": Quantization.of(1.0, zero)},
        name=node.name,
        origin=node.origin,
        quantizer=node.quantizer,
    ).output


SCALE_ROWS_BEHIND_PRODUCT = NodePass(
    "scale_rows_behind_product",
    Contract("identity", "ulp", 8),
    scale_rows_behind_product,
    ("MatMul",),
)
