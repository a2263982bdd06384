"""Counts of a model that need no run: parameters and multiply-accumulates."""

from __future__ import annotations

import math
from collections import Counter

import onnx
from onnx import TensorProto


def count_parameters(model: onnx.ModelProto) -> int:
    """Return the number of trainable values: f32 initializers, without BatchNormalization's running
    statistics.
    """
    running = {
        name
        for node in model.graph.node
        if node.op_type == "BatchNormalization"
        for name in node.input[3:5]
    }
    floats = (
        i
        for i in model.graph.initializer
        if i.data_type == TensorProto.FLOAT and i.name not in running
    )
    return sum(math.prod(initializer.dims) for initializer in floats)


def count_macs(model: onnx.ModelProto) -> int:
    """Return the multiply-accumulates of Conv, ConvTranspose, Gemm, MatMul and LSTM for one run, as
    papers count them.

    Shapes must be static. ValueError names the first node whose shape is unknown.
    """
    shapes = _shapes(onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True))
    return sum(
        _node_macs(node, shapes)
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM")
    )


def op_histogram(model: onnx.ModelProto) -> dict[str, int]:
    """Return how often each operator occurs, most frequent first."""
    return dict(Counter(node.op_type for node in model.graph.node).most_common())


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = model.graph
    shapes = {initializer.name: tuple(initializer.dims) for initializer in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _node_macs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    """Output elements times the length of the sum behind each; of an LSTM, weights times steps, and
    of a ConvTranspose, input elements times the weights that each meets.
    """
    try:
        output, first, second = shapes[node.output[0]], shapes[node.input[0]], shapes[node.input[1]]
    except KeyError as missing:
        raise ValueError(f"no static shape for {missing} at node {node.name!r}") from None
    if node.op_type == "LSTM":
        weights = math.prod(second) + math.prod(shapes[node.input[2]])
        return math.prod(first[:2]) * weights
    if node.op_type == "Conv":
        return math.prod(output) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return math.prod(output) * (first[0] if transposed else first[-1])
