"""Small graphs, as the frontend imports them, over everything that quantizers write and that was ever got wrong.

`CORPUS` maps a name to a function that builds the graph anew. The batch is symbolic. Many scales are powers of two or multiples of 0.5, so
that ties are frequent with the feeds of `feeds_for`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from laws.build import Net, Value

from fqfuse.frontend import graph_from_onnx
from fqfuse.ir.decision import Quantizer
from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.models.digits import FORMS, digits_model_path

Build = Callable[[], Graph]

CORPUS: dict[str, Build] = {f"digits_{form}": (lambda form=form: graph_from_onnx(digits_model_path(form))) for form in FORMS}

SLOW = ("digits_f32", "digits_fakequantize", "digits_qdq")


def case(build: Callable[[Net], tuple[Value, ...] | Value]) -> Callable[[Net], tuple[Value, ...] | Value]:
    """Adds a graph to the corpus under the function's name."""

    def make() -> Graph:
        net = Net(build.__name__, seed=len(build.__name__))
        outputs = build(net)
        return net.done(*((outputs,) if isinstance(outputs, str) else outputs))

    CORPUS[build.__name__] = make
    return build


def feeds_for(graph: Graph, seed: int = 0, batch: int = 2) -> dict[str, np.ndarray]:
    """Feeds on which ties are frequent: half of the numbers are multiples of 1/32, the others are normally distributed."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for name in graph.inputs:
        kind = graph.type(name)
        assert kind.shape is not None
        shape = tuple(batch if isinstance(d, str) else d for d in kind.shape)
        if kind.dtype.is_integer:
            low, high = kind.dtype.range if kind.dtype in (DType.U8, DType.S8) else (0, 2)
            feeds[name] = rng.integers(low, high + 1, shape).astype(kind.dtype.numpy)
            continue
        normal = rng.standard_normal(shape) * 1.5
        feeds[name] = np.where(rng.random(shape) < 0.5, np.rint(normal * 32) / 32, normal).astype(np.float32)
    return feeds


# -- convolutions with what stands around them -------------------------------------------------------------------------------------


@case
def conv_relu_fq(n: Net) -> Value:
    x = n.fq(n.input(("N", 4, 5, 5)), 0.0, 255 / 64)
    y = n.op("Relu", n.conv(x, 6, scale=np.linspace(0.002, 0.01, 6), style="fq", bias=n.rng.standard_normal(6)))
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
    bias = n.dq(n.graph.add_constant("bias_codes", np.arange(-2, 2, dtype=np.int32) * 100), Quantization((2**-14,)))
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
    x = n.fq(n.input(("N", 4, 4, 4)), np.zeros((1, 4, 1, 1)), np.array([1, 2, 3, 4]).reshape(1, 4, 1, 1))
    return n.fq(n.conv(x, 4, group=4, style="fq", bias=[1, 2, 3, 4]), -4.0, 4.0)


@case
def conv_per_channel_activations(n: Net) -> Value:
    x = n.fq(n.input(("N", 4, 4, 4)), np.zeros((1, 4, 1, 1)), np.array([1, 2, 3, 4]).reshape(1, 4, 1, 1))
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
    return n.fq(n.conv(x, 4, style="fq"), np.full((1, 4, 1, 1), -2.0), np.full((1, 4, 1, 1), 2 - 1 / 64))


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


# -- residuals ---------------------------------------------------------------------------------------------------------------------


def _block(n: Net, channels: int = 4) -> tuple[Value, Value]:
    """A quantized value and the convolution of what is computed from it."""
    x = n.qdq(n.input(("N", channels, 4, 4)), 2**-5, 128)
    skip = n.qdq(n.op("Relu", n.conv(x, channels, scale=2**-8, bias=n.rng.standard_normal(channels))), 2**-6)
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
    return n.qdq(n.op("Relu", n.op("Add", n.conv(x, 4, scale=2**-8), n.conv(x, 4, 1, scale=2**-8, bias=[1, 2, 3, 4]))), 2**-5)


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
    return n.qdq(n.op("Relu", n.op("Add", n.conv(n.qdq(skip, 2**-5, 128), 4, scale=2**-8), skip)), 2**-5)


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
    a, b = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 3), n.qdq(n.input(("N", 4, 4, 4)), 2**-5, -9, DType.S8)
    return n.qdq(n.op("Relu", n.op("Add", a, b)), 2**-5)


@case
def mul_of_quantized_values(n: Net) -> Value:
    a, b = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 3), n.qdq(n.input(("N", 4, 1, 1)), 2**-5)
    return n.qdq(n.op("Mul", a, b), 2**-5, 128)


# -- concatenation -----------------------------------------------------------------------------------------------------------------


def _branches(n: Net, *quantizers: tuple[float, float, DType]) -> list[Value]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
    return [n.qdq(n.op("Relu", n.conv(x, 2 + i, scale=2**-8)), *quantizer) for i, quantizer in enumerate(quantizers)]


@case
def concat_equal(n: Net) -> Value:
    y = n.op("Concat", *_branches(n, (2**-6, 0, DType.U8), (2**-6, 0, DType.U8)), axis=1)
    return n.qdq(n.conv(y, 4, 1, scale=2**-8), 2**-5, 128)


@case
def concat_unequal(n: Net) -> Value:
    y = n.op("Concat", *_branches(n, (2**-6, 0, DType.U8), (2**-5, 3, DType.U8)), axis=1)
    return n.qdq(n.op("Relu", n.conv(y, 4, 1, scale=2**-8)), 2**-5)


@case
def concat_requantized(n: Net) -> Value:
    y = n.op("Concat", *_branches(n, (2**-6, 0, DType.U8), (2**-5, 0, DType.U8)), axis=1)
    return n.conv(n.qdq(y, 2**-5), 4, 1, scale=2**-8)


@case
def concat_signs_mixed(n: Net) -> Value:
    y = n.op("Concat", *_branches(n, (2**-6, 128, DType.U8), (2**-6, 0, DType.S8)), axis=1)
    return n.qdq(n.conv(y, 4, 1, scale=2**-8), 2**-5, 128)


@case
def concat_signs_mixed_and_moved(n: Net) -> Value:
    a, b = _branches(n, (2**-6, 128, DType.U8), (2**-5, -1, DType.S8))
    y = n.op("Concat", a, n.op("Transpose", b, perm=(0, 1, 3, 2)), axis=1)
    return n.qdq(n.conv(y, 4, 1, scale=2**-8), 2**-5, 128)


@case
def concat_input_read_elsewhere(n: Net) -> tuple[Value, ...]:
    a, b = _branches(n, (2**-6, 0, DType.U8), (2**-5, 0, DType.U8))
    y = n.qdq(n.op("Concat", a, b, axis=1), 2**-5)
    return n.conv(y, 4, 1, scale=2**-8), n.conv(a, 3, 1, scale=2**-8)


@case
def concat_dense_block(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6, 128)
    for _ in range(2):
        y = n.qdq(n.op("Relu", n.conv(x, 2, scale=2**-8)), 2**-6)
        x = n.qdq(n.op("Concat", x, y, axis=1), 2**-5, 100)
    return n.conv(x, 4, 1, scale=2**-8)


@case
def concat_with_float(n: Net) -> Value:
    (a,) = _branches(n, (2**-6, 0, DType.U8))
    return n.op("Concat", a, n.input(("N", 2, 4, 4), "z"), axis=1)


@case
def concat_of_itself(n: Net) -> Value:
    (a,) = _branches(n, (2**-6, 0, DType.U8))
    return n.conv(n.qdq(n.op("Concat", a, a, axis=1), 2**-6), 2, 1, scale=2**-8)


@case
def concat_along_batch_and_width(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
    a, b = n.qdq(n.conv(x, 2, scale=2**-8), 2**-6, 128), n.qdq(n.conv(x, 2, scale=2**-7), 2**-5, 128)
    wide = n.op("Concat", a, b, axis=-1)
    return n.conv(wide, 2, 1, scale=2**-8), n.op("Concat", a, b, axis=0)


# -- matrix products ---------------------------------------------------------------------------------------------------------------


@case
def gemm_transposed(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    w = n.weights((5, 8), np.linspace(0.004, 0.02, 5), 0)
    return n.op("Gemm", x, w, np.arange(5) * 0.25, transB=1)


@case
def gemm_alpha_beta(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(n.op("Gemm", x, n.weights((8, 5), 2**-7, style="fq"), np.arange(5), alpha=0.5, beta=-1.5), 2**-5, 128)


@case
def gemm_transposed_input(n: Net) -> Value:
    x = n.qdq(n.input((8, "N")), 2**-6, 3)
    return n.op("Relu", n.op("Gemm", x, n.weights((8, 5), 2**-7), transA=1))


@case
def gemm_addend_at_run_time(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.op("Gemm", x, n.weights((8, 5), 2**-7), n.input((5,), "c0"), beta=2.0)


@case
def matmul_bias_relu(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-6, 3)
    y = n.op("Add", n.op("MatMul", x, n.weights((8, 5), np.linspace(0.004, 0.02, 5), 1)), np.arange(5) * 0.5)
    return n.qdq(n.op("Relu", y), 2**-5)


@case
def matmul_quantizer_before_bias(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-6, 3)
    y = n.op("Add", n.qdq(n.op("MatMul", x, n.weights((8, 5), 2**-7)), 2**-5, 117), np.arange(5) * 0.5)
    return n.qdq(y, 2**-4, 121)


@case
def matmul_asymmetric_weights(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((8, 5), 0, 255, DType.U8))
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(n.op("MatMul", x, n.dq(codes, Quantization((2**-7,), (117.0,)))), 2**-4, 128)


@case
def matmul_weights_first(n: Net) -> Value:
    return n.qdq(n.op("MatMul", n.weights((5, 8), 2**-7), n.qdq(n.input(("N", 8, 3)), 2**-6, 3)), 2**-4, 128)


@case
def matmul_negative_per_channel(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    y = n.op("Mul", n.op("MatMul", x, n.weights((8, 3), 2**-7)), [1.0, -2.0, 0.5])
    return n.qdq(n.op("Relu", y), 2**-5)


@case
def matmul_of_vectors(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(n.op("MatMul", x, n.weights((8,), 2**-7)), 2**-4, 128), n.op("MatMul", n.weights((6,), 2**-7), n.input((6, 4), "z"))


@case
def attention(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-5, 128)
    heads = []
    for _ in range(3):
        y = n.qdq(n.op("Add", n.op("MatMul", x, n.weights((8, 8), 2**-8)), n.rng.standard_normal(8)), 2**-5, 128)
        heads.append(n.op("Transpose", n.op("Reshape", y, n.ints(0, 6, 2, 4)), perm=(0, 2, 1, 3)))
    query, key, value = heads
    scores = n.op("Div", n.op("MatMul", query, n.op("Transpose", key, perm=(0, 1, 3, 2))), 2.0)
    mask = np.where(np.tri(6), 0, -10.0).reshape(1, 1, 6, 6)
    weights = n.qdq(n.op("Softmax", n.op("Add", n.qdq(scores, 2**-4, 128), mask)), 2**-8)
    mixed = n.op("Reshape", n.op("Transpose", n.op("MatMul", weights, value), perm=(0, 2, 1, 3)), n.ints(0, 6, 8))
    y = n.op("MatMul", n.qdq(mixed, 2**-5, 128), n.weights((8, 8), 2**-8))
    y = n.op("LayerNormalization", n.op("Add", y, x), np.linspace(0.5, 1.5, 8), np.linspace(-1, 1, 8))
    return n.qdq(y, 2**-5, 128)


# -- normalization -----------------------------------------------------------------------------------------------------------------


def _bn(n: Net, x: Value, channels: int, gamma: np.ndarray | None = None) -> Value:
    scale = n.rng.uniform(0.5, 2, channels) if gamma is None else gamma
    bias, mean = n.rng.standard_normal(channels), n.rng.standard_normal(channels)
    return n.op("BatchNormalization", x, scale, bias, mean, n.rng.uniform(0.5, 2, channels))


@case
def batch_norm_behind_conv(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(n.op("Relu", _bn(n, n.conv(x, 4, scale=2**-8), 4, np.array([1, -2, 0.5, 1.5]))), 2**-5)


@case
def batch_norm_float(n: Net) -> Value:
    return n.op("Relu", _bn(n, n.conv(n.input(("N", 3, 4, 4)), 4, style="float", bias=[1, 2, 3, 4]), 4))


@case
def batch_norm_of_input(n: Net) -> Value:
    return n.qdq(n.conv(n.qdq(_bn(n, n.input(("N", 3, 4, 4)), 3), 2**-5, 128), 4), 2**-4, 128)


@case
def batch_norm_gamma_zero(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(_bn(n, n.conv(x, 4, scale=2**-8), 4, np.array([0, 1, 0, 1.0])), 2**-5)


@case
def batch_norm_behind_conv_transpose(n: Net) -> Value:
    x = n.qdq(n.input(("N", 4, 4, 4)), 2**-6)
    y = n.op("ConvTranspose", x, n.weights((4, 2, 3, 3), [0.004, 0.006], 1, "fq"), kernel_shape=(3, 3), group=2)
    return n.qdq(_bn(n, y, 4), 2**-5, 128)


@case
def batch_norm_bias_at_run_time(n: Net) -> Value:
    y = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, bias=n.input((4,), "b"))
    return n.op("Relu", _bn(n, y, 4))


@case
def batch_norm_read_by_two(n: Net) -> tuple[Value, ...]:
    y = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4)
    return n.op("Relu", _bn(n, y, 4)), n.op("Sigmoid", y)


@case
def layer_norm_softmax(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-5, 128)
    y = n.op("LayerNormalization", x, np.ones(8), np.zeros(8))
    return n.qdq(n.op("Softmax", n.qdq(y, 2**-5, 128)), 2**-8)


# -- pooling and data movement -----------------------------------------------------------------------------------------------------


@case
def max_pool(n: Net) -> Value:
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 6, 6)), 2**-6), 4, scale=2**-8)), 2**-6)
    return n.conv(n.op("MaxPool", x, kernel_shape=(2, 2), strides=(2, 2)), 4, scale=2**-8)


@case
def max_pool_then_quantize(n: Net) -> Value:
    y = n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 6, 6)), 2**-6), 4, scale=2**-8))
    return n.qdq(n.op("MaxPool", y, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)), 2**-6, 3)


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
def pad(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 5)
    pads = n.ints(0, 0, 1, 1, 0, 0, 1, 1)
    a, b, c = n.op("Pad", x, pads), n.op("Pad", x, pads, 0.5), n.op("Pad", x, pads, 0.3)
    return n.conv(a, 2, 3), n.conv(b, 2, 3), n.op("Relu", c), n.op("Pad", x, pads, mode="reflect")


@case
def pad_in_front_of_quantize(n: Net) -> Value:
    y = n.op("Pad", n.op("Relu", n.conv(n.input(("N", 3, 4, 4)), 2, style="float")), n.ints(0, 0, 1, 1, 0, 0, 1, 1))
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
    n.graph.add("Split", [x], {"axis": 1, "num_outputs": 2}, name="split", outputs=["part0", "part1"], origin=["split"], after_all=True)
    return n.qdq(n.conv("part0", 2, 1), 2**-5, 128), n.op("Relu", "part1")


@case
def gather_and_squeeze(n: Net) -> Value:
    table = n.qdq(n.const(n.rng.standard_normal((7, 6))), 2**-5, 128)
    y = n.op("Gather", table, n.input(("N", 1), "ids", DType.S64))
    return n.op("MatMul", n.op("Squeeze", y, n.ints(1)), n.weights((6, 4), 2**-7))


@case
def resize_nearest(n: Net) -> Value:
    x = n.qdq(n.input(("N", 2, 3, 3)), 2**-6, 5)
    y = n.op("Resize", x, "", [1, 1, 2, 2], coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    return n.qdq(n.conv(y, 2), 2**-5, 128)


# -- signs of scales ---------------------------------------------------------------------------------------------------------------


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
    return n.qdq(huge, 1e24), n.qdq(tiny, 1e-26), n.qdq(n.op("Mul", n.op("Mul", n.op("Abs", x), 1e25), 1e25), 2**-6)


@case
def zero_factor(n: Net) -> Value:
    y = n.op("Mul", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4), np.array([1, 0, 2, 0.5]).reshape(1, 4, 1, 1))
    return n.qdq(n.op("Relu", y), 2**-6)


@case
def negative_weight_scales(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(n.op("Relu", n.conv(x, 3, scale=[0.01, -0.01, 0.005], bias=[0.5, 0.5, 0.5])), 2**-6)


@case
def negative_destination_scale(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.conv(n.qdq(n.op("Relu", n.conv(x, 3, bias=[0.5, 0.5, 0.5])), -(2**-6), 255), 2)


@case
def scale_and_shift_behind_codes(n: Net) -> Value:
    x = n.fq(n.input(("N", 3, 4, 4)), -1.0, 1 - 1 / 128, 0.0, 255.0)
    y = n.op("Mul", n.op("Sub", x, 128.0), 2**-7)
    return n.qdq(n.conv(y, 2), 2**-4, 128)


# -- FakeQuantize in every form ----------------------------------------------------------------------------------------------------


def _levels(levels: int) -> None:
    def build(n: Net) -> Value:
        x = n.fq(n.input(("N", 3, 4, 4)), -1.0, 1.0, levels=levels)
        return n.fq(n.op("Relu", n.conv(x, 4, style="fq")), 0.0, 4.0, levels=levels)

    build.__name__ = f"levels_{levels}"
    case(build)


for _count in (2, 3, 15, 16, 127, 255, 256, 257):
    _levels(_count)


def _range(name: str, low: float, high: float, out_low: float | None = None, out_high: float | None = None, levels: int = 256) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.input(("N", 3, 4, 4))
        alone = n.fq(x, low, high, out_low, out_high, levels)
        behind = n.fq(n.conv(n.qdq(x, 2**-6, 128), 4, scale=2**-8), low, high, out_low, out_high, levels)
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
    return n.op("Relu", n.op("MatMul", n.fq(n.input(("N", 64)), 4000.0, 4001.0), n.weights((64, 3), 0.01)))


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
        "FakeQuantize", [y, *ranges], {"levels": 256}, name="shared", outputs=["shared_y"], origin=["shared"], quantizer=["shared"]
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
    return n.conv(n.fq(y, 0.0, 255 / 64), 2, style="fq"), n.conv(n.fq(y, 0.0, 255 / 128), 2, 1, style="fq")


@case
def quantized_values_are_outputs(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 3)
    y = n.fq(n.op("Relu", n.conv(x, 4, scale=2**-8)), 0.0, 255 / 64)
    codes = n.q(n.conv(y, 2, scale=2**-8), 2**-5, 128)
    return x, y, codes


@case
def several_readers(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.op("Relu", n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6), 4, scale=2**-8)), 2**-6)
    return n.conv(x, 2), n.op("Softmax", x, axis=1), n.op("Sigmoid", x), n.op("MaxPool", x, kernel_shape=(2, 2))


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
def narrow_codes(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 0, DType.S8, low=-127)
    y = n.qdq(n.conv(x, 4, scale=2**-8, bias=[1, -1, 2, -2]), 2**-6, 3, DType.S8, low=-127, high=100)
    return n.conv(n.op("MaxPool", y, kernel_shape=(2, 2)), 2)


@case
def four_bits(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-2, 3, low=0, high=15)
    w = n.dq(n.graph.add_constant("w", n.codes((4, 3, 3, 3), -8, 7), DType.S4), Quantization((2**-4,)))
    return n.qdq(n.op("Relu", n.conv(x, 4, weights=w)), 2**-1, 0, low=0, high=15)


# -- activations -------------------------------------------------------------------------------------------------------------------

_ACTIVATIONS: dict[str, dict[str, object]] = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.125},
    "Elu": {"alpha": 0.75},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "HardSigmoid": {"alpha": 0.25, "beta": 0.5},
    "HardSwish": {},
    "Swish": {"alpha": 1.0},
    "Mish": {},
    "Gelu": {},
    "Abs": {},
    "Exp": {},
    "Round": {},
    "Neg": {},
}


def _activation(op: str, attrs: dict[str, object]) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
        y = n.qdq(n.op(op, n.conv(x, 4, scale=2**-8, bias=[0.5, -0.5, 0.25, 0]), **attrs), 2**-6, 60)
        return n.conv(y, 2, 1), n.qdq(n.op(op, x, **attrs), 2**-6, 60)

    build.__name__ = f"activation_{op.lower()}"
    case(build)


for _op, _attrs in _ACTIVATIONS.items():
    _activation(_op, _attrs)


@case
def activation_clip_and_prelu(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
    a = n.qdq(n.op("Clip", n.conv(x, 4, scale=2**-8), 0.0, 1.5), 2**-7)
    b = n.qdq(n.op("PRelu", n.conv(x, 4, scale=2**-8), np.array([0.25, 0.5, -0.5, 1]).reshape(4, 1, 1)), 2**-6, 50)
    return n.conv(a, 2, 1), n.conv(b, 2, 1), n.op("Clip", n.conv(a, 2, 1), -0.5, "")


def _gelu_erf(n: Net, x: Value) -> Value:
    return n.op("Mul", n.op("Mul", x, n.op("Add", n.op("Erf", n.op("Div", x, math.sqrt(2))), 1.0)), 0.5)


def _gelu_tanh(n: Net, x: Value) -> Value:
    cube = n.op("Mul", n.op("Pow", x, 3.0), 0.044715)
    inner = n.op("Tanh", n.op("Mul", n.op("Add", x, cube), math.sqrt(2 / math.pi)))
    return n.op("Mul", n.op("Mul", x, 0.5), n.op("Add", inner, 1.0))


def _hard_swish(n: Net, x: Value) -> Value:
    return n.op("Div", n.op("Mul", x, n.op("Clip", n.op("Add", x, 3.0), 0.0, 6.0)), 6.0)


_DECOMPOSED: dict[str, Callable[[Net, Value], Value]] = {
    "gelu_erf": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda n, x: n.op("Mul", x, n.op("Sigmoid", x)),
    "hardswish": _hard_swish,
    "hardsigmoid": lambda n, x: n.op("Mul", n.op("HardSigmoid", x, alpha=1 / 6, beta=0.5), x),
    "mish": lambda n, x: n.op("Mul", x, n.op("Tanh", n.op("Softplus", x))),
}


def _decomposed(name: str, expand: Callable[[Net, Value], Value]) -> None:
    def build(n: Net) -> tuple[Value, ...]:
        x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
        return n.qdq(expand(n, n.conv(x, 2, scale=2**-8)), 2**-6, 30), expand(n, n.input(("N", 4)))

    build.__name__ = f"decomposed_{name}"
    case(build)


for _name, _expand in _DECOMPOSED.items():
    _decomposed(_name, _expand)


@case
def decomposed_activation_read_elsewhere(n: Net) -> tuple[Value, ...]:
    x = n.conv(n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128), 2, scale=2**-8)
    gate = n.op("Sigmoid", x)
    return n.qdq(n.op("Mul", x, gate), 2**-6, 30), gate


@case
def activation_quantized_at_every_step(n: Net) -> Value:
    x = n.qdq(n.op("MatMul", n.qdq(n.input(("N", 8)), 2**-6, 128), n.weights((8, 4), 2**-8)), 2**-5, 128)
    erf = n.qdq(n.op("Erf", n.qdq(n.op("Div", x, math.sqrt(2)), 2**-5, 120)), 2**-7, 128)
    product = n.qdq(n.op("Mul", x, n.qdq(n.op("Add", erf, 1.0), 2**-7)), 2**-5, 10)
    return n.op("MatMul", n.qdq(n.op("Mul", product, 0.5), 2**-6, 10), n.weights((4, 4), 2**-8))


@case
def tabulated_in_two_sweeps(n: Net) -> tuple[Value, ...]:
    a = n.qdq(n.input(("N", 8)), -(2**-7))
    b = n.qdq(a, 2**-7)
    return a, b, n.qdq(b, -(2**-7))


@case
def tabulated_with_a_constant_of_more_dimensions(n: Net) -> Value:
    x = n.qdq(n.input((3, 4)), 2**-5, 128)
    return n.qdq(n.op("Erf", n.op("Mul", x, np.full((1, 1, 1), 0.5))), 2**-7, 128)


@case
def squeeze_and_excitation(n: Net) -> Value:
    x = n.qdq(n.op("HardSwish", n.conv(n.qdq(n.input(("N", 4, 4, 4)), 2**-6), 4, scale=2**-8)), 2**-6, 20)
    gate = n.qdq(n.op("GlobalAveragePool", x), 2**-6, 20)
    gate = n.qdq(n.op("Relu", n.conv(gate, 2, 1, scale=2**-8)), 2**-6)
    gate = n.qdq(n.op("HardSigmoid", n.conv(gate, 4, 1, scale=2**-8), alpha=1 / 6, beta=0.5), 2**-8)
    return n.conv(n.qdq(n.op("Mul", x, gate), 2**-6, 20), 2, 1, scale=2**-8)


@case
def float_arithmetic(n: Net) -> tuple[Value, ...]:
    a, b = n.input(("N", 4)), n.input(("N", 4))
    y = n.op("Relu", n.op("Sub", n.op("Mul", n.op("Add", a, b), 0.5), [1, 2, 3, 4]))
    return y, n.op("Max", n.op("Min", a, b), 0.0), n.op("Div", n.op("Abs", a), n.op("Exp", b)), n.op("Add", n.op("Neg", a), a)


@case
def shapes_computed_from_shapes(n: Net) -> tuple[Value, ...]:
    """As exporters write Flatten: it is known at compile time where the sizes are, and the types with it."""
    x = n.input((2, 3, 4))
    first = n.op("Unsqueeze", n.op("Gather", n.op("Shape", x), n.graph.add_constant("at", np.asarray(0))), n.ints(0))
    y = n.op("Reshape", x, n.op("Concat", first, n.ints(-1), axis=0))
    return n.op("Relu", y), n.qdq(n.op("MatMul", n.qdq(y, 2**-6, 128), n.weights((12, 3))), 2**-5, 128)


@case
def constant_arithmetic(n: Net) -> tuple[Value, ...]:
    c = n.op("Reshape", n.op("Mul", n.const(np.arange(6.0)), 0.5), n.op("Concat", n.ints(1), n.ints(6), axis=0))
    x = n.input(("N", 6))
    return n.op("Add", n.op("Identity", x), c), n.op("Cast", n.op("Identity", x), to=DType.F32), n.op("Relu", c)
