"""The guides in docs/, followed word by word in a copy of the repository: their files, the lines
that they add, their commands.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from onnx import ModelProto
from support.onnx_cases import model, node

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"`([\w/]+\.\w+)`[^`]*:\n\n```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Edit(NamedTuple):
    """A file as a guide prints it, or lines of one before and after."""

    path: str
    before: str
    after: str


def edits(guide: str) -> list[Edit]:
    found = []
    for path, kind, body in BLOCK.findall(guide):
        lines = body.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+") if kind == "diff" else ""
        after = "".join(line[1:] for line in lines if line[0] != "-") if kind == "diff" else body
        found.append(Edit(path, before, after))
    return found


def copied(folder: Path) -> Path:
    """The repository, without what git does not know."""
    copy = folder / "fqfuse"
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True,
        check=False,
    )
    names = listed.stdout.decode().split("\0")[:-1] if listed.returncode == 0 else sources()
    for name in names:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def sources() -> list[str]:
    """What belongs to the repository where there is no git: an unpacked archive."""
    kinds = {".py", ".txt", ".md", ".toml", ".onnx", ".npz", ".json", ".typed"}
    files = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.suffix in kinds)
    return [str(file) for file in files if not file.parts[0].startswith((".venv", "build"))]


def replace(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8") if before else ""
    assert not before or text.count(before) == 1, f"{file.name} has no such place:\n{before}"
    file.write_text(text.replace(before, after) if before else after, encoding="utf-8")


def run(copy: Path, words: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy.parent)}
    words = [sys.executable if word == ".venv/bin/python" else word for word in words]
    ran = subprocess.run(
        words, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{shlex.join(words)}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def follow(copy: Path, guide: str) -> None:
    for edit in edits(guide):
        replace(copy / edit.path, edit.before, edit.after)


def run_commands(copy: Path, guide: str) -> None:
    for command in COMMANDS.findall(guide)[-1].splitlines():
        run(copy, shlex.split(command))


@pytest.mark.slow
def test_a_dialect(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "contributing" / "new-dialect.md").read_text(encoding="utf-8")
    copy = copied(tmp_path)
    follow(copy, guide)
    assert {edit.path for edit in edits(guide) if edit.path.startswith("frontend/")} == {
        "frontend/operators/snap.py",
        "frontend/operators/dialects.py",
    }
    run_commands(copy, guide)


def taken_out_and_put_back(
    folder: Path, name: str, files: int, proto: ModelProto, shown: tuple[str, str]
) -> None:
    """Follows a guide that adds what is there: its lines are taken out first, and `inspect` shows
    the one text without them, and the other with them.
    """
    guide = (ROOT / "docs" / "contributing" / name).read_text(encoding="utf-8")
    copy = copied(folder)
    wanted = edits(guide)
    assert len({edit.path for edit in wanted}) == files
    for edit in wanted:
        replace(copy / edit.path, edit.after, edit.before)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    command = [".venv/bin/python", "-m", "fqfuse", "inspect", "--text", str(path)]
    assert shown[0] in run(copy, command)
    follow(copy, guide)
    assert shown[1] in run(copy, command)
    run_commands(copy, guide)


@pytest.mark.slow
def test_an_eltwise_algorithm(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Mish", ["c"])]
    constants = {"w": np.ones((1, 1, 1, 1), np.float32)}
    proto = model(nodes, inputs={"x": [1, 1, 4, 4]}, constants=constants)
    taken_out_and_put_back(tmp_path, "new-eltwise.md", 3, proto, ("onnx.Mish", "eltwise(mish)"))


@pytest.mark.slow
def test_a_primitive(tmp_path: Path) -> None:
    proto = model([node("LRN", ["x"], size=3)], inputs={"x": [1, 4, 4, 4]})
    taken_out_and_put_back(tmp_path, "new-primitive.md", 5, proto, ("= onnx.LRN", "= lrn<LRN>"))
