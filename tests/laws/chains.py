"""A Hypothesis strategy for single chains: dequantize -> convolution, deconvolution, matmul or gemm -> bias -> operations -> quantize."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from laws.build import Net, Value
from laws.strategies import factors, scales, shifts

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType, Quantization

_CHANNELS = 3


@dataclass
class _Chain:
    """A chain in the making; `value` is its end."""

    draw: st.DrawFn
    net: Net
    value: Value
    axis: int

    def vector(self, entries: st.SearchStrategy[float]) -> np.ndarray:
        """One number, or one for each channel."""
        if self.draw(st.booleans()):
            return np.asarray(self.draw(entries))
        return self.along(self.draw(st.lists(entries, min_size=_CHANNELS, max_size=_CHANNELS)))

    def along(self, values: list[float]) -> np.ndarray:
        return np.asarray(values).reshape([-1 if axis == self.axis else 1 for axis in range(self.rank)])

    @property
    def shape(self) -> tuple[int | str, ...]:
        shape = self.net.graph.type(self.value).shape
        assert shape is not None
        return shape

    @property
    def rank(self) -> int:
        return len(self.shape)


_UNARY: list[tuple[str, dict[str, object]]] = [
    *[("Relu", {})] * 3,
    ("LeakyRelu", {"alpha": 0.125}),
    ("LeakyRelu", {"alpha": -0.5}),
    ("Elu", {"alpha": 0.75}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("Softplus", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Swish", {"alpha": 1.0}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
    ("HardSwish", {}),
    ("Mish", {}),
    ("Abs", {}),
    ("Neg", {}),
]


def _unary(c: _Chain) -> Value:
    op, attrs = c.draw(st.sampled_from(_UNARY))
    return c.net.op(op, c.value, **attrs)


def _clip(c: _Chain) -> Value:
    low = c.draw(st.sampled_from([0.0, -1.0, 0.5]))
    return c.net.op("Clip", c.value, low, low + c.draw(st.sampled_from([1.0, 6.0, 0.25])))


def _prelu(c: _Chain) -> Value:
    return c.net.op("PRelu", c.value, c.vector(factors))


def _constant(c: _Chain) -> Value:
    op = c.draw(st.sampled_from(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"]))
    constant = c.vector(factors if op in ("Mul", "Div") else shifts)
    turned = op != "Div" and c.draw(st.booleans())
    return c.net.op(op, constant, c.value) if turned else c.net.op(op, c.value, constant)


def _binary(c: _Chain) -> Value:
    """With another tensor: f32, or codes; of the same shape, or one that broadcasts to the chain."""
    shape = c.shape if c.draw(st.booleans()) else tuple(size if axis == c.axis else 1 for axis, size in enumerate(c.shape))
    op = c.draw(st.sampled_from(["Add", "Add", "Sub", "Mul", "Max", "Min"]))
    if c.draw(st.booleans()) or op in ("Max", "Min"):  # no attribute decodes an operand of max and min
        other = c.net.input(shape)
    else:
        dtype = c.draw(st.sampled_from([DType.U8, DType.S8]))
        zero = 0 if op == "Mul" else c.draw(st.sampled_from([0, 7, 100]))
        other = c.net.dq(c.net.input(shape, dtype=dtype, quant=Quantization.of(c.draw(scales), zero)))
    return c.net.op(op, c.value, other)


def _fake_quantize(c: _Chain) -> Value:
    levels = c.draw(st.sampled_from([256, 256, 255, 16, 2]))
    scale, zero = c.draw(scales), c.draw(st.integers(0, levels - 1))
    low, high = -zero * scale, (levels - 1 - zero) * scale
    if c.draw(st.integers(0, 3)) == 0:
        spread = c.along(c.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=_CHANNELS, max_size=_CHANNELS)))
        return c.net.fq(c.value, low * spread, high * spread, levels=levels)
    if c.draw(st.integers(0, 3)) == 0:
        return c.net.fq(c.value, low, high, -1.0, 3.0, levels)
    return c.net.fq(c.value, low, high, levels=levels)


_LINKS = (*(_unary,) * 4, _clip, _prelu, *(_constant,) * 3, *(_binary,) * 2, *(_fake_quantize,) * 2)


def _anchor(draw: st.DrawFn, net: Net) -> tuple[Value, int]:
    """The first value of the chain and the axis of its channels."""
    kind = draw(st.sampled_from(["Conv", "Conv", "ConvTranspose", "MatMul", "Gemm"]))
    dtype = draw(st.sampled_from([DType.U8, DType.S8]))
    quant = Quantization.of(draw(scales), draw(st.sampled_from([0, 0, 7, 100])))
    scale = draw(st.sampled_from([2.0**-8, 2.0**-7, 0.003]))
    each = scale * (np.arange(_CHANNELS) + 1) if draw(st.booleans()) else scale
    bias = net.rng.integers(-8, 9, _CHANNELS) / 4 if draw(st.booleans()) else None
    if kind in ("MatMul", "Gemm"):
        x = net.dq(net.input(("N", 5), dtype=dtype, quant=quant))
        weights = net.weights((5, _CHANNELS), each, 1)
        if kind == "Gemm":
            return net.op("Gemm", x, weights, *([] if bias is None else [bias])), 1
        y = net.op("MatMul", x, weights)
        return (y if bias is None else net.op("Add", y, bias)), 1
    x = net.dq(net.input(("N", 2, 4, 4), dtype=dtype, quant=quant))
    if kind == "Conv":
        return net.conv(x, _CHANNELS, draw(st.sampled_from([1, 3])), scale=each, bias=bias), 1
    weights = net.weights((2, _CHANNELS, 3, 3), each, 1)
    return net.op("ConvTranspose", x, weights, *([] if bias is None else [bias]), kernel_shape=(3, 3), strides=(2, 2)), 1


@st.composite
def chains(draw: st.DrawFn, most: int = 6) -> Graph:
    """A graph that is one chain; its source, and the other operands of binary operations, are inputs."""
    net = Net("chain", seed=draw(st.integers(0, 7)))
    chain = _Chain(draw, net, *_anchor(draw, net))
    for _ in range(draw(st.integers(0, most))):
        chain.value = draw(st.sampled_from(_LINKS))(chain)
    if draw(st.integers(0, 3)):
        dtype = draw(st.sampled_from([DType.U8, DType.S8]))
        low, high = dtype.range
        narrow = {} if draw(st.integers(0, 3)) else {"low": low + 1, "high": high - draw(st.integers(0, 50))}
        zero = draw(st.sampled_from([0, 0, (low + high + 1) // 2, 3, 117 + low]))
        chain.value = net.q(chain.value, draw(scales), zero, dtype, **narrow)
    return net.done(chain.value)
