"""What a step absorbs: how far chains grow, which branch of a residual add becomes a sum, and what the decisions say where it stops."""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value

from fqfuse.composer.attributes import Binary, Eltwise, Prelu, Sum
from fqfuse.composer.compose import plan_from_graph
from fqfuse.composer.plan import Plan, Step
from fqfuse.ir.decision import Decision, DequantizeFate, Half, Outcome, QuantizeFate
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize


def compiled(n: Net, *outputs: Value, target: str = "onednn-v3") -> Plan:
    return plan_from_graph(optimize(n.done(*outputs)), target)


def refusals(plan: Plan, *parts: str) -> list[Decision]:
    """Refusals whose reason holds all parts."""
    refused = [decision for decision in plan.decisions if decision.outcome is Outcome.REFUSED]
    return [decision for decision in refused if all(part in decision.reason for part in parts)]


def steps(plan: Plan, primitive: str) -> list[Step]:
    return [step for step in plan.steps if step.primitive == primitive]


def kinds(step: Step) -> list[str]:
    return [op.algorithm if isinstance(op, Eltwise | Binary) else type(op).__name__.lower() for op in step.attr.post_ops]


def block(n: Net, channels: int = 4) -> tuple[Value, Value]:
    """A quantized skip and a convolution of what is computed from it."""
    x = n.qdq(n.input(("N", channels, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, channels, scale=2**-8)), 2**-6)
    return skip, n.conv(n.qdq(n.op("Relu", n.conv(skip, channels, scale=2**-8)), 2**-6), channels, scale=2**-8)


# -- residual adds: sum, or binary and why -----------------------------------------------------------------------------------------


def test_the_skip_dies_at_the_add() -> None:
    n = Net()
    skip, y = block(n)
    plan = compiled(n, n.op("MaxPool", n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5), kernel_shape=(2, 2)))
    assert kinds(steps(plan, "convolution")[-1]) == ["sum"]
    assert not steps(plan, "binary")
    fates = [fate for fate in plan.fates if fate.fate is DequantizeFate.SUM]
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
    return (n.op("MaxPool", n.op("Softmax", skip, axis=1), kernel_shape=(2, 2)), n.op("Sigmoid", total))


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
    told = [fate.reason for fate in plan.fates if fate.fate is DequantizeFate.POST_OP and "binary post-op" in fate.reason]
    assert len(told) == 1
    assert f"no sum: {reason}" in told[0]
    assert not any(isinstance(op, Sum) for step in plan.steps for op in step.attr.post_ops)
    assert any(isinstance(op, Binary) and op.algorithm == "add" for step in plan.steps for op in step.attr.post_ops), (
        "it is fused none the less"
    )


def test_readers_in_front_of_the_anchor_do_not_hinder_the_sum() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, 4, scale=2**-8)), 2**-6)
    a, b = n.qdq(n.conv(skip, 4, scale=2**-8), 2**-6, 128), n.qdq(n.conv(skip, 4, 1, scale=2**-8), 2**-6, 128)
    y = n.conv(n.qdq(n.op("Mul", a, b), 2**-6, 128), 4, scale=2**-8)
    plan = compiled(n, n.op("MaxPool", n.qdq(n.op("Add", y, skip), 2**-5, 128), kernel_shape=(2, 2)))
    assert "sum" in kinds(steps(plan, "convolution")[-1])


def test_two_convolutions_meet_and_the_one_whose_peer_is_quantized_absorbs() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    quantized, bare = n.qdq(n.conv(x, 4, scale=2**-8, name="one"), 2**-5, 128), n.conv(x, 4, 1, scale=2**-8, name="two")
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.op("Add", quantized, bare)), 2**-5), 2))
    (absorbing,) = [step for step in plan.steps if any(isinstance(op, Sum) for op in step.attr.post_ops)]
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
    plan = compiled(n, n.op("Relu", n.op("Add", n.conv(x, 4, scale=2**-8), n.conv(x, 4, 1, scale=2**-8))))
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
    assert plan.steps[1].attr.scales["dst"].values == (2**-6,), "(2*y)/s = y/(s/2)"


