"""Products of codes on the bare library: each implementation that no row of defects names is exact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from laws.bare_runs import Scan
from laws.build import Net

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.onednn.library import Engine, Stream
from fqfuse.passes import optimize

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


def test_blocks_that_nothing_packs() -> None:
    """3.13 has a 1x1 convolution on AMX for these groups, in blocks of 48 channels, and no reorder to them."""
    n = Net(seed=3)
    x = n.input((2, 320, 5, 5), dtype=DType.U8, quant=Quantization.of(1.0, 3))
    w = n.rng.integers(-128, 128, (4 * 132, 80, 1, 1)).astype(np.int8)
    decoded = n.dq(n.graph.add_constant("w", w), Quantization.of(1.0, 0))
    n.graph.outputs = [n.op("Conv", n.dq(x), decoded, kernel_shape=(1, 1), group=4)]
    codes = n.rng.integers(0, 256, (2, 320, 5, 5)).astype(np.uint8)
    session = fqfuse.InferenceSession(
        plan_from_graph(optimize(n.graph)), backend="onednn", threads=1
    )
    assert all(place.runtime == "onednn" for place in session.placement())
    (found,) = session.run(None, {x: codes})
    split = codes.reshape(2, 4, 80, 25).astype(np.int64) - 3
    wanted = np.einsum("goi,ngis->ngos", w.reshape(4, 132, 80).astype(np.int64), split)
    assert np.array_equal(found, wanted.reshape(2, 528, 5, 5))
