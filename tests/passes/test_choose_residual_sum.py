"""choose_residual_sum: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.choose_residual_sum import CHOOSE_RESIDUAL_SUM


@pytest.mark.golden("choose_residual_sum")
def test_golden(golden) -> None:
    check_pass(golden, CHOOSE_RESIDUAL_SUM)
