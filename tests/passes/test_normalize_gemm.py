"""NormalizeGemm: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.normalize_gemm import NormalizeGemm


@pytest.mark.golden("normalize_gemm")
def test_golden(golden) -> None:
    check_pass(golden, NormalizeGemm())
