"""docs/contributing/writing-a-rule.md, followed word by word in a copy of the repository: its files, the lines
that it adds, its commands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "contributing" / "writing-a-rule.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", flags=re.MULTILINE | re.DOTALL)
PACKAGES = (
    "benchmarks",
    "cli",
    "composer",
    "docs",
    "frontend",
    "ir",
    "models",
    "onednn",
    "passes",
    "plan",
    "report",
    "runtime",
    "tests",
)


def blocks(language: str) -> list[str]:
    return [textwrap.dedent(body) for _, kind, body in FENCE.findall(GUIDE) if kind == language]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository in which the guide was followed up to its commands."""
    copy = tmp_path_factory.mktemp("guide") / "fqfuse"
    copy.mkdir()
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*", "build")
        )
    for file in (*ROOT.glob("*.py"), ROOT / "pyproject.toml", ROOT / "py.typed"):
        shutil.copy(file, copy)
    module, test, rule = blocks("python")
    files = re.findall(r"`((?:passes|tests)/[\w/]*merge_transposes[\w/]*\.(?:py|txt))`", GUIDE)
    assert [Path(name).suffix for name in files] == [".py", ".txt", ".txt", ".txt", ".py"]
    for name, text in zip(files, (module, *blocks("text"), test), strict=True):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text(text, encoding="utf-8")
    algebra = (copy / "composer" / "formula" / "algebra.py").read_text(encoding="utf-8")
    mark = "SIMPLIFYING: tuple[Rule[Rewrite], ...] = ("
    assert algebra.count(mark) == 1
    (copy / "composer" / "formula" / "algebra.py").write_text(
        algebra.replace(mark, f"{rule}\n\n{mark}"), encoding="utf-8"
    )
    edited = (
        "passes/__init__.py",
        "passes/__init__.py",
        "composer/formula/algebra.py",
        "tests/composer/test_algebra.py",
        "tests/composer/test_algebra.py",
    )
    for name, diff in zip(edited, blocks("diff"), strict=True):
        _apply(copy / name, diff)
    return copy


def _apply(file: Path, diff: str) -> None:
    """Puts the added lines of a printed diff where its context says."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    new = "\n".join(line[1:] for line in lines)
    text = file.read_text(encoding="utf-8")
    assert text.count(old + "\n") == 1, f"{file.name} has no such place:\n{old}"
    file.write_text(text.replace(old + "\n", new + "\n"), encoding="utf-8")


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


@pytest.mark.slow
def test_the_guide_works(checkout: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{checkout.parent}{os.pathsep}{checkout / 'docs'}",
    }
    for command in commands():
        words = command.split()
        # its first line; the second one runs the tests of the documents
        if words == [
            "make",
            "docs",
        ]:
            words = [sys.executable, "-m", "make", "contributing/rules.md"]
        elif words[0] == ".venv/bin/python":
            # as few examples as `make test` draws: more of them are other tests' business
            words = [sys.executable, *words[1:], "--hypothesis-profile=quick"]
        ran = subprocess.run(
            words, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        if words[0] == "tail":
            assert "= Relu(%x)" in ran.stdout
            assert "merge_transposes" in ran.stdout
    rules = (checkout / "docs" / "contributing" / "rules.md").read_text(encoding="utf-8")
    assert "### `merge_transposes`" in rules
    assert "### `relu(clip(x,a,b)) = clip(x,relu(a),relu(b))`" in rules
