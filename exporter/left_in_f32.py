"""What reads codes in the model, and what ONNX Runtime computes in f32 all the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from ..ir.graph import Graph
from ..ir.node import Node
from ..passes.retyping import moves_codes
from .biases import decoded_codes, stored_by
from .liberties import would_be_joined
from .qoperator import OPERATORS

_ON_CODES = frozenset({"Quantize", "Dequantize", "DynamicQuantizeLSTM"})
"""Quantizers, and what makes codes of its input itself."""

CONVOLUTION = "ONNX Runtime multiplies codes in a convolution only where a quantizer reads its result; --calibrate adds one"
"""Why a convolution of codes is left in f32. Between it and the quantizer relu or clip may stand."""

_OPERAND = (
    "not all operands have codes of the result's type, by one scale and an integer zero point"
)
_RESULT = "no quantizer reads the result, so that ONNX Runtime has no operator on codes for it"
_SOURCE = "its input is not quantized with one scale and an integer zero point"
_CHANNELS = "its input has a scale for each channel; --calibrate gives it one for all of them"
_RUN_TIME = (
    "a scale of its inputs is computed in each run, and ONNX Runtime multiplies such codes no slower than "
    "f32 only in a matrix product of u8 with constant weights"
)
_WEIGHTS = "its weights are no codes with an integer zero point"
_BIAS = "its bias leaves 32 bits, or would lose digits in codes"
_TRANSPOSED = "ONNX Runtime has no deconvolution of codes"
_CODES = "ONNX Runtime has no such product of its codes: their types or zero points do not fit"


def products_in_f32(graph: Graph, taken: Collection[str]) -> Iterator[tuple[Node, str]]:
    """The convolutions and matrix products that the model quantizes at least in part and ONNX Runtime
    does not fuse in Q/DQ form, each with the reason; `taken`: the names of those that an operator on
    codes computes in this form, too.
    """
    for node in graph.nodes():
        if node.op not in _REASONS or node.name in taken:
            continue
        if why := _REASONS[node.op](graph, node):
            yield node, why


def products_without_operator(graph: Graph, taken: Collection[str]) -> Iterator[tuple[Node, str]]:
    """The convolutions and matrix products of quantized inputs that no operator on codes computes, each
    with the reason; `taken`: the names of those that one does.
    """
    for node in graph.nodes():
        if node.op in _REASONS and node.name not in taken and _is_quantized(graph, node):
            yield node, _REASONS[node.op](graph, node) or _CODES


def operations_in_f32(graph: Graph, taken: Collection[str]) -> Iterator[tuple[Node, str]]:
    """Other operations that read codes which are computed, and that ONNX Runtime computes in f32 between a
    DequantizeLinear and what follows; not those that only move them, nor the ones that are ``taken``.
    """
    for node in graph.nodes():
        if node.op in _REASONS or node.op in _ON_CODES or moves_codes(node) or node.name in taken:
            continue
        if any(_decoded(graph, value) for value in node.inputs):
            yield node, _why_in_f32(graph, node)


def _why_in_f32(graph: Graph, node: Node) -> str:
    if node.op not in OPERATORS and node.op != "Sum":  # which an Add may be written as
        return f"ONNX Runtime has no {node.op} of codes"
    store = graph.sole_consumer(node.output)
    stored = store is not None and store.op == "Quantize" and store.quant.per_tensor
    return _OPERAND if stored else _RESULT


def decoded_weights(graph: Graph, products: Iterable[Node]) -> set[str]:
    """The weights of convolutions that stay f32, in codes, which nothing else reads: DequantizeLinear is
    computed in each run, and ConvInteger takes three times as long as the convolution in f32.
    """
    found: set[str] = set()
    for node in products:
        decode = decoded_codes(graph, node.inputs[1]) if node.op != "MatMul" else None
        if decode is not None and graph.constant(decode.input) is not None:
            readers = graph.consumers(decode.output)
            found |= {decode.output} if readers == [node] else set()
    return found


def _is_quantized(graph: Graph, node: Node) -> bool:
    """True where an operand decodes codes that are computed: of weights alone nobody expects int8."""
    return any(_decoded(graph, v) or _decoded_at_run_time(graph, v) for v in node.inputs[:2])


def _decoded(graph: Graph, value: str) -> bool:
    """True of a value that decodes codes which are computed."""
    decode = graph.producer(value, "Dequantize") if value else None
    return decode is not None and graph.constant(decode.input) is None


def _decoded_at_run_time(graph: Graph, value: str) -> bool:
    """True of a value that decodes codes whose scale is computed in each run."""
    return bool(value) and graph.producer(value, "RunTimeDequantize") is not None


def _operands(graph: Graph, node: Node) -> str:
    if any(_decoded_at_run_time(graph, value) for value in node.inputs[:2]):
        return _RUN_TIME
    source, weights = (decoded_codes(graph, value) for value in node.inputs[:2])
    if source is None:
        return _SOURCE
    if not source.quant.per_tensor:
        return _CHANNELS
    return _WEIGHTS if weights is None else ""


def _convolution(graph: Graph, node: Node) -> str:
    if not _is_quantized(graph, node):
        return ""
    if found := _operands(graph, node):
        return found
    if stored_by(graph, node.output) is None:
        return f"{CONVOLUTION}: here {_reader(graph, node)}"
    return _BIAS if would_be_joined(graph, node.output) else ""


def _reader(graph: Graph, node: Node) -> str:
    """What reads the result of a product, instead of one quantizer."""
    readers = graph.consumers(node.output)
    if graph.is_output(node.output):
        return "the model returns it"
    if len(readers) == 1:
        return f"{readers[0].op} does"
    return "several nodes do"


def _matmul(graph: Graph, node: Node) -> str:
    return _operands(graph, node) if _is_quantized(graph, node) else ""


def _deconvolution(graph: Graph, node: Node) -> str:
    return _TRANSPOSED if _is_quantized(graph, node) else ""


_REASONS: dict[str, Callable[[Graph, Node], str]] = {
    "Conv": _convolution,
    "ConvTranspose": _deconvolution,
    "MatMul": _matmul,
}
