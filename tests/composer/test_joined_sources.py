"""Products of what was joined from codes of several scales: int8 products, each with one scale,
that add up in their post-ops.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.plans import kinds
from laws.registry import feeds_for
from laws.runtimes import RUNTIMES

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

QUANTIZERS = ((2**-5, 0, DType.U8), (2**-6 * 1.1, 7, DType.U8), (2**-5, 0, DType.S8))


def part(n: Net, number: int, *shape: int) -> Value:
    scale, zero, dtype = QUANTIZERS[number]
    return n.dq(n.input(shape, f"x{number}", dtype=dtype, quant=Quantization.of(scale, zero)))


def convolution(n: Net, count: int, batch: int, store: bool) -> Value:
    joined = n.op("Concat", *(part(n, i, batch, 16, 5, 5) for i in range(count)), axis=1)
    y = n.op("Relu", n.conv(joined, 16, 3, scale=2**-9, bias=np.linspace(-1, 1, 16)))
    return n.q(y, 2**-5) if store else y


def deconvolution(n: Net, count: int, batch: int, store: bool) -> Value:
    joined = n.op("Concat", *(part(n, i, batch, 16, 5, 5) for i in range(count)), axis=1)
    y = n.op(
        "ConvTranspose",
        joined,
        n.weights((16 * count, 16, 2, 2), 2**-9),
        kernel_shape=(2, 2),
        strides=(2, 2),
    )
    return n.q(y, 2**-5, 128) if store else y


def matmul(n: Net, count: int, batch: int, store: bool) -> Value:
    joined = n.op("Concat", *(part(n, i, batch, 7, 16) for i in range(count)), axis=2)
    y = n.op(
        "Add", n.op("MatMul", joined, n.weights((16 * count, 24), 2**-9, 1)), np.linspace(-1, 1, 24)
    )
    return n.q(y, 2**-5, 128) if store else y


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("build", [convolution, deconvolution, matmul])
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
def test_products_of_one_scale_add_up(target: str, build, count: int, store: bool) -> None:
    n = Net()
    graph = n.done(build(n, count, 2, store))
    plan = plan_from_graph(optimize(graph.copy()), target)
    assert verify_plan(plan) == []
    assert len(plan.steps) == count
    assert all(plan.type(step.arg("src")).dtype.is_integer for step in plan.steps)
    assert sum("sum" in kinds(step) or "add" in kinds(step) for step in plan.steps) == count - 1
    feeds = feeds_for(graph)
    box = run_boxes(graph, feeds, GRANTED)[graph.outputs[0]]
    found = [InferenceSession(plan, runtime, 1).run(None, feeds)[0] for runtime in RUNTIMES]
    assert all(np.array_equal(found[0], other) for other in found)
    assert box.outside(found[0]) <= (0.0 if store else 1e-5)


def test_two_products_read_the_same_parts() -> None:
    """As in a fire module: nothing is joined or decoded for any of the four."""
    n = Net()
    joined = n.op("Concat", *(part(n, i, 2, 16, 5, 5) for i in range(2)), axis=1)
    plan = plan_from_graph(
        optimize(n.done(n.q(n.conv(joined, 16, 1), 0.5), n.q(n.conv(joined, 16, 3), 0.5)))
    )
    assert [step.primitive for step in plan.steps] == ["convolution"] * 4


def _joined_and_stored(zeros: tuple[int, int], zero: int, dtype: DType) -> Graph:
    n = Net()
    x = n.qdq(n.input((2, 16, 5, 5)), 2**-5, 128)
    parts = [
        n.qdq(n.conv(x, 16, 1, scale=2**-9), 2**-6 * (1 + i / 10), z, dtype)
        for i, z in enumerate(zeros)
    ]
    joined = n.q(n.op("Concat", *parts, axis=1), 2**-6 * 1.05, zero, dtype)
    return n.done(joined, *(n.op("Softmax", y, axis=1) for y in parts))


@pytest.mark.parametrize(
    ("zeros", "zero", "dtype", "last"),
    [
        ((0, 0), 0, DType.U8, ["concat"]),
        ((0, 0), 0, DType.S8, ["concat"]),
        ((0, 0), 9, DType.U8, ["concat", "binary"]),  # concat has no zero points
        ((3, 0), 0, DType.U8, ["concat", "binary"]),
    ],
)
def test_joined_codes_are_stored_with_another_scale(
    zeros: tuple[int, int], zero: int, dtype: DType, last: list[str]
) -> None:
    """By the scales of the sources; never by a reorder with scales along an axis, for which oneDNN
    3.2 has a reference only.
    """
    graph = _joined_and_stored(zeros, zero, dtype)
    plan = plan_from_graph(optimize(graph.copy()))
    assert verify_plan(plan) == []
    assert [step.primitive for step in plan.steps if step.primitive in ("concat", "binary")] == last
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)
    found = [InferenceSession(plan, runtime, 1).run(None, feeds)[0] for runtime in RUNTIMES]
    assert all(np.array_equal(found[0], other) for other in found)
    assert boxes[graph.outputs[0]].outside(found[0]) == 0


def test_joined_codes_with_several_scales_are_not_reordered_into_codes() -> None:
    n = Net()
    parts = [
        n.dq(n.input((2, 16, 5, 5), dtype=DType.U8, quant=Quantization.of(2**-6 * (1 + i / 10), 4)))
        for i in range(2)
    ]
    graph = n.done(n.q(n.op("Concat", *parts, axis=1), 2**-5, 4))
    plan = plan_from_graph(optimize(graph.copy()))
    assert [step.primitive for step in plan.steps] == ["concat", "binary"]


def test_what_the_library_has_a_kernel_for_stays_a_reorder() -> None:
    n = Net()
    codes = n.dq(n.input((2, 16, 5, 5), dtype=DType.U8, quant=Quantization.of(2**-6, 4)))
    assert [
        step.primitive for step in plan_from_graph(optimize(n.done(n.q(codes, 2**-5, 3)))).steps
    ] == ["reorder"]
