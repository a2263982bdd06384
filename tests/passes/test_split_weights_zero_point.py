"""split_weights_zero_point: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.split_weights_zero_point import SPLIT_WEIGHTS_ZERO_POINT


@pytest.mark.golden("split_weights_zero_point")
def test_golden(golden) -> None:
    check_pass(golden, SPLIT_WEIGHTS_ZERO_POINT)
