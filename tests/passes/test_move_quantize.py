"""MoveQuantize: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.move_quantize import MoveQuantize


@pytest.mark.golden("move_quantize")
def test_golden(golden) -> None:
    check_pass(golden, MoveQuantize())
