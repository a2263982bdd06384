"""Graphs of any width and depth, for the law of compile effort: values read N times, N values
joined, N inputs and outputs, long skips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

_SHAPE = (1, 4, 4, 4)


@dataclass
class Net:
    """A model in the making."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[ValueInfoProto] = field(default_factory=list)

    def input(self, shape: tuple[int, ...] = _SHAPE) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def op(self, op: str, *inputs: str, **attributes: object) -> str:
        return self.pieces(op, *inputs, count=1, **attributes)[0]

    def pieces(self, op: str, *inputs: str, count: int, **attributes: object) -> list[str]:
        outputs = [f"v{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(
            helper.make_node(op, inputs, outputs, f"n{len(self.nodes)}", **attributes)
        )
        return outputs

    def q(self, value: str, scale: float = 0.02) -> str:
        return self.op("QuantizeLinear", value, self.constant(scale), self.constant(3, np.uint8))

    def dq(self, codes: str, scale: float = 0.02) -> str:
        return self.op("DequantizeLinear", codes, self.constant(scale), self.constant(3, np.uint8))

    def qdq(self, value: str, scale: float = 0.02) -> str:
        return self.dq(self.q(value, scale), scale)

    def done(self, *outputs: str) -> onnx.ModelProto:
        infos = [ValueInfoProto(name=name) for name in outputs]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "growing", self.inputs, infos, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _near(number: int) -> float:
    """A scale of its own."""
    return 0.02 + 1e-4 * number


def _decoded_and_quantized(n: int) -> onnx.ModelProto:
    net = Net()
    value = net.qdq(net.input())
    return net.done(*(net.q(value, _near(number)) for number in range(1, n + 1)))


def _quantized_alike_and_joined(n: int) -> onnx.ModelProto:
    net = Net()
    value = net.input()
    return net.done(net.qdq(net.op("Concat", *(net.qdq(value) for _ in range(n)), axis=1), 0.05))


def _decoded_and_joined(n: int) -> onnx.ModelProto:
    net = Net()
    codes = net.q(net.input())
    return net.done(
        net.qdq(
            net.op("Concat", *(net.dq(codes, _near(number)) for number in range(n)), axis=1), 0.05
        )
    )


def _shifted_and_joined(n: int) -> onnx.ModelProto:
    net = Net()
    value = net.qdq(net.input())
    return net.done(
        net.op(
            "Concat",
            *(net.op("Add", value, net.constant(1 + number)) for number in range(n)),
            axis=1,
        )
    )


def joined(n: int, *, one: bool = True) -> onnx.ModelProto:
    """Concat of one value N times, or of N inputs."""
    net = Net()
    first = net.input()
    values = [first, *(first if one else net.input() for _ in range(n - 1))]
    return net.done(net.op("Concat", *values, axis=1))


def _convolved(n: int) -> onnx.ModelProto:
    net = Net()
    scale, zero = net.constant(0.02), net.constant(3, np.uint8)
    codes, weights = net.q(net.input()), net.constant(np.ones((4, 4, 1, 1)), np.uint8)
    given = (codes, scale, zero, weights, scale, zero, scale, zero)
    return net.done(*(net.op("QLinearConv", *given) for _ in range(n)))


def _viewed(n: int) -> onnx.ModelProto:
    net = Net()
    value = net.input()
    shapes = net.constant((64,), np.int64), net.constant((8, 8), np.int64)
    twice = (net.op("Reshape", net.op("Reshape", value, shapes[0]), shapes[1]) for _ in range(n))
    return net.done(*(net.op("Add", view, net.constant(1 + k)) for k, view in enumerate(twice)))


GROWING: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "decoded and quantized N times": _decoded_and_quantized,
    "N decoded values joined": _decoded_and_joined,
    "N equal quantizers joined": _quantized_alike_and_joined,
    "N sums with constants joined": _shifted_and_joined,
    "N convolutions of one value": _convolved,
    "N times two reshapes of one value": _viewed,
    "one value joined N times": joined,
}
"""What grows, by name: N nodes, or a few times as many."""
