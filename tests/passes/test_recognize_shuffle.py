"""recognize_shuffle: golden cases, each held to the laws; and what becomes of one behind
quantizers.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.golden import check_pass
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.interpret import run_graph
from fqfuse.passes import optimize
from fqfuse.passes.recognize_shuffle import RECOGNIZE_SHUFFLE
from fqfuse.runtime.session import InferenceSession


@pytest.mark.golden("recognize_shuffle")
def test_golden(golden) -> None:
    check_pass(golden, RECOGNIZE_SHUFFLE)


def _shuffled(n: Net, x: Value, *, quantized: bool) -> Value:
    """A shuffle of 8 channels in 2 groups; ONNX Runtime quantizes each of its three operations."""
    for op in (
        lambda v: n.op("Reshape", v, n.ints(0, 2, 4, 5, 6)),
        lambda v: n.op("Transpose", v, perm=(0, 2, 1, 3, 4)),
        lambda v: n.op("Reshape", v, n.ints(0, 8, 5, 6)),
    ):
        x = n.qdq(op(x), 2.0**-6, 128) if quantized else op(x)
    return x


@pytest.mark.parametrize("quantized", [False, True])
def test_a_shuffle_between_convolutions_is_one_step_on_codes(quantized: bool) -> None:
    n = Net()
    x = n.qdq(n.conv(n.qdq(n.input(("N", 3, 5, 6)), 2.0**-6, 128), 8, 1), 2.0**-6, 128)
    graph = n.done(n.conv(_shuffled(n, x, quantized=quantized), 2, 1))
    plan = plan_from_graph(optimize(graph.copy()))
    assert [step.primitive for step in plan.steps] == [
        "reorder",
        "convolution",
        "shuffle",
        "convolution",
    ]
    assert plan.steps[2].params == {"axis": 1, "group_size": 4}
    feeds = feeds_for(graph)
    (wanted,) = run_graph(graph, feeds).values()
    (found,) = InferenceSession(plan, "numpy").run(None, feeds)
    # scales are powers of two: only the order of f32 sums differs
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
