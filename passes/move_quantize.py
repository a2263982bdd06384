"""Quantize moves backward, next to what computes the value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Trait
from ..ir.types import DType, Quantization
from .base import Contract, fired, refused, swap
from .retyping import moves_codes

__all__ = ["MoveQuantize"]


@dataclass(frozen=True)
class MoveQuantize:
    """Moves Quantize in front of operations that commute with it.

    Before -> after::

        Quantize(Op(x)){p}              ->  Op(Quantize(x){p})               Op moves data or selects by order (max pool)
        Quantize(Concat(x, y)){p}       ->  Concat(Quantize(x){p}, Quantize(y){p})

    so that the values are stored in 8 bits by the primitive that computes them, and the operation
    handles a quarter of the bytes.

    Legal because: Quantize works element by element, and is non-decreasing for scale > 0.
    Refuses when: another reader wants the values of Op in f32, the parameters run along an axis, a
    scale is negative, or Op fills in values that x does not have (Pad), which needs their code; an
    input of Concat is stored as other codes that are read elsewhere too, or
    the codes have 16 bits: primitives join f32 only.
    """

    name: ClassVar[str] = "move_quantize"
    contract: ClassVar[Contract] = Contract("identity", "bitwise")

    def run(self, graph: Graph) -> None:
        """Against topological order, so that a Quantize goes as far as it can in one run."""
        pending = [node.name for node in graph.nodes() if node.op == "Quantize"]
        while pending:
            name = pending.pop()
            if name in graph:
                pending += [front.name for front in self._move(graph, graph.node(name))]

    def _move(self, graph: Graph, node: Node) -> list[Node]:
        """Moves one step back; returns the Quantize nodes that stand in front now."""
        op = graph.producer(node.inputs[0])
        if op is None or not moves_codes(op):
            return []
        refusal = _refusal(graph, node, op)
        if refusal is not None:
            reason, expected, found = refusal
            refused(graph, self.name, node, reason, expected=expected, found=found)
            return []
        moved = len(op.inputs) if op.has(Trait.JOINS) else 1
        fronts = [_quantized(graph, node, value) for value in op.inputs[:moved]]
        inputs = [*(front.output for front in fronts), *op.inputs[moved:]]
        name = graph.fresh(f"{op.output}/codes")
        swap(
            graph,
            node,
            graph.add(
                op.op, inputs, op.attrs, name=op.name, outputs=[name], origin=op.origin
            ).output,
        )
        graph.erase(op)
        fired(graph, self.name, node, f"in front of {op.name}")
        return fronts


def _quantized(graph: Graph, node: Node, value: str) -> Node:
    name = graph.fresh(f"{value}/codes")
    return graph.add(
        "Quantize",
        [value],
        node.attrs,
        name=node.name,
        outputs=[name],
        origin=node.origin,
        quantizer=node.quantizer,
    )


def _refusal(graph: Graph, node: Node, op: Node) -> tuple[str, str, str] | None:
    """Why a Quantize cannot pass the operation in front: reason, what is expected, what is found;
    None when it can.
    """
    quant = node.attr("quant", Quantization)
    if not quant.per_tensor or quant.scale[0] <= 0:
        found = f"axis {quant.axis}" if quant.axis is not None else f"scale {quant.scale[0]:g}"
        return "the quantization cannot pass the operation in front", "per-tensor, scale > 0", found
    if graph.sole_consumer(op.output) != node:
        found = f"{graph.read_count(op.output) + graph.is_output(op.output)} consumers"
        return f"others read the f32 result of {op.name} too", "one consumer", found
    if op.has(Trait.JOINS) and node.attr("dtype", DType).is_wide_code:
        return (
            "values are joined before they become 16-bit codes",
            "8-bit codes",
            graph.type(node.output).dtype.value,
        )
    shared = _shared_codes(graph, op, quant) if op.has(Trait.JOINS) else None
    if shared is not None:
        reason = f"{shared} has codes already, and others read them: the joined codes are requantized once instead"
        return (
            reason,
            "inputs that nothing else reads, or codes with the same parameters",
            "codes with other parameters",
        )
    return None


def _shared_codes(graph: Graph, concat: Node, quant: Quantization) -> str | None:
    """An input of the concatenation that is stored as codes with other parameters and is read
    elsewhere too, or None.

    Codes that nothing else reads are rescaled by what makes them, for nothing.
    """
    for value in concat.inputs:
        decode = graph.producer(value)
        if decode is not None and decode.op == "Dequantize" and decode.attrs["quant"] != quant:
            alone = (
                graph.sole_consumer(value) is concat
                and graph.sole_consumer(decode.inputs[0]) is decode
            )
            if not alone or graph.producer(decode.inputs[0]) is None:
                return value
    return None
