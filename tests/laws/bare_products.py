"""Random products of codes as requests of the bare library, and their exact results.

A product is a convolution, deconvolution, matmul or inner product of u8 or s8 with s8, with scales,
zero points, a bias and post-ops. All of its numbers are whole multiples of a power of two that f32
holds on the whole way, so that no order of operations rounds, and the result is one number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fqfuse.onednn.attributes import Attributes, Binary, Eltwise, PostOp, PRelu, Sum
from fqfuse.onednn.enums import AlgKind, Arg, DataType, arg_post_op, arg_scales, arg_zero_points
from fqfuse.onednn.layouts import channels_last, row_major
from fqfuse.onednn.library import Engine
from fqfuse.onednn.memory import MemoryDesc, data_type_of, numpy_dtype
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe

A = np.ndarray[Any, Any]

KINDS = ("convolution", "convolution", "deconvolution", "matmul", "inner_product")
_MOST_PRODUCTS = 4_000_000
_CODES = (np.uint8, np.int8)


@dataclass
class Product:
    """A request.

    Attributes:
        kind: of the primitive.
        src, weights: codes; weights of groups have a dimension in front.
        window: strides, dilations and padding; empty for products without a window.
        values: the result before it is stored, in f64; while the request is drawn, of what it has so far.
        dtype: of the result.
        lies: how the source is given: `any`, `plain` or `last` (channels).
        arrays: further arguments.
        start: what a sum finds in the destination; None where there is no sum.
        words: what it is, for messages.
    """

    kind: str
    src: A
    weights: A
    window: dict[str, tuple[int, ...]]
    values: A
    dtype: DataType = DataType.f32
    lies: str = "any"
    scales: dict[int, int] = field(default_factory=dict)
    zero_points: dict[int, int] = field(default_factory=dict)
    post_ops: list[Callable[[Engine], PostOp]] = field(default_factory=list)
    arrays: dict[int, A] = field(default_factory=dict)
    start: A | None = None
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shapes = f"{self.src.dtype}{list(self.src.shape)} x {list(self.weights.shape)}"
        window = " ".join(f"{name}={list(value)}" for name, value in self.window.items())
        return f"{self.kind} {shapes} {window} {self.lies}; {'; '.join(self.words)}"

    @property
    def channel(self) -> int:
        """The axis of the result along which weights have scales."""
        return self.values.ndim - 1 if self.kind == "matmul" else 1

    @property
    def want(self) -> A:
        """The result as it is stored."""
        kind = numpy_dtype(self.dtype)
        if kind.kind == "f":
            return self.values.astype(kind)
        info = np.iinfo(kind)
        return np.clip(np.rint(self.values), info.min, info.max).astype(kind)

    def describe(self, engine: Engine) -> PrimitiveDesc:
        """Asks the library for it."""
        library = engine.library
        given = {
            "any": MemoryDesc.any,
            "plain": row_major,
            "last": channels_last,
        }[self.lies](library, self.src.shape, data_type_of(self.src.dtype))
        bias = self.arrays.get(Arg.BIAS)
        plain = row_major if self.kind == "matmul" else MemoryDesc.any
        attributes = Attributes(
            self.scales, self.zero_points, tuple(make(engine) for make in self.post_ops)
        )
        return describe(
            engine,
            self.kind,
            given,
            MemoryDesc.any(library, self.weights.shape, DataType.s8),
            None if bias is None else row_major(library, bias.shape, DataType.f32),
            plain(library, self.values.shape, self.dtype),
            attributes=attributes,
            **self.window,
        )


def draw(seed: int) -> Product:
    """The product of a seed."""
    rng = np.random.default_rng([seed, 317])
    drawing = _Drawing(rng)
    kind = drawing.one(*KINDS)
    product = _windowed(drawing, kind) if "convolution" in kind else _flat(drawing, kind)
    _finish(drawing, product)
    return product


class _Drawing:
    """Random choices."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def between(self, low: int, high: int) -> int:
        """Both ends included."""
        return int(self.rng.integers(low, high + 1))

    def channels(self) -> int:
        """Tiles have 16 rows of 64 bytes: around these, and anything."""
        near = self.one(16, 32, 48, 64, 128)
        return int(
            self.one(
                self.between(1, 8), self.between(1, 80), near, max(near + self.between(-4, 4), 1)
            )
        )

    def codes(self, dtype: type, shape: Sequence[int]) -> A:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, tuple(shape)).astype(dtype)

    def weights(self, shape: Sequence[int]) -> A:
        """Small ones leave room in 24 bits for post-ops."""
        most = self.one(3, 8, 8, 127)
        return self.rng.integers(-most, most + 1, tuple(shape)).astype(np.int8)

    def dyadic(self, shape: Sequence[int], low: int, high: int) -> A:
        """Powers of two."""
        return (2.0 ** self.rng.integers(low, high + 1, tuple(shape))).astype(np.float32)


