"""recognize_activations: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.recognize_activations import RECOGNIZE_ACTIVATIONS


@pytest.mark.golden("recognize_activations")
def test_golden(golden) -> None:
    check_pass(golden, RECOGNIZE_ACTIVATIONS)
