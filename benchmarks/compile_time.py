"""Compile time: from the file to a ready session, and on to the first answer, each time in a fresh
process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from fqfuse.measure.arrays import save_arrays
from fqfuse.measure.process import WorkerFailed, WorkerProcess

from .build import SEED, Case
from .networks.chain import NODES_PER_CONVOLUTION, build_chain
from .networks.plain_chains import PLAIN_CHAINS, PLAIN_SHAPE, build_plain_chain

# Convolutions in a chain; the last makes 100,000 nodes.
CHAINS = (100, 300, 1000, 3000, 10000, 20000)
_FEW_REPEATS_FROM = 10_000  # nodes
# Nodes of a chain without weights; the longest has 50,000 pairs of quantizers.
PLAIN_NODES = (1000, 3000, 10000, 30000, 100000)


@dataclass
class CompileRow:
    """Seconds of one engine on one file, medians over fresh processes; ``reason`` instead where it
    failed.

    ``ready_s`` is file to session, ``first_run_s`` the first run (an engine may put off work until
    then), ``import_s`` the import of its package, which is not part of either.
    """

    file: str
    engine: str
    nodes: int
    reason: str = ""
    ready_s: float | None = None
    first_run_s: float | None = None
    import_s: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Subject:
    """A file to compile, and one feed for it."""

    name: str
    path: Path
    feeds: Path
    nodes: int


@dataclass(frozen=True)
class Timing:
    """How compile times are taken.

    Attributes:
        engines: which, with how many ``threads`` each.
        repeats: fresh processes for a file; long chains take one.
        timeout: seconds that an engine may take.
        scratch: takes chains, feeds and the engines' stderr.
        log: gets one line for each row.
    """

    engines: Sequence[str]
    threads: int
    repeats: int
    timeout: float
    scratch: Path
    log: Callable[[str], None]

    def rows(self, subjects: Iterable[_Subject]) -> Iterator[CompileRow]:
        """Time every engine on files of growing length; one that fails is spared the longer ones."""
        failed: set[str] = set()
        for subject in subjects:
            for engine in self.engines:
                row = CompileRow(subject.name, engine, subject.nodes)
                if engine in failed:
                    row.reason = "not tried: a shorter chain failed"
                else:
                    self._measure(subject, row)
                if row.reason:
                    failed.add(engine)
                yield row

    def _measure(self, subject: _Subject, row: CompileRow) -> None:
        repeats = self.repeats if subject.nodes < _FEW_REPEATS_FROM else 1
        try:
            answers = [self._once(subject, row.engine) for _ in range(repeats)]
        except WorkerFailed as failure:
            row.reason = str(failure)
        else:
            row.ready_s, row.first_run_s, row.import_s = (
                statistics.median(answer[key] for answer in answers)
                for key in ("load_s", "first_run_s", "import_s")
            )
        self.log(
            f"{row.file:18} {row.engine:16} "
            + (row.reason or f"ready {row.ready_s:8.3f} s, first run {row.first_run_s:8.3f} s")
        )

    def _once(self, subject: _Subject, engine: str) -> dict[str, Any]:
        arguments = {
            "engine": engine,
            "path": str(subject.path.resolve()),
            "feeds": str(subject.feeds.resolve()),
            "threads": self.threads,
        }
        log = self.scratch / f"compile-{subject.name}-{engine}.log"
        with WorkerProcess(self.threads, log) as worker:
            return worker.ask("load", self.timeout, **arguments)


def compile_cases(timing: Timing, wanted: Sequence[Case]) -> list[CompileRow]:
    """Time every engine on every quantized file."""
    return [row for case in wanted for row in timing.rows([_case(case)])]


def compile_chains(timing: Timing, sizes: Sequence[int]) -> list[CompileRow]:
    """Time every engine on chains of growing length."""
    return list(timing.rows(_chain(size, timing.scratch) for size in sizes))


def compile_plain_chains(timing: Timing, sizes: Sequence[int]) -> list[CompileRow]:
    """Time every engine on each kind of chain without weights, of growing length."""
    return [
        row
        for kind in PLAIN_CHAINS
        for row in timing.rows(_plain_chain(kind, size, timing.scratch) for size in sizes)
    ]


def _case(case: Case) -> _Subject:
    nodes = len(onnx.load(case.path, load_external_data=False).graph.node)
    return _Subject(case.name, case.path, case.inputs_path, nodes)


def _plain_chain(kind: str, size: int, scratch: Path) -> _Subject:
    path, feeds = scratch / f"{kind}-{size}.onnx", scratch / "plain-chain-feeds.npz"
    model = build_plain_chain(kind, size, SEED)
    onnx.save(model, path)
    save_arrays(
        feeds, {"input": np.random.default_rng(SEED).uniform(0, 4, PLAIN_SHAPE).astype(np.float32)}
    )
    return _Subject(f"{kind}-{size}", path, feeds, len(model.graph.node))


def _chain(size: int, scratch: Path) -> _Subject:
    path, feeds = scratch / f"chain-{size}.onnx", scratch / "chain-feeds.npz"
    if not path.exists():
        onnx.save(build_chain(size, SEED), path)
    save_arrays(
        feeds,
        {"input": np.random.default_rng(SEED).uniform(0, 4, (1, 16, 8, 8)).astype(np.float32)},
    )
    return _Subject(f"chain-{size}", path, feeds, size * NODES_PER_CONVOLUTION + 2)