# -- sums of products ------------------------------------------------------------------------------


def _zero_of(d: _Drawing, dtype: type) -> int:
    info = np.iinfo(dtype)
    return int(
        d.one(
            0,
            0,
            1,
            128 if dtype is np.uint8 else -5,
            info.min,
            info.max,
            d.between(info.min, info.max),
        )
    )


def _sizes(d: _Drawing, kind: str) -> tuple[tuple[int, ...], tuple[int, ...], list[dict[str, int]]]:
    """Shapes of source and weights [G, O, I, ...], and a window for each spatial dimension."""
    rank = d.one(1, 2, 2, 2, 3)
    groups, inputs, outputs = 1, d.channels(), d.channels()
    match d.one("one", "one", "one", "groups", "depthwise"):
        case "groups":
            groups = d.between(2, 4)
        case "depthwise":
            groups, inputs, outputs = d.channels(), 1, 1
    point = d.chance(0.35)
    most = (40, 14, 6)[rank - 1]
    axes = []
    for _ in range(rank):
        kernel = 1 if point else d.one(1, 2, 3, 3, 4, 5)
        apart = 1 if point else d.one(0, 0, 0, 0, 1, 2)
        span = (kernel - 1) * (apart + 1) + 1
        axis = {
            "size": d.between(1, most),
            "kernel": kernel,
            "stride": d.one(1, 1, 1, 2, 3),
            "apart": apart,
        }
        wide = span if d.chance(0.2) else span - 1
        axis |= {
            side: 0 if point and d.chance(0.8) else d.between(0, wide) for side in ("begin", "end")
        }
        if kind == "deconvolution" and d.chance(0.2):
            axis["end"] = -d.between(0, axis["stride"] - 1)
        axes.append(axis | {"span": span})
    return (
        (d.between(1, 3), groups * inputs, *(axis["size"] for axis in axes)),
        (groups, outputs, inputs, *(axis["kernel"] for axis in axes)),
        axes,
    )


def _results(kind: str, axes: list[dict[str, int]]) -> list[int]:
    """Sizes of the result; padding behind a convolution becomes what its last window reads."""
    found = []
    for axis in axes:
        n, s, span, begin, end = (axis[name] for name in ("size", "stride", "span", "begin", "end"))
        if kind == "deconvolution":
            found.append((n - 1) * s + span - begin - end)
            continue
        out = (n + begin + end - span) // s + 1
        axis["end"] = (out - 1) * s + span - n - begin
        found.append(out)
    return found


def _windowed(d: _Drawing, kind: str) -> Product:
    while True:
        src, weights, axes = _sizes(d, kind)
        out = _results(kind, axes)
        small = math.prod(weights) * src[0] * math.prod(out if kind == "convolution" else src[2:])
        if min(out) >= 1 and small <= _MOST_PRODUCTS:
            break
    dtype = d.one(*_CODES)
    zero, x, w = _zero_of(d, dtype), d.codes(dtype, src), d.weights(weights)
    window = {
        name: tuple(axis[key] for axis in axes)
        for name, key in (
            ("strides", "stride"),
            ("dilations", "apart"),
            ("padding_l", "begin"),
            ("padding_r", "end"),
        )
    }
    sums = (convolved if kind == "convolution" else spread)(
        x.astype(np.float64) - zero, w, window, out
    )
    given = w if weights[0] > 1 or d.chance(0.1) else w[0]
    product = Product(kind, x, given, window, sums, lies=d.one("any", "any", "last"))
    _with_zero(product, zero)
    return product


