"""BatchNormalization -> multiply and add by constants, folded into the weights behind it where
there are such.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict, holds_f32, rescaled, swap

F64 = npt.NDArray[np.float64]


def fold_batch_norm(graph: Graph, node: Node) -> Verdict:
    """Removes batch normalization with constant statistics.

    Before -> after::

        BatchNormalization(Conv(x, W, b))  ->  Conv(x, W*a, b*a + c)            W constant f32, read by nothing else
        BatchNormalization(Conv(x, Dequantize(@q){s}, b))  ->  Conv(x, Dequantize(@q){s*a}, b*a + c)
        BatchNormalization(x)  ->  Add(Mul(x, a), c)                            otherwise

    with a = scale / sqrt(var + epsilon) and c = bias - mean * a, per channel (ONNX
    BatchNormalization, inference form).

    Legal because: convolution is linear in each output channel's weights. The products are formed
    in f64 and rounded once.
    Refuses when: scale, bias, mean or variance is not constant; f32 does not hold a or c; x has an
    unknown rank and no weights in front of it. Where f32 does not hold b*a + c, a and c stay behind
    the convolution.
    """
    parameters = [graph.constant(value) for value in node.inputs[1:5]]
    if any(array is None for array in parameters):
        return Refusal(
            "a parameter of the normalization is computed at run time",
            "constant scale, bias, mean, variance",
            "a computed one",
            "export the model in inference mode",
        )
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in parameters)
    factor = scale / np.sqrt(variance + node.attr("epsilon", float))
    offset = bias - mean * factor
    if not (holds_f32(factor) and holds_f32(offset)):
        return Refusal(
            "f32 does not hold the normalization as a factor and a shift",
            "scale / sqrt(variance + epsilon) and bias - mean times it in f32",
            f"{max(np.abs(factor).max(), np.abs(offset).max()):g}",
            "look at the channels whose variance is close to 0: this normalization multiplies noise",
        )
    anchor = graph.producer(node.input, "Conv", "ConvTranspose")
    if anchor is not None and graph.sole_consumer(anchor.output) is node:
        weights = scaled_weights(graph, anchor, factor, offset)
        if weights is not None:
            swap(graph, node, _scaled_anchor(graph, node, anchor, weights, factor, offset))
            graph.erase(anchor)
            return f"folded into the weights of {subject(anchor)}"
    if graph.type(node.input).shape is None:
        reason = "factors for each channel need the number of dimensions"
        return Refusal(
            reason,
            "a tensor of known rank",
            "one of unknown rank",
            "export the model with the number of dimensions of each input",
        )
    swap(graph, node, _scale_shift(graph, node, factor, offset))
    return "no weights in front of it that take its factors: written as multiply and add"


FOLD_BATCH_NORM = NodePass(
    "fold_batch_norm", Contract("identity", "ulp", 256), fold_batch_norm, ("BatchNormalization",)
)


def scaled_weights(
    graph: Graph, anchor: Node, factor: F64, offset: F64 | float = 0.0
) -> str | None:
    """A value that holds the anchor's weights with output channel i multiplied by factor[i]; None
    when they are not constant, or f32 does not hold them or a constant bias * factor + offset: the
    convolution may cancel what is beyond f32 in front of the factor.

    Constant f32 weights are multiplied; constant codes behind a Dequantize keep their codes and get
    another scale.
    """
    if (bias := _bias(graph, anchor)) is not None and not holds_f32(bias * factor + offset):
        return None
    value = anchor.inputs[1]
    axis, groups = _channel_axis(anchor)
    data = graph.constant(value)
    if data is not None:
        product = _multiply(np.asarray(data), factor, axis, groups)
        return (
            graph.add_constant(f"{value}/scaled", product) if np.all(np.isfinite(product)) else None
        )
    decode = graph.producer(value, "Dequantize")
    if (
        decode is None
        or graph.constant(decode.input) is None
        or (axis != 0 and groups != 1)
        or decode.quant.axis not in (None, axis)
        or not np.all(factor)
        or (quant := rescaled(decode.quant, factor, axis)) is None
    ):
        return None
    return graph.again(decode, decode.inputs, {"quant": quant}, value=f"{value}/scaled").output


def _bias(graph: Graph, anchor: Node) -> F64 | None:
    """The anchor's bias, 0 where it has none; None where it is computed at run time."""
    if not anchor.operand(2):
        return np.zeros(1)
    bias = graph.constant(anchor.inputs[2])
    return None if bias is None else np.asarray(bias, np.float64)


def _channel_axis(anchor: Node) -> tuple[int, int]:
    groups = anchor.attr("group", int)
    return (0, groups) if anchor.op == "Conv" else (1, groups)


def _multiply(
    weights: npt.NDArray[np.generic], factor: F64, axis: int, groups: int
) -> npt.NDArray[np.float32]:
    w = weights.astype(np.float64)
    if axis == 0:
        product = w * factor.reshape(-1, *[1] * (w.ndim - 1))
    # ConvTranspose: [IC, OC/g, k...], output channel g*OC/g + j is column j of the g-th block of
    # rows
    else:
        blocks = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        product = (blocks * factor.reshape(groups, 1, -1, *[1] * (w.ndim - 2))).reshape(w.shape)
    return product.astype(np.float32)


def _scaled_anchor(
    graph: Graph, node: Node, anchor: Node, weights: str, factor: F64, offset: F64
) -> str:
    old = _bias(graph, anchor)
    origin, inputs = origin_of(anchor, node), [anchor.input, weights]
    if old is None:  # a bias computed at run time: it passes through the same multiply and add
        bare = graph.again(anchor, inputs, origin=origin)
        rank = graph.type(bare.output).rank
        shape = graph.add_constant(
            f"{anchor.name}/bias_shape", np.asarray([-1, *[1] * (rank - 2)], np.int64)
        )
        column = graph.add(
            "Reshape", [anchor.inputs[2], shape], name=f"{anchor.name}/bias", origin=origin
        )
        scaled = graph.add(
            "Mul",
            [column.output, _channels(graph, f"{node.name}/scale", factor, rank)],
            origin=origin,
        )
        summed = graph.add("Add", [bare.output, scaled.output], origin=origin)
        return graph.add(
            "Add",
            [summed.output, _channels(graph, f"{node.name}/shift", offset, rank)],
            origin=origin,
        ).output
    bias = (old * factor + offset).astype(np.float32)
    name = graph.add_constant(f"{node.name}/bias", bias)
    return graph.again(anchor, [*inputs, name], origin=origin).output


def _scale_shift(graph: Graph, node: Node, factor: F64, offset: F64) -> str:
    rank = graph.type(node.input).rank
    scale = _channels(graph, f"{node.name}/scale", factor, rank)
    product = graph.part(node, "Mul", [node.input, scale], "mul")
    shift = _channels(graph, f"{node.name}/shift", offset, rank)
    return graph.part(node, "Add", [product, shift], "add")


def _channels(graph: Graph, name: str, values: F64, rank: int) -> str:
    return graph.add_constant(name, values.astype(np.float32).reshape(1, -1, *[1] * (rank - 2)))
