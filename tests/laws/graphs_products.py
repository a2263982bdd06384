"""Concatenation, matrix products and normalization."""

from __future__ import annotations

import numpy as np
from laws.build import Net, Value
from laws.registry import case

from fqfuse.ir.ops.blocks import row_bytes
from fqfuse.ir.types import DType, Quantization

# -- concatenation ---------------------------------------------------------------------------------


def _branches(n: Net, *quantizers: tuple[float, float, DType]) -> list[Value]:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6, 128)
    return [
        n.qdq(n.op("Relu", n.conv(x, 2 + i, scale=2**-8)), *quantizer)
        for i, quantizer in enumerate(quantizers)
    ]


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
def concat_signs_mixed_and_nested(n: Net) -> Value:
    """A dense block as Keras writes it: each concatenation joins one layer more to the one in
    front.
    """
    y, *layers = _branches(
        n, (2**-6, 128, DType.U8), (2**-6, 0, DType.S8), (2**-6, -3, DType.S8), (2**-5, 0, DType.S8)
    )
    for layer in layers:
        y = n.op("Concat", y, layer, axis=1)
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
def concat_normalized_dense_block(n: Net) -> Value:
    """Signed codes at a scale of their own, joined and scaled channel by channel before each
    convolution, behind an average pool.
    """
    x = n.qdq(
        n.conv(n.qdq(n.input(("N", 3, 8, 8)), 2**-6, 128), 4, scale=2**-8), 2**-5, 0, DType.S8
    )
    x = n.qdq(
        n.op("AveragePool", x, kernel_shape=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0)),
        3 * 2**-7,
        0,
        DType.S8,
    )
    for growth in (2, 3):
        shape = n.graph.type(x).shape
        assert shape is not None
        channels = int(shape[1])
        gamma, beta = (
            n.rng.integers(1, 8, (1, channels, 1, 1)) / 4,
            n.rng.integers(-8, 8, (1, channels, 1, 1)) / 8,
        )
        normalized = n.op("Add", n.op("Mul", x, gamma.astype(np.float32)), beta.astype(np.float32))
        y = n.qdq(n.op("Relu", normalized), 2**-5)
        x = n.op(
            "Concat", x, n.qdq(n.conv(y, growth, scale=2**-8), 2**-6 * growth, 0, DType.S8), axis=1
        )
    return n.qdq(n.op("Relu", x), 2**-4)


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
    a, b = (
        n.qdq(n.conv(x, 2, scale=2**-8), 2**-6, 128),
        n.qdq(n.conv(x, 2, scale=2**-7), 2**-5, 128),
    )
    wide = n.op("Concat", a, b, axis=-1)
    return n.conv(wide, 2, 1, scale=2**-8), n.op("Concat", a, b, axis=0)


# -- matrix products -------------------------------------------------------------------------------


