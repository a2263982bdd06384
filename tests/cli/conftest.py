"""What the tests of the command line share: a way to call it in this process and in one of its own,
a plan, and inputs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fqfuse.cli.app import app
from fqfuse.models.digits import digits_model_path, digits_test_set


@pytest.fixture
def call():
    """call(*arguments) -> result with exit_code, stdout and stderr; runs in this process, stdout is
    a pipe.
    """

    def run(*arguments: object, env: Mapping[str, str] | None = None):
        return CliRunner(env=env or {}).invoke(
            app, [str(argument) for argument in arguments], prog_name="fqfuse"
        )

    return run


@pytest.fixture
def spawn():
    """spawn(*arguments) -> the finished process `fqfuse ...`, as a user starts it."""

    def run(
        *arguments: object, env: Mapping[str, str] | None = None, **options
    ) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("fqfuse")), *map(str, arguments)]
        options = {"capture_output": True, **options}
        return subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            text=True,
            encoding="utf-8",
            check=False,
            timeout=120,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def model() -> Path:
    """The digits model in its FakeQuantize form: input `image`, output `logits`."""
    return digits_model_path("fakequantize")


@pytest.fixture(scope="session")
def plan(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A plan file of that model."""
    path = tmp_path_factory.mktemp("plan") / "digits.plan.onnx"
    assert CliRunner().invoke(app, ["compile", str(model), "-o", str(path)]).exit_code == 0
    return path


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """Eight digits, f32 [8, 1, 8, 8]."""
    return digits_test_set()[0][:8]


@pytest.fixture
def image_file(tmp_path: Path, images: np.ndarray) -> Path:
    """These digits as .npy."""
    np.save(tmp_path / "image.npy", images)
    return tmp_path / "image.npy"
