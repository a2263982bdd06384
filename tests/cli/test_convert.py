"""`fqfuse convert`: writes what the library converts, tells what has no such reading, and writes
nothing where a step cannot be said.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.json_documents import problems
from typer.testing import CliRunner

import fqfuse
from fqfuse.cli.app import app
from fqfuse.models.digits import digits_model_path
from fqfuse.plan import file
from fqfuse.plan.attributes import Eltwise

WAYS = ("mechanical", "semantic")


@pytest.fixture(scope="module")
def v2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan file for `onednn-v2`."""
    path = tmp_path_factory.mktemp("v2") / "v2.plan.onnx"
    assert (
        CliRunner()
        .invoke(
            app,
            ["compile", str(digits_model_path("qdq")), "-o", str(path), "--target", "onednn-v2"],
        )
        .exit_code
        == 0
    )
    return path


@pytest.fixture
def undecoded(tmp_path: Path, v2: Path) -> Path:
    """The same plan, whose types do not say how codes decode."""
    plan = fqfuse.load_plan(v2)
    fqfuse.save_plan(
        replace(plan, values={name: kind.with_quant(None) for name, kind in plan.values.items()}),
        tmp_path / "bare.onnx",
    )
    return tmp_path / "bare.onnx"


@pytest.fixture
def too_long(tmp_path: Path, v2: Path) -> Path:
    """The same plan with a step that `onednn-v3` cannot say: each eltwise would be two."""
    plan = fqfuse.load_plan(v2)
    step = plan.steps[1]
    longer = replace(step, attr=replace(step.attr, post_ops=(Eltwise("abs", scale=2.0),) * 20))
    fqfuse.save_plan(
        replace(plan, steps=(plan.steps[0], longer, *plan.steps[2:])), tmp_path / "long.onnx"
    )
    return tmp_path / "long.onnx"


@pytest.mark.parametrize("how", WAYS)
def test_it_writes_what_the_library_writes(call, tmp_path: Path, v2: Path, how: str) -> None:
    result = call("convert", v2, "--to", "onednn-v3", "--how", how, "-o", tmp_path / "cli.onnx")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("v2.plan.onnx  converted for onednn-v3\n")
    assert (
        f"  converted      9 of 12 steps: 9 {how}\n  plan           {tmp_path / 'cli.onnx'} ("
        in result.stdout
    )
    fqfuse.save_plan(fqfuse.convert(fqfuse.load_plan(v2), how=how), tmp_path / "library.onnx")
    assert (tmp_path / "cli.onnx").read_bytes() == (tmp_path / "library.onnx").read_bytes()


def test_a_mechanical_plan_gives_the_same_numbers_and_is_the_default(
    call, tmp_path: Path, v2: Path, images: np.ndarray
) -> None:
    assert call("convert", v2, "-o", tmp_path / "v3.onnx").exit_code == 0
    assert fqfuse.load_plan(tmp_path / "v3.onnx").options["converted"] == "mechanical"
    for backend in ("numpy", "auto"):
        (old,), (new,) = (
            fqfuse.InferenceSession(path, backend).run(None, {"image": images})
            for path in (v2, tmp_path / "v3.onnx")
        )
        np.testing.assert_array_equal(old, new)
    assert call("inspect", tmp_path / "v3.onnx").stdout.startswith(
        "v3.onnx  converted for onednn-v3\n"
    )


