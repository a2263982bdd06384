"""The runtimes that this machine has, for tests that hold what is said of a plan on each of
them.
"""

from __future__ import annotations

import pytest

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.loading import load


def _library_is_there() -> bool:
    try:
        load()
    except BackendUnavailable:
        return False
    return True


RUNTIMES = ("numpy", "onednn") if _library_is_there() else ("numpy",)
"""For a loop inside a test."""

EACH_RUNTIME = pytest.mark.parametrize(
    "runtime",
    [
        "numpy",
        pytest.param(
            "onednn", marks=pytest.mark.skipif("onednn" not in RUNTIMES, reason="no oneDNN")
        ),
    ],
)
"""For a test that takes `runtime`: what this machine lacks shows as skipped."""
