"""Data sets, and a way to see all bytes of an output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fqfuse
from fqfuse.models.digits import digits_model_path, digits_test_set


@pytest.fixture(scope="session")
def plan() -> fqfuse.Plan:
    """The digits model: input `image`, f32 [N, 1, 8, 8], output `logits`."""
    return fqfuse.compile(digits_model_path("qdq"))


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """360 digits."""
    return digits_test_set()[0]


@pytest.fixture(scope="session")
def logits(plan: fqfuse.Plan, images: np.ndarray) -> np.ndarray:
    """What a session answers."""
    return fqfuse.InferenceSession(plan, "numpy", 1).run(None, {"image": images})[0]


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, bytes]]:
    """contents(folder) -> the bytes of all that a reader of the output sees."""

    def read(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    return read
