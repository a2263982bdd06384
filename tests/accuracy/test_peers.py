"""Other programs that run the int8 model, where they go wrong in a way that no handler of errors sees."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import fqfuse
from fqfuse.models.digits import digits_model_path

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_program_that_crashes_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO 2026.4.1 does so on a DenseNet of ONNX Runtime's quantizer, with processes that it forked for
    its telemetry beside it: they do their work, and what they hold open hides no death.
    """
    (tmp_path / "openvino.py").write_text(CRASHES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    with pytest.raises(fqfuse.InvalidInput, match=r"openvino cannot run.*crashed by SIGSEGV"):
        fqfuse.compare(digits_model_path("f32"), digits_model_path("qdq"), against="openvino")
    assert (tmp_path / "sent").exists()
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
