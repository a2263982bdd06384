"""UnifyConcatTypes: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.unify_concat_types import UnifyConcatTypes


@pytest.mark.golden("unify_concat_types")
def test_golden(golden) -> None:
    check_pass(golden, UnifyConcatTypes())
