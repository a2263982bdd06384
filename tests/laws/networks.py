"""Random networks of 5 to 40 operations whose quantizers stand where tools put them, or anywhere, in numbers that f32
holds exactly: scales are powers of two, zero points even, and no sum needs more than 24 bits. So each correct
runtime gives the same numbers, and rounds the same ties.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import onnx
from support.onnx_cases import model, node

_MOST = 2.0**22
"""Steps of its grid that a value may reach: what rules join may be some times as large on the way."""

STYLES = ("ONNX Runtime", "NNCF", "TensorRT", "odd")
SIZES = (4, 8)
"""Of maps: averages over all of one are exact."""


@dataclass(frozen=True)
class Value:
    """A value of the network.

    Attributes:
        name: of it.
        channels: how many; 0: it has other dimensions than a map, `form` says which.
        form: values of one form and as many channels have the same shape.
        step: it is a multiple of this power of two.
        most: how large it is at most.
        coded: it is decoded codes.
    """

    name: str
    channels: int
    form: tuple[str, ...]
    step: float
    most: float
    coded: bool = False

    @property
    def is_map(self) -> bool:
        """It is [N, C, H, W]."""
        return self.form[0] == "map"

    @property
    def is_square(self) -> bool:
        """The elements of each map are a power of two."""
        return self.is_map and "padded" not in self.form

    def fits(self) -> bool:
        """f32 holds each of its numbers."""
        return self.most / self.step <= _MOST


class Network:
    """A network in the making.

    Args:
        seed: of the draws.

    Attributes:
        style: whose quantizers it has.
        channels: of its input.
        rows: its input is [N, channels], and no map.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - reproducible on purpose
        self.rng = np.random.default_rng(seed)
        self.style = self.random.choice(STYLES)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.channels = self.random.choice([1, 2, 3, 4, 8])
        self.rows = self.yes(0.25)
        form = ("rows",) if self.rows else ("map",)
        self.values = [Value("x", self.channels, form, 2.0**-6, 4.0)]
        wanted = self.random.randint(5, 40)
        for _ in range(200):
            if len(self.nodes) >= wanted:
                break
            self.grow()

    # -- writing -----------------------------------------------------------------------------------

    def yes(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], name=f"n{name}", **attributes))
        return name

    # -- quantizers --------------------------------------------------------------------------------

    def quantized(self, x: Value) -> Value:
        """Q/DQ of a value, as the style has them; some cut its range."""
        signed = self.style == "TensorRT" or self.yes()
        kind = np.int8 if signed else np.uint8
        zero = 0 if self.style == "TensorRT" else int(self.rng.integers(-64, 64)) * 2
        zero = zero if signed else zero + 128
        zero = 0 if self.yes(0.3) else zero
        step = 2.0 ** int(np.ceil(np.log2(x.most / 127)) - self.random.choice([0, 0, 0, 1, 2]))
        names = self.constant(step), self.constant(zero, kind)
        value = self.op("DequantizeLinear", self.op("QuantizeLinear", x.name, *names), *names)
        info = np.iinfo(kind)
        most = max(info.max - zero, zero - info.min) * step
        return replace(x, name=value, step=step, most=min(most, x.most + step), coded=True)

    def read(self, x: Value, *, product: bool = False) -> Value:
        """A value as an operation reads it."""
        chance = {"ONNX Runtime": 0.95, "NNCF": 0.9, "TensorRT": 0.95 if product else 0.2}
        if x.coded and not (self.style == "odd" and self.yes(0.1)):
            return x
        return self.quantized(x) if self.yes(chance.get(self.style, 0.4)) else x

    def write(self, x: Value) -> None:
        """The output of an operation."""
        must = not x.fits()
        after = {"ONNX Runtime": 0.9, "odd": 0.3}.get(self.style, 0.0)
        self.values.append(self.quantized(x) if must or self.yes(after) else x)

    def weights(self, shape: tuple[int, ...], axis: int, added: int) -> tuple[str, float, float]:
        """Weights of few steps, their step, and the largest sum of `added` of them."""
        codes = self.rng.integers(-7, 8, shape).astype(np.int8)
        along = self.yes() and self.style != "odd"
        exponents = self.rng.integers(-4, -1, shape[axis] if along else ())
        scales = np.float32(2.0) ** exponents
        step, most = float(scales.min()), float(scales.max()) * 7 * added
        if self.yes(0.1):  # nobody quantized these
            aligned = [1] * len(shape)
            aligned[axis] = -1
            real = codes * (scales.reshape(aligned) if along else scales)
            return self.constant(real), step, most
        names = [self.constant(scales), self.constant(np.zeros(scales.shape), np.int8)]
        if self.style != "ONNX Runtime" and self.yes():
            aligned = [1] * len(shape)
            aligned[axis] = -1
            real = self.constant(codes * (scales.reshape(aligned) if along else scales))
            held = self.op("QuantizeLinear", real, *names, axis=axis)
        else:
            held = self.constant(codes, np.int8)
        return self.op("DequantizeLinear", held, *names, axis=axis), step, most

    def bias(self, count: int, step: float) -> tuple[list[str], float]:
        """A bias on a grid, or none, and how large it is."""
        if self.yes(0.3):
            return [], 0.0
        codes = self.rng.integers(-99, 100, count)
        if self.yes():
            return [self.constant(codes * step)], 99 * step
        scale = self.constant(step)
        return [self.op("DequantizeLinear", self.constant(codes, np.int32), scale)], 99 * step

    # -- operations --------------------------------------------------------------------------------

    def grow(self) -> None:
        """One operation more, on one of the last values."""
        x = self.random.choice(self.values[-4:])
        of_maps = [self.convolution] * 4 + [self.depthwise, self.deconvolution, self.pooled]
        of_maps += [self.pooled, self.padded, self.resized, self.head]
        of_all = [self.residual] * 3 + [self.unary, self.unary, self.with_vector, self.joined]
        of_all += [self.cut, self.turned]
        of_rows = [self.product] * 3
        self.random.choice([*(of_maps if x.is_map else of_rows), *of_all])(x)

    def convolution(self, x: Value) -> None:
        kernel, stride = self.random.choice([(1, 1), (3, 1), (3, 2), (1, 2)])
        stride = stride if x.form.count("half") + x.form.count("floor") < 2 else 1
        x = self.read(x, product=True)
        groups = self.random.choice([g for g in (1, 1, 1, 2) if x.channels % g == 0])
        outputs = self.random.choice([1, 2, 4, 6, 8]) * groups
        shape = (outputs, x.channels // groups, kernel, kernel)
        self.weighted("Conv", x, shape, 0, outputs, stride, pads=[kernel // 2] * 4, group=groups)

    def depthwise(self, x: Value) -> None:
        x = self.read(x, product=True)
        shape = (x.channels, 1, 3, 3)
        self.weighted("Conv", x, shape, 0, x.channels, 1, pads=[1] * 4, group=x.channels)

    def deconvolution(self, x: Value) -> None:
        x, outputs = self.read(x, product=True), self.random.choice([1, 2, 4])
        if x.form.count("up") < 2:
            self.weighted("ConvTranspose", x, (x.channels, outputs, 2, 2), 1, outputs, 2)

    def weighted(
        self,
        op: str,
        x: Value,
        shape: tuple[int, ...],
        axis: int,
        outputs: int,
        stride: int,
        **more: Any,
    ) -> None:
        added = int(np.prod(shape)) // outputs if op == "Conv" else shape[0]
        wide = _after(x, 128 * added)
        if not wide.fits():
            x = self.quantized(x)
        name, step, most = self.weights(shape, axis, added)
        bias, size = self.bias(outputs, x.step * step)
        value = self.op(op, x.name, name, *bias, strides=[stride] * 2, **more)
        form = x.form
        if stride == 2:
            form = (*form, "up" if op == "ConvTranspose" else "half")
        found = Value(value, outputs, _joined(form), x.step * step, x.most * most + size)
        self.write(found)

    def product(self, x: Value) -> None:
        x, outputs = self.read(x, product=True), self.random.choice([1, 3, 8, 16])
        if not _after(x, 128 * x.channels).fits():
            x = self.quantized(x)
        name, step, most = self.weights((x.channels, outputs), 1, x.channels)
        bias, size = self.bias(outputs, x.step * step)
        if bias and self.yes():
            value = self.op("Gemm", x.name, name, *bias)
        else:
            value, size = self.op("MatMul", x.name, name), 0.0
        self.write(
            replace(
                x,
                name=value,
                channels=outputs,
                step=x.step * step,
                most=x.most * most + size,
                coded=False,
            )
        )

    def residual(self, x: Value) -> None:
        alike = [v for v in self.values if (v.channels, v.form) == (x.channels, x.form)]
        other, op = (
            self.random.choice(alike),
            self.random.choice(["Add"] * 4 + ["Sub", "Mul", "Max", "Min"]),
        )
        x = self.read(x)
        # TensorRT's rule: one of the two is quantized
        other = other if self.style == "TensorRT" and self.yes(0.7) else self.read(other)
        if (
            op == "Mul"
            and not Value("", 1, ("map",), x.step * other.step, x.most * other.most).fits()
        ):
            return
        value = self.op(op, x.name, other.name)
        step, most = min(x.step, other.step), x.most + other.most
        if op == "Mul":
            step, most = x.step * other.step, x.most * other.most
        self.write(replace(x, name=value, step=step, most=most, coded=False))

    def unary(self, x: Value) -> None:
        op = self.random.choice(["Relu"] * 4 + ["Clip", "LeakyRelu", "Neg", "Abs", "PRelu"])
        step = x.step
        if op == "Clip":
            low, high = sorted(int(n) for n in self.rng.integers(-50, 99, 2))
            value = self.op(op, x.name, self.constant(low * step), self.constant((high + 1) * step))
        elif op == "LeakyRelu":
            value, step = self.op(op, x.name, alpha=0.25), step / 4
        elif op == "PRelu":
            shape = (x.channels, 1, 1) if x.is_map else (x.channels,)
            value = self.op(op, x.name, self.constant(np.full(shape, 0.5)))
            step = step / 2
        else:
            value = self.op(op, x.name)
        self.write(replace(x, name=value, step=step, coded=False))

    def with_vector(self, x: Value) -> None:
        """A constant for each channel is added or multiplied."""
        shape = (x.channels, 1, 1) if x.is_map else (x.channels,)
        if self.yes():
            numbers = self.rng.integers(-9, 10, shape) * x.step
            value, found = (
                self.op("Add", x.name, self.constant(numbers)),
                (x.step, x.most + 9 * x.step),
            )
        else:
            numbers = 2.0 ** self.rng.integers(-2, 2, shape) * self.rng.choice([1, 1, 1, -1], shape)
            value, found = self.op("Mul", x.name, self.constant(numbers)), (x.step / 4, x.most * 2)
        self.write(replace(x, name=value, step=found[0], most=found[1], coded=False))

    def joined(self, x: Value) -> None:
        alike = [v for v in self.values if v.form == x.form]
        parts = [
            self.read(v) for v in (x, *self.random.choices(alike, k=self.random.randint(1, 2)))
        ]
        channels = sum(part.channels for part in parts)
        if channels > 24:
            return
        value = self.op("Concat", *(part.name for part in parts), axis=1)
        step, most = min(p.step for p in parts), max(p.most for p in parts)
        self.write(Value(value, channels, x.form, step, most))

    def cut(self, x: Value) -> None:
        """Some channels."""
        if x.channels < 2:
            return
        x, count = self.read(x), self.random.randint(1, x.channels - 1)
        start = self.random.randint(0, x.channels - count)
        ends = (self.constant([n], np.int64) for n in (start, start + count, 1))
        self.write(replace(x, name=self.op("Slice", x.name, *ends), channels=count, coded=False))

    def turned(self, x: Value) -> None:
        """Channels last and back, something in between."""
        if not x.is_map:
            return
        x = self.read(x)
        value = self.op("Transpose", x.name, perm=[0, 2, 3, 1])
        value = self.op("Relu", value) if self.yes() else value
        self.write(replace(x, name=self.op("Transpose", value, perm=[0, 3, 1, 2]), coded=False))

    def pooled(self, x: Value) -> None:
        x, form = self.read(x), x.form
        if self.yes():
            value = self.op("MaxPool", x.name, kernel_shape=[3, 3], pads=[1] * 4)
            self.write(replace(x, name=value, coded=False))
        elif form.count("half") + form.count("floor") < 2:
            value = self.op("AveragePool", x.name, kernel_shape=[2, 2], strides=[2, 2])
            found = replace(x, name=value, form=(*form, "floor"), step=x.step / 4, coded=False)
            self.write(found)

    def padded(self, x: Value) -> None:
        if "padded" in x.form:
            return
        pads = self.constant([0, 0, 1, 0, 0, 0, 0, 1], np.int64)
        value = self.op("Pad", self.read(x).name, pads, self.constant(0.0))
        self.write(replace(x, name=value, form=(*x.form, "padded"), coded=False, step=x.step))

    def resized(self, x: Value) -> None:
        if x.form.count("up") >= 2:
            return
        x = self.read(x)
        value = self.op(
            "Resize",
            x.name,
            "",
            self.constant([1, 1, 2, 2]),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        self.write(replace(x, name=value, form=_joined((*x.form, "up")), coded=False))

    def head(self, x: Value) -> None:
        """A number for each channel."""
        x = self.read(x)
        step = x.step
        if x.is_square and self.yes():
            value, step = self.op("GlobalAveragePool", x.name), step / 1024
        else:
            value = self.op("GlobalMaxPool", x.name)
        value = self.op("Flatten", value)
        self.write(Value(value, x.channels, ("rows",), step, x.most))

    # -- the model ---------------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """It returns the last value, and a few others."""
        names = [v.name for v in self.values[1:]]
        outputs = {
            names[-1],
            *self.random.sample(names, min(len(names), self.random.randint(0, 2))),
        }
        return model(
            self.nodes,
            inputs={"x": ["N", self.channels, *["H", "W"][: 2 - 2 * self.rows]]},
            outputs=sorted(outputs),
            constants=self.constants,
        )

    def feeds(self) -> list[np.ndarray]:
        """Inputs of several sizes, the first size again at the end."""
        sizes = [(int(self.rng.integers(1, 4)), *self.random.choices(SIZES, k=2)) for _ in range(2)]
        shapes = [(n, self.channels, h, w) for n, h, w in (*sizes, sizes[0])]
        shapes = [shape[:2] if self.rows else shape for shape in shapes]
        return [(self.rng.integers(-256, 257, shape) / 64).astype(np.float32) for shape in shapes]


def _after(x: Value, factor: float) -> Value:
    """A value as if it were so many times as large."""
    return replace(x, most=x.most * factor)


def _joined(form: tuple[str, ...]) -> tuple[str, ...]:
    """A form where what was doubled and halved again is as before."""
    return form[:-2] if form[-2:] == ("up", "half") else form
