"""MoveDequantize: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.move_dequantize import MoveDequantize


@pytest.mark.golden("move_dequantize")
def test_golden(golden) -> None:
    check_pass(golden, MoveDequantize())
