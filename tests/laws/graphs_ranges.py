"""FakeQuantize in every form, and quantizers in every place."""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.decision import Quantizer
from fqfuse.ir.types import DType, Quantization


def _levels(levels: int) -> None:
    def build(n: Net) -> Value:
        x = n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0, levels=levels)
        return n.fq(n.op("Relu", n.conv(x, 4, style="fq")), 0.0, 4.0, levels=levels)

    build.__name__ = f"levels_{levels}"
    case(build)


for _count in (2, 3, 15, 16, 127, 255, 256, 257):
    _levels(_count)


def _range(
    name: str,
    low: float,
    high: float,
    out_low: float | None = None,
    out_high: float | None = None,
    levels: int = 256,
) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.input(("N", 3, 4, 4))
        alone = n.fq(x, low, high, out_low, out_high, levels)
        behind = n.fq(
            n.conv(n.qdq(x, 2**-6, 128), 4, scale=2**-8), low, high, out_low, out_high, levels
        )
        return n.conv(alone, 2, 1, style="fq"), behind

    build.__name__ = f"range_{name}"
    case(build)


_range("symmetric_256_fractional_zero_point", -1.0, 1.0)
_range("zero_point_off_by_rounding", -106.00001 / 64, (255 - 106.00001) / 64)
_range("shift_too_small_to_matter", -1e-7, 4.0)
_range("without_zero", 0.5, 3.5)
_range("far_from_zero", 1000.0, 1001.0)
_range("inverted", 2.0, -2.0)
_range("threshold", 0.5, 0.5, 0.0, 1.0, 2)
_range("constant_output", -1.0, 1.0, 0.25, 0.25)
_range("inverted_output", -1.0, 1.0, 1.0, -1.0)
_range("binary", -1.0, 1.0, levels=2)
_range("codes_u8", -1.0, 1 - 1 / 128, 0.0, 255.0)
_range("codes_s8", -1.0, 1 - 1 / 128, -128.0, 127.0)
_range("codes_s8_odd", -1.0, 1 - 1 / 128, -127.0, 127.0, 255)
_range("codes_15_levels", -1.0, 1.0, -7.0, 7.0, 15)
_range("output_differs", -1.0, 1.0, 0.0, 3.0)


_range("farther_from_zero_than_f32_can_tell", 1e6, 1e6 + 1)
_range("below_normal_f32", 0.0, 1e-37)


@case
def range_far_from_zero_in_a_product(n: Net) -> Value:
    return n.op(
        "Relu", n.op("MatMul", n.fq(n.input(("N", 64)), 4000.0, 4001.0), n.weights((64, 3), 0.01))
    )


@case
def range_per_channel_output(n: Net) -> Value:
    out = np.array([1, 2, 3.0]).reshape(1, 3, 1, 1)
    return n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0, -out, out), 2, 1, style="fq")


@case
def range_along_width(n: Net) -> Value:
    return n.op("Relu", n.fq(n.input(("N", 3, 4, 4)), 0.0, np.array([1, 2, 3, 4.0])))


@case
def range_along_two_axes(n: Net) -> Value:
    return n.op("Relu", n.fq(n.input(("N", 2, 2, 4)), 0.0, n.rng.uniform(1, 2, (2, 2, 1))))


@case
def range_shared_constants(n: Net) -> Value:
    x = n.input(("N", 3, 4, 4))
    a = n.fq(x, -1.0, 1 - 1 / 128)
    ranges = n.graph.producer(a).inputs[1:]  # type: ignore[union-attr]
    y = n.conv(a, 3, style="fq")
    n.graph.quantizers["shared"] = Quantizer("shared", "FakeQuantize", y)
    return n.graph.add(
        "FakeQuantize",
        [y, *ranges],
        {"levels": 256},
        name="shared",
        outputs=["shared_y"],
        origin=["shared"],
        quantizer=["shared"],
    ).output


@case
def range_one_channel_inverted(n: Net) -> Value:
    low, high = (np.array(v).reshape(1, 3, 1, 1) for v in ([-1, 1, -1.0], [1, -1, 2.0]))
    return n.op("Relu", n.fq(n.input(("N", 3, 4, 4)), low, high, -1.0, 1.0))


@case
def quantized_twice_in_a_row(n: Net) -> Value:
    y = n.conv(n.fq(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0), -2.0, 127 / 64), 4, style="fq")
    return n.fq(n.fq(y, -4.0, 127 / 32), 0.0, 255 / 128)


@case
def quantized_twice_alike(n: Net) -> tuple[Value, ...]:
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0), 4, style="fq"))
    a, b = n.fq(y, 0.0, 255 / 64), n.fq(y, 0.0, 255 / 64)
    return n.conv(a, 2, style="fq"), n.conv(b, 2, 1, style="fq")


@case
def quantized_twice_differently(n: Net) -> tuple[Value, ...]:
    y = n.op("Relu", n.conv(n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0), 4, style="fq"))
    return n.conv(n.fq(y, 0.0, 255 / 64), 2, style="fq"), n.conv(
        n.fq(y, 0.0, 255 / 128), 2, 1, style="fq"
    )


@case
def quantized_values_are_outputs(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3)
    y = n.fq(n.op("Relu", n.conv(x, 4, scale=2**-8)), 0.0, 255 / 64)
    codes = n.q(n.conv(y, 2, scale=2**-8), 2**-5, 128)
    return x, y, codes


