"""Residual adds: which branch of an add absorbs it, as a sum where the skip dies there, as a binary
post-op elsewhere, and why.
"""

from __future__ import annotations

import pytest
from laws.build import Net, Value
from laws.plans import block, compiled, kinds, refusals, steps

from fqfuse.ir.decision import DequantizeFate
from fqfuse.ir.types import DType, Quantization
from fqfuse.plan.attributes import Binary, Sum


def test_the_skip_dies_at_the_add() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(
        n, n.op("MaxPool", n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), kernel_shape=(2, 2))
    )
    assert kinds(steps(plan, "convolution")[-1]) == ["sum"]
    assert not steps(plan, "binary")
    fates = [fate for fate in plan.fate_records if fate.fate is DequantizeFate.SUM]
    assert len(fates) == 1
    assert fates[0].step == plan.steps.index(steps(plan, "convolution")[-1])


def _skip_has_another_shape(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    pooled = n.qdq(n.op("GlobalAveragePool", skip), 2**-6)
    return (n.qdq(n.op("Add", y, pooled), 2**-5, 128),)


def _skip_is_an_input(n: Net) -> tuple[Value, ...]:
    x = n.dq(n.input(("N", 4, 4, 4), dtype=DType.U8, quant=Quantization((2**-6,))))
    return (n.qdq(n.op("Add", n.conv(n.qdq(n.op("Relu", n.conv(x, 4)), 2**-6), 4), x), 2**-5, 128),)


def _skip_is_returned(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    return n.qdq(n.op("Add", y, skip), 2**-5, 128), skip


def _codes_are_returned(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    return n.qdq(n.op("Add", y, skip), 2**-5, 128), n.graph.producer(skip).inputs[0]


def _skip_is_the_source(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)), 2**-6)
    return (n.qdq(n.op("Add", n.conv(x, 4), x), 2**-5, 128),)


def _skip_is_read_later(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    total = n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5)
    return (
        n.op("MaxPool", n.op("Softmax", skip, axis=1), kernel_shape=(2, 2)),
        n.op("Sigmoid", total),
    )


def _skip_is_read_at_the_side(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    return n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), n.op("Sigmoid", skip)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_skip_has_another_shape, "the skip has another shape"),
        (_skip_is_an_input, "the skip is an input or constant of the model"),
        (_skip_is_returned, "the skip is returned by the model"),
        (_codes_are_returned, "the skip is returned by the model"),
        (_skip_is_the_source, "the skip is the anchor's own source"),
        (_skip_is_read_later, "the skip is read later, by "),
        (_skip_is_read_at_the_side, "the skip is read later, by "),
    ],
)
def test_why_an_add_is_no_sum(build, reason: str) -> None:
    n = Net()
    plan = compiled(n, *build(n))
    told = [
        fate.reason
        for fate in plan.fate_records
        if fate.fate is DequantizeFate.POST_OP and "binary post-op" in fate.reason
    ]
    assert len(told) == 1
    assert f"no sum: {reason}" in told[0]
    assert not any(isinstance(op, Sum) for step in plan.steps for op in step.attr.post_ops)
    assert any(
        isinstance(op, Binary) and op.algorithm == "add"
        for step in plan.steps
        for op in step.attr.post_ops
    ), "it is fused none the less"


def test_the_own_source_is_the_reason_even_where_a_convolution_beside_it_reads_the_skip() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, 4, scale=2**-8)), 2**-6)
    branches = n.op("Add", n.conv(skip, 4, scale=2**-8), n.conv(skip, 4, 1, scale=2**-8))
    plan = compiled(n, n.qdq(n.op("Add", branches, skip), 2**-5, 128))
    (told,) = [
        fate.reason
        for fate in plan.fate_records
        if fate.fate is DequantizeFate.POST_OP and "binary post-op" in fate.reason
    ]
    assert "no sum: the skip is the anchor's own source" in told
    (refused,) = refusals(plan, "the other branch takes this add")
    assert (refused.expected.split()[:2], refused.found.split()[1:]) == (
        ["less", "than"],
        ["passes"],
    )


def test_readers_in_front_of_the_anchor_do_not_hinder_the_sum() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, 4, scale=2**-8)), 2**-6)
    a, b = (
        n.qdq(n.conv(skip, 4, scale=2**-8), 2**-6, 128),
        n.qdq(n.conv(skip, 4, 1, scale=2**-8), 2**-6, 128),
    )
    y = n.conv(n.qdq(n.op("Mul", a, b), 2**-6, 128), 4, scale=2**-8)
    plan = compiled(
        n, n.op("MaxPool", n.qdq(n.op("Add", y, skip), 2**-5, 128), kernel_shape=(2, 2))
    )
    assert "sum" in kinds(steps(plan, "convolution")[-1])


