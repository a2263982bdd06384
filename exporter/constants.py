"""Constants that were codes in the user's model, as codes again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType, Quantization
from .biases import decoded_codes

_EQUAL = 2.0**-21
"""Relative to the largest element: a code times its scale was rounded to f32."""

_UNSEEN = 2.0**-10
"""The part of the destination's step that a constant may move by: the passes carry numbers through f32 sums
with larger ones.
"""


def place_constants(graph: Graph) -> None:
    """Writes f32 constants that are added to, or multiplied with, decoded codes in front of a
    Quantize as decoded codes, where they are the multiples of one scale that 8 bits hold.

    The passes fold a quantized bias into numbers; ONNX Runtime adds on codes (QLinearAdd) only
    where both operands are. Nothing is rounded that could be seen: a constant that is no code stays.
    """
    for op in ("Add", "Mul"):
        for node in list(graph.each(op)):
            store = graph.sole_consumer(node.output)
            if store is None or store.op != "Quantize" or not store.quant.per_tensor:
                continue
            for index in (0, 1):
                _place(graph, graph.node(node.name), index, store)


def _place(graph: Graph, node: Node, index: int, store: Node) -> None:
    data = graph.constant(node.inputs[index])
    other = decoded_codes(graph, node.inputs[1 - index])
    if data is None or other is None or not other.quant.per_tensor:
        return
    if data.dtype != np.float32 or not data.size or not np.isfinite(data).all():
        return
    dtype = graph.type(other.input).dtype
    seen = float(store.quant.scales[0]) * _UNSEEN if node.op == "Add" else 0.0
    found = _codes(data.astype(np.float64), dtype, seen)
    if found is None:
        return
    codes, quant = found
    name = graph.add_constant(f"{node.inputs[index]}/codes", codes)
    decode = graph.add("Dequantize", [name], {"quant": quant}, name=f"{node.inputs[index]}/decoded")
    inputs = [decode.output if i == index else value for i, value in enumerate(node.inputs)]
    graph.set_inputs(node, inputs)


def _codes(
    data: npt.NDArray[np.float64], dtype: DType, seen: float
) -> tuple[Array, Quantization] | None:
    """Codes and parameters of numbers that quantizers wrote: over the range from the smallest to
    the largest and 0, or over one around 0; ``seen``: what a number may be off by.
    """
    low, high = min(data.min(), 0.0), max(data.max(), 0.0)
    most = max(-low, high)
    for scale, zero in (
        ((high - low) / 255, None),
        (most / 127, 0),
        (most / 127.5, 0),
        (most / 128, 0),
    ):
        narrow = float(np.float32(scale))
        if narrow < np.finfo(np.float32).tiny:
            return None
        steps = np.rint(data / narrow)
        if np.abs(steps * narrow - data).max() > max(most * _EQUAL, seen):
            continue
        first, last = dtype.range
        middle = (first + last + 1) // 2
        point = first - int(steps.min()) if zero is None else middle
        point = int(np.clip(point, first, last))
        codes = steps + point
        if codes.min() >= first and codes.max() <= last:
            return codes.astype(dtype.numpy), Quantization((narrow,), (float(point),))
    return None
