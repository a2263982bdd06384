"""The chooser: costs grow with the bytes moved, the cheaper legal home wins, and the plan says what was weighed."""

from __future__ import annotations

from laws.build import Net
from laws.plans import block, compiled, kinds, steps

from fqfuse.composer.cost import WRITE_ALLOCATE, Home, alternatives, cheapest, eltwise_cost, operand_cost, own_step_cost
from fqfuse.ir.types import DType, TensorType


def test_more_bytes_cost_more() -> None:
    dst = TensorType(DType.U8, ("N", 8, 4, 4))
    costs = [operand_cost(TensorType(kind, shape), dst) for kind, shape in
             [(DType.U8, (1, 8, 1, 1)), (DType.U8, ("N", 8, 1, 1)), (DType.U8, dst.shape), (DType.F32, dst.shape)]]  # fmt: skip
    assert costs == [1 / 16, 1 / 16, 1.0, 4.0]
    assert eltwise_cost("relu") < eltwise_cost("gelu_erf") < own_step_cost(DType.U8, dst) < own_step_cost(DType.F32, dst)


def test_sum_is_cheaper_than_binary_and_that_than_a_step() -> None:
    for kind in (DType.U8, DType.F32):
        dst = TensorType(kind, (1, 8, 4, 4))
        read = operand_cost(dst, dst)
        assert read < read + WRITE_ALLOCATE < own_step_cost(kind, dst, read)


def test_the_cheapest_legal_home_wins_and_the_first_of_two_equal_ones() -> None:
    homes = [Home("a", 0.0, "illegal"), Home("b", 2.0), Home("c", 1.0), Home("d", 1.0)]
    best = cheapest(homes)
    assert best is homes[2]
    assert [weighed.home for weighed in alternatives(best, homes)] == ["c", "d", "b", "a"]
    assert cheapest(homes[:1]) is None


def test_a_sum_and_what_it_was_weighed_against() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(n, n.op("MaxPool", n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), kernel_shape=(2, 2)))
    (decision,) = [decision for decision in plan.decisions if decision.rule == "home of Add"]
    assert [weighed.home for weighed in decision.alternatives] == ["sum", "binary", "own step"]
    costs = [weighed.cost for weighed in decision.alternatives]
    assert costs == sorted(costs)


def test_a_sum_that_is_illegal_says_why() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(n, n.qdq(n.op("Add", y, skip), 2**-5, 128), skip)
    (decision,) = [decision for decision in plan.decisions if decision.rule == "home of Add"]
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
