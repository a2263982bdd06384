"""What an anchor reads as codes, with which scales and zero points, and why it is computed in f32
where it is.
"""

from __future__ import annotations

import numpy as np
import pytest
from laws.build import Net, Value
from laws.contracts import GRANTED
from laws.intervals import run_boxes
from laws.plans import compiled, refusals, steps
from laws.registry import feeds_for

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.decision import DequantizeFate
from fqfuse.ir.types import DType, Quantization
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Eltwise, PrimitiveAttr, Scale
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession


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
    sources = (n.input(("N", 4, 4), name=name) for name in "ab")
    return n.op("MatMul", *(n.fq(x, -1.0, 1.0, 0.1, 1.0) for x in sources))


def _source_per_channel(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), [0.1, 0.2, 0.3], axis=1), 2)


def _source_with_many_zero_points(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 0.1, [1, 2, 3], axis=1), 2)


def _source_of_16_bits(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 3, 4, 4)), 0.1, 0, DType.S16), 2)


def _whole_range(shape: tuple[int, ...]) -> np.ndarray:
    """u8 codes that are no s8 codes, whatever is subtracted from them."""
    codes = np.arange(np.prod(shape)).reshape(shape)
    return np.where(codes % 2, 255 - codes, codes).astype(np.uint8)


def _source_far_from_zero(n: Net) -> Value:
    source = n.fq(n.input(("N", 3, 4, 4)), 100000.0, 100001.0)
    return n.conv(source, 4, 1, weights=n.weights((4, 3, 1, 1), 0.01))


def _asymmetric_weights(n: Net) -> Value:
    codes = n.graph.add_constant("w", _whole_range((4, 3, 1, 1)))
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6),
        4,
        1,
        weights=n.dq(codes, Quantization((0.1,), (121.0,))),
    )


def _weights_along_another_axis(n: Net) -> Value:
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6),
        4,
        1,
        weights=n.weights((4, 3, 1, 1), [0.1, 0.2, 0.3], 1),
    )


def _weights_with_many_zero_points(n: Net) -> Value:
    codes = n.graph.add_constant("w", _whole_range((4, 3, 1, 1)))
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6),
        4,
        1,
        weights=n.dq(codes, Quantization.of(0.1, [120, 121, 122, 123], 0)),
    )


def _weights_with_a_fractional_zero_point(n: Net) -> Value:
    codes = n.graph.add_constant("w", _whole_range((4, 3, 1, 1)))
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6),
        4,
        1,
        weights=n.dq(codes, Quantization((0.1,), (127.5,))),
    )


def _weights_of_16_bits(n: Net) -> Value:
    codes = n.graph.add_constant("w", np.arange(12, dtype=np.int16).reshape(4, 3, 1, 1))
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=n.dq(codes, Quantization((0.1,)))
    )


def _sum_of_products_beyond_32_bits(n: Net) -> Value:
    return n.op("MatMul", n.fq(n.input(("N", 64)), 4000.0, 4001.0), n.weights((64, 3), 0.01))


def _product_beyond_f32(n: Net) -> Value:
    return n.op("MatMul", n.fq(n.input(("N", 2)), 400.0, 401.0), n.weights((2, 3), 0.01))


def _weights_far_from_zero(n: Net) -> Value:
    weights = n.fq(n.const(np.linspace(0.5, 2, 64).reshape(8, 8)), 0.5, 2.0)
    return n.op("MatMul", n.fq(n.input(("N", 8)), -1.0, 1.0), weights)


def _groups_with_scales_inside(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 4, 4, 4)), [0.1, 0.2, 0.3, 0.3], axis=1), 4, group=2)


def _groups_with_many_zero_points(n: Net) -> Value:
    return n.conv(n.qdq(n.input(("N", 4, 4, 4)), 0.1, [1, 2, 3, 3], axis=1), 4, group=4)


