"""The law of products of codes: on each instruction set `onednn` gives NumPy's bytes, and no product runs on NumPy.

Weights and codes are of full range, most of them at its ends, so that pairs of products saturate in 16 bits, and
sums pass 2^24.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library

TESTS = Path(__file__).parents[1]
KINDS = ("convolution", "depthwise", "deconvolution", "matmul", "operands")
EXAMPLES = settings.default.max_examples

EVERY = pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX2", "DEFAULT"])


def found_under(isa: str, *arguments: str) -> dict[str, Any]:
    """What the script prints in a process that may use these instruction sets."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "OPENBLAS_NUM_THREADS": "1",
        **({} if isa == "DEFAULT" else {"ONEDNN_MAX_CPU_ISA": isa}),
    }
    command = [sys.executable, str(TESTS / "support" / "exact_products.py"), *arguments]
    ran = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, timeout=1800
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def needs(library: Library, isa: str) -> None:
    """Skips where the CPU lacks an instruction set."""
    wanted = CpuIsa.sse41 if isa == "DEFAULT" else CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")


@EVERY
def test_random_products_are_exact_and_native(library: Library, isa: str) -> None:
    needs(library, isa)
    found = found_under(isa, "products", "1", str(2 * EXAMPLES), *KINDS)
    assert found["unequal"] == []
    assert found["numpy"] == {}
    assert found["ways"]["onednn"] == 2 * EXAMPLES


def test_random_products_are_exact_by_sse41(library: Library) -> None:
    """Without FMA, post-ops of the library round otherwise, and some of these products run on NumPy."""
    needs(library, "SSE41")
    found = found_under("SSE41", "products", "1", str(2 * EXAMPLES), *KINDS)
    assert found["unequal"] == []
    assert found["ways"]["onednn"] > EXAMPLES // 2


@EVERY
def test_sums_that_pass_what_f32_holds_are_exact_and_native(library: Library, isa: str) -> None:
    """Two products of half of the channels each, or of two parts of the weights, whose sum is rounded once."""
    needs(library, isa)
    found = found_under(isa, "deep", "40")
    assert found["unequal"] == []
    assert found["ways"]["onednn"] > 15


@pytest.mark.slow
@EVERY
def test_graphs_are_exact_and_native(library: Library, isa: str) -> None:
    """Codes in f32 between products, sums in place, concatenations, poolings and views of them."""
    needs(library, isa)
    found = found_under(isa, "graphs", str(max(1, EXAMPLES // 10)))
    assert found["unequal"] == []
    assert found["numpy"] == {}
    assert found["ways"]["onednn"] > 100
