"""MergeDuplicates: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.merge_duplicates import MergeDuplicates


@pytest.mark.golden("merge_duplicates")
def test_golden(golden) -> None:
    check_pass(golden, MergeDuplicates())
