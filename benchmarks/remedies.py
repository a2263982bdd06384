"""Does a finding's remedy help? Files as a quantizer wrote them, with something to find, against the
same networks with the change that the first finding asks for, made by the same quantizer.

Both run in alternating turns on fqfuse's oneDNN runtime. The figure is the median of the turns; each
turn is the fastest of its runs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import fqfuse
from fqfuse.measure.arrays import Feeds, split_feeds

from .build import CALIBRATION_SAMPLES, SEED
from .networks import NETWORKS, Network
from .quantizers import QUANTIZERS, prepare, quantize_static

Quantize = Callable[[Path, Path, Feeds, bool], None]

_RUNS = 5  # of a turn
_STREAM = 2  # of random numbers, as for the benchmark's own files


@dataclass(frozen=True)
class Trial:
    """One network quantized twice.

    Attributes:
        name: what is there to find.
        network: of ``NETWORKS``.
        before, after: write the file with the finding, and with its remedy.
    """

    name: str
    network: str
    before: Quantize
    after: Quantize


@dataclass(frozen=True)
class Outcome:
    """What was found and measured.

    Attributes:
        trial: its name.
        code, change: of the first finding in the file before.
        estimated: milliseconds that the finding says it saves.
        before_ms, after_ms: measured.
    """

    trial: str
    code: str
    change: str
    estimated: float
    before_ms: float
    after_ms: float

    @property
    def confirmed(self) -> bool:
        """The change made it faster, as the finding says."""
        return self.after_ms < self.before_ms


def _static(
    source: Path,
    target: Path,
    calibration: Feeds,
    _: bool,
    *,
    activations: str = "QUInt8",
    exclude: Sequence[str] = (),
) -> None:
    prepared = target.with_name(f"prepared-{target.name}")
    prepare(source, prepared)
    feeds = list(split_feeds(calibration))
    quantize_static(
        prepared, target, feeds, per_channel=True, activations=activations, exclude=exclude
    )


def _plain_nncf(source: Path, target: Path, calibration: Feeds, _: bool) -> None:
    QUANTIZERS["nncf"](source, target, calibration, False)


_LEFT_OUT = ("/layer1/layer1.0/conv2/Conv", "/layer3/layer3.1/conv2/Conv")

TRIALS = (
    Trial("NNCF with model_type=TRANSFORMER", "bert", QUANTIZERS["nncf"], _plain_nncf),
    Trial("quantize_dynamic", "bert", QUANTIZERS["dynamic"], QUANTIZERS["ort"]),
    Trial("an encoder in f32", "bert", QUANTIZERS["f32"], QUANTIZERS["ort"]),
    Trial(
        "two excluded convolutions",
        "resnet50",
        partial(_static, exclude=_LEFT_OUT),
        QUANTIZERS["ort"],
    ),
    Trial(
        "16-bit activations", "resnet50", partial(_static, activations="QInt16"), QUANTIZERS["ort"]
    ),
    Trial("a network in f32", "resnet50", QUANTIZERS["f32"], QUANTIZERS["ort"]),
    Trial("a small network in f32", "mobilenet_v2", QUANTIZERS["f32"], QUANTIZERS["ort"]),
    Trial("a deep network in f32", "densenet121", QUANTIZERS["f32"], QUANTIZERS["ort"]),
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
        "| file | first finding | estimated gain | before | after | faster |",
        "|---|---|---|---|---|---|",
    ]
    for item in outcomes:
        figures = f"{item.estimated:.2g} ms | {item.before_ms:.2f} ms | {item.after_ms:.2f} ms"
        word = "yes" if item.confirmed else "NO"
        lines.append(f"| {item.trial} | {item.code} | {figures} | {word} |")
    return "\n".join(lines) + "\n"


def _outcome(
    trial: Trial, folder: Path, threads: int, rounds: int, log: Callable[[str], None]
) -> Outcome:
    network = NETWORKS[trial.network]
    stem = "-".join(trial.name.split())
    files = [folder / f"{trial.network}-{stem}-{when}.onnx" for when in ("before", "after")]
    for file, quantize in zip(files, (trial.before, trial.after), strict=True):
        if not file.exists():
            _write(file, quantize, network)
    plans = [fqfuse.compile(file) for file in files]
    first = fqfuse.findings(plans[0])[0]
    sessions = [fqfuse.InferenceSession(plan, "onednn", threads) for plan in plans]
    feed = next(split_feeds(network.feeds(np.random.default_rng([SEED, 3]), 1)))
    turns: list[list[float]] = [[], []]
    for number in range(rounds + 1):  # the first round does not count
        for session, taken in zip(sessions, turns, strict=True):
            seconds = min(_seconds(session, feed) for _ in range(_RUNS))
            if number:
                taken.append(seconds * 1e3)
    before, after = map(statistics.median, turns)
    outcome = Outcome(trial.name, first["code"], first["change"], first["ms"], before, after)
    log(f"{trial.name}: {outcome.code}, {before:.2f} -> {after:.2f} ms")
    return outcome


def _seconds(session: fqfuse.InferenceSession, feed: Feeds) -> float:
    started = time.perf_counter()
    session.run(None, dict(feed))
    return time.perf_counter() - started


def _write(file: Path, quantize: Quantize, network: Network) -> None:
    """Under another name first: nobody reads half a file."""
    source, unfinished = (
        file.with_name(f"{network.name}-f32.onnx"),
        file.with_name("unfinished.onnx"),
    )
    if not source.exists():
        onnx.save(network.build(SEED, CALIBRATION_SAMPLES), source)
    calibration = network.feeds(np.random.default_rng([SEED, _STREAM]), CALIBRATION_SAMPLES)
    quantize(source, unfinished, calibration, network.transformer)
    unfinished.replace(file)
