"""Random ONNX models that keep zeros: codes equal to their zero point, behind scales and nothing
that would shift them.

Scales are any numbers here, so that whoever writes (q - z)*s as q*s - z*s rounds, and gives
something next to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (2, 4, 4, 6)


@dataclass
class Draw:
    """A model in the making; every value is f32 of `SHAPE`, but for the channels of what was
    convolved.
    """

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def yes(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def scale(self) -> np.float32:
        return np.float32(np.exp(self.rng.uniform(-6, 1)))

    def quantized(self, x: str) -> str:
        dtype = self.pick(np.uint8, np.int8)
        zero = self.constant(dtype(self.rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1)))
        scale = self.constant(self.scale())
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)

    def source(self) -> str:
        """Codes of an input, decoded."""
        if not self.inputs or self.yes(0.4):
            self.inputs.append(f"x{len(self.inputs)}")
        return self.quantized(self.pick(*self.inputs))


def factor(d: Draw, x: str) -> str:
    shape = d.pick((), (1, 4, 1, 1), (1, 1, 1, 1))
    values = (np.exp(d.rng.uniform(-3, 3, shape)) * d.rng.choice([-1, 1, 1], shape)).astype(
        np.float32
    )
    op = d.pick("Mul", "Mul", "Div")
    return d.op(op, x, d.constant(values))


def unary(d: Draw, x: str) -> str:
    op = d.pick(
        "Relu", "Relu", "LeakyRelu", "Abs", "Neg", "Tanh", "HardSwish", "Elu", "Clip", "Identity"
    )
    if op == "Clip":
        return d.op(op, x, d.constant(np.float32(-0.7)), d.constant(np.float32(d.pick(0.9, 6.0))))
    return d.op(op, x, **({"alpha": 0.3} if op == "LeakyRelu" else {}))


def combined(d: Draw, x: str) -> str:
    """With other codes."""
    op = d.pick("Mul", "Add", "Add", "Sub", "Max", "Min")
    return d.op(op, *((x, d.source()) if d.yes() else (d.source(), x)))


def pooled(d: Draw, x: str) -> str:
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
    return d.op(d.pick("MaxPool", "AveragePool"), x, **window)


def convolved(d: Draw, x: str) -> str:
    weights = d.rng.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    scale = (np.exp(d.rng.uniform(-6, -3, 4))).astype(np.float32)
    decoded = d.op(
        "DequantizeLinear",
        d.constant(weights),
        d.constant(scale),
        d.constant(np.zeros(4, np.int8)),
        axis=0,
    )
    return d.op("Conv", x, decoded)


def product(d: Draw, x: str) -> str:
    weights = d.rng.integers(-127, 128, (6, 6)).astype(np.int8)
    return d.op(
        "MatMul",
        x,
        d.op(
            "DequantizeLinear", d.constant(weights), d.constant(d.scale()), d.constant(np.int8(0))
        ),
    )


def moved(d: Draw, x: str) -> str:
    there = d.op("Transpose", x, perm=(0, 2, 3, 1))
    return d.op("Transpose", d.quantized(there) if d.yes() else there, perm=(0, 3, 1, 2))


def joined(d: Draw, x: str) -> str:
    both = d.op("Concat", *((x, d.source()) if d.yes() else (d.source(), x)), axis=1)
    sliced = [d.constant(np.asarray([value], np.int64)) for value in (2, 6, 1)]
    return d.op("Slice", both, *sliced)


def resized(d: Draw, x: str) -> str:
    larger = d.op(
        "Resize", x, "", d.constant(np.float32([1, 1, 2, 2])), mode=d.pick("nearest", "linear")
    )
    return d.op("MaxPool", larger, kernel_shape=(2, 2), strides=(2, 2))


def again(d: Draw, x: str) -> str:
    return d.quantized(x)


MAKERS: tuple[Callable[[Draw, str], str], ...] = (
    factor,
    factor,
    factor,
    unary,
    unary,
    combined,
    combined,
    pooled,
    convolved,
    product,
    moved,
    joined,
    resized,
    again,
)


def draw_zeros(seed: int) -> onnx.ModelProto:
    """A model of inputs of `SHAPE` whose f32 outputs are 0 where all of their codes are zero
    points.
    """
    d = Draw(np.random.default_rng(seed))
    x = d.source()
    for _ in range(int(d.rng.integers(0, 6))):
        x = d.pick(*MAKERS)(d, x)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in d.inputs]
    constants = [numpy_helper.from_array(array, name) for name, array in d.constants.items()]
    graph = helper.make_graph(d.nodes, "zeros", infos, [onnx.ValueInfoProto(name=x)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
