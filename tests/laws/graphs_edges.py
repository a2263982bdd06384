"""What was wrong once, or is easily got wrong: odd shapes, bounds, orders of operands, factors of
either sign.
"""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.types import DType, Quantization


def _conv(n: Net, zero: int = 0, channels: int = 4) -> Value:
    return n.conv(
        n.qdq(n.input(("N", 3, 4, 4)), 2**-6, zero),
        channels,
        scale=2**-8,
        bias=np.arange(channels) / 4 - 0.5,
    )


@case
def max_of_codes_times_negative(n: Net) -> tuple[Value, ...]:
    """max(a, b)*s = max(a*s, b*s) for s > 0 only."""
    a, b = (n.qdq(n.input(("N", 3, 4, 4)), scale, 0, DType.S8) for scale in (2**-6, 2**-5))
    low = n.qdq(n.op("Mul", n.op("Min", a, b), -0.5), 2**-6, 100)
    return (
        n.qdq(n.op("Neg", n.op("Max", a, b)), 2**-6, 100),
        low,
        n.conv(n.qdq(n.op("Max", a, b), -(2**-6), 100), 2),
    )


@case
def add_of_codes_times_negative(n: Net) -> Value:
    a, b = (n.qdq(n.input(("N", 3, 4, 4)), scale, 7) for scale in (2**-6, 2**-5))
    return n.conv(n.qdq(n.op("Mul", n.op("Sub", a, b), -0.5), 2**-6, 100), 2)


@case
def prelu_reads_codes_twice(n: Net) -> tuple[Value, ...]:
    x = n.qdq(_conv(n), 2**-6, 128)
    return n.op("PRelu", x, np.array([0.5, 0.25, 2, 1]).reshape(4, 1, 1)), n.op("PRelu", x, 0.3)


@case
def clip_with_odd_bounds(n: Net) -> tuple[Value, ...]:
    x = _conv(n)
    turned, none = n.op("Clip", x, 1.0, -1.0), n.op("Clip", _conv(n), "", "")
    per_channel = n.op("Max", _conv(n), np.array([-0.1, 0, 0.1, 0.2]).reshape(1, 4, 1, 1))
    per_channel = n.op("Min", per_channel, np.array([1, 0.5, 0.2, 0.3]).reshape(1, 4, 1, 1))
    return (
        n.qdq(turned, 2**-6, 128),
        n.qdq(none, 2**-6, 128),
        n.conv(n.qdq(per_channel, 2**-6, 128), 2),
    )


@case
def constants_along_other_axes(n: Net) -> tuple[Value, ...]:
    spatial = n.op(
        "Add",
        n.op("Mul", _conv(n), n.rng.standard_normal((1, 1, 4, 4))),
        n.rng.standard_normal((4, 4)),
    )
    full = n.op("Add", _conv(n), n.rng.standard_normal((1, 4, 4, 4)))
    # as many entries as channels, and another axis
    along_width = n.op("Mul", _conv(n), [1, 2, 0.5, 0.25])
    return (
        n.qdq(spatial, 2**-6, 128),
        n.qdq(full, 2**-6, 128),
        n.conv(n.qdq(along_width, 2**-6, 128), 2),
    )


@case
def constants_that_enlarge(n: Net) -> tuple[Value, ...]:
    x = n.conv(n.qdq(n.input((1, 3, 4, 4)), 2**-6), 4, scale=2**-8)
    y = n.conv(n.qdq(n.input((1, 3, 4, 4)), 2**-6), 4, scale=2**-8)
    return n.qdq(n.op("Add", x, n.rng.standard_normal((5, 4, 4, 4))), 2**-6, 128), n.op(
        "Relu", n.op("Add", y, np.ones((1, 1, 4, 1, 1)))
    )


@case
def constants_that_are_not_finite(n: Net) -> tuple[Value, ...]:
    return n.op("Min", _conv(n), np.float32(np.inf)), n.qdq(
        n.op("Max", _conv(n), -np.inf), 2**-6, 128
    )


