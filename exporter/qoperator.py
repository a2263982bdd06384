"""Dequantize -> op -> Quantize as one operator on codes.

ONNX has QLinearConv and QLinearMatMul; the others are ONNX Runtime's own (`com.microsoft`). Each
match looks at the graph alone; what a fused operator makes superfluous is dropped when the model
is written, since nothing reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array
from ..ir.types import DType
from .biases import bias_codes, decoded_codes
from .liberties import would_overflow
from .names import MICROSOFT, Writer
from .quantizers import codes_of, parameters, write_clip
from .rows import says_nothing

Fused = Callable[[Writer], None]
"""Writes what stands in place of a node."""

OPERATORS = {
    "Add": "QLinearAdd",
    "AveragePool": "QLinearAveragePool",
    "Concat": "QLinearConcat",
    "GlobalAveragePool": "QLinearGlobalAveragePool",
    "LeakyRelu": "QLinearLeakyRelu",
    "Mul": "QLinearMul",
    "Sigmoid": "QLinearSigmoid",
    "Softmax": "QLinearSoftmax",
}
"""ONNX Runtime's own, whose operands have all the type of the destination."""


def fused_operators(graph: Graph) -> dict[str, Fused]:
    """The last node of each group of nodes that one operator computes -> what writes that."""
    found: dict[str, Fused] = {}
    for store in graph.each("Quantize"):
        fused = _stored(graph, store)
        if fused is not None:
            found[store.name] = fused
    for product in graph.each("MatMul"):
        last, fused = _real_product(graph, product)
        if fused is not None:
            found[last.name] = fused
    return found


def operations_of(graph: Graph, fused: Collection[str]) -> set[str]:
    """The operations that are in fused operators, which are known by their last nodes."""
    found: set[str] = set()
    for name in fused:
        last = graph.node(name)
        core = graph.producer(last.input) if last.op == "Quantize" else last
        biased = None if core is None else _bias_behind(graph, core)
        found |= {node.name for node in (core, biased and biased[0]) if node is not None}
    return found


# -- with a quantized destination ------------------------------------------------------------------


