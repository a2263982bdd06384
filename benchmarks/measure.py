"""Measures engines on one file, taking turns: every round gives each engine a turn, with a pause in
between.

Turns make a drifting clock or a noisy neighbour hit all engines alike. The pause lets the idle
threads of the engine that just ran stop spinning, which OpenMP and thread pools do for up to a few
hundred milliseconds and which would slow down the next.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .accuracy import compare_outputs
from .arrays import Array, load_arrays, save_arrays
from .build import SEED, Case
from .process import WorkerFailed, WorkerProcess

__all__ = [
    "REFERENCE",
    "Row",
    "Settings",
    "Turn",
    "load_turn",
    "measure_case",
    "measure_peak",
    "take_turns",
]

REFERENCE = "onnxruntime-f32"
_ACCURACY_STREAM = 4  # of random numbers; see build.py for the others


@dataclass(frozen=True)
class Settings:
    """How to measure. A turn runs for about ``turn_seconds`` but at least ``min_runs`` and at most
    ``max_runs`` times.
    """

    threads: int = 2
    rounds: int = 7
    turn_seconds: float = 0.3
    min_runs: int = 5
    max_runs: int = 100
    warmup: int = 2
    pause: float = 0.3
    accuracy_inputs: int = 64
    timeout: float = 300.0


@dataclass
class Row:
    """One engine on one file; ``reason`` is empty if everything worked.

    ``median_ms`` is the median of the rounds' medians; ``memory_peak`` the peak of resident bytes
    above those before the engine was imported. Seconds are of one fresh process.
    """

    file: str
    engine: str
    reason: str = ""
    median_ms: float | None = None
    rounds_ms: list[float] = field(default_factory=list)
    spread: float | None = None
    import_s: float | None = None
    load_s: float | None = None
    first_run_s: float | None = None
    memory_peak: int | None = None
    sqnr_db: float | None = None
    outputs_db: dict[str, float] = field(default_factory=dict)
    top1: float | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self)


@dataclass
class Turn:
    """An engine that takes part: its row, its process, and how many runs make a turn."""

    row: Row
    worker: WorkerProcess
    runs: int = 0
    alive: bool = True


def measure_case(
    case: Case,
    engines: Sequence[str],
    settings: Settings,
    scratch: Path,
    log: Callable[[str], None],
) -> list[Row]:
    """Measure the engines on one quantized file and on its f32 original (always, as the reference
    of accuracy).

    ``scratch`` takes feeds, outputs and the engines' stderr.
    """
    feeds = scratch / f"{case.network.name}-feeds.npz"
    save_arrays(
        feeds,
        case.network.feeds(
            np.random.default_rng([SEED, _ACCURACY_STREAM]), settings.accuracy_inputs
        ),
    )
    with ExitStack() as stack:
        turns = []
        for engine in dict.fromkeys([REFERENCE, *engines]):
            worker = stack.enter_context(
                WorkerProcess(settings.threads, scratch / f"{case.name}-{engine}.log")
            )
            turn = Turn(Row(case.name, engine), worker)
            turns.append(turn)
            path = case.float_path if engine == REFERENCE else case.path
            _attempt(turn, partial(load_turn, path=path, feeds=feeds, settings=settings))
            time.sleep(settings.pause)
        take_turns(turns, settings)
        for turn in turns:
            _attempt(turn, partial(_memory, settings=settings))
            _attempt(turn, partial(_outputs, scratch=scratch, settings=settings))
        _accuracy(turns, case, scratch)
    for turn in turns:
        log(
            f"{turn.row.file:18} {turn.row.engine:16} "
            + (turn.row.reason or f"{turn.row.median_ms:9.3f} ms")
        )
    return [turn.row for turn in turns]


def measure_peak(threads: int, scratch: Path) -> dict[str, Any]:
    """Return oneDNN's int8 matmul peak, see peak.py, or ``{"reason": ...}``."""
    with WorkerProcess(threads, scratch / "peak.log") as worker:
        try:
            return worker.ask("peak", 120, threads=threads)
        except WorkerFailed as failure:
            return {"reason": str(failure)}


