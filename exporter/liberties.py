"""Where ONNX Runtime's optimizations would compute other numbers than the model says.

What is told of ONNX Runtime is so in 1.31.1. A test shows each of it on a model of a few nodes, with
and without optimizations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType
from ..passes.retyping import carries_codes, moves_codes
from .names import Writer

_GENERATED = re.compile(r"gemm_(input|output)_shape|.+_token_\d+")

_ROW = 2
"""The size of a row that is not known, at least: with it, codes by the usual 1/256 do not overflow."""

_STORES = ("Quantize", "Div")
"""How a quantizer begins: by computed parameters it is Div, Round, Add, and Quantize of integers."""


def is_spelled(graph: Graph, node: Node) -> bool:
    """True of a Dequantize that is written as Cast, Sub and Mul.

    One by channel that a MatMul reads: ONNX Runtime's operator on codes ends the run. And one of constants
    that no other codes meet.

    As DequantizeLinear in front of a MatMul, ONNX Runtime makes MatMulNBits of it, which rounds the
    other operand to codes; in front of other operators it decodes the constants in each run. Cast,
    Sub and Mul it computes once.
    """
    readers = graph.consumers(node.output)
    if graph.constant(node.input) is None:
        return not node.quant.per_tensor and any(reader.op == "MatMul" for reader in readers)
    if graph.is_output(node.output):
        return False
    return not any(
        moves_codes(reader)
        or any(
            decode is not None and not is_spelled(graph, decode)
            for decode in map(graph.decoder, reader.inputs)
        )
        or (reader.op != "MatMul" and _decoded(graph, reader))
        for reader in readers
    )


def kept_apart(writer: Writer, graph: Graph, store: Node, value: str) -> str:
    """What a Quantize reads in place of the value that it quantizes, so that ONNX Runtime does not join it
    with what makes that, at the expense of the numbers.

    Where one of them has a scale for each channel, ONNX Runtime makes operators on codes that do not load
    then, or compute something else: a Sum of one value between. Behind a Dequantize of codes that
    another Quantize made, it takes one quantizer for the two: a Concat of one value between is a lookup
    in a table with both. Behind a Conv or Gemm (a MatMul with an Add) whose source is decoded, it makes
    codes of weights and bias that are constants in f32, whatever they lose: a Sum of one value between.
    So behind a Softmax whose quotients would overflow.
    """
    name = store.name
    if _meets_channels(graph, store, value) or would_overflow(graph, store):
        return writer.one("Sum", [value], name)
    shape, coded = graph.type(value).shape, graph.decoder(value) is not None
    if coded and shape:
        return writer.one("Concat", [value], name, axis=0)
    if coded and shape is None:  # it may be a scalar
        return writer.one("Sum", [value], name)
    return (
        writer.one("Sum", [value], name) if would_be_joined(graph, value, writer.spelled) else value
    )


def _meets_channels(graph: Graph, store: Node, value: str) -> bool:
    """True where the Quantize of a value follows an operation of decoded codes, or these, or what moves them
    or cuts them off, and one of them has a scale for each channel.
    """
    maker = graph.producer(value)
    while maker is not None and (moves_codes(maker) or maker.op in ("Relu", "Clip")):
        value = maker.inputs[0]
        maker = graph.producer(value)
    read = [value] if maker is None or maker.op == "Dequantize" else maker.inputs
    decodes = [decode for operand in read if (decode := graph.decoder(operand)) is not None]
    quants = [store.quant, *(decode.quant for decode in decodes)]
    return bool(decodes) and not all(quant.per_tensor for quant in quants)


def would_be_joined(graph: Graph, value: str, spelled: Collection[str] = ()) -> bool:
    """True where a quantizer of a value would make codes of f32 constants in the product in front of it;
    `spelled`: weights that are written as Cast and Mul, constants to ONNX Runtime.
    """
    maker = _in_front_of_activations(graph, value)
    if maker is None:
        return False
    if maker.op == "Add":
        products = [made for value in maker.inputs if (made := graph.producer(value, "MatMul"))]
    elif maker.op in ("Conv", "ConvTranspose", "Gemm"):
        products = [maker]
    else:
        return graph.decoder(value) is not None  # one quantizer for the two
    if not products:
        return False
    operands = {value for node in (maker, *products) for value in node.inputs}
    constants = any(value in graph.constants or value in spelled for value in operands)
    return constants and any(_decodes_moved(graph, value) for value in products[-1].inputs)


def _in_front_of_activations(graph: Graph, value: str) -> Node | None:
    """What makes a value, looking through the activations that ONNX Runtime takes into a quantizer."""
    maker = graph.producer(value)
    while maker is not None and maker.op in ("Relu", "Clip"):
        maker = graph.producer(maker.inputs[0])
    return maker


def would_overflow(graph: Graph, store: Node) -> bool:
    """True of the Quantize of a Softmax of codes whose scale is so small, as of nearly equal probabilities,
    that f32 overflows in ONNX Runtime's operator on codes, which gives 0 then.

    The operator scales exponentials so that the largest is the largest f32 number over the row's size
    and e^5, and multiplies that by the whole part of 1/scale.
    """
    softmax = graph.producer(store.input, "Softmax")
    if softmax is None or graph.decoder(softmax.input) is None:
        return False
    shape = graph.type(store.input).shape or ()
    size = shape[softmax.attr("axis", int)] if shape else _ROW
    room = math.exp(5) * (size if isinstance(size, int) else _ROW)
    return bool((1 / np.asarray(store.quant.scales) > room).any())


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
        if any(reader.op in _STORES for reader in readers):
            return True
        waiting += [reader.output for reader in readers if moves_codes(reader)]
    return False


def _decodes_moved(graph: Graph, value: str) -> bool:
    """True of computed codes, decoded and moved or not: ONNX Runtime writes a quantizer behind a move, too."""
    while (maker := graph.producer(value)) is not None and carries_codes(maker):
        value = maker.input
    return bool(graph.decoder(value) or graph.producer(value, "RunTimeDequantize"))


def _decoded(graph: Graph, node: Node) -> list[str]:
    """The operands of a node that are computed codes, decoded."""
    return [
        value
        for value in node.inputs
        if graph.decoder(value) or graph.producer(value, "RunTimeDequantize")
    ]


def give_up_generated_names(graph: Graph) -> None:
    """Renames constants that are called as ONNX Runtime calls what it makes of MatMul and Add, as a file has
    them that it optimized once.

    It gives the name again and refuses the model: "Attempt to replace the existing tensor".
    """
    for name in list(graph.constants):
        if _GENERATED.fullmatch(name) and not graph.is_output(name):
            kind = graph.type(name)
            held = graph.add_constant(f"{name}/held", graph.constants[name], kind.dtype, kind.quant)
            graph.replace_uses(name, held)
