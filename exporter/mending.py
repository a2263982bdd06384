"""Edits of a graph whose quantizers stand where the model has them (`split_graph`): what a repair tries.

Each changes the graph in place, and returns of how many quantizers. Layers are named as the f32 model
names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Quantization
from ..passes.base import swap
from .calibrated import Ranges, covering, ends_of, through_codes

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_NEAR = 0.75  # of a step: what rounds to a code lies closer
Numbers = npt.NDArray[Any]
RangesOf = Callable[[Graph, Iterable[str]], Ranges]
"""Values of a graph -> between which numbers they lie."""


@dataclass(frozen=True)
class Layers:
    """Nodes by the names of the f32 model; `called` gives that of a node of the quantized one."""

    names: frozenset[str]
    called: Callable[[str], str]

    def has(self, node: Node | None) -> bool:
        """True of a node of these layers."""
        return node is not None and not self.names.isdisjoint(map(self.called, node.origin))


class Originals:
    """The constants of the f32 model, found by what they hold: quantizers rename them."""

    def __init__(self, f32: Graph | None) -> None:
        self._of: dict[tuple[int, ...], list[Numbers]] = {}
        if f32 is None:
            return
        for name in f32.constants:
            data = _constant(f32, name)
            if data.dtype == np.float32 and data.ndim > 1:
                self._of.setdefault(data.shape, []).append(data)

    def of(self, graph: Graph, decode: Node) -> Numbers | None:
        """What the constant codes of a Dequantize stand for, before they were rounded; None where that is not known.
        It lies within a step of them, but where codes are at their ends.
        """
        codes, quant = _constant(graph, decode.input), decode.quant
        scale, zero = quant.shaped(codes.ndim)
        first, last = int(codes.min(initial=0)), int(codes.max(initial=0))
        ends = np.sort(np.stack([(end - zero) * scale for end in (first, last)]), axis=0)
        found = (codes - zero) * scale
        for data in self._of.get(codes.shape, ()):
            gap = np.abs(np.clip(data, ends[0], ends[1]) - found)
            if (gap <= _NEAR * np.abs(scale)).all():
                return data
        return None


def _constant(graph: Graph, value: str) -> Numbers:
    data = graph.constant(value)
    assert data is not None  # who asks knows that it is one
    return data


def take_out(graph: Graph, layers: Layers, originals: Originals) -> int:
    """Lets layers read numbers in place of codes, and f32's own weights where they are known."""
    done = 0
    for decode in list(graph.each("Dequantize")):
        store = graph.producer(decode.input, "Quantize")
        readers = [node for node in graph.consumers(decode.output) if layers.has(node)]
        constant = graph.constant(decode.input) is not None
        if readers and (constant or store is not None):
            value = store.input if store is not None else _numbers(graph, decode, originals)
            graph.replace_uses(decode.output, value, only=readers)
            done += 1
    return done


def take_out_behind(graph: Graph, layers: Layers) -> int:
    """Lets all that reads what layers give read numbers in place of codes."""
    found = [pair for node in graph.nodes() if layers.has(node) for pair in _behind(graph, node)]
    for decode, value in found:
        swap(graph, decode, value)
    return len(found)


def _numbers(graph: Graph, decode: Node, originals: Originals) -> str:
    data, quant = originals.of(graph, decode), decode.quant
    if data is None:
        codes = _constant(graph, decode.input)
        scale, zero = quant.shaped(codes.ndim)
        data = ((codes - zero) * scale).astype(np.float32)
    return graph.add_constant(f"{decode.output}/f32", data)


def own_scales(graph: Graph, layers: Layers, ranges_of: RangesOf) -> int:
    """Gives each operand of the concatenations among these layers the range that it has, and takes the one
    quantizer behind them out.
    """
    joins = [node for node in graph.each("Concat") if layers.has(node)]
    stores = {
        value: store
        for join in joins
        for value in join.inputs
        if (store := _store(graph, value)) is not None
    }
    ranges = ranges_of(graph, {store.input for store in stores.values()})
    for join in joins:
        inputs = [
            through_codes(graph, store, store.input, covering(*ranges[store.input]))
            if (store := stores.get(value)) is not None
            else value
            for value in join.inputs
        ]
        graph.set_inputs(join, inputs)
    behind = [found for join in joins for found in _behind(graph, join)]
    for decode, value in behind:
        swap(graph, decode, value)
    return len(stores) + len(behind)


def _behind(graph: Graph, node: Node) -> list[tuple[Node, str]]:
    """What decodes the codes of a node's result, and the result."""
    return [
        (decode, node.output)
        for store in graph.consumers(node.output)
        if store.op == "Quantize"
        for decode in graph.consumers(store.output)
        if decode.op == "Dequantize"
    ]


