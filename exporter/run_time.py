"""Quantization by parameters that are computed in each run, in the operators that ONNX has for it.

The frontend takes them apart (`frontend/operators/run_time.py`); runtimes know them whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import DType, Quantization
from .biases import decoded_codes
from .liberties import kept_apart
from .names import Writer

_ONES = Quantization((1.0,))
_LONGEST = 2**31 // (255 * 255)
"""Products of codes that 32 bits hold the sum of, whatever they are."""


def run_time_operators(graph: Graph) -> dict[str, Callable[[Writer], None]]:
    """The last node of each group of nodes -> what writes the operator that computes it::

        Quantize{1,0}(Round(Div(x, s)) + z)                 QuantizeLinear(x, s, z)
        the same, of s, z = DynamicRange(x)                 DynamicQuantizeLinear(x)
        MatMul(RunTimeDequantize(q, s, z), Dequantize(w){t, y})
                                                  Cast(MatMulInteger(q, w, z, y)) * (s * t)

    ONNX Runtime makes DynamicQuantizeMatMul of the latter two.
    """
    found: dict[str, Callable[[Writer], None]] = {}
    for store in graph.each("Quantize"):
        parts = _parameters(graph, store)
        if parts is None:
            continue
        ranged = graph.producer(parts.scale, "DynamicRange")
        whole = ranged is not None and list(ranged.outputs) == [parts.scale, parts.zero]
        if ranged is not None and whole and ranged.name not in found and ranged.input == parts.x:
            found[ranged.name] = _dynamic(ranged, store)
            found[store.name] = _nothing
        else:
            found[store.name] = _encode(graph, store, parts)
    for node in graph.each("MatMul"):
        product = _product(graph, node)
        if product is not None:
            found[node.name] = product
    return found


def number(writer: Writer, graph: Graph, node: Node, value: str) -> str:
    """A value of one element as a scalar."""
    if not value or graph.type(value).shape == ():
        return value
    none = writer.constant(f"{node.output}/scalar", np.zeros(0, np.int64))
    return writer.one("Reshape", [value, none], node.name)


def operations_at_run_time(graph: Graph) -> set[str]:
    """The operations that these operators compute, by name, their last nodes among them."""
    inside = set(run_time_operators(graph))
    for store in graph.each("Quantize"):
        parts = _parameters(graph, store)
        inside |= set() if parts is None else parts.nodes
    return inside


@dataclass(frozen=True)
class _Parameters:
    """round(x / scale) + zero; `zero` is '' where there is none; `nodes`: who computes that."""

    x: str
    scale: str
    zero: str
    nodes: frozenset[str]


def _parameters(graph: Graph, store: Node) -> _Parameters | None:
    """What a Quantize of ready integers stores, if it is x by computed parameters."""
    dtype = store.attr("dtype", DType)
    whole = (store.attr("lo", int), store.attr("hi", int)) == dtype.range
    if store.quant != _ONES or not whole or dtype not in (DType.U8, DType.S8):
        return None
    rounded, zero = graph.producer(store.input, "Round"), ""
    added = graph.producer(store.input, "Add")
    if added is not None:
        rounded = graph.producer(added.inputs[0], "Round")
        zero = _zero_point(graph, added.inputs[1], dtype)
        if not zero:
            return None
    scaled = None if rounded is None else graph.producer(rounded.input, "Div")
    if rounded is None or scaled is None:
        return None
    scale = _single(graph, scaled.inputs[1])
    same = graph.type(scaled.input).shape == graph.type(store.output).shape
    if not (scale and same):
        return None
    nodes = frozenset(node.name for node in (scaled, rounded, added) if node is not None)
    return _Parameters(scaled.input, scale, zero, nodes)


def _single(graph: Graph, value: str) -> str:
    """A value of one element, in front of dimensions that it was given; '' of several."""
    while True:
        shape = graph.type(value).shape
        if shape is None or any(size != 1 for size in shape):
            return ""
        maker = graph.producer(value, "Unsqueeze")
        if maker is None:
            return value
        value = maker.input


def _zero_point(graph: Graph, value: str, dtype: DType) -> str:
    """The code of that type whose value is added, or a constant; '' where it is something else."""
    data, (low, high) = graph.constant(value), dtype.range
    if data is not None and data.size == 1:
        return value if low <= data.item() <= high and float(data.item()).is_integer() else ""
    decode = graph.producer(_single(graph, value), "Dequantize")
    if decode is None or decode.quant != _ONES or graph.type(decode.input).dtype is not dtype:
        return ""
    return _single(graph, decode.input)


def _dynamic(ranged: Node, store: Node) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        outputs = [store.output, *ranged.outputs]
        writer.node("DynamicQuantizeLinear", [ranged.input], outputs, store.name)

    return write


def _nothing(writer: Writer) -> None:
    """For a node that another one's operator computes."""


def _encode(graph: Graph, store: Node, parts: _Parameters) -> Callable[[Writer], None]:
    def write(writer: Writer) -> None:
        scale, zero = (number(writer, graph, store, value) for value in (parts.scale, parts.zero))
        known = graph.constant(parts.zero) if parts.zero else np.zeros(())
        if known is not None:
            code = known.astype(store.attr("dtype", DType).numpy).reshape(())
            zero = writer.constant(f"{store.output}/zero_point", code)
        x = kept_apart(writer, graph, store, parts.x)
        writer.node("QuantizeLinear", [x, scale, zero], [store.output], store.name)

    return write


def _product(graph: Graph, node: Node) -> Callable[[Writer], None] | None:
    source = graph.producer(node.inputs[0], "RunTimeDequantize")
    weights = decoded_codes(graph, node.inputs[1])
    if source is None or weights is None or graph.constant(weights.input) is None:
        return None
    kind, quant = graph.type(weights.input), weights.quant
    rows = kind.static_shape[-2] if len(kind.shape or ()) == 2 else _LONGEST
    if not _single(graph, source.inputs[1]) or rows >= _LONGEST or quant.axis not in (None, 1):
        return None
    if graph.type(source.input).dtype is not DType.U8:
        return None

    def write(writer: Writer) -> None:
        name = node.name
        scale, zero = (
            number(writer, graph, source, value) for value in (*source.inputs[1:], "")[:2]
        )
        shape = () if quant.per_tensor else (-1,)
        zeros = quant.zero_points.astype(kind.dtype.numpy).reshape(shape)
        own = writer.constant(f"{node.output}/zero_point", zeros)
        sums = writer.one("MatMulInteger", [source.input, weights.input, zero, own], name)
        real = writer.one("Cast", [sums], name, to=1)
        factors = writer.constant(f"{node.output}/scale", quant.scales.reshape(shape))
        factor = writer.one("Mul", [scale, factors], name)
        writer.node("Mul", [real, factor], [node.output], name)

    return write
