"""Residual additions in every style."""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.types import DType, Quantization


def _block(n: Net, channels: int = 4) -> tuple[Value, Value]:
    """A quantized value and the convolution of what is computed from it."""
    x = n.qdq(n.input(("N", channels, 4, 4)), 2**-5, 128)
    skip = n.qdq(
        n.op("Relu", n.conv(x, channels, scale=2**-8, bias=n.rng.standard_normal(channels))), 2**-6
    )
    inner = n.qdq(n.op("Relu", n.conv(skip, channels, scale=2**-8)), 2**-6)
    return skip, n.conv(inner, channels, scale=2**-8, bias=n.rng.standard_normal(channels))


@case
def residual_onnxruntime(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Relu", n.op("Add", n.qdq(y, 2**-5, 128), skip)), 2**-5)


@case
def residual_nncf(n: Net) -> Value:
    skip, y = _block(n)
    return n.fq(n.op("Relu", n.op("Add", y, skip)), 0.0, 255 / 32)


@case
def residual_skip_first(n: Net) -> Value:
    skip, y = _block(n)
    return n.fq(n.op("Add", skip, y), -4.0, 127 / 32)


@case
def residual_identity(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 1)
    return n.qdq(n.op("Relu", n.op("Add", n.conv(x, 4, scale=2**-8), x)), 2**-5)


@case
def residual_float_skip(n: Net) -> Value:
    x = n.input(("N", 4, 4, 4))
    y = n.conv(n.qdq(x, 2**-6, 128), 4, scale=2**-8)
    return n.qdq(n.op("Relu", n.op("Add", y, x)), 2**-5)


@case
def residual_two_convolutions(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    return n.qdq(
        n.op(
            "Relu",
            n.op("Add", n.conv(x, 4, scale=2**-8), n.conv(x, 4, 1, scale=2**-8, bias=[1, 2, 3, 4])),
        ),
        2**-5,
    )


@case
def residual_two_convolutions_one_quantized(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    a = n.qdq(n.conv(x, 4, scale=2**-8), 2**-5, 128)
    return n.qdq(n.op("Relu", n.op("Add", a, n.conv(x, 4, 1, scale=2**-8))), 2**-5)


@case
def residual_three_way(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    a, b = n.conv(x, 4, scale=2**-8), n.qdq(n.conv(x, 4, 1, scale=2**-8), 2**-5, 120)
    c = n.qdq(n.conv(x, 4, 1, scale=2**-7), 2**-4, -3, DType.S8)
    return n.qdq(n.op("Relu", n.op("Add", n.op("Add", a, b), c)), 2**-5)


@case
def residual_add_behind_relu(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Add", n.op("Relu", y), skip), 2**-5)


@case
def residual_broadcast(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    pooled = n.qdq(n.op("GlobalAveragePool", x), 2**-6, 128)
    return n.qdq(n.op("Add", n.conv(x, 4, scale=2**-8), pooled), 2**-5, 128)


@case
def residual_skip_larger(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    pooled = n.conv(n.qdq(n.op("GlobalAveragePool", x), 2**-6, 128), 4, 1, scale=2**-8)
    return n.qdq(n.op("Add", pooled, x), 2**-5, 128)


@case
def residual_s8_skip_into_u8(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    skip = n.qdq(n.conv(x, 4, scale=2**-8), 2**-5, -7, DType.S8)
    return n.qdq(
        n.op("Relu", n.op("Add", n.conv(n.qdq(skip, 2**-5, 128), 4, scale=2**-8), skip)), 2**-5
    )


@case
def residual_skip_read_later(n: Net) -> tuple[Value, ...]:
    skip, y = _block(n)
    total = n.qdq(n.op("Relu", n.op("Add", y, skip)), 2**-5)
    return n.op("Add", n.conv(total, 4, scale=2**-8), skip), n.op("Sigmoid", skip)


@case
def residual_skip_is_input(n: Net) -> Value:
    quant = Quantization((2**-6,), (3.0,))
    x = n.dq(n.input(("N", 4, 4, 4), dtype=DType.U8, quant=quant))
    return n.qdq(n.op("Add", n.conv(x, 4, scale=2**-8), x), 2**-5, 128)


@case
def residual_skip_is_output(n: Net) -> tuple[Value, ...]:
    skip, y = _block(n)
    return n.qdq(n.op("Add", y, skip), 2**-5, 128), skip


@case
def residual_codes_are_output(n: Net) -> tuple[Value, ...]:
    skip, y = _block(n)
    codes = n.graph.producer(skip).inputs[0]  # type: ignore[union-attr]
    return n.qdq(n.op("Add", y, skip), 2**-5, 128), codes


@case
def residual_subtracted(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Sub", y, skip), 2**-5, 128)


@case
def residual_subtracted_from_skip(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Sub", skip, y), 2**-5, 128)


@case
def residual_scaled(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Mul", n.op("Relu", n.op("Add", y, skip)), 0.75), 2**-5)


@case
def residual_scaled_negative(n: Net) -> Value:
    skip, y = _block(n)
    return n.qdq(n.op("Mul", n.op("Relu", n.op("Add", y, skip)), -0.75), 2**-5, 128)


@case
def add_to_itself(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    y = n.conv(x, 4, scale=2**-8)
    return n.qdq(n.op("Add", y, y), 2**-5, 128)


@case
def add_of_quantized_values(n: Net) -> Value:
    a, b = (
        n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 3),
        n.qdq(n.input(("N", 4, 4, 4)), 2**-5, -9, DType.S8),
    )
    return n.qdq(n.op("Relu", n.op("Add", a, b)), 2**-5)


@case
def mul_of_quantized_values(n: Net) -> Value:
    a, b = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 3), n.qdq(n.input(("N", 4, 1, 1)), 2**-5)
    return n.qdq(n.op("Mul", a, b), 2**-5, 128)


@case
def operands_of_codes_with_a_scale_for_each_channel(n: Net) -> tuple[Value, ...]:
    """As factors on every target, as terms where the target scales operands."""
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)

    def other(zero: int) -> Value:
        scales, zeros = [0.01, 0.02, 0.03, 0.015], [zero, 2 * zero, 0, 3 * zero]
        return n.qdq(n.input(("N", 4, 4, 4)), scales, zeros, DType.S8, axis=1)

    product = n.op("Relu", n.op("Mul", n.conv(x, 4, scale=2**-8), other(0)))
    ratio = n.op("Div", other(0), n.op("Exp", n.conv(x, 4, scale=2**-10)))
    term = n.qdq(n.op("Add", n.conv(x, 4, scale=2**-8), other(5)), 2**-4, 128)
    difference = n.op("Sub", other(-7), n.conv(x, 4, scale=2**-8))
    factors = n.const(np.asarray([2, 0.5, 1, -1]).reshape(1, 4, 1, 1), "k")
    return product, ratio, term, n.op("Mul", difference, factors)