# -- where chains end --------------------------------------------------------------------------------------------------------------


def test_a_value_read_by_two_ends_the_chain() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128), 4, scale=2**-8))
    plan = compiled(n, n.op("MaxPool", y, kernel_shape=(2, 2)), n.op("Softmax", y, axis=1))
    assert kinds(steps(plan, "convolution")[0]) == ["relu"]
    assert plan.type(steps(plan, "convolution")[0].output).dtype is DType.F32


def test_one_value_quantized_twice_differently_is_stored_in_f32() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0), 4, style="fq"))
    plan = compiled(n, n.conv(n.fq(y, 0.0, 4.0), 2, style="fq"), n.conv(n.fq(y, 0.0, 2.0), 2, 1, style="fq"))
    standalone = [fate for fate in plan.fates if fate.fate is QuantizeFate.STANDALONE]
    assert len(standalone) == 3
    assert sum("others read the f32 values" in fate.reason for fate in standalone) == 2


def test_one_value_quantized_twice_alike_is_stored_once() -> None:
    n = Net()
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), 0.0, 1.0), 4, style="fq"))
    plan = compiled(n, n.conv(n.fq(y, 0.0, 4.0), 2, style="fq"), n.conv(n.fq(y, 0.0, 4.0), 2, 1, style="fq"))
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution", "convolution", "convolution"]


def test_a_chain_whose_value_is_broadcast_ends() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    pooled = n.conv(n.qdq(n.op("GlobalAveragePool", x), 2**-6, 128), 4, 1, scale=2**-8)
    plan = compiled(n, n.op("Add", pooled, n.input(("N", 4, 4, 4), "z")))
    assert refusals(plan, "the chain's value is broadcast")


def test_codes_of_more_than_8_bits() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.op("Relu", n.qdq(n.conv(x, 4), 2**-10, 0, DType.S16)))
    assert refusals(plan, "no primitive stores such codes")[0].found == "s16"
    assert any(fate.fate is QuantizeFate.FALLBACK for fate in plan.fates)


