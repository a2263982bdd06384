"""Does the first screen tell the truth? Twelve networks as a quantizer wrote them, and more with
something to find, against the same networks with the change that the first finding asks for, made by
the same quantizer.

Both run in alternating turns on fqfuse's oneDNN runtime. The figure is the median of the turns; each
turn is the fastest of its runs. With one thread it is the processor's time, which other processes
change little. Where outputs are said to be garbage the figure is their cosine to those of the f32
model in ONNX Runtime, the smallest of all outputs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import fqfuse
from fqfuse.measure.arrays import Array, Feeds, split_feeds
from fqfuse.measure.engines import onnxruntime_session
from fqfuse.report.verdict.catalogue import Gain
from fqfuse.report.verdict.findings import Finding, name_in_f32, verdict_of
from fqfuse.report.verdict.machine import this_machine
from fqfuse.report.verdict.screen import is_shown

from .build import CALIBRATION_SAMPLES, SEED
from .networks import NETWORKS, Network
from .networks.bert import build_bert, sample_tokens
from .networks.small import build_small_mobilenet, sample_small_images
from .networks.yolo import build_yolo, sample_scenes
from .quantizers import QUANTIZERS, prepare, quantize_dynamic, quantize_static, quantize_with_nncf

Quantize = Callable[[Path, Path, Feeds], None]
Mend = Callable[[Path, Path, Feeds, Sequence[str]], None]

_RUNS = 5  # of a turn
_STREAM = 2  # of random numbers, as for the benchmark's own files
_NOTHING = "nothing would help"


@dataclass(frozen=True)
class Trial:
    """One network quantized, and perhaps mended.

    Attributes:
        name: what it is.
        network: the network.
        before: writes the file that is looked at.
        after: writes it as the first finding asks, given the nodes that the finding names; None: no
            finding that a change would mend is expected.
    """

    name: str
    network: Network
    before: Quantize
    after: Mend | None = None


@dataclass(frozen=True)
class Outcome:
    """What was found and measured.

    Attributes:
        trial: its name.
        code: of the first finding that a change would mend; or that there is none.
        change: what it asks for.
        estimated: milliseconds that it says it saves.
        measure: `ms`, or `cosine`, of which more is better.
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
        better = self.after > self.before if self.measure == "cosine" else self.after < self.before
        return better and self.code != _NOTHING


def _static(
    source: Path,
    target: Path,
    calibration: Feeds,
    *,
    activations: str = "QUInt8",
    exclude: Sequence[str] = (),
    layout: str = "QDQ",
) -> None:
    prepared = target.with_name(f"prepared-{target.name}")
    prepare(source, prepared)
    quantize_static(
        prepared,
        target,
        list(split_feeds(calibration)),
        per_channel=True,
        activations=activations,
        exclude=exclude,
        layout=layout,
    )
    prepared.unlink()


def _nncf(source: Path, target: Path, calibration: Feeds, *, transformer: bool = False) -> None:
    quantize_with_nncf(source, target, list(split_feeds(calibration)), transformer)


def _named(quantizer: str) -> Quantize:
    """A quantizer of the benchmark."""

    def run(source: Path, target: Path, calibration: Feeds) -> None:
        QUANTIZERS[quantizer](source, target, calibration, False)

    return run


def _mended_by(quantize: Quantize) -> Mend:
    """The change is to the whole model: the names count nothing."""

    def run(source: Path, target: Path, calibration: Feeds, names: Sequence[str]) -> None:
        del names
        quantize(source, target, calibration)

    return run


def _taken_in(
    source: Path, target: Path, calibration: Feeds, names: Sequence[str], *, layout: str = "QDQ"
) -> None:
    """The names are taken out of nodes_to_exclude."""
    left = [name for name in _LEFT_OUT if name not in names]
    _static(source, target, calibration, exclude=left, layout=layout)


def _left_out(source: Path, target: Path, calibration: Feeds, names: Sequence[str]) -> None:
    _static(source, target, calibration, exclude=names)


def _lstm_first(source: Path, target: Path, calibration: Feeds) -> None:
    """quantize_dynamic of the LSTMs, then quantize_static of what it wrote."""
    coded = target.with_name(f"coded-{target.name}")
    quantize_dynamic(source, coded, operators=("LSTM",))
    quantize_static(coded, target, list(split_feeds(calibration)), per_channel=True)
    coded.unlink()


