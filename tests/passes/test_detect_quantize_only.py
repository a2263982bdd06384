"""detect_quantize_only: golden cases, each held to the laws."""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.ir.interpret import run_graph
from fqfuse.passes.detect_quantize_only import DETECT_QUANTIZE_ONLY


@pytest.mark.golden("detect_quantize_only")
def test_golden(golden) -> None:
    check_pass(golden, DETECT_QUANTIZE_ONLY)


@pytest.mark.parametrize("low", [-128.0, -127.0, 0.0, 3.0])
def test_ties_of_odd_zero_points_differ_by_one_code_at_most(low: float) -> None:
    """round(v) + z and round(v + z) part at ties where z is odd: the contract is `ties`, not
    `bitwise`.
    """
    n = Net()
    levels = 64
    graph = n.done(n.fq(n.input(("N",)), 0.0, (levels - 1) / 8, low, low + levels - 1, levels))
    x = ((np.arange(levels - 1) + 0.5) / 8).astype(np.float32)
    (before,) = run_graph(graph, {"x": x}).values()
    DETECT_QUANTIZE_ONLY.run(graph)
    (after,) = run_graph(graph, {"x": x}).values()
    apart = np.abs(after - before)
    assert apart.max() == (1 if low % 2 else 0)
    between = ((np.arange(levels - 1) + 0.25) / 8).astype(np.float32)
    assert np.array_equal(
        run_graph(graph, {"x": between}).popitem()[1], np.arange(levels - 1) + low
    )
