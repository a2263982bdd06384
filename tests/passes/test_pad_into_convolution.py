"""PadIntoConvolution: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.pad_into_convolution import PadIntoConvolution


@pytest.mark.golden("pad_into_convolution")
def test_golden(golden) -> None:
    check_pass(golden, PadIntoConvolution())
