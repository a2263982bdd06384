"""SeparateComputedBias: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.separate_computed_bias import SeparateComputedBias


@pytest.mark.golden("separate_computed_bias")
def test_golden(golden) -> None:
    check_pass(golden, SeparateComputedBias())
