"""The whole comparison in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from ..compiler import compile as compile_model
from ..errors import InvalidInput
from ..frontend import ModelSource, graph_from_onnx
from ..inference import InferenceSession
from ..ir.approximations import check_approximate
from ..ir.graph import Graph
from ..ir.interpret import check_feeds
from ..ir.ops.spec import Array
from ..ir.verify import IMPORTED, check
from ..plan.open_sizes import NO_SIZES, sizes_for, symbols_of
from ..plan.seal import is_plan
from ..report.verdict.findings import Finding, verdict_of
from ..report.verdict.kind import Gain
from ..report.verdict.remedies import Tool, tool_of
from .data import MADE_FROM, Samples, check_alike, drawn
from .layers import Layer, Measured, Run, measure_layers
from .matching import Pair, as_quantized, pairs_of
from .measures import Measure, grid_of
from .parts import Whole
from .peers import TELLS_VALUES, TRIAL_SECONDS, cures, peer
from .walk import Unfused, Walk

if TYPE_CHECKING:
    from ..plan.types import Plan

OURS = "fqfuse"
"""What the outputs of our own session are called."""

EXACT = "fqfuse, exact"
"""And where it approximates those of one that does not."""

_LAYERS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN")

# shares of f32's values: ONNX Runtime's quantizers and NNCF keep 0.62 and more of those of 8 networks in
# 6 forms; different networks with inputs and outputs of one name and shape share 0.02 to 0.27
_HARDLY_ANY = 0.1
_FEW = 0.3

LOST = 1.0
"""dB: what less a runtime loses of an output may be ties of rounding."""

_SANE = 1e6  # what data of a model spans at most; a quantizer of more was not made for data


@dataclass(frozen=True)
class Models:
    """Both models.

    Attributes:
        f32, int8: as imported: nothing fused.
        origin, source: where the f32 and the int8 model came from.
        plan: the int8 model compiled, with the approximations that were asked for.
        exact: without them; None where none was.
        pairs: values of both.
        unmatched: values that only the f32 model has.
    """

    f32: Graph
    int8: Graph
    origin: ModelSource
    source: ModelSource
    plan: Plan
    pairs: Sequence[Pair]
    unmatched: Sequence[str]
    exact: Plan | None = None

    @property
    def partners(self) -> tuple[int, int]:
        """How many of the values that f32 computes have a partner in the int8 model, and how many there are."""
        found = sum(pair.op != "input" for pair in self.pairs)
        return found, found + len(self.unmatched)

    @property
    def are_doubtful(self) -> bool:
        """True where so few values have a partner that these may be two different networks."""
        found, every = self.partners
        return found < _FEW * every

    @property
    def evidence(self) -> str:
        """What speaks for one network, or for two."""
        found, every = self.partners
        ours, theirs = (
            Counter(node.op for node in graph.nodes() if node.op in _LAYERS)
            for graph in (self.f32, self.int8)
        )
        text = f"of {every:,} values that the first one computes, {found:,} {'is' if found == 1 else 'are'} found in the other"
        if ours != theirs:
            counts = (", ".join(f"{n:,} {op}" for op, n in c.items()) for c in (ours, theirs))
            text += f"; they have {' and '.join(one or 'no layers' for one in counts)}"
        return text


@dataclass(frozen=True)
class Comparison:
    """What came out.

    Attributes:
        models: what was compared.
        samples: on what.
        measured: layers, and the outputs by the programs that ran the int8 model, `fqfuse` first.
        peer: what fqfuse was compared with, too; empty: nothing. The layers' accumulated figures are its own where it tells values.
        findings: of the int8 model's plan, about accuracy and wrong numbers.
        tool: the quantizer that wrote the int8 model.
        refusal: what `peer` says where its optimizations keep it from loading the int8 model.
        cures: what was tried where `peer`, as it is deployed, is farther from f32 than the file is: how it is called, and
            the smallest SQNR of an output to f32 with it.
    """

    models: Models
    samples: Samples
    measured: Measured
    peer: str
    findings: Sequence[Finding]
    tool: Tool
    refusal: str = ""
    cures: Sequence[tuple[str, float]] = ()

    @property
    def outputs(self) -> Mapping[str, Whole]:
        """Each output as fqfuse runs the int8 model, against f32."""
        return self.measured.outputs[OURS]

    @property
    def layers(self) -> Sequence[Layer]:
        """Each value of both models, in the int8 model's order."""
        return self.measured.layers

    @property
    def ranking(self) -> list[Layer]:
        """The layers that add noise, the worst first; not those that round codes again, which moves none of them."""
        noisy = [
            layer
            for layer in self.layers
            if (layer.added.noise or layer.added.broken) and not layer.pair.again
        ]
        return sorted(noisy, key=lambda layer: layer.adds)

    @property
    def told_by_peer(self) -> bool:
        """True where the layers' accumulated figures are the other program's."""
        return self.peer == TELLS_VALUES

    @property
    def least(self) -> float:
        """The smallest SQNR of an output or a part of one, in dB."""
        return min(whole.least for whole in self.outputs.values())

    @property
    def worst(self) -> float:
        """The smallest SQNR of an output, in dB."""
        return self.worst_of(OURS)

    def worst_of(self, run: str) -> float:
        """The smallest SQNR of an output of a program that ran the int8 model."""
        return min(measure.sqnr for measure in self.measured.outputs[run].values())

    @property
    def deployed(self) -> str:
        """The run of the other program as its users have it."""
        fused = optimized_by(self.peer)
        return fused if fused in self.measured.outputs else self.peer

    @property
    def loses_as_deployed(self) -> bool:
        """True where that is farther from f32 than what the file means."""
        return self.worst_of(self.deployed) < self.worst - LOST

    @property
    def masked(self) -> int:
        """Entries of attention masks, which were left out, over all layers."""
        return sum(layer.total.masked for layer in self.layers)

    def findings_at(self, layer: Layer) -> list[Finding]:
        """What `inspect` finds at a layer."""
        name = layer.pair.layer
        return [each for each in self.findings if name in map(as_quantized, each.layers)]


