"""retype_matmul_operand: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.retype_matmul_operand import RETYPE_MATMUL_OPERAND


@pytest.mark.golden("retype_matmul_operand")
def test_golden(golden) -> None:
    check_pass(golden, RETYPE_MATMUL_OPERAND)
