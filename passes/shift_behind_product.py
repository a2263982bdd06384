"""What codes are shifted by, once they are decoded, is added behind the product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.product_axes import channels_axis, outputs_axis
from ..ir.rule import Refusal
from ..ir.types import is_static
from .base import Contract, NodePass, Verdict, swap
from .retyping import is_padded

F64 = npt.NDArray[np.float64]


def shift_behind_product(graph: Graph, node: Node) -> Verdict:
    """Moves the shift of decoded codes, which is computed at run time, behind a product.

    Before -> after::

        MatMul(RunTimeDequantize(q, s, z) + c, Dequantize(@w))
        ->  MatMul(RunTimeDequantize(q, s, z), Dequantize(@w)) + c*@S       S: the sums of the decoded weights

    so that the product reads codes. For convolutions likewise; where windows reach into padding,
    and at the edges of a deconvolution, S has an entry for each position: the sum of the weights
    that read something there.

    Legal because: products are linear in their source, and c is one number.
    Refuses when: c is several numbers, the weights are no constant codes, or have a computed zero
    point or scales along another axis than the outputs, or they are padded and the model does not
    tell the sizes. (Of a computed scale of the weights, S is without it, and c*S times it.)
    """
    added = graph.producer(node.input, "Add")
    decode = None if added is None else graph.producer(added.inputs[0], "RunTimeDequantize")
    if added is None or decode is None or graph.constant(added.inputs[1]) is not None:
        return None
    types = [graph.type(value) for value in (decode.output, *node.inputs[:2])]
    if any(type_.shape is None or type_.rank < 2 for type_ in types):
        return None  # vectors, which no product in int8 takes
    shift = added.inputs[1]
    weights = _Weights.of(graph, node)
    if isinstance(weights, Refusal):
        return weights
    shape = graph.type(shift).shape
    if (
        shape is None
        or len(shape) > graph.type(decode.output).rank
        or any(size != 1 for size in shape)
    ):
        return Refusal(
            "the source has computed ranges along an axis",
            "one range",
            str(graph.type(shift)),
            "quantize activations per tensor",
        )
    sums = _sums(graph, node, weights.real)
    if isinstance(sums, Refusal):
        return sums
    rank = graph.type(node.output).rank
    wide = sums.reshape((1,) * (rank - sums.ndim) + sums.shape)
    product = graph.again(node, [decode.output, *node.inputs[1:]])
    constant = graph.add_constant(f"{node.output}/sums", wide.astype(np.float32))
    lost = graph.part(added, "Mul", [constant, shift], "behind")
    if weights.scale:
        lost = graph.part(added, "Mul", [lost, _along(graph, node, weights)], "scaled")
    made = graph.part(node, "Add", [product.output, lost], "shifted")
    swap(graph, node, made)
    return "behind the product, times the sums of the weights"


SHIFT_BEHIND_PRODUCT = NodePass(
    "shift_behind_product",
    Contract("identity", "ulp", 8),
    shift_behind_product,
    ("Conv", "ConvTranspose", "MatMul"),
)


@dataclass(frozen=True)
class _Weights:
    """Constant weights behind what decodes them.

    Attributes:
        real: what they are, but for a scale that is computed.
        scale: that, or ''.
        axis: along which it is a vector, or None.
    """

    real: F64
    scale: str = ""
    axis: int | None = None

    @classmethod
    def of(cls, graph: Graph, node: Node) -> _Weights | Refusal:
        """Those of a product, or why its sums of weights are not known."""
        decode = graph.producer(node.inputs[1], "Dequantize", "RunTimeDequantize")
        data = None if decode is None else graph.constant(decode.input)
        if decode is None or data is None:
            return _not_constant(str(graph.type(node.inputs[1])), "weights that are constant codes")
        codes = np.asarray(data, np.float64)
        if decode.op == "Dequantize":
            scale, zero = decode.quant.shaped(codes.ndim)
            return cls((codes - zero) * scale.astype(np.float64))
        zeros = graph.constant(decode.inputs[2]) if decode.operand(2) else np.zeros(())
        axis, outputs = decode.attrs["axis"], outputs_axis(node.op, codes.ndim)
        grouped = node.op == "ConvTranspose" and node.attr("group", int) != 1
        if zeros is None or axis not in (None, *(() if grouped else (outputs,))):
            found = decode.inputs[2] if zeros is None else f"axis {axis!r}"
            return _not_constant(found, "one scale for each output, and a constant zero point")
        shape = [-1 if index == axis else 1 for index in range(codes.ndim)]
        less = np.asarray(zeros, np.float64).reshape(shape)
        return cls(codes - less, decode.inputs[1], None if axis is None else outputs)


def _not_constant(found: str, expected: str) -> Refusal:
    return Refusal(
        "the source is shifted by a computed number, and what the weights add up to is not known",
        expected,
        found,
        "quantize the weights by constant ranges, for each output channel or for all",
    )


def _along(graph: Graph, node: Node, weights: _Weights) -> str:
    """Scales of the weights along the output channels of the product."""
    rank = graph.type(node.output).rank
    channels = channels_axis(node.op, rank)
    shape = [-1 if weights.axis is not None and axis == channels else 1 for axis in range(rank)]
    wanted = graph.add_constant(f"{node.output}/along", np.asarray(shape, np.int64))
    return graph.part(node, "Reshape", [weights.scale, wanted], "along")


def _sums(graph: Graph, node: Node, weights: F64) -> F64 | Refusal:
    """The sums of the weights that each output multiplies: one for each column or channel, or one
    for each of its positions.
    """
    if node.op == "MatMul":
        return np.asarray(weights.sum(-2, keepdims=True))
    taps = weights
    if node.op == "Conv":
        taps = weights.sum(1, keepdims=True)  # as those of one input channel
    if node.op == "Conv" and not is_padded(node):
        spatial = [1] * (weights.ndim - 2)
        return np.asarray(taps.reshape(len(taps), -1).sum(1).reshape(1, -1, *spatial))
    source = graph.type(node.input)
    if source.shape is None or not is_static(source.shape[2:]):
        return Refusal(
            "where the product reads nothing is the real 0, and the model does not tell the sizes",
            "fixed sizes",
            str(source),
            "export the model with fixed sizes, or quantize this input by constant ranges",
        )
    evaluate = node.spec.evaluate
    assert evaluate is not None
    sizes = [size for size in source.shape[2:] if isinstance(size, int)]
    ones = np.ones((1, 1 if node.op == "Conv" else len(taps), *sizes), np.float64)
    attrs = {**node.attrs, "group": 1} if node.op == "Conv" else node.attrs
    return np.asarray(evaluate([ones, taps], attrs)[0], np.float64)