def _taps(
    w: A, window: dict[str, tuple[int, ...]]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Each tap, and how far it lies from the first one."""
    return [
        (tap, tuple(t * (apart + 1) for t, apart in zip(tap, window["dilations"], strict=True)))
        for tap in itertools.product(*map(range, w.shape[3:]))
    ]


def _of_a_tap(w: A, x: A, tap: tuple[int, ...]) -> A:
    """Products of codes [N, G * I, spatial...] with one tap, [N, G * O, spatial...], in f64."""
    (groups, outputs, inputs), spatial = w.shape[:3], x.shape[2:]
    flat = x.reshape(x.shape[0], groups, inputs, -1)
    found = np.matmul(w[(..., *tap)].astype(np.float64), flat)
    return found.reshape(x.shape[0], groups * outputs, *spatial)


def convolved(x: A, w: A, window: dict[str, tuple[int, ...]], out: Sequence[int]) -> A:
    """x [N, C, spatial...] convolved with w [G, O, I, kernel...]."""
    ends = zip(window["padding_l"], window["padding_r"], strict=True)
    padded = np.pad(x, [(0, 0), (0, 0), *((before, max(behind, 0)) for before, behind in ends)])
    total = np.zeros((x.shape[0], w.shape[0] * w.shape[1], *out))
    for tap, places in _taps(w, window):
        cuts = zip(places, out, window["strides"], strict=True)
        read = tuple(slice(p, p + (size - 1) * s + 1, s) for p, size, s in cuts)
        total += _of_a_tap(w, padded[(..., *read)], tap)
    return total


def spread(x: A, w: A, window: dict[str, tuple[int, ...]], out: Sequence[int]) -> A:
    """The transposed convolution of x [N, C, spatial...] by w [G, O, I, kernel...]."""
    taps = _taps(w, window)
    reach = [max(place[axis] for _, place in taps) for axis in range(len(out))]
    ends = [b + n for b, n in zip(window["padding_l"], out, strict=True)]
    sizes = [
        max((n - 1) * s + r + 1, end)
        for n, s, r, end in zip(x.shape[2:], window["strides"], reach, ends, strict=True)
    ]
    whole = np.zeros((x.shape[0], w.shape[0] * w.shape[1], *sizes))
    for tap, places in taps:
        cuts = zip(places, x.shape[2:], window["strides"], strict=True)
        written = tuple(slice(p, p + (n - 1) * s + 1, s) for p, n, s in cuts)
        whole[(..., *written)] += _of_a_tap(w, x, tap)
    inside = tuple(slice(b, b + n) for b, n in zip(window["padding_l"], out, strict=True))
    return whole[(..., *inside)]


def _flat(d: _Drawing, kind: str) -> Product:
    dtype = d.one(*_CODES)
    if kind == "inner_product":
        spatial = tuple(d.between(1, 4) for _ in range(d.one(0, 0, 1, 2)))
        src, weights = (d.between(1, 40), d.channels(), *spatial), (d.channels(),)
        weights = (*weights, *src[1:])
    else:
        leading = tuple(d.between(1, 4) for _ in range(d.one(0, 0, 1, 2)))
        rows, depth = d.one(1, 2, 7, d.between(1, 70)), d.one(d.channels(), d.between(1, 400))
        shared = d.chance(0.5)
        src = (*leading, rows, depth)
        weights = (*(1 if shared else n for n in leading), depth, d.channels())
    x, w = d.codes(dtype, src), d.weights(weights)
    zero = _zero_of(d, dtype) if kind == "matmul" else 0
    wide = x.astype(np.float64) - zero
    if kind == "matmul":
        sums = np.matmul(wide, w.astype(np.float64))
    else:
        sums = wide.reshape(src[0], -1) @ w.astype(np.float64).reshape(weights[0], -1).T
    product = Product(kind, x, w, {}, sums, lies=d.one("any", "plain"))
    _with_zero(product, zero)
    return product


def _with_zero(product: Product, zero: int) -> None:
    if zero:
        product.zero_points[Arg.SRC] = 0
        product.arrays[arg_zero_points(Arg.SRC)] = np.array([zero], np.int32)
        product.words.append(f"source zero {zero}")


# -- behind the sums -------------------------------------------------------------------------------


def _finish(d: _Drawing, product: Product) -> None:
    """Scales, a bias, post-ops, and how it is stored."""
    _scales(d, product)
    if d.chance(0.5):
        _bias(d, product)
    product.dtype = d.one(
        DataType.f32, DataType.u8, DataType.u8, DataType.s8, DataType.s8, DataType.s32
    )
    for _ in range(d.one(0, 0, 1, 1, 2, 3)):
        d.one(*_POST_OPS)(d, product)
    _stored(d, product)


def _held(values: A) -> bool:
    """Whether f32 holds each of them, with two bits to spare for what is in between."""
    return bool(np.abs(values).max(initial=0) < 2.0**100) and all(
        np.array_equal(v.astype(np.float32).astype(np.float64), v) for v in (values, values * 0.75)
    )


def _along(product: Product, values: A) -> A:
    """Numbers of channels, as they broadcast to the result."""
    return values.reshape(-1, *(1,) * (product.values.ndim - 1 - product.channel)).astype(
        np.float64
    )


def _scales(d: _Drawing, product: Product) -> None:
    if d.chance(0.2):
        return
    if d.chance(0.5):
        scale = d.dyadic((1,), -3, 1)
        product.scales[Arg.SRC], product.arrays[arg_scales(Arg.SRC)] = 0, scale
        product.values = product.values * float(scale[0])
    grouped = product.weights.ndim > product.src.ndim
    many = d.chance(0.6)
    scales = d.dyadic((product.values.shape[product.channel] if many else 1,), -3, 0)
    mask = (3 if grouped else 1) if product.kind != "matmul" else 1 << (product.weights.ndim - 1)
    product.scales[Arg.WEIGHTS] = mask if many else 0
    product.arrays[arg_scales(Arg.WEIGHTS)] = scales
    product.values = product.values * _along(product, scales)
    product.words.append(f"scales {'along channels' if many else 'of tensors'}")


def _near(d: _Drawing, product: Product, shape: Sequence[int]) -> A:
    """Whole numbers of the size that the values have."""
    most = max(int(np.abs(product.values).mean()), 1)
    return d.rng.integers(-most, most + 1, tuple(shape)).astype(np.float32)


def _bias(d: _Drawing, product: Product) -> None:
    count = product.values.shape[product.channel]
    bias = _near(d, product, (count,))
    added = product.values + _along(product, bias)
    if not _held(added):
        return
    product.values = added
    shape = (1,) * product.channel + (count,) if product.kind == "matmul" else (count,)
    product.arrays[Arg.BIAS] = bias.reshape(shape)
    product.words.append("bias")


def _eltwise(d: _Drawing, product: Product) -> None:
    size, v = float(max(np.abs(product.values).mean() // 1, 1)), product.values
    name, alpha, beta, found = d.one(
        ("relu", 0.0, 0.0, np.maximum(v, 0)),
        ("relu", 0.25, 0.0, np.where(v < 0, v * 0.25, v)),
        ("linear", 0.5, size, v * 0.5 + size),
        ("linear", -2.0, 3.0, v * -2 + 3),
        ("clip", -size, 2 * size, np.clip(v, -size, 2 * size)),
        ("abs", 0.0, 0.0, np.abs(v)),
        ("round", 0.0, 0.0, np.rint(v)),
    )
    if _held(found):
        product.values = found
        op = Eltwise(AlgKind[f"eltwise_{name}"], alpha, beta)
        product.post_ops.append(lambda _: op)
        product.words.append(f"{name}({alpha:g}, {beta:g})")


_BINARIES: dict[str, Callable[[A, A], A]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "ge": lambda a, b: (a >= b).astype(np.float64),
}


def _operand_dims(d: _Drawing, product: Product) -> tuple[int, ...]:
    dims, axis = product.values.shape, product.channel
    varies = d.one(
        (),
        (axis,),
        (axis,),
        (axis,),
        range(len(dims)),
        range(len(dims)),
        (0,),
        (0, axis),
        range(2, len(dims)),
    )
    return tuple(size if at in varies else 1 for at, size in enumerate(dims))


def _binary(d: _Drawing, product: Product) -> None:
    name, dims = d.one("add", "add", "mul", "mul", *_BINARIES), _operand_dims(d, product)
    dtype = d.one(np.float32, np.float32, *_CODES)
    if name == "mul":
        values = (
            d.rng.choice([0.5, 1.0, 2.0, -1.0], dims)
            if dtype is np.float32
            else d.rng.integers(0, 4, dims)
        )
    else:
        values = _near(d, product, dims) if dtype is np.float32 else d.codes(dtype, dims)
    operand = np.asarray(values).astype(dtype)
    found = _BINARIES[name](product.values, operand.astype(np.float64))
    if not _held(found):
        return
    product.values = found
    lies = row_major if product.kind in ("matmul", "inner_product") else channels_last
    product.arrays[arg_post_op(len(product.post_ops), Arg.SRC_1)] = operand
    kind = data_type_of(operand.dtype)
    product.post_ops.append(
        lambda engine: Binary(AlgKind[f"binary_{name}"], lies(engine.library, dims, kind))
    )
    product.words.append(f"{name} {operand.dtype}{list(dims)}")


def _prelu(d: _Drawing, product: Product) -> None:
    many = d.chance(0.7)
    slopes = d.dyadic((product.values.shape[product.channel] if many else 1,), -2, 0)
    found = np.where(product.values < 0, product.values * _along(product, slopes), product.values)
    if not _held(found):
        return
    product.values = found
    product.arrays[arg_post_op(len(product.post_ops), Arg.WEIGHTS)] = slopes
    mask = 1 << product.channel if many and slopes.size > 1 else 0
    product.post_ops.append(lambda _: PRelu(mask))
    product.words.append(f"prelu {'along channels' if many else ''}")


def _sum(d: _Drawing, product: Product) -> None:
    if product.start is not None:
        return
    own = numpy_dtype(product.dtype)
    kind = d.one(own, np.dtype(d.one(*_CODES))) if own.itemsize == 1 else own
    scale = d.one(1.0, 0.5, 2.0)
    dims = product.values.shape
    start = d.codes(kind.type, dims) if kind.itemsize == 1 else _near(d, product, dims).astype(kind)
    zero = _zero_of(d, kind.type) if kind.itemsize == 1 and d.chance(0.5) else 0
    found = product.values + scale * (start.astype(np.float64) - zero)
    if not _held(found):
        return
    product.values, product.start = found, start
    dtype = DataType.undef if kind == own else data_type_of(kind)
    product.post_ops.append(lambda _: Sum(scale, zero, dtype))
    product.words.append(f"sum {kind} {scale:g} zero {zero}")


_POST_OPS = (_eltwise, _eltwise, _binary, _binary, _prelu, _sum)


def _stored(d: _Drawing, product: Product) -> None:
    product.words.append(f"to {product.dtype.name}")
    if product.dtype in (DataType.f32, DataType.s32):
        if product.dtype == DataType.s32 and not _held(np.rint(product.values)):
            product.dtype = DataType.f32
        return
    size = max(float(np.abs(product.values).mean()), 1e-3)
    scale = np.array([2.0 ** round(math.log2(size / 40))], np.float32)
    zero = _zero_of(d, numpy_dtype(product.dtype).type)
    found = product.values / float(scale[0]) + zero
    if not _held(found):
        return
    product.values = found
    product.scales[Arg.DST], product.arrays[arg_scales(Arg.DST)] = 0, scale
    if zero:
        product.zero_points[Arg.DST] = 0
        product.arrays[arg_zero_points(Arg.DST)] = np.array([zero], np.int32)
    product.words.append(f"scale {scale[0]:g} zero {zero}")
