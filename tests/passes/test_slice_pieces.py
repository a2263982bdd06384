"""slice_pieces: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.slice_pieces import SLICE_PIECES


@pytest.mark.golden("slice_pieces")
def test_golden(golden) -> None:
    check_pass(golden, SLICE_PIECES)
