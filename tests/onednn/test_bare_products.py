"""Products of codes on the bare library: each implementation that no row of defects names is exact."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from laws.build import Net

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize

TESTS = Path(__file__).parents[1]
OF_A_PART = 20


def scan(first: int, count: int) -> str:
    """What `laws.bare_runs` prints. It has a process of its own, which an implementation may end."""
    command = [sys.executable, "-m", "laws.bare_runs", str(first), str(count)]
    ran = subprocess.run(
        command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.of_vnni("elsewhere each compiled product of codes may saturate, and none is exact")
@pytest.mark.parametrize("part", range(24))
def test_each_implementation_is_exact(part: int) -> None:
    told = scan(OF_A_PART * part, OF_A_PART)
    assert "wrong" not in told
    assert "overwritten" not in told
    counts = re.findall(r"^ *(\d+) \S+$", told, re.MULTILINE)
    assert sum(map(int, counts)) > OF_A_PART, "more than one implementation of a product ran"


@pytest.mark.parametrize("seed", [2004, 10503])
def test_what_was_wrong(seed: int) -> None:
    """By 3.13 with AMX columns of a matrix that samples share; by AVX2 with VNNI a depthwise sum."""
    told = scan(seed, 1)
    assert "wrong" not in told
    assert "1 products of" in told


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
