"""Which value of a quantized model is which of the f32 model: by name, and by the names that quantizers derive from it.

| tool | value | codes | decoded |
|---|---|---|---|
| ONNX Runtime, QDQ | `x`, of an output `x_QuantizeLinear_Input` | `x_QuantizeLinear_Output` | `x_DequantizeLinear_Output` |
| ONNX Runtime, QOperator | (inside of an operator) | `x_quantized` | `x` |
| NNCF | `x` | `q_output_x_1` | `dq_output_x_1` |

A convolution whose BatchNormalization or Relu is gone stands for what that computed.
Else a value is found by its own name, by the name of its codes, or as what a quantizer's first half reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from ..ir.graph import Graph
from ..ir.interpret import run_node
from ..ir.node import Node
from ..ir.ops import dims
from ..ir.ops.spec import Trait
from ..ir.types import DType, Shape
from .measures import grid_of
from .segments import segment_of

_DERIVED = (
    re.compile(r"(?P<x>.+)_QuantizeLinear_Input"),
    re.compile(r"(?P<x>.+)_QuantizeLinear_Output"),
    re.compile(r"(?P<x>.+)_DequantizeLinear_Output"),
    re.compile(r"(?P<x>.+)_quantized"),
    re.compile(r"d?q_output_(?P<x>.+)_\d+"),
)
_RENAMED = re.compile(r"(?P<node>.+?)((_MatMul|_Add)?_quant|_Q[248])")
_JOINED = ("BatchNormalization", "Relu", "Clip")
"""What quantizing tools fold into the operator in front."""

_BOUNDS = ("Relu", "Clip")
_QUANTIZERS = ("Quantize", "FakeQuantize")


@dataclass(frozen=True)
class Pair:
    """A value of both models.

    Attributes:
        name: in the f32 model.
        raw: in the int8 model: in front of its quantizers.
        quantizers: the nodes that quantize it: Quantize, or FakeQuantize.
        decoded: for each of them what comes out as floats again (one, or one for each reader; none where
            codes are read as such).
        only: nobody but its quantizers reads it, so that what they cut off (the Relu that ONNX Runtime leaves out in front of
            them) makes no difference.
        layer: the node that computes it, by the name that both models have, else by that of the f32 model; an input's own name.
        op: what that node does; `input`.
        again: its quantizers round numbers that lie on their grid: the codes of another pair, moved or selected.
        missing: the Relu or Clip of the f32 model that nothing does in the int8 model, no range neither,
            or ''; only where nothing but moves stands behind it, so that it can be done to the value itself.
        bounds: between which numbers that leaves its source.
        moved: for a value that is only moved, the nodes of the f32 model that compute what is moved.
    """

    name: str
    raw: str
    quantizers: tuple[Node, ...]
    decoded: tuple[tuple[str, ...], ...]
    only: bool
    layer: str
    op: str
    again: bool = False
    missing: str = ""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    moved: tuple[str, ...] = ()


def pairs_of(f32: Graph, int8: Graph) -> tuple[list[Pair], list[str]]:
    """The floats of both models, in the order of the int8 model, and the values of the f32 model that the other has no more."""
    wanted = {value for node in f32.nodes() for value in node.outputs if _is_float(f32, value)}
    wanted |= {value for value in f32.inputs if _is_float(f32, value)}
    found: dict[str, str] = {}
    present = {*int8.values, *_names(*int8.values)}
    for raw, given in _candidates(int8, wanted):
        name = given if raw in int8.inputs else _folded(f32, given, int8, raw, present)
        if name not in found and _alike(f32, name, int8, raw):
            found[name] = raw
    places = int8.places()
    producers = {name: int8.producer(raw) for name, raw in found.items()}
    order = sorted(
        found, key=lambda name: -1 if (node := producers[name]) is None else places[node.name]
    )
    names = {node_name(node) for node in f32.nodes()}
    pairs = [_pair(f32, int8, name, found[name], names) for name in order]
    known = {value for pair in pairs for value in (pair.raw, *chain(*pair.decoded))}
    pairs = [_looked_behind(f32, int8, pair, found.keys(), known) for pair in pairs]
    left = [value for value in sorted(wanted) if value not in found and value not in f32.inputs]
    return pairs, left


def node_name(node: Node) -> str:
    """A node as the quantizer's user calls it."""
    return as_quantized(node.origin[0] if node.origin else node.name)