def read_models(f32: ModelSource, int8: ModelSource, approximate: Sequence[str] = ()) -> Models:
    """Reads and pairs two models; `approximate`: what may be done to the int8 model.

    Raises:
        FqfuseError: a model or a name is wrong, or they have different inputs, or no output in common.
    """
    named = check_approximate(approximate)
    for model in (f32, int8):
        if isinstance(model, (str, PathLike, bytes)) and is_plan(model):
            raise InvalidInput(
                "models are compared, and this is a plan",
                where="bytes" if isinstance(model, bytes) else str(model),
                hint="name the model that it was compiled from",
            )
    first, second = graph_from_onnx(f32), graph_from_onnx(int8)
    check(first, IMPORTED)
    check(second, IMPORTED)
    check_alike(first, second)
    pairs, unmatched = pairs_of(first, second)
    plan = compile_model(int8, approximate=named)
    inside = any(body.quantizers for _, body in plan.within)
    if first.quantizers and not (second.quantizers or inside):
        raise InvalidInput(
            "the first model is quantized, and the second one is not",
            where=f"{first.name} and {second.name}",
            hint="name the f32 model first",
        )
    exact = compile_model(int8) if named else None
    models = Models(first, second, f32, int8, plan, pairs, unmatched, exact)
    _check_one_network(models)
    return models


def _check_one_network(models: Models) -> None:
    """Refuses two models that have hardly a value in common: what would be told of the layers of one
    would be about those of another.

    Raises:
        InvalidInput: fewer than a tenth of the f32 model's values have a partner.
    """
    found, every = models.partners
    if found >= _HARDLY_ANY * every:
        return
    names = [
        str(source) if isinstance(source, str | PathLike) else graph.name
        for source, graph in ((models.origin, models.f32), (models.source, models.int8))
    ]
    raise InvalidInput(
        f"these are not the same network: {models.evidence}",
        where=" and ".join(names),
        hint=f"{MADE_FROM}. Was it made from this one, quantize again with the names of values kept: by "
        "these and their shapes layers are found",
    )


