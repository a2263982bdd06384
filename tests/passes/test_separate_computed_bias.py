"""separate_computed_bias: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.separate_computed_bias import SEPARATE_COMPUTED_BIAS


@pytest.mark.golden("separate_computed_bias")
def test_golden(golden) -> None:
    check_pass(golden, SEPARATE_COMPUTED_BIAS)
