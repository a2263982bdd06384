"""One small graph for each anchor: 8-bit codes in, the anchor, something behind it, and f32 or
8-bit codes out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from laws.build import Net, Value

from fqfuse.ir.types import DType, Quantization

Anchor = Callable[[Net], Value]
Behind = Callable[[Net, Value, int], Value]

_WEIGHTS = 2.0**-8


def codes(n: Net, *shape: int, scale: float = 2**-5, zero: int = 120) -> Value:
    """Codes that the graph is given, decoded."""
    return n.dq(n.input(shape, dtype=DType.U8, quant=Quantization.of(scale, zero)))


def image(n: Net, channels: int = 8) -> Value:
    return codes(n, 2, channels, 6, 6)


def other_image(n: Net) -> Value:
    return codes(n, 2, 8, 6, 6, scale=2**-6, zero=7)


def rows(n: Net) -> Value:
    return codes(n, 2, 5, 12)


def _deconvolution(n: Net) -> Value:
    w = n.weights((8, 6, 3, 3), _WEIGHTS * (1 + np.arange(6) / 8), 1)
    return n.op(
        "ConvTranspose",
        image(n),
        w,
        n.rng.normal(size=6),
        kernel_shape=(3, 3),
        strides=(2, 2),
        pads=(1, 1, 1, 1),
    )


def _deconvolution_quantized_by_channel(n: Net) -> Value:
    high = (1.0 + np.arange(6).reshape(1, 6, 1, 1) / 4) * 255 / 256
    return n.fq(_deconvolution(n), np.zeros_like(high), high)


def _attention(n: Net) -> Value:
    q, k = codes(n, 2, 3, 5, 8), n.input((2, 3, 5, 8), "k")
    return n.op(
        "MatMul", q, n.op("Transpose", n.fq(n.op("Tanh", k), -1.0, 127 / 128), perm=(0, 1, 3, 2))
    )


def _shuffle(n: Net) -> Value:
    x = n.op("Reshape", image(n), n.ints(2, 2, 4, 6, 6))
    return n.op("Reshape", n.op("Transpose", x, perm=(0, 2, 1, 3, 4)), n.ints(2, 8, 6, 6))


def _resize(n: Net, mode: str) -> Value:
    return n.op(
        "Resize",
        image(n),
        "",
        n.const([1, 1, 2, 2]),
        mode=mode,
        coordinate_transformation_mode="half_pixel",
    )


def _asymmetric_weights(n: Net) -> Value:
    w = n.graph.add_constant(n.graph.fresh("w"), n.codes((12, 7)))
    return n.op("MatMul", codes(n, 5, 12), n.dq(w, Quantization.of(_WEIGHTS, 9)))


def _window(op: str) -> Anchor:
    return lambda n: n.op(op, image(n), kernel_shape=(2, 2), strides=(2, 2))


def _reduction(op: str, *axes: int, keepdims: int = 1) -> Anchor:
    return lambda n: n.op(op, image(n), n.ints(*axes), keepdims=keepdims)


def _sum(n: Net, *scales: int) -> Value:
    return n.op("Sum", *(codes(n, 2, 8, 6, 6, scale=2.0**-k, zero=k) for k in scales))


ANCHORS: dict[str, Anchor] = {
    "convolution 1d": lambda n: n.op(
        "Conv", codes(n, 2, 8, 9), n.weights((6, 8, 3), _WEIGHTS), kernel_shape=(3,), pads=(1, 1)
    ),
    "convolution 2d": lambda n: n.conv(image(n), 6, scale=_WEIGHTS, bias=n.rng.normal(size=6)),
    "convolution 3d": lambda n: n.op(
        "Conv",
        codes(n, 1, 4, 5, 5, 5),
        n.weights((6, 4, 3, 3, 3), _WEIGHTS),
        kernel_shape=(3, 3, 3),
    ),
    "convolution grouped": lambda n: n.conv(
        image(n), 8, group=2, scale=_WEIGHTS * (1 + np.arange(8) / 8)
    ),
    "convolution depthwise": lambda n: n.conv(
        image(n), 8, group=8, scale=_WEIGHTS * (1 + np.arange(8) / 8)
    ),
    "deconvolution": _deconvolution,
    "deconvolution quantized by channel": _deconvolution_quantized_by_channel,
    "matmul 2d": lambda n: n.op(
        "MatMul", codes(n, 5, 12), n.weights((12, 7), _WEIGHTS * (1 + np.arange(7) / 8), 1)
    ),
    "matmul batched": lambda n: n.op("MatMul", rows(n), n.weights((12, 7), _WEIGHTS)),
    "matmul transposed": lambda n: n.op(
        "MatMul", rows(n), n.op("Transpose", n.weights((7, 12), _WEIGHTS, None), perm=(1, 0))
    ),
    "matmul asymmetric": _asymmetric_weights,
    "matmul of activations": _attention,
    "gemm": lambda n: n.op(
        "Gemm", codes(n, 5, 12), n.weights((7, 12), _WEIGHTS), n.rng.normal(size=7), transB=1
    ),
    "average pooling": _window("AveragePool"),
    "max pooling": _window("MaxPool"),
    "global average pooling": lambda n: n.op("GlobalAveragePool", image(n)),
    "global max pooling": lambda n: n.op("GlobalMaxPool", image(n)),
    "reduction mean": _reduction("ReduceMean", 2, 3),
    "reduction mean without axes": _reduction("ReduceMean", 2, 3, keepdims=0),
    "reduction mean of one axis": _reduction("ReduceMean", 3),
    "reduction max": _reduction("ReduceMax", 2, 3),
    "reduction max of one axis": _reduction("ReduceMax", 3),
    "reduction sum": _reduction("ReduceSum", 3),
    "binary add": lambda n: n.op("Add", image(n), other_image(n)),
    "binary sub": lambda n: n.op("Sub", image(n), other_image(n)),
    "binary mul": lambda n: n.op("Mul", image(n), other_image(n)),
    "binary max": lambda n: n.op("Max", image(n), other_image(n)),
    "sum of two": lambda n: _sum(n, 5, 6),
    "sum of three": lambda n: _sum(n, 5, 6, 4),
    "concat": lambda n: n.op("Concat", image(n, 4), image(n, 3), axis=1),
    "concat of two scales": lambda n: n.op(
        "Concat", image(n, 4), codes(n, 2, 3, 6, 6, scale=2**-6, zero=7), axis=1
    ),
    "softmax": lambda n: n.op("Softmax", rows(n), axis=-1),
    "shuffle": _shuffle,
    "lrn": lambda n: n.op("LRN", image(n), size=3, alpha=0.01, beta=0.75),
    "layer normalization": lambda n: n.op(
        "LayerNormalization", rows(n), 1 + n.rng.random(12), n.rng.normal(size=12)
    ),
    "group normalization": lambda n: n.op(
        "GroupNormalization",
        image(n),
        1 + n.rng.random(8),
        n.rng.normal(size=8),
        num_groups=2,
        epsilon=1e-5,
    ),
    "batch normalization": lambda n: n.op(
        "BatchNormalization", image(n), *(0.5 + n.rng.random((4, 8)))
    ),
    "resize nearest": lambda n: _resize(n, "nearest"),
    "resize linear": lambda n: _resize(n, "linear"),
    "prelu": lambda n: n.op("PRelu", image(n), 0.25 * n.rng.random((8, 1, 1))),
    "reorder": image,
}

ROWS = ("matmul", "gemm", "softmax", "layer")


def channel_axis(anchor: str, rank: int) -> int:
    """Where an anchor's channels run: last in rows, second in images."""
    return rank - 1 if anchor.startswith(ROWS) else 1


