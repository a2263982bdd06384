"""Random ONNX models of moving operations, anchors and elementwise chains, whose results are known:
most to the bit.

Numbers are small integers times powers of two, so that sums and products are exact in f32 in any
order: whoever computes such a model gets the same. What is not exact (means, softmax, sigmoid ...)
carries a bound on how far two computations may be apart. A value goes on through everything behind
it by that bound; a quantizer turns it into steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 5, 16, 17), (1, 1, 1, 2, 3, 5, 16, 17), (1, 1, 5, 16)
_MOST = 6000
"""Elements of one tensor."""

_LARGEST = 2.0**22
"""Of a value in units of its last bit: below 2^24, f32 is exact."""

_HIGHEST = 2.0**100
"""Of a value: what is computed of it, and its quantizer's scale, are finite in f32."""

_ROUNDING = 2e-5
"""What approximated functions and long sums may be off, relative to the largest magnitude:
polynomials of oneDNN are good to 1e-6.
"""


@dataclass(frozen=True)
class Value:
    """A value of the model.

    Attributes:
        name: its name.
        shape: its shape.
        high: no magnitude is above.
        unit: every element is a multiple of it, a power of two, as long as `error` is 0.
        error: how far two computations may be apart.
    """

    name: str
    shape: tuple[int, ...]
    high: float
    unit: float
    error: float = 0.0

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Case:
    """A model, what to feed, how far each of its values may be off (0: not at all), and how many
    threads compute it.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray[Any, Any]]
    errors: dict[str, float]
    outputs: list[str]
    threads: int = 1


@dataclass
class Draw:
    """A model in the making."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    feeds: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def yes(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def below(self, count: int) -> int:
        return int(self.rng.integers(count))

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def ints(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(values, np.int64))

    def numbers(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Quarters from -2 to 2."""
        return (self.rng.integers(-8, 9, tuple(shape)) / 4).astype(np.float32)

    def factors(self, shape: Sequence[int]) -> np.ndarray[Any, Any]:
        """Powers of two from 1/4 to 2, and 0: x*a + b may be computed as (x + b/a)*a, which is
        exact for these alone.
        """
        numbers = self.numbers(shape)
        return np.where(
            numbers,
            np.sign(numbers) * np.exp2(np.floor(np.log2(np.abs(numbers) + (numbers == 0)))),
            0,
        ).astype(np.float32)

    def op(
        self,
        op: str,
        inputs: Sequence[str],
        shape: Sequence[int],
        like: Value,
        outputs: int = 1,
        **changes: Any,
    ) -> Value:
        """Adds a node; `changes` to `like` are high, unit and error, the rest are attributes."""
        given = {key: changes.pop(key) for key in ("high", "unit", "error") if key in changes}
        names = [
            f"v{len(self.nodes)}{'' if index == 0 else f'_{index}'}" for index in range(outputs)
        ]
        self.nodes.append(helper.make_node(op, list(inputs), names, **changes))
        found = Value(
            names[0],
            tuple(map(int, shape)),
            **{"high": like.high, "unit": like.unit, "error": like.error, **given},
        )
        self.errors |= dict.fromkeys(names, found.error)
        return found

    def input(self, shape: Sequence[int]) -> Value:
        name = f"x{len(self.feeds)}"
        self.feeds[name] = (self.rng.integers(-32, 33, tuple(shape)) / 4).astype(np.float32)
        return Value(name, tuple(shape), 8.0, 0.25)


# -- moves: the values stay ------------------------------------------------------------------------


def transpose(d: Draw, x: Value) -> Value:
    if not x.rank:
        return x
    perm = [int(axis) for axis in d.rng.permutation(x.rank)]
    # ONNX's default is the reverse order, and files leave it away
    given = {} if perm == list(range(x.rank))[::-1] else {"perm": perm}
    return d.op("Transpose", [x.name], [x.shape[axis] for axis in perm], x, **given)


def swap(d: Draw, x: Value) -> Value:
    """As between the heads and the rows of attention."""
    if not x.rank:
        return x
    perm = list(range(x.rank))
    a = d.below(max(x.rank - 1, 1))
    b = min(a + 1, x.rank - 1)
    perm[a], perm[b] = perm[b], perm[a]
    return d.op("Transpose", [x.name], [x.shape[axis] for axis in perm], x, perm=perm)


def reshape(d: Draw, x: Value) -> Value:
    count = math.prod(x.shape)
    rank = d.below(6) + 1
    shape = [1] * rank
    for p in (2, 3, 5, 7, 17):
        while count and count % p == 0:
            shape[d.below(rank)] *= p
            count //= p
    if math.prod(shape) != math.prod(x.shape):
        shape = list(x.shape) or [1]
    target = list(shape)
    if d.yes(0.3) and 0 not in shape:
        target[d.below(len(target))] = -1
    return d.op(
        "Reshape", [x.name, d.ints(target)], shape, x, **({"allowzero": 1} if 0 in shape else {})
    )


def squeeze(d: Draw, x: Value) -> Value:
    axes = [axis for axis, size in enumerate(x.shape) if size == 1 and d.yes(0.7)]
    if not axes:
        return unsqueeze(d, x)
    return d.op(
        "Squeeze",
        [x.name, d.ints(axes)],
        [size for axis, size in enumerate(x.shape) if axis not in axes],
        x,
    )


def unsqueeze(d: Draw, x: Value) -> Value:
    if x.rank >= 6:
        return x
    axis = d.below(x.rank + 1)
    return d.op("Unsqueeze", [x.name, d.ints([axis])], [*x.shape[:axis], 1, *x.shape[axis:]], x)


def expand(d: Draw, x: Value) -> Value:
    shape = [d.pick(1, 2, 3, 5) if size == 1 else size for size in x.shape]
    if x.rank < 6 and d.yes(0.2):
        shape = [2, *shape]
    return d.op("Expand", [x.name, d.ints(shape)], shape, x)


def tile(d: Draw, x: Value) -> Value:
    repeats = [d.pick(1, 1, 2, 3) if x.rank and d.yes(0.5) else 1 for _ in x.shape]
    shape = [size * times for size, times in zip(x.shape, repeats, strict=True)]
    return d.op("Tile", [x.name, d.ints(repeats)], shape, x)


def cut(d: Draw, x: Value) -> Value:
    if not x.rank:
        return x
    axes = sorted({d.below(x.rank) for _ in range(d.below(2) + 1)})
    starts, ends, steps, shape = [], [], [], list(x.shape)
    for axis in axes:
        size = x.shape[axis]
        first, apart = d.below(max(size, 1)), d.pick(1, 1, 1, 2, 3)
        last = first + d.below(max(size - first, 1)) + 1
        shape[axis] = len(range(size)[first:last:apart])
        backwards = d.yes(0.1)
        if backwards:  # as many elements, from the other end
            first, last, apart = last - 1, first - 1 if first else -size - 1, -apart
        starts.append(first)
        ends.append(last)
        steps.append(apart)
    return d.op("Slice", [x.name, *map(d.ints, (starts, ends, axes, steps))], shape, x)


def split(d: Draw, x: Value) -> Value:
    axes = [axis for axis, size in enumerate(x.shape) if size > 1]
    if not axes:
        return x
    axis = d.pick(*axes)
    first = d.below(x.shape[axis] - 1) + 1
    shapes = [
        [*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in (first, x.shape[axis] - first)
    ]
    one = d.op(
        "Split",
        [x.name, d.ints([shape[axis] for shape in shapes])],
        shapes[0],
        x,
        outputs=2,
        axis=axis,
    )
    other = Value(one.name + "_1", tuple(shapes[1]), x.high, x.unit, x.error)
    d.values += [one, other]
    return d.pick(one, other)


def pad(d: Draw, x: Value) -> Value:
    if not x.rank:
        return x
    before, after = [0] * x.rank, [0] * x.rank
    for _ in range(2):
        axis = d.below(x.rank)
        before[axis], after[axis] = d.pick(0, 1, 2), d.pick(0, 1, 3)
    mode = "constant" if 0 in x.shape else d.pick("constant", "constant", "edge")
    shape = [size + b + a for size, b, a in zip(x.shape, before, after, strict=True)]
    given = [x.name, d.ints([*before, *after])] + (
        [d.constant(np.float32(d.pick(0.0, 0.25, -1.0)))] if mode == "constant" else []
    )
    return d.op("Pad", given, shape, x, mode=mode, high=max(x.high, 1.0), unit=min(x.unit, 0.25))


def gather(d: Draw, x: Value) -> Value:
    axes = [axis for axis, size in enumerate(x.shape) if size]
    if not axes:
        return x
    axis = d.pick(*axes)
    index: Any = d.below(x.shape[axis]) if d.yes() else [d.below(x.shape[axis]) for _ in range(2)]
    inner = [] if isinstance(index, int) else [2]
    return d.op(
        "Gather",
        [x.name, d.ints(index)],
        [*x.shape[:axis], *inner, *x.shape[axis + 1 :]],
        x,
        axis=axis,
    )


def join(d: Draw, x: Value) -> Value:
    """Concat with other values and constants that fit along some axis."""
    if not x.rank:
        return x
    axis = d.below(x.rank)

    def fits(v: Value) -> bool:
        return v.rank == x.rank and all(
            a == axis or v.shape[a] == x.shape[a] for a in range(x.rank)
        )

    parts = [x]
    for _ in range(d.below(2) + 1):
        others = [v for v in d.values if fits(v)]
        if others and d.yes(0.7):
            parts.append(d.pick(*others))
        else:
            shape = tuple(d.pick(1, 2, 3) if a == axis else size for a, size in enumerate(x.shape))
            parts.append(Value(d.constant(d.numbers(shape)), shape, 2.0, 0.25))
    d.rng.shuffle(parts)
    shape = [
        sum(part.shape[axis] for part in parts) if a == axis else size
        for a, size in enumerate(x.shape)
    ]
    return d.op("Concat", [part.name for part in parts], shape, x, axis=axis, **_both(parts))


def _both(parts: Sequence[Value]) -> dict[str, float]:
    return {
        "high": max(p.high for p in parts),
        "unit": min(p.unit for p in parts),
        "error": max(p.error for p in parts),
    }


# -- elementwise -----------------------------------------------------------------------------------


def unary(d: Draw, x: Value) -> Value:
    op = d.pick(
        "Relu",
        "Relu",
        "Abs",
        "Neg",
        "LeakyRelu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "HardSwish",
        "Elu",
        "Identity",
    )
    if op == "LeakyRelu":
        return d.op(op, [x.name], x.shape, x, alpha=0.25, unit=x.unit / 4)
    if op == "Clip":
        ends = [
            d.constant(np.float32(value)) for value in (d.pick(-1.0, 0.0, -0.5), d.pick(0.5, 3.0))
        ]
        return d.op(op, [x.name, *ends], x.shape, x, high=3.0, unit=min(x.unit, 0.5))
    if op in ("Sigmoid", "Tanh", "HardSwish", "Elu"):
        high = x.high if op in ("HardSwish", "Elu") else 1.0
        return d.op(
            op,
            [x.name],
            x.shape,
            x,
            high=max(high, 1.0),
            error=2 * x.error + _ROUNDING * max(high, 1.0),
        )
    return d.op(op, [x.name], x.shape, x)


def binary(d: Draw, x: Value) -> Value:
    """With a constant or computed operand of any broadcast pattern."""
    op = d.pick("Add", "Add", "Add", "Mul", "Mul", "Sub", "Max", "Min")
    y = _operand(d, x, d.factors if op == "Mul" else d.numbers)
    pair = [x, y] if d.yes(0.7) else [y, x]
    shape = np.broadcast_shapes(x.shape, y.shape)
    if op in ("Add", "Sub"):
        given = {"high": x.high + y.high, "unit": min(x.unit, y.unit), "error": x.error + y.error}
    elif op == "Mul":
        given = {
            "high": x.high * y.high,
            "unit": x.unit * y.unit,
            "error": x.error * y.high + y.error * x.high + x.error * y.error,
        }
    else:
        given = _both([x, y])
    if given["error"]:
        given["error"] += _ROUNDING * given["high"]
    return d.op(op, [value.name for value in pair], shape, x, **given)


def _operand(d: Draw, x: Value, numbers: Callable[[Sequence[int]], np.ndarray[Any, Any]]) -> Value:
    mask = [size if d.yes() else 1 for size in x.shape]
    kind = d.below(6)
    if kind == 0 and x.rank > 1:
        mask = mask[d.below(x.rank) :]
    if kind == 1:
        mask = list(x.shape)
    if kind == 2 and x.rank > 1:
        mask = [1, x.shape[1], *[1] * (x.rank - 2)]
    shape = tuple(mask)
    known = [v for v in d.values if v.rank <= x.rank and _spreads(v.shape, x.shape)]
    if known and d.yes():
        return d.pick(*known)
    if d.yes(0.4):
        return Value(d.constant(numbers(shape)), shape, 2.0, 0.25)
    fresh = d.input(shape)
    if d.yes(0.4) and fresh.rank > 1:  # computed, and lying in another order than it looks
        perm = [int(axis) for axis in d.rng.permutation(fresh.rank)]
        back = [perm.index(axis) for axis in range(fresh.rank)]
        d.feeds[fresh.name] = np.ascontiguousarray(d.feeds[fresh.name].transpose(perm))
        return d.op("Transpose", [fresh.name], fresh.shape, fresh, perm=back)
    return fresh


def _spreads(small: Sequence[int], large: Sequence[int]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False))


def quantized(d: Draw, x: Value, *, moves: int | None = None) -> Value:
    """QuantizeLinear and DequantizeLinear with a scale that is a power of two; codes are moved in
    between, at most twice.

    Zero points are even: ties fall to the same side with them as before them.
    """
    scale = 2.0 ** math.ceil(math.log2(max(x.high, 1e-3) / d.pick(120, 60, 250)))
    dtype = d.pick(np.uint8, np.int8)
    zero = dtype(d.pick(0, 128, 116, 254) if dtype is np.uint8 else d.pick(0, 0, 4, -128))
    pair = [_parameter(d, np.float32(scale)), _parameter(d, np.asarray(zero))]
    codes = d.op("QuantizeLinear", [x.name, *pair], x.shape, x)
    for _ in range(d.pick(0, 0, 1, 2) if moves is None else moves):
        codes = d.pick(transpose, swap, reshape, squeeze, cut, gather)(d, codes)
    # else x/s + z is rounded, where x/s is not: what is next to a tie may fall to either side
    exact = 256 * scale <= 2**24 * x.unit
    error = 0.0 if exact and not x.error else (math.floor(x.error / scale) + 1) * scale
    return d.op(
        "DequantizeLinear",
        [codes.name, *pair],
        codes.shape,
        x,
        high=256 * scale,
        unit=scale,
        error=error,
    )


def _parameter(d: Draw, value: Any) -> str:
    """A scale or zero point: a constant, most often; or fed; or computed of what is fed."""
    if d.yes(0.8):
        return d.constant(np.asarray(value))
    name = f"x{len(d.feeds)}"
    shape: tuple[int, ...] = d.pick((), (1,))
    if value.dtype != np.float32 or d.yes():
        d.feeds[name] = np.full(shape, value)
        return name
    d.feeds[name] = np.full(shape, value * 4)
    fed = Value(name, shape, float(value) * 4, float(value) * 4)
    return d.op("Mul", [name, d.constant(np.float32(0.25))], shape, fed).name


def ranged(d: Draw, x: Value) -> tuple[list[str], Value]:
    """DynamicQuantizeLinear: its outputs, and the value that the codes stand for."""
    maker = d.op("DynamicQuantizeLinear", [x.name], x.shape, x, outputs=3)
    # the range of what is inexact is, too: each decoded element is within a step of its own source
    step = 2 * x.high / 255
    error = x.error + 2 * step if x.error else _ROUNDING * x.high
    codes = Value(maker.name, x.shape, x.high + step, x.unit, error)
    return [maker.name, f"{maker.name}_1", f"{maker.name}_2"], codes


def dynamic(d: Draw, x: Value) -> Value:
    """Codes by a range taken at run time, moved, and decoded."""
    if 0 in x.shape:
        return x
    (_, *pair), codes = ranged(d, x)
    for _ in range(d.pick(0, 0, 1, 2)):
        codes = d.pick(transpose, swap, reshape, squeeze, cut, gather)(d, codes)
    return d.op("DequantizeLinear", [codes.name, *pair], codes.shape, codes)


def dynamic_product(d: Draw, x: Value) -> Value:
    """MatMulInteger or ConvInteger of codes by a range taken at run time, as quantize_dynamic
    writes it: Cast, Mul by both scales, a bias.
    """
    if not x.rank or 0 in x.shape:
        return x
    maps = _maps(d, x) if d.yes(0.4) else None
    x = maps or x
    (name, scale, zero), codes = ranged(d, x)
    for _ in range(d.pick(0, 0, 0, 1)):
        codes = d.pick(transpose, swap)(d, codes)
        name = codes.name
    columns = d.pick(1, 2, 3, 16, 17)
    if maps is None:
        shape, attrs = [codes.shape[-1], columns], {}
        result = [*codes.shape[:-1], columns]
    else:
        kernel = [d.pick(1, 1, min(2, size), min(3, size)) for size in codes.shape[2:]]
        pads = [d.pick(0, k // 2) for k in kernel]
        shape, attrs = [columns, codes.shape[1], *kernel], {"pads": [*pads, *pads]}
        spatial = zip(codes.shape[2:], pads, kernel, strict=True)
        result = [codes.shape[0], columns, *[s + 2 * p - k + 1 for s, p, k in spatial]]
    op = "MatMulInteger" if maps is None else "ConvInteger"
    weights = [d.constant(d.rng.integers(-3, 4, shape).astype(np.int8))]
    if d.yes():
        weights.append(d.constant(np.int8(0)))
    y = d.op(
        op, [name, weights[0], zero, *weights[1:]], result, codes,
        **attrs, **_product(codes, math.prod(shape) // columns),
    )  # fmt: skip
    y = d.op("Cast", [y.name], y.shape, y, to=TensorProto.FLOAT)
    by = (columns,) if d.yes() else ()
    if maps is not None and by:
        by = (columns, *[1] * (y.rank - 2))
    factor = d.op("Mul", [scale, d.constant(np.full(by, 0.25, np.float32))], by, y)
    y = d.op("Mul", [y.name, factor.name], y.shape, y)
    if d.yes():
        bias = d.numbers(by or (columns,) if maps is None else (columns, *[1] * (y.rank - 2)))
        y = d.op("Add", [y.name, d.constant(bias)], y.shape, y)
    return d.op(d.pick("Relu", "LeakyRelu", "Abs"), [y.name], y.shape, y) if d.yes() else y


def _weights(d: Draw, shape: Sequence[int]) -> str:
    """Codes from -3 to 3 behind DequantizeLinear, or the floats."""
    codes = d.rng.integers(-3, 4, tuple(shape))
    if d.yes(0.3):
        return _held(d, (codes / 4).astype(np.float32))
    scale = np.float32(0.25)
    node = [_held(d, codes.astype(np.int8)), d.constant(scale), d.constant(np.int8(0))]
    name = f"v{len(d.nodes)}"
    d.nodes.append(helper.make_node("DequantizeLinear", node, [name]))
    d.errors[name] = 0.0
    return name


def _held(d: Draw, array: np.ndarray) -> str:
    """A constant, or, now and then, what is fed."""
    if d.yes(0.9):
        return d.constant(array)
    name = f"x{len(d.feeds)}"
    d.feeds[name] = array
    return name


# -- anchors ---------------------------------------------------------------------------------------


def _maps(d: Draw, x: Value) -> Value | None:
    """The value as feature maps: of rank 3 to 5, not empty."""
    if 0 in x.shape:
        return None
    while x.rank < 3:
        x = unsqueeze(d, x)
    return x if x.rank <= 5 else None


def _product(x: Value, count: int) -> dict[str, float]:
    """The bounds of a sum of `count` products with weights up to 3/4, and a bias up to 2."""
    given = {"high": 0.75 * count * x.high + 2, "unit": x.unit / 4, "error": 0.75 * count * x.error}
    inexact = given["high"] / given["unit"] > _LARGEST
    if given["error"] or inexact:
        given["error"] += _ROUNDING * given["high"]
    return given


def convolution(d: Draw, x: Value) -> Value:
    maps = _maps(d, x)
    if maps is None:
        return x
    x = quantized(d, maps, moves=0) if d.yes(0.7) else maps
    channels, spatial = x.shape[1], x.shape[2:]
    group = channels if d.yes(0.25) else 1
    outputs = group * d.pick(1, 1, 2) if group > 1 else d.pick(1, 2, 3, 16, 17)
    kernel = [d.pick(1, 1, min(2, size), min(3, size)) for size in spatial]
    pads = [d.pick(0, k // 2) for k in kernel]
    strides = [d.pick(1, 1, 2) for _ in spatial]
    size = [
        (s + 2 * p - k) // t + 1 for s, p, k, t in zip(spatial, pads, kernel, strides, strict=True)
    ]
    inner = channels // group
    given = [x.name, _weights(d, (outputs, inner, *kernel))]
    if d.yes():
        given.append(d.constant(d.numbers((outputs,))))
    attrs: dict[str, Any] = {
        "group": group,
        "kernel_shape": kernel,
        "strides": strides,
        "pads": [*pads, *pads],
    }
    return d.op(
        "Conv",
        given,
        [x.shape[0], outputs, *size],
        x,
        **attrs,
        **_product(x, inner * math.prod(kernel)),
    )


def deconvolution(d: Draw, x: Value) -> Value:
    maps = _maps(d, x)
    if maps is None:
        return x
    x = quantized(d, maps, moves=0) if d.yes(0.7) else maps
    channels, spatial = x.shape[1], x.shape[2:]
    outputs, kernel = d.pick(1, 2, 3, 16), [d.pick(2, 3) for _ in spatial]
    strides = [d.pick(1, 2) for _ in spatial]
    size = [(s - 1) * t + k for s, t, k in zip(spatial, strides, kernel, strict=True)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
    given = [x.name, _weights(d, (channels, outputs, *kernel))]
    return d.op(
        "ConvTranspose",
        given,
        [x.shape[0], outputs, *size],
        x,
        **attrs,
        **_product(x, channels * math.prod(kernel)),
    )


def matmul(d: Draw, x: Value) -> Value:
    if x.rank < 1 or 0 in x.shape:
        return x
    x = quantized(d, x, moves=0) if d.yes(0.7) else x
    columns = d.pick(1, 2, 3, 16, 17)
    if x.rank == 2 and d.yes(0.4):
        by = d.yes()
        given = [
            x.name,
            _weights(d, (columns, x.shape[1]) if by else (x.shape[1], columns)),
            d.constant(d.numbers((columns,))),
        ]
        return d.op(
            "Gemm", given, [x.shape[0], columns], x, transB=int(by), **_product(x, x.shape[1])
        )
    return d.op(
        "MatMul",
        [x.name, _weights(d, (x.shape[-1], columns))],
        [*x.shape[:-1], columns],
        x,
        **_product(x, x.shape[-1]),
    )


def attention(d: Draw, x: Value) -> Value:
    """A product with its own transpose, or with another value's."""
    if x.rank < 2 or 0 in x.shape:
        return x
    x = quantized(d, x, moves=0) if d.yes(0.6) else x
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = d.op("Transpose", [x.name], [x.shape[axis] for axis in perm], x, perm=perm)
    count = x.shape[-1]
    high, error = count * x.high**2, count * (2 * x.error * x.high + x.error**2)
    inexact = high / x.unit**2 > _LARGEST
    given = {
        "high": high,
        "unit": x.unit**2,
        "error": error + (_ROUNDING * high if error or inexact else 0),
    }
    return d.op("MatMul", [x.name, turned.name], [*x.shape[:-1], x.shape[-2]], x, **given)


def pooling(d: Draw, x: Value) -> Value:
    maps = _maps(d, x)
    if maps is None:
        return x
    x = quantized(d, maps, moves=0) if d.yes(0.5) else maps
    op = d.pick("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    rounding = {} if "Max" in op else {"error": x.error + _ROUNDING * x.high}
    if op.startswith("Global"):
        return d.op(op, [x.name], [*x.shape[:2], *[1] * (x.rank - 2)], x, **rounding)
    kernel = [d.pick(1, min(2, size), min(3, size)) for size in x.shape[2:]]
    pads = [k // 2 if d.yes(0.3) else 0 for k in kernel]
    strides = [d.pick(1, 2) for _ in kernel]
    size = [
        (s + 2 * p - k) // t + 1
        for s, p, k, t in zip(x.shape[2:], pads, kernel, strides, strict=True)
    ]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": [*pads, *pads]}
    if op == "AveragePool":
        attrs["count_include_pad"] = d.below(2)
    return d.op(op, [x.name], [*x.shape[:2], *size], x, **attrs, **rounding)


def normalization(d: Draw, x: Value) -> Value:
    """Softmax or LayerNormalization along some axis."""
    if not x.rank or 0 in x.shape:
        return x
    if d.yes():
        error = 2 * min(x.error, 1.0) + _ROUNDING
        return d.op(
            "Softmax",
            [x.name],
            x.shape,
            x,
            axis=d.pick(-1, -1, d.below(x.rank)),
            high=1.0,
            error=error,
        )
    axis = d.pick(-1, -1, d.below(x.rank) - x.rank)
    given = [x.name, d.constant(d.numbers(x.shape[axis:])), d.constant(d.numbers(x.shape[axis:]))]
    high = 2 * math.sqrt(math.prod(x.shape[axis:])) + 2
    # With an epsilon of 1 the deviation is 1 or more: an error grows by the factor 2 at most, and
    # once more through the deviation.
    error = 4 * high * (x.error + _ROUNDING * max(x.high, 1.0))
    return d.op(
        "LayerNormalization", given, x.shape, x, axis=axis, epsilon=1.0, high=high, error=error
    )


def reduction(d: Draw, x: Value) -> Value:
    if not x.rank or 0 in x.shape:
        return x
    op = d.pick("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
    axes = sorted({d.below(x.rank) for _ in range(2)})
    keep = d.below(2)
    shape = [
        1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes
    ]
    count = math.prod(x.shape[axis] for axis in axes)
    given: dict[str, float] = {}
    if op == "ReduceSum":
        given = {
            "high": count * x.high,
            "error": count * x.error + (_ROUNDING * count * x.high if x.error else 0),
        }
    elif op == "ReduceMean":
        given = {"error": x.error + _ROUNDING * x.high}
    return d.op(op, [x.name, d.ints(axes)], shape, x, keepdims=keep, **given)


def resize(d: Draw, x: Value) -> Value:
    maps = _maps(d, x)
    if maps is None or maps.rank > 4:
        return x
    x = maps
    factors = [1.0, 1.0, *(d.pick(1.0, 2.0, 3.0) for _ in x.shape[2:])]
    mode = d.pick("nearest", "linear")
    # ONNX Runtime computes positions in f32: the largest is off by two roundings, 2^-23 of it, and
    # neighbours differ by 2 * high
    positions = sum(x.shape[2:]) * 2.0**-22
    given = {"error": x.error + (_ROUNDING + positions) * x.high} if mode == "linear" else {}
    shape = [int(size * factor) for size, factor in zip(x.shape, factors, strict=True)]
    scales = d.constant(np.asarray(factors, np.float32))
    attrs = (
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        if mode == "nearest"
        else {}
    )
    return d.op("Resize", [x.name, "", scales], shape, x, mode=mode, **attrs, **given)


Maker = Callable[[Draw, Value], Value]
MOVES: tuple[Maker, ...] = (
    *(transpose, swap) * 3,
    reshape,
    reshape,
    squeeze,
    unsqueeze,
    expand,
    tile,
    cut,
    split,
    pad,
    gather,
    join,
)
POINTS: tuple[Maker, ...] = (*(unary, binary, binary, binary, binary, quantized) * 2, dynamic)
ANCHORS: tuple[Maker, ...] = (
    convolution,
    convolution,
    convolution,
    deconvolution,
    matmul,
    matmul,
    dynamic_product,
    attention,
    pooling,
    pooling,
    normalization,
    reduction,
    resize,
)


def draw_case(seed: int) -> Case:
    """A model of one to three rounds: moves, an anchor, moves, a chain. Every value that nobody
    reads is an output.
    """
    d = Draw(np.random.default_rng(seed))
    sizes = d.pick(*SIZES)
    while True:
        shape = tuple(int(size) for size in d.rng.choice(sizes, d.pick(0, 1, 2, 3, 4, 4, 5, 6)))
        if math.prod(shape) <= _MOST and (0 not in shape or d.yes(0.3)):
            break
    d.values.append(d.input(shape))
    for _ in range(d.pick(1, 2, 2, 3)):
        parts = (
            (MOVES, d.pick(0, 1, 1, 2)),
            (ANCHORS, d.pick(0, 1)),
            (MOVES, d.pick(0, 0, 1)),
            (POINTS, d.pick(0, 1, 2, 3)),
        )
        for makers, count in parts:
            for _ in range(count):
                _add(d, d.pick(*makers), d.values[-1] if d.yes(0.85) else d.pick(*d.values))
    return _finished(d)


def _add(d: Draw, maker: Maker, x: Value) -> None:
    """Adds what `maker` makes of a value, unless it has too many elements or too large ones."""
    before = len(d.nodes), len(d.values), dict(d.feeds)
    y = maker(d, x)
    if math.prod(y.shape) > _MOST or y.rank > 6 or y.high > _HIGHEST:
        del d.nodes[before[0] :], d.values[before[1] :]
        d.feeds = before[2]
        return
    if y.high / y.unit > _LARGEST and not y.error:
        y = quantized(d, y)
    if y.name not in {value.name for value in d.values}:
        d.values.append(y)


def _finished(d: Draw) -> Case:
    if not d.nodes:
        d.values.append(d.op("Identity", [d.values[-1].name], d.values[-1].shape, d.values[-1]))
    read = {name for node in d.nodes for name in node.input}
    outputs = [value for value in d.values if value.name not in read and value.name not in d.feeds]
    feeds = {name: array for name, array in d.feeds.items() if name in read}
    named = d.yes(0.3)
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [
                _dim(d, f"{name}_{axis}", size) if named else size
                for axis, size in enumerate(array.shape)
            ],
        )
        for name, array in feeds.items()
    ]
    constants = [
        numpy_helper.from_array(array, name) for name, array in d.constants.items() if name in read
    ]
    results = [onnx.ValueInfoProto(name=value.name) for value in outputs]
    graph = helper.make_graph(d.nodes, "drawn", infos, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Case(model, feeds, d.errors, [value.name for value in outputs], d.pick(1, 1, 2, 3, 4))


def _dim(d: Draw, name: str, size: int) -> int | str | None:
    """A size as the model may declare it: itself, a symbol, or unknown."""
    return d.pick(size, size, name, None)
