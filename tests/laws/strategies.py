"""Hypothesis strategies: random graphs with branches. The batch is symbolic."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from laws.branches import BRANCHES, Block
from laws.build import Net, Value
from laws.drafts import Draft, factors, scales, shifts

from fqfuse.ir.graph import Graph
from fqfuse.ir.types import DType


def _fake_quantize(d: Draft, x: Value) -> Value:
    levels = d.draw(st.sampled_from([256, 256, 256, 255, 16, 3, 2]))
    scale, zero = d.draw(scales), d.draw(st.integers(0, levels - 1))
    low, high = -zero * scale, (levels - 1 - zero) * scale
    kind = d.draw(st.integers(0, 7))
    if kind == 0:
        channels = d.channels(x)
        spread = np.asarray(
            d.draw(st.lists(st.sampled_from([1.0, 2.0, 0.5]), min_size=channels, max_size=channels))
        )
        shaped = spread.reshape(1, channels, 1, 1)
        return d.net.fq(x, low * shaped, high * shaped, levels=levels)
    if kind == 1:
        return d.net.fq(
            x,
            low,
            high,
            0.0 if d.draw(st.booleans()) else -1.0,
            d.draw(st.sampled_from([levels - 1.0, 1.0, 3.0])),
            levels,
        )
    if kind == 2:
        return d.net.fq(x, high, low, low, high, levels)
    return d.net.fq(x, low, high, levels=levels)


def _quantize_dequantize(d: Draft, x: Value) -> Value:
    dtype = d.draw(st.sampled_from([DType.U8, DType.S8]))
    low, high = dtype.range
    zero = d.draw(st.sampled_from([0, 0, (low + high + 1) // 2, 3, 117 + low, low, high]))
    scale = d.draw(scales) * (1 if d.draw(st.integers(0, 15)) else -1)
    narrow = (
        {}
        if d.draw(st.integers(0, 4))
        else {"low": low + d.draw(st.integers(0, 3)), "high": high - d.draw(st.integers(0, 50))}
    )
    codes = d.net.q(
        x, scale, zero, dtype, order=d.draw(st.sampled_from(["round_first", "zp_first"])), **narrow
    )
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
    return d.net.conv(
        x,
        outputs,
        d.draw(st.sampled_from([1, 3])),
        scale=per_channel,
        style=style,
        bias=bias,
        group=group,
    )


def _unary(d: Draft, x: Value) -> Value:
    op = d.draw(
        st.sampled_from(
            [
                "Relu",
                "Relu",
                "Relu",
                "Sigmoid",
                "LeakyRelu",
                "HardSwish",
                "Abs",
                "Neg",
                "Tanh",
                "Elu",
                "Identity",
            ]
        )
    )
    return d.net.op(op, x, **({"alpha": 0.125} if op == "LeakyRelu" else {}))


def _clip(d: Draft, x: Value) -> Value:
    low = d.draw(st.sampled_from([0.0, -1.0, 0.5]))
    return d.net.op("Clip", x, low, low + d.draw(st.sampled_from([1.0, 6.0, 0.25])))


def _constant(d: Draft, x: Value) -> Value:
    op = d.draw(st.sampled_from(["Add", "Sub", "Mul", "Mul", "Div", "Max", "Min"]))
    constant = d.vector(x, factors if op in ("Mul", "Div") else shifts)
    return (
        d.net.op(op, constant, x)
        if op != "Div" and d.draw(st.integers(0, 3)) == 0
        else d.net.op(op, x, constant)
    )


def _binary(d: Draft, x: Value) -> Value:
    return d.net.op(
        d.draw(st.sampled_from(["Add", "Add", "Add", "Sub", "Mul", "Max"])), x, d.partner(x)
    )


def _broadcast(d: Draft, x: Value) -> Value:
    pooled = d.net.op("GlobalAveragePool", x)
    if d.draw(st.booleans()):
        pooled = d.net.qdq(pooled, d.draw(scales), 100)
    return d.net.op(d.draw(st.sampled_from(["Add", "Mul", "Max"])), x, pooled)


def _concat(d: Draft, x: Value) -> Value:
    others = [value for value in d.values if d.shape(value)[2:] == d.shape(x)[2:]]
    y = d.net.op("Concat", x, d.draw(st.sampled_from(others)), axis=1)
    return (
        y
        if d.channels(y) <= 8
        else d.net.op("Slice", y, d.net.ints(0), d.net.ints(4), d.net.ints(1))
    )


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
    padded = d.net.op(
        "Pad", x, d.net.ints(0, 0, 0, 0, 0, 0, 1, 1), d.draw(st.sampled_from([0.0, 0.5, 0.3]))
    )
    return d.net.op("MaxPool", padded, kernel_shape=(2, 2))


def _batch_norm(d: Draft, x: Value) -> Value:
    count = d.channels(x)
    gamma = d.draw(st.lists(factors, min_size=count, max_size=count))
    bias, mean = d.net.rng.standard_normal(count), d.net.rng.standard_normal(count)
    return d.net.op("BatchNormalization", x, gamma, bias, mean, np.full(count, 0.5))


def _product(d: Draft, x: Value) -> Value:
    y = d.net.op(
        "MatMul", x, d.net.weights((4, 4), 2.0**-7, style=d.draw(st.sampled_from(["qdq", "float"])))
    )
    return d.net.op("Add", y, d.net.rng.integers(-8, 9, 4) / 4) if d.draw(st.booleans()) else y


_MAKERS = (
    *(_fake_quantize, _quantize_dequantize, _quantize_dequantize) * 2,
    *(_conv, _conv, _conv),
    *(_unary, _unary, _clip, _constant, _constant, _binary, _binary),
    *(_broadcast, _concat, _pool, _move, _batch_norm, _product),
)


@st.composite
def graphs(
    draw: st.DrawFn, blocks: tuple[Block, ...] = BRANCHES, least: int = 2, most: int = 6
) -> Graph:
    """A graph on f32 values [N, C, 4, 4]: one of `blocks`, and `least` to `most` single operations
    or blocks before and behind it.

    What nothing reads is returned, and sometimes more.
    """
    net = Net("drawn", seed=draw(st.integers(0, 7)))
    d = Draft(draw, net, [net.input(("N", draw(st.sampled_from([2, 4])), 4, 4))])
    if draw(st.integers(0, 3)) == 0:
        d.values.append(net.input(("N", d.channels(d.values[0]), 4, 4)))
    count = draw(st.integers(least, most))
    block = draw(st.integers(0, count))
    for place in range(count + 1):
        others = BRANCHES if draw(st.integers(0, 5)) == 0 else _MAKERS
        makers = blocks if place == block else others
        d.values.append(draw(st.sampled_from(makers))(d, d.one()))
    unread = [
        value for value in d.values if not net.graph.uses(value) and value not in net.graph.inputs
    ]
    more = (
        draw(st.lists(st.sampled_from(d.values[1:] + d.codes), max_size=1))
        if draw(st.integers(0, 3)) == 0
        else []
    )
    return net.done(
        *dict.fromkeys(
            [*unread, d.values[-1], *(value for value in more if value not in net.graph.inputs)]
        )
    )
