"""move_slice: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.move_slice import MOVE_SLICE


@pytest.mark.golden("move_slice")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_SLICE)
