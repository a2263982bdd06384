"""`fqfuse diff` on models, plan files and targets."""

from __future__ import annotations

import re

import pytest

from fqfuse.models.digits import digits_model_path

QDQ, F32 = (str(digits_model_path(form)) for form in ("qdq", "f32"))


def test_exit_codes_are_those_of_diff(call, tmp_path) -> None:
    plan = str(tmp_path / "plan.onnx")
    assert call("compile", QDQ, "-o", plan).exit_code == 0
    same = call("diff", QDQ, plan)
    assert same.exit_code == 0
    assert "A and B are the same" in same.stdout
    assert call("diff", QDQ, F32).exit_code == 1
    assert call("diff", QDQ, "--other-target", "onednn-v2").exit_code == 1
    assert call("diff", QDQ, str(tmp_path / "missing.onnx")).exit_code == 2


def test_another_target_for_a_plan_is_refused_with_what_helps(call, tmp_path) -> None:
    """Whichever option asked for it: the fix names none that was not given."""
    plan = str(tmp_path / "plan.onnx")
    assert call("compile", QDQ, "-o", plan).exit_code == 0
    for option in ("--target", "--other-target"):
        result = call("diff", plan, option, "onednn-v2", "--other-dynamic", "all")
        assert result.exit_code == 2
        assert "give the model" in result.stderr
        assert "--target" not in result.stderr


@pytest.mark.parametrize("option", ["target", "dynamic", "approximate"])
@pytest.mark.parametrize("prefix", ["--", "--other-"])
def test_a_wrong_word_is_told_with_the_option_that_gave_it(call, prefix: str, option: str) -> None:
    others = ("--other-target", "onednn-v2") if prefix == "--" else ("--target", "onednn-v2")
    result = call("diff", QDQ, f"{prefix}{option}", "foo", *others)
    if (prefix, option) == ("--", "target"):
        result = call("diff", QDQ, F32, "--target", "foo")
    assert result.exit_code == 2
    assert f"command line, {prefix}{option}\n" in result.stderr


def test_the_answer_comes_first_on_80_columns(call) -> None:
    lines = call("diff", F32, QDQ).stdout.splitlines()
    assert lines[0].startswith("A  ")
    assert lines[1].startswith("B  ")
    assert lines[2] == "  For open sizes, guessed: N=1 (--size, --data):"
    assert re.match(r"  B has (\d+ steps? (more|fewer) than A|as many steps as A)", lines[3])
    assert "open sizes" not in call("diff", F32, QDQ, "--size", "N=4").stdout
    assert max(map(len, lines)) <= 80
    whole = call("diff", F32, QDQ, "--all").stdout
    assert "--all shows them" not in whole


def test_one_model_needs_another_way_to_compile_it(call) -> None:
    result = call("diff", QDQ)
    assert result.exit_code == 2
    assert "--other-target" in result.stderr
    assert call("diff", F32, "--other-dynamic", "all").exit_code == 1