@case
def the_chain_as_second_operand(n: Net) -> tuple[Value, ...]:
    over = n.op("Div", 1.0, n.op("Add", n.op("Abs", _conv(n)), 1.0))
    return (
        n.qdq(n.op("Sub", 1.0, _conv(n)), 2**-6, 128),
        n.qdq(over, 2**-6),
        n.op("Mul", 0.5, _conv(n)),
    )


@case
def operands_that_are_one_value(n: Net) -> tuple[Value, ...]:
    a, b, c = _conv(n), _conv(n), _conv(n)
    return (
        n.qdq(n.op("Mul", a, a), 2**-6),
        n.qdq(n.op("Sub", b, b), 2**-6, 7),
        n.qdq(n.op("Max", c, c), 2**-6, 7),
    )


@case
def operands_in_other_numbers(n: Net) -> tuple[Value, ...]:
    x = _conv(n)
    return (
        n.qdq(n.op("Max", x, 0.0, 0.5), 2**-6, 7),
        n.op("Sum", x),
        n.op("Sum", x, x, x),
        n.op("Mean", x, 0.5),
    )


@case
def powers(n: Net) -> tuple[Value, ...]:
    root = n.op("Pow", n.op("Add", n.op("Abs", _conv(n)), 0.5), 0.5)
    log = n.op("Log", n.op("Sqrt", n.op("Add", n.op("Abs", _conv(n)), 0.5)))
    return (
        n.qdq(n.op("Pow", _conv(n), 2.0), 2**-6),
        n.qdq(root, 2**-6),
        n.qdq(n.op("Pow", _conv(n), 3.0), 2**-6, 100),
        n.qdq(log, 2**-6, 100),
    )


@case
def skip_added_twice(n: Net) -> tuple[Value, ...]:
    skip = n.qdq(n.op("Relu", _conv(n)), 2**-6)
    once = n.op("Add", n.op("Add", n.conv(skip, 4, scale=2**-8), skip), skip)
    other = n.qdq(n.op("Relu", _conv(n)), 2**-6)
    a = n.qdq(n.op("Add", n.conv(other, 4, scale=2**-8), other), 2**-6, 128)
    return n.qdq(once, 2**-5, 128), n.qdq(n.op("Add", n.conv(a, 4, scale=2**-8), other), 2**-6, 128)


@case
def skip_by_the_op_sum(n: Net) -> Value:
    skip = n.qdq(n.op("Relu", _conv(n)), 2**-6)
    return n.qdq(n.op("Sum", n.conv(skip, 4, scale=2**-8), skip), 2**-5, 128)


@case
def skip_quantized_per_channel(n: Net) -> Value:
    skip = n.qdq(n.op("Relu", _conv(n)), np.array([1, 2, 3, 4]) * 2**-7, axis=1)
    return n.qdq(n.op("Add", _conv(n), skip), 2**-5, 128)


@case
def gate_of_a_second_convolution(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 1)
    return n.qdq(
        n.op("Mul", n.conv(x, 4, 1, scale=2**-7), n.op("Sigmoid", n.conv(x, 4, 1, scale=2**-7))),
        2**-6,
        100,
    )


@case
def quantized_along_the_batch(n: Net) -> Value:
    x = n.qdq(n.input((2, 4, 4, 4)), np.array([1, 2]) * 2**-7, axis=0)
    return n.qdq(n.op("Relu", n.conv(x, 4, scale=2**-8)), np.array([1, 2]) * 2**-6, axis=0)


@case
def quantized_per_channel_with_zero_points(n: Net) -> Value:
    low, high = (np.array(v).reshape(1, 4, 1, 1) for v in ([-0.1, -0.2, 0, -1.0], [1, 2, 3, 0.5]))
    return n.op("Sigmoid", n.fq(n.op("Relu", _conv(n)), low, high))


