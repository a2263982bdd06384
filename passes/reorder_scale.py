"""Multiplications by constants move backward over relu and its like and sums, into the weights in
front of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node, origin_of
from ..ir.ops.spec import Trait
from ..ir.paths import keeps_shape
from ..ir.types import Quantization
from .base import Contract, fired, fits_f32, refused, swap
from .fold_batch_norm import scaled_weights

__all__ = ["ReorderScale"]

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ReorderScale:
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

    name: ClassVar[str] = "reorder_scale"
    contract: ClassVar[Contract] = Contract("identity", "ulp", 256)

    def run(self, graph: Graph) -> None:
        """Moves every multiplication that ends in weights; others stay where they are."""
        for node in graph.each("Mul"):
            self._reorder(graph, node)

    def _reorder(self, graph: Graph, node: Node) -> None:
        left, right = (graph.constant(value) for value in node.inputs)
        if (left is None) == (right is None):
            return
        value = node.inputs[0] if left is None else node.inputs[1]
        constant = np.asarray(right if left is None else left, np.float64)
        path = self._path(graph, node, value, constant)
        if path is None:
            return
        anchor, between = path
        factor = _per_channel(graph, anchor, constant)
        if factor is None or not np.all(np.isfinite(constant)) or not np.all(constant):
            refused(
                graph,
                self.name,
                node,
                "the factor cannot be folded into weights",
                expected="finite, not 0, one value or one for each channel",
                found=f"shape {list(constant.shape)}",
            )
            return
        weights = scaled_weights(graph, anchor, factor)
        if weights is not None:
            self._apply(graph, node, anchor, between, weights, constant, factor)

    def _path(
        self, graph: Graph, node: Node, value: str, constant: F64
    ) -> tuple[Node, list[Node]] | None:
        """The convolution that the factor can reach, and the nodes between it and the
        multiplication, last first.
        """
        between: list[Node] = []
        reader = node
        while True:
            front = graph.producer(value)
            if front is None or graph.sole_consumer(value) is not reader:
                return None
            if front.op in ("Conv", "ConvTranspose"):
                bias = front.inputs[2] if len(front.inputs) > 2 else ""
                return (front, between) if not bias or graph.constant(bias) is not None else None
            passes = _passes_scales(graph, front)
            if passes:
                if np.any(constant <= 0):
                    refused(
                        graph,
                        self.name,
                        node,
                        f"{front.op.lower()}(x)*c = {front.op.lower()}(x*c) needs c > 0",
                        expected="c > 0",
                        found=f"smallest factor {constant.min():g}",
                    )
                    return None
            elif (
                front.op != "Add"
                or constant.size != 1
                or _scaled_skip(graph, front, constant) is None
            ):
                return None
            between.append(front)
            reader = front
            value = front.inputs[0] if passes else front.inputs[1 - _decoded_index(graph, front)]

    def _apply(
        self,
        graph: Graph,
        node: Node,
        anchor: Node,
        between: list[Node],
        weights: str,
        constant: F64,
        factor: F64,
    ) -> None:
        inputs = [anchor.inputs[0], weights]
        if len(anchor.inputs) > 2 and anchor.inputs[2]:
            bias = np.asarray(graph.constant(anchor.inputs[2]), np.float64) * factor
            inputs.append(graph.add_constant(f"{anchor.inputs[2]}/scaled", bias.astype(np.float32)))
        value = graph.add(
            anchor.op, inputs, anchor.attrs, name=anchor.name, origin=origin_of(anchor, node)
        ).output
        for op in reversed(between):
            if op.op != "Add":
                value = graph.add(
                    op.op, [value, *op.inputs[1:]], op.attrs, name=op.name, origin=op.origin
                ).output
                continue
            decode, scaled = _decoded(graph, op), _scaled_skip(graph, op, constant)
            assert decode is not None
            skip = graph.add(
                "Dequantize",
                decode.inputs,
                {"quant": scaled},
                name=decode.name,
                origin=decode.origin,
                quantizer=decode.quantizer,
            )
            pair = [value, skip.output] if _decoded_index(graph, op) == 1 else [skip.output, value]
            value = graph.add("Add", pair, op.attrs, name=op.name, origin=op.origin).output
        fired(graph, self.name, node, f"folded into the weights of {anchor.name}")
        swap(graph, node, value)
        for op in [*between, anchor]:
            decode = _decoded(graph, op) if op.op == "Add" else None
            graph.erase(op)
            if decode is not None and not graph.is_read(decode.output):
                graph.erase(decode)


def _passes_scales(graph: Graph, node: Node) -> bool:
    """True for an elementwise operation of one computed value that commutes with positive
    factors.
    """
    computed = [value for value in node.inputs if value and graph.constant(value) is None]
    alone = computed == [node.inputs[0]] and keeps_shape(graph, node, node.inputs[0])
    return alone and node.has(Trait.ELEMENTWISE) and node.has(Trait.SCALE_COMMUTING)


def _decoded_index(graph: Graph, add: Node) -> int:
    """Which operand of an Add is a Dequantize of per-tensor codes: 1, 0, or -1 for none."""
    for index in (1, 0):
        front = graph.producer(add.inputs[index])
        if (
            front is not None
            and front.op == "Dequantize"
            and graph.constant(front.inputs[0]) is None
        ):
            return index
    return -1


def _decoded(graph: Graph, add: Node) -> Node | None:
    index = _decoded_index(graph, add)
    return None if index < 0 else graph.producer(add.inputs[index])


def _scaled_skip(graph: Graph, add: Node, constant: F64) -> Quantization | None:
    """How the decoded operand of an Add decodes when it is multiplied by one value; None without
    one, or beyond f32.
    """
    decode = _decoded(graph, add)
    if decode is None:
        return None
    quant = decode.attr("quant", Quantization)
    scales = quant.scales.astype(np.float64) * constant.reshape(())
    return Quantization.of(scales, quant.zero_points, quant.axis) if fits_f32(scales) else None


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
    axis = (
        constant.ndim - kind.rank + 1
    )  # where the channels are in the constant, aligned at the right
    if axis < 0 or constant.shape[axis] != channels or constant.size != channels:
        return None
    return constant.reshape(-1)
