"""PRelu in a step of its own: max(x, a*x) of what the step reads, with what follows; the primitive
where that is not legal.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.plans import compiled, refusals
from laws.registry import feeds_for
from laws.runtimes import RUNTIMES

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

SLOPES = {
    "below 1": (0.25, 0.5, -2.0, 1.0),
    "above 1": (1.5, 2.0, 1.0),
    "on both sides": (0.5, 2.0),
    "zero": (0.0, 0.5),
    "one": (0.25,),
}


def slopes(name: str, channels: int = 16) -> np.ndarray:
    return np.resize(SLOPES[name], (channels, 1, 1)).astype(np.float32)


def codes(n: Net, zero: int) -> Value:
    return n.dq(n.input((2, 16, 8, 8), dtype=DType.U8, quant=Quantization.of(0.1, zero)))


def maximum(n: Net, zero: int) -> Value:
    return n.op("MaxPool", codes(n, zero), kernel_shape=(2, 2))


def average(n: Net, zero: int) -> Value:
    return n.op("AveragePool", codes(n, zero), kernel_shape=(2, 2))


def addition(n: Net, zero: int) -> Value:
    return n.op("Add", codes(n, zero), codes(n, 7))


def reduction(n: Net, zero: int) -> Value:
    return n.op("ReduceSum", codes(n, zero), n.ints(3), keepdims=1)


def decoded_along_the_channels(n: Net, zero: int) -> Value:
    quant = Quantization.of(np.linspace(0.1, 0.3, 16), np.full(16, zero), 1)
    return n.dq(n.input((2, 16, 8, 8), dtype=DType.U8), quant)


STEPS = {
    codes: ["binary"],
    maximum: ["pooling", "binary"],
    average: ["pooling", "binary"],
    addition: ["binary", "binary"],
    reduction: ["reorder", "reduction", "binary"],
    decoded_along_the_channels: ["reorder", "binary"],
}
# oneDNN 2.6 refuses an average of codes into f32
STEPS_OF_V2 = STEPS | {average: ["reorder", "pooling", "binary"]}


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
@pytest.mark.parametrize("zero", [0, 9])
@pytest.mark.parametrize("name", ["below 1", "above 1", "on both sides", "zero", "one"])
@pytest.mark.parametrize("front", STEPS)
def test_numbers_and_steps(front, name: str, zero: int, target: str) -> None:
    n = Net()
    graph = n.done(n.q(n.op("PRelu", front(n, zero), slopes(name)), 0.2, 128))
    plan = plan_from_graph(optimize(graph.copy()), target)
    assert verify_plan(plan) == []
    if name in ("below 1", "above 1"):
        steps = STEPS_OF_V2 if target == "onednn-v2" else STEPS
        assert [step.primitive for step in plan.steps] == steps[front]
    elif name == "one":
        assert "prelu" not in [step.primitive for step in plan.steps]
    feeds = feeds_for(graph)
    box = run_boxes(graph, feeds, GRANTED)[graph.outputs[0]]
    found = [InferenceSession(plan, runtime, 1).run(None, feeds)[0] for runtime in RUNTIMES]
    assert all(np.array_equal(found[0], other) for other in found)
    assert box.outside(found[0]) == 0


@pytest.mark.parametrize("name", ["below 1", "above 1"])
def test_values_in_f32_are_exact(name: str) -> None:
    n = Net()
    y = n.op("Sigmoid", n.op("PRelu", n.input((2, 16, 8, 8)), slopes(name)))
    product = n.op("PRelu", n.graph.inputs[0], slopes(name))
    graph = n.done(n.op("Abs", product), y)
    plan = plan_from_graph(optimize(graph.copy()))
    assert "prelu" not in [step.primitive for step in plan.steps]
    feeds = feeds_for(graph)
    for runtime in RUNTIMES:
        assert np.array_equal(
            InferenceSession(plan, runtime, 1).run(None, feeds)[0],
            run_graph(graph, feeds)[graph.outputs[0]],
        )


def test_alone_it_is_the_primitive() -> None:
    n = Net()
    plan = compiled(n, n.op("PRelu", n.input((2, 16, 8, 8)), slopes("below 1")))
    assert [step.primitive for step in plan.steps] == ["prelu"]


@pytest.mark.parametrize("name", ["on both sides", "zero"])
def test_refused(name: str) -> None:
    """A slope of 0 would make NaN of infinite values; slopes on both sides of 1 are neither a
    maximum nor a minimum.
    """
    n = Net()
    plan = compiled(n, n.q(n.op("PRelu", n.input((2, 16, 8, 8)), slopes(name)), 0.2))
    assert [step.primitive for step in plan.steps] == ["prelu", "reorder"]
    (refused,) = refusals(plan, "needs a <= 1")
    assert refused.found == f"slopes {min(SLOPES[name]):g} to {max(SLOPES[name]):g}"


def test_codes_bear_a_slope_of_zero() -> None:
    n = Net()
    plan = compiled(n, n.q(n.op("PRelu", codes(n, 9), slopes("zero")), 0.2))
    assert [step.primitive for step in plan.steps] == ["binary"]
