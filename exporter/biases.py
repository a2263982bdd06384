"""Biases of products: as codes of the accumulator, or where they keep the product on codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType, Quantization
from ..passes.base import swap

_MOST = 2**31 - 129
"""The largest code of a bias in f32 arithmetic: the next f32 below 2^31."""

_SHARE = 1 / 16
"""The largest part of a destination's step that rounding a bias may be."""

_PASSED = frozenset({"Relu", "Clip"})


def decoded_codes(graph: Graph, value: str) -> Node | None:
    """The Dequantize that makes a value of 8-bit codes with an integer zero point, or None."""
    node = graph.producer(value, "Dequantize")
    if node is None or not node.quant.integral:
        return None
    return node if graph.type(node.input).dtype in (DType.U8, DType.S8) else None


def stored_by(graph: Graph, value: str) -> Node | None:
    """The Quantize that alone reads a value, behind a relu or clip or not; None where there is
    another reader.
    """
    node = graph.sole_consumer(behind_activations(graph, value))
    return node if node is not None and node.op == "Quantize" else None


def behind_activations(graph: Graph, value: str) -> str:
    """A value, or what it becomes by a relu or clip that alone reads it."""
    node = graph.sole_consumer(value)
    while node is not None and node.op in _PASSED and node.input == value:
        value = node.output
        node = graph.sole_consumer(value)
    return value


def bias_codes(source: Node, weights: Node, bias: Array, store: Node) -> tuple[Array, Array] | None:
    """A bias as codes of the accumulator, and the scales of those: source scale times weights
    scale. None where the codes leave s32, or rounding to them could be seen in the destination.
    """
    quant = source.quant
    scales = quant.scales.astype(np.float64) * weights.quant.scales.astype(np.float64)
    if not quant.per_tensor or not store.quant.per_tensor or bias.ndim != 1:
        return None
    if (scales <= 0).any() or not np.isfinite(bias).all():
        return None
    factors = scales.astype(np.float32)
    if (factors < np.finfo(np.float32).tiny).any():
        return None
    units = factors.astype(np.float64)
    exact = bias.astype(np.float64)
    codes = np.rint(exact / units)
    lost = np.abs(exact - codes * units)
    if (np.abs(codes) > _MOST).any() or (
        lost > _SHARE * store.quant.scales.astype(np.float64)
    ).any():
        return None
    return codes.astype(np.int32), np.broadcast_to(factors, bias.shape)


def place_biases(graph: Graph) -> None:
    """Gives the biases of products of codes the form in which ONNX Runtime keeps the product on
    codes.

    Conv with a quantized destination: s32 codes behind a DequantizeLinear. MatMul whose bias is
    followed by a Quantize: the same, so that MatMul, Add and quantizers become a QGemm. MatMul
    that gives f32: its bias is added by a Sum, since an Add would make it a Gemm, which ONNX Runtime
    computes in f32 where no quantizer follows.
    """
    for node in list(graph.each("Conv")):
        if node.operand(2):
            _decode_bias(graph, node, node.inputs[2], 2, node.output)
    for product, add, index in list(_biased(graph)):
        value = add.inputs[index]
        if stored_by(graph, add.output) is None:
            swap(graph, add, graph.part(add, "Sum", add.inputs))
        else:
            _decode_bias(graph, product, value, index, add.output, add)


def _biased(graph: Graph) -> Iterator[tuple[Node, Node, int]]:
    """MatMul of codes, the Add of a constant vector behind it, and where that stands in the Add."""
    for node in graph.each("MatMul"):
        add = graph.sole_consumer(node.output)
        if add is None or add.op != "Add" or decoded_codes(graph, node.inputs[1]) is None:
            continue
        index = 1 - add.inputs.index(node.output)
        data = graph.constant(add.inputs[index])
        if data is not None and data.ndim == 1 and decoded_codes(graph, node.inputs[0]):
            yield node, add, index


def _decode_bias(
    graph: Graph, product: Node, bias: str, index: int, output: str, reader: Node | None = None
) -> None:
    source, weights = (decoded_codes(graph, value) for value in product.inputs[:2])
    store = stored_by(graph, output)
    data = graph.constant(bias)
    if source is None or weights is None or store is None or data is None:
        return
    found = bias_codes(source, weights, data, store)
    if found is None:
        return
    codes, scales = found
    name = graph.add_constant(f"{bias}/codes", codes)
    quant = Quantization(tuple(scales.tolist()), (0,) * scales.size, 0)
    decode = graph.add("Dequantize", [name], {"quant": quant}, name=f"{bias}/decoded")
    reader = reader or product
    inputs = [decode.output if i == index else value for i, value in enumerate(reader.inputs)]
    graph.set_inputs(graph.node(reader.name), inputs)
