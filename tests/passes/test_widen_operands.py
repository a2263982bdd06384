"""widen_operands: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.widen_operands import WIDEN_OPERANDS


@pytest.mark.golden("widen_operands")
def test_golden(golden) -> None:
    check_pass(golden, WIDEN_OPERANDS)
