"""Comparisons, maxima and minima of two quantized tensors on all pairs of codes: the truth values
of the unfused f32 graph.

Exactly, where a step reads both. Where it computes one itself, what it compares is known to no more
than f32's rounding: one primitive, and two values nearer to each other than that, but not two
zeros, may be told either way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from laws.build import Net, Value
from laws.runtimes import RUNTIMES

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.graph import Graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession

COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
SHAPE = (1, 16, 64, 64)  # every pair of codes


QUANTIZERS = {
    "same": ((0.1, 3), (0.1, 3)),
    "zero points differ": ((0.1, 3), (0.1, 7)),
    "around the middle": ((0.0123, 127), (0.0123, 128)),
    # (q - 121)*r + 3 and q*r + (3 - 121*r) part in f32
    "scales differ": (
        (0.0123, 121),
        (0.0371, 3),
    ),
    "twice": ((0.1, 3), (0.05, 5)),
    # f32(0.1)*3 is not f32(0.3): some multiples are equal, others miss each other
    "a third": (
        (0.1, 3),
        (0.3, 5),
    ),
    "three times": ((0.3, 3), (0.1, 5)),
    "no zero point in front": ((0.03, 0), (0.01, 5)),
    "no zero point": ((0.07, 0), (0.021, 0)),
    "nearly equal": ((0.1, 9), (0.1 * (1 + 2**-22), 9)),
    "negative": ((-0.1, 3), (0.3, 5)),
    "negative operand": ((0.1, 3), (-0.3, 5)),
    "a fraction": ((0.1, 127), (0.2, 127.5)),
}

TOO_CLOSE = (
    "a third",
    "three times",
    "no zero point",
    "nearly equal",
    "negative",
    "negative operand",
)
"""Products of these scales and whole numbers come closer to each other than f32 tells when divided
by the other's scale.
"""


def codes(
    n: Net, name: str, quantizer: tuple[float, float], dtype: DType, shape: tuple[int, ...] = SHAPE
) -> Value:
    scale, zero = quantizer
    return n.dq(
        n.input(
            shape,
            name,
            dtype=dtype,
            quant=Quantization.of(scale, zero - (128 if dtype is DType.S8 else 0)),
        )
    )


def as_it_is(_: Net, a: Value) -> Value:
    return a


def behind_a_convolution(n: Net, a: Value) -> Value:
    shape = n.graph.type(a).shape
    assert shape is not None
    weights = n.const(np.eye(int(shape[1]), dtype=np.float32)[:, :, None, None])
    y = n.op("Conv", a, n.fq(weights, -127.0, 127.0, levels=255), kernel_shape=(1, 1))
    decode = n.graph.producer(a)
    assert decode is not None
    quant = decode.attr("quant", Quantization)
    return n.qdq(
        y, abs(quant.scale[0]), np.rint(quant.zero_point[0]), n.graph.type(decode.inputs[0]).dtype
    )


def rectified(n: Net, a: Value) -> Value:
    return n.op("Relu", behind_a_convolution(n, a))


def absolute(n: Net, a: Value) -> Value:
    return n.op("Abs", a)


def pairs(dtype: DType, *, rows: bool, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    number = np.arange(np.prod(shape)) % 65536
    found = number // 256 if rows else number % 256
    return (found - 128 if dtype is DType.S8 else found).astype(dtype.numpy).reshape(shape)


Build = Callable[[Net, Value, Value], Value]
Front = Callable[[Net, Value], Value]


def compared(
    front: Front,
    quantizers: str,
    dtypes: tuple[DType, DType],
    build: Build,
    shape: tuple[int, ...] = SHAPE,
) -> tuple[Graph, dict[str, np.ndarray]]:
    n = Net()
    a, b = (
        codes(n, name, q, dtype, shape)
        for name, q, dtype in zip("ab", QUANTIZERS[quantizers], dtypes, strict=True)
    )
    graph = n.done(build(n, front(n, a), b))
    return graph, {
        "a": pairs(dtypes[0], rows=True, shape=shape),
        "b": pairs(dtypes[1], rows=False, shape=shape),
    }


def near_ties(
    front: Front, quantizers: str, dtypes: tuple[DType, DType], shape: tuple[int, ...] = SHAPE
) -> np.ndarray:
    """Where the operands, not both 0, are nearer than f32 tells on the second's grid; nowhere when
    all pairs are told apart exactly.
    """
    if front not in (behind_a_convolution, rectified) or quantizers not in TOO_CLOSE:
        return np.zeros(shape, bool)
    (first, feeds), (second, _) = (
        compared(front, quantizers, dtypes, lambda _, *both, k=k: both[k], shape) for k in (0, 1)
    )
    a, b = (run_graph(graph, feeds)[graph.outputs[0]] for graph in (first, second))
    grid = abs(QUANTIZERS[quantizers][1][0]) * 2.0**-15  # two steps of f32 at 255
    near = (np.abs(a.astype(np.float64) - b) <= grid) & (a != 0)
    assert np.count_nonzero(near) <= near.size // 256  # one operand for each other at most
    return near


def agrees(
    graph: Graph,
    feeds: dict[str, np.ndarray],
    target: str = "onednn-v3",
    but: np.ndarray | None = None,
) -> Plan:
    plan = plan_from_graph(optimize(graph.copy()), target)
    expected = run_graph(graph, feeds)[graph.outputs[0]]
    for runtime in RUNTIMES if target != "unified" else ["numpy"]:
        (found,) = InferenceSession(plan, runtime, 1).run(None, feeds)
        wrong = found != expected if but is None else (found != expected) & ~but
        assert np.count_nonzero(wrong) == 0, (runtime, print_plan(plan, data="digest"))
    return plan


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution, rectified, absolute])
@pytest.mark.parametrize("op", COMPARISONS)
def test_truth_values(op: str, front: Front, quantizers: str) -> None:
    for dtypes in ((DType.U8, DType.U8), (DType.S8, DType.U8), (DType.U8, DType.S8)):
        graph, feeds = compared(
            front, quantizers, dtypes, lambda n, a, b: n.op("Cast", n.op(op, a, b), to=DType.F32)
        )
        agrees(graph, feeds, but=near_ties(front, quantizers, dtypes))


@pytest.mark.parametrize("target", ["onednn-v2", "unified"])
@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
def test_truth_values_on_other_targets(front: Front, quantizers: str, target: str) -> None:
    graph, feeds = compared(
        front,
        quantizers,
        (DType.U8, DType.S8),
        lambda n, a, b: n.op("Cast", n.op("Equal", b, a), to=DType.F32),
    )
    agrees(graph, feeds, target, near_ties(front, quantizers, (DType.U8, DType.S8)))


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_what_is_compared_behind_a_maximum(op: str, front: Front, quantizers: str) -> None:
    """The maximum itself must be exact to the bit then."""
    at = np.float32(QUANTIZERS[quantizers][1][0]) * np.float32(7)  # a value of the second operand
    build = lambda n, a, b: n.op("Cast", n.op("GreaterOrEqual", n.op(op, a, b), at), to=DType.F32)  # noqa: E731
    graph, feeds = compared(front, quantizers, (DType.U8, DType.U8), build)
    agrees(graph, feeds)


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
def test_a_value_on_the_grid_is_compared_with_as_it_is(front: Front, quantizers: str) -> None:
    at = np.float32(QUANTIZERS[quantizers][0][0]) * np.float32(7)
    graph, feeds = compared(
        front,
        quantizers,
        (DType.U8, DType.U8),
        lambda n, a, _: n.op("Cast", n.op("Equal", a, at), to=DType.F32),
    )
    agrees(graph, feeds)


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
@pytest.mark.parametrize("op", ["Add", "Sub"])
def test_a_sum_of_zeros_is_zero_where_that_shows(op: str, front: Front, quantizers: str) -> None:
    graph, feeds = compared(
        front,
        quantizers,
        (DType.U8, DType.U8),
        lambda n, a, b: n.op("Cast", n.op("Equal", n.op(op, a, b), 0.0), to=DType.F32),
    )
    plan = plan_from_graph(optimize(graph.copy()))
    zeros = np.ones(SHAPE, bool)
    for name, (_, zero) in zip("ab", QUANTIZERS[quantizers], strict=True):
        zeros &= feeds[name] == zero
    for runtime in RUNTIMES:
        (found,) = InferenceSession(plan, runtime, 1).run(None, feeds)
        assert found[zeros].all(), (runtime, print_plan(plan, data="digest"))


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
def test_a_comparison_is_part_of_a_step(front: Front, quantizers: str) -> None:
    """Codes that are read are decoded apart only where comparing them tells otherwise: some pairs
    are closer than f32 tells on the grid.
    """
    graph, _ = compared(
        front,
        quantizers,
        (DType.U8, DType.U8),
        lambda n, a, b: n.op("Cast", n.op("Equal", a, b), to=DType.F32),
    )
    close = quantizers in ("a third", "three times", "nearly equal", "negative", "negative operand")
    steps = ["convolution"] if front is behind_a_convolution else [*["reorder"][:close], "binary"]
    assert [step.primitive for step in plan_from_graph(optimize(graph.copy())).steps] == steps


@pytest.mark.parametrize("quantizers", QUANTIZERS)
@pytest.mark.parametrize("front", [as_it_is, behind_a_convolution])
@pytest.mark.parametrize("op", ["Greater", "Equal"])
def test_channels_that_fill_no_vector(op: str, front: Front, quantizers: str) -> None:
    """oneDNN compares with a single number there: the difference with 0."""
    build = lambda n, a, b: n.op("Cast", n.op(op, a, b), to=DType.F32)  # noqa: E731
    graph, feeds = compared(front, quantizers, (DType.U8, DType.U8), build, (1, 3, 256, 256))
    agrees(graph, feeds, but=near_ties(front, quantizers, (DType.U8, DType.U8), (1, 3, 256, 256)))


@pytest.mark.parametrize("op", ["Greater", "Equal"])
def test_a_smaller_operand(op: str) -> None:
    n = Net()
    a, b = (
        codes(n, name, QUANTIZERS["a third"][0], DType.U8, shape)
        for name, shape in (("a", (1, 256, 4, 4)), ("b", (1, 256, 1, 1)))
    )
    graph = n.done(n.op("Cast", n.op(op, a, b), to=DType.F32))
    number = np.arange(256 * 16).astype(np.uint8)
    agrees(graph, {"a": number.reshape(1, 256, 4, 4), "b": number[:256].reshape(1, 256, 1, 1)})


@pytest.mark.parametrize("quantizers", QUANTIZERS)
def test_the_root_of_a_sum_of_zeros_is_no_nan(quantizers: str) -> None:
    graph, feeds = compared(
        as_it_is, quantizers, (DType.U8, DType.U8), lambda n, a, b: n.op("Sqrt", n.op("Add", a, b))
    )
    zeros = np.ones(SHAPE, bool)
    for name, (_, zero) in zip("ab", QUANTIZERS[quantizers], strict=True):
        zeros &= feeds[name] == zero
    for runtime in RUNTIMES:
        (found,) = InferenceSession(plan_from_graph(optimize(graph.copy())), runtime, 1).run(
            None, feeds
        )
        assert (found[zeros] == 0).all()


def test_truth_values_for_others_stay_a_comparison() -> None:
    n = Net()
    a, b = (codes(n, name, QUANTIZERS["same"][0], DType.U8) for name in "ab")
    graph = n.done(n.op("Where", n.op("Less", a, b), n.input(SHAPE, "t"), 0.0))
    feeds = {
        "a": pairs(DType.U8, rows=True),
        "b": pairs(DType.U8, rows=False),
        "t": np.ones(SHAPE, np.float32),
    }
    assert "onnx.Less" in [step.primitive for step in agrees(graph, feeds).steps]