@pytest.mark.parametrize(
    ("build", "check"),
    [
        (_bare_source, _refused("the source is not quantized")),
        (
            _source_far_from_zero,
            _refused("the quantizer of the source stays an operator", found="FakeQuantize fq1"),
        ),
        (_bare_weights, _refused("the weights are not quantized", found="f32 weights")),
        (_fractional_source, _refused("the zero point of the source is not an integer")),
        (_source_per_channel, _refused("no per-tensor 8-bit codes", found="u8, axis 1")),
        (
            _source_with_many_zero_points,
            _refused("no per-tensor 8-bit codes", found="u8, axis 1"),
        ),
        (_source_of_16_bits, _refused("no per-tensor 8-bit codes", found="s16, axis None")),
        (
            _asymmetric_weights,
            _refused("convolution takes no zero point on its weights", found="-7"),
        ),
        (
            _weights_along_another_axis,
            _refused("along another axis than the output channels", found="axis 1"),
        ),
        (
            _weights_with_many_zero_points,
            _refused("the zero points of the weights differ", found="4 different ones"),
        ),
        (
            _weights_with_a_fractional_zero_point,
            _refused("the zero points of the weights differ", found="127.5"),
        ),
        (_weights_of_16_bits, _refused("the weights have more than 8 bits", found="s16")),
        (_sum_of_products_beyond_32_bits, _refused("32 bits do not hold the sum of products")),
        (_product_beyond_f32, _refused("f32 does not hold a product of codes")),
        (
            _weights_far_from_zero,
            _refused("the zero point of the weights is none of their codes", found="-213"),
        ),
        (_groups_with_scales_inside, _refused("differ within a group")),
        (_groups_with_many_zero_points, _refused("differ between channels")),
    ],
)
@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
def test_why_a_product_is_computed_in_f32(build, check, target: str) -> None:
    n = Net()
    plan = compiled(n, build(n), target=target)
    check(plan)
    (step,) = [step for step in plan.steps if step.primitive in ("convolution", "matmul")]
    assert plan.type(step.arg("src")).dtype is DType.F32
    assert plan.type(step.arg("weights")).dtype is DType.F32
    assert not step.attr.scales
    assert step.attr.output_scales is None


def test_codes_less_their_zero_points_are_the_weights_where_s8_holds_them() -> None:
    for quant in (Quantization((0.1,), (121.0,)), Quantization.of(0.1, [120, 121, 122], 1)):
        n = Net()
        codes = n.codes((8, 3), 30, 200, DType.U8)
        weights = n.dq(n.graph.add_constant("w", codes), quant)
        plan = compiled(n, n.op("MatMul", n.qdq(n.input(("N", 8)), 2**-6, 3), weights))
        step = steps(plan, "matmul")[0]
        assert list(step.attr.zero_points) == ["src"]
        found = plan.constants[step.arg("weights")]
        np.testing.assert_array_equal(found, codes.astype(int) - quant.zero_points.astype(int))


def test_asymmetric_weights_of_a_matrix_product_have_a_zero_point() -> None:
    n = Net()
    codes = n.graph.add_constant("w", _whole_range((8, 3)))
    plan = compiled(
        n,
        n.op(
            "MatMul",
            n.qdq(n.input(("N", 8)), 2**-6, 3),
            n.dq(codes, Quantization((0.1,), (121.0,))),
        ),
    )
    step = steps(plan, "matmul")[0]
    assert {role: zero.values for role, zero in step.attr.zero_points.items()} == {
        "src": (3,),
        "weights": (-7,),
    }
    assert plan.type(step.arg("weights")).dtype is DType.S8


def test_a_second_operand_of_u8_is_converted_in_front_of_the_product() -> None:
    n = Net()
    b = n.dq(n.input(("N", 8, 3), dtype=DType.U8, quant=Quantization((0.1,), (3.0,))))
    plan = compiled(n, n.op("MatMul", n.qdq(n.input(("N", 4, 8)), 2**-6), b))
    (step,) = steps(plan, "matmul")
    assert step.attr.zero_points["weights"].values == (-125,)
    (before,) = [one for one in plan.steps if one.output == step.arg("weights")]
    assert (before.primitive, plan.type(before.output).dtype) == ("reorder", DType.S8)


@pytest.mark.parametrize(("group", "mask"), [(1, 1), (2, 3), (4, 3)])
def test_the_mask_of_weights_scales(group: int, mask: int) -> None:
    n = Net()
    y = n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4, group=group, scale=[0.1, 0.2, 0.3, 0.4])
    scale = compiled(n, y).steps[-1].attr.scales["weights"]
    assert scale.mask == mask
    assert scale.values == pytest.approx((0.1, 0.2, 0.3, 0.4))