def test_as_a_document(call, tmp_path: Path, undecoded: Path) -> None:
    result = call("convert", undecoded, "-o", tmp_path / "new.onnx", "--how", "semantic", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert problems(document) == []
    assert document["schema"] == "fqfuse.convert/1"
    assert (document["source"], document["plan"]) == (str(undecoded), str(tmp_path / "new.onnx"))
    assert document["bytes"] == (tmp_path / "new.onnx").stat().st_size
    assert (document["how"], document["steps"]) == (
        "semantic",
        {"mechanical": 9, "semantic": 0, "unchanged": 3},
    )
    assert len(document["refusals"]) == 9
    assert {row["rule"] for row in document["refusals"]} == {"v2 attributes to v3"}
    assert document["summary"]["target"] == "onednn-v3"


def test_what_is_converted_mechanically_instead_is_told(
    call, tmp_path: Path, undecoded: Path
) -> None:
    result = call("convert", undecoded, "-o", tmp_path / "new.onnx", "--how", "semantic")
    assert "  converted      9 of 12 steps: 9 mechanical\n" in result.stdout
    part = result.stdout.split("\nConverted mechanically  9 places\n")[1]
    step = fqfuse.load_plan(undecoded).steps[1]
    reason = f"convolution {step.name} is converted mechanically: a type does not say by which one scale its codes decode"
    assert f"v2 attributes to v3: {reason}\n" in part
    assert "expected a scale per tensor, above 0\n" in part
    assert "fix      compile the model for onednn-v3\n" in part
    assert f"at       {step.origin[0]}\n" in part


@pytest.mark.parametrize("how", WAYS)
def test_a_step_that_cannot_be_said_is_told_by_name(
    call, tmp_path: Path, too_long: Path, how: str
) -> None:
    name = fqfuse.load_plan(too_long).steps[1].name
    result = call("convert", too_long, "-o", tmp_path / "new.onnx", "--how", how)
    if how == "semantic":  # a factor of |x| is part of the next
        assert result.exit_code == 0
        return
    assert (result.exit_code, result.stdout) == (2, "")
    head, where, fix = result.stderr.splitlines()
    assert head.startswith(f"error: convolution {name} cannot be converted: for onednn-v3 it has ")
    assert where.startswith(f"  where: {too_long}: stem.conv, ")
    assert fix == "  fix:   compile the model for onednn-v3"
    assert not (tmp_path / "new.onnx").exists()
    error = json.loads(call("convert", too_long, "-o", tmp_path / "new.onnx", "--json").stdout)[
        "error"
    ]
    assert (error["kind"], f"error: {error['what']}") == ("PlanError", head)


def test_what_is_not_converted(call, tmp_path: Path, model: Path, plan: Path, v2: Path) -> None:
    copy = tmp_path / "v2.onnx"
    copy.write_bytes(v2.read_bytes())
    for source, output, what, hint in (
        (
            plan,
            tmp_path / "out.onnx",
            "only plans for onednn-v2 are converted, and this one is for onednn-v3",
            "run it as it is",
        ),
        (
            model,
            tmp_path / "out.onnx",
            "the file is no plan",
            "compile the model: fqfuse compile MODEL -o PLAN --target onednn-v3",
        ),
        (copy, copy, "the new plan would replace the old one", "name another file with --output"),
    ):
        result = call("convert", source, "-o", output)
        assert (result.exit_code, result.stdout) == (2, "")
        head, where, fix = result.stderr.splitlines()
        assert (head, fix) == (f"error: {what}", f"  fix:   {hint}")
        assert str(source) in where
    assert [path.name for path in tmp_path.iterdir()] == ["v2.onnx"]
    assert copy.read_bytes() == v2.read_bytes()


def test_a_damaged_plan(call, tmp_path: Path, v2: Path) -> None:
    content = bytearray(v2.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(content)
    result = call("convert", tmp_path / "damaged.onnx", "-o", tmp_path / "new.onnx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "new.onnx").exists()


def test_a_plan_of_two_files_is_told_with_both(
    call, tmp_path: Path, v2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies it needs both, and the first is a few kilobytes."""
    monkeypatch.setattr(file, "save_plan", partial(file.save_plan, limit=0))
    output = tmp_path / "new.onnx"
    for words in (("convert", v2), ("compile", digits_model_path("qdq"))):
        told = call(*words, "-o", output)
        (data,) = tmp_path.glob("new.onnx.*.data")
        size = data.stat().st_size
        assert f"{data}({size:,}bytes)" in "".join(told.stdout.split())
        document = json.loads(call(*words, "-o", output, "--json").stdout)
        assert document["bytes"] == output.stat().st_size + size
