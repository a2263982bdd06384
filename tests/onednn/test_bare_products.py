"""Products of codes on the bare library: each implementation that no row of defects names is exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from laws.bare_runs import Scan

from fqfuse.onednn.library import Engine, Stream

THREADS = 2
OF_A_PART = 20


@pytest.fixture
def scan(engine: Engine, stream: Stream) -> Iterator[Scan]:
    yield Scan(engine, stream)
    engine.library.set_threads(THREADS)


@pytest.mark.parametrize("part", range(24))
def test_each_implementation_is_exact(scan: Scan, part: int) -> None:
    seeds = range(OF_A_PART * part, OF_A_PART * (part + 1))
    complaints = [text for seed in seeds for text in scan.broken(seed)]
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("seed", [2004, 10503])
def test_what_was_wrong(scan: Scan, seed: int) -> None:
    """By 3.13 with AMX columns of a matrix that samples share; by AVX2 with VNNI a depthwise sum."""
    assert not scan.broken(seed)
