"""move_quantize: golden cases, each held to the laws."""

from __future__ import annotations

import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.passes.move_quantize import MOVE_QUANTIZE


@pytest.mark.golden("move_quantize")
def test_golden(golden) -> None:
    check_pass(golden, MOVE_QUANTIZE)


def test_a_quantize_goes_as_far_as_it_can_in_one_run() -> None:
    n = Net()
    y = n.op("Relu", n.input(("N", 4, 4, 4)))
    for _ in range(3):
        y = n.op(
            "MaxPool",
            n.op("Transpose", y, perm=(0, 1, 3, 2)),
            kernel_shape=(3, 3),
            pads=(1, 1, 1, 1),
        )
    graph = n.done(n.q(y, 0.5))
    MOVE_QUANTIZE.run(graph)
    assert [node.op for node in graph.nodes()][:2] == ["Relu", "Quantize"]


def test_a_part_of_a_split_stays_where_it_is() -> None:
    """The other part is f32: the split cannot work on codes."""
    n = Net()
    n.op("Split", n.op("Relu", n.input(("N", 4))), name="split", outputs=2, axis=1, num_outputs=2)
    graph = n.done(n.q("split_y", 0.5), n.op("Sigmoid", "split_y1"))
    before = graph.copy()
    MOVE_QUANTIZE.run(graph)
    assert graph == before


@pytest.mark.parametrize("op", ["Gather", "Slice"])
def test_what_is_fed_is_cut_before_it_is_quantized(op: str) -> None:
    """A body of a Loop that picks a row in each trip would quantize all rows in each."""
    n = Net()
    x = n.input((8, 4))
    if op == "Gather":
        part = n.op("Gather", x, n.ints(2), axis=0)
    else:
        bounds = [n.ints(k) for k in (2, 3, 0)]
        part = n.op("Slice", x, *bounds)
    graph = n.done(n.q(part, 0.5))
    before = graph.copy()
    MOVE_QUANTIZE.run(graph)
    assert [node.op for node in graph.nodes()] == [node.op for node in before.nodes()]
    (decision,) = [made for made in graph.decisions if made.rule == "move_quantize"]
    assert decision.reason == f"{op.lower()}1 takes a part of an input, which no step computes"
