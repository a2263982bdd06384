"""Compile time: from the file to a ready session, and on to the first answer, each time in a fresh
process.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
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

__all__ = [
    "CHAINS",
    "PLAIN_NODES",
    "CompileRow",
    "compile_cases",
    "compile_chains",
    "compile_plain_chains",
]

# Convolutions in a chain; the last makes 100,000 nodes.
CHAINS = (100, 300, 1000, 3000, 10000, 20000)
_FEW_REPEATS_FROM = 3000
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
    """A file to compile, one feed for it, and how often to repeat."""

    name: str
    path: Path
    feeds: Path
    nodes: int
    repeats: int


def compile_cases(
    wanted: Sequence[Case],
    engines: Sequence[str],
    threads: int,
    repeats: int,
    timeout: float,
    scratch: Path,
    log: Callable[[str], None],
) -> list[CompileRow]:
    """Time every engine on every quantized file."""
    rows = []
    for case in wanted:
        nodes = len(onnx.load(case.path, load_external_data=False).graph.node)
        subject = _Subject(case.name, case.path, case.inputs_path, nodes, repeats)
        rows += [_measure(subject, engine, threads, timeout, scratch, log) for engine in engines]
    return rows


def compile_chains(
    sizes: Sequence[int],
    engines: Sequence[str],
    threads: int,
    repeats: int,
    timeout: float,
    scratch: Path,
    log: Callable[[str], None],
) -> list[CompileRow]:
    """Time every engine on chains of growing length; one that fails is spared the longer ones."""
    rows: list[CompileRow] = []
    failed: set[str] = set()
    for size in sizes:
        subject = _chain(size, repeats if size < _FEW_REPEATS_FROM else 1, scratch)
        for engine in engines:
            if engine in failed:
                rows.append(
                    CompileRow(
                        subject.name, engine, subject.nodes, "not tried: a shorter chain failed"
                    )
                )
                continue
            row = _measure(subject, engine, threads, timeout, scratch, log)
            rows.append(row)
            if row.reason:
                failed.add(engine)
    return rows


def compile_plain_chains(
    sizes: Sequence[int],
    engines: Sequence[str],
    threads: int,
    repeats: int,
    timeout: float,
    scratch: Path,
    log: Callable[[str], None],
) -> list[CompileRow]:
    """Time every engine on each kind of chain without weights, of growing length; one that fails is
    spared the longer ones of the kind.
    """
    rows: list[CompileRow] = []
    for kind in PLAIN_CHAINS:
        failed: set[str] = set()
        for size in sizes:
            subject = _plain_chain(kind, size, repeats if size < _FEW_REPEATS_FROM else 1, scratch)
            for engine in (engine for engine in engines if engine not in failed):
                row = _measure(subject, engine, threads, timeout, scratch, log)
                rows.append(row)
                if row.reason:
                    failed.add(engine)
    return rows


def _plain_chain(kind: str, size: int, repeats: int, scratch: Path) -> _Subject:
    path, feeds = scratch / f"{kind}-{size}.onnx", scratch / "plain-chain-feeds.npz"
    model = build_plain_chain(kind, size, SEED)
    onnx.save(model, path)
    save_arrays(
        feeds, {"input": np.random.default_rng(SEED).uniform(0, 4, PLAIN_SHAPE).astype(np.float32)}
    )
    return _Subject(f"{kind}-{size}", path, feeds, len(model.graph.node), repeats)


def _chain(size: int, repeats: int, scratch: Path) -> _Subject:
    path, feeds = scratch / f"chain-{size}.onnx", scratch / "chain-feeds.npz"
    if not path.exists():
        onnx.save(build_chain(size, SEED), path)
    save_arrays(
        feeds,
        {"input": np.random.default_rng(SEED).uniform(0, 4, (1, 16, 8, 8)).astype(np.float32)},
    )
    return _Subject(f"chain-{size}", path, feeds, size * NODES_PER_CONVOLUTION + 2, repeats)


def _measure(
    subject: _Subject,
    engine: str,
    threads: int,
    timeout: float,
    scratch: Path,
    log: Callable[[str], None],
) -> CompileRow:
    row = CompileRow(subject.name, engine, subject.nodes)
    try:
        answers = [
            _once(subject, engine, threads, timeout, scratch) for _ in range(subject.repeats)
        ]
    except WorkerFailed as failure:
        row.reason = str(failure)
    else:
        row.ready_s, row.first_run_s, row.import_s = (
            statistics.median(answer[key] for answer in answers)
            for key in ("load_s", "first_run_s", "import_s")
        )
    log(
        f"{row.file:18} {row.engine:16} "
        + (row.reason or f"ready {row.ready_s:8.3f} s, first run {row.first_run_s:8.3f} s")
    )
    return row


def _once(
    subject: _Subject, engine: str, threads: int, timeout: float, scratch: Path
) -> dict[str, Any]:
    arguments = {
        "engine": engine,
        "path": str(subject.path.resolve()),
        "feeds": str(subject.feeds.resolve()),
        "threads": threads,
    }
    with WorkerProcess(threads, scratch / f"compile-{subject.name}-{engine}.log") as worker:
        return worker.ask("load", timeout, **arguments)
