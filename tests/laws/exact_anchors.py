"""Random anchors as ONNX nodes, and what they must give: exact integers, then an interval of reals
around the float arithmetic behind them.

An anchor is a convolution, deconvolution, product or pooling of 8-bit codes over its whole
geometry, with post-ops behind it and a result
in f32, u8, s8 or s32. The reference shares nothing with fqfuse: it adds up products in float64,
where these integers are exact, tap by tap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

A = np.ndarray[Any, Any]

ROUNDINGS = 6 * 2.0**-24
"""Of the largest number on the way, for each operation: an f32 rounding is 2^-24 of it, and the
algebra may spread an operation over the scales, the bias and a post-op, each rounded by itself."""

_MOST_PRODUCTS = 1_500_000
_CODES = (np.uint8, np.int8)
_OPENVINO = "org.openvinotoolkit"


@dataclass
class Interval:
    """Where a result may lie.

    Attributes:
        low, high: the interval, in f64.
        size: at each place the largest number on the way to it: rounding errors are in proportion
            to it.
    """

    low: A
    high: A
    size: A

    @classmethod
    def exact(cls, values: A, size: A | None = None) -> Interval:
        """A single real at each place."""
        return cls(values, values, np.abs(values) if size is None else size)

    def rounded(self) -> Interval:
        """Wider by the rounding errors of one operation."""
        slack = ROUNDINGS * self.size
        return Interval(self.low - slack, self.high + slack, self.size)

    def monotone(self, function: Callable[[A], A]) -> Interval:
        """An increasing function of slope at most 1."""
        return Interval(function(self.low), function(self.high), self.size).rounded()

    def plus(self, other: Interval) -> Interval:
        """The sum."""
        return Interval(
            self.low + other.low, self.high + other.high, self.size + other.size
        ).rounded()

    def times(self, factor: A) -> Interval:
        """The product with known reals."""
        ends = self.low * factor, self.high * factor
        return Interval(np.minimum(*ends), np.maximum(*ends), self.size * np.abs(factor)).rounded()

    def codes(self, scale: float, zero: int, dtype: type) -> tuple[A, A]:
        """The lowest and the highest code, whether the zero point is added before rounding or
        behind it.
        """
        info = np.iinfo(dtype)
        scaled = self.times(np.float64(1.0 / scale))
        shifted = Interval.exact(np.full(scaled.low.shape, float(zero)))
        ends = [scaled.plus(shifted), scaled]
        lows = np.minimum(np.rint(ends[0].low), np.rint(ends[1].low) + zero)
        highs = np.maximum(np.rint(ends[0].high), np.rint(ends[1].high) + zero)
        return np.clip(lows, info.min, info.max), np.clip(highs, info.min, info.max)


@dataclass
class Anchor:
    """One anchor.

    Attributes:
        kind: the ONNX operation.
        seed: draws it again.
        nodes, initializers, inputs: its part of a model.
        feeds: what its inputs are given.
        output: its result's name.
        low, high: what the result must not leave.
        floats: its sums are of f32, which depend on their order.
        fraction: the zero point of its source is no integer.
        words: what it is, for messages.
    """

    kind: str
    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, A] = field(default_factory=dict)
    output: str = ""
    low: A = field(default_factory=lambda: np.zeros(0))
    high: A = field(default_factory=lambda: np.zeros(0))
    floats: bool = False
    fraction: bool = False
    words: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kind}, seed {self.seed}: " + "; ".join(self.words)

    def wrong(self, found: A) -> A:
        """The places where a result is outside."""
        return ~((found >= self.low) & (found <= self.high))


def draw(kind: str, seed: int, *, even: bool = False, most: int = 5) -> Anchor:
    """The anchor of a seed.

    Args:
        kind: one of KINDS.
        seed: anything.
        even: weights are even and within +-64: no int8 code saturates then, nor loses bits by
            halving them.
        most: post-ops.
    """
    drawing = _Drawing(Anchor(kind, seed), np.random.default_rng([seed, *kind.encode()]), even)
    KINDS[kind](drawing, most)
    return drawing.anchor


def model_of(anchors: Sequence[Anchor]) -> tuple[bytes, dict[str, A]]:
    """One model that holds them side by side, and its feeds."""
    graph = helper.make_graph(
        [node for anchor in anchors for node in anchor.nodes],
        "anchors",
        [value for anchor in anchors for value in anchor.inputs],
        [helper.make_empty_tensor_value_info(anchor.output) for anchor in anchors],
        [tensor for anchor in anchors for tensor in anchor.initializers],
    )
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid(_OPENVINO, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), {
        name: array for anchor in anchors for name, array in anchor.feeds.items()
    }


# -- drawing ---------------------------------------------------------------------------------------


class _Drawing:
    """An anchor in the making."""

    def __init__(self, anchor: Anchor, rng: np.random.Generator, even: bool) -> None:
        self.anchor, self.rng, self.even = anchor, rng, even
        self._prefix = f"{anchor.kind}{anchor.seed}_"
        self._count = 0
        self.fed = 0  # scales and zero points

    # -- numbers

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def each(self, count: int, low: int, high: int) -> tuple[int, ...]:
        """`count` integers, both ends included."""
        return tuple(int(v) for v in self.rng.integers(low, high + 1, count))

    def scale(self, near: float) -> float:
        return float(np.float32(near * 2.0 ** self.rng.uniform(-1, 1)))

    def zero(self, dtype: type) -> int:
        info = np.iinfo(dtype)
        return int(
            self.one(
                0,
                0,
                128 if dtype is np.uint8 else 0,
                info.min,
                info.max,
                self.rng.integers(info.min, info.max + 1),
            )
        )

    def channels(self) -> int:
        return int(
            self.one(self.rng.integers(1, 9), self.rng.integers(1, 71), self.one(8, 16, 32, 64))
        )

    def array(self, dtype: type, shape: Sequence[int]) -> A:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, tuple(shape)).astype(dtype)

    def weights(self, shape: Sequence[int]) -> A:
        if self.even:
            return (2 * self.rng.integers(-32, 33, tuple(shape))).astype(np.int8)
        return self.rng.integers(-128, 128, tuple(shape)).astype(np.int8)

    # -- the graph

    def name(self, stem: str) -> str:
        self._count += 1
        return f"{self._prefix}{stem}{self._count}"

    def constant(self, array: A, stem: str = "c") -> str:
        name = self.name(stem)
        self.anchor.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, array: A) -> str:
        name = self.name("x")
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        self.anchor.inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        self.anchor.feeds[name] = array
        return name

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        output = self.name(op_type)
        self.anchor.nodes.append(
            helper.make_node(op_type, list(inputs), [output], output, **attributes)
        )
        return output

    def decoded(
        self, codes: str, scale: float | A, zero: int, dtype: type, axis: int | None = None
    ) -> str:
        scales = np.asarray(scale, np.float32)
        zeros = np.full(scales.shape, zero, dtype)
        extra = {} if axis is None else {"axis": axis}
        return self.op(
            "DequantizeLinear", codes, self.parameter(scales), self.parameter(zeros), **extra
        )

    def parameter(self, values: A) -> str:
        """A scale or zero point: a constant, or, one number in ten times, fed."""
        if values.size > 1 or not self.chance(0.1):
            return self.constant(values)
        self.say(f"{'scale' if values.dtype == np.float32 else 'zero point'} fed")
        self.fed += 1
        return self.input(values)

    def say(self, text: str) -> None:
        self.anchor.words.append(text)


def _source(d: _Drawing, shape: Sequence[int]) -> tuple[str, A, float]:
    """Codes that the model is given, decoded: the value, the integers minus the zero point, and the
    scale.
    """
    dtype = d.one(*_CODES)
    zero, scale, codes = d.zero(dtype), d.scale(0.02), d.array(dtype, shape)
    d.say(f"source {np.dtype(dtype).name}{list(shape)} zero {zero}")
    return d.decoded(d.input(codes), scale, zero, dtype), codes.astype(np.float64) - zero, scale


def _source_of_a_window(d: _Drawing, shape: Sequence[int]) -> tuple[str, A, float]:
    """The same, or a FakeQuantize whose zero point is no integer, of numbers on its grid."""
    if not d.chance(0.3):
        return _source(d, shape)
    high = d.scale(4.0)
    low = d.one(-high, -1e-6, 1e-7 * high, -high * d.rng.random(), high * d.rng.random() / 2)
    ends = [np.asarray(end, np.float32).reshape(()) for end in (low, high)]
    below, above = (float(end) for end in ends)
    step = (above - below) / 255
    real = d.array(np.uint8, shape) * step + below
    d.anchor.fraction = True
    d.say(f"source FakeQuantize {below:g}..{above:g} {list(shape)}")
    names = [d.constant(end) for end in ends]
    x = d.input(real.astype(np.float32))
    name = d.op("FakeQuantize", x, *names, *names, levels=256, domain=_OPENVINO)
    return name, real / step, step


def _kernel(d: _Drawing, shape: Sequence[int], axis: int, alike: int = 1) -> tuple[str, A, A]:
    """Constant s8 weights, decoded: the value, the integers minus the zero point, and a scale for
    each index of `axis`, the same for `alike` neighbours.
    """
    codes = d.weights(shape)
    zero = 0 if d.even or not d.chance(0.08) else int(d.rng.integers(-20, 21))
    many, fed = d.chance(0.6), d.fed
    scales = np.asarray(
        [d.scale(0.01) for _ in range(shape[axis] // alike)] if many else d.scale(0.01), np.float32
    )
    if many:
        scales = np.repeat(scales, alike)
    along = f" scales along axis {axis}" if many else ""
    d.say(f"weights {list(shape)}{along}{f' zero {zero}' if zero else ''}")
    name = d.decoded(d.constant(codes, "w"), scales, zero, np.int8, axis if many else None)
    d.anchor.floats = (
        (zero != 0 and d.anchor.kind != "MatMul")
        or d.fed > fed  # only a source may be decoded by what a run is given
    )
    return (
        name,
        codes.astype(np.float64) - zero,
        np.broadcast_to(scales, shape[axis]).astype(np.float64),
    )


def _bias(d: _Drawing, step: A) -> tuple[str, A] | None:
    """A bias for each channel, as f32 or as s32 codes of the accumulator's scale."""
    if d.chance(0.4):
        return None
    codes = d.rng.integers(-20000, 20001, step.shape)
    d.say("bias")
    if d.chance(0.5):
        scales = step.astype(np.float32)
        name = d.op(
            "DequantizeLinear", d.constant(codes.astype(np.int32)), d.constant(scales), axis=0
        )
        return name, codes * scales.astype(np.float64)
    values = (codes * step).astype(np.float32)
    return d.constant(values), values.astype(np.float64)


