"""Pooling and data movement; scales of either sign."""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.types import DType

# -- pooling and data movement ---------------------------------------------------------------------


@case
def max_pool(n: Net) -> Value:
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 6, 6)), 2**-6), 4, scale=2**-8)), 2**-6)
    return n.conv(n.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2)), 4, scale=2**-8)


@case
def max_pool_then_quantize(n: Net) -> Value:
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 6, 6)), 2**-6), 4, scale=2**-8))
    return n.qdq(
        n.op("MaxPool", y, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), 2**-6, 3
    )


@case
def max_pool_negative_scale(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 6, 6)), -(2**-6), 128)
    return n.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2))


@case
def average_pool(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 6, 6)), 2**-6, 5)
    padded = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    a = n.qdq(n.op("AveragePool", x, **padded), 2**-6, 9)
    b = n.qdq(n.op("AveragePool", x, **padded, count_include_pad=1), 2**-6, 9)
    return n.conv(a, 2, 1), n.conv(b, 2, 1), n.qdq(n.op("GlobalAveragePool", x), 2**-7, 128)


@case
def average_pool_into_float(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 6, 6)), 2**-6, 5)
    return n.op("Flatten", n.op("GlobalAveragePool", x))


@case
def reductions_over_spatial_axes(n: Net) -> tuple[Value, ...]:
    """A global average in front of a classifier, as PyTorch exports it; the same of a sequence, a
    volume, and channels that come last.
    """
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 6, 6)), 2**-6), 4, scale=2**-8)), 2**-6)
    mean = n.qdq(n.op("ReduceMean", x, n.ints(-1, -2), keepdims=0), 2**-6)
    top = n.qdq(n.op("ReduceMax", x, n.ints(2, 3)), 2**-6)
    sequence = n.op("ReduceMax", n.qdq(n.input((2, 3, 7)), 2**-6), n.ints(2), keepdims=0)
    volume = n.qdq(
        n.op("ReduceMean", n.qdq(n.input((2, 3, 4, 2, 3)), 2**-6), n.ints(4, 2, 3)), 2**-7
    )
    last = n.op("ReduceMean", n.qdq(n.input((2, 4, 5, 3)), 2**-6), n.ints(1, 2))
    return (
        n.op("MatMul", mean, n.weights((4, 5), 2**-8)),
        n.conv(top, 2, 1, scale=2**-8),
        sequence,
        volume,
        last,
    )


@case
def pad(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 5)
    pads = n.ints(0, 0, 1, 1, 0, 0, 1, 1)
    a, b, c = n.op("Pad", x, pads), n.op("Pad", x, pads, 0.5), n.op("Pad", x, pads, 0.3)
    return n.conv(a, 2, 3), n.conv(b, 2, 3), n.op("Relu", c), n.op("Pad", x, pads, mode="reflect")


@case
def pad_in_front_of_quantize(n: Net) -> Value:
    y = n.op(
        "Pad",
        n.op("Relu", n.conv(n.input(("N", 3, 4, 4)), 2, style="float")),
        n.ints(0, 0, 1, 1, 0, 0, 1, 1),
    )
    return n.qdq(y, 2**-6)


@case
def movement(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 5)
    y = n.op("Transpose", n.op("Reshape", x, n.ints(0, 2, 2, 4, 4)), perm=(0, 2, 1, 3, 4))
    y = n.op("Slice", n.op("Reshape", y, n.ints(0, 4, 4, 4)), n.ints(1), n.ints(3), n.ints(2))
    return n.qdq(n.op("Relu", n.conv(y, 2, 1)), 2**-5)


@case
def movement_in_front_of_quantize(n: Net) -> Value:
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4, scale=2**-8))
    y = n.op("DepthToSpace", n.op("Transpose", y, perm=(0, 1, 3, 2)), blocksize=2)
    return n.qdq(y, 2**-5, 1)


@case
def split(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 5)
    n.graph.add(
        "Split",
        [x],
        {"axis": 1, "num_outputs": 2},
        name="split",
        outputs=["part0", "part1"],
        origin=["split"],
        after_all=True,
    )
    return n.qdq(n.conv("part0", 2, 1), 2**-5, 128), n.op("Relu", "part1")


@case
def gather_and_squeeze(n: Net) -> Value:
    table = n.qdq(n.const(n.rng.standard_normal((7, 6))), 2**-5, 128)
    y = n.op("Gather", table, n.input(("N", 1), "ids", DType.S64))
    return n.op("MatMul", n.op("Squeeze", y, n.ints(1)), n.weights((6, 4), 2**-7))


@case
def resize_nearest(n: Net) -> Value:
    x = n.qdq(n.input(("N", 2, 3, 3)), 2**-6, 5)
    y = n.op(
        "Resize",
        x,
        "",
        [1, 1, 2, 2],
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return n.qdq(n.conv(y, 2), 2**-5, 128)


# -- signs of scales -------------------------------------------------------------------------------


@case
def relu_behind_negative_scale(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), -(2**-6), 0, DType.S8)
    return n.qdq(n.op("Relu", x), 2**-6)


@case
def relu_behind_codes(n: Net) -> tuple[Value, ...]:
    a = n.op("Relu", n.qdq(n.input(("N", 3, 4, 4)), 2**-6))
    b = n.op("Relu", n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 0, DType.S8))
    c = n.op("Relu", n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 9))
    return n.conv(a, 2), n.conv(b, 2), n.conv(c, 2)


@case
def negative_factor_behind_relu(n: Net) -> Value:
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4))
    return n.qdq(n.op("Mul", y, np.array([1, -1, 2, 0.5]).reshape(1, 4, 1, 1)), 2**-5, 128)


@case
def negative_factor_in_front_of_relu(n: Net) -> Value:
    y = n.op("Mul", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, bias=[1, 2, 3, 4]), -0.5)
    return n.qdq(n.op("Relu", y), 2**-6)


@case
def factors_beyond_f32(n: Net) -> tuple[Value, ...]:
    x = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, scale=2**-8)
    huge = n.op("Mul", n.op("Relu", n.op("Mul", n.op("Relu", n.op("Mul", x, 1e25)), 1e-25)), 1e25)
    tiny = n.op("Mul", n.op("Relu", n.op("Mul", n.op("Relu", n.op("Mul", x, 1e-25)), 1e25)), 1e-25)
    return (
        n.qdq(huge, 1e24),
        n.qdq(tiny, 1e-26),
        n.qdq(n.op("Mul", n.op("Mul", n.op("Abs", x), 1e25), 1e25), 2**-6),
    )


@case
def zero_factor(n: Net) -> Value:
    y = n.op(
        "Mul",
        n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4),
        np.array([1, 0, 2, 0.5]).reshape(1, 4, 1, 1),
    )
    return n.qdq(n.op("Relu", y), 2**-6)


@case
def negative_weight_scales(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(
        n.op("Relu", n.conv(x, 3, scale=[0.01, -0.01, 0.005], bias=[0.5, 0.5, 0.5])), 2**-6
    )


@case
def negative_destination_scale(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.conv(n.qdq(n.op("Relu", n.conv(x, 3, bias=[0.5, 0.5, 0.5])), -(2**-6), 255), 2)


@case
def scale_and_shift_behind_codes(n: Net) -> Value:
    x = n.fq(n.input(("N", 3, 4, 4)), -1.0, 1 - 1 / 128, 0.0, 255.0)
    y = n.op("Mul", n.op("Sub", x, 128.0), 2**-7)
    return n.qdq(n.conv(y, 2), 2**-4, 128)
