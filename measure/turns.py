"""Measures engines on one file, taking turns: every round gives each engine a turn, with a pause in
between.

Turns make a drifting clock or a noisy neighbour hit all engines alike. The pause lets the idle
threads of the engine that just ran stop spinning, which OpenMP and thread pools do for up to a few
hundred milliseconds and which would slow down the next.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .process import WorkerFailed, WorkerProcess

IDLE_LOAD = 0.5
"""Load average up to which a machine counts as idle: what measures is not running yet."""


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
    version: str = ""
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


def started(
    stack: ExitStack, row: Row, settings: Settings, log: Path, modules: Path | None = None
) -> Turn:
    """An engine in a process of its own, which the stack ends: see `WorkerProcess`."""
    return Turn(row, stack.enter_context(WorkerProcess(settings.threads, log, modules)))


def attempt(turn: Turn, step: Callable[[Turn], None]) -> None:
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


def load_turn(
    turn: Turn,
    path: Path,
    feeds: Path,
    settings: Settings,
    *,
    stacked: bool = True,
    coded: bool | None = None,
) -> None:
    """Open the file in the turn's process and find how many runs make a turn; WorkerFailed if that
    fails. ``stacked`` feeds are many inputs along a common first axis, others are one; ``coded``:
    see `Engine`.
    """
    arguments = {
        "engine": turn.row.engine,
        "path": str(path.resolve()),
        "feeds": str(feeds.resolve()),
        "threads": settings.threads,
        "stacked": stacked,
    }
    if coded is not None:  # the worker of an earlier checkout does not know it
        arguments["coded"] = coded
    answer = turn.worker.ask("load", settings.timeout, **arguments)
    turn.row.import_s, turn.row.load_s, turn.row.first_run_s = (
        answer[k] for k in ("import_s", "load_s", "first_run_s")
    )
    turn.row.version, turn.row.note = answer["version"], answer["note"]
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
                attempt(turn, partial(_time, settings=settings))
                if len(turns) > 1:  # alone an engine disturbs nobody
                    time.sleep(settings.pause)
    for turn in turns:
        rounds = turn.row.rounds_ms
        if turn.alive and rounds:
            turn.row.median_ms = statistics.median(rounds)
            turn.row.spread = (max(rounds) - min(rounds)) / turn.row.median_ms


def _time(turn: Turn, settings: Settings) -> None:
    answer = turn.worker.ask("time", settings.timeout, runs=turn.runs, warmup=settings.warmup)
    turn.row.rounds_ms.append(statistics.median(answer["seconds"]) * 1e3)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values that hold the median of their distribution between them with a probability
    of at least 95 %.

    The k-th smallest and k-th largest of n miss it with probability 2 * P(Binomial(n, 1/2) < k).

    Raises:
        ValueError: fewer than six values: even their extremes miss it more often.
    """
    count, values = len(values), sorted(values)
    fits = [
        k
        for k in range(1, count // 2 + 1)
        if 2 * sum(math.comb(count, i) for i in range(k)) <= 0.05 * 2**count
    ]
    if not fits:
        raise ValueError(f"{count} ratios tell no interval: six at least")
    return values[fits[-1] - 1], values[-fits[-1]]


def busy_note() -> str:
    """Return a warning for a report if other programs were running."""
    load = os.getloadavg()[0]
    return f"rough: the machine was busy (load average {load:.1f})" if load > IDLE_LOAD else ""
