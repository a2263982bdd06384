"""Codes that decode by parameters that ONNX has not, or that their Quantize has not."""

from __future__ import annotations

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType, Quantization
from ..passes.base import swap
from .quantizers import is_linear
from .rows import shaped

_CODES = frozenset({DType.U8, DType.S8, DType.U16, DType.S16})
_EQUAL = 2.0**-22  # both were rounded to f32


def settle_zero_points(graph: Graph) -> None:
    """Gives every Dequantize of computed codes integer zero points.

    Before -> after::

        Dequantize(q){s', z'}, q written with {s, z}  ->  Dequantize(q){s, z} * (s'/s) + s' * (z - z')
        Dequantize(q){s, z}                           ->  Dequantize(q){s, k} + s * (k - z), k near z

    Legal because: both sides are s' * (q - z'). A Dequantize with the parameters that the codes
    were written with is what runtimes fuse; the rest is a scale and a shift of its own, as it was
    in the user's model.
    """
    for node in list(graph.each("Dequantize")):
        kind = graph.type(node.input)
        if kind.dtype in _CODES and graph.constant(node.input) is None:
            _settle_decode(graph, node, kind.quant, kind.dtype)


def _settle_decode(graph: Graph, node: Node, own: Quantization | None, dtype: DType) -> None:
    quant = node.quant
    if quant == own or (quant.per_tensor and is_linear(quant, dtype)):
        return
    if own is None or not own.per_tensor or not is_linear(own, dtype):
        if is_linear(quant, dtype):
            return
        low, high = dtype.range
        near = np.clip(np.rint(quant.zero_points.astype(np.float64)), low, high)
        own = Quantization(quant.scale, tuple(near.tolist()), quant.axis)
    scales, zeros = (part.astype(np.float64) for part in shaped(graph, node))
    own_scales, own_zeros = (part.astype(np.float64) for part in own.shaped(scales.ndim))
    factor, shift = scales / own_scales, scales * (own_zeros - zeros)
    value = graph.again(node, [node.input], {**node.attrs, "quant": own}).output
    if np.abs(factor - 1).max() > _EQUAL:
        value = _with(graph, node, "Mul", value, factor)
    if np.abs(shift).max() > 0:
        value = _with(graph, node, "Add", value, shift)
    swap(graph, node, value)


def _with(graph: Graph, node: Node, op: str, value: str, operand: Array) -> str:
    name = graph.add_constant(f"{node.output}/{op.lower()}", operand.astype(np.float32))
    return graph.part(node, op, [value, name], op.lower())