def _attempt(turn: Turn, step: Callable[[Turn], None]) -> None:
    """Do a step unless the engine failed before; a failure becomes the row's reason and ends its
    part.
    """
    if not turn.alive:
        return
    try:
        step(turn)
    except WorkerFailed as failure:
        turn.alive = False
        turn.row.reason = str(failure)


def load_turn(turn: Turn, path: Path, feeds: Path, settings: Settings) -> None:
    """Open the file in the turn's process and find how many runs make a turn; WorkerFailed if that
    fails.
    """
    arguments = {
        "engine": turn.row.engine,
        "path": str(path.resolve()),
        "feeds": str(feeds.resolve()),
        "threads": settings.threads,
    }
    answer = turn.worker.ask("load", settings.timeout, **arguments)
    turn.row.import_s, turn.row.load_s, turn.row.first_run_s = (
        answer[k] for k in ("import_s", "load_s", "first_run_s")
    )
    turn.row.note = answer["note"]
    turn.row.memory_peak = -answer["resident_before"]  # completed by _memory
    seconds = turn.worker.ask("time", settings.timeout, runs=3, warmup=settings.warmup)["seconds"]
    turn.runs = max(
        settings.min_runs, min(settings.max_runs, round(settings.turn_seconds / min(seconds)))
    )


def take_turns(turns: Sequence[Turn], settings: Settings) -> None:
    """Run the rounds; each begins with another engine, so that nobody always follows the same
    one.
    """
    for index in range(settings.rounds):
        for position in range(len(turns)):
            turn = turns[(index + position) % len(turns)]
            if turn.alive:
                _attempt(turn, partial(_time, settings=settings))
                time.sleep(settings.pause)
    for turn in turns:
        rounds = turn.row.rounds_ms
        if turn.alive and rounds:
            turn.row.median_ms = statistics.median(rounds)
            turn.row.spread = (max(rounds) - min(rounds)) / turn.row.median_ms


def _time(turn: Turn, settings: Settings) -> None:
    answer = turn.worker.ask("time", settings.timeout, runs=turn.runs, warmup=settings.warmup)
    turn.row.rounds_ms.append(statistics.median(answer["seconds"]) * 1e3)


def _memory(turn: Turn, settings: Settings) -> None:
    turn.row.memory_peak = (turn.row.memory_peak or 0) + turn.worker.ask(
        "memory", settings.timeout
    )["peak"]


def _outputs(turn: Turn, scratch: Path, settings: Settings) -> None:
    turn.worker.ask("outputs", settings.timeout, to=str(_outputs_path(turn, scratch).resolve()))


def _outputs_path(turn: Turn, scratch: Path) -> Path:
    return scratch / f"{turn.row.file}-{turn.row.engine}-outputs.npz"


def _accuracy(turns: Sequence[Turn], case: Case, scratch: Path) -> None:
    """Fill in SQNR and top-1 agreement of every engine that answered, against the f32 model."""
    reference = next(turn for turn in turns if turn.row.engine == REFERENCE)
    if not reference.alive:
        return
    names = [
        value.name for value in onnx.load(case.float_path, load_external_data=False).graph.output
    ]
    expected = _arrays(_outputs_path(reference, scratch), len(names))
    for turn in turns:
        if not turn.alive or turn is reference:
            continue
        try:
            found = compare_outputs(
                expected,
                _arrays(_outputs_path(turn, scratch), len(names)),
                names,
                case.network.logits,
            )
        except ValueError as error:
            turn.row.reason = f"wrong outputs: {error}"
            continue
        turn.row.sqnr_db, turn.row.outputs_db, turn.row.top1 = (
            found["sqnr_db"],
            dict(found["outputs_db"]),
            found["top1"],
        )


def _arrays(path: Path, count: int) -> list[Array]:
    arrays = load_arrays(path)
    if len(arrays) != count:
        raise ValueError(f"{len(arrays)} outputs instead of {count}")
    return [arrays[f"output_{index}"] for index in range(count)]
