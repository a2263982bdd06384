"""`fqfuse fix`: its screen, the file that it writes or does not, exit codes, wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.json_documents import problems
from support.planted import dead_concat

from fqfuse.models.digits import digits_model_path


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A file with a dead concatenation, its f32 model and data."""
    case, folder = dead_concat(), tmp_path_factory.mktemp("fix")
    found = {name: folder / f"{name}.onnx" for name in ("f32", "int8")}
    onnx.save(case.f32, found["f32"])
    onnx.save(case.int8, found["int8"])
    found["data"] = folder / "in.npz"
    np.savez(found["data"], x=case.feeds[0]["x"])
    return found


def test_the_answer_comes_first_and_fits_80_columns(call, files, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    given = ("--f32", files["f32"], "--data", files["data"], "--only", "few-codes")
    result = call("fix", files["int8"], "-o", out, *given)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "few-codes: 0.0 dB -> 3" in " ".join(lines[1:3])
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []
    assert "what was refused" not in result.stdout
    onnx.checker.check_model(onnx.load(out), full_check=True)
    again = call("fix", out, "-o", tmp_path / "again.onnx", *given)
    assert "Nothing to repair" in again.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]


def test_a_dry_run_writes_nothing(call, files, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    for given in (("-o", out), ()):
        result = call("fix", files["int8"], *given, "--dry-run", "--json")
        assert result.exit_code == 0, result.stderr
        told = json.loads(result.stdout)
        assert problems(told) == []
        assert told["changed"]
        assert told["output"] is None
    assert not out.exists()


def test_random_data_gives_no_range(call, files) -> None:
    told = " ".join(call("fix", files["int8"], "--dry-run").stdout.split())
    assert "No range was taken from random data" in told


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "a repaired file needs a name"),
        (("--dry-run", "--only", "speed"), "no remedy is called 'speed'"),
        (("--dry-run", "--for", "there"), "there is no runtime 'there'"),
        (("--dry-run", "--f32", "no.onnx"), "no.onnx"),
        (("-o", "{model}"), "would replace a model that is read"),
    ],
)
def test_wrong_input(call, tmp_path: Path, given: tuple[str, ...], message: str) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(digits_model_path("qdq").read_bytes())
    result = call("fix", model, *(each.format(model=model) for each in given))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert model.read_bytes() == digits_model_path("qdq").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
