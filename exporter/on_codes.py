"""A scale and a shift for each channel between quantizers, as a convolution of codes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array, Attr
from ..ir.types import Quantization
from ..passes.base import swap
from .biases import bias_codes, decoded_codes, stored_by

F64 = npt.NDArray[np.float64]

_CODES = np.arange(1, 128)
"""What a weight may be."""

_SPAN = 255  # codes that 8 bits are apart at most
_UNSEEN = 1 / 64
"""The part of a destination's step that a channel may move by and count as constant."""

_FINE = 1 << 20
"""Codes of the shift of such a channel."""


def convolve_channels(graph: Graph) -> None:
    """Writes a BatchNormalization between quantizers as a depthwise convolution of a single position.

    Before -> after::

        Quantize(BatchNormalization(Dequantize(q){s, z}){factor, shift})
        ->  Quantize(Conv(Dequantize(q){s, z}, Dequantize(w * sign(factor)){|factor| / w}, shift){group: channels})

    Legal because: x * factor + shift is what both compute, for every w. As a bias the shift becomes
    codes of the accumulator, whose unit is factor * s / w: of w = 1..127 that is taken which loses
    least (127 alone loses at most factor * s / 254), and `bias_codes` says how much a bias may lose. A
    channel that moves by less than 1/64 of the destination's step from one end of the codes to the
    other is its shift. (ONNX Runtime has a convolution of codes, and computes a normalization in f32,
    with the channels transposed in front of it and behind.)
    Refuses when: the codes have not 8 bits and one scale, on either side, too much of a shift is lost, or a
    number is not finite.
    """
    for node in list(graph.each("BatchNormalization")):
        source, store = decoded_codes(graph, node.inputs[0]), stored_by(graph, node.output)
        found = _factor_and_shift(graph, node)
        if source is not None and store is not None and found is not None:
            _convolve(graph, node, source, store, *found)


def _factor_and_shift(graph: Graph, node: Node) -> tuple[F64, F64] | None:
    """What the normalization does to a channel; None where a parameter is computed."""
    parts = [graph.constant(name) for name in node.inputs[1:]]
    if any(part is None for part in parts):
        return None
    scale, bias, mean, variance = (np.asarray(part, np.float64) for part in parts)
    factor = scale / np.sqrt(variance + node.attr("epsilon", float))
    return factor, bias - mean * factor


def _convolve(graph: Graph, node: Node, source: Node, store: Node, factor: F64, shift: F64) -> None:
    finite = np.isfinite(factor).all() and np.isfinite(shift).all()
    shape = graph.type(node.output).shape
    if not (source.quant.per_tensor and store.quant.per_tensor and finite) or shape is None:
        return
    channels, window = factor.size, (1,) * (len(shape) - 2)
    codes, scales = _weights(
        factor, shift, float(source.quant.scales[0]), float(store.quant.scales[0])
    )
    if not (scales >= np.finfo(np.float32).tiny).all():
        return
    quant = Quantization(tuple(scales.tolist()), (0,) * channels, 0)
    name = graph.add_constant(f"{node.output}/factor", codes.reshape(channels, 1, *window))
    weights = graph.add("Dequantize", [name], {"quant": quant}, name=f"{node.name}/factor")
    bias = shift.astype(np.float32)
    if bias_codes(source, weights, bias, store) is None:
        graph.erase(weights)
        return
    inputs = [node.inputs[0], weights.output, graph.add_constant(f"{node.output}/shift", bias)]
    attrs: dict[str, Attr] = {"group": channels, "kernel_shape": window}
    swap(graph, node, graph.part(node, "Conv", inputs, "", attrs))


def _weights(factor: F64, shift: F64, unit: float, step: float) -> tuple[Array, Array]:
    """Codes and scales of the weights, [C] each, for a source by ``unit`` and a destination by ``step``."""
    flat = np.abs(factor) * unit * _SPAN < step * _UNSEEN
    size = np.where(flat, 1.0, np.abs(factor))
    counted = (shift / (size * unit))[:, None] * _CODES  # the shift, in units of the accumulator
    lost = np.abs(counted - np.rint(counted)) / _CODES
    code = _CODES[np.argmin(lost, axis=1)]
    constant = np.where(shift == 0, step, np.abs(shift) / _FINE) / unit
    codes = np.where(flat, 0, code * np.sign(factor)).astype(np.int8)
    return codes, np.where(flat, constant, size / code).astype(np.float32)
