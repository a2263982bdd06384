"""scale_into_product: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.scale_into_product import SCALE_INTO_PRODUCT


@pytest.mark.golden("scale_into_product")
def test_golden(golden) -> None:
    check_pass(golden, SCALE_INTO_PRODUCT)
