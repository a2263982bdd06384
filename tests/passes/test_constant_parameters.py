"""constant_parameters: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.constant_parameters import CONSTANT_PARAMETERS


@pytest.mark.golden("constant_parameters")
def test_golden(golden) -> None:
    check_pass(golden, CONSTANT_PARAMETERS)
