"""Completion in the shell, as docs/commands.md installs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\*\*(\w+)\*\*.*?```\n(.*?)\n```", TEXT, flags=re.MULTILINE | re.DOTALL))
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def ran(words: list[str], **variables: str) -> str:
    result = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**ENVIRONMENT, **variables}
    )
    assert result.stderr == ""
    return result.stdout


def in_bash(*typed: str) -> list[str]:
    """What bash offers behind these words, the last of which is not finished."""
    words = " ".join(f"'{word}'" for word in typed)
    script = f"""
{LINES["bash"]}
COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}
_fqfuse_completion fqfuse
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    return ran(["bash", "--norc", "-c", script]).split()


def in_zsh(*typed: str) -> list[str]:
    """What zsh's own completion is told to choose from, without the terminal that it wants."""
    words = " ".join(f"'{word}'" for word in typed)
    script = f"""
compdef() {{ :; }}
_arguments() {{ print -r -- "$@" }}
{LINES["zsh"]}
words=({words}); CURRENT={len(typed)}
_fqfuse_completion
"""
    return re.findall(
        r'[( ]"([^"]+)"', re.sub(r'"(:"[^"]*)', '"', ran(["zsh", "-f", "-c", script]))
    )


def in_fish(*typed: str) -> list[str]:
    """What fish offers for this line, without the descriptions."""
    install = LINES["fish"].replace("> ~/.config/fish/completions/fqfuse.fish", "| source")
    shown = ran(["fish", "--no-config", "-c", f"{install}; complete -C '{' '.join(typed)}'"])
    return [line.split("\t")[0] for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("fqfuse", "comp"), ["compile", "compare"]),
        (("fqfuse", "inspect", "--fi"), ["--findings"]),
        (("fqfuse", "inspect", "--target", "onednn"), ["onednn-v3", "onednn-v2"]),
        (("fqfuse", "run", "--backend", "n"), ["numpy"]),
    ],
)
@pytest.mark.parametrize("offers", [in_bash, in_zsh, in_fish])
def test_a_shell_offers(
    offers: Callable[..., list[str]], typed: tuple[str, ...], offered: list[str]
) -> None:
    shell = offers.__name__.removeprefix("in_")
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    assert sorted(offers(*typed)) == sorted(offered)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_lines_of_other_shells_get_a_script_that_calls_the_program(shell: str) -> None:
    assert f"_FQFUSE_COMPLETE=source_{shell} fqfuse" in LINES[shell]
    script = ran(["fqfuse"], _FQFUSE_COMPLETE=f"source_{shell}")
    assert f"_FQFUSE_COMPLETE=complete_{shell}" in script
    offered = ran(
        ["fqfuse"],
        _FQFUSE_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="fqfuse insp",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert "inspect" in offered
    assert "compile" not in offered


def test_nothing_writes_into_the_users_shell(tmp_path: Path) -> None:
    result = subprocess.run(
        ["fqfuse", "--install-completion"],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "HOME": str(tmp_path)},
    )
    assert result.returncode == 2
    assert list(tmp_path.iterdir()) == []
