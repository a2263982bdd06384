"""`inspect --html` and `--svg`: files beside the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

KINDS = {"--html": "<!doctype html>", "--svg": "<svg "}


@pytest.mark.parametrize("option", KINDS)
def test_the_file_is_written_and_named_below_the_report(
    call, tmp_path: Path, model: Path, option: str
) -> None:
    path = tmp_path / "digits.out"
    result = call("inspect", model, option, path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert path.read_text("utf-8").startswith(KINDS[option])
    assert "multiply-adds" in result.stdout
    assert str(path) in result.stdout.splitlines()[-1]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_both_beside_the_document(call, tmp_path: Path, plan: Path) -> None:
    page, picture = tmp_path / "digits.html", tmp_path / "digits.svg"
    result = call("inspect", plan, "--json", "--html", page, "--svg", picture)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["schema"].startswith("fqfuse.inspect/")
    assert page.exists()
    assert picture.exists()


def test_the_page_counts_with_the_sizes_of_the_report(call, tmp_path: Path, model: Path) -> None:
    pages = []
    for size in ("1", "64"):
        result = call("inspect", model, "--size", f"N={size}", "--html", tmp_path / "page.html")
        assert result.exit_code == 0, result.stderr
        pages.append((tmp_path / "page.html").read_text("utf-8"))
    assert pages[0] != pages[1]


@pytest.mark.parametrize("option", KINDS)
def test_the_model_is_not_replaced(call, tmp_path: Path, model: Path, option: str) -> None:
    copy = tmp_path / "copy.onnx"
    shutil.copy(model, copy)
    result = call("inspect", copy, option, copy)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{option} would replace the model" in result.stderr
    assert f"name another file with {option}" in result.stderr
    assert copy.read_bytes() == model.read_bytes()


def test_a_page_and_a_picture_are_two_files(call, tmp_path: Path, model: Path) -> None:
    result = call("inspect", model, "--html", tmp_path / "x", "--svg", tmp_path / "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--html and --svg name the same file" in result.stderr
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_not_there(call, tmp_path: Path, model: Path) -> None:
    result = call("inspect", model, "--html", tmp_path / "none" / "page.html")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "create the folder first" in result.stderr