@case
def leaky_with_negative_slope_and_factor(n: Net) -> tuple[Value, ...]:
    y = n.op("Mul", n.op("LeakyRelu", _conv(n), alpha=-0.5), -2.0)
    return n.qdq(y, 2**-6, 100), n.qdq(
        n.op("Mul", n.op("LeakyRelu", _conv(n), alpha=-0.5), 2.0), 2**-6, 100
    )


@case
def pools_of_s8_and_with_ceil(n: Net) -> tuple[Value, ...]:
    x, window = (
        n.qdq(n.input(("N", 4, 5, 5)), 2**-6, 3, DType.S8),
        {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1},
    )
    a, b = (
        n.qdq(n.op("AveragePool", x, **window), 2**-6, 5, DType.S8),
        n.qdq(n.op("AveragePool", x, **window), 2**-6, 128),
    )
    return n.conv(a, 2, 1), n.conv(b, 2, 1), n.qdq(n.op("MaxPool", x, **window), 2**-6, 3, DType.S8)


@case
def spatial_sizes_are_symbols(n: Net) -> Value:
    x = n.qdq(n.input((2, 3, "N", "N")), 2**-6, 7)
    return n.qdq(
        n.op(
            "Conv", x, n.weights((4, 3, 3, 3), 2**-8, 0), kernel_shape=(3, 3), auto_pad="SAME_UPPER"
        ),
        2**-6,
        5,
    )


@case
def products_with_symbols_inside(n: Net) -> Value:
    a, b = n.qdq(n.input((2, 4, "N")), 2**-6, 7), n.qdq(n.input((2, "N", "N")), 2**-6, 7)
    return n.qdq(n.op("MatMul", a, b), 2**-4, 120)


@case
def products_with_batches(n: Net) -> tuple[Value, ...]:
    a, b = n.qdq(n.input((3, 4, 5)), 2**-6, 7), n.qdq(n.input((4, 5)), 2**-6, 7)
    y = n.op("Add", n.op("MatMul", a, n.weights((3, 5, 6), 2**-8)), np.arange(6) * 0.1)
    return n.qdq(y, 2**-4, 120), n.qdq(n.op("MatMul", b, n.weights((3, 5, 6), 2**-8)), 2**-4, 120)


@case
def weights_in_odd_forms(n: Net) -> tuple[Value, ...]:
    x = n.fq(n.input(("N", 3, 4, 4)), 0.0, 1.0)
    data = n.rng.standard_normal((2, 3, 1, 1))
    flat = np.array([1, 0.0]).reshape(2, 1, 1, 1)  # the range of one channel is zero
    codes = n.graph.add_constant("w", n.codes((4, 3, 1, 1), 0, 255, DType.U8))
    many = (
        n.fq(n.const(data), -1.0, 1.0, levels=2),
        n.fq(n.const(data), -1.0, 2.0),
        n.fq(n.const(data * flat), -flat, flat, levels=255),
        n.fq(n.const(data), -1.0, 1.0, levels=300),
        n.weights((4, 3, 1, 1), [0.01, 0.02, 0.03], 1),
        n.dq(codes, Quantization.of([0.01, 0.02, 0.03, 0.04], [120, 121, 128, 0], 0)),
        n.dq(codes, Quantization.of([0.01, 0.02, 0.03, 0.04], 128, 0)),
    )
    return tuple(n.conv(x, 2, 1, weights=weights) for weights in many)


@case
def an_empty_batch(n: Net) -> Value:
    return n.qdq(n.op("Relu", n.conv(n.qdq(n.input((0, 3, 4, 4)), 2**-6), 2)), 2**-6)


@case
def a_vector(n: Net) -> Value:
    return n.qdq(n.op("Relu", n.op("Mul", n.qdq(n.input((5,)), 2**-6), np.arange(5) + 1.0)), 2**-6)


