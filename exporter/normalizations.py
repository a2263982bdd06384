"""A scale and a shift for each channel, as the normalization that they were."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from ..passes.base import swap

_CHANNELS = 1

F64 = npt.NDArray[np.float64]


def join_affine(graph: Graph) -> None:
    """Writes a scale and a shift along channels as a BatchNormalization whose statistics do nothing.

    Before -> after::

        Add(Mul(x, c), b)                   ->  BatchNormalization(x){c, b, mean 0, variance 1, epsilon 0}
        Add(Dequantize(q){s along them, z}, b)
        ->  BatchNormalization(Dequantize(q){1, 0}){s, b - s*z, mean 0, variance 1, epsilon 0}

    Legal because: x*c + b is what both compute; (q - z)*s + b = q*s + (b - s*z). (It is one
    operation less. And without one, ONNX Runtime 1.31 keeps the channels of all that is around last, where it decodes codes
    along them slowly: DenseNet-121 takes half as long again.)
    Refuses when: what is in front of the Add has another reader.
    """
    for node in list(graph.each("Add")):
        for index in (0, 1):
            inner = graph.producer(node.inputs[index], "Mul", "Dequantize")
            shift = _along_channels(graph, node, node.inputs[1 - index])
            if inner is None or shift is None or graph.sole_consumer(inner.output) is not node:
                continue
            written = _scaled if inner.op == "Mul" else _decoded
            joined = written(graph, node, inner, shift)
            if joined:
                swap(graph, node, joined)
                break


def _along_channels(graph: Graph, node: Node, value: str) -> F64 | None:
    """A constant that an operand of a node is broadcast with, one number for each channel; None for
    one that is computed or runs along other axes.
    """
    data, shape = graph.constant(value), graph.type(node.output).shape
    if data is None or data.dtype != np.float32 or shape is None or len(shape) < 3:
        return None
    channels = shape[_CHANNELS]
    sizes = [1] * (len(shape) - data.ndim) + list(data.shape)
    if not isinstance(channels, int) or sizes[_CHANNELS] != channels:
        return None
    if any(size != 1 for axis, size in enumerate(sizes) if axis != _CHANNELS):
        return None
    return data.reshape(-1).astype(np.float64)


def _scaled(graph: Graph, node: Node, inner: Node, shift: F64) -> str:
    """Mul and Add; '' where the factor is something else."""
    for index in (0, 1):
        factor = _along_channels(graph, node, inner.inputs[1 - index])
        same = graph.type(inner.inputs[index]).shape == graph.type(node.output).shape
        if factor is not None and same:
            return _normalization(graph, node, inner.inputs[index], factor, shift)
    return ""


def _decoded(graph: Graph, node: Node, inner: Node, shift: F64) -> str:
    """Dequantize along channels and Add; '' where its parameters run along something else."""
    quant = inner.quant
    if graph.constant(inner.input) is not None or quant.axis != _CHANNELS:
        return ""
    scales = quant.scales.astype(np.float64)
    attrs = {**inner.attrs, "quant": Quantization((1.0,))}
    codes = graph.again(inner, [inner.input], attrs).output
    return _normalization(graph, node, codes, scales, shift - scales * quant.zero_points)


def _normalization(graph: Graph, node: Node, value: str, factor: F64, shift: F64) -> str:
    parts = {"factor": factor, "shift": shift, "mean": 0 * factor, "variance": 0 * factor + 1}
    inputs = [
        graph.add_constant(f"{node.output}/{name}", data.astype(np.float32))
        for name, data in parts.items()
    ]
    attrs = {"epsilon": 0.0, "momentum": 0.9, "training_mode": 0}
    return graph.part(node, "BatchNormalization", [value, *inputs], "", attrs)
