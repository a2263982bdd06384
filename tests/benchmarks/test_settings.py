"""What a setting of a quantizer comes to, and the tables of the guides."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.onnx_cases import model, node

from fqfuse.benchmarks.settings.setting import (
    Outcome,
    Setting,
    figures,
    outputs_of,
    shown_arguments,
)
from fqfuse.benchmarks.settings.subjects import SUBJECTS
from fqfuse.benchmarks.settings.tables import filled, places, table
from fqfuse.benchmarks.settings.with_nncf import nncf_settings
from fqfuse.benchmarks.settings.with_ort import ort_settings

ROOT = Path(__file__).parents[2]
DATA = ROOT / "models" / "data"
GUIDES = {
    "ort": ROOT / "docs" / "quantize-onnxruntime.md",
    "nncf": ROOT / "docs" / "quantize-nncf.md",
    "torch": ROOT / "docs" / "quantize-pytorch.md",
}
SETTINGS = {"ort": ort_settings, "nncf": nncf_settings}
FEEDS = [{"image": np.random.default_rng(seed).random((2, 1, 8, 8), np.float32)} for seed in (0, 1)]


def tried(quantize: Callable[[Path], object], folder: Path) -> Outcome:
    reference = outputs_of(DATA / "digits_f32.onnx", FEEDS)
    return figures(Setting("the setting", quantize), folder / "int8.onnx", FEEDS, reference)


def test_a_quantized_file_gives_figures(tmp_path: Path) -> None:
    found = tried(lambda target: shutil.copy(DATA / "digits_qdq.onnx", target), tmp_path)
    assert not found.failed
    assert found.int8 == 1
    assert found.f32_bytes == 0
    assert found.steps > 5
    assert found.findings == {}
    assert found.sqnr_db > 20
    # two runtimes of the same codes: only ties may differ
    assert found.peer_db == pytest.approx(found.sqnr_db, abs=0.5)


def test_f32_has_no_noise_worth_the_name(tmp_path: Path) -> None:
    found = tried(lambda target: shutil.copy(DATA / "digits_f32.onnx", target), tmp_path)
    assert found.int8 == 0
    assert found.findings is not None
    assert "not-quantized" in found.findings
    assert found.sqnr_db > 100


def test_a_quantizer_that_fails_is_told_with_its_first_cause(tmp_path: Path) -> None:
    def quantize(_: Path) -> None:
        raise RuntimeError("wrapped") from ValueError("a | b\nmore")

    found = tried(quantize, tmp_path)
    assert found.failed == "fails: ValueError: a / b"
    assert table([found.as_json()]).splitlines()[-1].startswith("| the setting | fails: ValueError")


def test_a_file_that_fqfuse_refuses_is_told(tmp_path: Path) -> None:
    proto = model([node("Nothing", ["x"], domain="of.nobody")], inputs={"x": [1]})
    found = tried(lambda target: target.write_bytes(proto.SerializeToString()), tmp_path)
    assert found.failed.startswith("fqfuse refuses the file: ")


def test_arguments_are_shown_as_a_caller_writes_them() -> None:
    arguments = {"per_channel": True, "nodes": ["a", "b"], "extra": {"WeightSymmetric": False}}
    shown = 'per_channel=True, nodes=["a", "b"], extra={"WeightSymmetric": False}'
    assert shown_arguments(arguments) == shown


def test_a_table_goes_to_its_place_and_nowhere_else() -> None:
    guide = "a\n<!-- table one -->\nold\n<!-- end -->\nb\n<!-- table two -->\nkept\n<!-- end -->\n"
    assert places(guide) == ["one", "two"]
    assert filled(guide, {"one": "new\n"}) == guide.replace("old", "new")


@pytest.mark.parametrize("tool", GUIDES)
def test_a_guide_has_a_table_for_each_network(tool: str) -> None:
    text = GUIDES[tool].read_text(encoding="utf-8")
    assert places(text) == [f"{tool}-{network}" for network in SUBJECTS]


@pytest.mark.parametrize("network", SUBJECTS)
@pytest.mark.parametrize("tool", SETTINGS)
def test_the_tables_have_a_row_for_each_setting(tool: str, network: str) -> None:
    text = GUIDES[tool].read_text(encoding="utf-8")
    body = text.split(f"<!-- table {tool}-{network} -->\n")[1].split("<!-- end -->")[0]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in body.splitlines()[2:]]
    settings = SETTINGS[tool](network, Path("none.onnx"), [{}] * 8)
    assert rows == [setting.shown for _, setting in settings]
    codes = set(re.findall(r"findings\.md#([\w-]+)", body))
    catalogue = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert all(f"\n## {code}\n" in catalogue for code in codes)
