"""Writes quantized networks as the quantizers do that most files come from: their names of nodes, where
they put quantizers, which types they choose. Weights are random codes; nothing is calibrated.

What is imitated was read off files that those quantizers wrote. Of MobileNetV3, the detector, ResNet-50 and
DenseNet-121 the plan has as many steps as that of what the real quantizer makes of the same network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from support.onnx_cases import model, node


class Tool:
    """An f32 network: what every quantizer starts from. Methods add layers and give the name of what
    they made; `op` adds any node.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.positive: set[str] = set()
        self.known_scales: dict[str, np.float32] = {}
        self._scales = 0

    # -- what quantizers differ in

    def read(self, value: str) -> str:
        """A value as the operand of a layer that is quantized."""
        return value

    def made(self, value: str) -> str:
        """The result of a layer that is quantized, for whoever reads it."""
        return value

    def weights(self, name: str, *shape: int, axis: int = 0) -> str:  # noqa: ARG002 - f32 has no scales
        """Weights as an operand; quantized, a scale for each index of the axis."""
        return self.constant(name, self.codes(shape).astype(np.float32) * np.float32(0.01))

    def activated(self, value: str, name: str, act: str) -> str:
        """A layer's result behind its activation."""
        if act in {"", "SiLU"}:
            return self.gated(value, name.rpartition("/")[0]) if act else value
        result = self.op(act, value, name=f"{name.rpartition('/')[0]}/{act}")
        if act == "Relu":
            self.positive.add(result)
        return result

    def gated(self, value: str, scope: str) -> str:
        """A layer's result behind a SiLU."""
        value = self.read(value)
        gate = self.op("Sigmoid", value, name=f"{scope}/Sigmoid")
        self.positive.add(gate)
        return self.made(self.op("Mul", value, self.read(self.made(gate)), name=f"{scope}/Mul"))

    # -- nodes

    def constant(self, name: str, value: Any) -> str:
        """A constant by this name."""
        self.constants[name] = np.asarray(value)
        return name

    def scale(self) -> np.float32:
        """Another one each time, so that no two tensors agree by chance."""
        self._scales += 1
        return np.float32(0.02 + 0.001 * (self._scales % 11))

    @staticmethod
    def codes(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int8]]:
        """Weights that use their range: a triangle of codes, which fills any shape quickly."""
        drawn = np.random.default_rng(1).triangular(-127, 0, 127.5, 1009).astype(np.int8)
        return np.resize(drawn, shape)

    def op(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        """A node, whose output is called as torch's exporter does it."""
        output = f"{name}_output_0"
        self.nodes.append(node(op, inputs, [output], name=name, **attributes))
        return output

    def proto(self, output: str, **inputs: Any) -> onnx.ModelProto:
        """The model, whose output is called `logits`; `inputs` are shapes, of s64 for `*_ids` and
        `*_mask`.
        """
        self.nodes[-1].output[0] = "logits"
        assert output == f"{self.nodes[-1].name}_output_0"
        return model(
            self.nodes,
            constants=self.constants,
            outputs=["logits"],
            inputs=inputs,
            types={
                name: onnx.TensorProto.INT64 for name in inputs if name[-4:] in {"_ids", "mask"}
            },
            domains={"com.microsoft": 1},
        )

    # -- layers

    def conv(
        self, x: str, name: str, channels: int, to: int, k: int = 1, s: int = 1, **told: Any
    ) -> str:
        """A convolution, padded to keep its size over the stride; `group`, `act`: its activation."""
        group, act = told.get("group", 1), told.get("act", "")
        weights = self.weights(f"{name[1:]}.weight", to, channels // group, k, k)
        along = {"pads": [k // 2] * 4, "strides": [s, s], "group": group}
        made = self.op("Conv", self.read(x), weights, self.bias(name, to), name=name, **along)
        return self.activated(self.made(made) if act != "Relu" else made, name, act)

    def bias(self, name: str, to: int) -> str:
        """A bias."""
        return self.constant(f"{name[1:]}.bias", np.linspace(-1, 1, to, dtype=np.float32))

    def dense(self, x: str, name: str, inputs: int, to: int) -> str:
        """A matrix product with a bias, of a tensor of two dimensions."""
        weights = self.weights(f"{name[1:]}.weight", inputs, to, axis=1)
        return self.made(self.op("Gemm", self.read(x), weights, self.bias(name, to), name=name))

    def product(self, a: str, b: str, name: str) -> str:
        """A product of activations."""
        return self.made(self.op("MatMul", self.read(a), self.read(b), name=name))

    def add(self, a: str, b: str, name: str, act: str = "") -> str:
        """A residual addition."""
        made = self.op("Add", self.read(a), self.read(b), name=name)
        return self.activated(made, name, act) if act == "Relu" else self.made(made)

    def moved(
        self, op: str, *inputs: str, name: str, rest: Sequence[str] = (), **attributes: Any
    ) -> str:
        """What moves or selects data: pooling by the maximum, concatenation, resizing ... `rest`:
        operands that are no data; `unified`: a quantized layer reads the concatenation.
        """
        attributes.pop("unified", None)
        read = [self.read(value) for value in inputs]
        result = self.op(op, *read, *rest, name=name, **attributes)
        if self.positive.issuperset(read):
            self.positive.add(result)
        return self.made(result)

    def moved_as_is(self, op: str, value: str, *, name: str) -> str:
        """What gives the same data another shape: no quantizer looks at it."""
        return self.op(op, value, name=name)

    def residual(self, a: str, b: str, name: str) -> str:
        """A residual addition in front of a normalization."""
        return self.add(a, b, name)

    def attended(self, shares: str, value: str, name: str) -> str:
        """The product of attention's shares with values."""
        return self.product(shares, value, name)

    def squeezed(self, x: str, scope: str, channels: int) -> str:
        """What is computed of the mean over all positions, in front of a gate."""
        y = self.moved("GlobalAveragePool", x, name=f"{scope}/avgpool/GlobalAveragePool")
        y = self.conv(y, f"{scope}/fc1/Conv", channels, channels // 4, act="Relu")
        return self.conv(y, f"{scope}/fc2/Conv", channels // 4, channels)

    def gather_weights(self, name: str, rows: int, width: int, indices: str) -> str:
        """Rows of an embedding."""
        table = self.weights(f"{name[1:]}.weight", rows, width)
        return self.op("Gather", table, indices, name=name)


class _Qdq(Tool):
    """QuantizeLinear and DequantizeLinear around values."""

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[str, str] = {}
        self._scale_of: dict[str, np.float32] = {}

    def names(self, value: str) -> tuple[str, str]:
        """Names of the two nodes."""
        raise NotImplementedError

    def zero(self, value: str) -> Any:
        """The zero point, with the type of the codes."""
        raise NotImplementedError

    def read(self, value: str) -> str:
        if value not in self._read:
            scale = self.scale()
            self.pair(value, self.known_scales.get(value, scale))
        return self._read[value]

    def pair(self, value: str, scale: np.float32) -> None:
        """The two nodes behind a value, which its readers read from now on."""
        quantize, dequantize = self.names(value)
        parameters = (
            self.constant(f"{value}_scale", scale),
            self.constant(f"{value}_zero_point", self.zero(value)),
        )
        codes = self.op("QuantizeLinear", value, *parameters, name=quantize)
        result = self.op("DequantizeLinear", codes, *parameters, name=dequantize)
        self._read |= {value: result, result: result}
        self._scale_of |= {value: scale, result: scale}
        if value in self.positive:
            self.positive.add(result)

    def weights(self, name: str, *shape: int, axis: int = 0) -> str:
        scales = np.linspace(0.009, 0.011, shape[axis], dtype=np.float32)
        return self.op(
            "DequantizeLinear",
            self.constant(f"{name}_quantized", self.codes(shape)),
            self.constant(f"{name}_scale", scales),
            self.constant(f"{name}_zero_point", np.zeros(shape[axis], np.int8)),
            name=self.names(name)[1],
            axis=axis,
        )


class Ort(_Qdq):
    """ONNX Runtime's quantize_static, QDQ, u8 activations: around operands and results of each type
    that it quantizes; a Relu in front of a quantizer goes.
    """

    def names(self, value: str) -> tuple[str, str]:
        return f"{value}_QuantizeLinear", f"{value}_DequantizeLinear"

    def zero(self, value: str) -> Any:
        return np.uint8(0 if value in self.positive else 128)

    def made(self, value: str) -> str:
        return self.read(value)

    def activated(self, value: str, name: str, act: str) -> str:
        if act == "Relu":
            self.positive.add(value)
            return self.read(value)
        return super().activated(value, name, act)


class Nncf(_Qdq):
    """NNCF on ONNX, default preset: in front of each layer, symmetric; s8 where values are
    negative, u8 elsewhere.
    """

    def names(self, value: str) -> tuple[str, str]:
        return f"QuantizeLinear_{value}_1", f"DequantizeLinear_{value}_1"

    def zero(self, value: str) -> Any:
        return np.uint8(0) if value in self.positive else np.int8(0)

    def moved(self, op: str, *inputs: str, name: str, **told: Any) -> str:
        if op == "Concat" and told.get("unified", True):
            held = [self._scale_of[value] for value in inputs if value in self._scale_of]
            scale = held[-1] if held else self.scale()
            for value in inputs:
                if self._scale_of.get(value) != scale:
                    self.pair(value, scale)
        result = super().moved(op, *inputs, name=name, **told)
        if op not in {"AveragePool", "GlobalAveragePool"}:
            self._read[result] = result  # its quantizers were moved in front of it
            self._scale_of[result] = self._scale_of[inputs[0]]
        return result

    def gated(self, value: str, scope: str) -> str:
        gate = self.op("Sigmoid", value, name=f"{scope}/Sigmoid")
        return self.op("Mul", value, gate, name=f"{scope}/Mul")

    def squeezed(self, x: str, scope: str, channels: int) -> str:
        y = self.op("GlobalAveragePool", self.read(x), name=f"{scope}/avgpool/GlobalAveragePool")
        for layer, inputs, to in (
            ("fc1", channels, channels // 4),
            ("fc2", channels // 4, channels),
        ):
            name = f"{scope}/{layer}/Conv"  # no quantizer from the pooling to the gate
            weights = Tool.weights(self, f"{name[1:]}.weight", to, inputs, 1, 1)
            y = self.op("Conv", y, weights, self.bias(name, to), name=name)
            y = self.op("Relu", y, name=f"{scope}/relu/Relu") if layer == "fc1" else y
        return y

    def residual(self, a: str, b: str, name: str) -> str:
        return self.op("Add", a, b, name=name)  # model_type=TRANSFORMER leaves it in f32

    def attended(self, shares: str, value: str, name: str) -> str:
        return self.op("MatMul", shares, value, name=name)  # and this product


class QOperator(Tool):
    """ONNX Runtime's quantize_static, QOperator: values are codes, with their parameters."""

    def __init__(self) -> None:
        super().__init__()
        self._parameters: dict[str, tuple[str, str]] = {}

    def parameters(self, value: str) -> tuple[str, str]:
        """Names of scale and zero point of a value's codes."""
        return self._parameters[value]

    def _new(self, name: str, *, positive: bool = False) -> tuple[str, str]:
        zero = np.uint8(0 if positive else 128)
        return (
            self.constant(f"{name}_scale", self.scale()),
            self.constant(f"{name}_zero_point", zero),
        )

    def _made(self, op: str, *inputs: str, name: str, out: tuple[str, str], **told: Any) -> str:
        result = self.op(op, *inputs, name=f"{name}_quant", **told)
        self._parameters[result] = out
        return result

    def read(self, value: str) -> str:
        if value in self._parameters:
            return value
        out = self._new(value)
        codes = self.op("QuantizeLinear", value, *out, name=f"{value}_QuantizeLinear")
        self._parameters[codes] = out
        return codes

    def _weights(self, name: str, shape: tuple[int, ...], axis: int) -> tuple[str, str, str]:
        scales = np.linspace(0.009, 0.011, shape[axis], dtype=np.float32)
        return (
            self.constant(f"{name}.weight_quantized", self.codes(shape)),
            self.constant(f"{name}.weight_scale", scales),
            self.constant(f"{name}.weight_zero_point", np.zeros(shape[axis], np.int8)),
        )

    def conv(
        self, x: str, name: str, channels: int, to: int, k: int = 1, s: int = 1, **told: Any
    ) -> str:
        group = told.get("group", 1)
        source = self.read(x)
        weights = self._weights(name[1:], (to, channels // group, k, k), 0)
        out = self._new(name, positive=told.get("act") == "Relu")
        bias = self.constant(f"{name[1:]}.bias_quantized", np.arange(to, dtype=np.int32))
        operands = (source, *self.parameters(source), *weights, *out, bias)
        along = {"pads": [k // 2] * 4, "strides": [s, s], "group": group}
        return self._made("QLinearConv", *operands, name=name, out=out, **along)

    def moved_as_is(self, op: str, value: str, *, name: str) -> str:
        return self._made(op, value, name=name, out=self.parameters(value))

    def add(self, a: str, b: str, name: str, act: str = "") -> str:
        out = self._new(name, positive=act == "Relu")
        operands = (a, *self.parameters(a), b, *self.parameters(b), *out)
        return self._made("QLinearAdd", *operands, name=name, out=out, domain="com.microsoft")

    def moved(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        source = self.read(inputs[0])
        if op != "GlobalAveragePool":
            out = self.parameters(source)
            return self._made(op, source, *inputs[1:], name=name, out=out, **attributes)
        out = self._new(name, positive=True)
        operands = (source, *self.parameters(source), *out)
        told = {"domain": "com.microsoft", "channels_last": 0}
        return self._made("QLinearGlobalAveragePool", *operands, name=name, out=out, **told)

    def dense(self, x: str, name: str, inputs: int, to: int) -> str:
        source, out = self.read(x), self._new(name)
        weights = self._weights(name[1:], (inputs, to), 1)
        bias = self.constant(f"{name[1:]}.bias_quantized", np.arange(to, dtype=np.int32))
        operands = (source, *self.parameters(source), *weights, bias, *out)
        codes = self._made("QGemm", *operands, name=name, out=out, domain="com.microsoft")
        return self.op("DequantizeLinear", codes, *out, name=f"{name}_DequantizeLinear")


class Dynamic(Tool):
    """ONNX Runtime's quantize_dynamic: products with constant weights, by ranges of each run."""

    def __init__(self) -> None:
        super().__init__()
        self._codes: dict[str, tuple[str, str, str]] = {}

    def _quantized(self, value: str) -> tuple[str, str, str]:
        if value not in self._codes:
            names = (f"{value}_quantized", f"{value}_scale", f"{value}_zero_point")
            called = f"{value}_QuantizeLinear"
            self.nodes.append(node("DynamicQuantizeLinear", [value], list(names), name=called))
            self._codes[value] = names
        return self._codes[value]

    def dense(self, x: str, name: str, inputs: int, to: int) -> str:
        codes, scale, zero = self._quantized(x)
        weights = self.constant(f"{name[1:]}.weight_quantized", self.codes((inputs, to)))
        own = self.constant(f"{name[1:]}.weight_scale", np.float32(1 / math.pi))
        none = self.constant(f"{name[1:]}.weight_zero_point", np.int8(0))
        sums = self.op("MatMulInteger", codes, weights, zero, none, name=f"{name}_quant")
        reals = self.op("Cast", sums, name=f"{name}_output_0_cast", to=onnx.TensorProto.FLOAT)
        both = self.op("Mul", scale, own, name=f"{name}_quant_scales_mul")
        scaled = self.op("Mul", reals, both, name=f"{name}_quant_output_scale_mul")
        return self.op("Add", scaled, self.bias(name, to), name=f"{name}_bias")

    def gather_weights(self, name: str, rows: int, width: int, indices: str) -> str:
        table = self.op(
            "DequantizeLinear",
            self.constant(f"{name[1:]}.weight_quantized", self.codes((rows, width))),
            self.constant(f"{name[1:]}.weight_scale", np.float32(0.01)),
            self.constant(f"{name[1:]}.weight_zero_point", np.int8(0)),
            name=f"{name[1:]}.weight_DequantizeLinear",
        )
        return self.op("Gather", table, indices, name=name)