def _deconvolved(n: Net, scale: object, axis: int, shape: tuple[int, ...], group: int) -> Value:
    x = n.qdq(n.input(("N", shape[0], 4, 4)), 2**-6, 3)
    window = {"kernel_shape": shape[2:], "strides": (2, 2)}
    return n.op("ConvTranspose", x, n.weights(shape, scale, axis), group=group, **window)


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize(
    ("shape", "group", "axis", "scale", "outputs"),
    [
        ((4, 1, 3, 3), 4, 0, [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]),
        ((4, 1, 3, 3), 2, 0, [0.1, 0.1, 0.3, 0.3], [0.1, 0.3]),
        ((2, 3, 3, 3), 2, 0, [0.1, 0.2], [0.1, 0.1, 0.1, 0.2, 0.2, 0.2]),
        ((4, 2, 3, 3), 2, 1, [0.1, 0.2], [0.1, 0.2, 0.1, 0.2]),
        ((4, 3, 3, 3), 2, 1, [0.25, 0.25, 0.25], [0.25]),  # equal ones are one
        ((4, 3, 3, 3), 2, 0, [0.25, 0.25, 0.25, 0.25], [0.25]),
        ((6, 2, 2, 2), 3, 0, [0.5, 0.5, 0.1, 0.1, 0.2, 0.2], [0.5, 0.5, 0.1, 0.1, 0.2, 0.2]),
    ],
)
def test_scales_of_groups_of_a_deconvolution_are_those_of_their_outputs(
    target: str, shape: tuple[int, ...], group: int, axis: int, scale: object, outputs: object
) -> None:
    n = Net()
    y = _deconvolved(n, scale, axis, shape, group)
    graph = n.done(y)
    plan = plan_from_graph(optimize(graph.copy()), target)
    step = steps(plan, "deconvolution")[0]
    assert plan.type(step.arg("weights")).dtype is DType.S8
    found = step.attr.scales["weights"] if target != "onednn-v2" else step.attr.output_scales
    of_source = 2**-6 if target == "onednn-v2" else 1
    assert found.values == pytest.approx(np.asarray(outputs) * of_source)
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)[y]
    for runtime in ("numpy", "auto"):
        (values,) = InferenceSession(plan, runtime, 1).run(None, feeds)
        assert boxes.outside(values) <= 1e-5


@pytest.mark.parametrize(("shape", "group"), [((4, 3, 3, 3), 2), ((4, 3, 3, 3), 1)])
def test_scales_that_differ_within_a_group_of_a_deconvolution(
    shape: tuple[int, ...], group: int
) -> None:
    n = Net()
    y = _deconvolved(n, [0.1, 0.2, 0.3, 0.3], 0, shape, group)
    plan = compiled(n, y)
    (refused,) = refusals(plan, "along another axis than the output channels")
    assert refused.found == "axis 0"
    assert ("each group" in refused.expected) == (group > 1)
    assert plan.type(steps(plan, "deconvolution")[0].arg("weights")).dtype is DType.F32


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2", "unified"])
@pytest.mark.parametrize("channels", [1, 5])
def test_a_bias_added_behind_a_deconvolution_is_its_bias(target: str, channels: int) -> None:
    """And a quantizer behind it, though it has a scale for each channel, is in the factors in front
    of the post-ops: nothing is left for these.
    """
    n = Net()
    bias = np.linspace(-1.5, 2, 5).reshape(1, 5, 1, 1) if channels == 5 else np.full((1,) * 4, 0.75)
    y = n.op("Add", _deconvolved(n, 2.0**-7, 1, (4, 5, 3, 3), 1), bias)
    graph = n.done(n.q(y, np.linspace(0.5, 2.5, 5) / 256, axis=1, order="zp_first"))
    plan = plan_from_graph(optimize(graph.copy()), target)
    (step,) = steps(plan, "deconvolution")
    assert plan.constants[step.arg("bias")].shape == (5,)
    assert step.attr.post_ops == ()
    factors = step.attr.output_scales if target == "onednn-v2" else step.attr.scales["weights"]
    assert factors.mask == (2 if target == "onednn-v2" else 1)
    assert plan.type(step.output).dtype is DType.U8
    feeds = feeds_for(graph)
    (box,) = (run_boxes(graph, feeds, GRANTED)[name] for name in plan.outputs)
    for runtime in ("numpy", "auto"):
        (codes,) = InferenceSession(plan, runtime, 1).run(None, feeds)
        assert box.outside(codes) <= 0


@pytest.mark.parametrize("target", ["onednn-v3", "onednn-v2"])
def test_a_product_in_f32_whose_result_is_quantized_has_no_scales(target: str) -> None:
    n = Net()
    codes = n.qdq(n.op("Relu", _bare_source(n)), 0.5, 3)
    plan = compiled(n, n.conv(codes, 2), target=target)
    first, second = steps(plan, "convolution")
    assert plan.type(first.arg("src")).dtype is DType.F32
    assert plan.type(second.arg("src")).dtype is DType.U8
    assert first.attr == PrimitiveAttr(post_ops=first.attr.post_ops)
    assert second.attr.scales or second.attr.output_scales


