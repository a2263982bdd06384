"""Measures the engines on one file in turns, and how near their outputs are to those of the f32 model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fqfuse.measure.arrays import Array, load_arrays, save_arrays
from fqfuse.measure.process import WorkerFailed, WorkerProcess
from fqfuse.measure.turns import Row, Settings, Turn, attempt, load_turn, started, take_turns

from .accuracy import compare_outputs
from .build import SEED, Case
from .quantizers import CODED

REFERENCE = "onnxruntime-f32"
_ACCURACY_STREAM = 4  # of random numbers; see build.py for the others


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
            log_file = scratch / f"{case.name}-{engine}.log"
            turn = started(stack, Row(case.name, engine), settings, log_file)
            turns.append(turn)
            path = case.float_path if engine == REFERENCE else case.path
            coded = None if engine == REFERENCE else CODED.get(case.quantizer)
            load = partial(load_turn, path=path, feeds=feeds, settings=settings, coded=coded)
            attempt(turn, load)
            time.sleep(settings.pause)
        take_turns(turns, settings)
        for turn in turns:
            attempt(turn, partial(_memory, settings=settings))
            attempt(turn, partial(_outputs, scratch=scratch, settings=settings))
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
