"""Does the first screen tell the truth? Twelve networks as the quantizers write them by their
defaults, and more with something to find, against the same networks with the change that the first
finding asks for, made by the same quantizer.

What is said to take time is timed: both files run in alternating turns on fqfuse's oneDNN runtime. The
figure is the median of the turns; each turn is the fastest of its runs. With one thread it is the
processor's time, which other processes change little. What is said to cost accuracy is compared to the
f32 model in ONNX Runtime, on inputs that the calibration has not seen: SQNR in dB, or, where outputs are
said to be far off, the cosine; the smallest of all outputs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

import fqfuse
from fqfuse.accuracy.measures import sqnr_of
from fqfuse.measure.arrays import Array, Feeds, split_feeds
from fqfuse.measure.engines import onnxruntime_session
from fqfuse.report.verdict.findings import Finding, verdict_of
from fqfuse.report.verdict.kind import Gain
from fqfuse.report.verdict.layers import name_in_f32
from fqfuse.report.verdict.machine import this_machine
from fqfuse.report.verdict.screen import is_shown

from .build import CALIBRATION_SAMPLES, SEED
from .networks import NETWORKS, Network
from .networks.bert import build_bert, sample_tokens
from .networks.small import build_small_mobilenet, sample_small_images
from .quantizers import QUANTIZERS, prepare, quantize_dynamic, quantize_static, quantize_with_nncf

_RUNS = 5  # of a turn
_STREAM, _UNSEEN = 2, 3  # of random numbers, as for the benchmark's own files
_INPUTS = 16  # settle a SQNR to some tenths of a dB
_NOTHING = "nothing would help"
_UNITS: Mapping[Gain, str] = MappingProxyType(
    {Gain.NUMBERS: "cosine", Gain.TIME: "ms", Gain.ACCURACY: "dB"}
)


@dataclass(frozen=True)
class Recipe:
    """How a file is made; without arguments, by `quantize_static` with its defaults.

    Attributes:
        tool: `static`, `lstm, then static` (quantize_dynamic of the LSTMs in front of it), `dynamic`,
            `nncf`, or a name of `quantizers.QUANTIZERS`.
        prepared: behind `quant_pre_process`.
        per_channel: of `quantize_static` and `quantize_dynamic`.
        activations, layout: of `quantize_static`.
        exclude: of `quantize_static` and NNCF.
        transformer: NNCF's `model_type`.
    """

    tool: str = "static"
    prepared: bool = False
    per_channel: bool = False
    activations: str = "QInt8"
    layout: str = "QDQ"
    exclude: tuple[str, ...] = ()
    transformer: bool = False

    def write(self, source: Path, target: Path, calibration: Feeds) -> None:
        """Quantizes the file, as the tool does it."""
        feeds = list(split_feeds(calibration))
        if self.tool == "dynamic":
            quantize_dynamic(source, target, per_channel=self.per_channel)
        elif self.tool in QUANTIZERS and self.tool != "nncf":
            QUANTIZERS[self.tool](source, target, calibration, False)
        elif self.tool == "nncf":
            quantize_with_nncf(source, target, feeds, self.transformer, self.exclude)
        else:
            self._static(source, target, feeds)

    def _static(self, source: Path, target: Path, feeds: Sequence[Feeds]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            between = Path(folder) / "between.onnx"
            if self.tool != "static":
                quantize_dynamic(source, between, operators=("LSTM",))
            elif self.prepared:
                prepare(source, between)
            quantize_static(
                between if between.exists() else source,
                target,
                feeds,
                per_channel=self.per_channel,
                activations=self.activations,
                exclude=self.exclude,
                layout=self.layout,
            )


Change = Callable[[Recipe, Sequence[str]], Recipe]


def _set(**changes: object) -> Change:
    """Another setting of the tool: the names count nothing."""
    return lambda recipe, _: replace(recipe, **changes)  # type: ignore[arg-type]  # names of fields


def _leave_out(recipe: Recipe, names: Sequence[str]) -> Recipe:
    return replace(recipe, exclude=(*recipe.exclude, *names))


def _take_in(recipe: Recipe, names: Sequence[str]) -> Recipe:
    return replace(recipe, exclude=tuple(name for name in recipe.exclude if name not in names))


_CALIBRATED = Recipe(prepared=True, per_channel=True, activations="QUInt8")
"""What the findings advise where a model is not calibrated."""


def _with_attention(recipe: Recipe, _: Sequence[str]) -> Recipe:
    return _CALIBRATED if recipe.tool == "dynamic" else replace(recipe, transformer=False)


CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "not-quantized": lambda *_: _CALIBRATED,
        "absurd-scale": _leave_out,
        "unused-weight-range": _set(per_channel=True),
        "norm-behind-quantizer": _set(prepared=True),
        "unquantized-recurrence": _set(tool="lstm, then static", per_channel=True),
        "wide-codes": _set(activations="QUInt8"),
        "dynamic-quantizer": lambda *_: _CALIBRATED,
        "f32-attention": _with_attention,
        "f32-weights": _take_in,
        "left-by-qoperator": _set(layout="QDQ"),
    }
)
"""Code of a finding -> what its remedy, given the nodes that it names, changes in the recipe."""


@dataclass(frozen=True)
class Trial:
    """One network quantized.

    Attributes:
        name: what it is.
        network: the network.
        recipe: how it was quantized.
    """

    name: str
    network: Network
    recipe: Recipe


@dataclass(frozen=True)
class Outcome:
    """What was found and measured.

    Attributes:
        trial: its name.
        code: of the first finding that a change would mend; or that there is none.
        change: what it asks for.
        estimated: milliseconds that it says it saves.
        measure: `ms`, or `cosine` or `dB`, of which more is better.
        before, after: measured; None where nothing was changed.
    """

    trial: str
    code: str
    change: str
    estimated: float
    measure: str
    before: float
    after: float | None

    @property
    def confirmed(self) -> bool:
        """The change made it better, as the finding says; or it asks for none, and none is known."""
        if self.after is None:
            return self.code == _NOTHING
        return self.after < self.before if self.measure == "ms" else self.after > self.before


def _padded_tokens(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Tokens of which the last quarter, or more, is padding: the mask adds -10000 there."""
    tokens = dict(sample_tokens(rng, count))
    width = tokens["attention_mask"].shape[1]
    ends = rng.integers(width // 2, 3 * width // 4, (count, 1))
    tokens["attention_mask"] = (np.arange(width)[None] < ends).astype(np.int64)
    return tokens


_LEFT_OUT = ("/layer1/layer1.0/conv2/Conv", "/layer3/layer3.1/conv2/Conv")

_PADDED = Network("bert-padded", build_bert, _padded_tokens, "logits", transformer=True)
_MASKED = Network(
    "bert-masked",
    partial(build_bert, lowest=float(np.finfo(np.float32).min)),
    _padded_tokens,
    "logits",
    transformer=True,
)
_MOBILENET = Network("mobilenet", build_small_mobilenet, sample_small_images, "logits")
_BERT, _RESNET, _LSTM = NETWORKS["bert"], NETWORKS["resnet50"], NETWORKS["lstm"]
_DENSENET, _MOBILENET_V2 = NETWORKS["densenet121"], NETWORKS["mobilenet_v2"]
_YOLO = NETWORKS["yolo"]
_BY_ORT, _BY_NNCF, _F32 = Recipe(), Recipe("nncf"), Recipe("f32")
_WIDE = replace(_CALIBRATED, activations="QInt16")
_PARTLY = replace(_CALIBRATED, exclude=_LEFT_OUT)

TRIALS = (
    Trial("ResNet-50, quantize_static", _RESNET, _BY_ORT),
    Trial("ResNet-50, quantize_static to QOperator", _RESNET, Recipe(layout="QOperator")),
    Trial("ResNet-50, NNCF", _RESNET, _BY_NNCF),
    Trial("DenseNet-121, quantize_static", _DENSENET, _BY_ORT),
    Trial("DenseNet-121, NNCF", _DENSENET, _BY_NNCF),
    Trial("BERT, quantize_static", _BERT, _BY_ORT),
    Trial("BERT, NNCF with model_type=TRANSFORMER", _BERT, replace(_BY_NNCF, transformer=True)),
    Trial("BERT, quantize_dynamic", _BERT, Recipe("dynamic")),
    Trial("LSTM, quantize_static", _LSTM, _BY_ORT),
    Trial("MobileNetV3, NNCF", _MOBILENET, _BY_NNCF),
    Trial("YOLO-like, NNCF", _YOLO, _BY_NNCF),
    Trial("BERT with padding, quantize_static", _PADDED, _BY_ORT),
    # the same networks by another tool, or with more to find
    Trial("MobileNetV3, quantize_static", _MOBILENET, _BY_ORT),
    Trial("YOLO-like, quantize_static", _YOLO, _BY_ORT),
    Trial("BERT, NNCF", _BERT, _BY_NNCF),
    Trial("BERT with padding, its mask -3.4e38, NNCF", _MASKED, _BY_NNCF),
    Trial("LSTM, quantize_dynamic", _LSTM, Recipe("dynamic")),
    Trial("ResNet-50, quantize_static with per_channel", _RESNET, Recipe(per_channel=True)),
    Trial("ResNet-50, as the guide advises", _RESNET, _CALIBRATED),
    Trial("ResNet-50, two convolutions excluded", _RESNET, _PARTLY),
    Trial("ResNet-50, the same in QOperator", _RESNET, replace(_PARTLY, layout="QOperator")),
    Trial("ResNet-50, 16-bit activations", _RESNET, _WIDE),
    Trial("DenseNet-121, 16-bit activations", _DENSENET, _WIDE),
    Trial("BERT in f32", _BERT, _F32),
    Trial("LSTM in f32", _LSTM, _F32),
    Trial("ResNet-50 in f32", _RESNET, _F32),
    Trial("MobileNetV2 in f32", _MOBILENET_V2, _F32),
    Trial("DenseNet-121 in f32", _DENSENET, _F32),
)


def remedies(
    folder: Path,
    threads: int,
    rounds: int,
    log: Callable[[str], None],
    trials: Sequence[Trial] = TRIALS,
) -> list[Outcome]:
    """Build what is missing below ``folder``, measure, and return what came out, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_outcome(trial, folder, threads, rounds, log) for trial in trials]


def remedies_table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        "| file | first finding | estimated gain | before | after | better |",
        "|---|---|---|---|---|---|",
    ]
    for item in outcomes:
        estimated = f"{item.estimated:.2g} ms" if item.estimated else ""
        after = "" if item.after is None else _figure(item.after, item.measure)
        word = "yes" if item.confirmed else "NO"
        if item.after is None:
            word = "nothing to change" if item.confirmed else "not tried"
        figures = f"{estimated} | {_figure(item.before, item.measure)} | {after}"
        lines.append(f"| {item.trial} | {item.code} | {figures} | {word} |")
    return "\n".join(lines) + "\n"


def _figure(value: float, measure: str) -> str:
    if measure == "cosine":
        return f"cosine {value:.4f}"
    return f"{value:.1f} dB" if measure == "dB" else f"{value:.2f} ms"


def _outcome(
    trial: Trial, folder: Path, threads: int, rounds: int, log: Callable[[str], None]
) -> Outcome:
    network = trial.network
    stem = "-".join(trial.name.replace(",", "").split())
    before = folder / f"{stem}.onnx"
    _write(before, trial.recipe, network)
    first = _first(before, threads)
    files = [before]
    if first is not None and first.kind.code in CHANGES:
        names = [name_in_f32(layer, first.tool) for layer in first.layers]
        changed = CHANGES[first.kind.code](trial.recipe, names)
        if changed != trial.recipe:
            files.append(folder / f"{stem}-{first.kind.code}.onnx")
            _write(files[1], changed, network)
    measure = _UNITS[first.kind.gain if first else Gain.TIME]
    if measure == "ms":
        figures = _times(files, network, threads, rounds)
    else:
        figures = _likenesses(files, network, folder, _cosine if measure == "cosine" else sqnr_of)
    outcome = Outcome(
        trial.name,
        first.kind.code if first else _NOTHING,
        first.change() if first else "",
        first.ms if first else 0.0,
        measure,
        figures[0],
        figures[1] if len(figures) > 1 else None,
    )
    log(f"{trial.name}: {outcome.code}, {figures}")
    return outcome


def _first(file: Path, threads: int) -> Finding | None:
    """The first finding on the first screen whose change is said to give right numbers, time or
    accuracy.
    """
    verdict = verdict_of(fqfuse.compile(file), replace(this_machine(), cores=threads))
    useful = (
        finding
        for finding in verdict.findings
        if is_shown(finding, verdict) and not finding.kind.no_remedy and finding.kind.gain in _UNITS
    )
    return next(useful, None)


def _times(files: Sequence[Path], network: Network, threads: int, rounds: int) -> list[float]:
    sessions = [fqfuse.InferenceSession(fqfuse.compile(file), "onednn", threads) for file in files]
    feed = _feed(network)
    clock = time.process_time if threads == 1 else time.perf_counter
    turns: list[list[float]] = [[] for _ in files]
    for number in range(rounds + 1):  # the first round does not count
        for session, taken in zip(sessions, turns, strict=True):
            seconds = min(_seconds(session, feed, clock) for _ in range(_RUNS))
            if number:
                taken.append(seconds * 1e3)
    return list(map(statistics.median, turns))


def _seconds(session: fqfuse.InferenceSession, feed: Feeds, clock: Callable[[], float]) -> float:
    started = clock()
    session.run(None, dict(feed))
    return clock() - started


def _likenesses(
    files: Sequence[Path],
    network: Network,
    folder: Path,
    likeness: Callable[[Array, Array], float],
) -> list[float]:
    """Of each file, the smallest of its outputs to those of the f32 model, over all inputs."""
    feeds = list(split_feeds(network.feeds(np.random.default_rng([SEED, _UNSEEN]), _INPUTS)))
    expected = _joined(onnxruntime_session(str(_source(folder, network))).run, feeds)
    return [
        min(
            likeness(right, found)
            for right, found in zip(
                expected,
                _joined(fqfuse.InferenceSession(fqfuse.compile(file)).run, feeds),
                strict=True,
            )
        )
        for file in files
    ]


def _joined(run: Callable[..., Sequence[Array]], feeds: Sequence[Feeds]) -> list[Array]:
    """Each output over all inputs, as one array."""
    outputs = zip(*(run(None, dict(feed)) for feed in feeds), strict=True)
    return [np.concatenate([np.ravel(array) for array in output]) for output in outputs]


def _cosine(found: Array, right: Array) -> float:
    a, b = (array.astype(np.float64).ravel() for array in (found, right))
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / size) if size else 0.0


def _feed(network: Network) -> Feeds:
    return next(split_feeds(network.feeds(np.random.default_rng([SEED, _UNSEEN]), 1)))


def _source(folder: Path, network: Network) -> Path:
    return folder / f"{network.name}-f32.onnx"


def _write(file: Path, recipe: Recipe, network: Network) -> None:
    """Where it is not there yet; under another name first: nobody reads half a file."""
    if file.exists():
        return
    source, unfinished = _source(file.parent, network), file.with_name("unfinished.onnx")
    if not source.exists():
        onnx.save(network.build(SEED, CALIBRATION_SAMPLES), source)
    calibration = network.feeds(np.random.default_rng([SEED, _STREAM]), CALIBRATION_SAMPLES)
    recipe.write(source, unfinished, calibration)
    unfinished.replace(file)
