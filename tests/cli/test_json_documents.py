"""What commands print with --json is what the published schemas say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.json_documents import problems

from fqfuse.models.digits import digits_model_path


@pytest.fixture
def document(call):
    """document(*arguments) -> what the command printed, held to its schema."""

    def run(*arguments: object, code: int = 0) -> dict:
        result = call(*arguments, "--json")
        assert result.exit_code == code
        told = json.loads(result.stdout)
        assert problems(told) == []
        return told

    return run


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
def test_inspect(document, target: str) -> None:
    assert document("inspect", digits_model_path("qdq"), "--target", target)["steps"]


def test_compile_and_convert(document, tmp_path: Path, model: Path) -> None:
    old, new = tmp_path / "old.onnx", tmp_path / "new.onnx"
    told = document("compile", model, "-o", old, "--target", "onednn-v2")
    assert told["bytes"] == old.stat().st_size
    assert document("convert", old, "-o", new, "--how", "semantic")["summary"]["steps"]


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_run_says_where_each_step_ran(document, plan: Path, image_file: Path, backend) -> None:
    told = document("run", plan, "-i", image_file, "--backend", backend)
    steps = document("inspect", plan)["steps"]
    assert [step["primitive"] for step in told["steps"]] == [step["primitive"] for step in steps]
    for step in told["steps"]:
        assert bool(step["implementation"]) == (step["runtime"] == "onednn")


def test_errors(document, tmp_path: Path) -> None:
    assert document("inspect", tmp_path / "no.onnx", code=2)["error"]["where"]
    assert document("inspect", "--no-such-option", code=2)["error"]["kind"] == "UsageError"
