"""decode_wide_codes: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.decode_wide_codes import DECODE_WIDE_CODES


@pytest.mark.golden("decode_wide_codes")
def test_golden(golden) -> None:
    check_pass(golden, DECODE_WIDE_CODES)
