"""A chain of quantized convolutions of any length, for the growth of compile time with the size of
the graph.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .writer import OPSET

NODES_PER_CONVOLUTION = 5
_CHANNELS, _SIZE = 16, 8


def build_chain(convolutions: int, seed: int = 0) -> onnx.ModelProto:
    """Return ``input`` f32 [1, 16, 8, 8] through that many 3x3 convolutions with Relu, each
    quantized (QDQ, u8/s8), to ``output``.

    Each convolution has weights of its own and five nodes: DequantizeLinear of the weights, Conv,
    Relu, QuantizeLinear, DequantizeLinear. ValueError below 1.
    """
    if convolutions < 1:
        raise ValueError(f"a chain has at least one convolution, not {convolutions}")
    rng = np.random.default_rng(seed)
    weights = rng.integers(-127, 128, (convolutions, _CHANNELS, _CHANNELS, 3, 3), np.int8)
    # He's std sqrt(2 / 144) over that of uniform s8 (73), spread by 20 % over channels.
    scales = (
        np.sqrt(2 / (_CHANNELS * 9)) / 73 * rng.uniform(0.8, 1.2, (convolutions, _CHANNELS))
    ).astype(np.float32)
    initializers = [
        numpy_helper.from_array(np.array(0.03, np.float32), "scale"),
        numpy_helper.from_array(np.array(0, np.uint8), "zero_point"),
        numpy_helper.from_array(np.zeros(_CHANNELS, np.int8), "weight_zero_points"),
    ]
    nodes = [*_quantize("input", "input")]
    for index in range(convolutions):
        initializers.append(numpy_helper.from_array(weights[index], f"conv{index}.weight"))
        initializers.append(numpy_helper.from_array(scales[index], f"conv{index}.weight_scales"))
        nodes += _convolution(index, "input_dq" if index == 0 else f"relu{index - 1}_dq")
    nodes[-1].output[0] = "output"
    shape = [1, _CHANNELS, _SIZE, _SIZE]
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name in ("input", "output")
    ]
    graph = helper.make_graph(nodes, f"chain{convolutions}", infos[:1], infos[1:], initializers)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="fqfuse-benchmarks",
        ir_version=8,
    )


def _convolution(index: int, x: str) -> list[onnx.NodeProto]:
    name = f"conv{index}"
    inputs = [f"{name}.weight", f"{name}.weight_scales", "weight_zero_points"]
    return [
        helper.make_node("DequantizeLinear", inputs, [f"{name}_w"], f"{name}_weight_dq", axis=0),
        helper.make_node(
            "Conv", [x, f"{name}_w"], [name], name, kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        ),
        helper.make_node("Relu", [name], [f"relu{index}"], f"relu{index}"),
        *_quantize(f"relu{index}", f"relu{index}"),
    ]


def _quantize(x: str, name: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node(
            "QuantizeLinear", [x, "scale", "zero_point"], [f"{name}_q"], f"{name}_quantize"
        ),
        helper.make_node(
            "DequantizeLinear",
            [f"{name}_q", "scale", "zero_point"],
            [f"{name}_dq"],
            f"{name}_dequantize",
        ),
    ]
