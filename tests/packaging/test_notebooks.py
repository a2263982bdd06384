"""The notebooks of the documentation run, and print what is stored in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.notebooks import executed, read

from fqfuse.report.verdict.machine import this_machine

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NUMBER = re.compile(r"\d[\d.]*")


def without_numbers(text: str) -> str:
    """Times, and last digits of what was computed, differ from machine to machine."""
    return NUMBER.sub("#", text)


@pytest.mark.slow
@pytest.mark.each_case
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ipynb")))
def test_it_runs_and_prints_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    # on other CPUs there are other findings, and steps that run on NumPy
    alike = "VNNI" in this_machine().description
    printed = 0
    for cell, text in executed(read(FOLDER / name)):
        stored = "".join(line for output in cell["outputs"] for line in output["text"])
        assert bool(stored) == bool(text), cell["id"]
        if alike and not cell["source"][0].startswith("!"):  # its estimates name the machine
            assert without_numbers(text) == without_numbers(stored), (
                f"{cell['id']}: store it anew, `PYTHONPATH=tests .venv/bin/python -m "
                f"support.notebooks docs/notebooks/{name}`"
            )
        printed += bool(text)
    assert printed >= 5
