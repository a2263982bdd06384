"""mask_to_bounds: golden cases, each held to the laws; and scores of attention as exporters write
them, in one step.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.golden import check_pass
from laws.runtimes import EACH_RUNTIME

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.interpret import run_graph
from fqfuse.passes import optimize
from fqfuse.passes.mask_to_bounds import MASK_TO_BOUNDS
from fqfuse.runtime.session import InferenceSession


@pytest.mark.golden("mask_to_bounds")
def test_golden(golden) -> None:
    check_pass(golden, MASK_TO_BOUNDS)


@EACH_RUNTIME
@pytest.mark.parametrize(
    "hidden", [-np.inf, float(np.finfo(np.float32).min), -10000.0, -1.0, 0.0, 7.0]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_masked_scores_are_one_step(batch: int, hidden: float, runtime: str) -> None:
    n = Net()
    q, k = (n.qdq(n.input((batch, 2, 6, 8), name=name), 2**-5, 128) for name in ("q", "k"))
    scores = n.op("Mul", n.op("MatMul", q, n.op("Transpose", k, perm=(0, 1, 3, 2))), 0.25)
    masked = n.op("Where", np.tri(6, dtype=np.bool_).reshape(1, 1, 6, 6), scores, hidden)
    graph = n.done(masked)
    feeds = {name: n.rng.normal(0, 1, (batch, 2, 6, 8)).astype(np.float32) for name in ("q", "k")}
    (expected,) = run_graph(graph, feeds).values()
    plan = plan_from_graph(optimize(graph))
    assert [step.primitive for step in plan.steps if not step.primitive.startswith("onnx.")].count(
        "matmul"
    ) == 1
    assert "onnx.Where" not in [step.primitive for step in plan.steps]
    (found,) = InferenceSession(plan, runtime, 2).run(None, feeds)
    # codes times powers of two: no rounding anywhere
    np.testing.assert_array_equal(found, expected)
