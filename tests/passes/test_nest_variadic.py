"""nest_variadic: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.nest_variadic import NEST_VARIADIC


@pytest.mark.golden("nest_variadic")
def test_golden(golden) -> None:
    check_pass(golden, NEST_VARIADIC)
