"""shift_behind_product: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.shift_behind_product import SHIFT_BEHIND_PRODUCT


@pytest.mark.golden("shift_behind_product")
def test_golden(golden) -> None:
    check_pass(golden, SHIFT_BEHIND_PRODUCT)
