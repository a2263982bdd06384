"""What commands print with --json is what the published schemas say."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.finding_cases import CASES
from support.json_documents import problems

from fqfuse.models.digits import digits_model_path
from fqfuse.report.schema import documents


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


F32, QDQ = digits_model_path("f32"), digits_model_path("qdq")
QUICK = ("--threads", 1, "--rounds", 1, "--time", 0.002, "--backend", "numpy")
COMMANDS: dict[str, tuple[object, ...]] = {
    "inspect": (QDQ,),
    "compile": (QDQ, "-o", "{new}"),
    "convert": ("{old}", "-o", "{new}"),
    "run": (QDQ, "-i", "{image}"),
    "batch": (QDQ, "-i", "{data}", "-o", "{out}", "--backend", "numpy"),
    "bench": (QDQ, *QUICK),
    "compare": (F32, QDQ, "--suggest"),
    "simulate": (QDQ,),
    "fix": (QDQ, "--dry-run"),
    "diff": (QDQ, QDQ),
    "why": (QDQ, "stem.conv"),
    "export": (QDQ, "-o", "{new}"),
    "demo": (),
}


@pytest.mark.each_case
@pytest.mark.parametrize("name", documents())
def test_each_command_prints_what_its_schema_says(
    document, tmp_path: Path, images: np.ndarray, name: str
) -> None:
    if name == "error":
        assert document("inspect", tmp_path / "no.onnx", code=2)["schema"] == "fqfuse.error/1"
        return
    files = {key: tmp_path / f"{key}.onnx" for key in ("old", "new")}
    files |= {"image": tmp_path / "image.npy", "data": tmp_path / "data", "out": tmp_path / "out"}
    np.save(files["image"], images)
    files["data"].mkdir()
    np.savez(files["data"] / "a.npz", image=images)
    document("compile", QDQ, "-o", files["old"], "--target", "onednn-v2")
    arguments = (str(argument).format(**files) for argument in COMMANDS[name])
    assert document(name, *arguments)["schema"] == f"fqfuse.{name}/1"


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


@pytest.mark.parametrize("form", ["f32", "qdq", "fakequantize"])
def test_why(document, form: str) -> None:
    several = document("why", digits_model_path(form), "*")["matches"]
    for name in (*(match["name"] for match in several[::10]), "#1", "image"):
        assert document("why", digits_model_path(form), name)["answer"]


def test_why_of_a_plan(document, plan: Path) -> None:
    assert document("why", plan, "stem.conv")["unknown"]


@pytest.mark.parametrize("forms", list(itertools.permutations(("f32", "qdq", "fakequantize"), 2)))
def test_diff(document, forms: tuple[str, str]) -> None:
    same = "f32" not in forms  # two dialects of one network: other quantizers, equal steps
    told = document("diff", *map(digits_model_path, forms), code=0 if same else 1)
    assert told["answer"]
    assert told["same"] == same


def test_diff_of_targets(document, model: Path, plan: Path) -> None:
    assert document("diff", model, plan)["same"]
    for target in ("onednn-v2", "unified"):
        told = document("diff", model, "--other-target", target, code=1)
        assert [change["what"] for change in told["interface"]] == ["target"]


@pytest.mark.parametrize("form", ["qdq", "fakequantize"])
def test_compare(document, tmp_path: Path, images: np.ndarray, form: str) -> None:
    np.savez(tmp_path / "in.npz", image=images)
    data = ("--data", tmp_path / "in.npz")
    models = (digits_model_path("f32"), digits_model_path(form))
    assert document("compare", *models, *data, "--suggest")["suggestion"]
    part = tmp_path / "part.onnx"
    assert document("compare", *models, *data, "--reduce", part)["reduced"]["f32"]
    told = document("compare", models[0], models[0], *data)
    assert {layer["added"] for layer in told["layers"]} == {"inf"}


def test_compare_with_another_program(document) -> None:
    models = (digits_model_path("f32"), digits_model_path("qdq"))
    told = document("compare", *models, "--size", "N=2", "--against", "onnxruntime")
    assert told["peer"].keys() == told["outputs"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_bench(document, backend: str) -> None:
    quick = ("--threads", 1, "--rounds", 1, "--time", 0.002, "--backend", backend)
    told = document("bench", digits_model_path("qdq"), *quick, "--size", "N=1,2")
    assert [case["sizes"] for case in told["cases"]] == [{"N": 1}, {"N": 2}]


@pytest.mark.slow
def test_bench_beside_a_program_that_cannot_run_it(document, model: Path) -> None:
    quick = ("--threads", 1, "--rounds", 1, "--time", 0.002, "--backend", "numpy")
    (case,) = document("bench", model, *quick, "--against", "onnxruntime")["cases"]
    assert case["engines"][1]["reason"]


@pytest.mark.parametrize("form", ["f32", "qdq", "fakequantize"])
@pytest.mark.parametrize("to", ["qdq", "qoperator"])
def test_export(document, tmp_path: Path, form: str, to: str) -> None:
    told = document("export", digits_model_path(form), "-o", tmp_path / "new.onnx", "--to", to)
    assert told["bytes"] == (tmp_path / "new.onnx").stat().st_size


@pytest.mark.parametrize("code", CASES)
def test_models_with_findings(document, tmp_path: Path, code) -> None:
    wrong, mended = files = tmp_path / "wrong.onnx", tmp_path / "mended.onnx"
    for file in files:
        onnx.save(CASES[code](file == mended), file)
        document("why", file, "*")
    if code == "whole-quantizer":  # standard ONNX has no FakeQuantize
        told = document("export", wrong, "-o", tmp_path / "new.onnx", code=2)
        assert "FakeQuantize" in told["error"]["what"]
    else:
        told = document("export", wrong, "-o", tmp_path / "new.onnx")
        assert bool(told["notes"]) == (code == "fractional-zero-point")
    assert document("diff", wrong, wrong)["same"]
    # the one that is mended takes f32 where the other takes half floats, which compare refuses
    other = wrong if code == "half-floats" else mended
    assert document("compare", wrong, other)["outputs"]


def test_errors(document, tmp_path: Path) -> None:
    assert document("inspect", tmp_path / "no.onnx", code=2)["error"]["where"]
    assert document("inspect", "--no-such-option", code=2)["error"]["kind"] == "UsageError"