def one_scale_for_all(graph: Graph, layers: Layers) -> int:
    """Gives the operands of each concatenation in front of these layers the range of all of them together."""
    done = 0
    for join in list(graph.each("Concat")):
        stores = [_store(graph, value) for value in join.inputs]
        coded = [store for store in stores if store is not None and store.quant.per_tensor]
        readers = graph.consumers(join.output)
        if len(coded) < len(stores) or not any(layers.has(node) for node in (join, *readers)):
            continue
        spans = np.concatenate([np.sort(np.concatenate(ends_of(store))) for store in coded])
        whole = covering(float(spans.min()), float(spans.max()))
        inputs = [through_codes(graph, store, store.input, whole) for store in coded]
        graph.set_inputs(join, inputs)
        done += len(coded)
    return done


def _store(graph: Graph, value: str) -> Node | None:
    """The Quantize whose codes a value decodes."""
    decode = graph.producer(value, "Dequantize")
    return None if decode is None else graph.producer(decode.input, "Quantize")


def own_weights(graph: Graph, layers: Layers, originals: Originals) -> int:
    """Quantizes the weights of layers anew from those of f32: symmetric, with a scale for each output channel."""
    done = 0
    for node in list(graph.each(*_PRODUCTS)):
        decode = graph.producer(node.inputs[1], "Dequantize") if layers.has(node) else None
        if decode is None or graph.constant(decode.input) is None:
            continue
        data = originals.of(graph, decode)
        if data is None:
            continue
        codes = _constant(graph, decode.input)
        reach = np.abs(codes - decode.quant.shaped(codes.ndim)[1]).max(initial=0)
        swap(graph, decode, _coded(graph, decode, node, data, 127 if reach > 64 else 64))
        done += 1
    return done


def _coded(graph: Graph, part_of: Node, product: Node, data: Numbers, largest: int) -> str:
    """Weights of a product as s8, decoded."""
    axis = _outputs_of(product, data.ndim)
    others = tuple(each for each in range(data.ndim) if each != axis)
    top = np.abs(data).max(axis=others if axis is not None else None, keepdims=True)
    scale = np.where(top > 0, top / largest, 1).astype(np.float32)
    codes = graph.add_constant(f"{part_of.output}/codes", np.rint(data / scale).astype(np.int8))
    quant = Quantization.of(scale.reshape(-1), 0, axis)
    return graph.part(part_of, "Dequantize", [codes], "own", {"quant": quant})


def _outputs_of(product: Node, rank: int) -> int | None:
    """The axis of the weights along the output channels; None: one scale must do."""
    if product.op == "Gemm":
        return 0 if product.attrs.get("transB") else 1
    if product.op == "MatMul":
        return 1 if rank == 2 else None
    if product.op == "ConvTranspose":
        return 1 if product.attrs.get("group", 1) == 1 else None
    return 0


def fixed_ranges(graph: Graph, ranges_of: RangesOf) -> int:
    """Replaces ranges that are taken in each run by constant ones."""
    found = dict(_ranged(graph))
    ranges = ranges_of(graph, set(found.values()))
    for name, value in found.items():
        node = graph.node(name)
        swap(graph, node, through_codes(graph, node, value, covering(*ranges[value])))
    return len(found)


def _ranged(graph: Graph) -> Iterator[tuple[str, str]]:
    """What decodes codes of a range that is taken in a run, and the value that is coded."""
    for node in graph.each("RunTimeDequantize"):
        ranged = graph.producer(node.inputs[1], "DynamicRange")
        if ranged is not None:
            yield node.name, ranged.input


def with_ranges(graph: Graph, ranges: Mapping[str, tuple[float, float]]) -> int:
    """Gives quantizers, by name, other ranges."""
    done = 0
    for store in list(graph.each("Quantize")):
        wanted = [ranges[name] for name in store.quantizer if name in ranges]
        decodes = graph.consumers(store.output)
        if not wanted or any(node.op != "Dequantize" for node in decodes):
            continue
        value = through_codes(graph, store, store.input, covering(*wanted[0]))
        for node in decodes:
            swap(graph, node, value)
        done += 1
    return done


def quantized(graph: Graph, layers: Layers, ranges_of: RangesOf) -> int:
    """Quantizes products that are left in f32: constant weights, and the source where it is no codes yet."""
    found = [
        node
        for node in graph.each(*_PRODUCTS)
        if layers.has(node) and graph.constant(node.inputs[1]) is not None
    ]
    bare = [node.inputs[0] for node in found if graph.decoder(node.inputs[0]) is None]
    ranges = ranges_of(graph, dict.fromkeys(bare))
    coded: dict[str, str] = {}
    for node in found:
        source, data = node.inputs[0], _constant(graph, node.inputs[1])
        if source in ranges and source not in coded:
            coded[source] = through_codes(graph, node, source, covering(*ranges[source]))
        weights = _coded(graph, node, node, np.asarray(data, np.float32), 127)
        graph.set_inputs(node, [coded.get(source, source), weights, *node.inputs[2:]])
    return len(found)