@case
def a_number(n: Net) -> Value:
    return n.qdq(n.op("Relu", n.op("Mul", n.qdq(n.input(()), 2**-6), 2.0)), 2**-6)


@case
def decoded_values_scaled_per_channel(n: Net) -> tuple[Value, ...]:
    x = n.fq(n.input(("N", 3, 4, 4)), 0.0, 255 / 64, 0.0, 255.0)
    scaled = n.op("Mul", x, np.array([1 / 64, 1 / 32, 1 / 64]).reshape(1, 3, 1, 1))
    moved = n.op(
        "Mul", n.op("Add", n.op("Mul", n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128), 0.3), 0.1), 1.7
    )
    return n.conv(scaled, 2), n.conv(n.qdq(moved, 2**-6, 128), 2)


@case
def relu_into_s8_from_its_lowest_code(n: Net) -> Value:
    """A relu in front of a store whose zero point is the lowest code does nothing that the store
    does not.
    """
    return n.conv(n.qdq(n.op("Relu", _conv(n)), 2**-6, -128, DType.S8), 2)


@case
def rounded_to_integers(n: Net) -> Value:
    return n.qdq(n.op("Round", n.op("Relu", _conv(n, 1))), 1.0, 1)


@case
def float_anchors_with_quantizers_per_channel(n: Net) -> tuple[Value, ...]:
    """The scales of a quantizer in the chain go into f32 weights."""
    high = np.array([1, 2, 3, 4.0])
    shaped = high.reshape(1, 4, 1, 1)
    conv = n.op("Sigmoid", n.fq(n.conv(n.input(("N", 3, 4, 4)), 4, style="float"), -shaped, shaped))
    weights = n.weights((4, 2, 3, 3), 2**-7, style="float")
    y = n.op(
        "ConvTranspose",
        n.input(("N", 4, 4, 4)),
        weights,
        np.arange(4) / 4,
        kernel_shape=(3, 3),
        group=2,
    )
    deconv = n.op("Sigmoid", n.fq(y, -shaped, shaped))
    product = n.op(
        "Sigmoid",
        n.fq(
            n.op("MatMul", n.input(("N", 5)), n.weights((5, 4), 2**-7, style="float")), -high, high
        ),
    )
    return conv, deconv, product


@case
def requantized_along_another_axis(n: Net) -> Value:
    x = n.qdq(n.input((2, 3, 4)), [0.25, 0.5], axis=0)
    return n.qdq(x, [0.25, 0.5, 0.125], axis=1)


@case
def weights_that_are_added_too(n: Net) -> Value:
    """A constant behind Dequantize that a product takes as codes and an addition as values."""
    w = n.weights((4, 4), 2**-7)
    return n.op("Relu", n.op("Add", n.op("MatMul", n.qdq(n.input((4, 4)), 2**-6, 3), w), w))


@case
def part_of_a_split_is_quantized(n: Net) -> tuple[Value, ...]:
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, scale=2**-8))
    n.op("Split", y, name="split", outputs=2, axis=1, num_outputs=2)
    return n.conv(n.qdq("split_y", 2**-6), 2), n.op("Sigmoid", "split_y1")


@case
def codes_retyped_that_come_from_a_split(n: Net) -> Value:
    codes = n.q(n.input(("N", 4, 4)), 2**-5, 128)
    n.op("Split", codes, name="split", outputs=2, axis=1, num_outputs=2)
    a, b = (n.dq(part, Quantization((2**-5,), (128.0,))) for part in ("split_y", "split_y1"))
    return n.op("MatMul", n.op("Transpose", a, perm=(0, 2, 1)), b)


@case
def shift_that_keeps_a_divisor_from_zero(n: Net) -> Value:
    """Far below the step of the codes, and all that is there where the code is that of 0."""
    return n.op("Log", n.op("Add", n.qdq(n.op("Abs", n.input(("N", 8))), 0.5), 1e-7))
