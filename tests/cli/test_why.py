"""`fqfuse why` on models and plan files."""

from __future__ import annotations

import re

from fqfuse.models.digits import digits_model_path

MODEL = str(digits_model_path("qdq"))


def test_a_node_of_a_model(call) -> None:
    result = call("why", MODEL, "stem.conv")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("stem.conv  node, Conv; ")
    assert lines[1].startswith("   stem.conv runs in int8 as step 1, a convolution")
    assert max(map(len, lines)) <= 80


def test_a_plan_file_says_what_it_cannot_know(call, tmp_path) -> None:
    plan = str(tmp_path / "plan.onnx")
    assert call("compile", MODEL, "-o", plan).exit_code == 0
    told = call("why", plan, "stem.conv").stdout
    assert "What cannot be told" in told
    assert "What cannot be told" not in call("why", MODEL, "stem.conv").stdout


def test_an_unknown_name_gets_the_nearest(call) -> None:
    result = call("why", MODEL, "stem.konv")
    assert result.exit_code == 2
    assert "did you mean 'stem.conv'" in result.stderr
    assert re.search(r"the model has \d+ nodes", result.stderr)
    assert "\x1b" not in call("why", MODEL, "\x1b[31mred").stderr
