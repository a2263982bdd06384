"""The options in docs/commands.md are those that the program has."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from make.options import options_document

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"
SECTIONS = dict(
    re.findall(
        r"^## fqfuse (\w+)\n(.*?)(?=^## |\Z)",
        DOCUMENT.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
)


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == options_document(), (
        "run `make docs` to write docs/commands.md anew"
    )


@pytest.mark.parametrize("command", ["compile", "bench"])
def test_the_options_are_those_that_help_lists(command: str) -> None:
    section = SECTIONS[command]
    shown = subprocess.run(
        [sys.executable, "-m", "fqfuse", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "300", "PATH": "", "NO_COLOR": "1"},
    ).stdout
    listed = set(re.findall(r"^\W*\*?\W*(--[a-z0-9-]+)", shown, flags=re.MULTILINE)) - {"--help"}
    assert listed
    rows = re.findall(r"^\| `(?:-\w, )?(--[a-z0-9-]+)", section, flags=re.MULTILINE)
    assert sorted(rows) == sorted(listed)