@dataclass(frozen=True)
class _Store:
    """The codes that a fused operator writes.

    Attributes:
        graph: where it stands.
        node: the Quantize.
    """

    graph: Graph
    node: Node

    @property
    def dtype(self) -> DType:
        """Of the codes."""
        return self.node.attr("dtype", DType)

    def write(
        self,
        writer: Writer,
        op: str,
        inputs: Sequence[str],
        last: Sequence[str] = (),
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Writes the operator: its inputs, the destination's parameters, what comes behind them; of
        a concatenation, which has any number of inputs, the parameters come first.
        """
        parts = parameters(writer, self.node.output, self.node.quant, self.dtype)
        ordered = [*parts, *inputs] if op == "QLinearConcat" else [*inputs, *parts, *last]
        codes = codes_of(writer, self.node)
        writer.node(op, ordered, [codes], self.node.name, domain, **attributes)
        write_clip(writer, self.node, codes)


def _stored(graph: Graph, node: Node) -> Fused | None:
    """What writes a Quantize together with the operation in front of it."""
    core = graph.producer(node.input)
    dtype = node.attr("dtype", DType)
    fits = node.quant.per_tensor and node.quant.integral and dtype in (DType.U8, DType.S8)
    if core is None or not fits or graph.sole_consumer(node.input) is not node:
        return None
    if would_overflow(graph, node):
        return None
    store = _Store(graph, node)
    if core.op == "Conv":
        return _convolution(store, core)
    if core.op == "MatMul":
        return _product(store, core, None)
    if core.op not in OPERATORS:
        return None
    return _biased_product(store, core) or _of_one_type(store, core)


def _operand(graph: Graph, value: str, dtype: DType) -> Node | None:
    """The Dequantize of codes of that type with one scale and an integer zero point."""
    node = decoded_codes(graph, value)
    if node is None or not node.quant.per_tensor or graph.type(node.input).dtype is not dtype:
        return None
    return node


def _read(writer: Writer, graph: Graph, node: Node) -> list[str]:
    """Codes, scale and zero point of an operand."""
    kind = graph.type(node.input)
    return [node.input, *parameters(writer, node.output, node.quant, kind.dtype)]


def _weights(graph: Graph, value: str, axis: int) -> Node | None:
    """The Dequantize of weights: per tensor, or along their output channels without zero points."""
    node = decoded_codes(graph, value)
    if node is None:
        return None
    quant = node.quant
    return node if quant.per_tensor or (quant.axis == axis and quant.symmetric) else None


def _convolution(store: _Store, node: Node) -> Fused | None:
    graph = store.graph
    source = _operand(graph, node.inputs[0], store.dtype)
    weights = _weights(graph, node.inputs[1], 0)
    if source is None or weights is None:
        return None
    codes = _codes_of_bias(graph, source, weights, node.operand(2), store.node)
    if node.operand(2) and codes is None:
        return None
    attributes = _geometry(node)

    def write(writer: Writer) -> None:
        inputs = _read(writer, graph, source) + _read(writer, graph, weights)
        last = [] if codes is None else [writer.constant(f"{node.operand(2)}/codes", codes)]
        store.write(writer, "QLinearConv", inputs, last, **attributes)

    return write


def _codes_of_bias(
    graph: Graph, source: Node, weights: Node, bias: str, store: Node
) -> Array | None:
    data = graph.constant(bias) if bias else None
    found = None if data is None else bias_codes(source, weights, data, store)
    return None if found is None else found[0]


def _biased_product(store: _Store, add: Node) -> Fused | None:
    """A MatMul with a constant vector behind it, as a QGemm."""
    found = _bias_behind(store.graph, add)
    return None if found is None else _product(store, *found)


def _bias_behind(graph: Graph, add: Node) -> tuple[Node, str] | None:
    """The MatMul in front of an Add of a constant vector, and that."""
    if add.op != "Add":
        return None
    for index in (0, 1):
        product = graph.producer(add.inputs[index], "MatMul")
        bias = graph.constant(add.inputs[1 - index])
        if product is None or bias is None or graph.sole_consumer(product.output) is not add:
            continue
        columns = (graph.type(product.inputs[1]).shape or (None,))[-1]
        if bias.size == columns and bias.shape[-1:] == (columns,):
            return product, add.inputs[1 - index]
    return None


def _product(store: _Store, node: Node, bias: str | None) -> Fused | None:
    graph = store.graph
    source = _operand(graph, node.inputs[0], store.dtype)
    weights = _weights(graph, node.inputs[1], len(graph.type(node.inputs[1]).shape or ()) - 1)
    if source is None or weights is None:
        return None
    if bias is None:

        def plain(writer: Writer) -> None:
            inputs = _read(writer, graph, source) + _read(writer, graph, weights)
            store.write(writer, "QLinearMatMul", inputs)

        return plain
    data = graph.constant(bias)
    around = _as_matrix(graph, node)
    flat = None if data is None else data.reshape(-1)
    found = None if flat is None else bias_codes(source, weights, flat, store.node)
    if found is None or around is None:
        return None
    codes = found[0]

    def write(writer: Writer) -> None:
        (matrix, *rest) = _read(writer, graph, source)
        name = store.node.name
        if around:
            shape = writer.constant(f"{name}/rows", np.asarray([-1, around[0]], np.int64))
            matrix = writer.one("Reshape", [matrix, shape], name)
        inputs = [matrix, *rest, *_read(writer, graph, weights)]
        inputs.append(writer.constant(f"{bias}/codes", codes))
        parts = parameters(writer, store.node.output, store.node.quant, store.dtype)
        target = codes_of(writer, store.node)
        made = writer.fresh(f"{target}/matrix") if around else target
        writer.node("QGemm", [*inputs, *parts], [made], name, MICROSOFT)
        if around:
            shape = writer.constant(f"{name}/shape", np.asarray(around[1], np.int64))
            writer.node("Reshape", [made, shape], [target], f"{name}/Reshape")
        write_clip(writer, store.node, target)

    return write


def _as_matrix(graph: Graph, node: Node) -> tuple[int, list[int]] | tuple[()] | None:
    """How the source of a product becomes a matrix: the length of its rows, and the shape of the
    result; () where it is one, None where more than one size of the result is open.
    """
    if len(graph.type(node.inputs[1]).shape or ()) != 2:
        return None
    shape, result = graph.type(node.inputs[0]).shape, graph.type(node.output).shape
    if shape is None or result is None or not isinstance(shape[-1], int):
        return None
    if len(shape) == 2:
        return ()
    open_sizes = [size for size in result if not isinstance(size, int)]
    if len(shape) < 2 or len(open_sizes) > 1 or 0 in result:
        return None
    return shape[-1], [size if isinstance(size, int) else -1 for size in result]


def _of_one_type(store: _Store, node: Node) -> Fused | None:
    graph = store.graph
    operands = [_operand(graph, value, store.dtype) for value in node.inputs]
    decodes = [operand for operand in operands if operand is not None]
    attributes = _attributes(node)
    if len(decodes) < len(operands) or "dilations" in attributes:
        return None

    def write(writer: Writer) -> None:
        inputs = [name for decode in decodes for name in _read(writer, graph, decode)]
        store.write(writer, OPERATORS[node.op], inputs, domain=MICROSOFT, **attributes)

    return write


def _attributes(node: Node) -> dict[str, Any]:
    """The attributes of ONNX Runtime's own operators."""
    found = {name: node.attrs[name] for name in ("alpha", "axis") if name in node.attrs}
    if node.op == "Softmax":
        found["opset"] = 13
    if node.op == "GlobalAveragePool":
        found["channels_last"] = 0
    return found | _geometry(node)


def _geometry(node: Node) -> dict[str, Any]:
    """The attributes of a window that are not at their defaults."""
    names = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "group", "kernel_shape")
    found = {name: node.attrs.get(name) for name in (*names, "pads", "strides")}
    return {name: value for name, value in found.items() if not says_nothing(name, value)}


# -- with a real destination -----------------------------------------------------------------------


def _real_product(graph: Graph, node: Node) -> tuple[Node, Fused | None]:
    """A product of codes that gives f32, with the constant vector behind it: the last node, and
    what writes it.
    """
    source = _operand(graph, node.inputs[0], DType.U8)
    weights = _weights(graph, node.inputs[1], len(graph.type(node.inputs[1]).shape or ()) - 1)
    if source is None or weights is None:
        return node, None
    last, bias = node, ""
    add = graph.sole_consumer(node.output)
    found = None if add is None else _bias_behind(graph, add)
    if add is not None and found is not None:
        last, bias = add, found[1]

    def write(writer: Writer) -> None:
        a, a_scale, a_zero = _read(writer, graph, source)
        b, b_scale, b_zero = _read(writer, graph, weights)
        vector = graph.constant(bias) if bias else None
        added = "" if vector is None else writer.constant(f"{bias}/vector", vector.reshape(-1))
        inputs = [a, b, a_scale, b_scale, a_zero, b_zero, added]
        writer.node("MatMulIntegerToFloat", inputs, [last.output], last.name, MICROSOFT)

    return last, write
