"""tabulate: golden cases, each held to the laws; what a table holds is the model's own
arithmetic.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.golden import check_pass
from laws.plans import compiled
from laws.runtimes import RUNTIMES

from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes.tabulate import TABULATE
from fqfuse.runtime.session import InferenceSession


@pytest.mark.golden("tabulate")
def test_golden(golden) -> None:
    check_pass(golden, TABULATE)


@pytest.mark.parametrize("step", [0.0217, 0.031, 0.0421, 0.05087541, 2**-5])
@pytest.mark.parametrize("dtype", [DType.U8, DType.S8])
def test_a_gelu_quantized_step_by_step_gives_the_codes_of_the_models_own_arithmetic(
    step: float, dtype: DType
) -> None:
    """erf's codes decode to multiples of 2/255, and 1 is 127.5 of them: every code of erf(x) + 1 is
    a tie up to f32 rounding.

    So another order of the same operations gives other codes, as the shift by 1 did when it joined
    the zero point.
    """

    def network() -> tuple[Net, Value]:
        n = Net()
        low = dtype.range[0]
        x = n.qdq(n.input((256,)), step, low + 131, dtype)
        erf = n.qdq(n.op("Erf", n.op("Div", x, 2**0.5)), 2 / 255, low + 128, dtype)
        gate = n.qdq(n.op("Add", erf, n.dq(*one(n, 1 / 255))), 2 / 255, low, dtype)
        product = n.qdq(n.op("Mul", x, gate), step, low + 7, dtype)
        return n, n.q(n.op("Mul", product, n.dq(*one(n, 0.5 / 255))), step / 2, low + 7, dtype)

    def one(n: Net, scale: float) -> tuple[Value, Quantization]:
        return n.graph.add_constant(n.graph.fresh("c"), np.asarray(255, np.uint8)), Quantization.of(
            scale, 0
        )

    n, output = network()
    feeds = {"x": (np.arange(256, dtype=np.float32) - 131) * np.float32(step)}
    model = n.done(output)
    expected = run_graph(model, feeds)[output]
    plan = compiled(*network())
    assert [step.op for step in plan.steps if step.primitive == "onnx.Lookup"] == ["Lookup"]
    for runtime in RUNTIMES:
        np.testing.assert_array_equal(
            InferenceSession(plan, runtime, 1).run(None, feeds)[0], expected
        )