def along(n: Net, y: Value, axis: int, low: float, high: float) -> np.ndarray:
    """A number for each channel, at most the rank of `y` less what stands in front of the
    channels.
    """
    shape = n.graph.type(y).shape
    assert shape is not None
    size = shape[axis]
    assert isinstance(size, int)
    return np.linspace(low, high, size).reshape([size, *[1] * (len(shape) - axis - 1)])


def _factor_and_shift(n: Net, y: Value, axis: int) -> Value:
    return n.op("Add", n.op("Mul", y, along(n, y, axis, 0.5, 1.5)), along(n, y, axis, -0.25, 0.5))


def _residual(n: Net, y: Value, _: int) -> Value:
    shape = n.graph.type(y).shape
    assert shape is not None
    return n.op("Add", y, n.dq(n.input(shape, "skip", DType.U8, Quantization.of(2**-6, 100))))


BEHIND: dict[str, Behind] = {
    "nothing": lambda _n, y, _: y,
    "relu": lambda n, y, _: n.op("Relu", y),
    "mul add": _factor_and_shift,
    "residual": _residual,
    "prelu": lambda n, y, axis: n.op("PRelu", y, along(n, y, axis, 0.25, 0.75)),
    "clip": lambda n, y, _: n.op("Clip", y, -0.25, 1.5),
}

STORED: dict[str, Callable[[Net, Value], Value]] = {
    "f32": lambda _, y: y,
    "u8": lambda n, y: n.q(y, 2**-6, 64, order="zp_first"),
    "s8": lambda n, y: n.q(y, 2**-6, 0, DType.S8, order="zp_first"),
}
"""What a FakeQuantize splits into, whose codes the graph returns."""


def anchor_net(anchor: str, behind: str, stored: str) -> tuple[Net, Value]:
    """The graph in the making and its result."""
    n = Net(seed=7)
    y = ANCHORS[anchor](n)
    rank = len(n.graph.type(y).shape or ())
    return n, STORED[stored](n, BEHIND[behind](n, y, channel_axis(anchor, rank)))