def as_quantized(name: str) -> str:
    """A node's name without what ONNX Runtime's quantizers append to it (`conv` of `conv_quant`)."""
    renamed = _RENAMED.fullmatch(name)
    return name if renamed is None else renamed["node"]


def _candidates(int8: Graph, wanted: set[str]) -> Iterator[tuple[str, str]]:
    """(value of the int8 model in front of quantizers, name in the f32 model), the surest first."""
    for value in int8.inputs:
        if value in wanted:
            yield value, value
    for node in int8.nodes():
        for value in node.outputs:
            if value in wanted and _is_float(int8, value):
                coder = _coder(int8, node)
                yield (value if coder is None else coder.input), value
    for node in int8.nodes():
        if node.op in _QUANTIZERS:
            yield from (
                (node.input, name) for name in _names(node.input, node.output) if name in wanted
            )
    for node in int8.nodes():
        if (
            node.op == "Dequantize"
            and _coder(int8, node) is None
            and int8.constant(node.input) is None
        ):
            yield from ((node.output, name) for name in _names(node.input) if name in wanted)


def _folded(f32: Graph, name: str, int8: Graph, raw: str, present: Collection[str]) -> str:
    """The f32 value that a value of the int8 model stands for: where what follows in f32 went into the node in front of it, what
    comes out of that, whatever the name.
    """
    readers = {
        reader.op
        for node in int8.consumers(raw)
        for reader in (node, *(far for out in _decoded(int8, node) for far in int8.consumers(out)))
    }
    own = _of_codes(int8, raw)
    following = f32.sole_consumer(name)
    while (
        following is not None
        and following.op in _JOINED
        and following.op not in readers
        and (following.output not in present or following.output in own)
    ):
        name = following.output
        following = f32.sole_consumer(name)
    return name


def _of_codes(int8: Graph, raw: str) -> set[str]:
    """What a value's codes, and what they decode to, may be called in the f32 model: they stand for
    the value, too, and are no others of it.
    """
    quantizers = [node for node in int8.consumers(raw) if node.op in _QUANTIZERS]
    found = {name for node in quantizers for name in _decoded(int8, node)}
    return found.union(*(_names(node.output, *_decoded(int8, node)) for node in quantizers))


def _names(*values: str) -> Iterator[str]:
    for value in values:
        for form in _DERIVED:
            matched = form.fullmatch(value)
            if matched is not None:
                yield matched["x"]


def _coder(int8: Graph, node: Node) -> Node | None:
    """The Quantize whose codes a Dequantize reads, or the FakeQuantize itself."""
    if node.op == "FakeQuantize":
        return None if int8.constant(node.input) is not None else node
    return int8.producer(node.input, "Quantize") if node.op == "Dequantize" else None


def _pair(f32: Graph, int8: Graph, name: str, raw: str, names: set[str]) -> Pair:
    quantizers, decoded = [], []
    only = not int8.is_output(raw)
    for reader in int8.consumers(raw):
        if reader.op not in _QUANTIZERS or reader.input != raw:
            only = False
            continue
        quantizers.append(reader)
        decoded.append(_decoded(int8, reader))
    makers = [node for node in (int8.producer(raw), f32.producer(name)) if node is not None]
    layer, op = name, "input"
    if makers:
        # the quantizer's own name only if the f32 model has it, too: it may have joined nodes
        told = makers[0].op != "Dequantize" and node_name(makers[0]) in names
        maker = makers[0] if told else makers[-1]
        layer, op = node_name(maker), _op(maker)
    sole = bool(quantizers) and only
    return Pair(name, raw, tuple(quantizers), tuple(decoded), sole, layer, op)


