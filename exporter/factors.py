"""A number that a product of codes is multiplied with, in the scale of its second operand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..passes.base import swap
from .biases import decoded_codes


def fold_factors(graph: Graph) -> None:
    """Multiplies the scale of decoded codes with the number that divides or multiplies a product
    of them, as attention scales do.

    Before -> after::

        Div(MatMul(x, Dequantize(q){s, z}), c)  ->  MatMul(x, Dequantize(q){s/c, z})

    Legal because: the product is linear in its second operand. The codes stay.
    Refuses when: the product has another reader, the number is computed, or a scale would leave
    the normal numbers of f32.
    """
    for node in list(graph.each("Mul", "Div")):
        product = graph.producer(node.inputs[0], "MatMul")
        factor = graph.constant(node.inputs[1])
        if product is None and node.op == "Mul":
            product, factor = (
                graph.producer(node.inputs[1], "MatMul"),
                graph.constant(node.inputs[0]),
            )
        if product is None or factor is None or factor.size != 1:
            continue
        if graph.sole_consumer(product.output) is not node:
            continue
        if graph.type(node.output).shape != graph.type(product.output).shape:
            continue  # the number has dimensions of its own
        number = float(np.asarray(factor, np.float64).reshape(-1)[0])
        value = _scaled(graph, product, number if node.op == "Mul" else 1 / (number or np.inf))
        if value:
            swap(graph, node, value)


def _scaled(graph: Graph, product: Node, factor: float) -> str:
    """The product with its second operand times a factor; '' where that cannot be."""
    if any(decoded_codes(graph, value) is None for value in product.inputs):
        return ""
    decode = decoded_codes(graph, product.inputs[1])
    assert decode is not None
    scales = decode.quant.scales.astype(np.float64) * factor
    with np.errstate(over="ignore", under="ignore"):
        narrow = scales.astype(np.float32)
    # above 0, as runtimes want scales
    if not (np.isfinite(narrow) & (narrow >= np.finfo(np.float32).tiny)).all():
        return ""
    quant = replace(decode.quant, scale=tuple(narrow.tolist()))
    again = graph.again(decode, [decode.input], {**decode.attrs, "quant": quant})
    return graph.again(product, [product.inputs[0], again.output]).output
