"""A caller that has closed its standard streams: a daemon, `>&-` in a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fqfuse

MODEL = Path(fqfuse.__file__).parent / "models" / "data" / "digits_qdq.onnx"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("command", "code"),
    [("inspect", 0), ("inspect --json", 0), ("compile", 0), ("inspect --target none", 2)],
)
def test_closed_streams_change_no_exit_code(
    command: str, code: int, closed: str, tmp_path: Path
) -> None:
    name, *options = command.split()
    rest = ["-o", str(tmp_path / "plan.onnx")] if name == "compile" else options
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'"$@" {closed}',
            "sh",
            sys.executable,
            "-m",
            "fqfuse",
            name,
            str(MODEL),
            *rest,
        ],
        capture_output=True,
        check=False,
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
    assert (name == "compile") == (tmp_path / "plan.onnx").exists()
