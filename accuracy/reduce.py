"""Cuts the smallest part of the int8 model that still shows a difference, with what it is fed with.

Against f32 that is one layer, the one that adds most noise: everything between the values in front of it that both models have. Where
the file has nothing but their codes (QOperator), the part quantizes them first, and decodes its own last.
Between fqfuse and another program each part of a few quantized layers is tried, fed with what the int8 model, nothing fused, computes in
front of it: over a whole network, ties of rounding alone take right programs apart. Of the first part that differs, what is not needed
is left out by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..compiler import compile as compile_model
from ..frontend import graph_from_onnx
from ..frontend.parts import in_floats, node_count, onnx_values, part_of
from ..inference import InferenceSession
from ..ir.ops.spec import Array
from .compare import Comparison, Models
from .matching import Pair
from .measures import sqnr_of
from .parts import Whole
from .peers import peer
from .segments import segment_of
from .walk import Unfused, Walk

AGREEING = 40.0
"""From how many dB on fqfuse and another program agree on a part, unless told otherwise."""

_QUANTIZERS = 2
"""In a part that both programs run. A difference of 1e-7 turns one code in 1e5 at the first quantizer, whose square root at the next
(4e-3: 50 dB), and again: behind a few, two right programs are as far apart as 8 bits are from f32."""

_CARRIED = ("float32", "uint8", "int8")


@dataclass(frozen=True)
class Reduced:
    """A part of a model.

    Attributes:
        model: of the int8 model.
        f32: the same part of the f32 model; None where their inputs have other names or types.
        inputs: what both are fed with.
        sqnr: of the difference that it shows, on these inputs, in dB.
        nodes: how many nodes the part of the int8 model has.
        output: the value that it computes.
    """

    model: bytes
    f32: bytes | None
    inputs: dict[str, Array]
    sqnr: float
    nodes: int
    output: str


def cut_layer(found: Comparison, bound: float = math.inf) -> Reduced | None:
    """The layer that adds most noise, on the first sample.

    Args:
        found: of `compared`.
        bound: layers that add less noise than this SQNR, in dB, are left alone.

    Returns:
        The part; None where no layer adds so much, or the file names no values between which it lies.

    Raises:
        FqfuseError: the part cannot be cut out.
    """
    models = found.models
    edges = _Edges(models)
    for layer in found.ranking:
        if layer.adds > bound or layer.pair.op == "input":
            continue
        fed = edges.in_front(layer.pair)
        if fed is None or not edges.tells(layer.pair):
            continue
        return _layer_part(models, edges, layer.pair, fed, found.samples.feeds[0])
    return None


def _layer_part(
    models: Models,
    edges: _Edges,
    pair: Pair,
    fed: Sequence[Pair],
    feeds: Mapping[str, Array],
) -> Reduced:
    walk = Walk(models.f32, feeds, [one.name for one in (*fed, pair)], Unfused(models.f32))
    wanted, end = walk[pair.name], edges.end(pair)
    fronts = {one.name: edges.name(one) for one in fed}
    coded = {fronts[one.name]: _reading(models, one) for one in fed if fronts[one.name] != one.raw}
    # the names stay those by which both models are matched, and each stands once
    renamed = {name: f"{name}_DequantizeLinear_Output" for name, *_ in coded.values()}
    if end not in (pair.raw, pair.name):
        renamed |= {pair.raw: f"{pair.name}_QuantizeLinear_Input"}
        renamed |= {end: pair.name} if edges.is_float(end) else {}
    if not edges.is_float(end):
        coded[end] = _reading(models, pair)
    given = {front: walk[name] for name, front in fronts.items()}
    model = part_of(models.source, given, {end: wanted}, renamed)
    model = in_floats(model, coded) if coded else model
    floats = {name if front in coded else front: walk[name] for name, front in fronts.items()}
    used = _used(model, {**feeds, **floats})
    alike = floats.keys() == fronts.keys()
    f32 = part_of(models.origin, floats, {pair.name: wanted}, {}) if alike else None
    shown = Whole()
    shown.add(wanted, InferenceSession(compile_model(model)).run(None, used)[0])
    return Reduced(model, f32, used, shown.least, node_count(model), pair.name)


def _reading(models: Models, pair: Pair) -> tuple[str, Array, Array]:
    """How the codes of a pair are read: the name of its floats, scale, zero point."""
    quantizer = pair.quantizers[0]
    scale, zero = (part.reshape(()) for part in quantizer.quant.shaped(0))
    return pair.name, scale, zero.astype(models.int8.type(quantizer.output).dtype.numpy)


def cut_against(
    found: Comparison, bound: float = AGREEING, advance: Callable[[str], None] = lambda _: None
) -> Reduced | None:
    """The smallest part on which fqfuse and the other program differ, on the first sample.

    Args:
        found: of `compared`, with another program.
        bound: the SQNR, in dB, below which they differ.
        advance: called with what is tried.

    Returns:
        The part; None where they agree on each part.

    Raises:
        FqfuseError: a part cannot be run.
    """
    models = found.models
    edges = _Edges(models)
    ends = [pair for pair in models.pairs if pair.op != "input" and edges.name(pair)]
    feeds = found.samples.feeds[0]
    walk = Walk(models.int8, feeds, [edges.name(pair) for pair in ends], Unfused(models.int8))
    values = {edges.name(pair): walk[edges.name(pair)] for pair in ends}

    def differs(first: int, last: int) -> tuple[float, bytes, dict[str, Array]]:
        end = edges.name(ends[last])
        advance(f"trying {ends[last].layer}")
        known = {name: values[name] for name in (edges.name(pair) for pair in ends[:first])}
        model = part_of(models.source, known, {end: values[end]}, {})
        used = _used(model, {**feeds, **known})
        return _difference(model, used, found.peer, end), model, used

    for last in (place for place, pair in enumerate(ends) if pair.quantizers or pair is ends[-1]):
        first = _start(ends, last)
        if differs(first, last)[0] >= bound:
            continue
        beyond = last + 1  # fed with `first` values it differs, with `beyond` there is nothing left
        while beyond - first > 1:
            middle = (first + beyond) // 2
            alike = differs(middle, last)[0] >= bound
            first, beyond = (first, middle) if alike else (middle, beyond)
        sqnr, model, used = differs(first, last)
        return Reduced(model, None, used, sqnr, node_count(model), edges.name(ends[last]))
    return None


def _start(ends: Sequence[Pair], last: int) -> int:
    """How many of the values are fed to the part that computes number `last`, so that it holds a few quantizers."""
    first, quantizers = last, 0
    while first and quantizers < _QUANTIZERS:
        first -= 1
        quantizers += bool(ends[first].quantizers) and not ends[first].again
    return first


def _difference(model: bytes, feeds: Mapping[str, Array], program: str, end: str) -> float:
    """SQNR between fqfuse and another program on a part, in dB."""
    ours = InferenceSession(compile_model(model)).run([end], feeds)[0]
    theirs = peer(program, model).run(feeds)[end]
    if ours.shape != theirs.shape:
        return -math.inf
    return sqnr_of(theirs.astype(np.float64), ours.astype(np.float64))


class _Edges:
    """Where the int8 model's file may be cut: at values that it names, of types that a file of arrays holds."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.there = onnx_values(models.source) | set(models.int8.inputs)
        self._of = {pair.raw: pair for pair in models.pairs}
        self._of |= {
            value: pair for pair in models.pairs for values in pair.decoded for value in values
        }

    def name(self, pair: Pair) -> str:
        """The value in front of the quantizer, or, inside of an operator of codes, those; empty where there is no such."""
        int8 = self._models.int8
        for value in (pair.raw, *(node.output for node in pair.quantizers)):
            if value in self.there and int8.type(value).dtype.numpy.name in _CARRIED:
                return value
        return ""

    def is_float(self, value: str) -> bool:
        """True of floats."""
        return self._models.int8.type(value).dtype.is_float

    def tells(self, pair: Pair) -> bool:
        """True where the file names a pair's floats, or codes of one scale and zero point."""
        name = self.name(pair)
        return name == pair.raw or (name != "" and self._codes(pair) == name)

    def end(self, pair: Pair) -> str:
        """Where a part ends that computes the pair: behind its quantizer if that belongs to it."""
        if not pair.only:
            return self.name(pair)
        decoded = next(iter(pair.decoded[0]), "")
        return decoded if decoded in self.there else self._codes(pair) or self.name(pair)

    def _codes(self, pair: Pair) -> str:
        """What the pair's quantizer writes, where the file has that and one scale and zero point tell it; else empty."""
        for node in pair.quantizers[:1]:
            if node.op == "Quantize" and node.quant.per_tensor and node.output in self.there:
                return node.output
        return ""

    def in_front(self, pair: Pair) -> list[Pair] | None:
        """The pairs that a layer reads, inputs of the model left out; None where it cannot be cut off from them in f32."""
        segment = segment_of(self._models.int8, pair.raw, self._of.keys())
        pairs = [self._of[value] for value in segment.inputs if value in self._of]
        computed = [one for one in pairs if one.op != "input"]
        return computed if all(map(self.tells, computed)) else None


def _used(model: bytes, arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: arrays[name] for name in graph_from_onnx(model).inputs}
