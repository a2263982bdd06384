"""split_joined_source: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.split_joined_source import SPLIT_JOINED_SOURCE


@pytest.mark.golden("split_joined_source")
def test_golden(golden) -> None:
    check_pass(golden, SPLIT_JOINED_SOURCE)
