"""Writes the trained digits network as ONNX: f32 with BatchNormalization, FakeQuantize form,
QuantizeLinear/DequantizeLinear form.
"""

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from .layers import CLASSES, INPUT, LAYERS, OUTPUT, QUANTIZED, Layer
from .quantizers import (
    ACTIVATION_LEVELS,
    WEIGHT_LEVELS,
    Range,
    clear_of_ties,
    quantize_weight,
    weight_range,
)

OPSET: Final = 19
IR_VERSION: Final = 9
FAKE_QUANTIZE_DOMAIN: Final = "org.openvinotoolkit"
# in the order of BatchNormalization's inputs
BATCH_NORM_KEYS: Final = (
    "gamma",
    "beta",
    "mean",
    "variance",
)

Arrays = dict[str, NDArray[np.float32]]


def f32_model(parameters: Arrays, epsilon: float) -> onnx.ModelProto:
    """The trained network without quantizers; a convolution trained with BatchNorm keeps it as a
    node of its own.
    """
    return _F32Writer(parameters, epsilon).model("digits_f32")


def fakequantize_model(
    parameters: Arrays, epsilon: float, ranges: dict[str, Range]
) -> onnx.ModelProto:
    """The network with BatchNorm folded and `FakeQuantize` nodes.

    Weights are f32 `[OC, ...]` with ranges `[OC, 1, ...]` and 255 levels; activations have ranges
    of shape `[]` and 256 levels. Biases are f32 and multiples of `scale_x * scale_w`, so that this
    form and the Q/DQ form have the same bias.
    """
    return _FakeQuantizeWriter(fold_batch_norm(parameters, epsilon), ranges).model(
        "digits_fakequantize"
    )


def qdq_model(parameters: Arrays, epsilon: float, ranges: dict[str, Range]) -> onnx.ModelProto:
    """The same quantization as Q/DQ: u8 activations, int8 weights (axis 0), int32 bias with scale
    `scale_x * scale_w`.
    """
    return _QdqWriter(fold_batch_norm(parameters, epsilon), ranges).model("digits_qdq")


def fold_batch_norm(parameters: Arrays, epsilon: float) -> Arrays:
    """`<layer>.weight` and `<layer>.bias` of every convolution and gemm, BatchNorm folded in
    (computed in f64, rounded once to f32).

    weight' = weight * gamma / sqrt(variance + epsilon), bias' = beta - mean * gamma / sqrt(variance
    + epsilon). Weights too near to a rounding tie of their quantizer are moved off it.
    """
    folded: Arrays = {}
    for layer in LAYERS:
        if not layer.has_weights:
            continue
        weight = parameters[f"{layer.name}.weight"]
        if layer.batch_norm:
            gamma, beta, mean, variance = (
                parameters[f"{layer.name}.{key}"].astype(np.float64) for key in BATCH_NORM_KEYS
            )
            factor = gamma / np.sqrt(variance + epsilon)
            weight = (weight * factor.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)
            folded[f"{layer.name}.bias"] = (beta - mean * factor).astype(np.float32)
        else:
            folded[f"{layer.name}.bias"] = parameters[f"{layer.name}.bias"]
        folded[f"{layer.name}.weight"] = clear_of_ties(weight)
    return folded


class _Writer(ABC):
    """Walks `LAYERS` and emits one node each; subclasses say what stands before the weights and
    behind the quantized values.

    A node's output is named `<node>.out`; what reads value `x` reads `self.current[x]`.
    """

    def __init__(self, ranges: dict[str, Range]) -> None:
        self.ranges = ranges
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.current: dict[str, str] = {}

    def model(self, graph_name: str) -> onnx.ModelProto:
        self.store(INPUT, INPUT)
        for layer in LAYERS:
            self.store(layer.name, self.layer(layer))
        graph = helper.make_graph(
            self.nodes,
            graph_name,
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["N", 1, 8, 8])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["N", CLASSES])],
            self.initializers,
        )
        domains = sorted({node.domain for node in self.nodes})
        imports = [helper.make_opsetid(domain, 1 if domain else OPSET) for domain in domains]
        return helper.make_model(
            graph,
            producer_name="fqfuse.models.build_digits",  # as the committed files have it
            ir_version=IR_VERSION,
            opset_imports=imports,
        )

    def store(self, value: str, tensor: str) -> None:
        self.current[value] = (
            self.quantize(value, tensor, self.ranges[value]) if value in self.ranges else tensor
        )

    def layer(self, layer: Layer) -> str:
        inputs = [self.current[name] for name in layer.inputs]
        match layer.kind:
            case "conv":
                return self.convolution(layer, inputs[0])
            case "gemm":
                return self.node(
                    "Gemm",
                    layer.name,
                    [inputs[0], *self.weight_and_bias(layer)],
                    output=OUTPUT,
                    transB=1,
                )
            case "relu":
                return self.node("Relu", layer.name, inputs)
            case "add":
                return self.node("Add", layer.name, inputs)
            case "average_pool":
                return self.node(
                    "AveragePool", layer.name, inputs, kernel_shape=[2, 2], strides=[2, 2]
                )
            case "global_average_pool":
                return self.node("GlobalAveragePool", layer.name, inputs)
            case "flatten":
                return self.node("Flatten", layer.name, inputs, axis=1)

    def convolution(self, layer: Layer, x: str) -> str:
        pads, kernel = [layer.kernel // 2] * 4, [layer.kernel] * 2
        return self.node(
            "Conv",
            layer.name,
            [x, *self.weight_and_bias(layer)],
            kernel_shape=kernel,
            pads=pads,
            group=layer.groups,
        )

    def node(
        self,
        op: str,
        name: str,
        inputs: list[str],
        output: str = "",
        domain: str = "",
        **attributes: float | list[int],
    ) -> str:
        output = output or f"{name}.out"
        node = helper.make_node(op, inputs, [output], name, domain=domain)
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in sorted(attributes.items())
        )
        self.nodes.append(node)
        return output

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    @abstractmethod
    def weight_and_bias(self, layer: Layer) -> list[str]:
        """Emits the constants of a convolution or gemm; returns the tensors that the node reads."""

    @abstractmethod
    def quantize(self, value: str, tensor: str, limits: Range) -> str:
        """Emits the quantizer of an activation; returns what its readers read."""


