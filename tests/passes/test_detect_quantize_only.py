"""DetectQuantizeOnly: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.detect_quantize_only import DetectQuantizeOnly


@pytest.mark.golden("detect_quantize_only")
def test_golden(golden) -> None:
    check_pass(golden, DetectQuantizeOnly())
