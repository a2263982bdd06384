"""Blocks with branches, as networks have them: residual adds, concatenations, attention, gates,
values with several quantizers.

Each takes a value [N, C, 4, 4] and gives one of that form; C may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from laws.build import Value
from laws.drafts import Draft, scales

from fqfuse.ir.types import DType, Quantization

Block = Callable[[Draft, Value], Value]


def _residual(d: Draft, x: Value) -> Value:
    """A convolution, or two, and what they read meet in an add: in every style."""
    skip = d.maybe_quantized(d.net.op("Relu", x) if d.yes() else x)
    channels = d.channels(x)
    branch = d.convolved(
        d.quantized(skip) if d.yes(3) else skip,
        channels,
        d.draw(st.sampled_from([1, 3])),
        bias=d.yes(),
    )
    if d.yes(4):
        branch = d.net.op("Relu", branch)
    if d.yes():
        branch = d.quantized(branch)  # as ONNX Runtime writes it
    peer = d.draw(st.sampled_from([skip, skip, x, d.convolved(skip, channels, 1, bias=d.yes())]))
    if d.yes(4):
        peer = d.net.op("GlobalAveragePool", peer)
    operands = [branch, peer] if d.yes() else [peer, branch]
    total = _three_way(d, operands, skip) if d.yes(3) else d.net.op("Add", *operands)
    if d.yes():
        total = d.net.op("Relu", total)
    if d.yes(4):
        total = d.net.op("Mul", total, d.draw(st.sampled_from([0.5, 0.75, -0.5])))
    d.values.append(total)
    return d.maybe_quantized(total)


def _three_way(d: Draft, operands: list[Value], skip: Value) -> Value:
    third = d.maybe_quantized(d.convolved(skip, d.channels(skip)))
    if d.yes():
        return d.net.op(d.draw(st.sampled_from(["Sum", "Sum", "Mean", "Max"])), *operands, third)
    return d.net.op("Add", d.net.op("Add", *operands), third)


def _concat(d: Draft, x: Value) -> Value:
    """Branches with equal or unequal quantizers meet in a concatenation, and sometimes in a longer
    one behind.
    """
    start = d.maybe_quantized(x)
    makers: list[Callable[[], Value]] = [
        lambda: start,
        lambda: d.convolved(start, 2),
        lambda: d.net.op("Relu", d.convolved(start, 2, 3)),
        lambda: d.net.op("MaxPool", start, kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        lambda: d.net.op("AveragePool", start, kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    ]
    branches = [d.draw(st.sampled_from(makers))() for _ in range(d.draw(st.integers(2, 3)))]
    equal = d.draw(st.sampled_from(["equal", "scale", "any", "scales"]))
    scale, zero = d.draw(scales), d.draw(st.sampled_from([0, 128, 3]))
    for index, branch in enumerate(branches):
        if equal == "equal":
            branches[index] = d.net.qdq(branch, scale, zero)
        elif equal == "scale":  # the same values, u8 in one branch and s8 in another
            signed = d.yes()
            branches[index] = d.net.qdq(
                branch, scale, zero - 128 if signed else zero, DType.S8 if signed else DType.U8
            )
        elif equal == "scales":  # a product of them has no scale for its source
            branches[index] = d.net.qdq(branch, scale * (index + 1), zero)
        elif equal == "any":
            branches[index] = d.maybe_quantized(branch)
    y = d.net.op("Concat", *branches, axis=1)
    if d.yes():
        last = d.convolved(y, 2)
        longer = d.net.op("Concat", *branches, d.quantized(last) if d.yes() else last, axis=1)
        y = longer if d.yes() else d.net.op("Concat", y, longer, axis=1)
    if d.yes(3):
        y = _normalized(d, y)
    elif d.yes(3):
        y = d.quantized(y)
    return d.convolved(y, d.draw(st.sampled_from([2, 4])), bias=d.yes())


def _dense(d: Draft, x: Value) -> Value:
    """A dense layer: what is joined is normalized in front of the next convolution."""
    joined = d.net.op("Concat", x, d.maybe_quantized(d.convolved(d.quantized(x), 2)), axis=1)
    return d.convolved(_normalized(d, joined), d.draw(st.sampled_from([2, 4])), bias=d.yes())


def _normalized(d: Draft, x: Value) -> Value:
    """A batch normalization in front of a convolution, as dense networks have it."""
    count = d.channels(x)
    gamma = d.net.rng.integers(1, 9, count) / 4 * (1 if d.yes() else -1)
    front = d.net.qdq(x, d.draw(scales), 0, DType.S8) if d.yes() else d.maybe_quantized(x)
    offset, mean = d.net.rng.standard_normal(count), d.net.rng.standard_normal(count)
    y = d.net.op("BatchNormalization", front, gamma, offset, mean, np.full(count, 0.5))
    return d.maybe_quantized(d.net.op("Relu", y) if d.yes() else y)


def _grouped(d: Draft, x: Value) -> Value:
    """A group or instance normalization with its activation between two convolutions."""
    x = d.maybe_quantized(d.convolved(x, 4))
    gamma, offset = d.net.rng.integers(1, 9, 4) / 4, d.net.rng.standard_normal(4)
    if d.yes():
        y = d.net.op("InstanceNormalization", x, gamma, offset, epsilon=0.5)
    else:
        groups = d.draw(st.sampled_from([1, 2, 4]))
        y = d.net.op("GroupNormalization", x, gamma, offset, num_groups=groups, epsilon=0.5)
    if d.yes():
        y = d.net.op("Mul", y, d.net.op("Sigmoid", y)) if d.yes() else d.net.op("Relu", y)
    return d.convolved(d.quantized(y), d.draw(st.sampled_from([2, 4])))


def _attention(d: Draft, x: Value) -> Value:
    """A product of two activations, the second transposed, with scale, mask and softmax behind."""
    left = d.quantized(d.convolved(d.maybe_quantized(x), d.channels(x)) if d.yes() else x)
    other = d.partner(x)
    if d.yes():  # transposed on codes, or before they are made
        right = d.net.op("Transpose", d.net.qdq(other, d.draw(scales), 128), perm=(0, 1, 3, 2))
    else:
        right = d.quantized(d.net.op("Transpose", other, perm=(0, 1, 3, 2)))
    y = d.net.op("MatMul", left, right)
    if d.yes():
        y = d.net.op("Mul", y, 0.25)
    if d.yes():
        hidden = d.draw(st.sampled_from([-3.4e38, -10000.0, 0.0, 1.5, 1e6]))
        choices = [y, d.net.const(hidden)] if d.yes() else [d.net.const(hidden), y]
        y = d.net.op("Where", d.net.const(np.tri(4, dtype=np.bool_)), *choices)
    if d.yes(3):
        y = d.net.op("Softmax", y, axis=-1)
    return d.maybe_quantized(y)


def _cut(d: Draft, x: Value) -> Value:
    """A product of which one row, or half of them, is read."""
    weights = d.net.weights((4, 4), 2.0**-7, style=d.draw(st.sampled_from(["qdq", "fq", "float"])))
    y = d.net.op("MatMul", d.maybe_quantized(x), weights)
    if d.yes():
        y = d.net.op("Add", d.maybe_quantized(y), d.draw(st.sampled_from([x, 0.5])))
    if d.yes(3):
        y = d.net.op("Softmax", y, axis=-1)
    y = d.maybe_quantized(y)
    if d.yes():
        row = d.net.op("Gather", y, d.net.ints(d.draw(st.sampled_from([0, -1, 2]))), axis=2)
        return d.net.op("Concat", row, row, row, row, axis=2)
    half = d.net.op("Slice", y, d.net.ints(1), d.net.ints(3), d.net.ints(2))
    return d.net.op("Concat", half, half, axis=2)


def _gate(d: Draft, x: Value) -> Value:
    """Squeeze and excite: pool, a Gemm or two, a gate that multiplies."""
    channels = d.channels(x)
    pool = d.draw(st.sampled_from(["GlobalAveragePool", "ReduceMean", "ReduceMax"]))
    if pool == "GlobalAveragePool" or d.yes():
        pooled = d.net.op(pool, x, *([] if pool == "GlobalAveragePool" else [d.net.ints(2, 3)]))
        flat = d.net.op("Flatten", d.maybe_quantized(pooled))
    else:
        flat = d.net.op(pool, x, d.net.ints(-2, -1), keepdims=0)
    turned = int(d.yes())
    weights = d.net.weights(
        (channels, channels), 2.0**-7, style=d.draw(st.sampled_from(["qdq", "fq", "float"]))
    )
    bias = [d.net.rng.integers(-8, 9, channels) / 4] if d.yes() else []
    attrs = {
        "transB": turned,
        "alpha": d.draw(st.sampled_from([1.0, 1.0, 0.5, -2.0])),
        "beta": d.draw(st.sampled_from([1.0, 0.5])),
    }
    y = d.net.op("Gemm", d.maybe_quantized(flat), weights, *bias, **attrs)
    y = d.net.op(d.draw(st.sampled_from(["HardSigmoid", "Sigmoid", "Relu"])), y)
    gate = d.net.op("Reshape", d.maybe_quantized(y), d.net.ints(0, channels, 1, 1))
    return d.net.op("Mul", *([x, gate] if d.yes() else [gate, x]))


def _decomposed(d: Draft, x: Value) -> Value:
    """An activation as exporters spell it out; sometimes with a quantizer behind each step, as ONNX
    Runtime's does.
    """
    n = d.net
    each = n.qdq if d.yes() else lambda value, *_: value
    if each is n.qdq or d.yes():
        x = n.qdq(x, d.draw(scales), 128)
    kind = d.draw(st.sampled_from(["silu", "mish", "hardswish", "gelu", "gelu_tanh"]))
    if kind == "silu":
        y = n.op("Mul", x, each(n.op("Sigmoid", x), 2.0**-8, 0))
    elif kind == "mish":
        y = n.op("Mul", x, each(n.op("Tanh", each(n.op("Softplus", x), 2.0**-5, 0)), 2.0**-8, 0))
    elif kind == "hardswish":
        y = n.op(
            "Div",
            n.op("Mul", x, each(n.op("Clip", n.op("Add", x, 3.0), 0.0, 6.0), 2.0**-5, 0)),
            6.0,
        )
    elif kind == "gelu":
        error = each(n.op("Erf", each(n.op("Div", x, math.sqrt(2)), 2.0**-5, 128)), 2.0**-7, 128)
        y = n.op("Mul", n.op("Mul", x, n.op("Add", error, 1.0)), 0.5)
    else:
        cube = n.op("Mul", each(n.op("Pow", x, 3.0), 2.0**-4, 128), 0.044715)
        inner = n.op("Tanh", n.op("Mul", n.op("Add", x, cube), math.sqrt(2 / math.pi)))
        y = n.op("Mul", n.op("Mul", x, 0.5), n.op("Add", each(inner, 2.0**-7, 128), 1.0))
    return n.qdq(y, d.draw(scales), 100) if d.yes() or each is n.qdq else y


def _several_quantizers(d: Draft, x: Value) -> Value:
    """One value behind several quantizers, alike or not, each with a reader of its own; the readers
    meet.
    """
    scale, zero, channels = d.draw(scales), d.draw(st.sampled_from([0, 128])), d.channels(x)
    ends = []
    for _ in range(d.draw(st.integers(2, 3))):
        form = d.draw(st.sampled_from(["same", "same fq", "other", "codes"]))
        if form == "same":
            y = d.net.qdq(x, scale, zero)
        elif form == "same fq":
            y = d.net.fq(x, -zero * scale, (255 - zero) * scale)
        elif form == "codes":
            codes = d.net.q(x, scale, zero)
            d.codes.append(codes)
            y = d.net.op("Max", d.net.dq(codes), d.net.dq(codes))
        else:
            y = d.quantized(x)
        ends.append(d.draw(st.sampled_from([y, d.convolved(y, channels), d.net.op("Relu", y)])))
    return d.net.op(d.draw(st.sampled_from(["Add", "Max", "Min", "Mul"])), ends[0], ends[-1])


def _quantize_only(d: Draft, x: Value) -> Value:
    """A FakeQuantize onto the integer grid, with the arithmetic that decodes behind it."""
    scale, zero = d.draw(scales), d.draw(st.sampled_from([0, 128, 100]))
    least = d.draw(st.sampled_from([0, 0, -128]))
    y = d.net.fq(x, -zero * scale, (255 - zero) * scale, least, least + 255)
    if d.yes():
        stored = d.net.op("Cast", y, to=DType.S8 if least < 0 else DType.U8)
        y = d.net.op("Cast", stored, to=DType.F32)
    decoded = d.net.op("Mul", d.net.op("Sub", y, float(zero + least)), scale)
    if d.yes(3):
        d.values.append(y)
    return d.convolved(decoded, d.channels(x)) if d.yes() else decoded


def _embedded(d: Draft, x: Value) -> Value:
    """Rows of a table of codes, picked at run time, added to what is there."""
    channels, rows = d.channels(x), d.draw(st.integers(3, 7))
    codes = d.net.graph.add_constant("table", d.net.codes((rows, channels, 4, 4)))
    axis = d.draw(st.sampled_from([None, 0, 1]))
    count = {None: 1, 0: rows, 1: channels}[axis]
    zeros = d.net.rng.integers(-3, 4, count) if d.yes(3) else d.draw(st.integers(-3, 3))
    quant = Quantization.of(2.0 ** -d.net.rng.integers(5, 8, count), zeros, axis)
    picked = d.net.input((1,), dtype=DType.S64)
    y = d.net.op("Gather", d.net.dq(codes, quant), picked)
    return d.net.op("Add", x, d.maybe_quantized(y))


def _computed_bias(d: Draft, x: Value) -> Value:
    """A convolution whose bias is an input of the model, or computed from one."""
    outputs = d.channels(x)
    bias = d.net.input((outputs,))
    if d.yes():
        bias = d.net.op("Mul", bias, 0.5)
    weights = d.net.weights((outputs, outputs, 1, 1), 2.0**-8, 0)
    y = d.net.op("Conv", d.maybe_quantized(x), weights, bias, kernel_shape=(1, 1))
    return d.maybe_quantized(d.net.op("Relu", y) if d.yes() else y)


def _scaled_convolution(d: Draft, x: Value) -> Value:
    """A convolution with a factor behind it, or behind its relu or add, that no quantizer takes."""
    y = d.convolved(x, d.channels(x), bias=d.yes())
    if d.yes():
        y = d.net.op("Relu", y)
    elif d.yes():
        y = d.net.op("Add", y, d.net.qdq(d.partner(y), d.draw(scales), 128))
    factor = (
        d.vector(y, st.sampled_from([0.5, 0.75, 3.0]))
        if d.yes()
        else d.draw(st.sampled_from([0.5, -0.5, 3.0]))
    )
    return d.net.op("Mul", y, factor)


def _factor_behind_movement(d: Draft, x: Value) -> Value:
    """A convolution, what moves its result, and a factor, one number or one for each channel, in front
    of a quantizer: as smooth quantization leaves it in front of a window's product.
    """
    y = d.convolved(x, d.channels(x), bias=d.yes())
    if d.yes():
        y = d.net.op("Relu", y)
    channels = d.channels(y)
    constants = st.sampled_from([0.5, 0.75, 2.0])
    values = [d.draw(constants) for _ in range(channels)] if d.yes() else [d.draw(constants)]
    if d.yes():
        y = d.net.op("Transpose", y, perm=(0, 2, 3, 1))
        factor = np.asarray(values, np.float32)
        last = d.yes()
        if last:
            y = d.net.op("Reshape", y, d.net.ints(0, 16, channels))
        y = d.maybe_quantized(d.net.op("Mul", y, factor))
        if last:
            y = d.net.op("Reshape", y, d.net.ints(0, 4, 4, channels))
        return d.net.op("Transpose", y, perm=(0, 3, 1, 2))
    y = d.net.op("Reshape", y, d.net.ints(0, channels, 2, 8))
    y = d.net.op("Mul", y, np.asarray(values, np.float32).reshape(1, -1, 1, 1))
    return d.net.op("Reshape", d.maybe_quantized(y), d.net.ints(0, channels, 4, 4))


def _moved(d: Draft, x: Value) -> Value:
    """Data movement and max pools between quantizers and what reads them."""
    channels = d.channels(x)
    y = d.quantized(x) if d.yes() else x
    for _ in range(d.draw(st.integers(1, 3))):
        kind = d.draw(st.sampled_from(["transpose", "reshape", "pool", "split", "pad", "shuffle"]))
        if kind == "transpose":
            y = d.net.op("Transpose", y, perm=(0, 1, 3, 2))
        elif kind == "reshape":
            y = d.net.op(
                "Reshape", d.net.op("Reshape", y, d.net.ints(0, 0, 16)), d.net.ints(0, 0, 4, 4)
            )
        elif kind == "shuffle" and channels % 2 == 0:
            y = d.net.op(
                "Transpose",
                d.net.op("Reshape", y, d.net.ints(0, 2, channels // 2, 4, 4)),
                perm=(0, 2, 1, 3, 4),
            )
            y = d.net.op(
                "Reshape",
                d.net.qdq(y, 2.0**-6, 128) if d.yes(3) else y,
                d.net.ints(0, channels, 4, 4),
            )
        elif kind == "pool":
            y = d.net.op("MaxPool", y, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        elif kind == "split":
            sliced = (
                [
                    d.net.op("Slice", y, d.net.ints(start), d.net.ints(start + 2), d.net.ints(2))
                    for start in (0, 2)
                ]
                if d.yes()
                else []
            )
            halves = sliced or d.parts(d.net.op("Split", y, outputs=2, axis=2, num_outputs=2))
            y = d.net.op("Concat", *(halves if d.yes() else reversed(halves)), axis=2)
        else:
            y = d.net.op(
                "MaxPool",
                d.net.op("Pad", y, d.net.ints(0, 0, 0, 0, 0, 0, 1, 1), 0.0),
                kernel_shape=(2, 2),
            )
    y = d.net.op("Relu", y) if d.yes(3) else y
    y = d.net.op("Identity", y) if d.yes(8) else y
    return d.draw(st.sampled_from([y, d.quantized(y), d.convolved(d.maybe_quantized(y), channels)]))


def _padded(d: Draft, x: Value) -> Value:
    """Zeros, or something else, around what a convolution reads, in front of its quantizer or
    behind; sometimes another reads it, too.
    """
    channels = d.channels(x)
    y = d.maybe_quantized(x)
    (top, bottom), (left, right) = (
        d.draw(st.sampled_from([(1, 1), (2, 0), (0, 2)])) for _ in range(2)
    )
    value = d.draw(st.sampled_from([0.0, 0.0, 0.0, 0.25]))
    y = d.maybe_quantized(
        d.net.op("Pad", y, d.net.ints(0, 0, top, left, 0, 0, bottom, right), value)
    )
    weights = d.net.weights(
        (channels, channels, 3, 3), 2.0**-8, style=d.draw(st.sampled_from(["qdq", "float"]))
    )
    result = d.net.op("Conv", y, weights, kernel_shape=(3, 3), pads=(0, 0, 0, 0))
    if d.yes(4):
        result = d.net.op("Add", result, d.net.op("MaxPool", y, kernel_shape=(3, 3)))
    return d.maybe_quantized(result)


def _reshaped(d: Draft, x: Value) -> Value:
    """Arithmetic between two reshapes: of maps with fewer or more axes, of rows around a matrix
    product, or of pooled channels.
    """
    channels = d.channels(x)
    if d.yes(4):
        pooled = d.maybe_quantized(
            d.net.op(d.draw(st.sampled_from(["GlobalMaxPool", "GlobalAveragePool"])), x)
        )
        flat = (
            d.net.op("Flatten", pooled)
            if d.yes()
            else d.net.op("Squeeze", pooled, d.net.ints(2, 3))
        )
        y = d.net.op(
            "Reshape", _under_another_shape(d, flat, lambda: None), d.net.ints(0, channels, 1, 1)
        )
        return d.net.op("Mul", *([x, y] if d.yes() else [y, x]))
    targets = [
        (0, channels, 16),
        (0, channels, 2, 8),
        (0, channels * 16),
        (-1, 4),
        (-1, 4),
        (0, 1, channels, 4, 4),
    ]
    shape = d.net.ints(*d.draw(st.sampled_from(targets)))
    front = d.draw(st.sampled_from([d.convolved(x, channels), d.net.op("Relu", x), x]))
    flat = d.net.op("Reshape", d.maybe_quantized(front), shape)
    y = _under_another_shape(
        d, flat, lambda: d.net.op("Reshape", d.maybe_quantized(d.partner(x)), shape)
    )
    y = d.net.op("Reshape", y, d.net.ints(-1, channels, 4, 4))
    if d.yes():
        y = d.net.op("Add", *([x, y] if d.yes() else [y, x]))
    return d.maybe_quantized(y)


def _under_another_shape(d: Draft, y: Value, partner: Callable[[], Value | None]) -> Value:
    """One to three operations on a value of any rank; `partner` makes another one of its shape."""
    for _ in range(d.draw(st.integers(1, 3))):
        kind, last = (
            d.draw(st.sampled_from(["unary", "constant", "product", "partner", "quantized"])),
            int(d.shape(y)[-1]),
        )
        other = partner() if kind == "partner" else None
        if kind == "constant":
            operand = d.net.rng.integers(1, 9, d.draw(st.sampled_from([1, last]))) / 4
            y = d.net.op(d.draw(st.sampled_from(["Add", "Mul"])), y, operand)
        elif kind == "product" and last <= 16:
            style = d.draw(st.sampled_from(["qdq", "float"]))
            y = d.net.op(
                "MatMul", d.maybe_quantized(y), d.net.weights((last, last), 2.0**-8, style=style)
            )
        elif other is not None and d.shape(other) == d.shape(y):
            y = d.net.op("Add", y, other)
        elif kind == "quantized":
            y = d.quantized(y)
        else:
            y = d.net.op(d.draw(st.sampled_from(["Relu", "Sigmoid", "Tanh"])), y)
    return y


def _sixteen_bits(d: Draft, x: Value) -> Value:
    """16-bit codes, alike or not on both sides of what moves values; sometimes the model moves
    codes itself.
    """
    zero, dtype = d.draw(
        st.sampled_from([(0, DType.U16), (30001, DType.U16), (32768, DType.U16), (0, DType.S16)])
    )
    scale = d.draw(st.sampled_from([2.0**-10, 2.0**-7, 0.001]))
    codes = d.net.q(d.convolved(x, d.channels(x)) if d.yes() else x, scale, zero, dtype)
    y = d.net.dq(d.net.op("Transpose", codes, perm=(0, 1, 3, 2)) if d.yes(3) else codes)
    for _ in range(d.draw(st.integers(1, 2))):
        kind = d.draw(st.sampled_from(["transpose", "pool", "relu"]))
        if kind == "transpose":
            y = d.net.op("Transpose", y, perm=(0, 1, 3, 2))
        elif kind == "pool":
            y = d.net.op("MaxPool", y, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        else:
            y = d.net.op("Relu", y)
        y = d.net.qdq(y, scale if d.yes() else 2.0**-9, zero, dtype)
    return d.net.op("Add", y, d.net.dq(codes)) if d.yes(3) else y


def _run_time(d: Draft, x: Value) -> Value:
    """A convolution of codes whose zero point is an input, or a constant that is told as late, with
    scales behind it, one of which is computed, and weights of s8, or of u8 by any zero point; or
    values times a number that is computed.
    """
    channels, net = d.channels(x), d.net
    scale = net.op("Add", net.op("Abs", net.input(())), 0.25)
    if d.yes(3):
        return net.op("Mul", x, scale)
    codes = net.q(x, d.draw(scales), 128)
    zero = net.input((), dtype=DType.U8)
    if d.yes(3):
        zero = net.graph.add_constant("zero", np.asarray(d.draw(st.integers(0, 255)), np.uint8))
    decoded = net.op("RunTimeDequantize", codes, 1.0, zero)
    shape = (channels, channels, 1, 1)
    weights = net.weights(shape, 1.0, 0)
    if d.yes():
        drawn = net.codes(shape, 0, 255, DType.U8)
        zeros = d.draw(st.sampled_from([121, 3, 255, np.arange(100, 100 + channels)]))
        quant = Quantization.of(1.0, zeros, 0)
        weights = net.dq(net.graph.add_constant("codes", drawn), quant)
    y = net.op("Conv", decoded, weights, kernel_shape=(1, 1))
    factors = d.vector(y, st.sampled_from([0.5, 0.02]))
    if zero in net.graph.constants and d.yes():
        return net.op("Mul", y, factors)
    return net.op("Mul", y, net.op("Mul", scale, factors))


def _fed_ranges(d: Draft, x: Value) -> Value:
    """A FakeQuantize whose ranges are inputs, computed or constant, each, in front of a convolution
    or of anything else.
    """

    def end() -> Value | float:
        form = d.draw(st.sampled_from(["input", "input", "computed", "constant"]))
        if form == "constant":
            return float(d.draw(st.sampled_from([-1.0, 0.0, 0.5, 1.0])))
        fed = d.net.input(d.draw(st.sampled_from([(), (1,), (1, 1, 1)])))
        return fed if form == "input" else d.net.op("Add", d.net.op("Abs", fed), 0.25)

    levels = d.draw(st.sampled_from([2, 3, 16, 255, 256, 256]))
    y = d.net.fq(x, end(), d.net.input(()), end(), end(), levels=levels)
    return d.convolved(y, d.channels(x), d.draw(st.sampled_from([1, 3])), bias=d.yes())


def _scaled_rows(d: Draft, x: Value) -> Value:
    """A product of codes whose rows, or channels, have scales of their own: inputs, computed or constant."""
    net, axis = d.net, d.draw(st.sampled_from([1, 2]))
    count = d.channels(x) if axis == 1 else 4
    codes = net.q(x, d.draw(scales), 128)
    zeros = np.full(count, d.draw(st.sampled_from([128, 128, 3])))
    if d.yes(4):
        rows = net.input((1, count, 1, 1) if axis == 1 else (1, 1, count, 1))
        whole = net.op("Cast", codes, to=DType.F32) if d.yes() else net.dq(codes)
        decoded = net.op("Mul", rows, whole) if d.yes() else net.op("Mul", whole, rows)
    elif d.yes(3):
        zeros = zeros - d.draw(st.sampled_from([0, 0.5]))
        steps = d.draw(st.lists(scales, min_size=count, max_size=count))
        decoded = net.dq(codes, Quantization.of(steps, zeros, axis))
    else:
        fed = net.input((count,))
        scale = fed if d.yes() else net.op("Add", net.op("Abs", fed), 0.25)
        zero = net.graph.add_constant("zeros", zeros.astype(np.uint8))
        decoded = net.op("RunTimeDequantize", codes, scale, zero, axis=axis)
    return d.maybe_quantized(net.op("MatMul", decoded, net.weights((4, 4), 2.0**-7)))


BLOCKS: dict[str, Block] = {
    "run_time": _run_time,
    "scaled_rows": _scaled_rows,
    "fed_ranges": _fed_ranges,
    "residual": _residual,
    "concat": _concat,
    "normalized": _dense,
    "grouped": _grouped,
    "attention": _attention,
    "cut": _cut,
    "gate": _gate,
    "several_quantizers": _several_quantizers,
    "factor_behind_movement": _factor_behind_movement,
    "moved": _moved,
    "quantize_only": _quantize_only,
    "embedded": _embedded,
    "computed_bias": _computed_bias,
    "scaled_convolution": _scaled_convolution,
    "decomposed": _decomposed,
    "reshaped": _reshaped,
    "padded": _padded,
    "sixteen_bits": _sixteen_bits,
}

BRANCHES: tuple[Block, ...] = (*BLOCKS.values(), *(_residual, _concat) * 3)
"""Drawn alike; residual adds and concatenations more often."""
