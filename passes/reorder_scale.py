"""Multiplications by constants move backward over relu and its like and sums, into the weights in
front of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..ir.cleanup import erase_unread
from ..ir.graph import Graph
from ..ir.node import Node, origin_of, subject
from ..ir.ops.spec import Trait
from ..ir.paths import keeps_shape
from ..ir.rule import Refusal
from .base import Contract, NodePass, Verdict, rescaled, swap
from .fold_batch_norm import scaled_weights

F64 = npt.NDArray[np.float64]


def reorder_scale(graph: Graph, node: Node) -> Verdict:
    """Moves a multiplication by a constant towards the convolution in front, where it costs
    nothing.

    Before -> after::

        Mul(Relu(x), c)                     ->  Relu(Mul(x, c))                            c > 0; LeakyRelu, PRelu, Abs ... likewise
        Mul(Add(x, Dequantize(q){s, z}), c) ->  Add(Mul(x, c), Dequantize(q){s*c, z})      c one value
        Mul(Conv(x, W, b), c)               ->  Conv(x, W*c, b*c)                          c one value or one for each channel

    Legal because: relu(x)*c = relu(x*c) for c > 0, and so for whatever commutes with scales; (x +
    y)*c = x*c + y*c; convolution is linear in its weights. A negative c turns relu's sign test
    around, which is why it is refused there.
    Refuses when: c has an entry <= 0 in front of relu or its like, what stands in front is read by
    others too, or nothing in front could take c.
    """
    left, right = (graph.constant(value) for value in node.inputs)
    if (left is None) == (right is None):
        return None
    constant = np.asarray(right if left is None else left, np.float64)
    path = _path(graph, node, node.inputs[0 if left is None else 1], constant)
    if path is None or isinstance(path, Refusal):
        return path
    anchor, between = path
    factor = _per_channel(graph, anchor, constant)
    if factor is None or not np.all(np.isfinite(constant)) or not np.all(constant):
        return Refusal(
            "the factor cannot be folded into weights",
            "finite, not 0, one value or one for each channel",
            f"shape {list(constant.shape)}",
            "nothing to change: the factor becomes a post-op",
        )
    weights = scaled_weights(graph, anchor, factor)
    if weights is None:
        return None
    inputs = [anchor.input, weights]
    if anchor.operand(2):
        bias = np.asarray(graph.constant(anchor.inputs[2]), np.float64) * factor
        inputs.append(graph.add_constant(f"{anchor.inputs[2]}/scaled", bias.astype(np.float32)))
    value = graph.again(anchor, inputs, origin=origin_of(anchor, node)).output
    gone = [anchor]
    for op, place in reversed(between):
        inputs = list(op.inputs)
        inputs[place] = value
        if op.op == "Add":
            skip = 1 - place
            decode = graph.decoder(inputs[skip])
            assert decode is not None
            quant = rescaled(decode.quant, constant.reshape(()), decode.quant.axis)
            inputs[skip] = graph.again(decode, decode.inputs, {"quant": quant}).output
            gone.insert(0, decode)
        value = graph.again(op, inputs).output
        gone.append(op)
    swap(graph, node, value)
    erase_unread(graph, gone)
    return f"folded into the weights of {subject(anchor)}"


REORDER_SCALE = NodePass("reorder_scale", Contract("identity", "ulp", 256), reorder_scale, ("Mul",))


_Path = tuple[Node, list[tuple[Node, int]]]


def _path(graph: Graph, node: Node, value: str, constant: F64) -> _Path | Refusal | None:
    """The convolution that the factor can reach, and the nodes between it and the multiplication,
    last first, with the number of the input by which each passes it on.
    """
    between: list[tuple[Node, int]] = []
    reader = node
    while (front := graph.producer(value)) and graph.sole_consumer(value) is reader:
        if front.op in ("Conv", "ConvTranspose"):
            bias = front.operand(2)
            return (front, between) if not bias or graph.constant(bias) is not None else None
        if _passes_scales(graph, front):
            if np.any(constant <= 0):
                op, found = front.op.lower(), f"smallest factor {constant.min():g}"
                return Refusal(
                    f"{op}(x)*c = {op}(x*c) needs c > 0",
                    "c > 0",
                    found,
                    "nothing to change: a factor that is not positive stays behind the operation",
                )
            place: int | None = 0
        else:
            place = _beside_codes(graph, front, constant)
        if place is None:
            return None
        between.append((front, place))
        reader, value = front, front.inputs[place]
    return None


def _passes_scales(graph: Graph, node: Node) -> bool:
    """True for an elementwise operation of one computed value that commutes with positive
    factors.
    """
    alone = graph.computed(node.inputs) == [node.input] and keeps_shape(graph, node, node.input)
    return alone and node.has(Trait.ELEMENTWISE) and node.has(Trait.SCALE_COMMUTING)


def _beside_codes(graph: Graph, node: Node, constant: F64) -> int | None:
    """The operand of an Add whose other one is decoded, where these codes can decode to as much
    more as one value says; else None.
    """
    if node.op != "Add" or constant.size != 1:
        return None
    for index in (1, 0):
        decode = graph.decoder(node.inputs[index])
        if decode is not None:
            factor = constant.reshape(())
            return None if rescaled(decode.quant, factor, decode.quant.axis) is None else 1 - index
    return None


def _per_channel(graph: Graph, anchor: Node, constant: F64) -> F64 | None:
    """The factor as one entry for each output channel of a convolution, or None when it varies
    along another axis.
    """
    kind = graph.type(anchor.output)
    if kind.shape is None or not isinstance(kind.shape[1], int):
        return None
    channels = kind.shape[1]
    if constant.size == 1:
        return np.full(channels, constant.reshape(()))
    # where the channels are in the constant, aligned at the right
    axis = constant.ndim - kind.rank + 1
    if axis < 0 or constant.shape[axis] != channels or constant.size != channels:
        return None
    return constant.reshape(-1)
