"""What is an export worth? A file as its quantizer wrote it against the same file exported, in peers.

All take turns on one machine, the f32 file's outputs judge each. OpenVINO has no operators of ONNX
Runtime's own, so it runs the source and `qdq`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import fqfuse
from fqfuse.exporter import FORMS
from fqfuse.measure.arrays import load_arrays, save_arrays
from fqfuse.measure.process import WorkerProcess
from fqfuse.measure.turns import (
    Row,
    Settings,
    Turn,
    attempt,
    load_turn,
    median_interval,
    take_turns,
)

from .accuracy import compare_outputs
from .build import SEED, Case
from .measure import REFERENCE

FILES = ("resnet50-nncf", "mobilenet_v2-nncf", "densenet121-nncf", "bert-nncf", "bert-ort")
"""Those that gain, and one that ONNX Runtime's own quantizer wrote, which should lose nothing."""

SOURCE = "source"
_STREAM = 4  # of random numbers; see build.py for the others


@dataclass(frozen=True)
class Gain:
    """One engine on one form of a file.

    Attributes:
        file, engine: which.
        form: `source`, or a form of the export.
        reason: why there are no figures; empty where there are.
        ms: median over the rounds of each round's median.
        spread: (slowest - fastest round) / median.
        times: how many times as fast as the source, in the median of the rounds.
        low, high: hold the median of `times` with 95 %.
        sqnr_db: against the f32 file, the lowest of the outputs.
    """

    file: str
    engine: str
    form: str
    reason: str = ""
    ms: float = 0.0
    spread: float = 0.0
    times: float = 1.0
    low: float = 1.0
    high: float = 1.0
    sqnr_db: float = 0.0


def exports(
    wanted: Sequence[Case],
    engines: Sequence[str],
    settings: Settings,
    folder: Path,
    log: Callable[[str], None],
) -> list[Gain]:
    """Export each file in each form to ``folder``, measure, and return what came out, in order.

    Raises:
        ValueError: fewer than six rounds, which tell no interval.
    """
    median_interval([1.0] * settings.rounds)  # before minutes have passed
    folder.mkdir(parents=True, exist_ok=True)
    gains = []
    for case in wanted:
        found = _measure(case, engines, settings, folder)
        for gain in found:
            log(f"{gain.file:18} {gain.engine:12} {gain.form:10} {gain.reason or _figures(gain)}")
        gains += found
    return gains


def exports_table(gains: Sequence[Gain]) -> str:
    """The gains as a Markdown table."""
    lines = [
        "| file | engine | form | ms | spread | times as fast (95 %) | SQNR dB |",
        "|---|---|---|---|---|---|---|",
    ]
    for gain in gains:
        figures = [gain.reason, "", "", ""] if gain.reason else _cells(gain)
        lines.append(f"| {' | '.join([gain.file, gain.engine, gain.form, *figures])} |")
    return "\n".join(lines) + "\n"


def _cells(gain: Gain) -> list[str]:
    times = f"{gain.times:.2f} ({gain.low:.2f} to {gain.high:.2f})"
    return [
        f"{gain.ms:.2f}",
        f"{gain.spread:.0%}",
        "" if gain.form == SOURCE else times,
        f"{gain.sqnr_db:.2f}",
    ]


def _figures(gain: Gain) -> str:
    times = "" if gain.form == SOURCE else f", {gain.times:.2f} times as fast"
    return f"{gain.ms:9.3f} ms{times}, {gain.sqnr_db:.2f} dB"


def _measure(case: Case, engines: Sequence[str], settings: Settings, folder: Path) -> list[Gain]:
    paths = {SOURCE: case.path}
    for form in FORMS:
        paths[form] = folder / f"{case.name}-{form}.onnx"
        fqfuse.export(case.path, paths[form], to=form)
    feeds = folder / f"{case.name}-feeds.npz"
    drawn = case.network.feeds(np.random.default_rng([SEED, _STREAM]), settings.accuracy_inputs)
    save_arrays(feeds, drawn)
    entrants = [(REFERENCE, SOURCE, case.float_path)]
    for engine in engines:
        forms = paths if engine == "onnxruntime" else (SOURCE, "qdq")
        entrants += [(engine, form, paths[form]) for form in forms]
    with ExitStack() as stack:
        turns = []
        for engine, form, path in entrants:
            log = folder / f"{case.name}-{form}-{engine}.log"
            worker = stack.enter_context(WorkerProcess(settings.threads, log))
            turn = Turn(Row(f"{case.name}-{form}", engine), worker)
            turns.append(turn)
            attempt(turn, lambda turn, path=path: load_turn(turn, path, feeds, settings))
            time.sleep(settings.pause)
        take_turns(turns[1:], settings)  # the f32 file is asked for its outputs alone
        outputs = [_outputs(turn, folder, settings) for turn in turns]
    by_engine = {
        turn.row.engine: turn.row
        for turn, (_, form, _) in zip(turns[1:], entrants[1:], strict=True)
        if form == SOURCE
    }
    return [
        _gain(case, form, turn.row, by_engine[engine], outputs[0], given)
        for turn, (engine, form, _), given in zip(turns, entrants, outputs, strict=True)
        if engine != REFERENCE
    ]


def _outputs(turn: Turn, folder: Path, settings: Settings) -> list[Any]:
    """What the engine gives for every feed; nothing where it failed."""
    path = folder / f"{turn.row.file}-{turn.row.engine}-outputs.npz"
    attempt(turn, lambda turn: turn.worker.ask("outputs", settings.timeout, to=str(path.resolve())))
    return list(load_arrays(path).values()) if turn.alive else []


def _gain(
    case: Case, form: str, row: Row, source: Row, expected: Sequence[Any], given: Sequence[Any]
) -> Gain:
    names = [
        value.name for value in onnx.load(case.float_path, load_external_data=False).graph.output
    ]
    reason = row.reason or ("" if expected else "the f32 file gave nothing")
    if reason:
        return Gain(case.name, row.engine, form, reason)
    ratios = [a / b for a, b in zip(source.rounds_ms, row.rounds_ms, strict=False)]
    interval = (statistics.median(ratios), *median_interval(ratios)) if ratios else (0.0, 0.0, 0.0)
    found = compare_outputs(expected, given, names, case.network.logits)
    assert row.median_ms is not None  # nothing failed
    assert row.spread is not None
    return Gain(
        case.name, row.engine, form, "", row.median_ms, row.spread, *interval, found["sqnr_db"]
    )
