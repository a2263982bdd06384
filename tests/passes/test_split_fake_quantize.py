"""SplitFakeQuantize: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.split_fake_quantize import SplitFakeQuantize


@pytest.mark.golden("split_fake_quantize")
def test_golden(golden) -> None:
    check_pass(golden, SplitFakeQuantize())
