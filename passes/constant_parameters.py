"""Codes that are decoded by parameters which turned out to be constant are decoded as any others."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from .base import Contract, NodePass, Verdict, swap


def constant_parameters(graph: Graph, node: Node) -> Verdict:
    """Writes a RunTimeDequantize whose scale and zero point are constants as a Dequantize.

    Before -> after::

        RunTimeDequantize(q, s, z)  ->  Dequantize(q){s, z}                                  s, z: constants

    A MatMulInteger by a constant zero point is imported so; what the moves know of codes holds for
    it, too.

    Legal because: both are (f32(q) - z) * s.
    Refuses when: never; a scale that is no finite number above 0 stays an operand.
    """
    given = [value for value in node.inputs[1:] if value]
    data = [graph.constant(value) for value in given]
    scales = None if any(item is None for item in data) else np.ravel(np.asarray(data[0]))
    if scales is None or not (np.isfinite(scales) & (scales > 0)).all():
        return None
    zeros = np.zeros(1) if len(data) < 2 else np.ravel(np.asarray(data[1]))
    axis = node.attrs.get("axis")
    quant = Quantization.of(scales, zeros, axis if isinstance(axis, int) else None)
    made = graph.add(
        "Dequantize",
        [node.input],
        {"quant": quant},
        name=node.name,
        origin=node.origin,
        quantizer=node.quantizer,
    )
    swap(graph, node, made.output)
    return str(quant)


CONSTANT_PARAMETERS = NodePass(
    "constant_parameters",
    Contract("identity", "bitwise"),
    constant_parameters,
    ("RunTimeDequantize",),
)
