"""quantize_at_run_time: golden cases, each held to the laws but that of meaning: it approximates."""

from __future__ import annotations

import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.passes.quantize_at_run_time import quantizing


@pytest.mark.golden("quantize_at_run_time")
def test_golden(golden) -> None:
    check_pass(golden, quantizing("all"))


def test_nothing_is_quantized_unless_it_is_asked_for() -> None:
    n = Net()
    graph = n.done(n.op("MatMul", n.input(("N", 4)), n.const([[1.0], [2.0], [3.0], [4.0]])))
    for products, fired in ((None, False), ("matmul", True)):
        after = graph.copy()
        quantizing(products).run(after)
        assert (after != graph) is fired