def test_a_quantization_along_another_axis() -> None:
    n = Net()
    x = n.qdq(n.input((2, 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.op("Relu", n.qdq(n.conv(x, 4), [0.5, 0.25], axis=0)))
    (found,) = refusals(plan, "another axis than the channels")
    assert (found.expected, found.found) == ("axis 1", "axis 0")


def test_the_chain_as_second_operand() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    plan = compiled(n, n.op("Sub", n.op("Sigmoid", n.input(("N", 4, 4, 4), "z")), n.conv(x, 4)))
    assert refusals(plan, "Sub has the chain as its second operand")


def test_bounds_and_slopes_computed_at_run_time() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    clipped = n.op("Clip", n.conv(x, 4), n.input((), "low"), "")
    sloped = n.op("PRelu", n.conv(x, 4), n.input((4, 1, 1), "slopes"))
    plan = compiled(n, clipped, sloped)
    assert refusals(plan, "a bound of the clip is computed at run time")
    assert refusals(plan, "the slopes are computed at run time")


def test_slopes_along_another_axis_than_the_channels() -> None:
    n = Net()
    plan = compiled(n, n.op("PRelu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), np.arange(4) / 4))
    assert refusals(plan, "the slopes vary along another axis")


def test_slopes_along_the_channels() -> None:
    n = Net()
    plan = compiled(n, n.op("PRelu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), (np.arange(4) / 4).reshape(4, 1, 1)))
    (op,) = plan.steps[-1].attr.post_ops
    assert isinstance(op, Prelu)
    assert op.mask == 2
    assert plan.constants[op.operand].shape == (1, 4, 1, 1)


@pytest.mark.parametrize("constant", [0.0, np.nan, np.inf, [1.0, 0.0, 2.0, 3.0]])
def test_a_factor_that_is_zero_or_not_finite_is_no_scale(constant) -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)
    plan = compiled(n, n.op("Mul", y, np.asarray(constant, np.float32).reshape(1, -1, 1, 1)))
    assert refusals(plan, "no basic operation for Mul")
    assert "onnx.Mul" in {step.primitive for step in plan.steps} or "binary" in {step.primitive for step in plan.steps}


def test_relu_with_a_negative_factor_behind_it() -> None:
    n = Net()
    y = n.op("Mul", n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)), -0.5)
    plan = compiled(n, n.conv(n.qdq(y, 2**-6, 200), 2))
    assert kinds(plan.steps[1])[0] == "relu", "relu comes first, the factor behind it"
    assert refusals(plan, "relu(x)*c = relu(x*c) needs c > 0")


@pytest.mark.parametrize(("activation", "algorithm", "alpha", "beta"), [
    ("LeakyRelu", "relu", 0.01, 0.0),
    ("Elu", "elu", 1.0, 0.0),
    ("Sigmoid", "logistic", 0.0, 0.0),
    ("Tanh", "tanh", 0.0, 0.0),
    ("Softplus", "soft_relu", 1.0, 0.0),
    ("HardSigmoid", "hardsigmoid", 0.2, 0.5),
    ("HardSwish", "hardswish", 1 / 6, 0.5),
    ("Swish", "swish", 1.0, 0.0),
    ("Mish", "mish", 0.0, 0.0),
    ("Gelu", "gelu_erf", 0.0, 0.0),
    ("Abs", "abs", 0.0, 0.0),
    ("Exp", "exp", 0.0, 0.0),
    ("Log", "log", 0.0, 0.0),
    ("Sqrt", "sqrt", 0.0, 0.0),
    ("Round", "round", 0.0, 0.0),
])  # fmt: skip
def test_activations_are_post_ops(activation: str, algorithm: str, alpha: float, beta: float) -> None:
    n = Net()
    plan = compiled(n, n.conv(n.qdq(n.op(activation, n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4)), 2**-6, 3), 2))
    assert [step.primitive for step in plan.steps] == ["reorder", "convolution", "convolution"]
    (op,) = plan.steps[1].attr.post_ops
    assert isinstance(op, Eltwise)
    assert (op.algorithm, op.alpha, op.beta) == (algorithm, pytest.approx(alpha), pytest.approx(beta))


def test_gelu_in_its_tanh_form() -> None:
    n = Net()
    plan = compiled(n, n.op("Gelu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4), approximate="tanh"))
    assert kinds(plan.steps[-1]) == ["gelu_tanh"]


# -- what is computed in 8 bits, and what not ------------------------------------------------------------------------------------------


def _refused(*parts: str, found: str | None = None):
    def check(plan: Plan) -> None:
        refused = refusals(plan, *parts)
        assert refused
        assert refused[0].rule.endswith("in int8")
        assert refused[0].expected
        if found is not None:
            assert refused[0].found == found

    return check


def _bare_source(n: Net) -> Value:
    return n.conv(n.input(("N", 3, 4, 4)), 2)


def _bare_weights(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 2, style="float")


def _fractional_source(n: Net) -> Value:
    return n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0, 0.1, 1.0), 2)


def _source_per_channel(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), [0.1, 0.2, 0.3], axis=1), 2)


def _source_of_16_bits(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 0.1, 0, DType.S16), 2)


def _asymmetric_weights(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((4, 3, 1, 1), 0, 255, DType.U8))
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=n.dq(codes, Quantization((0.1,), (121.0,))))


def _weights_along_another_axis(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=n.weights((4, 3, 1, 1), [0.1, 0.2, 0.3], 1))


def _weights_with_many_zero_points(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((4, 3, 1, 1), 0, 255, DType.U8))
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=n.dq(codes, Quantization.of(0.1, [120, 121, 122, 123], 0)))


def _weights_of_16_bits(n: Net) -> Value:
    codes = n.graph.add_constant("w", np.arange(12, dtype=np.int16).reshape(4, 3, 1, 1))
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=n.dq(codes, Quantization((0.1,))))


def _sum_of_products_beyond_32_bits(n: Net) -> Value:
    return n.op("MatMul", n.fq(n.input(("N", 64)), 4000.0, 4001.0), n.weights((64, 3), 0.01))


