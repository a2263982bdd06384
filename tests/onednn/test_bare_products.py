"""Products of codes on the bare library: each implementation that no row of defects names is exact."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
