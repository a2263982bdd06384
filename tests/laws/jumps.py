"""Random ONNX models that decode codes, add and multiply constants, and tell what comes of it from
the numbers next to it: by a rounding, a comparison, a remainder.

At codes equal to their zero points the model computes with the constants alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

CHANNELS = 16

Codes = np.ndarray[Any, Any]


@dataclass
class Jumps:
    """A model in the making; every value is f32[256, CHANNELS].

    Attributes:
        zeros: where the codes of all sources are their zero points.
        jump: the last operation.
        distance: of the numbers that it reads to the nearest one that it tells from its neighbours.
        values: values that the jump depends on, each with the product of the factors behind it: the
            largest of them rounds.
        reach: what 256 codes span, likewise: of two sources one is added on the grid of the other,
            with its zero point, and rounded there.
    """

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Codes] = field(default_factory=dict)
    feeds: dict[str, Codes] = field(default_factory=dict)
    zeros: Codes = field(default_factory=lambda: np.ones((256, CHANNELS), bool))
    jump: str = ""
    distance: Callable[[Codes], Codes] = np.abs
    values: dict[str, Codes] = field(default_factory=dict)
    reach: Codes = field(default_factory=lambda: np.zeros(()))

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def f32(self, op: str, *inputs: str, **attrs: Any) -> str:
        value = self.op(op, *inputs, **attrs)
        self.values[value] = np.ones(())
        return value

    def addend(self) -> np.float32:
        """What jumps often read: a whole number, or half of one; or any."""
        return np.float32(
            self.pick(*range(-12, 13), 0.5, 2.5, -1.5, 0.1, 1000.0, float(self.rng.normal()))
        )

    def source(self) -> str:
        """Codes of an input, decoded, of all values; behind another source anyhow, but where that
        is 0.
        """
        dtype = self.pick(np.uint8, np.int8)
        info = np.iinfo(dtype)
        many = (CHANNELS,) if self.rng.random() < 0.25 else ()
        scale = self.rng.uniform(0.001, 0.2, many).astype(np.float32)
        self.reach = np.maximum(self.reach, 256 * scale)
        zero = self.rng.integers(info.min, info.max + 1, many).astype(dtype)
        codes = np.repeat(np.arange(info.min, info.max + 1)[:, None], CHANNELS, axis=1)
        if self.feeds:
            codes = np.where(self.zeros, zero, self.rng.permuted(codes, axis=0))
        self.zeros &= codes == zero
        name, numbers = f"x{len(self.feeds)}", (self.constant(scale), self.constant(zero))
        along = {"axis": 1} if many else {}
        if self.rng.random() < 0.6:
            self.feeds[name] = codes.astype(dtype)
            return self.f32("DequantizeLinear", name, *numbers, **along)
        self.feeds[name] = ((codes.astype(np.float32) - zero) * scale).astype(np.float32)
        x = self.op("Identity" if self.rng.random() < 0.5 else "Neg", name)
        x = self.op("Neg", x) if self.nodes[-1].op_type == "Neg" else x
        return self.f32(
            "DequantizeLinear", self.op("QuantizeLinear", x, *numbers, **along), *numbers, **along
        )


def added(d: Jumps, x: str) -> str:
    c = d.constant(d.addend())
    op = d.pick("Add", "Add", "Add", "Sub")
    return d.f32(op, *((x, c) if op == "Add" or d.rng.random() < 0.7 else (c, x)))


def factor(d: Jumps, x: str) -> str:
    shape = d.pick((), (), (CHANNELS,))
    c = np.exp(d.rng.uniform(-2, 2, shape)) * d.rng.choice([-1, 1, 1], shape)
    op = d.pick("Mul", "Mul", "Div")
    # Behind what bends, factors are multiplied with each other, and divisors are reciprocals: f32
    # rounds these, but not powers of two.
    if op == "Div" or any(node.op_type in ("Abs", "Clip", "LeakyRelu", "Relu") for node in d.nodes):
        c = np.copysign(np.exp2(np.rint(np.log2(np.abs(c)))), c)
    gain = np.abs(c if op == "Mul" else 1 / c)
    d.reach = d.reach * gain
    d.values = {value: before * gain for value, before in d.values.items()}
    return d.f32(op, x, d.constant(c.astype(np.float32)))


def unary(d: Jumps, x: str) -> str:
    op = d.pick("Relu", "LeakyRelu", "Abs", "Neg", "Clip", "Identity")
    if op == "Clip":
        return d.f32(op, x, d.constant(np.float32(-20.25)), d.constant(np.float32(d.pick(30, 90))))
    return d.f32(op, x, **({"alpha": 0.25} if op == "LeakyRelu" else {}))


def combined(d: Jumps, x: str) -> str:
    op = d.pick("Add", "Add", "Sub", "Max", "Min")
    return d.f32(op, *((x, d.source()) if d.rng.random() < 0.5 else (d.source(), x)))


def _jump(d: Jumps, x: str) -> None:
    op = d.pick(
        *("Ceil", "Floor", "Round", "Sign", "Cast", "Mod", "Equal"),
        *("Greater", "Less", "GreaterOrEqual", "LessOrEqual"),
    )
    if op in ("Ceil", "Floor", "Cast"):
        d.distance = lambda v: np.abs(v - np.rint(v))
        d.jump = d.op(op, x, **({"to": d.pick(6, 7)} if op == "Cast" else {}))
    elif op == "Round":
        d.distance = lambda v: np.abs(np.abs(v - np.rint(v)) - 0.5)
        d.jump = d.op(op, x)
    elif op == "Sign":
        d.jump = d.op(op, x)
    else:
        c = d.addend() or np.float32(1)
        if op == "Mod":
            d.distance = lambda v: np.abs(v - np.rint(v / c) * c)
        else:
            d.distance = lambda v: np.abs(v - c)
        d.jump = d.op(op, x, d.constant(c), **({"fmod": 1} if op == "Mod" else {}))
        if op != "Mod" and d.rng.random() < 0.5:
            d.jump = d.op("Cast", d.jump, to=1)


def draw_jumps(seed: int) -> tuple[Jumps, onnx.ModelProto, onnx.ModelProto]:
    """What is known of a model, the model, and one that returns the values in front of the jump as
    well, the last one right in front of it.
    """
    d = Jumps(np.random.default_rng(seed))
    x = d.source()
    for _ in range(int(d.rng.integers(0, 5))):
        x = d.pick(added, added, added, factor, factor, unary, combined)(d, x)
    _jump(d, x)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in d.feeds.items()
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in d.constants.items()]
    models = (
        helper.make_model(
            helper.make_graph(
                d.nodes, "jumps", infos, [onnx.ValueInfoProto(name=v) for v in outputs], constants
            ),
            opset_imports=[helper.make_opsetid("", 21)],
            ir_version=10,
        )
        for outputs in ([d.jump], [d.jump, *d.values])
    )
    return d, *models