class _F32Writer(_Writer):
    def __init__(self, parameters: Arrays, epsilon: float) -> None:
        super().__init__({})
        self.parameters = parameters
        self.epsilon = epsilon

    def weight_and_bias(self, layer: Layer) -> list[str]:
        names = (
            [f"{layer.name}.weight"]
            if layer.batch_norm
            else [f"{layer.name}.weight", f"{layer.name}.bias"]
        )
        return [self.constant(name, self.parameters[name]) for name in names]

    def quantize(self, value: str, tensor: str, limits: Range) -> str:
        raise ValueError(
            f"{value}: the f32 form has no quantizers, {tensor} cannot have the range {limits}"
        )

    def convolution(self, layer: Layer, x: str) -> str:
        y = super().convolution(layer, x)
        if not layer.batch_norm:
            return y
        names = [f"{layer.name}.{key}" for key in BATCH_NORM_KEYS]
        statistics = [self.constant(name, self.parameters[name]) for name in names]
        return self.node(
            "BatchNormalization", f"{layer.name}.bn", [y, *statistics], epsilon=self.epsilon
        )


class _QuantizedWriter(_Writer):
    def __init__(self, folded: Arrays, ranges: dict[str, Range]) -> None:
        super().__init__(ranges)
        self.folded = folded

    def bias_steps(self, layer: Layer) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The bias as int32 `[OC]` and its scale `scale_x * scale_w`, f32 `[OC]`: the unit of the
        integer accumulator.
        """
        scale = self.ranges[_quantized_source(layer)].scale * weight_range(
            self.folded[f"{layer.name}.weight"]
        ).scale.reshape(-1)
        steps = np.rint(self.folded[f"{layer.name}.bias"].astype(np.float64) / scale)
        # DequantizeLinear of more than 24 bits would round: the bias of the FakeQuantize form would
        # be another number.
        if np.abs(steps).max() >= 2**24:
            raise ValueError(
                f"the bias of {layer.name} is too large for the scale of its accumulator"
            )
        return steps.astype(np.int32), scale


class _FakeQuantizeWriter(_QuantizedWriter):
    def quantize(self, value: str, tensor: str, limits: Range) -> str:
        return self.fake_quantize(value, tensor, limits, ACTIVATION_LEVELS)

    def weight_and_bias(self, layer: Layer) -> list[str]:
        name = f"{layer.name}.weight"
        weight = self.fake_quantize(
            name,
            self.constant(name, self.folded[name]),
            weight_range(self.folded[name]),
            WEIGHT_LEVELS,
        )
        steps, scale = self.bias_steps(layer)
        return [weight, self.constant(f"{layer.name}.bias", steps.astype(np.float32) * scale)]

    def fake_quantize(self, name: str, tensor: str, limits: Range, levels: int) -> str:
        sides = (
            ("input_low", limits.low),
            ("input_high", limits.high),
            ("output_low", limits.low),
            ("output_high", limits.high),
        )
        constants = [self.constant(f"{name}.fq.{side}", limit) for side, limit in sides]
        return self.node(
            "FakeQuantize",
            f"{name}.fq",
            [tensor, *constants],
            domain=FAKE_QUANTIZE_DOMAIN,
            levels=levels,
        )


class _QdqWriter(_QuantizedWriter):
    def quantize(self, value: str, tensor: str, limits: Range) -> str:
        scale = self.constant(f"{value}.scale", limits.scale)
        zero_point = self.constant(
            f"{value}.zero_point", np.asarray(limits.zero_point, dtype=np.uint8)
        )
        quantized = self.node("QuantizeLinear", f"{value}.quantize", [tensor, scale, zero_point])
        return self.node("DequantizeLinear", f"{value}.dequantize", [quantized, scale, zero_point])

    def weight_and_bias(self, layer: Layer) -> list[str]:
        weight = self.folded[f"{layer.name}.weight"]
        limits = weight_range(weight)
        return [
            self.dequantize(
                f"{layer.name}.weight", quantize_weight(weight, limits), limits.scale.reshape(-1)
            ),
            self.dequantize(f"{layer.name}.bias", *self.bias_steps(layer)),
        ]

    def dequantize(
        self, name: str, integers: NDArray[np.int8] | NDArray[np.int32], scale: NDArray[np.float32]
    ) -> str:
        constants = [
            self.constant(name, integers),
            self.constant(f"{name}.scale", scale),
            self.constant(f"{name}.zero_point", np.zeros(scale.shape, dtype=integers.dtype)),
        ]
        return self.node("DequantizeLinear", f"{name}.dequantize", constants, axis=0)


def _quantized_source(layer: Layer) -> str:
    """The quantized value that a weighted layer reads, through layers that only move data."""
    by_name = {each.name: each for each in LAYERS}
    source = layer.inputs[0]
    while source not in QUANTIZED:
        if by_name[source].kind != "flatten":
            raise ValueError(f"{layer.name} reads {source}, which is not quantized")
        source = by_name[source].inputs[0]
    return source
