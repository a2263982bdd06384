"""Convolutions with what stands around them."""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.types import DType, Quantization


@case
def conv_relu_fq(n: Net) -> Value:
    x = n.fq(n.input(("N", 4, 5, 5)), 0.0, 255 / 64)
    y = n.op(
        "Relu",
        n.conv(x, 6, scale=np.linspace(0.002, 0.01, 6), style="fq", bias=n.rng.standard_normal(6)),
    )
    return n.fq(y, 0.0, 255 / 32)


@case
def conv_relu_qdq(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 5, 5)), 2**-6, 3)
    y = n.op("Relu", n.conv(x, 6, scale=2**-8, bias=n.rng.standard_normal(6)))
    return n.qdq(y, 2**-5, 7)


@case
def conv_s8_odd_zero_point(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 5, 5)), 2**-5, -3, DType.S8)
    return n.qdq(n.conv(x, 4, scale=2**-7, bias=[0.5, 1.5, -2.5, 0.25]), 0.5, 5, DType.S8)


@case
def conv_without_quantizer_behind(n: Net) -> Value:
    return n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 127 / 128), 4, style="fq", bias=[1, 2, 3, 4])


@case
def conv_float_weights(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(n.conv(x, 4, style="float"), 2**-4, 128)


@case
def conv_strided_valid(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 7, 7)), 2**-6, 100)
    return n.qdq(n.conv(x, 4, 3, pads=(0, 0, 0, 0), strides=(2, 2)), 2**-4, 128)


@case
def conv_int32_bias(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    bias = n.dq(
        n.graph.add_constant("bias_codes", np.arange(-2, 2, dtype=np.int32) * 100),
        Quantization((2**-14,)),
    )
    return n.qdq(n.conv(x, 4, scale=2**-8, bias=bias), 2**-4)


@case
def conv_bias_at_run_time(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(n.conv(x, 4, bias=n.input((4,), "b")), 2**-4)


@case
def conv_shared_weights(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6)
    w = n.weights((4, 4, 3, 3), 2**-8, 0)
    y = n.qdq(n.conv(x, 4, weights=w), 2**-5, 128)
    return n.qdq(n.op("Relu", n.conv(y, 4, weights=w)), 2**-6), n.op("Identity", y)


@case
def conv_asymmetric_weights(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((4, 3, 1, 1), 0, 255, DType.U8))
    w = n.dq(codes, Quantization((2**-8,), (121.0,)))
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(n.conv(x, 4, 1, weights=w), 2**-4)


@case
def conv_u8_weights_zero_point_128(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((4, 3, 1, 1), 0, 255, DType.U8))
    w = n.dq(codes, Quantization((2**-8,), (128.0,)))
    return n.qdq(n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, 1, weights=w), 2**-4)


@case
def conv_grouped_per_channel_activations(n: Net) -> Value:
    scale = np.repeat([2**-6, 2**-5, 3 * 2**-7], 2)
    x = n.qdq(n.input(("N", 6, 4, 4)), scale, 0, axis=1)
    return n.qdq(n.conv(x, 6, group=3, scale=np.linspace(0.004, 0.01, 6)), 2**-4, 128)


@case
def conv_depthwise_per_channel_activations(n: Net) -> Value:
    x = n.fq(
        n.input(("N", 4, 4, 4)), np.zeros((1, 4, 1, 1)), np.array([1, 2, 3, 4]).reshape(1, 4, 1, 1)
    )
    return n.fq(n.conv(x, 4, group=4, style="fq", bias=[1, 2, 3, 4]), -4.0, 4.0)


@case
def conv_per_channel_activations(n: Net) -> Value:
    x = n.fq(
        n.input(("N", 4, 4, 4)), np.zeros((1, 4, 1, 1)), np.array([1, 2, 3, 4]).reshape(1, 4, 1, 1)
    )
    return n.fq(n.conv(x, 4, style="fq"), -4.0, 4.0)


@case
def conv_per_channel_destination(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6)
    high = np.array([1, 2, 3, 4.0]).reshape(1, 4, 1, 1)
    y = n.fq(n.op("Relu", n.conv(x, 4, bias=[1, -1, 0.5, 2])), np.zeros_like(high), high)
    return n.conv(y, 4, group=4)


@case
def conv_equal_per_channel_ranges(n: Net) -> Value:
    x = n.fq(n.input(("N", 4, 4, 4)), np.zeros((1, 4, 1, 1)), np.full((1, 4, 1, 1), 255 / 64))
    return n.fq(
        n.conv(x, 4, style="fq"), np.full((1, 4, 1, 1), -2.0), np.full((1, 4, 1, 1), 2 - 1 / 64)
    )


@case
def conv_transpose(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 12)
    w = n.weights((4, 3, 3, 3), [0.004, 0.006, 0.01], 1)
    y = n.op("ConvTranspose", x, w, [0.5, -1.0, 2.0], kernel_shape=(3, 3), strides=(2, 2))
    return n.qdq(n.op("Relu", y), 2**-5)


@case
def conv_transpose_grouped(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6)
    w = n.weights((4, 3, 3, 3), [0.004, 0.006, 0.01], 1)
    y = n.op("ConvTranspose", x, w, np.arange(6), kernel_shape=(3, 3), group=2)
    return n.qdq(n.op("Mul", y, np.linspace(0.5, 2, 6).reshape(1, 6, 1, 1)), 2**-4, 128)


@case
def conv_1d_and_3d(n: Net) -> tuple[Value, ...]:
    a = n.qdq(n.input(("N", 3, 8)), 2**-6)
    b = n.qdq(n.input(("N", 2, 3, 3, 3)), 2**-6)
    y = n.op("Conv", a, n.weights((4, 3, 3), 2**-8, 0), kernel_shape=(3,))
    z = n.op("Conv", b, n.weights((4, 2, 3, 3, 3), 2**-8, 0), kernel_shape=(3, 3, 3), pads=(1,) * 6)
    return n.qdq(n.op("Relu", y), 2**-5), n.qdq(z, 2**-5, 128)


@case
def conv_zero_point_that_is_no_integer(n: Net) -> tuple[Value, ...]:
    """Padding has no code, so that the bias varies with the position."""
    x = n.fq(n.input(("N", 4, "H", "W")), -1.0, 1.0)
    y = n.fq(n.op("Relu", n.conv(x, 8, scale=2**-8, bias=[0.25] * 8)), -1e-6, 4.0)
    depthwise = n.conv(y, 8, 5, group=8, strides=(2, 2), pads=(2, 1, 2, 3))
    w = n.weights((8, 4, 3, 3), 2**-8, 1)
    spread = n.op("ConvTranspose", y, w, strides=(2, 1), pads=(1, 0, 0, 1))
    return n.fq(depthwise, -2.0, 2.0), spread


@case
def conv_grouped_zero_point_that_is_no_integer(n: Net) -> tuple[Value, ...]:
    """One for all channels, whose scales differ between the groups."""
    high = np.asarray([1.0, 2.0, 0.5, 4.0]).reshape(1, 4, 1, 1)
    x = n.fq(n.input(("N", 4, 5, 6)), -high, high)
    padded = n.conv(x, 4, group=4, scale=[2**-8, 2**-7, 2**-9, 2**-8], bias=[1.0, 0.0, -1.0, 0.5])
    return padded, n.conv(x, 8, group=4, scale=2**-8, pads=(0, 0, 0, 0))
