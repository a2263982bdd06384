"""The anchor law on this CPU, and under instruction sets without VNNI: 2,000 and some hundred
anchors, 100,000 in `make fuzz`.

Without VNNI `auto` has to be exact for all weights; `onednn` is held to it for weights with which
no int8 code saturates.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.anchor_law import PER_MODEL, broken, drawn, threads_of
from laws.budget import examples, shard, some
from laws.exact_anchors import draw

from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library

TESTS = Path(__file__).parents[1]

PARTS = 4
MODELS, FUZZED = 18, 900  # of a part
FEW, MANY = 6, 70  # models for each instruction set and backend; the many are slow


def of_3_2(library: Library) -> bool:
    """NumPy has the float order of 3.2: later versions are held to the exact numbers alone."""
    return library.version.triple[:2] == (3, 2)


def first_seed() -> int:
    """Where the models of a process begin: in `make fuzz` elsewhere each time."""
    return 10**6 if settings.default.derandomize else int.from_bytes(os.urandom(4))


@pytest.mark.hypothesis
@pytest.mark.parametrize("part", range(PARTS))
def test_anchors_on_this_cpu(part: int, library: Library) -> None:
    backend = "onednn" if library.effective_isa().has_vnni else "auto"

    @shard(part)
    @examples(MODELS, fuzz=FUZZED)
    @given(seed=st.integers(0, 2**40))
    def run(seed: int) -> None:
        complaints = broken(drawn(seed), backend, threads_of(seed), bitwise=of_3_2(library))
        assert not complaints, "\n".join(complaints)

    run()


@pytest.mark.parametrize("part", range(5))
def test_convolutions_of_codes_whose_zero_point_is_no_integer(part: int, library: Library) -> None:
    """500 of them in `make test-all`, which the law above draws now and then."""
    backend = "onednn" if library.effective_isa().has_vnni else "auto"
    anchors = (
        draw(("Conv", "ConvTranspose")[seed % 2], seed) for seed in range(10_000 * part, 10**6)
    )
    found = itertools.islice(
        (anchor for anchor in anchors if anchor.fraction), len(some(range(100)))
    )
    complaints = broken(list(found), backend, 1 + part % 2, bitwise=of_3_2(library))
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("seed", [62228961, 3843314432094, 4388479744873])
def test_post_ops_that_no_generated_pooling_takes(seed: int, library: Library) -> None:
    """A linear one behind decoded maxima, whose neighbour has an operand for each image, or code."""
    backend = "onednn" if library.effective_isa().has_vnni else "auto"
    anchor = draw("Pool", seed)
    assert not broken([anchor], backend, 1, bitwise=of_3_2(library))


def test_padding_as_wide_as_what_no_window_reads(library: Library) -> None:
    """With four threads one stored its accumulators over what another one had stored, in most runs."""
    backend = "onednn" if library.effective_isa().has_vnni else "auto"
    for _ in range(5):
        assert not broken([draw("Conv", 19885)], backend, 4, bitwise=of_3_2(library))


def hold_under(library: Library, isa: str, backend: str, models: int) -> None:
    """Holds the law in a process of that instruction set."""
    wanted = CpuIsa[isa.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {isa}")
    environment = {
        **os.environ,
        "ONEDNN_MAX_CPU_ISA": isa,
        "PYTHONPATH": str(TESTS),
        "OPENBLAS_NUM_THREADS": "1",
    }
    even = ["even"] if backend == "onednn" else []
    command = [
        sys.executable,
        "-m",
        "laws.anchor_law",
        backend,
        str(first_seed()),
        str(models),
        *even,
    ]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=3600
    )
    assert ran.stdout == f"{models * PER_MODEL} anchors\n", ran.stdout + ran.stderr[-4000:]


@pytest.mark.hypothesis
@pytest.mark.parametrize("backend", ["auto", "onednn"])
@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_anchors_without_vnni(library: Library, isa: str, backend: str) -> None:
    hold_under(library, isa, backend, examples(FEW, fuzz=MANY).max_examples)


@pytest.mark.hypothesis
@pytest.mark.parametrize("backend", ["auto", "onednn"])
def test_anchors_of_vnni_without_avx512(library: Library, backend: str) -> None:
    """As laptops have it; kernels of its own, which no wider CPU takes."""
    hold_under(library, "AVX2_VNNI", backend, examples(FEW, fuzz=MANY).max_examples)


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE"])
def test_many_anchors_without_vnni(library: Library, isa: str) -> None:
    hold_under(library, isa, "auto", MANY if not settings.default.derandomize else MANY // 3)
