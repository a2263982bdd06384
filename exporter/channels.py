"""Codes with a scale for each channel, as codes with one scale: weights take the factors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from ..passes.base import swap

_CHANNELS = 1


def one_scale(graph: Graph) -> None:
    """Gives codes between a convolution and depthwise ones a single scale.

    Before -> after::

        Conv(y, v[c], b) -> Quantize{s[c], z} -> Dequantize{s[c], z} -> Conv(depthwise, w[c])
        ->  Conv(y, v[c]*S/s[c], b*S/s[c]) -> Quantize{S, z} -> Dequantize{S, z} -> Conv(depthwise, w[c]*s[c]/S)

    Legal because: round(x/s) = round((x*S/s)/S), and a depthwise convolution multiplies what
    stands in channel c by weights of channel c alone. The weights are codes; their scales change.
    S is the largest of the scales. (ONNX Runtime has no convolution of codes with a scale for each
    channel, and computes both in f32.)
    Refuses when: a zero point differs from the others, or one of the two convolutions has weights
    that are computed, or another reader.
    """
    for node in list(graph.each("Quantize")):
        quant = node.quant
        if quant.axis == _CHANNELS and len(set(quant.zero_point)) == 1:
            _settle(graph, node)


def _settle(graph: Graph, store: Node) -> None:
    quant = store.quant
    maker = graph.producer(store.input, "Conv")
    decodes = graph.consumers(store.output)
    scales = quant.scales.astype(np.float64)
    if maker is None or not decodes or graph.is_output(store.output) or (scales <= 0).any():
        return
    if graph.sole_consumer(store.input) is not store or not _is_weighed(graph, maker):
        return
    if any(decode.op != "Dequantize" or decode.quant != quant for decode in decodes):
        return
    readers = [reader for decode in decodes for reader in graph.consumers(decode.output)]
    if not all(_is_depthwise(graph, reader, scales.size) for reader in readers):
        return
    if any(graph.is_output(decode.output) for decode in decodes):
        return
    largest = np.float32(scales.max())
    factors = np.float64(largest) / scales
    whole = Quantization((float(largest),), (quant.zero_point[0],))
    made = graph.again(
        store, [_scaled(graph, maker, factors, True)], {**store.attrs, "quant": whole}
    )
    for decode in decodes:
        value = graph.again(decode, [made.output], {**decode.attrs, "quant": whole}).output
        for reader in graph.consumers(decode.output):
            inputs = [value, *reader.inputs[1:]]
            changed = graph.set_inputs(reader, inputs)
            swap(graph, changed, _scaled(graph, changed, 1 / factors, False))
        graph.erase(decode)
    graph.erase(store)
    graph.erase(maker)


def _is_weighed(graph: Graph, node: Node) -> bool:
    """True for a convolution of constant codes, per tensor or along its channels, with a constant
    bias or none.
    """
    decode = graph.producer(node.inputs[1], "Dequantize")
    biased = node.operand(2)
    return (
        decode is not None
        and graph.constant(decode.input) is not None
        and decode.quant.axis in (None, 0)
        and not (biased and graph.constant(biased) is None)
    )


def _is_depthwise(graph: Graph, node: Node, channels: int) -> bool:
    shape = graph.type(node.inputs[1]).shape if node.op == "Conv" else None
    return (
        shape is not None
        and node.attrs.get("group") == channels == shape[0]
        and shape[1] == 1
        and _is_weighed(graph, node)
    )


def _scaled(graph: Graph, node: Node, factors: npt.NDArray[np.float64], biased: bool) -> str:
    """The convolution again, its weights, and its bias as said, times factors of the channels."""
    decode = graph.producer(node.inputs[1], "Dequantize")
    assert decode is not None  # `_is_weighed` found it
    quant = decode.quant
    scales = (quant.scales.astype(np.float64) * factors).astype(np.float32)
    zeros = np.broadcast_to(quant.zero_points, scales.shape)
    scaled = replace(quant, scale=tuple(scales.tolist()), zero_point=tuple(zeros.tolist()), axis=0)
    weights = graph.again(decode, [decode.input], {**decode.attrs, "quant": scaled}).output
    inputs = [node.input, weights, *node.inputs[2:]]
    bias = graph.constant(node.operand(2)) if node.operand(2) else None
    if bias is not None and biased:
        data = (bias.astype(np.float64) * factors).astype(np.float32)
        inputs[2] = graph.add_constant(f"{node.operand(2)}/scaled", data)
    return graph.again(node, inputs).output
