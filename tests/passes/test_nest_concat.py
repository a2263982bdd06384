"""nest_concat: golden cases, each held to the laws; and that it finds the longest prefix in linear
time.
"""

from __future__ import annotations

import itertools

import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.passes.nest_concat import NEST_CONCAT


@pytest.mark.golden("nest_concat")
def test_golden(golden) -> None:
    check_pass(golden, NEST_CONCAT)


def test_a_dense_block_joins_two_values_for_each_layer() -> None:
    n = Net()
    values = [n.input(("N", 4)) for _ in range(12)]
    graph = n.done(*(n.op("Concat", *values[:count], axis=1) for count in range(1, 13)))
    NEST_CONCAT.run(graph)
    joins = [node for node in graph.nodes() if node.op == "Concat"]
    assert [len(node.inputs) for node in joins] == [2] * 11
    assert all(join.inputs[0] == before.output for before, join in itertools.pairwise(joins))
