"""FoldBatchNorm: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.fold_batch_norm import FoldBatchNorm


@pytest.mark.golden("fold_batch_norm")
def test_golden(golden) -> None:
    check_pass(golden, FoldBatchNorm())