@case
def gemm_transposed(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    w = n.weights((5, 8), np.linspace(0.004, 0.02, 5), 0)
    return n.op("Gemm", x, w, np.arange(5) * 0.25, transB=1)


@case
def gemm_alpha_beta(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(
        n.op("Gemm", x, n.weights((8, 5), 2**-7, style="fq"), np.arange(5), alpha=0.5, beta=-1.5),
        2**-5,
        128,
    )


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
    y = n.op(
        "Add",
        n.op("MatMul", x, n.weights((8, 5), np.linspace(0.004, 0.02, 5), 1)),
        np.arange(5) * 0.5,
    )
    return n.qdq(n.op("Relu", y), 2**-5)


@case
def matmul_quantizer_before_bias(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-6, 3)
    y = n.op(
        "Add", n.qdq(n.op("MatMul", x, n.weights((8, 5), 2**-7)), 2**-5, 117), np.arange(5) * 0.5
    )
    return n.qdq(y, 2**-4, 121)


@case
def matmul_asymmetric_weights(n: Net) -> Value:
    codes = n.graph.add_constant("w", n.codes((8, 5), 0, 255, DType.U8))
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(n.op("MatMul", x, n.dq(codes, Quantization((2**-7,), (117.0,)))), 2**-4, 128)


@case
def matmul_weights_first(n: Net) -> Value:
    return n.qdq(
        n.op("MatMul", n.weights((5, 8), 2**-7), n.qdq(n.input(("N", 8, 3)), 2**-6, 3)), 2**-4, 128
    )


@case
def matmul_negative_per_channel(n: Net) -> Value:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    y = n.op("Mul", n.op("MatMul", x, n.weights((8, 3), 2**-7)), [1.0, -2.0, 0.5])
    return n.qdq(n.op("Relu", y), 2**-5)


@case
def matmul_of_vectors(n: Net) -> tuple[Value, ...]:
    x = n.qdq(n.input(("N", 8)), 2**-6, 3)
    return n.qdq(n.op("MatMul", x, n.weights((8,), 2**-7)), 2**-4, 128), n.op(
        "MatMul", n.weights((6,), 2**-7), n.input((6, 4), "z")
    )


@case
def attention(n: Net) -> Value:
    x = n.qdq(n.input(("N", 6, 8)), 2**-5, 128)
    heads = []
    for _ in range(3):
        y = n.qdq(
            n.op("Add", n.op("MatMul", x, n.weights((8, 8), 2**-8)), n.rng.standard_normal(8)),
            2**-5,
            128,
        )
        heads.append(n.op("Transpose", n.op("Reshape", y, n.ints(0, 6, 2, 4)), perm=(0, 2, 1, 3)))
    query, key, value = heads
    scores = n.op("Div", n.op("MatMul", query, n.op("Transpose", key, perm=(0, 1, 3, 2))), 2.0)
    mask = np.where(np.tri(6), 0, -10.0).reshape(1, 1, 6, 6)
    weights = n.qdq(n.op("Softmax", n.op("Add", n.qdq(scores, 2**-4, 128), mask)), 2**-8)
    mixed = n.op(
        "Reshape",
        n.op("Transpose", n.op("MatMul", weights, value), perm=(0, 2, 1, 3)),
        n.ints(0, 6, 8),
    )
    y = n.op("MatMul", n.qdq(mixed, 2**-5, 128), n.weights((8, 8), 2**-8))
    y = n.op(
        "LayerNormalization", n.op("Add", y, x), np.linspace(0.5, 1.5, 8), np.linspace(-1, 1, 8)
    )
    return n.qdq(y, 2**-5, 128)


# -- normalization ---------------------------------------------------------------------------------


def _bn(n: Net, x: Value, channels: int, gamma: np.ndarray | None = None) -> Value:
    scale = n.rng.uniform(0.5, 2, channels) if gamma is None else gamma
    bias, mean = n.rng.standard_normal(channels), n.rng.standard_normal(channels)
    return n.op("BatchNormalization", x, scale, bias, mean, n.rng.uniform(0.5, 2, channels))


@case
def batch_norm_behind_conv(n: Net) -> Value:
    x = n.qdq(n.input(("N", 3, 4, 4)), 2**-6)
    return n.qdq(
        n.op("Relu", _bn(n, n.conv(x, 4, scale=2**-8), 4, np.array([1, -2, 0.5, 1.5]))), 2**-5
    )


@case
def batch_norm_float(n: Net) -> Value:
    return n.op(
        "Relu", _bn(n, n.conv(n.input(("N", 3, 4, 4)), 4, style="float", bias=[1, 2, 3, 4]), 4)
    )


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
    y = n.op(
        "ConvTranspose",
        x,
        n.weights((4, 2, 3, 3), [0.004, 0.006], 1, "fq"),
        kernel_shape=(3, 3),
        group=2,
    )
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


@case
def feed_forward_on_rows(n: Net) -> Value:
    """The second half of a transformer's layer as ONNX Runtime quantizes it: products of flattened
    rows, their shape back behind each.
    """
    x = n.qdq(
        n.op("LayerNormalization", n.input(("N", 3, 8)), n.rng.integers(1, 9, 8) / 4, axis=-1),
        2**-5,
        128,
    )
    y = n.op("MatMul", n.op("Reshape", x, n.ints(-1, 8)), n.weights((8, 12), 2**-7, 1))
    y = n.qdq(n.op("Add", y, n.rng.integers(-8, 9, 12) / 4), 2**-5, 100)
    y = n.qdq(n.op("Relu", n.qdq(n.op("Reshape", y, n.ints(-1, 3, 12)), 2**-5, 100)), 2**-5)
    y = n.op("MatMul", n.qdq(n.op("Reshape", y, n.ints(-1, 12)), 2**-5), n.weights((12, 8), 2**-7))
    y = n.qdq(n.op("Reshape", n.qdq(y, 2**-5, 128), n.ints(-1, 3, 8)), 2**-5, 128)
    return n.qdq(n.op("Add", y, x), 2**-4, 128)


@case
def residual_under_another_shape(n: Net) -> tuple[Value, ...]:
    """A residual has the shape that the product gets behind it; the skip is read again later."""
    y = n.op(
        "Reshape",
        n.op("MatMul", n.qdq(n.input((6, 4)), 2**-6, 3), n.weights((4, 2), 2**-7)),
        n.ints(2, 3, 2),
    )
    skip = n.qdq(n.op("Tanh", n.input((2, 3, 2))), 2**-7, 128)
    return n.qdq(n.op("Relu", n.op("Add", skip, y)), 2**-6), n.op("Sigmoid", skip)


@case
def products_by_computed_scales(n: Net) -> tuple[Value, ...]:
    """A matrix product and a convolution whose source has its scale and zero point as inputs."""
    scale, zero = n.input(()), n.input((1,), dtype=DType.U8)
    rows = n.op("RunTimeDequantize", n.q(n.input(("N", 8)), 2.0**-5, 128), scale, zero)
    y = n.op("Relu", n.op("Add", n.op("MatMul", rows, n.weights((8, 4), axis=1)), 0.5))
    maps = n.op("RunTimeDequantize", n.q(n.input(("N", 2, 4, 4)), 2.0**-5, 3), scale, zero)
    weights = n.weights((3, 2, 3, 3))
    return n.q(y, 2.0**-3), n.op("Conv", maps, weights, kernel_shape=(3, 3), pads=(1, 1, 1, 1))


@case
def products_in_integers(n: Net) -> tuple[Value, ...]:
    """Sums of products of codes that stay integers, by zero points of every kind."""
    u8, s8 = {"dtype": DType.U8}, {"dtype": DType.S8}
    zeros = n.input((), **u8), n.input((1,), **u8)
    rows, columns = n.input(("N", 6), **u8), n.input((6, 4), **u8)
    both = n.op("MatMulInteger", rows, columns, *zeros)
    constant = n.graph.add_constant("codes", n.codes((6, 3), -128, 127, DType.S8))
    maps = n.input(("N", 2, 5, 5), **s8)
    kernel = n.graph.add_constant("kernel", n.codes((3, 2, 3, 3), -128, 127, DType.S8))
    moved = n.op("ConvInteger", maps, kernel, n.input((), **s8), kernel_shape=(3, 3), pads=(1,) * 4)
    return both, n.op("MatMulInteger", rows, constant), moved


@case
def products_by_computed_weights(n: Net) -> tuple[Value, ...]:
    """Weights whose scale, scales by columns, or zero point are inputs."""
    rows = n.qdq(n.input(("N", 6)), 2.0**-5, 100)
    codes = n.graph.add_constant("codes", n.codes((6, 3), -128, 127, DType.S8))
    kernel = n.graph.add_constant("kernel", n.codes((3, 2, 3, 3), -128, 127, DType.S8))
    one, zero = n.input((1,)), n.input((), dtype=DType.S8)
    single = n.op("RunTimeDequantize", codes, one, zero)
    columns = n.op("RunTimeDequantize", codes, n.input((3,)), axis=1)
    channels = n.op("RunTimeDequantize", kernel, n.input((3,)), axis=0)
    maps = n.qdq(n.input(("N", 2, 5, 5)), 2.0**-4, 7)
    y = n.op("Relu", n.op("Add", n.op("MatMul", rows, columns), 0.5))
    moved = n.op("Conv", maps, channels, kernel_shape=(3, 3))
    return n.op("MatMul", rows, single), n.q(y, 2.0**-3), moved


def _blocks(n: Net, rows: int, size: int, block: int, bits: int, *, zeros: bool = True) -> Value:
    """Weights [rows, size] whose scales belong to blocks; powers of two, so that ties are frequent."""
    count, stored = row_bytes(bits, block, size)

    def codes(limit: int, *shape: int) -> Value:
        data = n.rng.integers(0, limit, shape).astype(np.uint8)
        return n.graph.add_constant(n.graph.fresh("q"), data, DType.U8)

    inputs = [codes(256, rows, stored), n.const(2.0 ** n.rng.integers(-8, -4, (rows, count)))]
    if zeros:
        inputs.append(codes(1 << bits, rows, count))
    return n.op("DequantizeBlocks", *inputs, bits=bits, block=block, size=size)


@case
def products_with_weights_in_blocks(n: Net) -> tuple[Value, ...]:
    """A product whose weights are read transposed, one that a Gemm transposes, and rows that are
    picked from the same table; then one that reads blocks along its columns.
    """
    x = n.input(("N", 20))
    table = _blocks(n, 24, 20, 8, 4)
    y = n.op(
        "Gelu",
        n.op(
            "Add",
            n.op("MatMul", x, n.op("Transpose", table, perm=(1, 0))),
            n.const(n.rng.standard_normal(24)),
        ),
    )
    z = n.op(
        "Gemm",
        y,
        _blocks(n, 20, 24, 8, 8, zeros=False),
        n.const(n.rng.standard_normal(20)),
        transB=1,
    )
    picked = n.op("Gather", table, n.input((1, 2), dtype=DType.S64))
    return (
        n.op("Add", z, x),
        n.qdq(y, 2**-4, 128),
        picked,
        n.op("MatMul", x, _blocks(n, 20, 6, 4, 2)),
    )


@case
def asymmetric_weights(n: Net) -> tuple[Value, ...]:
    """Weights that s8 does not hold less their zero points, one or one for each output channel."""
    maps, rows = n.qdq(n.input(("N", 8, 4, 5)), 2.0**-5, 100), n.qdq(n.input(("N", 66)), 2.0**-5, 3)
    kernel = n.graph.add_constant("kernel", n.codes((16, 8, 3, 3), 0, 255, DType.U8))
    matrix = n.graph.add_constant("matrix", n.codes((66, 16), 0, 255, DType.U8))
    weights = n.dq(kernel, Quantization((2.0**-9,), (121.0,)))
    y = n.op("Conv", maps, weights, kernel_shape=(3, 3), pads=(1, 0, 1, 2))
    columns = n.dq(matrix, Quantization.of(2.0**-9, np.arange(100, 116), 1))
    return n.q(n.op("Relu", y), 2.0**-3), n.op("MatMul", rows, columns)


@case
def decoded_by_computed_parameters(n: Net) -> tuple[Value, ...]:
    """Codes that no product reads, by computed numbers, or one for each channel."""
    codes = n.q(n.input(("N", 3, 4, 5)), 2.0**-5, 100)
    one, zero = n.input(()), n.input((1,), dtype=DType.U8)
    channels, zeros = n.input((3,)), n.input((3,), dtype=DType.U8)
    y = n.op("RunTimeDequantize", codes, one, zero)
    z = n.op("RunTimeDequantize", codes, channels, zeros, axis=1)
    return (
        n.op("Relu", y),
        n.q(n.op("Tanh", z), 2.0**-7, 128),
        n.op("RunTimeDequantize", codes, one),
    )
