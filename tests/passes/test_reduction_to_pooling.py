"""reduction_to_pooling: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.reduction_to_pooling import REDUCTION_TO_POOLING


@pytest.mark.golden("reduction_to_pooling")
def test_golden(golden) -> None:
    check_pass(golden, REDUCTION_TO_POOLING)
