"""The chooser: costs grow with the bytes moved, the cheaper legal home wins, and the plan says what
was weighed.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net
from laws.formulas import UNIFIED, V2, V3, composed, conv, store
from laws.plans import block, compiled, kinds, steps

from fqfuse.composer.formula.formula import Add, Clip, EltwiseOp, ScaleBy, Shift, vec
from fqfuse.composer.mapping.cost import (
    WRITE_ALLOCATE,
    Home,
    alternatives,
    eltwise_cost,
    operand_cost,
    own_step_cost,
    post_op_cost,
)
from fqfuse.composer.mapping.homes import chosen_first, saved
from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import Eltwise, Prelu
from fqfuse.plan.types import Plan


def test_more_bytes_cost_more() -> None:
    dst = TensorType(DType.U8, ("N", 8, 4, 4))
    costs = [
        operand_cost(TensorType(kind, shape), dst)
        for kind, shape in [
            (DType.U8, (1, 8, 1, 1)),
            (DType.U8, ("N", 8, 1, 1)),
            (DType.U8, dst.shape),
            (DType.F32, dst.shape),
        ]
    ]
    assert costs == [1 / 16, 1 / 16, 1.0, 4.0]
    assert (
        eltwise_cost("relu")
        < eltwise_cost("gelu_erf")
        < own_step_cost(DType.U8, dst)
        < own_step_cost(DType.F32, dst)
    )


def test_sum_is_cheaper_than_binary_and_that_than_a_step() -> None:
    for kind in (DType.U8, DType.F32):
        dst = TensorType(kind, (1, 8, 4, 4))
        read = operand_cost(dst, dst)
        assert read < read + WRITE_ALLOCATE < own_step_cost(kind, dst, read)


def test_the_cheapest_legal_home_wins_and_the_first_of_two_equal_ones() -> None:
    homes = [Home("a", 0.0, "illegal"), Home("b", 2.0), Home("c", 1.0), Home("d", 1.0)]
    best = chosen_first(homes)
    assert best[0] is homes[2]
    assert [weighed.home for weighed in alternatives(best)] == ["c", "d", "b", "a"]


def test_a_sum_and_what_it_was_weighed_against() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(
        n, n.op("MaxPool", n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), kernel_shape=(2, 2))
    )
    (decision,) = [decision for decision in plan.decision_records if decision.rule == "home of Add"]
    assert [weighed.home for weighed in decision.alternatives] == ["sum", "binary", "own step"]
    costs = [weighed.cost for weighed in decision.alternatives]
    assert costs == sorted(costs)


def test_a_sum_that_is_illegal_says_why() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(n, n.qdq(n.op("Add", y, skip), 2**-5, 128), skip)
    (decision,) = [decision for decision in plan.decision_records if decision.rule == "home of Add"]
    assert [weighed.home for weighed in decision.alternatives] == ["binary", "own step", "sum"]
    assert decision.alternatives[-1].why_not == "the skip is returned by the model"


def test_the_branch_that_is_broadcast_leaves_the_add_to_the_other() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    large = n.conv(x, 4, scale=2**-8, name="large")
    pooled = n.qdq(n.op("GlobalAveragePool", x), 2**-6, 128)
    small = n.conv(pooled, 4, 1, scale=2**-8, name="small")
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.op("Add", large, small)), 2**-5), 2))
    assert not steps(plan, "binary")
    (absorbing,) = [step for step in steps(plan, "convolution") if "add" in kinds(step)]
    assert "large" in absorbing.origin


# -- each choice, in each direction ----------------------------------------------------------------


def test_the_store_scale_is_folded_where_it_reaches_the_front_and_a_destination_scale_where_not() -> (
    None
):
    folded = composed(V3, conv(), EltwiseOp("relu"), store(0.25))
    assert [(home.name, home.cost) for home in folded.scales] == [
        ("folded", 0.0),
        ("destination scale", 0.01),
    ]
    assert folded.dst_scale is None
    divided = composed(V3, conv(), EltwiseOp("tanh"), store(0.25))
    assert [(home.name, home.cost) for home in divided.scales] == [
        ("destination scale", 0.21),
        ("post-op", 0.21),
    ]
    assert divided.dst_scale == 0.25


def test_a_store_scale_for_each_channel_is_no_destination_scale() -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), store([0.5, 0.25, 0.125]))
    assert [home.name for home in found.scales] == ["post-op", "destination scale"]
    assert found.scales[1].why_not == "it is one number for the whole tensor"
    assert [(home.name, home.why_not) for home in composed(V2, conv(), store(0.5)).scales] == [
        ("folded", ""),
        ("destination scale", "the primitive has none"),
    ]
    # There it costs nothing, and of equal costs it is the first.
    assert composed(UNIFIED, conv(), store(0.5)).scales[0].name == "destination scale"


@pytest.mark.parametrize(
    ("zero", "home", "why_not"),
    [
        (3.0, "destination zero point", ""),
        # the scale is among the post-ops, and one linear holds both
        (
            3.5,
            "shift",
            "3.5 is no integer",
        ),
        ([1.0, 2.0, 3.0], "shift before the scale", "there is one for each channel"),
    ],
)
def test_the_home_of_the_zero_point(zero, home: str, why_not: str) -> None:
    found = composed(V3, conv(), EltwiseOp("tanh"), store(0.5, zero)).zero_points
    assert found[0].name == home
    assert (
        next(other for other in found if other.name == "destination zero point").why_not == why_not
    )
    assert composed(V3, conv(), store(0.5)).zero_points == ()


def test_a_shift_is_left_where_there_is_no_bias() -> None:
    found = composed(V3, conv(bias=None), EltwiseOp("tanh"), store(0.5, 3.5))
    assert [home.name for home in found.zero_points if not home.why_not] == ["shift"]
    assert found.post_ops == (Eltwise("tanh"), Eltwise("linear", 2.0, 3.5))


def test_the_homes_of_an_add_and_why_a_second_one_is_no_sum() -> None:
    skip = Add("a", DType.U8, 0.25, 3.0, in_place=True)
    found = composed(V3, conv(), skip, Add("b", DType.U8, 0.25, 3.0, in_place=True), store(0.5))
    assert [home.name for home in found.adds["a"]] == ["sum", "binary"]
    assert [(home.name, home.why_not) for home in found.adds["b"]] == [
        ("binary", ""),
        ("sum", "the destination's buffer holds a"),
    ]
    wide = composed(V3, conv(), skip)
    assert [home.why_not for home in wide.adds["a"]] == [
        "",
        "u8 does not fill a destination of 4 bytes an element",
    ]


def test_a_factor_that_stays_says_why() -> None:
    assert composed(V3, conv(), EltwiseOp("relu"), ScaleBy(vec(-2.0))).unfolded == (
        (4, "relu(x)*s = relu(x*s) needs s > 0: smallest s -2"),
    )
    assert composed(V3, conv(), Clip(vec(0.0), vec(6.0)), ScaleBy(vec(2.0))).unfolded == ()


def test_weights_are_in_the_measured_order() -> None:
    """docs/contributing/results.md has the measured times."""
    cheap = [eltwise_cost(name) for name in ("linear", "clip", "relu", "round", "abs", "square")]
    vector = [post_op_cost(Prelu("slopes")), eltwise_cost("hardswish")]
    costly = [
        eltwise_cost(name)
        for name in ("sqrt", "pow", "tanh", "gelu_erf", "exp", "elu", "mish", "logistic", "swish")
    ]
    assert max(cheap) < min(vector) <= max(vector) < min(costly)


def homes_of(plan: Plan, rule: str) -> list[list[str]]:
    return [
        [weighed.home for weighed in decision.alternatives]
        for decision in plan.decision_records
        if decision.rule == rule
    ]


def test_a_relu_that_the_store_does_and_one_that_it_does_not() -> None:
    for zero, wanted in ((0, ["store", "post-op", "own step"]), (7, ["post-op", "own step"])):
        n = Net()
        x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
        plan = compiled(n, n.q(n.op("Relu", n.conv(x, 4, scale=2**-8)), 2**-6, zero))
        assert homes_of(plan, "home of Relu") == [wanted]
        (step,) = steps(plan, "convolution")
        assert bool(step.attr.post_ops) == (wanted[0] == "post-op")
        assert len(homes_of(plan, "home of the zero point")) == (1 if zero else 0)


def test_a_negative_factor_behind_relu_is_a_post_op_and_says_why() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
    plan = compiled(n, n.op("Mul", n.op("Relu", n.conv(x, 4, scale=2**-8)), np.float32(-0.5)))
    (decision,) = [decision for decision in plan.decision_records if decision.rule == "home of Mul"]
    assert [weighed.home for weighed in decision.alternatives] == ["post-op", "own step", "folded"]
    assert decision.alternatives[-1].why_not == "relu(x)*s = relu(x*s) needs s > 0: smallest s -0.5"


def test_what_goes_into_the_front_was_weighed_against_a_post_op() -> None:
    for factor, cost in (
        (np.float32(0.5), 0.01),
        (np.float32([0.5, 2.0, 0.25, 1.0]), 0.03),
    ):
        n = Net()
        x = n.qdq(n.input(("N", 4)), 2**-5, 128)
        product = n.op("MatMul", x, n.weights((4, 4), 2**-8))
        plan = compiled(n, n.op("Mul", n.op("LeakyRelu", product, alpha=0.25), factor))
        (decision,) = [
            decision for decision in plan.decision_records if decision.rule == "home of Mul"
        ]
        assert [(home.home, pytest.approx(home.cost)) for home in decision.alternatives][:2] == [
            ("folded", 0.0),
            ("post-op", cost),
        ]
        assert decision.alternatives[2].home == "own step"
        (step,) = steps(plan, "matmul")
        assert kinds(step) == ["relu"]


def test_a_factor_that_the_front_cannot_take_is_a_post_op_and_says_why() -> None:
    n = Net()
    x = n.input(("N", 4, 4, 4))
    plan = compiled(
        n,
        n.op(
            "Mul",
            n.op("LeakyRelu", n.op("AveragePool", x, kernel_shape=(2, 2)), alpha=0.25),
            np.float32(0.5),
        ),
    )
    (decision,) = [decision for decision in plan.decision_records if decision.rule == "home of Mul"]
    assert decision.alternatives[-1].home == "folded"
    assert decision.alternatives[-1].why_not.startswith("the front has no place for a factor")


def test_the_homes_at_the_front() -> None:
    assert saved(ScaleBy(vec(2.0), of=4), "folded") == (4, "folded", 0.01)
    vector = saved(Shift(vec([1.0, 2.0])), "folded")
    assert vector.post_op == post_op_cost(Prelu("slopes"))  # a load for each vector, too


def test_only_what_went_into_the_front_is_listed_as_folded() -> None:
    """Two factors in a row are one; the relu between factor and store goes nowhere."""
    found = composed(
        V3, conv(), ScaleBy(vec(2.0)), Shift(vec(1.0)), EltwiseOp("tanh"), ScaleBy(vec(3.0))
    )
    assert [each.home for each in found.saved] == ["folded", "folded"]
    assert composed(V3, conv(), EltwiseOp("tanh"), ScaleBy(vec(3.0))).saved == ()
