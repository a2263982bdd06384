"""move_factor: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.move_factor import MOVE_FACTOR


@pytest.mark.golden("move_factor")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_FACTOR)
