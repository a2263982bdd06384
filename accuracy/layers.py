"""Runs both models side by side, node by node, and measures each layer twice: fed with what the int8 model has computed so far
(what has accumulated), and fed with what f32 computes (what the layer itself adds).

Only one sample's values are in memory, and of those only what is still to be read.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..ir.graph import Graph
from ..ir.interpret import check_feeds, run_node
from ..ir.node import Node
from ..ir.ops.spec import Array
from .data import no_pair
from .matching import Pair
from .measures import Floats, Grid, Measure, grid_of, unmasked
from .parts import Whole
from .walk import Live, Unfused, Walk

_TOO_WIDE = 8.0  # of 255 codes fewer than 32 are used then


class Cause(enum.StrEnum):
    """What makes most of the noise that a layer adds."""

    BROKEN = "broken"  # NaN or infinity
    MISSING = "missing"  # a Relu or Clip that the int8 model does not have
    COMPUTED = "computed"  # weights, bias, and quantizers inside of the layer
    TOO_WIDE = "too-wide"  # its quantizer's range is far wider than the values
    SATURATED = "saturated"  # values lie beyond its quantizer's range
    COARSE = "coarse"  # the step of its quantizer


@dataclass
class Layer:
    """A value of both models, measured.

    Attributes:
        pair: which.
        total: accumulated: against the int8 model's own run.
        added: by the layer itself: its inputs are f32's, its weights and the quantizer behind it the int8 model's.
        computed: the part of `added` in front of its own quantizer: weights, and quantizers inside.
        rounded: for its own quantizer, fed with f32's value.
        codes: the largest difference of `total` in codes; None without quantizer.
        beyond: f32's entries that lie beyond the quantizer's range, by more than half a step.
        seen: entries that were looked at for this.
        cut: sum of the squares of how far they lie beyond.
        lost: the part of `computed` by what a missing Relu or Clip would have cut off, as a sum of squares.
        low, high: f32's smallest and largest entry, where there is a quantizer.
        room: what the quantizer's range spans.
        step, finest: the quantizer's largest and smallest step, which are one where all channels share it.
    """

    pair: Pair
    total: Measure = field(default_factory=Measure)
    added: Whole = field(default_factory=Whole)
    computed: Measure = field(default_factory=Measure)
    rounded: Measure = field(default_factory=Measure)
    codes: int | None = None
    beyond: int = 0
    seen: int = 0
    cut: float = 0.0
    lost: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    room: float = 0.0
    step: float | None = None
    finest: float = math.inf

    def take(self, grid: Grid, wanted: Floats, rounded: Floats, own: Floats) -> None:
        """What a quantizer does to f32's value, and how far the int8 model's own one is from it in codes."""
        with np.errstate(all="ignore"):
            apart = np.abs(own.astype(np.float64) - rounded) / grid.step
            largest = float(np.nanmax(apart, initial=0.0))
            self.codes = max(self.codes or 0, round(largest) if math.isfinite(largest) else 0)
            half = grid.step / 2
            outside = (wanted > grid.high + half) | (wanted < grid.low - half)
        keep = unmasked(wanted)
        keep = np.isfinite(wanted) if keep is None else keep & np.isfinite(wanted)
        outside &= keep
        self.beyond += int(np.count_nonzero(outside))
        self.seen += int(np.count_nonzero(keep))
        if outside.any():
            gap = (wanted.astype(np.float64) - np.clip(wanted, grid.low, grid.high))[outside]
            self.cut += float(gap @ gap)
        self.low = min(self.low, float(wanted.min(where=keep, initial=math.inf)))
        self.high = max(self.high, float(wanted.max(where=keep, initial=-math.inf)))
        self.room = max(self.room, float(np.max(grid.high - grid.low)))
        self.step = float(max(self.step or 0.0, np.max(grid.step)))
        self.finest = float(min(self.finest, np.min(grid.step)))

    @property
    def adds(self) -> float:
        """The SQNR of what the layer adds: of a part that it makes constant, if there is one, else of all."""
        return min([self.added.sqnr, *(part.measure.sqnr for part in self.added.dead)])

    @property
    def saturated(self) -> float:
        """The share of entries at an end of the range while f32 lies beyond it."""
        return self.beyond / self.seen if self.seen else 0.0

    @property
    def cause(self) -> Cause:
        """What makes most of the noise that the layer adds."""
        if self.added.broken:
            return Cause.BROKEN
        if self.rounded.noise <= self.computed.noise or self.step is None:
            return Cause.MISSING if self.lost > self.computed.noise / 2 else Cause.COMPUTED
        if self.room > _TOO_WIDE * max(abs(self.low), abs(self.high), self.high - self.low):
            return Cause.TOO_WIDE
        return Cause.SATURATED if self.cut > self.rounded.noise / 2 else Cause.COARSE


Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Runs the int8 model: feeds -> outputs by name."""