def _looked_behind(
    f32: Graph, int8: Graph, pair: Pair, ours: Collection[str], theirs: Collection[str]
) -> Pair:
    """The pair, with what the piece of each model in front of it tells."""
    again = all(_is_again(int8, node, theirs) for node in pair.quantizers)
    pair = replace(pair, again=bool(pair.quantizers) and again)
    maker = f32.producer(pair.name)
    if maker is not None and maker.has(Trait.LAYOUT_ONLY, Trait.SELECTS):
        nodes = segment_of(f32, pair.name, ours).nodes
        moved = [node for node in nodes if not node.has(Trait.LAYOUT_ONLY, Trait.SELECTS)]
        pair = replace(pair, moved=tuple(dict.fromkeys(map(node_name, moved))))
    while maker is not None and maker.has(Trait.LAYOUT_ONLY, Trait.SELECTS):
        maker = None if maker.input in ours else f32.producer(maker.input)
    if maker is None or maker.op not in _BOUNDS or len(f32.computed(maker.inputs)) > 1:
        return pair
    own = segment_of(int8, pair.raw, theirs).nodes
    bounds = _bounds_of(f32, maker)
    if any(node.op in _BOUNDS for node in own) or _is_bounded(bounds, int8, pair, own):
        return pair
    return replace(pair, missing=node_name(maker), bounds=bounds)


def _is_bounded(bounds: tuple[float, float], int8: Graph, pair: Pair, own: Sequence[Node]) -> bool:
    """True where the range of a quantizer does what a Relu or Clip does, to a step."""
    quantizers = list(pair.quantizers) if pair.only else []
    for node in reversed(own):
        if node.op in _QUANTIZERS:
            quantizers.append(node)
        elif node.op != "Dequantize" and not node.has(Trait.LAYOUT_ONLY, Trait.SELECTS):
            break
    low, high = bounds
    rank = len(int8.type(pair.raw).shape or ())
    grids = [grid for node in quantizers if (grid := grid_of(int8, node, rank)) is not None]
    return len(grids) < len(quantizers) or any(
        bool(np.all(grid.low >= low - grid.step) and np.all(grid.high <= high + grid.step))
        for grid in grids
    )


def _bounds_of(f32: Graph, bound: Node) -> tuple[float, float]:
    """Between which numbers a Relu or Clip leaves its source."""
    ends = np.array([-np.inf, np.inf], np.float32)
    constants = [f32.constant(value) if value else None for value in bound.inputs[1:]]
    low, high = run_node(bound, [ends, *constants])[0]
    return float(low), float(high)


def _is_again(int8: Graph, quantizer: Node, known: Collection[str]) -> bool:
    """True of codes that are only moved, and came from a quantizer that is measured at another pair."""
    if quantizer.op != "Quantize" or not quantizer.quant.per_tensor:
        return False
    value, decoded = quantizer.input, False
    while (source := int8.producer(value)) is not None:
        if source.op in ("Quantize", "Dequantize") and source.quant == quantizer.quant:
            decoded = decoded or source.op == "Dequantize"
        elif not source.has(Trait.LAYOUT_ONLY, Trait.SELECTS):
            break
        if decoded and value in known and value != quantizer.input:
            return True
        value = source.input
    return decoded and value in known


def _decoded(int8: Graph, quantizer: Node) -> tuple[str, ...]:
    if quantizer.op not in _QUANTIZERS:
        return ()
    if quantizer.op == "FakeQuantize":
        return (quantizer.output,)
    return tuple(
        node.output for node in int8.consumers(quantizer.output) if node.op == "Dequantize"
    )


def _op(node: Node) -> str:
    return str(node.attrs.get("op_type")) if node.op == "Onnx" else node.op


def _is_float(graph: Graph, value: str) -> bool:
    return bool(value) and graph.constant(value) is None and graph.type(value).dtype is DType.F32


def _alike(f32: Graph, name: str, int8: Graph, raw: str) -> bool:
    a, b = f32.type(name).shape, int8.type(raw).shape
    return a is None or b is None or _may_be(a, b)


def _may_be(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and not any(dims.differ(x, y) for x, y in zip(a, b, strict=True))
