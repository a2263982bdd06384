"""A depthwise convolution behind a 1x1 convolution: post-op on the target where that saves a pass,
two steps with a decision elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from laws.build import Net, Value
from laws.plans import compiled, steps
from laws.rule_cases import Fires, Refuses, check_fires, check_refuses, refusing

from fqfuse.composer.compose import plan_from_graph
from fqfuse.composer.mapping.homes import depthwise
from fqfuse.composer.steps.depthwise import DEPTHWISE, Pair
from fqfuse.ir.decision import Decision, Outcome
from fqfuse.ir.types import DType, TensorType
from fqfuse.passes import optimize
from fqfuse.plan.attributes import DepthwiseConv, PrimitiveAttr, Scale, Sum, ZeroPoint
from fqfuse.plan.file import read_plan, save_plan
from fqfuse.plan.targets import TARGETS
from fqfuse.plan.text import print_plan
from fqfuse.plan.types import Plan, Step
from fqfuse.plan.verify import verify_plan
from fqfuse.runtime.session import InferenceSession

RULE = "depthwise convolution as post-op"


def pair(
    *,
    target: str = "unified",
    readers: int = 1,
    first: PrimitiveAttr | None = None,
    zero: float = 0,
    **params: object,
) -> Pair:
    """A 1x1 convolution to 8 channels, and a 3x3 depthwise one behind it; `zero` point of its
    source, and `params`.
    """
    given = {"strides": (2, 2), "pads": (1, 1, 1, 1), "group": 8, **params}
    between = PrimitiveAttr({"dst": Scale((0.5,))}) if first is None else first
    attr = PrimitiveAttr(
        {"src": Scale((0.5,)), "weights": Scale((0.25,)), "dst": Scale((2.0,))},
        {"src": ZeroPoint((zero,))} if zero else {},
    )
    wide = Step(
        "wide",
        "convolution",
        "Conv",
        (("src", "x"), ("weights", "v")),
        ("q",),
        {"group": 1},
        between,
    )
    deep = Step(
        "deep", "convolution", "Conv", (("src", "q"), ("weights", "w")), ("y",), given, attr
    )
    types = TensorType(DType.U8, (1, 8, 8, 8)), TensorType(DType.S8, (1, 8, 4, 4))
    return Pair(TARGETS[target], wide, deep, ((8, 4, 1, 1), (8, 1, 3, 3)), *types, readers)


POST_OP = DepthwiseConv(
    "w", "", 3, 2, 1, DType.S8, DType.S8, Scale((0.25,)), Scale((2.0,)), DType.U8
)
FIRES: Fires = {DEPTHWISE.name: ((pair(),), POST_OP)}
REFUSES: Refuses = {
    DEPTHWISE.name: [
        ((pair(readers=2),), "needed elsewhere"),
        ((pair(dilations=(2, 2)),), "one size, stride and padding"),
        ((pair(first=PrimitiveAttr(post_ops=(Sum("skip"),))),), "a sum reads a buffer"),
        ((pair(first=PrimitiveAttr({}, {"dst": ZeroPoint((3,))})),), "has a zero point"),
        ((pair(zero=0.5),), "has a zero point"),
        ((pair(first=PrimitiveAttr()),), "is not the source scale of the second"),
    ]
}


def test_rule_fires() -> None:
    """That both compute the same bytes is held below, on whole models."""
    check_fires(DEPTHWISE, *FIRES[DEPTHWISE.name])


@pytest.mark.parametrize(("_", "arguments", "reason"), refusing(REFUSES))
def test_rule_refuses_with_its_reason(_: str, arguments: tuple[object, ...], reason: str) -> None:
    check_refuses(DEPTHWISE, arguments, reason)


def test_rule_says_nothing_elsewhere() -> None:
    found = pair()
    assert DEPTHWISE.apply(replace(found, weights=((8, 4, 3, 3), (8, 1, 3, 3)))) is None
    assert DEPTHWISE.apply(replace(found, weights=((8, 4, 1, 1), (8, 8, 3, 3)))) is None


def test_the_cheaper_home_is_taken_and_both_are_named() -> None:
    """Codes of 16 channels in 9x7 elements between, and as many behind: written and read once each,
    and a call, for two steps.
    """
    costs = {"post-op": 0.0, "own step": 2.1}
    for target, first in (("unified", "post-op"), ("onednn-v3", "own step")):
        n = Net()
        (decision,) = decisions(compiled(n, bottleneck(n)[1], target=target))
        assert decision.alternatives[0].home == first
        assert {home.home: pytest.approx(home.cost) for home in decision.alternatives} == costs
        costs["post-op"] = (
            2.2  # the library writes and reads what is between, too, and calls once more
        )
    n = Net()
    (decision,) = decisions(compiled(n, bottleneck(n, zero=7)[1], target="unified"))
    assert [home.home for home in decision.alternatives] == ["own step", "post-op"]
    assert "zero point" in decision.alternatives[1].why_not


def test_a_larger_result_between_costs_more() -> None:
    dst = TensorType(DType.U8, (1, 16, 5, 4))
    costs = [
        depthwise(TensorType(DType.U8, (1, 16, *size)), dst, TARGETS["unified"], "")[1].cost
        for size in ((5, 4), (9, 7))
    ]
    assert costs[0] < costs[1]


def decisions(plan: Plan) -> list[Decision]:
    return [decision for decision in plan.decision_records if decision.rule == RULE]


def bottleneck(
    n: Net,
    *,
    stride: int = 1,
    between: DType = DType.U8,
    zero: int = 0,
    end: DType = DType.U8,
    **depthwise: object,
) -> tuple[Value, Value]:
    """A 1x1 convolution with bias, relu, codes, a 3x3 depthwise convolution with bias and relu6,
    codes; the values between and behind.
    """
    x = n.qdq(n.input((1, 8, 9, 7)), 2**-6, 100)
    scale = 2.0**-8 * (1 + np.arange(16) / 16)
    wide = n.conv(x, 16, 1, scale=scale, bias=n.rng.normal(size=16))
    middle = n.qdq(n.op("Relu", wide), 0.013, zero, between)
    given = {"strides": (stride, stride), **depthwise}
    deep = n.conv(middle, 16, 3, scale=scale, group=16, bias=n.rng.normal(size=16), **given)
    six = n.op("Clip", deep, 0.0, 6.0)
    return middle, six if end is DType.F32 else n.q(six, 0.023, 3 if end is DType.U8 else -3, end)


@pytest.mark.parametrize("end", [DType.U8, DType.S8, DType.F32], ids=lambda d: d.value)
@pytest.mark.parametrize("between", [DType.U8, DType.S8], ids=lambda d: d.value)
@pytest.mark.parametrize("stride", [1, 2])
def test_one_step_gives_the_bytes_of_two(stride: int, between: DType, end: DType) -> None:
    n = Net()
    graph = n.done(bottleneck(n, stride=stride, between=between, end=end)[1])
    optimized = optimize(graph)
    fused, apart, old = (
        plan_from_graph(optimized.copy(), target)
        for target in ("unified", "onednn-v3", "onednn-v2")
    )
    assert verify_plan(fused) == []
    (step,) = steps(fused, "convolution")
    (op,) = [op for op in step.attr.post_ops if isinstance(op, DepthwiseConv)]
    assert (op.kernel, op.stride, op.padding, op.src_dtype, op.dst_dtype) == (
        3,
        stride,
        1,
        between,
        end,
    )
    assert len(steps(apart, "convolution")) == len(steps(old, "convolution")) == 2
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 8, 9, 7)).astype(np.float32)}
    found, wanted = (
        InferenceSession(plan, "numpy", 1).run(None, feeds)[0] for plan in (fused, apart)
    )
    assert len(np.unique(wanted)) > 20
    np.testing.assert_array_equal(found, wanted)
    assert {fate.step for fate in fused.fate_records} <= {None, *range(len(fused.steps))}
    assert {(f.quantizer, f.half, f.fate) for f in fused.fate_records} == {
        (f.quantizer, f.half, f.fate) for f in apart.fate_records
    }


def test_the_decision_names_what_was_measured() -> None:
    for target, reason in (
        ("onednn-v3", "oneDNN 3.2 runs the post-op as the two primitives in turn"),
        ("onednn-v2", "oneDNN 2.6 runs"),
    ):
        n = Net()
        (decision,) = decisions(compiled(n, bottleneck(n)[1], target=target))
        assert decision.outcome is Outcome.REFUSED
        assert decision.reason.startswith(reason)
    n = Net()
    (decision,) = decisions(compiled(n, bottleneck(n)[1], target="unified"))
    assert decision.outcome is Outcome.FIRED


def _read_twice(n: Net) -> tuple[Value, ...]:
    middle, out = bottleneck(n)
    return out, n.qdq(n.conv(middle, 4, 1), 2**-4, 128)


def _returned(n: Net) -> tuple[Value, ...]:
    middle, out = bottleneck(n)
    return out, n.graph.producer(middle).inputs[0]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_read_twice, "the result of the 1x1 convolution is needed elsewhere"),
        (_returned, "the result of the 1x1 convolution is needed elsewhere"),
        (lambda n: bottleneck(n, zero=7)[1:], "what lies between has a zero point"),
        (
            lambda n: bottleneck(n, strides=(1, 2))[1:],
            "the post-op has one size, stride and padding for both axes",
        ),
        (
            lambda n: bottleneck(n, pads=(0, 0, 1, 1))[1:],
            "the post-op has one size, stride and padding for both axes",
        ),
        (
            lambda n: bottleneck(n, dilations=(2, 2), pads=(2, 2, 2, 2))[1:],
            "the post-op has one size, stride and padding for both axes",
        ),
    ],
    ids=["read_twice", "returned", "zero_point", "strides", "pads", "dilations"],
)
def test_refusals(build, reason: str) -> None:
    n = Net()
    plan = compiled(n, *build(n), target="unified")
    (decision,) = decisions(plan)
    assert decision.outcome is Outcome.REFUSED
    assert reason in decision.reason
    assert not any(
        isinstance(op, DepthwiseConv) for step in plan.steps for op in step.attr.post_ops
    )


def test_scales_for_each_channel_between_stay_with_the_weights() -> None:
    n = Net()
    x = n.qdq(n.input((1, 8, 9, 7)), 2**-6, 100)
    middle = n.qdq(
        n.op("Relu", n.conv(x, 16, 1, scale=2**-8)),
        0.011 * (1 + np.arange(16) / 16),
        np.zeros(16),
        axis=1,
    )
    optimized = optimize(n.done(n.q(n.conv(middle, 16, 3, group=16, scale=2**-8), 2**-5, 128)))
    fused, apart = (
        plan_from_graph(optimized.copy(), target) for target in ("unified", "onednn-v3")
    )
    assert (len(steps(fused, "convolution")), len(steps(apart, "convolution"))) == (1, 2)
    assert "dst" not in steps(fused, "convolution")[0].attr.scales
    feeds = {"x": np.random.default_rng(1).normal(size=(1, 8, 9, 7)).astype(np.float32)}
    found, wanted = (
        InferenceSession(plan, "numpy", 1).run(None, feeds)[0] for plan in (fused, apart)
    )
    np.testing.assert_array_equal(found, wanted)


def test_a_factor_that_joined_the_scale_between_keeps_the_steps_apart() -> None:
    n = Net()
    x = n.qdq(n.input((1, 8, 9, 7)), 2**-6, 100)
    middle = n.qdq(n.op("Mul", n.op("Sigmoid", n.conv(x, 16, 1, scale=2**-8)), 4.0), 2**-6)
    (decision,) = decisions(
        compiled(n, n.q(n.conv(middle, 16, 3, group=16, scale=2**-8), 2**-5, 128), target="unified")
    )
    assert decision.outcome is Outcome.REFUSED
    assert "holds a factor of its chain" in decision.reason


def test_file_and_text_keep_the_type_between(tmp_path) -> None:
    n = Net()
    plan = compiled(n, bottleneck(n, between=DType.S8)[1], target="unified")
    save_plan(plan, tmp_path / "plan.onnx")
    assert print_plan(read_plan(tmp_path / "plan.onnx")) == print_plan(plan)
    assert "src_dtype=s8" in print_plan(plan)
