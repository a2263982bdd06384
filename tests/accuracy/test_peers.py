"""Other programs that run the int8 model, where they go wrong in a way that no handler of errors sees."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fqfuse
from fqfuse.accuracy import peers
from fqfuse.accuracy.compare import compared, drawn_for, read_models
from fqfuse.accuracy.document import as_data
from fqfuse.accuracy.screen import comparison_report
from fqfuse.frontend.parts import model_bytes
from fqfuse.measure.engines import onnxruntime_session
from fqfuse.models.digits import digits_model_path
from fqfuse.report.layout import Layout

CRASHES = """
import multiprocessing, os, pathlib, signal, time

class Core:
    def read_model(self, *arguments, **options):
        forked = multiprocessing.get_context("fork").Process
        first = forked(target=pathlib.Path(__file__).with_name("sent").touch)
        first.start()
        first.join(20)
        forked(target=time.sleep, args=(3,)).start()
        os.kill(os.getpid(), signal.SIGSEGV)
"""

HANGS = """
import time

class Core:
    def read_model(self, *arguments, **options):
        time.sleep(60)
"""


@pytest.fixture
def other_openvino(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where an `openvino` lies that the test writes; it is forgotten behind the test."""
    monkeypatch.syspath_prepend(tmp_path)
    own = sys.modules.pop("openvino", None)
    yield tmp_path / "openvino.py"
    sys.modules.pop("openvino", None)
    if own is not None:
        sys.modules["openvino"] = own


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_program_that_crashes_is_a_refusal(other_openvino: Path) -> None:
    """OpenVINO 2026.4.1 does so on a DenseNet of ONNX Runtime's quantizer, with processes that it forked for
    its telemetry beside it: they do their work, and what they hold open hides no death.
    """
    other_openvino.write_text(CRASHES)
    with pytest.raises(fqfuse.InvalidInput, match=r"openvino cannot run.*crashed by SIGSEGV"):
        fqfuse.compare(digits_model_path("f32"), digits_model_path("qdq"), against="openvino")
    assert other_openvino.with_name("sent").exists()


def test_a_program_that_never_ends_gets_the_time_that_is_given(other_openvino: Path) -> None:
    other_openvino.write_text(HANGS)
    models = digits_model_path("f32"), digits_model_path("qdq")
    with pytest.raises(fqfuse.InvalidInput, match=r"no answer to 'load' within 0.5 s"):
        fqfuse.compare(*models, against="openvino", timeout=0.5)
    sys.modules.pop("openvino", None)
    with pytest.raises(fqfuse.InvalidInput, match=r"seconds of the timeout are 0"):
        fqfuse.compare(*models, against="openvino", timeout=0)


def test_what_onnxruntime_refuses_is_said_with_what_it_takes(tmp_path: Path) -> None:
    """It has no FakeQuantize; the export has none."""
    f32, int8 = digits_model_path("f32"), digits_model_path("fakequantize")
    with pytest.raises(fqfuse.InvalidInput, match=r"FakeQuantize.*is not a registered") as refused:
        fqfuse.compare(f32, int8, against="onnxruntime")
    assert "`fqfuse export`" in refused.value.hint
    fqfuse.export(int8, tmp_path / "exported.onnx")
    found = fqfuse.compare(f32, tmp_path / "exported.onnx", against="onnxruntime")
    # ties of rounding apart, both compute what the file means
    assert found["agreement"]["onnxruntime"]["logits"]["sqnr"] > 60


class Fused:
    """A session whose optimizations are wrong, as ONNX Runtime 1.31 is with a softmax of tight codes."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def run(self, *arguments: Any) -> list[Any]:
        return [np.zeros_like(output) for output in self._session.run(*arguments)]


@pytest.mark.parametrize("cure", ["not wrong", "setting", "export", "nothing"])
def test_what_is_deployed_is_told_and_what_cures_it(
    monkeypatch: pytest.MonkeyPatch, cure: str
) -> None:
    own = model_bytes(digits_model_path("qdq"))

    def opened(model: Any, *, optimized: bool = True, settings: Any = ()) -> Any:
        session = onnxruntime_session(model, optimized=optimized)
        right = {"not wrong": True, "setting": bool(settings), "export": model != own}
        return session if right.get(cure) or not optimized else Fused(session)

    monkeypatch.setattr(peers, "onnxruntime_session", opened)
    models = read_models(digits_model_path("f32"), digits_model_path("qdq"))
    found = compared(models, drawn_for(models, {}), "onnxruntime")
    shown = io.StringIO()
    report = comparison_report(found, None, Layout(80), title="digits", all_rows=False)
    Console(file=shown, width=80).print(report)
    text = " ".join(shown.getvalue().split())
    document = as_data(found)
    assert document["agreement"]["onnxruntime"]["logits"]["sqnr"] > 60
    assert "Both run what the file means" in text
    # both are shown, whether they differ or not
    assert "onnxruntime not optimized" in text
    wrong = cure != "not wrong"
    assert (
        "As it is deployed, with its optimizations, onnxruntime is 0.0 dB from f32" in text
    ) == wrong
    assert (document["agreement"]["onnxruntime, optimized"]["logits"]["sqnr"] < 1) == wrong
    said = {
        "setting": 'What cures it, tried here: the session option session.x64quantprecision, "1"',
        "export": "What cures it, tried here: what fqfuse export MODEL --to qdq -o OUT writes",
        "nothing": "Nothing that was tried cures it, but to turn the optimizations off",
    }
    assert all((words in text) == (cure == name) for name, words in said.items())
    assert len(document["cures"]) == 2 * wrong


def test_a_model_that_loads_without_optimizations_alone(monkeypatch) -> None:
    """As files in two types of codes do in ONNX Runtime 1.31."""
    pybind11_state = pytest.importorskip("onnxruntime").capi.onnxruntime_pybind11_state
    load = peers.onnxruntime_session

    def refusing(data: bytes, *, optimized: bool = True) -> object:
        if optimized:
            raise pybind11_state.Fail("says\nit does not fit")
        return load(data, optimized=optimized)

    monkeypatch.setattr(peers, "onnxruntime_session", refusing)
    (image,) = fqfuse.compile(digits_model_path("qdq")).inputs
    found = peers.peer("onnxruntime", digits_model_path("qdq"))
    assert (found.optimized, found.refusal) == (None, "it does not fit")
    assert found.run({image: np.ones((1, 1, 8, 8), np.float32)})
