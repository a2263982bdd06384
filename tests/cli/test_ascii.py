"""Where output holds ASCII only: no crash, no `?`, tables that keep their columns, documents that read
back to the same.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.onnx_cases import model as onnx_model
from support.onnx_cases import node
from support.plan_text import parse_plan
from support.terminals import ESCAPES, in_terminal

import fqfuse
from fqfuse.cli.encoding import _SIGNS, use_ascii_forms

ROOT = Path(__file__).parents[2]
ASCII = {"PYTHONIOENCODING": "ascii"}
PROGRAM = Path(sys.executable).with_name("fqfuse")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose names are not ASCII."""
    path = tmp_path_factory.mktemp("names") / "modèle×.onnx"
    constants = {
        "s": np.float32(0.1),
        "z": np.uint8(128),
        "w": np.full((16, 8), 0.5, np.float32),
        "shape": np.array([1, 16]),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], name="quantisé×/Q"),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], name="quantisé×/DQ"),
        node("MatMul", ["d", "w"], ["m"], name="größe→/MatMul/🙂"),
        node("Relu", ["m"], ["y"], name="größe→/Relu"),
    ]
    onnx.save(onnx_model(nodes, inputs={"x": [1, 16]}, constants=constants), path)
    return path


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LC_ALL": "C.UTF-8"}, False),
        ({"LC_ALL": "", "LANG": ""}, False),
        ({"LC_ALL": "C", "PYTHONUTF8": "1"}, False),
        ({"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}, False),
    ],
    ids=str,
)
def test_the_locale_c_means_ascii(spawn, named: Path, env: dict[str, str], expected: bool) -> None:
    clear = {"PYTHONUTF8": "", "PYTHONIOENCODING": ""}
    done = spawn("inspect", named, "--steps", env={**clear, **env})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii() == expected


@pytest.mark.parametrize("options", [("--all",), ("--steps", "--csv")], ids=" ".join)
def test_signs_have_ascii_forms(spawn, named: Path, options) -> None:
    plain, ascii_only = (spawn("inspect", named, *options, env=env) for env in ({}, ASCII))
    assert (plain.returncode, ascii_only.returncode, ascii_only.stderr) == (0, 0, "")
    assert ascii_only.stdout.isascii()
    assert ascii_only.stdout.count("?") == plain.stdout.count("?")
    assert len(ascii_only.stdout.splitlines()) == len(plain.stdout.splitlines())
    if options == ("--all",):
        assert "gr\\u00f6\\u00dfe>/MatMul/\\ud83d\\ude42" in ascii_only.stdout


@pytest.mark.slow
def test_documents_read_back_to_the_same(spawn, named: Path) -> None:
    both = [spawn("inspect", named, "--json", env=env).stdout for env in ({}, ASCII)]
    assert both[1].isascii()
    assert json.loads(both[0]) == json.loads(both[1])
    text = spawn("inspect", named, "--text", "--all", env=ASCII).stdout
    assert text.isascii()
    assert parse_plan(text) == fqfuse.compile(named)


def test_help_and_errors(spawn, named: Path) -> None:
    for arguments, code in (
        (["--help"], 0),
        (["inspect", "--help"], 0),
        (["inspect", named, "--target", "×"], 2),
        (["inspect", named.with_name("größe.onnx")], 2),
    ):
        ran = spawn(*arguments, env=ASCII)
        assert ran.returncode == code
        assert (ran.stdout + ran.stderr).isascii()
        assert "?" not in ran.stdout + ran.stderr


def test_a_terminal_keeps_its_columns(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, shown = in_terminal(80, PROGRAM, "inspect", named, "--steps")
    assert code == 0
    lines = ESCAPES.sub("", shown).splitlines()
    assert "f32xf32" in shown.replace(" ", "") or "u8>" in shown.replace(" ", "")
    # An escape of a name may be longer than its sign; the signs of the report are not.
    assert max(len(re.sub(r"\\u[0-9a-f]{4}", "e", line)) for line in lines) <= 80


def test_every_sign_of_the_package_has_a_form() -> None:
    folders = ("cli", "report", "composer", "passes", "plan", "frontend", "runtime", "ir", "onednn")
    found = set()
    for path in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.isascii() and not re.search(r"\\[uUNx]", text):
            continue  # parsing all files takes seconds
        tree = ast.parse(text)
        found |= {
            sign
            for item in ast.walk(tree)
            if isinstance(item, ast.Constant) and isinstance(item.value, str)
            for sign in item.value
            if not sign.isascii()
        }
    found -= {"\u00a0"}  # ties words together and is taken out again
    assert found - set(_SIGNS) == set()
    assert all(form.isascii() for form in _SIGNS.values())


def test_a_stream_that_cannot_be_told_is_left_as_it_is() -> None:
    stream = io.StringIO()
    use_ascii_forms(stream)
    stream.write("×")
    assert stream.getvalue() == "×"