def test_scales_of_groups_multiply_those_of_the_weights() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), [0.5, 0.5, 0.25, 0.25], 7, axis=1)
    step = compiled(n, n.conv(x, 4, group=2, scale=[1.0, 2.0, 4.0, 8.0])).steps[-1]
    assert step.attr.scales["src"].values == (1.0,)
    assert step.attr.scales["weights"].values == (0.5, 1.0, 1.0, 2.0)
    assert step.attr.zero_points["src"].values == (7,)


def test_output_scales_of_groups() -> None:
    """src * weights(g, oc) / dst, one for each output channel of the destination."""
    n = Net()
    x = n.qdq(n.input(("N", 4, 4, 4)), 0.5)
    y = n.conv(n.qdq(n.conv(x, 4, group=2, scale=[1.0, 2.0, 4.0, 8.0]), 4.0), 2)
    step = compiled(n, y, target="onednn-v2").steps[1]
    assert step.params["group"] == 2
    assert step.attr.output_scales == Scale((0.125, 0.25, 0.5, 1.0), 2)
    assert not step.attr.scales


def test_output_scales_and_the_bias_in_the_accumulators_domain() -> None:
    n = Net()
    x = n.qdq(n.input(("N", 3, 4, 4)), 0.5, 7)
    y = n.conv(n.qdq(n.conv(x, 2, scale=[0.25, 0.125], bias=[3.0, 5.0]), 2.0, 9), 2)
    step = compiled(n, y, target="onednn-v2").steps[1]
    assert step.attr.output_scales.values == (0.0625, 0.03125)
    assert step.attr.output_scales.mask == 2
    assert set(step.attr.scales) == set()
    assert {role: zero.values for role, zero in step.attr.zero_points.items()} == {
        "src": (7,),
        "dst": (9,),
    }


@pytest.mark.parametrize(("shape", "mask"), [(("N", 8), 2), (("N", 4, 8), 4)])
def test_the_channels_of_a_matrix_product_are_its_last_dimension(
    shape: tuple[str | int, ...], mask: int
) -> None:
    """And the scale of the codes behind it is part of its output scales: 0.5 * w / 0.25."""
    n = Net()
    scales = Quantization((0.5, 0.25, 0.125), (0.0,) * 3, 1)
    weights = n.dq(n.graph.add_constant("w", n.codes((8, 3))), scales)
    y = n.op("MatMul", n.qdq(n.input(shape), 0.5, 7), weights)
    plan = compiled(n, n.q(n.op("Relu", y), 0.25, 3), target="onednn-v2")
    (step,) = steps(plan, "matmul")
    assert step.attr.output_scales == Scale((1.0, 0.5, 0.25), mask)
    assert step.attr.zero_points["dst"].values == (3,)
    assert step.attr.post_ops == (Eltwise("relu"),)


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
    assert [
        fate.consumer for fate in plan.fate_records if fate.fate is DequantizeFate.WEIGHTS_SCALE
    ] == [
        first.origin[0],
        second.origin[0],
    ]


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


@pytest.mark.parametrize("zero", [0, -128, 3])
def test_padding_that_counts_keeps_signed_codes_signed(zero: int) -> None:
    """As u8 with 128 more they would have no code for padding, which is code 0. Codes from -128 on
    have one as u8 only; others never.
    """
    n = Net()
    x = n.qdq(n.input(("N", 16, 6, 6)), 2**-6, zero, DType.S8)
    average = n.op("AveragePool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1), count_include_pad=1)
    y = n.op(
        "Add",
        n.conv(x, 16, scale=2**-8),
        n.conv(n.qdq(average, 2**-6, zero, DType.S8), 16, 1, scale=2**-8),
    )
    graph = n.done(y)
    plan = plan_from_graph(optimize(graph.copy()))
    (pool,) = steps(plan, "pooling")
    assert plan.type(pool.output).dtype is {0: DType.S8, -128: DType.U8, 3: DType.F32}[zero]
    feeds = feeds_for(graph)
    boxes = run_boxes(graph, feeds, GRANTED)[y]
    for runtime in ("numpy", "auto"):
        (found,) = InferenceSession(plan, runtime, 1).run(None, feeds)
        assert boxes.outside(found) <= 1e-5
