"""Relu and Clip in front of a Quantize: its codes end where they do, or the codes are clipped."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from ..passes.base import swap


def fold_clips(graph: Graph, on_codes: bool) -> None:
    """Takes relu and clip out from between an operation and a Quantize.

    Before -> after::

        Quantize(Clip(x, l, h)){s, z, lo, hi}  ->  Quantize(x){s, z, max(lo, c(l)), min(hi, c(h))}
        or, where that clips codes and not `on_codes`
        ->  Quantize(Clip(Dequantize(Quantize(x){s, z, lo, hi}){s, z}, l, h)){s, z, lo, hi}

    Legal because: c(v) = round(v/s) + z is monotonic for s > 0, so that c(clip(x, l, h)) =
    clip(c(x), c(l), c(h)), and c(s * (k - z)) = k. A NaN gives lo on both sides. (ONNX Runtime computes a
    convolution in f32 where a relu stands between it and the quantizer; OpenVINO takes no clipped codes.)
    Refuses when: x is no result of a convolution or product, for the second form.
    """
    for node in list(graph.each("Quantize")):
        if node.name in graph:
            _fold(graph, node, on_codes)


def _fold(graph: Graph, store: Node, on_codes: bool) -> None:
    node = graph.producer(store.input, "Relu", "Clip")
    quant = store.quant
    if node is None or graph.sole_consumer(node.output) is not store or not quant.integral:
        return
    bounds = _bounds(graph, node)
    if bounds is None or not (quant.scales > 0).all():
        return
    low, high = store.attr("lo", int), store.attr("hi", int)
    codes = [np.unique(np.clip(_codes(bound, quant), low, high)) for bound in bounds]
    if any(found.size > 1 for found in codes):  # of channels that end elsewhere
        return
    new = (int(codes[0][0]), int(codes[1][0]))
    if new != (low, high) and not on_codes:
        _quantize_in_front(graph, store, node)
        return
    attrs = {**store.attrs, "lo": new[0], "hi": new[1]}
    origin = (*node.origin, *store.origin)
    made = graph.again(store, [node.input], attrs, origin=origin)
    swap(graph, store, made.output)
    if not graph.is_read(node.output):
        graph.erase(node)
    _fold(graph, graph.node(made.name), on_codes)


def _quantize_in_front(graph: Graph, store: Node, node: Node) -> None:
    """A further quantizer in front of a relu or clip behind a product."""
    if graph.producer(node.input, "Conv", "MatMul", "Add") is None or not store.quant.per_tensor:
        return
    if graph.sole_consumer(node.input) is not node:
        return
    codes = graph.again(store, [node.input], origin=store.origin).output
    decoded = graph.add("Dequantize", [codes], {"quant": store.quant}, origin=store.origin)
    graph.set_inputs(node, [decoded.output, *node.inputs[1:]])


def _codes(bound: float, quant: Quantization) -> npt.NDArray[np.float32]:
    """The codes of a bound, in f32 as a Quantize computes them."""
    with np.errstate(over="ignore"):
        codes: npt.NDArray[np.float32] = np.rint(np.float32(bound) / quant.scales)
    return codes + quant.zero_points


def _bounds(graph: Graph, node: Node) -> tuple[float, float] | None:
    """Lower and upper bound; None where one is computed or is no number."""
    if node.op == "Relu":
        return 0.0, math.inf
    found = [-math.inf, math.inf]
    for index in (1, 2):
        name = node.operand(index)
        data = graph.constant(name) if name else None
        if name and (data is None or data.size != 1):
            return None
        if data is not None:
            found[index - 1] = float(data.reshape(-1)[0])
    low, high = found
    return (low, high) if low <= high else None