def _groups_with_scales_inside(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 4, 4, 4)), [0.1, 0.2, 0.3, 0.3], axis=1), 4, group=2)


def _groups_with_many_zero_points(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 4, 4, 4)), 0.1, [1, 2, 3, 3], axis=1), 4, group=4)


def _second_operand_is_u8(n: Net) -> Value:
    b = n.dq(n.input(("N", 8, 3), dtype=DType.U8, quant=Quantization((0.1,), (3.0,))))
    return n.op("MatMul", n.qdq(n.input(("N", 4, 8)), 2**-6), b)


@pytest.mark.parametrize(
    ("build", "check"),
    [
        (_bare_source, _refused("the source is not quantized")),
        (_bare_weights, _refused("the weights are not quantized", found="f32 weights")),
        (_fractional_source, _refused("the zero point of the source is not an integer")),
        (_source_per_channel, _refused("no per-tensor 8-bit codes", found="u8, axis 1")),
        (_source_of_16_bits, _refused("no per-tensor 8-bit codes", found="s16, axis None")),
        (_asymmetric_weights, _refused("convolution takes no zero point on its weights", found="-7")),
        (_weights_along_another_axis, _refused("along another axis than the output channels", found="axis 1")),
        (_weights_with_many_zero_points, _refused("the zero points of the weights differ", found="4 different ones")),
        (_weights_of_16_bits, _refused("the weights have more than 8 bits", found="s16")),
        (_sum_of_products_beyond_32_bits, _refused("32 bits do not hold the sum of products")),
        (_groups_with_scales_inside, _refused("differ within a group")),
        (_groups_with_many_zero_points, _refused("differ between channels")),
        (_second_operand_is_u8, _refused("the second operand is computed at run time, and is not s8", found="u8")),
    ],
)
def test_why_a_product_is_computed_in_f32(build, check) -> None:
    n = Net()
    plan = compiled(n, build(n))
    check(plan)
    (step,) = [step for step in plan.steps if step.primitive in ("convolution", "matmul")]
    assert plan.type(step.arg("src")).dtype is DType.F32
    assert plan.type(step.arg("weights")).dtype is DType.F32
    assert not [role for role in step.attr.scales if role != "dst"]


def test_asymmetric_weights_of_a_matrix_product_have_a_zero_point() -> None:
    n = Net()
    codes = n.graph.add_constant("w", n.codes((8, 3), 0, 255, DType.U8))
    plan = compiled(n, n.op("MatMul", n.qdq(n.input(("N", 8)), 2**-6, 3), n.dq(codes, Quantization((0.1,), (121.0,)))))
    step = steps(plan, "matmul")[0]
    assert {role: zero.values for role, zero in step.attr.zero_points.items()} == {"src": (3,), "weights": (-7,)}
    assert plan.type(step.arg("weights")).dtype is DType.S8


@pytest.mark.parametrize(("group", "mask"), [(1, 1), (2, 3), (4, 3)])
def test_the_mask_of_weights_scales(group: int, mask: int) -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4, group=group, scale=[0.1, 0.2, 0.3, 0.4])
    scale = compiled(n, y).steps[-1].attr.scales["weights"]
    assert scale.mask == mask
    assert scale.values == pytest.approx((0.1, 0.2, 0.3, 0.4))


def test_scales_of_groups_multiply_those_of_the_weights() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), [0.5, 0.5, 0.25, 0.25], 7, axis=1)
    step = compiled(n, n.conv(x, 4, group=2, scale=[1.0, 2.0, 4.0, 8.0])).steps[-1]
    assert step.attr.scales["src"].values == (1.0,)
    assert step.attr.scales["weights"].values == (0.5, 1.0, 1.0, 2.0)
    assert step.attr.zero_points["src"].values == (7,)


