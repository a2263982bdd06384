"""FoldConstants: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.fold_constants import FoldConstants


@pytest.mark.golden("fold_constants")
def test_golden(golden) -> None:
    check_pass(golden, FoldConstants())