Values = Callable[[Mapping[str, Array]], Callable[[str], Array | None]]
"""Feeds -> what another program computes for a value of the int8 model; None where it does not tell."""


def no_values(_: Mapping[str, Array]) -> Callable[[str], Array | None]:
    """Nothing is told of any value."""
    return lambda _: None


@dataclass(frozen=True)
class Measured:
    """What came out.

    Attributes:
        layers: one for each pair, in their order.
        outputs: program that ran the int8 model -> output -> measure against f32.
        agreement: program -> output -> measure against the int8 model without any fusing.
    """

    layers: list[Layer]
    outputs: dict[str, dict[str, Whole]]
    agreement: dict[str, dict[str, Measure]]


def measure_layers(
    f32: Graph,
    int8: Graph,
    pairs: Sequence[Pair],
    samples: Sequence[Mapping[str, Array]],
    runs: Mapping[str, Run],
    values: Values = no_values,
    advance: Callable[[], None] = lambda: None,
) -> Measured:
    """Measures every pair of values, and the outputs.

    Args:
        f32, int8: both models as imported.
        pairs: of `pairs_of`.
        samples: feeds, for both models.
        runs: programs that run the int8 model, by name.
        values: where the int8 model's values come from instead of the run without fusing.
        advance: called for each sample, as many times as the int8 model has nodes.

    Raises:
        InvalidInput: a feed does not fit the models, or a node cannot be computed on them.
    """
    layers = [Layer(pair) for pair in pairs]
    names = [name for name in f32.outputs if name in int8.outputs]
    found = Measured(
        layers,
        {run: {name: Whole() for name in names} for run in runs},
        {run: {name: Measure() for name in names} for run in runs},
    )
    foreign = Unfused(f32), Unfused(int8)
    for feeds in samples:
        wanted = {pair.name for pair in pairs} | set(names)
        walk = Walk(f32, feeds, wanted, foreign[0])
        sample = _Sample(int8, feeds, walk, layers, foreign[1], values(feeds))
        meant = sample.run(advance)
        for run, start in runs.items():
            outputs = start(feeds)
            for name in names:
                if walk[name].shape != meant[name].shape:
                    told = f"{list(walk[name].shape)} in one and {list(meant[name].shape)} in the other"
                    raise no_pair(f"output {name!r} is {told}", f"{f32.name} and {int8.name}")
                if outputs[name].dtype.kind == "f" and outputs[name].shape == meant[name].shape:
                    found.outputs[run][name].add(walk[name], outputs[name])
                    found.agreement[run][name].add(meant[name], outputs[name])
    return found


