"""The steps' exactness under other instruction sets: `test_executor_steps.py` again, in processes
under ONEDNN_MAX_CPU_ISA.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.library import Library

STEPS = Path(__file__).with_name("test_executor_steps.py")

# Without VNNI the library halves the weights behind an s8 source, and rounds them, and other
# kernels add products in 16 bits: NumPy takes such steps. Weights stay within +-64 there, so that
# u8 sources are exact.
AT_LEAST = {"AVX512_CORE_VNNI": 1400, "AVX2_VNNI": 1400, "AVX512_CORE": 1400, "AVX2": 1400}


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_LEAST)
def test_steps_are_exact_under(library: Library, name: str) -> None:
    wanted = CpuIsa[name.lower()]
    if library.effective_isa() & wanted != wanted:
        pytest.skip(f"this CPU has no {name}")
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": name}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        str(STEPS),
    ]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) >= AT_LEAST[name], "they ran, and were not skipped"
