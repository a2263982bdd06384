"""Quantize moves backward, next to what computes the value."""

from __future__ import annotations

import math

from ..ir.graph import Graph
from ..ir.node import Node, subject
from ..ir.ops.spec import Trait
from ..ir.rule import Refusal
from ..ir.types import DType, Quantization, is_static
from .base import Contract, Pass, decide, swap
from .retyping import moves_codes


def move_quantize(graph: Graph) -> None:
    """Moves Quantize in front of operations that commute with it.

    Before -> after::

        Quantize(Op(x)){p}              ->  Op(Quantize(x){p})               Op moves data or selects by order (max pool)
        Quantize(Concat(x, y)){p}       ->  Concat(Quantize(x){p}, Quantize(y){p})
        Quantize(Concat(Slice(x), Slice(x)))  ->  Concat(Slice(z), Slice(z))           z = Quantize(x){p}

    so that the values are stored in 8 bits by the primitive that computes them, and the operation
    handles a quarter of the bytes.

    Legal because: Quantize works element by element, and is non-decreasing for scale > 0.
    Refuses when: another reader wants the values of Op in f32, the parameters run along an axis, a
    scale is negative, or Op fills in values that x does not have (Pad), which needs their code; Op takes
    a part of an input of the graph, which all of it would be quantized for; an
    input of Concat is stored as other codes that are read elsewhere too, or
    the codes have 16 bits: primitives join f32 only.
    """
    # Against topological order, so that a Quantize goes as far as it can in one run.
    pending = [node.name for node in graph.nodes() if node.op == "Quantize"]
    while pending:
        name = pending.pop()
        if name in graph:
            node = graph.node(name)
            op = graph.producer(node.input)
            if op is not None and moves_codes(op):
                verdict = _refusal(graph, node, op) or f"in front of {subject(op)}"
                decide(graph, MOVE_QUANTIZE.name, node, verdict)
                if isinstance(verdict, str):
                    # at the end of the queue, so that all parts of a value are in front of it when its own turn comes
                    pending[:0] = _moved(graph, node, op)


MOVE_QUANTIZE = Pass("move_quantize", Contract("identity", "bitwise"), move_quantize)


def _moved(graph: Graph, node: Node, op: Node) -> list[str]:
    """Moves a Quantize one step back; returns the names of those that stand in front now."""
    count = len(op.inputs) if op.has(Trait.JOINS) else 1
    fronts = [
        _alike(graph, node, value) or _before(graph, node, value) for value in op.inputs[:count]
    ]
    inputs = [*(front.output for front in fronts), *op.inputs[count:]]
    swap(graph, node, graph.again(op, inputs, value=f"{op.output}/codes").output)
    graph.erase(op)
    return [front.name for front in fronts]


def _alike(graph: Graph, node: Node, value: str) -> Node | None:
    """A Quantize of `value` that does the same and is already there, because it came from the same one by
    another way: a value is cut, its parts are joined again and quantized, and each part brought it here.
    """
    return next(
        (
            reader
            for reader in graph.consumers(value)
            if (reader.op, reader.quantizer) == (node.op, node.quantizer)
            and reader.name != node.name
            and reader.attrs == node.attrs
        ),
        None,
    )


def _before(graph: Graph, node: Node, value: str) -> Node:
    return graph.again(node, [value], value=f"{value}/codes")


def _refusal(graph: Graph, node: Node, op: Node) -> Refusal | None:
    """Why a Quantize cannot pass the operation in front; None when it can."""
    quant, joins = node.quant, op.has(Trait.JOINS)
    if not quant.per_tensor or quant.scale[0] <= 0:
        found = f"axis {quant.axis}" if quant.axis is not None else f"scale {quant.scale[0]:g}"
        reason = "the quantization cannot pass the operation in front"
        return Refusal(
            reason, "per-tensor, scale > 0", found, "quantize per tensor, with a positive scale"
        )
    if graph.sole_consumer(op.output) != node:
        found = f"{graph.read_count(op.output) + graph.is_output(op.output)} consumers"
        return Refusal(
            f"others read the f32 result of {subject(op)} too",
            "one consumer",
            found,
            "quantize the other readers too, so that nobody reads f32 here",
        )
    if (part := _part_of_input(graph, op)) is not None:
        return part
    if joins and node.attr("dtype", DType).is_wide_code:
        reason = "values are joined before they become 16-bit codes"
        return Refusal(
            reason, "8-bit codes", graph.type(node.output).dtype.value, "quantize to 8 bits"
        )
    shared = _shared_codes(graph, op, quant) if joins else None
    if shared is None:
        return None
    return Refusal(
        f"{shared} has codes already, and others read them: the joined codes are requantized once instead",
        "inputs that nothing else reads, or codes with the same parameters",
        "codes with other parameters",
        "nothing to change where a step behind rescales the codes on its way; where they take a step of their own, "
        "that has a finding (requantized)",
    )


def _part_of_input(graph: Graph, op: Node) -> Refusal | None:
    """Why what is fed is cut before it is quantized: no primitive stores it in 8 bits on the way, and
    a body of a Loop would quantize all of it in each trip.
    """
    ends = [graph.type(value) for value in (op.input, op.output)]
    if op.op not in ("Gather", "Slice") or graph.producer(op.input) is not None:
        return None
    if not all(is_static(end.shape) for end in ends):
        return None
    source, made = (math.prod(end.static_shape) for end in ends)
    if made >= source:
        return None
    told = f"{subject(op)} takes a part of an input, which no step computes"
    found = f"{made} of {source} elements"
    return Refusal(told, "a value that a step stores", found, "nothing to change")


def _shared_codes(graph: Graph, concat: Node, quant: Quantization) -> str | None:
    """An input of the concatenation that is stored as codes with other parameters and is read
    elsewhere too, or None.

    Codes that nothing else reads are rescaled by what makes them, for nothing.
    """
    for value in concat.inputs:
        decode = graph.producer(value, "Dequantize")
        if decode is not None and decode.quant != quant:
            alone = (
                graph.sole_consumer(value) is concat and graph.sole_consumer(decode.input) is decode
            )
            if not alone or graph.producer(decode.input) is None:
                return value
    return None
