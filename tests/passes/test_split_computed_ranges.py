"""split_computed_ranges: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.split_computed_ranges import SPLIT_COMPUTED_RANGES


@pytest.mark.golden("split_computed_ranges")
def test_golden(golden) -> None:
    check_pass(golden, SPLIT_COMPUTED_RANGES)
