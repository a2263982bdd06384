"""What codes are shifted by, once they are decoded, is added behind the product."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
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

    so that the product reads codes. For convolutions likewise; where windows
    reach into padding, S has an entry for each position: the sum of the weights that read something
    there.

    Legal because: products are linear in their source, and c is one number.
    Refuses when: c is several numbers, the weights are no constant codes, or they are padded and the
    model does not tell the sizes.
    """
    added = graph.producer(node.input, "Add")
    decode = None if added is None else graph.producer(added.inputs[0], "RunTimeDequantize")
    if added is None or decode is None or graph.constant(added.inputs[1]) is not None:
        return None
    shift = added.inputs[1]
    weights = graph.producer(node.inputs[1], "Dequantize")
    codes = None if weights is None else graph.constant(weights.input)
    if weights is None or codes is None:
        return Refusal(
            "the source is shifted by a computed number, and the weights are no constant codes",
            "weights that are constant codes",
            str(graph.type(node.inputs[1])),
            "quantize the weights by constant ranges, or feed ranges whose zero point is a whole number through "
            "QuantizeLinear and DequantizeLinear",
        )
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
    scale, zero = weights.quant.shaped(codes.ndim)
    real = (codes.astype(np.float64) - zero) * scale.astype(np.float64)
    sums = _sums(graph, node, real)
    if isinstance(sums, Refusal):
        return sums
    rank = graph.type(node.output).rank
    wide = sums.reshape((1,) * (rank - sums.ndim) + sums.shape)
    product = graph.again(node, [decode.output, *node.inputs[1:]])
    constant = graph.add_constant(f"{node.output}/sums", wide.astype(np.float32))
    lost = graph.part(added, "Mul", [constant, shift], "behind")
    made = graph.part(node, "Add", [product.output, lost], "shifted")
    swap(graph, node, made)
    return "behind the product, times the sums of the weights"


SHIFT_BEHIND_PRODUCT = NodePass(
    "shift_behind_product",
    Contract("identity", "ulp", 8),
    shift_behind_product,
    ("Conv", "MatMul"),
)


def _sums(graph: Graph, node: Node, weights: F64) -> F64 | Refusal:
    """The sums of the weights that each output multiplies: one for each column or channel, or one
    for each of its positions.
    """
    if node.op == "MatMul":
        return np.asarray(weights.sum(-2, keepdims=True))
    taps = weights.sum(1, keepdims=True)  # as those of one input channel
    if not is_padded(node):
        spatial = [1] * (weights.ndim - 2)
        return taps.reshape(len(taps), -1).sum(1).reshape(1, -1, *spatial)
    shape = (graph.type(node.input).shape or ())[2:]
    if not is_static(shape):
        return Refusal(
            "padding is the real 0, and the model does not tell the sizes of what is padded",
            "fixed sizes",
            str(graph.type(node.input)),
            "export the model with fixed sizes, or quantize this input by constant ranges",
        )
    evaluate = node.spec.evaluate
    assert evaluate is not None
    ones = np.ones((1, 1, *shape), np.float64)
    return np.asarray(evaluate([ones, taps], {**node.attrs, "group": 1})[0], np.float64)
