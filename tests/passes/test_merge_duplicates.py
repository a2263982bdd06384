"""merge_duplicates: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.passes.merge_duplicates import MERGE_DUPLICATES


@pytest.mark.golden("merge_duplicates")
def test_golden(golden) -> None:
    check_pass(golden, MERGE_DUPLICATES)


def test_chains_of_duplicates_collapse_in_one_run() -> None:
    n = Net()
    x = n.input(("N", 4))
    graph = n.done(*(n.op("Relu", n.qdq(x, 0.5)) for _ in range(4)))
    MERGE_DUPLICATES.run(graph)
    assert [node.op for node in graph.nodes()].count("Quantize") == 1
    assert [node.op for node in graph.nodes()].count("Dequantize") == 1
    merged = next(node for node in graph.nodes() if node.op == "Dequantize")
    assert len(merged.quantizer) == 4
    assert len(graph.consumers(merged.output)) == 4
