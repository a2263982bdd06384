"""unify_concat_types: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.unify_concat_types import UNIFY_CONCAT_TYPES


@pytest.mark.golden("unify_concat_types")
def test_golden(golden) -> None:
    check_pass(golden, UNIFY_CONCAT_TYPES)
