"""On a terminal: its width, its colours, one message for an error, and a progress bar that
disappears.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.terminals import ESCAPES, in_terminal

PROGRAM = str(Path(sys.executable).with_name("fqfuse"))
SLOW = """
import time
from fqfuse.cli import progress
progress._PATIENCE = 0.05
with progress.Progress(3) as bar:
    bar.say("reading something large")
    time.sleep(0.6)
    bar.advance()
    bar.say("almost there")
    time.sleep(0.4)
print("done")
"""


@pytest.mark.parametrize("width", [80, 160])
def test_a_report_fits_and_has_colours(plan: Path, width: int) -> None:
    for options, said in (((), "multiply-adds"), (("--all",), "why (letters below)")):
        code, shown = in_terminal(width, PROGRAM, "inspect", plan, *options)
        assert code == 0
        assert "\x1b[" in shown
        plain = ESCAPES.sub("", shown)
        assert max(map(len, plain.splitlines())) <= width
        assert said in plain


@pytest.mark.of_vnni("the setting for 7 bits is longer than a line of a terminal")
def test_the_first_screen_is_the_same_in_a_pipe(plan: Path) -> None:
    _, shown = in_terminal(100, PROGRAM, "inspect", plan)
    piped = subprocess.run([PROGRAM, "inspect", plan], capture_output=True, text=True, check=True)
    on_screen = [line.rstrip() for line in ESCAPES.sub("", shown).splitlines()]
    assert on_screen == piped.stdout.splitlines()
    assert len(on_screen) <= 24


def test_no_colours_when_not_wanted(plan: Path) -> None:
    code, shown = in_terminal(100, PROGRAM, "inspect", plan, "--color", "never")
    assert code == 0
    assert "\x1b" not in shown


def test_an_error_is_told_once(tmp_path: Path) -> None:
    code, shown = in_terminal(100, PROGRAM, "inspect", tmp_path / "no.onnx")
    assert code == 2
    assert shown.startswith("\x1b[1;31merror:\x1b[0m ")
    code, shown = in_terminal(100, PROGRAM, "inspect", tmp_path / "no.onnx", "--json")
    assert code == 2
    assert shown.count("no such file") == 1
    assert shown.startswith("{")


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 160])
def test_an_error_fits_beside_its_labels_and_a_pipe_has_one_line_a_part(
    plan: Path, width: int
) -> None:
    asked = (PROGRAM, "why", plan, "/conv1/Conv_of_a_name")
    code, shown = in_terminal(width, *asked)
    lines = ESCAPES.sub("", shown).splitlines()
    assert code == 2
    assert max(map(len, lines)) <= width
    (fix,) = (number for number, line in enumerate(lines) if line.startswith("  fix:   "))
    assert len(lines) > fix + 1
    assert all(line.startswith(" " * 9) and line[9] != " " for line in lines[fix + 1 :] if line)
    piped = subprocess.run(asked, capture_output=True, text=True, check=False).stderr.splitlines()
    assert [line[:9] for line in piped[-2:]] == ["  where: ", "  fix:   "]
    words = " ".join(line[9:] for line in lines[fix:]).split()
    assert words == piped[-1][9:].split()


def test_progress_shows_on_a_terminal_and_disappears() -> None:
    code, shown = in_terminal(100, sys.executable, "-c", SLOW)
    assert code == 0
    assert "reading something large" in shown
    assert "almost there" in shown
    assert ESCAPES.sub("", shown).rstrip().endswith("done")
    assert "\x1b[2K" in shown.partition("done")[0].rpartition("almost there")[2], (
        "the line was erased"
    )


def test_no_progress_in_a_pipe() -> None:
    ran = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("done\n", "")