@case
def several_readers(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, scale=2**-8)), 2**-6)
    return (
        n.conv(x, 2),
        n.op("Softmax", x, axis=1),
        n.op("Sigmoid", x),
        n.op("MaxPool", x, kernel_shape=(2, 2)),
    )


@case
def decoded_for_two_float_readers(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, scale=2**-8), 2**-6, 128)
    return n.op("Softmax", x, axis=1), n.op("LayerNormalization", x, np.ones(4), np.zeros(4))


@case
def quantized_constant(n: Net) -> tuple[Value, ...]:
    c = n.qdq(n.const(n.rng.standard_normal((1, 3, 4, 4))), 2**-6, 100)
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3)
    return n.qdq(n.op("Add", x, c), 2**-5, 128), n.op("Relu", c)


@case
def sixteen_bits(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-12, 30000, DType.U16)
    return n.qdq(n.op("Relu", n.conv(x, 4)), 2**-10, 0, DType.S16)


@case
def sixteen_bits_that_move(n: Net) -> tuple[Value, ...]:
    def quantized(x: Value, zero: int = 30001) -> Value:
        return n.qdq(x, 2**-10, zero, DType.U16)

    y = quantized(n.op("Relu", n.conv(quantized(n.input(("N", 3, 4, 4))), 4)), 0)
    moved = quantized(
        n.op("Transpose", quantized(n.op("Reshape", y, n.ints(0, 4, -1)), 0), perm=(0, 2, 1)), 0
    )
    joined = quantized(
        n.op(
            "Concat",
            n.op("MaxPool", y, kernel_shape=(2, 2)),
            n.op("AveragePool", y, kernel_shape=(2, 2)),
            axis=1,
        )
    )
    return (
        n.op("MatMul", moved, n.weights((4, 3))),
        joined,
        n.q(n.op("Transpose", joined, perm=(0, 2, 3, 1)), 0.003, 7, DType.U16),
    )


@case
def narrow_codes(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 0, DType.S8, low=-127)
    y = n.qdq(
        n.conv(x, 4, scale=2**-8, bias=[1, -1, 2, -2]), 2**-6, 3, DType.S8, low=-127, high=100
    )
    return n.conv(n.op("MaxPool", y, kernel_shape=(2, 2)), 2)


@case
def four_bits(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-2, 3, low=0, high=15)
    w = n.dq(
        n.graph.add_constant("w", n.codes((4, 3, 3, 3), -8, 7), DType.S4), Quantization((2**-4,))
    )
    return n.qdq(n.op("Relu", n.conv(x, 4, weights=w)), 2**-1, 0, low=0, high=15)


@case
def ranges_along_two_axes(n: Net) -> tuple[Value, ...]:
    """As binary operations with tensors, behind a convolution and alone."""
    low = -np.linspace(0.5, 2, 16).reshape(4, 1, 4)
    x = n.input(("N", 4, 4, 4))
    y = n.fq(n.conv(n.qdq(x, 2**-6, 128), 4, scale=2**-8), low, -0.75 * low)
    return y, n.fq(x, low, -low, -1.0, 1.0, levels=16)


@case
def zero_points_that_are_no_integers_in_sums_and_means(n: Net) -> tuple[Value, ...]:
    """A shift behind the sum or mean: one for both."""
    x = n.fq(n.input(("N", 4, 4, 4)), -1.0, 1.0)
    y = n.fq(n.op("Relu", n.input(("N", 4, 4, 4))), -1e-6, 2.0)
    mean = n.fq(n.op("AveragePool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1)), -0.5, 0.5)
    total = n.fq(n.op("Add", x, y), -1.5, 3.0)
    return n.conv(mean, 2, 1, style="fq"), n.conv(total, 2, style="fq"), n.op("Sub", x, y)


@case
def ranges_that_are_fed(n: Net) -> tuple[Value, ...]:
    """In front of products and of other operations, one range, one for each channel, behind another
    one that is computed.
    """
    x = n.input(("N", 3, 4, 4))
    low, high, other = n.input(()), n.input((1,)), n.input((1, 1, 1))
    y = n.fq(x, low, high, other, high)
    channels = n.fq(y, n.input((3, 1, 1)), high, levels=16)
    padded, grouped = (
        n.conv(y, 4, scale=2**-8, bias=[1, -1, 2, -2]),
        n.conv(y, 3, group=3, pads=(0,) * 4),
    )
    again = n.fq(n.op("Relu", padded), 0.0, n.op("Add", n.op("Abs", high), 0.5))
    return n.op("Relu", channels), n.q(grouped, 2**-4, 128), n.conv(again, 2, 1), n.op("Sigmoid", y)


@case
def ranges_that_are_fed_in_front_of_matrix_products(n: Net) -> tuple[Value, ...]:
    x, ends = n.input(("N", 5, 8)), [n.input(()) for _ in range(4)]
    y = n.fq(x, *ends, levels=255)
    two = n.fq(x, *ends, levels=2)
    rows = n.fq(x, n.input((1, 5, 1)), 1.0, n.input((8,)), ends[0])
    columns = n.weights((8, 4), 2**-7 * np.arange(1, 5), 1)
    return n.op("Add", n.op("MatMul", y, columns), 0.5), n.op("MatMul", two, columns), rows
