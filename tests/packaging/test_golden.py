"""The golden fixture itself: it must fail when it should, since every golden test relies on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TEST = """
import pytest

@pytest.mark.golden("upper")
def test_upper(golden):
    golden.check(golden.input.upper())
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A test suite of one golden test with one case, `a`."""
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = golden(folder): as in fqfuse\n")
    (tmp_path / "test_upper.py").write_text(TEST)
    (tmp_path / "golden" / "upper").mkdir(parents=True)
    (tmp_path / "golden" / "upper" / "a.txt").write_text("one\n\ntwo\n")
    return tmp_path


def run(suite: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(suite), *options]
    environment = {**os.environ, "PYTHONPATH": str(CONFTEST.parent)}  # for `support`
    return subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_missing_half_fails_with_a_hint(suite: Path) -> None:
    ran = run(suite)
    assert ran.returncode == 1
    assert "--update-golden" in ran.stdout


@pytest.mark.slow
def test_update_writes_the_half_and_the_next_run_passes(suite: Path) -> None:
    case = suite / "golden" / "upper" / "a.txt"
    assert run(suite, "--update-golden").returncode == 0
    assert case.read_text() == "one\n\ntwo\n# -----\nONE\n\nTWO\n"
    assert run(suite).returncode == 0
    assert run(suite, "--update-golden").returncode == 0
    assert case.read_text() == "one\n\ntwo\n# -----\nONE\n\nTWO\n"


@pytest.mark.slow
def test_difference_fails(suite: Path) -> None:
    (suite / "golden" / "upper" / "a.txt").write_text("one\n# -----\nONE!\n")
    ran = run(suite)
    assert ran.returncode == 1
    assert "ONE!" in ran.stdout


@pytest.mark.slow
def test_folder_without_cases_is_an_error(suite: Path) -> None:
    (suite / "golden" / "upper" / "a.txt").unlink()
    ran = run(suite)
    assert ran.returncode != 0
    assert "no golden cases" in ran.stdout
