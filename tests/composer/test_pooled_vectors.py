"""Global pooling whose axes of size 1 are dropped: what stands behind the shape-only operation
still belongs to the pool's step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.registry import feeds_for
from laws.runtimes import RUNTIMES

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.runtime.session import InferenceSession

VECTORS: dict[str, Callable[[Net, Value], Value]] = {
    "flattened": lambda n, x: n.op("Flatten", n.op("GlobalAveragePool", x), axis=1),
    "squeezed": lambda n, x: n.op("Squeeze", n.op("GlobalAveragePool", x), n.ints(2, 3)),
    "reshaped": lambda n, x: n.op("Reshape", n.op("GlobalAveragePool", x), n.ints(0, -1)),
    "mean": lambda n, x: n.op("ReduceMean", x, n.ints(2, 3), keepdims=0),
}


@pytest.mark.parametrize("quantizer", ["QuantizeLinear", "FakeQuantize"])
@pytest.mark.parametrize("vector", VECTORS)
def test_the_pool_stores_what_stands_behind_the_view(vector: str, quantizer: str) -> None:
    n = Net()
    x = n.dq(n.input((2, 16, 6, 6), dtype=DType.U8, quant=Quantization.of(2**-4, 3)))
    y = n.op("Relu", VECTORS[vector](n, x))
    y = n.dq(n.q(y, 2**-5)) if quantizer == "QuantizeLinear" else n.fq(y, 0.0, 255 / 32)
    graph = n.done(n.op("MatMul", y, n.weights((16, 8), 2**-8)))
    plan = plan_from_graph(optimize(graph.copy()))
    steps = [step for step in plan.steps if not step.primitive.startswith("onnx.")]
    assert [step.primitive for step in steps] == ["pooling", "matmul"]
    assert all(plan.type(step.arg("src")).dtype is DType.U8 for step in steps)
    feeds = feeds_for(graph)
    box = run_boxes(graph, feeds, GRANTED)[graph.outputs[0]]
    found = [InferenceSession(plan, runtime, 1).run(None, feeds)[0] for runtime in RUNTIMES]
    assert all(np.array_equal(found[0], other) for other in found)
    assert box.outside(found[0]) <= 1e-5
