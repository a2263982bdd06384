"""Each binary operation of the post-op set behind an anchor, in both orders, with each kind of
operand, is one step with exact numbers.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.plans import compiled, kinds, refusals
from laws.registry import feeds_for
from support.finding_networks import Net as SmallNet

import fqfuse
from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.interpret import run_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.runtime.session import InferenceSession

COMPARISONS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq"}

POST_OPS = {
    # (operation, the chain is its second operand) -> the post-ops with f32 values, with codes of
    # zero point 0
    ("Add", False): (["add"], ["linear", "add", "linear"]),
    ("Sub", False): (["sub"], ["linear", "add", "linear"]),
    ("Sub", True): (["add"], ["linear", "add", "linear"]),
    ("Mul", False): (["mul"], ["linear", "mul"]),
    ("Div", False): (["div"], ["linear", "div"]),
    ("Div", True): (["pow", "mul"], ["pow", "mul"]),
    ("Max", False): (["max"], ["linear", "max", "linear"]),
    ("Min", True): (["min"], ["linear", "min", "linear"]),
    **{
        (op, False): ([name], ["linear", name])
        for op, name in zip(COMPARISONS, MIRRORED, strict=True)
    },
    **{
        (op, True): ([name], ["linear", name])
        for op, name in zip(COMPARISONS, MIRRORED.values(), strict=True)
    },
}


def anchored(n: Net, channels: int = 16) -> str:
    """A chain whose values are positive, so that it can be divided by, and multiples of 1/4, so
    that comparisons meet equal values.
    """
    x = n.dq(n.input(("N", channels, 2, 2), dtype=DType.U8, quant=Quantization.of(0.25)))
    weights = n.const(np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1))
    y = n.op("Conv", x, n.fq(weights, -127.0, 127.0, levels=255), kernel_shape=(1, 1))
    return n.op("Add", n.op("Abs", y), 0.25)


def operand(n: Net, kind: str) -> str | np.ndarray:
    if kind == "vector":
        return np.resize([0.5, 1.0, 16.25, 32.0], (1, 16, 1, 1))
    if kind == "values":  # a skip that nothing is written over: it is fed
        return n.input(("N", 16, 2, 2), "t")
    dtype, zero = (DType.S8, 0) if kind == "codes" else (DType.U8, 128)
    return n.dq(n.input(("N", 16, 2, 2), "t", dtype=dtype, quant=Quantization.of(0.5, zero)))


def not_zero(n: Net, name: str, array: np.ndarray) -> np.ndarray:
    """Multiples of 1/4, none of which stands for 0 where it is divided by."""
    if array.dtype.kind == "f":
        rounded = np.rint(array * 8) / 4
        return np.where(rounded == 0, 0.25, rounded).astype(np.float32)
    if name == "x":
        return array
    quant = n.graph.type(name).quant
    assert quant is not None
    return np.where(array == quant.zero_point[0], array + 1, array).astype(array.dtype)


@pytest.mark.parametrize("kind", ["vector", "values", "codes", "codes with a zero point"])
@pytest.mark.parametrize(("op", "turned"), POST_OPS)
def test_a_binary_operation_is_a_post_op(op: str, turned: bool, kind: str) -> None:
    n = Net()
    y, other = anchored(n), operand(n, kind)
    y = n.op(op, other, y) if turned else n.op(op, y, other)
    if op in COMPARISONS:
        y = n.op("Cast", y, to=DType.F32)
    plan = compiled(n, y)
    decoded_apart = kind == "codes with a zero point" and op in ("Mul", "Div")
    assert [step.primitive for step in plan.steps] == (["reorder"] if decoded_apart else []) + [
        "convolution"
    ]
    if kind in ("values", "codes"):
        expected = POST_OPS[op, turned][kind == "codes"]
        assert [name for name in kinds(plan.steps[0])[1:] if name != "linear"] == [
            name for name in expected if name != "linear"
        ]
    feeds = {name: not_zero(n, name, array) for name, array in feeds_for(n.graph, batch=64).items()}
    (found,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    if op in COMPARISONS:  # everything is a multiple of 1/4, so that nothing rounds
        assert np.array_equal(found, run_graph(n.graph, feeds)[y])
        assert 0 < found.mean() < 1
    else:
        assert run_boxes(n.graph, feeds, GRANTED)[y].outside(found) <= 1e-6 * np.abs(found).max()


def test_truth_values_that_are_read_as_such_end_the_chain() -> None:
    n = Net()
    y = anchored(n)
    plan = compiled(n, n.op("Where", n.op("Greater", y, 1.0), n.input(("N", 16, 2, 2), "t"), 0.0))
    assert [step.primitive for step in plan.steps] == ["convolution", "onnx.Greater", "onnx.Where"]


def test_a_negative_scale_turns_comparisons_around() -> None:
    """No quantizer writes one, but a model may: max(x, s*(q - z)) with s < 0 is a minimum on the
    codes.
    """
    n = Net()
    y = anchored(n)
    t = n.dq(n.input(("N", 16, 2, 2), "t", dtype=DType.S8, quant=Quantization.of(-0.5)))
    plan = compiled(n, n.op("Max", y, t))
    assert "min" in kinds(plan.steps[0])
    feeds = feeds_for(n.graph)
    (found,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    assert np.array_equal(
        found,
        np.maximum(feeds["x"] * np.float32(0.25) + np.float32(0.25), feeds["t"] * np.float32(-0.5)),
    )


def test_nothing_is_compared_with_nan() -> None:
    n = Net()
    y = n.op("Cast", n.op("Less", anchored(n), np.asarray(np.nan)), to=DType.F32)
    assert refusals(compiled(n, y), "no basic operation for Less")


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("op", COMPARISONS)
def test_channels_that_do_not_fill_a_vector_are_compared_with_zero(op: str, target: str) -> None:
    """oneDNN 3.2 generates no code for x > t there, where t varies along the channels, but for x -
    t > 0.
    """
    n = Net()
    y = anchored(n, 3)
    per_channel = n.op("Cast", n.op(op, y, n.input((1, 3, 1, 1), "t")), to=DType.F32)
    graph = n.done(per_channel)
    plan = plan_from_graph(optimize(graph.copy()), target)
    algorithm = POST_OPS[op, False][0][0]
    assert len(plan.steps) == 1
    assert kinds(plan.steps[0])[-2:] == (
        ["linear", algorithm] if target == "unified" else ["sub", algorithm]
    )
    feeds = {name: not_zero(n, name, array) for name, array in feeds_for(graph, batch=64).items()}
    (found,) = InferenceSession(plan, "numpy", 1).run(None, feeds)
    assert np.array_equal(found, run_graph(graph, feeds)[per_channel])
    assert 0 < found.mean() < 1


def test_one_number_is_compared_with_as_it_is() -> None:
    n = Net()
    plan = compiled(n, n.op("Cast", n.op("Greater", anchored(n, 3), 1.0), to=DType.F32))
    assert kinds(plan.steps[0])[-1] == "gt"
    assert "sub" not in kinds(plan.steps[0])


@pytest.mark.parametrize("step", [4e6, 0.1])
def test_an_operand_whose_zero_is_far_says_why_it_is_decoded(step: float) -> None:
    """A quantized mask beside attention scores."""
    net = SmallNet()
    scores = net.matmul(net.quantized("x"), "fc")
    net.op("Add", scores, net.quantized("mask", step, np.uint8(255)), name="add", out="y")
    plan = fqfuse.compile(net.proto(inputs={"x": [4, 16], "mask": [4, 16]}))
    told = [item for item in plan.decision_records if item.rule == "operand in codes"]
    reasons = {item.reason for item in plan.fate_records if item.quantizer == "mask_QuantizeLinear"}
    far = any("its zero point lies so far from 0" in reason for reason in reasons)
    assert far == (step > 1)
    assert [item.subject for item in told] == (["add"] if far else [])
