"""Which layers to leave in f32: tried, not guessed.

A layer that is left out computes f32's nodes on what the int8 model gives it. A quantizer goes with it where the quantizing tool
would not write it any more: with NNCF (and in general) in front of each reader that is left out, with ONNX Runtime only when all
around it, the node in front and those behind, are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir.interpret import check_feeds
from ..ir.node import Node
from ..ir.ops.spec import Array, Trait
from ..report.verdict.kind import Gain
from ..report.verdict.remedies import Tool
from .compare import Comparison, Models
from .layers import Cause, Layer
from .matching import Pair, as_quantized, node_name
from .parts import Whole
from .segments import Segment, segment_of
from .walk import Live, Unfused, Walk

_TRIED = 8
NOTABLE = 0.5
"""dB: what less a layer gains, other samples may not show."""

_GOOD = 25.0  # dB: close to f32; to leave more out would only cost time


@dataclass(frozen=True)
class Trial:
    """Layers left in f32, and what came of it.

    Attributes:
        layers: their names.
        why: whose noise it is about: the name of a layer, or of a kind of finding.
        sqnr: the smallest of an output, or a part of one, in dB.
        cosine: the smallest of an output.
    """

    layers: tuple[str, ...]
    why: str
    sqnr: float
    cosine: float


@dataclass(frozen=True)
class Suggestion:
    """What to leave out.

    Attributes:
        before: nothing left out.
        trials: each alone, the best first.
        chosen: those that help one after the other, together; without layers where none helps.
        nodes: of the quantizer's input model, to be left out.
        change: in the words of the quantizer; empty where none helps.
    """

    before: Trial
    trials: tuple[Trial, ...]
    chosen: Trial
    nodes: tuple[str, ...]
    change: str


def suggestion_of(
    found: Comparison, advance: Callable[[str], None] = lambda _: None, tried: int = _TRIED
) -> Suggestion:
    """Tries the layers that add most noise.

    Args:
        found: of `compared`.
        advance: called with what is tried.
        tried: how many layers.
    """
    mixed = _Mixed(found.models, found.tool)
    candidates = _candidates(found, mixed, tried)
    feeds = found.samples.feeds

    def trial(layers: Sequence[str], why: str) -> Trial:
        advance(f"leaving out {why}")
        outputs = mixed.run(frozenset(layers), feeds).values()
        cosines = [measure.cosine for measure in outputs]
        return Trial(
            tuple(layers),
            why,
            min((measure.least for measure in outputs), default=math.inf),
            min((0.0 if math.isnan(cosine) else cosine for cosine in cosines), default=1.0),
        )

    before = trial((), "nothing")
    trials = sorted((trial(layers, why) for why, layers in candidates), key=lambda one: -one.sqnr)
    # of those that are as good as the best one, what is known to be a cause comes first
    known = {finding.kind.code for finding in found.findings}
    best = [one for one in trials if one.sqnr >= trials[0].sqnr - NOTABLE]
    trials.sort(key=lambda one: (one not in best, one.why not in known))
    chosen = before
    for one in trials:
        if not chosen.layers:
            if one.sqnr >= before.sqnr + NOTABLE:
                chosen = one
        elif chosen.sqnr < _GOOD and not set(one.layers) <= set(chosen.layers):
            both = trial(tuple(dict.fromkeys(chosen.layers + one.layers)), "together")
            if both.sqnr >= chosen.sqnr + NOTABLE:
                chosen = both
    nodes = mixed.nodes(chosen.layers)
    return Suggestion(before, tuple(trials), chosen, nodes, _change(found.tool, nodes))


def _change(tool: Tool, nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    names = ", ".join(map(repr, nodes))
    if tool is Tool.NNCF:
        return f"ignored_scope=nncf.IgnoredScope(names=[{names}])"
    if tool in (Tool.ORT, Tool.ORT_DYNAMIC):
        return f"nodes_to_exclude=[{names}]"
    return f"leave {names} unquantized"


def _candidates(found: Comparison, mixed: _Mixed, tried: int) -> list[tuple[str, list[str]]]:
    """(whose noise, layers to leave out for it), each once."""
    known = {pair.layer for pair in found.models.pairs}
    wanted: dict[tuple[str, ...], str] = {}
    for finding in found.findings:
        if finding.kind.gain is Gain.NUMBERS:
            names = map(as_quantized, finding.layers)
            wanted.setdefault(tuple(name for name in names if name in known), finding.kind.code)
    for layer in found.ranking[:tried]:
        sharing = mixed.sharing(layer)
        if len(sharing) > 1:
            wanted.setdefault(tuple(sharing), f"the scale of {layer.pair.layer}")
    for layer in found.ranking[:tried]:
        wanted.setdefault(tuple(mixed.around(layer)), layer.pair.layer)
    return [(why, list(layers)) for layers, why in wanted.items() if layers]


class _Mixed:
    """Runs the int8 model with some layers in f32."""

    def __init__(self, models: Models, tool: Tool) -> None:
        self._models, self._tool = models, tool
        self._pairs = {pair.name: pair for pair in models.pairs}
        self._by_layer: dict[str, list[Pair]] = {}
        for pair in models.pairs:
            self._by_layer.setdefault(pair.layer, []).append(pair)
        self._raw = {pair.raw: pair for pair in models.pairs}
        self._decoded = {
            value: pair for pair in models.pairs for values in pair.decoded for value in values
        }
        self._foreign = Unfused(models.f32), Unfused(models.int8)
        self._segments: dict[str, Segment] = {}

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        """Value -> layers that read it through its quantizer; with NNCF those that asked for the quantizer,
        which moves up from their inputs over what only moves data.
        """
        found: dict[str, set[str]] = {}
        for pair in self._models.pairs:
            for value in self._own_segment(pair).inputs:
                if value in self._decoded:
                    found.setdefault(self._decoded[value].name, set()).update(self._asking(pair))
        return found

    @cached_property
    def _next(self) -> dict[str, list[Pair]]:
        """Value -> what is computed of it."""
        found: dict[str, list[Pair]] = {}
        for pair in self._models.pairs:
            for value in self._own_segment(pair).inputs:
                source = self._raw.get(value) or self._decoded.get(value)
                if source is not None:
                    found.setdefault(source.name, []).append(pair)
        return found

    def _asking(self, pair: Pair) -> set[str]:
        """The layers for which a tool quantizes what a pair is computed of: of what only moves it, those behind,
        for no tool quantizes anything for a move alone.
        """
        if not self._only_moves(pair):
            return {pair.layer}
        return set().union(*map(self._asking, self._next.get(pair.name, ())))

    def _only_moves(self, pair: Pair) -> bool:
        maker = self._models.f32.producer(pair.name)
        moves = maker is not None and (
            maker.op == "Identity" or maker.has(Trait.LAYOUT_ONLY, Trait.SELECTS)
        )
        return moves and (pair.again or not pair.quantizers)

    def _own_segment(self, pair: Pair) -> Segment:
        if pair.raw not in self._segments:
            known = self._raw.keys() | self._decoded.keys()
            self._segments[pair.raw] = segment_of(self._models.int8, pair.raw, known)
        return self._segments[pair.raw]

    def _f32_segment(self, pair: Pair) -> Segment:
        return segment_of(self._models.f32, pair.name, self._pairs.keys())

    def around(self, layer: Layer) -> list[str]:
        """The layers that must be left out so that what makes most of a layer's noise goes."""
        pair = layer.pair
        readers = sorted(self._readers.get(pair.name, ()))
        own = [pair.layer] if pair.op != "input" else []
        if layer.cause is Cause.MISSING:
            return [pair.missing]
        if layer.cause is Cause.COMPUTED or not readers:
            return own
        return [*own, *readers] if self._needs_all_around else readers

    def sharing(self, layer: Layer) -> list[str]:
        """The layers whose results have the scale of a layer's, and that a Concat joins with it or makes of it, and
        that Concat.
        """
        own = self._grids[layer.pair.name]
        found: dict[str, None] = {}
        for node in self._models.f32.nodes():
            values = [value for value in (*node.inputs, *node.outputs) if value in self._pairs]
            if node.has(Trait.JOINS) and layer.pair.name in values and own:
                alike = [value for value in values if self._grids.get(value) == own]
                found |= dict.fromkeys(self._pairs[value].layer for value in alike)
        return list(found)

    @cached_property
    def _grids(self) -> dict[str, list[object]]:
        """Value -> what its quantizers round to; without those whose range is computed."""
        int8 = self._models.int8

        def grid(quantizer: Node) -> object:
            if quantizer.op == "Quantize":
                return quantizer.quant
            ends = [int8.constant(value) for value in quantizer.inputs[1:5]]
            return [None if end is None else end.tolist() for end in ends]

        return {name: list(map(grid, pair.quantizers)) for name, pair in self._pairs.items()}

    @property
    def _needs_all_around(self) -> bool:
        return self._tool in (Tool.ORT, Tool.ORT_DYNAMIC)

    def _goes(self, pair: Pair, left_out: frozenset[str]) -> bool:
        """True if nothing quantizes a value any more; what only moves another one is quantized where that is."""
        if pair.again and self._only_moves(pair):
            sources = [self._decoded.get(value) for value in self._own_segment(pair).inputs]
            return all(source is not None and self._goes(source, left_out) for source in sources)
        if not pair.quantizers or not self._readers.get(pair.name, set()) <= left_out:
            return False
        if self._needs_all_around or not self._readers.get(pair.name):
            return pair.op == "input" or pair.layer in left_out
        return True

    def nodes(self, layers: Sequence[str]) -> tuple[str, ...]:
        """The nodes of layers, as the quantizer knows them; without those of indices and conditions, which
        no quantizer takes.
        """
        f32 = self._models.f32
        there = {
            node_name(node)
            for node in f32.nodes()
            if any(f32.type(value).dtype.is_float for value in node.outputs if value)
        }
        found: dict[str, None] = {}
        missing = {pair.missing for pair in self._models.pairs}
        for layer in layers:
            if layer in missing:
                found[layer] = None
                continue
            for pair in self._by_layer.get(layer, ()):
                own = _named(self._own_segment(pair).nodes)
                known = [name for name in own if name in there]
                if not known and self._tool is not Tool.ORT:
                    known = [
                        name for name in _named(self._f32_segment(pair).nodes) if name in there
                    ]
                # what computes the value comes last in a segment, and first here
                found.update(dict.fromkeys(reversed(known or own)))
        return tuple(found)

    def run(
        self, left_out: frozenset[str], samples: Sequence[Mapping[str, Array]]
    ) -> dict[str, Whole]:
        """The outputs with some layers in f32, against f32."""
        f32, int8 = self._models.f32, self._models.int8
        names = [name for name in f32.outputs if name in int8.outputs]
        found = {name: Whole() for name in names}
        for feeds in samples:
            walk = Walk(f32, feeds, names, self._foreign[0])
            outputs = self._sample(left_out, feeds)
            for name in names:
                wanted = walk[name]
                if wanted.dtype.kind == "f" and wanted.shape == outputs[name].shape:
                    found[name].add(wanted, outputs[name])
        return found

    def _sample(self, left_out: frozenset[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        int8 = self._models.int8
        restored = {
            pair.raw: pair.bounds
            for pair in self._models.pairs
            if pair.missing and pair.missing in left_out
        }
        segments = {
            pair.raw: self._f32_segment(pair)
            for layer in left_out
            for pair in self._by_layer.get(layer, ())
            if pair.op != "input" and pair.raw not in restored
        }
        sources = {
            raw: self._sources(self._raw[raw], part, left_out) for raw, part in segments.items()
        }
        for raw in [raw for raw in segments if not self._come_first(sources[raw].values(), raw)]:
            del segments[raw], sources[raw]
        bare = {
            value: pair.raw for value, pair in self._decoded.items() if self._goes(pair, left_out)
        }
        read = (value for found in sources.values() for value in found.values())
        others = (*int8.outputs, *read, *bare.values())
        live = Live(int8, check_feeds(int8, feeds), self._foreign[1], others)
        for node in int8.nodes():
            live.run(node)
            used: list[str] = []
            for name in node.outputs:
                if name in restored:  # its layer stays in int8
                    live[name] = np.clip(live[name], *restored[name], dtype=np.float32)
                elif name in segments:
                    given = {there: live[here] for there, here in sources[name].items()}
                    live[name] = self._in_f32(segments[name], given, self._raw[name].name)
                    used += sources[name].values()
                elif name in bare:
                    live[name] = live[bare[name]]
                    used.append(bare[name])
            live.done(node, used)
        return {name: live[name] for name in int8.outputs}

    def _sources(self, pair: Pair, part: Segment, left_out: frozenset[str]) -> dict[str, str]:
        """Input of a segment of f32 -> the value of the int8 model that it reads when its layer is left out."""
        read = set(self._own_segment(pair).inputs)
        found = {}
        for name in part.inputs:
            source = self._pairs.get(name)
            if source is None:
                found[name] = name  # an input of both models
                continue
            quantized = [value for values in source.decoded for value in values if value in read]
            gone = not self._needs_all_around or self._goes(source, left_out)
            found[name] = source.raw if gone or not quantized else quantized[0]
        return found

    def _come_first(self, values: Iterable[str], raw: str) -> bool:
        """True where the int8 model computes values in front of another one: it need not read all that f32 reads."""
        int8 = self._models.int8
        places = int8.places()
        makers = [int8.producer(value) for value in (raw, *values)]
        own, *others = [-1 if node is None else places[node.name] for node in makers]
        return all(place < own for place in others)

    def _in_f32(self, part: Segment, given: Mapping[str, Array], wanted: str) -> Array:
        live = Live(self._models.f32, given, self._foreign[0])
        for node in part.nodes:
            live.run(node)
        return live[wanted]


def _named(nodes: Sequence[Node]) -> list[str]:
    return [
        node_name(node)
        for node in nodes
        if node.op not in ("Quantize", "Dequantize", "FakeQuantize")
    ]
