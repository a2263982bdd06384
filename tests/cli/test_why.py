"""`fqfuse why` on models and plan files."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fqfuse.models.digits import digits_model_path

MODEL = str(digits_model_path("qdq"))
SCHEMA = (Path(__file__).parents[2] / "docs" / "json-schema.md").read_text(encoding="utf-8")


def test_a_node_of_a_model(call) -> None:
    result = call("why", MODEL, "stem.conv")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("stem.conv  node, Conv; ")
    assert lines[1].startswith("  stem.conv runs in int8 as step 1, a convolution")
    assert max(map(len, lines)) <= 80


def test_documents_have_the_documented_keys(call) -> None:
    section = SCHEMA.split("## fqfuse.why/1", 1)[1].split("\n## ", 1)[0]
    documented = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE)))
    )
    told = json.loads(call("why", MODEL, "stem.conv", "--json").stdout)
    assert set(told) == documented
    several = json.loads(call("why", MODEL, "*conv*", "--json").stdout)
    assert set(several) == {"schema", "matches"}
    assert {match["ending"] != "" for match in several["matches"]} == {True}


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
