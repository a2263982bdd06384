"""docs/contributing/primitives.md: its examples run, and print what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "contributing" / "primitives.md").read_text(
    encoding="utf-8"
)
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("of_the_rules")
def test_examples_print_what_stands_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert [kind for kind, _ in BLOCKS] == ["python", "text"] * (len(BLOCKS) // 2)
    names: dict[str, object] = {}
    for (_, program), (_, told) in zip(BLOCKS[::2], BLOCKS[1::2], strict=True):
        exec(program, names)  # noqa: S102  # the document's own
        assert capsys.readouterr().out == told, program
