"""Hypothesis strategies: random graphs with branches, and quantizer parameters that make ties frequent. The batch is symbolic."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from laws.build import Net, Value

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType

scales = st.sampled_from([2.0**-7, 2.0**-6, 2.0**-5, 2.0**-4, 0.5, 0.02, 0.0473, 1.5 * 2.0**-6])
"""Most are powers of two: with feeds and weights on such grids, ties are frequent and exact."""

factors = st.sampled_from([0.5, 2.0, -1.0, -0.5, 0.75, 1.0, 3.0, 1.7, -0.3])
shifts = st.sampled_from([0.0, 0.5, -0.5, 1.0, 0.25, -3.0, 0.3, 1e-7])


@dataclass
class Draft:
    """A graph in the making: f32 values [N, C, 4, 4], with what draws from them."""

    draw: st.DrawFn
    net: Net
    values: list[Value] = field(default_factory=list)
    codes: list[Value] = field(default_factory=list)

    def one(self) -> Value:
        """A value; the latest ones are likelier, so that chains come to be."""
        recent = self.values[-3:]
        return self.draw(st.sampled_from(recent if self.draw(st.integers(0, 3)) else self.values))

    def shape(self, value: Value) -> tuple[int | str, ...]:
        shape = self.net.graph.type(value).shape
        assert shape is not None
        return shape

    def channels(self, value: Value) -> int:
        return int(self.shape(value)[1])

    def vector(self, value: Value, entries: st.SearchStrategy[float]) -> np.ndarray:
        """One number, or one for each channel."""
        if self.draw(st.booleans()):
            return np.asarray(self.draw(entries))
        count = self.channels(value)
        return np.asarray(self.draw(st.lists(entries, min_size=count, max_size=count))).reshape(1, count, 1, 1)

    def partner(self, value: Value) -> Value:
        """A value of the same shape, or one that broadcasts to it; the value itself where there is none."""
        fitting = [other for other in self.values if self.shape(other) == self.shape(value)]
        return self.draw(st.sampled_from(fitting))


def _fake_quantize(d: Draft, x: Value) -> Value:
    levels = d.draw(st.sampled_from([256, 256, 256, 255, 16, 3, 2]))
    scale, zero = d.draw(scales), d.draw(st.integers(0, levels - 1))
    low, high = -zero * scale, (levels - 1 - zero) * scale
    kind = d.draw(st.integers(0, 7))
    if kind == 0:
        channels = d.channels(x)
        spread = np.asarray(d.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=channels, max_size=channels)))
        shaped = spread.reshape(1, channels, 1, 1)
        return d.net.fq(x, low * shaped, high * shaped, levels=levels)
    if kind == 1:
        return d.net.fq(x, low, high, 0.0 if d.draw(st.booleans()) else -1.0, d.draw(st.sampled_from([levels - 1.0, 1.0, 3.0])), levels)
    if kind == 2:
        return d.net.fq(x, high, low, low, high, levels)
    return d.net.fq(x, low, high, levels=levels)


def _quantize_dequantize(d: Draft, x: Value) -> Value:
    dtype = d.draw(st.sampled_from([DType.U8, DType.S8]))
    low, high = dtype.range
    zero = d.draw(st.sampled_from([0, 0, (low + high + 1) // 2, 3, 117 + low, low, high]))
    scale = d.draw(scales) * (1 if d.draw(st.integers(0, 15)) else -1)
    narrow = {} if d.draw(st.integers(0, 4)) else {"low": low + d.draw(st.integers(0, 3)), "high": high - d.draw(st.integers(0, 50))}
    codes = d.net.q(x, scale, zero, dtype, order=d.draw(st.sampled_from(["round_first", "zp_first"])), **narrow)
    d.codes.append(codes)
    y = d.net.dq(codes)
    if not d.draw(st.integers(0, 3)):
        d.values.append(d.net.dq(codes))  # as ONNX Runtime writes it: one for each reader
    return y


def _conv(d: Draft, x: Value) -> Value:
    channels = d.channels(x)
    group = channels if d.draw(st.integers(0, 3)) == 0 else 1
    outputs = channels if d.draw(st.integers(0, 2)) else 2 * group
    scale = d.draw(st.sampled_from([2.0**-9, 2.0**-8, 0.003]))
    per_channel = scale * (np.arange(outputs) % 3 + 1) if d.draw(st.booleans()) else scale
    style = d.draw(st.sampled_from(["qdq", "fq", "fq", "float"]))
    bias = d.net.rng.integers(-8, 9, outputs) / 4 if d.draw(st.booleans()) else None
    return d.net.conv(x, outputs, d.draw(st.sampled_from([1, 3])), scale=per_channel, style=style, bias=bias, group=group)


def _unary(d: Draft, x: Value) -> Value:
    op = d.draw(st.sampled_from(["Relu", "Relu", "Relu", "Sigmoid", "LeakyRelu", "HardSwish", "Abs", "Neg", "Tanh", "Elu", "Identity"]))
    return d.net.op(op, x, **({"alpha": 0.125} if op == "LeakyRelu" else {}))


def _clip(d: Draft, x: Value) -> Value:
    low = d.draw(st.sampled_from([0.0, -1.0, 0.5]))
    return d.net.op("Clip", x, low, low + d.draw(st.sampled_from([1.0, 6.0, 0.25])))


def _constant(d: Draft, x: Value) -> Value:
    op = d.draw(st.sampled_from(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"]))
    constant = d.vector(x, factors if op in ("Mul", "Div") else shifts)
    return d.net.op(op, constant, x) if op != "Div" and d.draw(st.integers(0, 3)) == 0 else d.net.op(op, x, constant)


def _binary(d: Draft, x: Value) -> Value:
    return d.net.op(d.draw(st.sampled_from(["Add", "Add", "Add", "Sub", "Mul", "Max"])), x, d.partner(x))


def _broadcast(d: Draft, x: Value) -> Value:
    pooled = d.net.op("GlobalAveragePool", x)
    if d.draw(st.booleans()):
        pooled = d.net.qdq(pooled, d.draw(scales), 100)
    return d.net.op(d.draw(st.sampled_from(["Add", "Mul", "Max"])), x, pooled)


def _concat(d: Draft, x: Value) -> Value:
    others = [value for value in d.values if d.shape(value)[2:] == d.shape(x)[2:]]
    y = d.net.op("Concat", x, d.draw(st.sampled_from(others)), axis=1)
    return y if d.channels(y) <= 8 else d.net.op("Slice", y, d.net.ints(0), d.net.ints(4), d.net.ints(1))


def _pool(d: Draft, x: Value) -> Value:
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    if d.draw(st.booleans()):
        return d.net.op("MaxPool", x, **window)
    return d.net.op("AveragePool", x, **window, count_include_pad=d.draw(st.integers(0, 1)))


def _move(d: Draft, x: Value) -> Value:
    kind = d.draw(st.integers(0, 3))
    if kind == 0:
        return d.net.op("Transpose", x, perm=(0, 1, 3, 2))
    if kind == 1:
        flat = d.net.op("Reshape", x, d.net.ints(0, 0, -1))
        return d.net.op("Reshape", flat, d.net.ints(0, 0, 4, 4))
    if kind == 2 and d.channels(x) > 2:
        return d.net.op("Slice", x, d.net.ints(0), d.net.ints(2), d.net.ints(1))
    padded = d.net.op("Pad", x, d.net.ints(0, 0, 0, 0, 0, 0, 1, 1), d.draw(st.sampled_from([0.0, 0.5, 0.3])))
    return d.net.op("MaxPool", padded, kernel_shape=(2, 2))


def _batch_norm(d: Draft, x: Value) -> Value:
    count = d.channels(x)
    gamma = d.draw(st.lists(factors, min_size=count, max_size=count))
    bias, mean = d.net.rng.standard_normal(count), d.net.rng.standard_normal(count)
    return d.net.op("BatchNormalization", x, gamma, bias, mean, np.full(count, 0.5))


def _product(d: Draft, x: Value) -> Value:
    y = d.net.op("MatMul", x, d.net.weights((4, 4), 2.0**-7, style=d.draw(st.sampled_from(["qdq", "float"]))))
    return d.net.op("Add", y, d.net.rng.integers(-8, 9, 4) / 4) if d.draw(st.booleans()) else y


_MAKERS = (
    *(_fake_quantize, _quantize_dequantize, _quantize_dequantize) * 2,
    *(_conv, _conv, _conv),
    *(_unary, _unary, _clip, _constant, _constant, _binary, _binary),
    *(_broadcast, _concat, _pool, _move, _batch_norm, _product),
)


@st.composite
def graphs(draw: st.DrawFn, least: int = 3, most: int = 10) -> Graph:
    """A graph of `least` to `most` operations on f32 values [N, C, 4, 4]; what nothing reads is returned, and sometimes more."""
    net = Net("drawn", seed=draw(st.integers(0, 7)))
    d = Draft(draw, net, [net.input(("N", draw(st.sampled_from([2, 4])), 4, 4))])
    if draw(st.integers(0, 3)) == 0:
        d.values.append(net.input(("N", d.channels(d.values[0]), 4, 4)))
    for _ in range(draw(st.integers(least, most))):
        d.values.append(draw(st.sampled_from(_MAKERS))(d, d.one()))
    unread = [value for value in d.values if not net.graph.uses(value) and value not in net.graph.inputs]
    more = draw(st.lists(st.sampled_from(d.values[1:] + d.codes), max_size=1)) if draw(st.integers(0, 3)) == 0 else []
    return net.done(*dict.fromkeys([*unread, *(value for value in more if value not in net.graph.inputs)]))
