"""`fqfuse export`: writes what the library writes, says what it is made of, and writes over nothing."""

from __future__ import annotations

import json
from pathlib import Path

import fqfuse
from fqfuse.models.digits import digits_model_path


def test_the_file_is_what_the_library_writes(call, tmp_path: Path, model: Path) -> None:
    for form in ("qdq", "qoperator"):
        result = call("export", model, "--to", form, "-o", tmp_path / "cli.onnx")
        assert result.exit_code == 0, result.stderr
        first, *rows = result.stdout.splitlines()
        assert first == f"{model.name}  exported as {form}"
        assert rows[0].startswith(f"  file       {tmp_path / 'cli.onnx'} (")
        assert ("QLinearConv" in rows[1]) is (form == "qoperator")
        fqfuse.export(model, tmp_path / "library.onnx", to=form)
        assert (tmp_path / "cli.onnx").read_bytes() == (tmp_path / "library.onnx").read_bytes()


def test_json_says_what_was_written(call, tmp_path: Path, model: Path) -> None:
    document = json.loads(call("export", model, "-o", tmp_path / "new.onnx", "--json").stdout)
    assert document["schema"] == "fqfuse.export/1"
    assert document["opsets"] == {"": 21}
    assert document["operators"]["Conv"] == 7
    assert document["bytes"] == (tmp_path / "new.onnx").stat().st_size


def test_what_is_not_exported(call, tmp_path: Path, plan: Path) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(digits_model_path("qdq").read_bytes())
    for source, output, told in (
        (plan, tmp_path / "new.onnx", "a plan has its scales folded into weights"),
        (copy, copy, "the export would replace the model"),
        (copy, tmp_path / "no" / "new.onnx", "cannot be written"),
    ):
        result = call("export", source, "-o", output)
        assert result.exit_code == 2
        assert told in " ".join(result.stderr.split())
        assert "\n  fix: " in result.stderr
    assert not (tmp_path / "new.onnx").exists()
