"""What exact results cost on CPUs without VNNI: fqfuse's products of codes against the library's own int8 kernels,
which saturate there, in turns.

oneDNN keeps to an older instruction set under ONEDNN_MAX_CPU_ISA. The peers take no such limit: they are measured
beside it where the machine itself has no VNNI.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fqfuse.measure.arrays import save_arrays
from fqfuse.measure.engines import INEXACT, PEERS
from fqfuse.measure.turns import Row, Settings, attempt, load_turn, started, take_turns
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.loading import load

from .build import SEED, Case
from .quantizers import CODED

EXACT = "fqfuse-onednn"
ISAS = ("AVX512_CORE", "AVX2")
_LIMIT = "ONEDNN_MAX_CPU_ISA"
_STREAM = 4  # of random numbers; see build.py for the others


@dataclass(frozen=True)
class Cost:
    """One file on one instruction set: milliseconds of a run of each engine, and seconds until the first
    run has ended.
    """

    file: str
    isa: str
    ms: dict[str, float]
    start: dict[str, float]

    def ratio(self, engine: str) -> float:
        """The time of the exact run as a share of an engine's; NaN where it failed."""
        return self.ms.get(EXACT, math.nan) / self.ms.get(engine, math.nan)


def costs(
    wanted: Sequence[Case], settings: Settings, scratch: Path, log: Callable[[str], None]
) -> list[Cost]:
    """Measures each file on each older instruction set that this CPU has."""
    here = load().effective_isa()
    engines = (EXACT, INEXACT, *(() if here.has_vnni else PEERS))
    found = []
    for isa in ISAS:
        if here & CpuIsa[isa.lower()] != CpuIsa[isa.lower()]:
            continue
        for case in wanted:
            with _limited(isa):
                found.append(_measured(case, isa, engines, settings, scratch))
            log(f"{isa:12} {case.name:20} {found[-1].ratio(INEXACT):.2f}")
    return found


@contextmanager
def _limited(isa: str) -> Iterator[None]:
    """The environment of processes that are started meanwhile."""
    before = os.environ.get(_LIMIT)
    os.environ[_LIMIT] = isa
    try:
        yield
    finally:
        del os.environ[_LIMIT]
        if before is not None:
            os.environ[_LIMIT] = before


def _measured(
    case: Case, isa: str, engines: Sequence[str], settings: Settings, scratch: Path
) -> Cost:
    feeds = scratch / f"{case.network.name}-one.npz"
    save_arrays(feeds, case.network.feeds(np.random.default_rng([SEED, _STREAM]), 1))
    with ExitStack() as stack:
        turns = []
        for engine in engines:
            row = Row(case.name, engine)
            turns.append(started(stack, row, settings, scratch / f"{case.name}-{engine}.log"))
            coded = CODED.get(case.quantizer)
            attempt(
                turns[-1],
                partial(load_turn, path=case.path, feeds=feeds, settings=settings, coded=coded),
            )
        take_turns(turns, settings)
    rows = [turn.row for turn in turns if turn.row.median_ms is not None]
    return Cost(
        case.name,
        isa,
        {row.engine: row.median_ms or math.nan for row in rows},
        {row.engine: (row.load_s or math.nan) + (row.first_run_s or math.nan) for row in rows},
    )


def costs_table(found: Sequence[Cost]) -> str:
    """The ratios as Markdown, the geometric mean of each instruction set last."""
    peers = [name for name in PEERS if any(name in cost.ms for cost in found)]
    heads = ["instruction set", "file", "exact ms", "ratio to saturating kernels", "of the start"]
    heads += [f"ratio to {name}" for name in peers]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for isa in dict.fromkeys(cost.isa for cost in found):
        group = [cost for cost in found if cost.isa == isa]
        for cost in group:
            start = cost.start.get(EXACT, math.nan) / cost.start.get(INEXACT, math.nan)
            cells = [isa, cost.file, f"{cost.ms.get(EXACT, math.nan):.2f}"]
            cells += [f"{cost.ratio(INEXACT):.2f}", f"{start:.2f}"]
            cells += [f"{cost.ratio(name):.2f}" for name in peers]
            lines.append(f"| {' | '.join(cells)} |")
        means = [_mean(group, name) for name in (INEXACT, *peers)]
        cells = [isa, "geometric mean", "", means[0], "", *means[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(group: Sequence[Cost], engine: str) -> str:
    ratios = [cost.ratio(engine) for cost in group]
    known = [ratio for ratio in ratios if math.isfinite(ratio)]
    return f"{statistics.geometric_mean(known):.2f}" if known else ""