def test_two_convolutions_meet_and_the_one_whose_peer_is_quantized_absorbs() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    quantized, bare = (
        n.qdq(n.conv(x, 4, scale=2**-8, name="one"), 2**-5, 128),
        n.conv(x, 4, 1, scale=2**-8, name="two"),
    )
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.op("Add", quantized, bare)), 2**-5), 2))
    (absorbing,) = [
        step for step in plan.steps if any(isinstance(op, Sum) for op in step.attr.post_ops)
    ]
    assert "two" in absorbing.origin
    assert {step.primitive for step in plan.steps} == {"reorder", "convolution"}


def test_s8_skip_into_u8_sum_is_read_as_s8() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    skip = n.qdq(n.conv(x, 4, scale=2**-8), 2**-5, -7, DType.S8)
    y = n.conv(n.qdq(skip, 2**-5, 128), 4, scale=2**-8)
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), 2))
    (sum_,) = [op for step in plan.steps for op in step.attr.post_ops if isinstance(op, Sum)]
    assert (sum_.dtype, sum_.zero_point) == (DType.S8, -7)


def test_an_f32_sum_into_f32() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    plan = compiled(
        n, n.op("Relu", n.op("Add", n.conv(x, 4, scale=2**-8), n.conv(x, 4, 1, scale=2**-8)))
    )
    assert [kinds(step) for step in steps(plan, "convolution")] == [[], ["sum", "relu"]]


def test_an_f32_operand_does_not_fill_an_8_bit_destination() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    y = n.op("Relu", n.op("Add", n.conv(x, 4, scale=2**-8), n.conv(x, 4, 1, scale=2**-8)))
    plan = compiled(n, n.conv(n.qdq(y, 2**-5), 2))
    assert kinds(steps(plan, "convolution")[1]) == ["add"], "relu is redundant under the u8 store"


def test_three_way_add_has_one_sum_and_one_binary() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    a, b = n.conv(x, 4, scale=2**-8), n.qdq(n.conv(x, 4, 1, scale=2**-8), 2**-5, 120)
    c = n.qdq(n.conv(x, 4, 1, scale=2**-7), 2**-4, 100)
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.op("Add", n.op("Add", a, b), c)), 2**-5), 2))
    (step,) = [step for step in steps(plan, "convolution") if step.attr.post_ops]
    assert sorted(kind for kind in kinds(step) if kind in ("sum", "add")) == ["add", "sum"]
    assert not steps(plan, "binary")


def test_a_value_added_to_itself_is_a_factor() -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128), 4, scale=2**-8)
    plan = compiled(n, n.conv(n.qdq(n.op("Add", y, y), 2**-5, 128), 2))
    assert len(plan.steps) == 3
    assert plan.steps[1].attr.scales["weights"].values == (2**-8 * 2 / 2**-5,), "(2*y)/s = y*(2/s)"


def _identity_skip(n: Net) -> tuple[Value, ...]:
    """The skip is what the block reads: Dequantize of the codes that its first convolution reads,
    too.
    """
    skip, y = block(n)
    return (n.op("MaxPool", n.qdq(n.op("Add", y, skip), 2**-5, 128), kernel_shape=(2, 2)),)


def _relu_before_the_add(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    return (n.op("MaxPool", n.qdq(n.op("Add", n.op("Relu", y), skip), 2**-5), kernel_shape=(2, 2)),)


def _quantized_between(n: Net) -> tuple[Value, ...]:
    skip, y = block(n)
    y = n.qdq(y, 2**-5, 128)
    return (n.op("MaxPool", n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), kernel_shape=(2, 2)),)


@pytest.mark.parametrize(
    ("build", "chain"),
    [
        (_identity_skip, ["sum"]),
        (_relu_before_the_add, ["relu", "sum"]),
        # on the scale of the result: nothing to multiply
        (
            _quantized_between,
            ["round", "clip", "sum"],
        ),
    ],
)
def test_the_decision_tells_of_the_sum(build, chain: list[str]) -> None:
    n = Net()
    plan = compiled(n, *build(n))
    assert kinds(steps(plan, "convolution")[-1]) == chain
    (fate,) = [fate for fate in plan.fate_records if fate.fate is DequantizeFate.SUM]
    assert fate.step == plan.steps.index(steps(plan, "convolution")[-1])
    told = [decision for decision in plan.decision_records if decision.rule == "home of Add"]
    assert [decision.reason.split(" costs ")[0] for decision in told] == ["sum"]
