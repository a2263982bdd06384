"""Softmax and sums along an axis between others: the verdict counts them as NumPy's, where the library has no
implementation that is worth it.
"""

from __future__ import annotations

import pytest
from support.finding_networks import Net

import fqfuse
from fqfuse.report.verdict.estimate import costs_of
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.work import along_the_middle

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=1, clock=3.0)


def of(op: str, shape: tuple[int, ...], axis: int) -> fqfuse.Plan:
    net = Net()
    if op == "Softmax":
        net.op(op, "x", name="it", axis=axis, out="y")
    else:
        net.op(op, "x", net.constant([axis]), name="it", keepdims=0, out="y")
    return fqfuse.compile(net.proto(inputs={"x": shape}))


@pytest.mark.parametrize("op", ["Softmax", "ReduceSum"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2, 4, 16, 64), 2),
        ((2, 4, 16, 64), 3),
        ((2, 4, 16, 64), -1),
        ((2, 4, 16, 1), 2),
        ((2, 4, 16, 64, 3), 3),
        ((2, 4, 16), 2),
    ],
)
def test_what_runs_on_numpy_is_counted_so(op: str, shape: tuple[int, ...], axis: int) -> None:
    plan = of(op, shape, axis)
    (placed,) = (
        each for each in fqfuse.InferenceSession(plan).placement() if "it" in each.step.origin
    )
    assert along_the_middle(plan, placed.step) == (placed.runtime == "numpy")


def test_a_sum_along_the_middle_is_an_operation_in_f32() -> None:
    """At the model's end, too: it takes time that no primitive would."""
    middle, last = (of("ReduceSum", (2, 4, 64, 64), axis) for axis in (2, 3))
    assert costs_of(middle, MACHINE).estimate.ms > 2 * costs_of(last, MACHINE).estimate.ms
    net = Net()
    hidden = net.matmul(net.quantized("x"), "fc")
    net.op("ReduceSum", hidden, net.constant([1]), name="sum", keepdims=0, out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [4, 16, 16]}))
    kinds = {each.kind.code: each for each in verdict_of(plan, MACHINE).findings}
    assert "sum" in kinds["float-operation"].layers
    assert "model-output" not in kinds