def drawn_for(models: Models, sizes: Mapping[str, int] = NO_SIZES) -> Samples:
    """One sample of random data.

    Raises:
        InvalidInput: as `data.drawn`.
    """
    ranges = {}
    for pair in models.pairs:
        rank = len(models.f32.type(pair.name).shape or ())
        grids = [grid_of(models.int8, quantizer, rank) for quantizer in pair.quantizers]
        if pair.op == "input" and grids and grids[0] is not None:
            low, high = float(grids[0].low.min()), float(grids[0].high.max())
            if high - low < _SANE:
                ranges[pair.name] = low, high
    given = {**_fixed_in_int8(models), **sizes}
    known = symbols_of(models.plan)
    usual = sizes_for(models.plan, {name: given[name] for name in known if name in given})
    return drawn(models.f32, 1, given, ranges, guessed=usual)


def _fixed_in_int8(models: Models) -> dict[str, int]:
    """Sizes that f32 leaves open and the quantized model does not."""
    return {
        name: size
        for value in models.f32.inputs
        for name, size in zip(
            models.f32.type(value).shape or (), models.int8.type(value).shape or (), strict=False
        )
        if isinstance(name, str) and isinstance(size, int)
    }


def compared(
    models: Models,
    samples: Samples,
    against: str | None = None,
    advance: Callable[[], None] = lambda: None,
    timeout: float = TRIAL_SECONDS,
) -> Comparison:
    """Measures two models on samples.

    Args:
        models: of `read_models`.
        samples: of `data`.
        against: `onnxruntime` or `openvino`, to run the int8 model, too.
        advance: called for each sample as many times as the int8 model has nodes.
        timeout: seconds that the other program may take for its first run, where that is tried out.

    Raises:
        FqfuseError: the samples do not fit, a model cannot be run on them, or the other program is missing.
    """
    _check_fits(models, samples)
    runs: dict[str, Run] = {OURS: _running(models.plan)}
    if models.exact is not None:
        runs[EXACT] = _running(models.exact)
    more: dict[str, Any] = {}
    refusal = ""
    if against is not None:
        names = [pair.raw for pair in models.pairs]
        other = peer(against, models.source, names, next(iter(samples.feeds), None), timeout)
        runs[against] = other.run
        if other.optimized is not None:
            runs[optimized_by(against)] = other.optimized
        more["values"], refusal = other.values, other.refusal
    measured = measure_layers(
        models.f32, models.int8, models.pairs, samples.feeds, runs, advance=advance, **more
    )
    found = [
        finding
        for finding in verdict_of(models.plan).findings
        if finding.kind.gain in (Gain.NUMBERS, Gain.ACCURACY)
    ]
    tool = tool_of(models.plan)
    whole = Comparison(models, samples, measured, against or "", found, tool, refusal)
    if against is None or not whole.loses_as_deployed:
        return whole
    tried = cures(against, models.source, next(iter(samples.feeds)), timeout)
    measures = ((name, _measured(models.f32, samples, run)) for name, run in tried)
    return replace(whole, cures=tuple(measures))


def _measured(f32: Graph, samples: Samples, run: Run) -> float:
    """The smallest SQNR of an output of a run to f32."""
    found: dict[str, Measure] = {}
    foreign = Unfused(f32)
    for feeds in samples.feeds:
        walk = Walk(f32, feeds, f32.outputs, foreign)
        for name, output in run(feeds).items():
            if name in f32.outputs and output.dtype.kind == "f":
                found.setdefault(name, Measure()).add(walk[name], output)
    return min(measure.sqnr for measure in found.values())


def optimized_by(peer: str) -> str:
    """What the run of another program with its optimizations is called, where it runs without them, too."""
    return f"{peer}, optimized"


def _check_fits(models: Models, samples: Samples) -> None:
    """Refuses samples that a model does not take, with the name of that model.

    Raises:
        InvalidInput: a feed is missing, unknown, or of another type or shape.
    """
    for graph, source in ((models.f32, models.origin), (models.int8, models.source)):
        named = str(source) if isinstance(source, str | PathLike) else graph.name
        for feeds in samples.feeds:
            try:
                check_feeds(graph, feeds)
            except InvalidInput as error:
                where = f"{named}: {error.where}" if error.where != graph.name else named
                raise InvalidInput(error.what, where=where, hint=error.hint) from error


def _running(plan: Plan) -> Run:
    session = InferenceSession(plan)

    def run(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        return dict(zip(plan.outputs, session.run_carried(None, feeds), strict=True))

    return run