class _Sample:
    """One run of the int8 model, on its own values and on those of f32 at once."""

    def __init__(
        self,
        int8: Graph,
        feeds: Mapping[str, Array],
        f32: Walk,
        layers: Sequence[Layer],
        foreign: Unfused,
        theirs: Callable[[str], Array | None],
    ) -> None:
        self._int8, self._f32, self._theirs = int8, f32, theirs
        self._behind: dict[str, list[Layer]] = {}
        for layer in layers:
            self._behind.setdefault(layer.pair.raw, []).append(layer)
        self._layer_of = {value: layer for layer in layers for value in _decoded(layer)}
        self._waiting: dict[str, int] = {}
        arrays = check_feeds(int8, feeds)
        self._own, self._fed = (Live(int8, arrays, foreign, int8.outputs) for _ in range(2))

    def run(self, advance: Callable[[], None]) -> dict[str, Array]:
        """Measures one sample; the outputs without any fusing."""
        for value in self._int8.inputs:
            self._arrived(value)
        for node in self._int8.nodes():
            self._run(node)
            self._own.done(node)
            self._fed.done(node)
            advance()
        return {name: self._own[name] for name in self._int8.outputs}

    def _run(self, node: Node) -> None:
        own, fed = self._own.given(node), self._fed.given(node)
        results = self._own.computed(node, own)
        same = all(a is b for a, b in zip(own, fed, strict=True))
        others = results if same else self._fed.computed(node, fed)
        for value, array in results.items():
            self._own[value], self._fed[value] = array, others[value]
            self._arrived(value)

    def _arrived(self, value: str) -> None:
        """Measures what a new value is paired with; what reads it finds f32's numbers from now on."""
        decoded = self._layer_of.get(value)
        if decoded is not None and decoded.pair.name in self._waiting:
            name = decoded.pair.name
            self._fed[value] = self._f32[name]
            self._waiting[name] -= 1
            self._let_go(name)
        for layer in self._behind.get(value, ()):
            name = layer.pair.name
            wanted = self._f32[name]
            self._waiting[name] = len(_decoded(layer))
            if wanted.shape == self._own[value].shape:
                theirs = self._theirs(value)
                own = self._own[value] if theirs is None else theirs
                self._measure(layer, wanted, own, self._fed[value])
                self._fed[value] = wanted
            else:
                self._waiting.pop(name)
            self._let_go(name)

    def _let_go(self, name: str) -> None:
        if not self._waiting.get(name) and name not in self._int8.outputs:
            self._f32.release(name)

    def _measure(self, layer: Layer, wanted: Array, own: Array, fed: Array) -> None:
        pair = layer.pair
        layer.total.add(wanted, self._rounded(pair, 0, own) if pair.only else own)
        layer.added.add(wanted, self._rounded(pair, 0, fed) if pair.only else fed)
        grids = [grid_of(self._int8, quantizer, wanted.ndim) for quantizer in pair.quantizers]
        first = grids[0] if pair.only else None
        if pair.missing:
            gap = (fed.astype(np.float64) - np.clip(fed, *pair.bounds))[np.isfinite(fed)]
            layer.lost += float(gap @ gap)
        if first is None:
            layer.computed.add(wanted, fed)
        else:
            layer.computed.add(*(np.clip(x, first.low, first.high) for x in (wanted, fed)))
        for index, grid in enumerate(grids):
            rounded = self._rounded(pair, index, wanted)
            layer.rounded.add(wanted, rounded)
            if grid is not None:
                layer.take(grid, wanted, rounded, self._rounded(pair, index, own))

    def _rounded(self, pair: Pair, index: int, x: Array) -> Array:
        """The array behind one of the value's quantizers."""
        quantizer = pair.quantizers[index]
        constants = [self._int8.constant(value) for value in quantizer.inputs[1:]]
        codes = run_node(quantizer, [x, *constants])[0]
        if quantizer.op == "FakeQuantize":
            return codes
        scale, zero = quantizer.quant.shaped(x.ndim)
        return np.asarray(scale * (codes.astype(np.float32) - zero), np.float32)


def _decoded(layer: Layer) -> list[str]:
    return [value for values in layer.pair.decoded for value in values]
