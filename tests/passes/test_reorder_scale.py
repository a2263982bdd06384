"""reorder_scale: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.reorder_scale import REORDER_SCALE


@pytest.mark.golden("reorder_scale")
def test_golden(golden) -> None:
    check_pass(golden, REORDER_SCALE)
