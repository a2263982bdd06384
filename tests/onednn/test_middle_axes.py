"""Softmax and sums along an axis between others: what runs them, that it computes the same, and that the
verdict counts them so. The library has its reference implementation only: reorders bring the axis of a
softmax innermost, a sum is a product with ones, and what is left is NumPy's.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net as Graph
from laws.plans import compiled
from support.finding_networks import Net

import fqfuse
from fqfuse.ir.types import DType
from fqfuse.report.verdict.estimate import costs_of
from fqfuse.report.verdict.findings import verdict_of
from fqfuse.report.verdict.machine import machine_from
from fqfuse.report.verdict.work import VIEWS, along_the_middle

MACHINE = machine_from("flags\t\t: avx512_vnni\n", cores=1, clock=3.0)


def of(op: str, shape: tuple[int, ...], axis: int) -> fqfuse.Plan:
    net = Net()
    if op == "Softmax":
        net.op(op, "x", name="it", axis=axis, out="y")
    else:
        net.op(op, "x", net.constant([axis]), name="it", keepdims=0, out="y")
    return fqfuse.compile(net.proto(inputs={"x": shape}))


@pytest.mark.parametrize("op", ["Softmax", "ReduceSum", "ReduceMean"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2, 4, 16, 64), 2),
        ((2, 4, 16, 64), 3),
        ((2, 4, 16, 64), -1),
        ((2, 4, 16, 1), 2),
        ((2, 4, 16, 64, 3), 3),
        ((2, 4, 16), 2),
        ((2, 4, 7, 64), 2),
        ((2, 4, 8, 64), 2),
        ((8, 64), 0),
        ((7, 64), 0),
    ],
)
def test_what_runs_on_numpy_is_counted_so(op: str, shape: tuple[int, ...], axis: int) -> None:
    plan = of(op, shape, axis)
    placed = [p for p in fqfuse.InferenceSession(plan).placement() if p.step.primitive not in VIEWS]
    assert [along_the_middle(plan, p.step) for p in placed] == [
        p.runtime == "numpy" for p in placed
    ]


def ms(op: str, axis: int, shape: tuple[int, ...] = (2, 4, 64, 64)) -> float:
    return costs_of(of(op, shape, axis), MACHINE).estimate.ms


def test_the_way_that_runs_is_what_counts() -> None:
    assert ms("ReduceSum", 2) == ms("ReduceSum", 3), "a product"
    assert ms("ReduceMean", 2) > 2 * ms("ReduceMean", 3), "on NumPy"
    assert ms("Softmax", 2) > 3 * ms("Softmax", 3), "between reorders"
    assert ms("Softmax", 2, (2, 9, 7, 64)) > ms("Softmax", 2, (2, 7, 9, 64)), "on NumPy"


@pytest.mark.of_avx512("which of them the library compiles is known for it")
@pytest.mark.parametrize("tail", ["", "number", "row", "codes", "row and codes"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 4, 16, 33), 2), ((3, 9, 5, 2, 2), 3), ((3, 2, 9, 5), 2), ((11, 6), 0)]
)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "ReduceSum"])
def test_both_runtimes_compute_the_same(
    op: str, shape: tuple[int, ...], axis: int, tail: str
) -> None:
    """With what stands behind them: an operand along the axis, and a quantizer."""
    n = Graph()
    x = n.input(shape)
    reduced = op == "ReduceSum"
    y = (
        n.op(op, x, n.graph.add_constant("axes", np.array([axis]), DType.S64), keepdims=1)
        if reduced
        else n.op(op, x, axis=axis)
    )
    if tail == "number":
        y = n.op("Mul", y, n.const(np.float32(1.5)))
    if "row" in tail:
        along = [shape[axis] if at == axis and not reduced else 1 for at in range(len(shape))]
        y = n.op(
            "Mul", y, n.const(np.linspace(-1, 2, along[axis]).astype(np.float32).reshape(along))
        )
    if "codes" in tail:
        y = n.q(y, 1 / 16, 128, DType.U8)
    plan = compiled(n, y)
    sessions = [fqfuse.InferenceSession(plan, runtime, 1) for runtime in ("numpy", "onednn")]
    feed = np.random.default_rng(0).normal(0, 2, shape).astype(np.float32)
    numpy, onednn = (session.run(None, {x: feed})[0] for session in sessions)
    # a code where a number lies on a tie; a sum of 16 numbers in another order; e^x within 2 units
    np.testing.assert_allclose(onednn, numpy, rtol=0, atol=1 if "codes" in tail else 8e-6)
    kinds = ("softmax", "reduction")
    step = next(each for each in sessions[1].placement() if each.step.primitive in kinds)
    expected = "numpy" if along_the_middle(plan, step.step) else "onednn"
    assert step.runtime == expected, step


@pytest.mark.parametrize("op", ["Softmax", "ReduceSum"])
def test_what_is_no_number_stays_in_its_row(op: str) -> None:
    """In a softmax the library leaves 0 beside NaN, where NumPy has NaN."""
    feed = np.zeros((2, 1, 9, 5), np.float32)
    feed[0, 0, 3, 1], feed[0, 0, 4, 2], feed[1, 0, 0, 0] = np.inf, np.nan, -np.inf
    feed[1, 0, :, 3] = -np.inf
    plan = of(op, feed.shape, 2)
    numpy, onednn = (
        fqfuse.InferenceSession(plan, runtime).run(None, {"x": feed})[0]
        for runtime in ("numpy", "onednn")
    )
    if op == "Softmax":
        assert np.isnan(onednn[0, 0, [3, 4], [1, 2]]).all()
        onednn[0, 0, :, 1:3] = numpy[0, 0, :, 1:3]
    np.testing.assert_allclose(onednn, numpy, rtol=0, atol=1e-6)


def test_a_maximum_along_the_middle_is_an_operation_in_f32() -> None:
    """At the model's end, too: it takes time that no primitive would."""
    net = Net()
    hidden = net.matmul(net.quantized("x"), "fc")
    net.op("ReduceMax", hidden, net.constant([2]), name="top", keepdims=0, out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [2, 4, 16, 16]}))
    kinds = {each.kind.code: each for each in verdict_of(plan, MACHINE).findings}
    assert "top" in kinds["float-operation"].layers
    assert "model-output" not in kinds