def _channels(d: _Drawing) -> tuple[int, int, int]:
    """Input channels, output channels, groups."""
    kind = d.one("plain", "plain", "depthwise", "groups")
    if kind == "plain":
        return d.channels(), d.channels(), 1
    if kind == "depthwise":
        count = d.channels()
        return count, count * d.one(1, 1, 1, 2), count
    groups = int(d.rng.integers(2, 6))
    return groups * d.one(1, 2, 3, 4, 8, 13), groups * d.one(1, 2, 3, 4, 8, 13), groups


# -- windows ---------------------------------------------------------------------------------------


@dataclass
class _Window:
    """A geometry, one entry a spatial dimension; `out` and `begin` are what it comes to."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    out: tuple[int, ...]
    attributes: dict[str, Any]

    @property
    def spans(self) -> tuple[int, ...]:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def reached(self, tap: Sequence[int]) -> tuple[slice, ...]:
        """Where the windows' elements at a tap lie, in the padded input."""
        ends = zip(tap, self.dilations, self.strides, self.out, strict=True)
        return tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, s, o in ends)

    @property
    def taps(self) -> list[tuple[int, ...]]:
        return list(itertools.product(*map(range, self.kernel)))


def _sizes(
    d: _Drawing,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Spatial sizes, kernel, strides and dilations."""
    rank = d.one(1, 2, 2, 2, 3)
    spatial = d.each(rank, 1, (20, 9, 5)[rank - 1])
    kernel = d.each(rank, 1, (7, 5, 3)[rank - 1])
    strides = d.each(rank, 1, 4) if d.chance(0.6) else (d.one(1, 2, 3),) * rank
    dilations = d.each(rank, 1, 3) if d.chance(0.25) else (1,) * rank
    if d.chance(0.4):
        kernel = (d.one(1, 2, 3),) * rank
    return spatial, kernel, strides, dilations


def _drawn_window(d: _Drawing, *, pooling: bool = False) -> _Window:
    """A window that fits into its padded input at least once."""
    while True:
        spatial, kernel, strides, dilations = _sizes(d)
        rank = len(spatial)
        spans = [(k - 1) * g + 1 for k, g in zip(kernel, dilations, strict=True)]
        mode = d.one("NOTSET", "NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
        ceil = pooling and mode == "NOTSET" and d.chance(0.25)
        attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
        if mode.startswith("SAME"):
            out = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
            total = [
                max((o - 1) * s + w - n, 0)
                for o, s, w, n in zip(out, strides, spans, spatial, strict=True)
            ]
            begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
            attributes["auto_pad"] = mode
        else:
            most = (
                [(k if pooling else w + 1) - 1 for k, w in zip(kernel, spans, strict=True)]
                if mode == "NOTSET"
                else [0] * rank
            )
            begin, end = ([int(d.rng.integers(0, m + 1)) for m in most] for _ in range(2))
            if d.chance(0.5):
                end = begin
            room = [n + b + e - w for n, b, e, w in zip(spatial, begin, end, spans, strict=True)]
            out = [(-(-r // s) if ceil else r // s) + 1 for r, s in zip(room, strides, strict=True)]
            if ceil:  # no window starts in the padding behind the input
                out = [
                    min(o, -(-(n + b) // s))
                    for o, n, b, s in zip(out, spatial, begin, strides, strict=True)
                ]
                attributes["ceil_mode"] = 1
            attributes |= {"auto_pad": mode} if mode == "VALID" else {"pads": (*begin, *end)}
            if min(room) < 0:
                continue
        if min(out) >= 1:
            return _Window(
                spatial, kernel, strides, dilations, tuple(begin), tuple(out), attributes
            )


def _padded(x: A, win: _Window, value: float) -> A:
    """x with `value` around it, as far as the windows reach."""
    reach = [(o - 1) * s + w for o, s, w in zip(win.out, win.strides, win.spans, strict=True)]
    behind = [max(r - n - b, 0) for r, n, b in zip(reach, win.spatial, win.begin, strict=True)]
    return np.pad(x, [(0, 0), (0, 0), *zip(win.begin, behind, strict=True)], constant_values=value)


def _products(x: A, w: A, groups: int) -> A:
    """x [N, C, *spatial] times w [O, C/groups]: [N, O, *spatial]."""
    n, c, *spatial = x.shape
    parts = x.reshape(n, groups, c // groups, math.prod(spatial))
    return (w.reshape(groups, -1, c // groups) @ parts).reshape(n, w.shape[0], *spatial)


def _convolved(x: A, w: A, groups: int, win: _Window) -> A:
    padded = _padded(x, win, 0.0)
    return sum(
        _products(padded[(..., *win.reached(tap))], w[(..., *tap)], groups) for tap in win.taps
    )


_Drawn = tuple[int, int, int, _Window]
"""Input channels, output channels, groups, window."""


@dataclass
class _Sums:
    """Sums of products, and how large the numbers on the way to them are: as large as the sums
    where they are integers.
    """

    values: A
    sizes: A

    @classmethod
    def of(cls, d: _Drawing, product: Callable[[A, A], A], x: A, w: A) -> _Sums:
        values = product(x, w)
        if d.anchor.floats or d.anchor.fraction:  # a zero point in f32 is off by 2^-24 of itself
            return cls(values, 4 * product(np.abs(x) + 256, np.abs(w)))
        return cls(values, np.abs(values))

    def scaled(self, step: A) -> Interval:
        return Interval.exact(self.values * step, self.sizes * step).rounded()


def _affordable(drawn: Callable[[], _Drawn], places: Callable[[_Window], int]) -> _Drawn:
    """Channels and a window that do not take too many products."""
    while True:
        inputs, outputs, groups, win = drawn()
        if 3 * inputs * outputs // groups * math.prod(win.kernel) * places(win) <= _MOST_PRODUCTS:
            return inputs, outputs, groups, win


def _say_window(d: _Drawing, win: _Window, groups: int = 1) -> None:
    given = " ".join(
        f"{key}={list(v) if isinstance(v, tuple) else v}" for key, v in win.attributes.items()
    )
    d.say(f"kernel {list(win.kernel)} {given} group {groups} -> {list(win.out)}")


def _convolution(d: _Drawing, most: int) -> None:
    c, o, groups, win = _affordable(
        lambda: (*_channels(d), _drawn_window(d)), lambda w: math.prod(w.out)
    )
    x, codes, s = _source_of_a_window(d, (int(d.rng.integers(1, 4)), c, *win.spatial))
    w, kernel, scales = _kernel(d, (o, c // groups, *win.kernel), 0)
    _say_window(d, win, groups)
    sums = _Sums.of(d, lambda a, b: _convolved(a, b, groups, win), codes, kernel)
    _with_bias(d, most, "Conv", (x, w), s * scales, sums, 1, group=groups, **win.attributes)


def _with_bias(
    d: _Drawing,
    most: int,
    op: str,
    operands: tuple[str, ...],
    step: A,
    sums: _Sums,
    axis: int,
    **attributes: Any,
) -> None:
    """The operation with its bias, and everything behind it."""
    along = tuple(-1 if at == axis else 1 for at in range(sums.values.ndim))
    y = sums.scaled(step.reshape(along))
    bias = _bias(d, step)
    if bias is not None:
        operands = (*operands, bias[0])
        y = y.plus(Interval.exact(np.broadcast_to(bias[1].reshape(along), sums.values.shape)))
    _behind(d, most, d.op(op, *operands, **attributes), y, axis)


def _drawn_transposed(d: _Drawing) -> _Window:
    """The window of a transposed convolution: `out` is larger than the input."""
    while True:
        spatial, kernel, strides, dilations = _sizes(d)
        rank = len(spatial)
        extra = (
            tuple(
                int(d.rng.integers(0, max(s, g))) for s, g in zip(strides, dilations, strict=True)
            )
            if d.chance(0.5)
            else (0,) * rank
        )
        spans = [(k - 1) * g + 1 for k, g in zip(kernel, dilations, strict=True)]
        full = [
            (n - 1) * s + w + e for n, s, w, e in zip(spatial, strides, spans, extra, strict=True)
        ]
        attributes: dict[str, Any] = {
            "strides": strides,
            "dilations": dilations,
            "output_padding": extra,
        }
        mode = d.one(
            "NOTSET",
            "NOTSET",
            "NOTSET",
            "NOTSET",
            "SAME_UPPER",
            "SAME_LOWER",
            "VALID",
            "output_shape",
        )
        if mode in ("NOTSET", "VALID"):
            begin, end = (
                tuple(int(d.rng.integers(0, w)) if mode == "NOTSET" else 0 for w in spans)
                for _ in range(2)
            )
            out = tuple(f - b - e for f, b, e in zip(full, begin, end, strict=True))
            attributes |= {"pads": (*begin, *end)} if mode == "NOTSET" else {"auto_pad": mode}
        else:
            same = mode != "output_shape"
            out = tuple(
                n * s if same else max(f - int(d.rng.integers(0, 3)), 1)
                for n, s, f in zip(spatial, strides, full, strict=True)
            )
            total = [max(f - o, 0) for f, o in zip(full, out, strict=True)]
            begin = tuple(t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total)
            attributes |= {"auto_pad": mode} if same else {"output_shape": out}
        if min(out) >= 1 and math.prod(out) <= 2000:
            return _Window(spatial, kernel, strides, dilations, begin, out, attributes)


def _spread(x: A, w: A, groups: int, win: _Window) -> A:
    """The transposed convolution: each element spreads the kernel, and the result is cut out. w is
    [O, C/groups, *kernel].
    """
    reach = [(n - 1) * s + k for n, s, k in zip(win.spatial, win.strides, win.spans, strict=True)]
    full = np.zeros(
        (
            x.shape[0],
            w.shape[0],
            *(max(r, b + o) for r, b, o in zip(reach, win.begin, win.out, strict=True)),
        )
    )
    for tap in win.taps:
        places = zip(tap, win.dilations, win.strides, win.spatial, strict=True)
        full[(..., *(slice(t * g, t * g + (n - 1) * s + 1, s) for t, g, s, n in places))] += (
            _products(x, w[(..., *tap)], groups)
        )
    return full[(..., *(slice(b, b + o) for b, o in zip(win.begin, win.out, strict=True)))]


def _deconvolution(d: _Drawing, most: int) -> None:
    c, o, groups, win = _affordable(
        lambda: (*_channels(d), _drawn_transposed(d)), lambda w: math.prod(w.spatial)
    )
    x, codes, s = _source_of_a_window(d, (int(d.rng.integers(1, 4)), c, *win.spatial))
    if groups > 1 and d.chance(0.4):  # one scale for each group, along the input channels
        w, kernel, scales = _kernel(d, (c, o // groups, *win.kernel), 0, c // groups)
        scales = np.repeat(scales[:: c // groups], o // groups)
    else:
        w, kernel, scales = _kernel(d, (c, o // groups, *win.kernel), 1)
        scales = np.tile(scales, groups)
    _say_window(d, win, groups)
    turned = (
        kernel.reshape(groups, c // groups, o // groups, *win.kernel)
        .swapaxes(1, 2)
        .reshape(o, c // groups, *win.kernel)
    )
    sums = _Sums.of(d, lambda a, b: _spread(a, b, groups, win), codes, turned)
    _with_bias(
        d,
        most,
        "ConvTranspose",
        (x, w),
        s * scales,
        sums,
        1,
        group=groups,
        **win.attributes,
    )


def _integer_convolution(d: _Drawing, most: int) -> None:
    c, o, groups, win = _affordable(
        lambda: (*_channels(d), _drawn_window(d)), lambda w: math.prod(w.out)
    )
    source = _integers(d, (int(d.rng.integers(1, 4)), c, *win.spatial))
    kernel = _integer_kernel(d, (o, c // groups, *win.kernel))
    _say_window(d, win, groups)
    sums = _Sums.of(d, lambda a, b: _convolved(a, b, groups, win), source.values, kernel.values)
    operands = source.codes, kernel.codes, source.zero, *kernel.zeros
    y = d.op("ConvInteger", *operands, group=groups, **win.attributes)
    _scaled(d, most, y, source, sums, 1)


@dataclass
class _Integers:
    """Codes for an integer product: their name, that of their zero point, that of their scale if
    they have one, the integers minus the zero point, the scale.
    """

    codes: str
    zero: str
    scale: str
    values: A
    step: float


def _integers(d: _Drawing, shape: Sequence[int]) -> _Integers:
    """Codes that are given, or found by DynamicQuantizeLinear.

    The latter takes its scale as range / 255: a source of whole steps, a power of two wide, whose
    ends are there, has these very steps and codes.
    """
    if d.chance(0.5):
        dtype = d.one(*_CODES)
        zero, codes, step = d.zero(dtype), d.array(dtype, shape), d.scale(0.02)
        d.say(f"source {np.dtype(dtype).name}{list(shape)} zero {zero}")
        names = d.input(codes), d.parameter(np.asarray(zero, dtype))
        scale = d.parameter(np.float32(step)) if d.chance(0.5) else ""
        return _Integers(*names, scale, codes.astype(np.float64) - zero, step)
    codes, step = d.array(np.uint8, shape), 2.0 ** int(d.rng.integers(-8, 2))
    zero = d.zero(np.uint8) if codes.size > 1 else 0
    codes.flat[0], codes.flat[-1] = 0, 255
    values = codes.astype(np.float64) - zero
    d.say(f"source f32{list(shape)}, its range taken, zero {zero}")
    d.anchor.nodes.append(
        helper.make_node(
            "DynamicQuantizeLinear",
            [d.input((values * step).astype(np.float32))],
            names := [d.name("codes"), d.name("scale"), d.name("zero")],
        )
    )
    name, scale, zero_name = names
    return _Integers(name, zero_name, scale, values, step)


@dataclass
class _IntegerKernel:
    """Weights of an integer product: their name, their zero point's if they have one, and the
    integers minus it.
    """

    codes: str
    zeros: tuple[str, ...]
    values: A


def _integer_kernel(d: _Drawing, shape: Sequence[int]) -> _IntegerKernel:
    """s8 weights, or now and then u8 ones."""
    codes, zero, given = d.weights(shape), 0, d.chance(0.5)
    if not d.even and d.chance(0.15):
        zero, given = int(d.one(128, 128, d.rng.integers(256))), True
        codes = (codes.astype(np.int16) + 128).astype(np.uint8)
    d.anchor.floats = zero not in (0, 128)
    d.say(f"weights {codes.dtype}{list(shape)}{f' zero {zero}' if zero else ''}")
    zeros = (d.constant(np.asarray(zero, codes.dtype)),) if given else ()
    return _IntegerKernel(d.constant(codes, "w"), zeros, codes.astype(np.float64) - zero)


def _scaled(d: _Drawing, most: int, value: str, source: _Integers, sums: _Sums, axis: int) -> None:
    """The product's s32 as it is; or as quantize_dynamic writes it: cast, times both scales, a
    bias, and what is behind it.
    """
    if not source.scale:
        _finish(d, value, sums.values, sums.values)
        return
    count = sums.values.shape[axis]
    along = (count, *(1,) * (sums.values.ndim - axis - 1))
    many = d.chance(0.5)
    factors = np.asarray([d.scale(0.01) for _ in range(count if many else 1)], np.float32)
    shape = along if many else d.one((), (1,))
    d.say("scaled by channel" if many else "scaled")
    scale = d.op("Mul", source.scale, d.constant(factors.reshape(shape)))
    value = d.op("Mul", d.op("Cast", value, to=onnx.TensorProto.FLOAT), scale)
    steps = np.broadcast_to(factors.astype(np.float64), count).reshape(along) * source.step
    y = sums.scaled(steps)
    if d.chance(0.5):
        bias = (_middle(y) * d.rng.uniform(-1, 1, along)).astype(np.float32)
        value = d.op("Add", value, d.constant(bias))
        y = y.plus(Interval.exact(np.broadcast_to(bias.astype(np.float64), y.low.shape)))
    _behind(d, most, value, y, axis)


# -- products --------------------------------------------------------------------------------------


def _matmul(d: _Drawing, most: int) -> None:
    m, k, n = d.channels(), d.channels(), d.channels()
    lead = d.each(int(d.one(0, 0, 1, 2)), 1, 3)
    x, a, s = _source(d, (*lead, m, k))
    if not d.even and d.chance(0.25):  # of two activations
        batch = tuple(int(d.one(size, 1)) for size in lead)
        w, b, scale = _source(d, (*batch, k, n))
        scales, d.anchor.floats = np.full(n, scale), True
    else:
        w, b, scales = _kernel(d, (k, n), 1)
    sums = _Sums.of(d, np.matmul, a, b)
    _behind(d, most, d.op("MatMul", x, w), sums.scaled(s * scales), sums.values.ndim - 1)


def _gemm(d: _Drawing, most: int) -> None:
    m, k, n = d.channels(), d.channels(), d.channels()
    turned = d.chance(0.5)
    x, a, s = _source(d, (m, k))
    w, b, scales = _kernel(d, (n, k) if turned else (k, n), 0 if turned else 1)
    sums = _Sums.of(d, np.matmul, a, b.T if turned else b)
    _with_bias(d, most, "Gemm", (x, w), s * scales, sums, 1, transB=int(turned))


def _integer_matmul(d: _Drawing, most: int) -> None:
    m, k, n = d.channels(), d.channels(), d.channels()
    source = _integers(d, (*d.each(int(d.one(0, 1)), 1, 3), m, k))
    kernel = _integer_kernel(d, (k, n))
    sums = _Sums.of(d, np.matmul, source.values, kernel.values)
    y = d.op("MatMulInteger", source.codes, kernel.codes, source.zero, *kernel.zeros)
    _scaled(d, most, y, source, sums, sums.values.ndim - 1)


# -- pooling ---------------------------------------------------------------------------------------


def _pooled_source(d: _Drawing, shape: Sequence[int]) -> tuple[str, A, float]:
    """Decoded codes, sometimes such as a convolution left them, in its layout."""
    x, codes, s = _source(d, shape)
    if d.chance(0.5):
        return x, codes, s
    d.say("behind a convolution")
    count, rank = shape[1], len(shape) - 2
    twice = 2 * np.eye(count, dtype=np.int8).reshape(count, count, *(1,) * rank)
    y = d.op("Conv", x, d.decoded(d.constant(twice), 0.5, 0, np.int8))
    scale, zero = (
        d.anchor.nodes[-3 if d.anchor.nodes[-3].op_type == "DequantizeLinear" else -2].input[i]
        for i in (1, 2)
    )
    return d.op("DequantizeLinear", d.op("QuantizeLinear", y, scale, zero), scale, zero), codes, s


def _pooling(d: _Drawing, most: int) -> None:
    kind = d.one("MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    win = _drawn_window(d, pooling=True)
    shape = (int(d.rng.integers(1, 4)), d.channels(), *win.spatial)
    if kind.startswith("Global"):
        ones = (1,) * len(win.spatial)
        win = _Window(win.spatial, win.spatial, ones, ones, (0,) * len(ones), ones, {})
    seen = _padded(np.ones(shape), win, 0.0)
    counts = sum(seen[(..., *win.reached(tap))] for tap in win.taps)
    if counts.min() == 0:  # a window of padding only: nobody says what it is
        _pooling(d, most)
        return
    x, codes, s = _pooled_source(d, shape)
    d.say(kind)
    d.anchor.floats = "Average" in kind
    attributes = {} if kind.startswith("Global") else {"kernel_shape": win.kernel, **win.attributes}
    if kind == "AveragePool" and "ceil_mode" not in attributes and d.chance(0.5):
        attributes["count_include_pad"], counts = (
            1,
            np.full(counts.shape, float(math.prod(win.kernel))),
        )
    win.attributes = attributes
    _say_window(d, win)
    if "Max" in kind:
        padded = _padded(codes, win, -np.inf)
        found = np.maximum.reduce([padded[(..., *win.reached(tap))] for tap in win.taps]) * s
        y = Interval.exact(found, np.abs(found) + 256 * s).rounded()
    else:
        padded = _padded(codes, win, 0.0)
        total, size = (  # as many roundings as the sum has terms, on average
            sum(v[(..., *win.reached(tap))] for tap in win.taps) / counts * s
            for v in (padded, np.abs(padded))
        )
        y = Interval.exact(total, size * (1 + math.log2(math.prod(win.kernel))) + 256 * s).rounded()
    _behind(d, most, d.op(kind, x, **attributes), y, 1)


# -- behind the anchor -----------------------------------------------------------------------------


def _behind(d: _Drawing, most: int, value: str, y: Interval, axis: int) -> None:
    """Post-ops, and the result in f32 or codes."""
    count = min(int(d.one(0, 0, 1, 1, 2, 3, 5)), most)
    for _ in range(count):
        value, y = d.one(*_POST_OPS)(d, value, y, axis)
    if d.chance(0.25):
        _finish(d, value, y.low, y.high)
        return
    value, low, high = _quantized(d, value, y)[:3]
    _finish(d, value, low, high)


def _finish(d: _Drawing, value: str, low: A, high: A) -> None:
    d.anchor.output, d.anchor.low, d.anchor.high = value, low, high


def _middle(y: Interval) -> float:
    """How large the numbers are."""
    return max(float(np.abs(y.low).mean()), 1e-3)


def _quantized(d: _Drawing, value: str, y: Interval) -> tuple[str, A, A, float, int, type]:
    """Codes of a value: name, lowest, highest; scale, zero point and type."""
    dtype = d.one(*_CODES)
    zero, scale = d.zero(dtype), d.scale(_middle(y) / 40)
    low, high = y.codes(scale, zero, dtype)
    d.say(f"to {np.dtype(dtype).name} zero {zero}")
    parameters = np.asarray(scale, np.float32), np.asarray(zero, dtype)
    name = d.op("QuantizeLinear", value, *map(d.parameter, parameters))
    return name, low, high, scale, zero, dtype


def _quantizer(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    name, low, high, scale, zero, dtype = _quantized(d, value, y)
    # codes may be shifted by their zero point, and by 128 between s8 and u8
    size = np.abs(high - zero) * scale + 512 * scale
    return d.decoded(name, scale, zero, dtype), Interval(
        (low - zero) * scale, (high - zero) * scale, size
    ).rounded()


def _relu(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    d.say("relu")
    return d.op("Relu", value), y.monotone(lambda v: np.maximum(v, 0.0))


def _clip(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    low = float(np.float32(-_middle(y) * d.one(0.0, 0.5, 1.0)))
    high = float(np.float32(_middle(y) * d.one(0.5, 1.5)))
    d.say(f"clip {low:g}..{high:g}")
    return d.op(
        "Clip", value, d.constant(np.float32(low)), d.constant(np.float32(high))
    ), y.monotone(lambda v: np.clip(v, low, high))


def _leaky(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    alpha = float(np.float32(d.one(0.25, 0.1)))
    d.say("leaky relu")
    return d.op("LeakyRelu", value, alpha=alpha), y.monotone(
        lambda v: np.where(v < 0, alpha * v, v)
    )


def _linear(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    factor, shift = np.float32(d.one(-1.0, 1.0) * d.scale(0.8)), np.float32(d.scale(_middle(y)))
    d.say("linear")
    name = d.op("Add", d.op("Mul", value, d.constant(factor)), d.constant(shift))
    return name, y.times(np.float64(factor)).plus(
        Interval.exact(np.full(y.low.shape, np.float64(shift)))
    )


def _operand_shape(d: _Drawing, shape: Sequence[int], axis: int) -> tuple[str, tuple[int, ...]]:
    """A shape that broadcasts to the result's, in words too."""
    form = d.one(
        "per tensor",
        "per channel",
        "per channel",
        "per channel",
        "full",
        "but the channels",
        "per batch",
    )
    keeps = {"per tensor": (), "per channel": (axis,), "full": range(len(shape)), "per batch": (0,)}
    kept = keeps.get(form, [at for at in range(len(shape)) if at != axis])
    return form, tuple(size if at in kept else 1 for at, size in enumerate(shape))


def _operand(d: _Drawing, shape: Sequence[int], near: float) -> tuple[str, Interval, str]:
    """An operand: constant, given at run time, or codes given at run time; its name and what it
    is.
    """
    kind = d.one("constant", "constant", "given", "codes")
    if kind == "codes":
        dtype = d.one(*_CODES)
        zero, scale, codes = d.zero(dtype), d.scale(near / 60), d.array(dtype, shape)
        size = (np.abs(codes.astype(np.float64)) + abs(zero)) * scale
        return (
            d.decoded(d.input(codes), scale, zero, dtype),
            Interval.exact((codes.astype(np.float64) - zero) * scale, size),
            kind,
        )
    values = (near * d.rng.uniform(-1.5, 1.5, tuple(shape))).astype(np.float32)
    return (
        (d.input if kind == "given" else d.constant)(values),
        Interval.exact(values.astype(np.float64)),
        kind,
    )


def _binary(d: _Drawing, value: str, y: Interval, axis: int) -> tuple[str, Interval]:
    op = d.one("Add", "Add", "Sub", "Mul", "Max", "Min")
    form, shape = _operand_shape(d, y.low.shape, axis)
    name, operand, kind = _operand(d, shape, 1.0 if op == "Mul" else _middle(y))
    d.say(f"{op} {form} {kind} {list(shape)}")
    result = d.op(op, value, name)
    operand = Interval(
        *(np.broadcast_to(v, y.low.shape) for v in (operand.low, operand.high, operand.size))
    )
    if op == "Mul":
        spread = operand.size / np.maximum(np.abs(operand.low), 1e-30)
        product = y.times(operand.low)
        return result, Interval(
            product.low,
            product.high,
            np.maximum(product.size, product.size * np.minimum(spread, 1e6)),
        ).rounded()
    if op == "Sub":
        operand = operand.times(np.float64(-1.0))
    if op in ("Add", "Sub"):
        return result, y.plus(operand)
    pick = np.maximum if op == "Max" else np.minimum
    return result, Interval(
        pick(y.low, operand.low), pick(y.high, operand.high), y.size + operand.size
    ).rounded()


def _prelu(d: _Drawing, value: str, y: Interval, axis: int) -> tuple[str, Interval]:
    form, shape = d.one(("per tensor", ()), ("per channel", None), ("per channel", None))
    if shape is None:
        shape = (y.low.shape[axis], *(1,) * (len(y.low.shape) - axis - 1))
    slopes = d.rng.uniform(0, 1, shape).astype(np.float32)
    d.say(f"prelu {form}")
    factor = np.broadcast_to(slopes.astype(np.float64), y.low.shape)
    bend = Interval(*(np.where(v < 0, v * factor, v) for v in (y.low, y.high)), y.size)
    return d.op(
        "PRelu", value, d.constant(slopes if slopes.ndim else slopes.reshape(1))
    ), bend.rounded()


def _sum(d: _Drawing, value: str, y: Interval, _: int) -> tuple[str, Interval]:
    dtype = d.one(*_CODES)
    zero, scale, codes = d.zero(dtype), d.scale(_middle(y) / 60), d.array(dtype, y.low.shape)
    d.say(f"sum {np.dtype(dtype).name} zero {zero}")
    size = (np.abs(codes.astype(np.float64)) + abs(zero)) * scale
    operand = Interval.exact((codes.astype(np.float64) - zero) * scale, size)
    return d.op("Add", value, d.decoded(d.input(codes), scale, zero, dtype)), y.plus(operand)


_POST_OPS = (
    _relu,
    _clip,
    _leaky,
    _linear,
    _binary,
    _binary,
    _binary,
    _prelu,
    _prelu,
    _sum,
    _sum,
    _quantizer,
)

KINDS: dict[str, Callable[[_Drawing, int], None]] = {
    "Conv": _convolution,
    "ConvTranspose": _deconvolution,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Pool": _pooling,
    "ConvInteger": _integer_convolution,
    "MatMulInteger": _integer_matmul,
}
