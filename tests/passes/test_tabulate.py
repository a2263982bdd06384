"""Tabulate: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.golden import check_pass

from fqfuse.passes.tabulate import Tabulate


@pytest.mark.golden("tabulate")
def test_golden(golden) -> None:
    check_pass(golden, Tabulate())
