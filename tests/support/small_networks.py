"""Small f32 networks with random weights, as exporters write them, for a quantizer to work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from support.onnx_cases import model, node

from fqfuse.plan.types import Plan

WIDTH, HEADS, LENGTH = 32, 4, 10


class Writer:
    """Collects nodes and constants."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, values: Any, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        return name

    def drawn(self, *shape: int, deviation: float | None = None) -> str:
        """A constant of normal numbers; by default the variance is 1 over the last but one size."""
        fan_in = shape[-2] if len(shape) == 2 else int(np.prod(shape[1:]))
        values = self.rng.standard_normal(shape)
        return self.constant(values * (fan_in**-0.5 if deviation is None else deviation))

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.op("MatMul", x, self.drawn(inputs, outputs))
        return self.op("Add", product, self.drawn(outputs, deviation=0.1))

    def norm(self, x: str) -> str:
        return self.op(
            "LayerNormalization", x, self.constant(np.ones(WIDTH)), self.drawn(WIDTH, deviation=0.1)
        )

    def reshaped(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(shape, np.int64))

    def finished(self, y: str, shape: Sequence[int | str]) -> onnx.ModelProto:
        self.op("Identity", y)
        return model(
            self.nodes,
            inputs={"x": shape},
            outputs=[self.nodes[-1].output[0]],
            constants=self.constants,
            opset=17,
        )


def residual_cnn(w: Writer) -> onnx.ModelProto:
    """Convolutions with a residual add, pooled into a classifier."""

    def conv(x: str, inputs: int, outputs: int, **attributes: Any) -> str:
        kernel = w.drawn(outputs, inputs, 3, 3)
        bias = w.drawn(outputs, deviation=0.1)
        return w.op("Conv", x, kernel, bias, pads=[1, 1, 1, 1], **attributes)

    x = w.op("Relu", conv("x", 3, 8))
    y = w.op("Relu", conv(x, 8, 8))
    y = w.op("Relu", w.op("Add", conv(y, 8, 8), x))
    y = w.op("Relu", conv(y, 8, 16, strides=[2, 2]))
    y = w.op("Flatten", w.op("GlobalAveragePool", y))
    return w.finished(
        w.op("Gemm", y, w.drawn(5, 16), w.drawn(5, deviation=0.1), transB=1), ["N", 3, 12, 12]
    )


def mlp(w: Writer) -> onnx.ModelProto:
    """Three linear layers."""
    y = w.op("Relu", w.linear("x", WIDTH, 64))
    return w.finished(w.linear(w.op("Relu", w.linear(y, 64, 48)), 48, 5), ["N", WIDTH])


def _attention(w: Writer, x: str, mask: str = "") -> str:
    query, key, value = (
        w.op("Transpose", w.reshaped(w.linear(x, WIDTH, WIDTH), 0, 0, HEADS, -1), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = w.op("Div", w.op("MatMul", query, key), w.constant((WIDTH / HEADS) ** 0.5))
    weights = w.op("Softmax", w.op("Add", scores, mask) if mask else scores, axis=-1)
    context = w.op("Transpose", w.op("MatMul", weights, value), perm=[0, 2, 1, 3])
    return w.linear(w.reshaped(context, 0, 0, -1), WIDTH, WIDTH)


def attention(w: Writer) -> onnx.ModelProto:
    """Self-attention alone."""
    return w.finished(_attention(w, "x"), ["N", LENGTH, WIDTH])


def bert(w: Writer) -> onnx.ModelProto:
    """Two layers of an encoder, normalized behind the residual sums, GELU by Erf."""
    x = "x"
    for _ in range(2):
        x = w.norm(w.op("Add", _attention(w, x), x))
        y = w.linear(x, WIDTH, 4 * WIDTH)
        erf = w.op("Erf", w.op("Div", y, w.constant(2**0.5)))
        gate = w.op("Mul", w.op("Add", erf, w.constant(1.0)), w.constant(0.5))
        x = w.norm(w.op("Add", w.linear(w.op("Mul", y, gate), 4 * WIDTH, WIDTH), x))
    return w.finished(x, ["N", LENGTH, WIDTH])


def gpt2(w: Writer) -> onnx.ModelProto:
    """A decoder's block, normalized in front of its products, under a causal mask, GELU by Tanh."""
    mask = w.constant(np.triu(np.full((LENGTH, LENGTH), -10000.0), 1))
    x = w.op("Add", _attention(w, w.norm("x"), mask), "x")
    y = w.linear(w.norm(x), WIDTH, 4 * WIDTH)
    cube = w.op("Mul", w.op("Pow", y, w.constant(3.0)), w.constant(0.044715))
    tanh = w.op("Tanh", w.op("Mul", w.op("Add", y, cube), w.constant((2 / np.pi) ** 0.5)))
    gate = w.op("Mul", w.op("Add", tanh, w.constant(1.0)), w.constant(0.5))
    y = w.linear(w.op("Mul", y, gate), 4 * WIDTH, WIDTH)
    return w.finished(w.op("Add", y, x), ["N", LENGTH, WIDTH])


def _recurrent(op: str, gates: int) -> Callable[[Writer], onnx.ModelProto]:
    def build(w: Writer) -> onnx.ModelProto:
        y, inputs = w.op("Transpose", "x", perm=[1, 0, 2]), WIDTH
        for _ in range(2):
            weights = w.drawn(2, gates * WIDTH, inputs, deviation=inputs**-0.5)
            recurrence = w.drawn(2, gates * WIDTH, WIDTH, deviation=WIDTH**-0.5)
            bias = w.drawn(2, 2 * gates * WIDTH, deviation=0.1)
            given = [y, weights, recurrence, bias]
            y = w.op(op, *given, direction="bidirectional", hidden_size=WIDTH)
            y = w.reshaped(w.op("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, -1)
            inputs = 2 * WIDTH
        return w.finished(w.linear(y, inputs, 5), ["N", LENGTH, WIDTH])

    build.__doc__ = f"Two bidirectional {op} layers and a linear one."
    return build


NETWORKS: dict[str, Callable[[Writer], onnx.ModelProto]] = {
    "cnn": residual_cnn,
    "mlp": mlp,
    "attention": attention,
    "bert": bert,
    "gpt2": gpt2,
    "lstm": _recurrent("LSTM", 4),
    "gru": _recurrent("GRU", 3),
}


def feeds_of(proto: onnx.ModelProto, batch: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers for its input."""
    given = proto.graph.input[0]
    shape = [dim.dim_value or batch for dim in given.type.tensor_type.shape.dim]
    rng = np.random.default_rng([seed, batch])
    return {given.name: rng.standard_normal(shape).astype(np.float32)}


PLACES = {
    "MatMulInteger",
    "ConvInteger",
    "MatMul",
    "Conv",
    "Gemm",
    "DynamicQuantizeLinear",
    "DynamicRange",
    "DynamicBlocks",
    "DequantizeBlocks",
    "QuantizeLinear",
    "DequantizeLinear",
    "Quantize",
    "Dequantize",
    "RunTimeDequantize",
    "LSTM",
    "GRU",
    "DynamicQuantizeLSTM",
    "FakeQuantize",
    "MatMulNBits",
    "RNN",
}
"""Products, quantizers and recurrences, which no step may leave to the ONNX operator."""


def left_to_operators(plan: Plan) -> set[str]:
    """The steps that run as the ONNX operator where a product, quantizer or recurrence stands."""
    return {step.primitive for step in plan.steps} & {f"onnx.{op}" for op in PLACES}
