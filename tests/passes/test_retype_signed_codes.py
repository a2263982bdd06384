"""retype_signed_codes: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.retype_signed_codes import RETYPE_SIGNED_CODES


@pytest.mark.golden("retype_signed_codes")
def test_golden(golden) -> None:
    check_pass(golden, RETYPE_SIGNED_CODES)
