"""Where ONNX Runtime's optimizations would compute other numbers than the model says.

What is told of ONNX Runtime is so in 1.31.1. A test shows each of it on a model of a few nodes, with
and without optimizations.
"""

from __future__ import annotations

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from ..passes.retyping import moves_codes

__all__ = ["is_folded", "would_be_joined", "would_be_quantized"]


def is_folded(graph: Graph, node: Node) -> bool:
    """True of a Dequantize of constants that no other codes meet.

    As DequantizeLinear in front of a MatMul, ONNX Runtime makes MatMulNBits of it, which rounds the
    other operand to codes; in front of other operators it decodes the constants in each run. Cast,
    Sub and Mul it computes once.
    """
    if graph.constant(node.input) is None or graph.is_output(node.output):
        return False
    readers = graph.consumers(node.output)
    return not any(
        moves_codes(reader)
        or any(map(graph.decoder, reader.inputs))
        or (reader.op != "MatMul" and _decoded(graph, reader))
        for reader in readers
    )


def would_be_joined(graph: Graph, store: Node) -> bool:
    """True of a Quantize that ONNX Runtime joins with what is in front of it, at the expense of the
    numbers; a Sum or Concat of one value between keeps them apart.

    Behind a Dequantize of codes that another Quantize made, it takes one quantizer for the two.
    Behind a Conv or Gemm (a MatMul with an Add) whose source is decoded, it makes codes of weights
    and bias that are constants in f32, whatever they lose.
    """
    maker = graph.producer(store.input)
    if maker is not None and maker.op == "Dequantize":
        return graph.decoder(maker.output) is not None
    while maker is not None and maker.op in ("Relu", "Clip"):
        maker = graph.producer(maker.inputs[0])
    if maker is None:
        return False
    parts = [maker]
    if maker.op == "Add":
        parts += [node for value in maker.inputs if (node := graph.producer(value, "MatMul"))]
        if len(parts) == 1:
            return False
    elif maker.op not in ("Conv", "ConvTranspose", "Gemm"):
        return False
    operands = [value for part in parts for value in part.inputs]
    return bool(_decoded(graph, parts[-1])) and any(value in graph.constants for value in operands)


def would_be_quantized(graph: Graph, output: str) -> bool:
    """True of an output of the model in f32 next to which a Quantize stands, with nothing but moved
    data between: ONNX Runtime takes the Quantize in front of the move, and returns what it wrote.
    """
    if graph.type(output).dtype is not DType.F32 or graph.producer(output) is None:
        return False
    root, maker = output, graph.producer(output)
    while maker is not None and moves_codes(maker):
        root, maker = maker.inputs[0], graph.producer(maker.inputs[0])
    waiting = [root]
    while waiting:
        readers = graph.consumers(waiting.pop())
        if any(reader.op == "Quantize" for reader in readers):
            return True
        waiting += [reader.output for reader in readers if moves_codes(reader)]
    return False


def _decoded(graph: Graph, node: Node) -> list[str]:
    """The operands of a node that are computed codes, decoded."""
    return [
        value
        for value in node.inputs
        if graph.decoder(value) or graph.producer(value, "RunTimeDequantize")
    ]
