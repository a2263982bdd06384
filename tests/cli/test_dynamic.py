"""`--dynamic`: f32 models are quantized at run time, and plans tell that they were compiled so."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from support.onnx_cases import model, node, random


@pytest.fixture
def float_model(tmp_path: Path) -> Path:
    path = tmp_path / "f32.onnx"
    built = model(
        [node("MatMul", ["x", "w"], ["y"])],
        inputs={"x": [2, 8]},
        constants={"w": random((8, 4))},
    )
    onnx.save(built, path)
    return path


def test_compiled_and_inspected(call, float_model: Path, tmp_path: Path) -> None:
    plan = tmp_path / "p.plan.onnx"
    assert call("compile", float_model, "-o", plan, "--dynamic", "matmul").exit_code == 0
    assert call("inspect", plan, "--dynamic", "matmul").exit_code == 0
    found = json.loads(call("inspect", float_model, "--dynamic", "all", "--json").stdout)
    assert found["summary"]["options"]["dynamic"] == "all"
    assert any(step["primitive"] == "matmul" for step in found["steps"])


def test_wrong_words(call, float_model: Path, tmp_path: Path) -> None:
    result = call("inspect", float_model, "--dynamic", "conv")
    assert result.exit_code == 2
    assert "there is no dynamic quantization of 'conv'" in result.stderr
    assert "where: command line, --dynamic" in result.stderr
    plan = tmp_path / "p.plan.onnx"
    assert call("compile", float_model, "-o", plan).exit_code == 0
    result = call("inspect", plan, "--dynamic", "all")
    assert result.exit_code == 2
    assert "was not compiled with --dynamic all" in result.stderr
