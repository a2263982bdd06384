"""pad_into_convolution: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.passes.pad_into_convolution import PAD_INTO_CONVOLUTION


@pytest.mark.golden("pad_into_convolution")
def test_golden(golden) -> None:
    check_pass(golden, PAD_INTO_CONVOLUTION)


def test_a_pad_without_axes_is_left_alone() -> None:
    n = Net()
    graph = n.done(n.op("Relu", n.op("Pad", n.input(()), n.ints())))
    PAD_INTO_CONVOLUTION.run(graph)
    assert [node.op for node in graph.nodes()] == ["Pad", "Relu"]