def _padded_tokens(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Tokens of which the last quarter, or more, is padding: the mask adds -10000 there."""
    tokens = dict(sample_tokens(rng, count))
    width = tokens["attention_mask"].shape[1]
    ends = rng.integers(width // 2, 3 * width // 4, (count, 1))
    tokens["attention_mask"] = (np.arange(width)[None] < ends).astype(np.int64)
    return tokens


_LEFT_OUT = ("/layer1/layer1.0/conv2/Conv", "/layer3/layer3.1/conv2/Conv")

_PADDED = Network("bert-padded", build_bert, _padded_tokens, "logits", transformer=True)
_MOBILENET = Network("mobilenet", build_small_mobilenet, sample_small_images, "logits")
_YOLO = Network("yolo", build_yolo, sample_scenes, "boxes")
_BERT, _RESNET, _LSTM = NETWORKS["bert"], NETWORKS["resnet50"], NETWORKS["lstm"]
_DENSENET, _MOBILENET_V2 = NETWORKS["densenet121"], NETWORKS["mobilenet_v2"]
_BY_ORT = _mended_by(_static)

TRIALS = (
    Trial("ResNet-50, ONNX Runtime, QDQ", _RESNET, _static),
    Trial("ResNet-50, ONNX Runtime, QOperator", _RESNET, partial(_static, layout="QOperator")),
    Trial("ResNet-50, NNCF", _RESNET, _nncf),
    Trial("DenseNet-121, ONNX Runtime", _DENSENET, _static),
    Trial("DenseNet-121, NNCF", _DENSENET, _nncf),
    Trial("BERT, ONNX Runtime", _BERT, _static),
    Trial(
        "BERT, NNCF with model_type=TRANSFORMER",
        _BERT,
        partial(_nncf, transformer=True),
        _mended_by(_nncf),
    ),
    Trial("BERT, quantize_dynamic", _BERT, _named("dynamic"), _BY_ORT),
    Trial("LSTM, quantize_static", _LSTM, _named("qdq"), _mended_by(_lstm_first)),
    Trial("MobileNetV3, NNCF", _MOBILENET, _nncf),
    Trial("YOLO-like, NNCF", _YOLO, _nncf),
    Trial("BERT with padding, ONNX Runtime", _PADDED, _static, _left_out),
    # the same networks with more to find
    Trial("LSTM, quantize_dynamic", _LSTM, _named("dynamic")),
    Trial(
        "ResNet-50, two convolutions excluded",
        _RESNET,
        partial(_static, exclude=_LEFT_OUT),
        _taken_in,
    ),
    Trial(
        "ResNet-50, the same in QOperator",
        _RESNET,
        partial(_static, exclude=_LEFT_OUT, layout="QOperator"),
        partial(_taken_in, layout="QOperator"),
    ),
    Trial(
        "ResNet-50, 16-bit activations", _RESNET, partial(_static, activations="QInt16"), _BY_ORT
    ),
    Trial(
        "DenseNet-121, 16-bit activations",
        _DENSENET,
        partial(_static, activations="QInt16"),
        _BY_ORT,
    ),
    Trial("BERT in f32", _BERT, _named("f32"), _BY_ORT),
    Trial("LSTM in f32", _LSTM, _named("f32"), _mended_by(_lstm_first)),
    Trial("ResNet-50 in f32", _RESNET, _named("f32"), _BY_ORT),
    Trial("MobileNetV2 in f32", _MOBILENET_V2, _named("f32"), _BY_ORT),
    Trial("DenseNet-121 in f32", _DENSENET, _named("f32"), _BY_ORT),
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
            word = "nothing to change" if item.confirmed else "no option does it"
        figures = f"{estimated} | {_figure(item.before, item.measure)} | {after}"
        lines.append(f"| {item.trial} | {item.code} | {figures} | {word} |")
    return "\n".join(lines) + "\n"


def _figure(value: float, measure: str) -> str:
    return f"cosine {value:.4f}" if measure == "cosine" else f"{value:.2f} ms"


def _outcome(
    trial: Trial, folder: Path, threads: int, rounds: int, log: Callable[[str], None]
) -> Outcome:
    network = trial.network
    stem = "-".join(trial.name.replace(",", "").split())
    before, after = (folder / f"{stem}-{when}.onnx" for when in ("before", "after"))
    if not before.exists():
        _write(before, trial.before, network)
    first = _first(before, threads)
    files = [before]
    if trial.after is not None and first is not None:
        names = [name_in_f32(layer, first.tool) for layer in first.layers]
        if not after.exists():
            _write(after, partial(_given, trial.after, names), network)
        files.append(after)
    wrong = first is not None and first.kind.gain is Gain.NUMBERS
    figures = _cosines(files, network, folder) if wrong else _times(files, network, threads, rounds)
    outcome = Outcome(
        trial.name,
        first.kind.code if first else _NOTHING,
        first.change() if first else "",
        first.ms if first else 0.0,
        "cosine" if wrong else "ms",
        figures[0],
        figures[1] if len(figures) > 1 else None,
    )
    log(f"{trial.name}: {outcome.code}, {figures}")
    return outcome


def _first(file: Path, threads: int) -> Finding | None:
    """The first finding on the first screen whose change is said to give right numbers, or time."""
    verdict = verdict_of(fqfuse.compile(file), replace(this_machine(), cores=threads))
    useful = (
        finding
        for finding in verdict.findings
        if is_shown(finding, verdict)
        and not finding.kind.no_remedy
        and finding.kind.gain in {Gain.NUMBERS, Gain.TIME}
    )
    return next(useful, None)


def _given(
    mend: Mend, names: Sequence[str], source: Path, target: Path, calibration: Feeds
) -> None:
    mend(source, target, calibration, names)


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


def _cosines(files: Sequence[Path], network: Network, folder: Path) -> list[float]:
    """Of each file, the smallest of its outputs to those of the f32 model."""
    feed = _feed(network)
    expected = onnxruntime_session(str(_source(folder, network))).run(None, dict(feed))
    return [
        min(
            _cosine(found, right)
            for found, right in zip(
                fqfuse.InferenceSession(fqfuse.compile(file)).run(None, dict(feed)),
                expected,
                strict=True,
            )
        )
        for file in files
    ]


def _cosine(found: Array, right: Array) -> float:
    a, b = (array.astype(np.float64).ravel() for array in (found, right))
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / size) if size else 0.0


def _feed(network: Network) -> Feeds:
    return next(split_feeds(network.feeds(np.random.default_rng([SEED, 3]), 1)))


def _source(folder: Path, network: Network) -> Path:
    return folder / f"{network.name}-f32.onnx"


def _write(file: Path, quantize: Quantize, network: Network) -> None:
    """Under another name first: nobody reads half a file."""
    source, unfinished = _source(file.parent, network), file.with_name("unfinished.onnx")
    if not source.exists():
        onnx.save(network.build(SEED, CALIBRATION_SAMPLES), source)
    calibration = network.feeds(np.random.default_rng([SEED, _STREAM]), CALIBRATION_SAMPLES)
    quantize(source, unfinished, calibration)
    unfinished.replace(file)
