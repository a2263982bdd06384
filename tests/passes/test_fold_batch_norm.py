"""fold_batch_norm: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.fold_batch_norm import FOLD_BATCH_NORM


@pytest.mark.golden("fold_batch_norm")
def test_golden(golden) -> None:
    check_pass(golden, FOLD_BATCH_NORM)
