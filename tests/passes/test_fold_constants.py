"""FoldConstants: golden cases, each held to the laws."""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.golden import check_pass

from fqfuse.ir.decision import Outcome
from fqfuse.ir.types import DType, TensorType
from fqfuse.passes.fold_constants import FoldConstants


@pytest.mark.golden("fold_constants")
def test_golden(golden) -> None:
    check_pass(golden, FoldConstants())


def test_a_constant_beyond_the_budget_stays_an_operation() -> None:
    n = Net()
    graph = n.done(n.op("Add", n.input(("N", 8)), n.op("Tile", n.const([1.0, 2.0]), n.ints(4))))
    FoldConstants(max_bytes=16).run(graph)
    assert [node.op for node in graph.nodes()] == ["Tile", "Add"]
    (decision,) = graph.decisions
    assert decision.outcome is Outcome.REFUSED
    assert (decision.expected, decision.found) == ("at most 16 bytes", "32 bytes")
    assert decision.hint
    FoldConstants(max_bytes=32).run(graph)
    assert [node.op for node in graph.nodes()] == ["Add"]


def test_constants_are_not_copied() -> None:
    n = Net()
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = n.done(n.op("Relu", n.op("Identity", n.graph.add_constant("c", data))), n.op("Add", n.input((3,)), "c"))
    FoldConstants().run(graph)
    assert np.shares_memory(graph.constants["c"], data)


def test_a_row_that_cannot_evaluate_is_left_alone() -> None:
    """A foreign operation has no meaning here; its inputs being constant changes nothing."""
    n = Net()
    kind = TensorType(DType.F32, (2,))
    foreign = {"op_type": "Bernoulli", "opset": 15, "proto": b""}
    y = n.graph.add("Onnx", [n.const([1.0, 2.0])], foreign, name="draw", outputs=["drawn"], types=[kind], origin=["draw"]).output
    graph = n.done(n.op("Relu", y))
    FoldConstants().run(graph)
    assert [node.op for node in graph.nodes()] == ["Onnx", "Relu"]