def test_output_scales_and_the_bias_in_the_accumulators_domain() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), 0.5, 7)
    y = n.conv(n.qdq(n.conv(x, 2, scale=[0.25, 0.125], bias=[3.0, 5.0]), 2.0, 9), 2)
    step = compiled(n, y, target="onednn-v2").steps[1]
    assert step.attr.output_scales.values == (0.0625, 0.03125)
    assert step.attr.output_scales.mask == 2
    assert set(step.attr.scales) == set()
    assert {role: zero.values for role, zero in step.attr.zero_points.items()} == {"src": (7,), "dst": (9,)}


def test_the_bias_with_output_scales_is_divided_by_them() -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 0.5, 7), 2, scale=[0.25, 0.125], bias=[3.0, 5.0])
    plan = compiled(n, y, target="onednn-v2")
    assert plan.constants[plan.steps[-1].arg("bias")].tolist() == [3.0 / 0.125, 5.0 / 0.0625]


def test_shared_weights_serve_both() -> None:
    n = Net()
    w = n.weights((4, 4, 3, 3), 2**-8, 0)
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6)
    plan = compiled(n, n.conv(n.qdq(n.op("Relu", n.conv(x, 4, weights=w)), 2**-6), 4, weights=w))
    first, second = steps(plan, "convolution")
    assert first.arg("weights") == second.arg("weights")
    assert [fate.consumer for fate in plan.fates if fate.fate is DequantizeFate.WEIGHTS_SCALE] == [first.origin[0], second.origin[0]]


def test_padding_that_counts_needs_a_zero_code() -> None:
    n = Net()
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 5)
    plan = compiled(n, n.conv(n.qdq(n.op("AveragePool", x, **window), 2**-6, 5), 2))
    (refused,) = refusals(plan, "padding counts as code 0")
    assert refused.found == "zero point 5"
    zero = Net()
    x = zero.qdq(zero.input(("N", 3, 4, 4)), 2**-6, 0)
    plan = compiled(zero, zero.conv(zero.qdq(zero.op("AveragePool", x, **window), 2**-6, 0), 2))
    assert plan.type(steps(plan, "pooling")[0].output).dtype is DType.U8


# -- fates -------------------------------------------------------------------------------------------------------------------------


def test_the_fates_of_a_plain_layer() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3)
    bias = n.dq(n.graph.add_constant("b", np.arange(2, dtype=np.int32)), Quantization((2**-14,)), name="bias")
    y = n.qdq(n.op("Relu", n.conv(x, 2, bias=bias, name="conv")), 2**-6, 0, name="out")
    plan = compiled(n, n.conv(y, 2, name="next"))
    told = {(fate.quantizer, fate.half, fate.consumer): (fate.fate.value, fate.step) for fate in plan.fates}
    assert told[("out", Half.QUANTIZE, "")] == ("dst_scale", 1)
    assert told[("out", Half.DEQUANTIZE, "next")] == ("source_scale", 2)
    assert told[("bias", Half.DEQUANTIZE, "conv")] == ("bias", None)
    assert told[("bias", Half.QUANTIZE, "")] == ("constant", None)
    assert told[("q1", Half.QUANTIZE, "")] == ("standalone", 0)
    assert told[("q1", Half.DEQUANTIZE, "conv")] == ("source_scale", 1)


def test_a_fake_quantize_that_stays_whole_says_so() -> None:
    n = Net()
    plan = compiled(n, n.op("Relu", n.fq(n.input(("N", 3, 4, 4)), 2.0, -2.0, name="inverted")))
    quantize, *dequantize = [fate for fate in plan.fates if fate.quantizer == "inverted"]
    assert quantize.fate is QuantizeFate.FALLBACK
    assert [fate.fate for fate in dequantize] == [DequantizeFate.FALLBACK]
    assert quantize.step == 0


def test_weights_that_cannot_be_split_are_computed_once() -> None:
    n = Net()
    w = n.fq(n.const(n.rng.standard_normal((2, 3, 1, 1))), -1.0, 1.0, levels=300, name="many")
    plan = compiled(n, n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 2, 1, weights=w))
    assert "onnx.FakeQuantize" not in {step.primitive for step in plan.steps}
    assert [fate.fate for fate in plan.fates if fate.quantizer == "many"] == [QuantizeFate.CONSTANT, DequantizeFate.CONSTANT]
