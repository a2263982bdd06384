"""Inputs and outputs of half floats, as f32."""

from __future__ import annotations

from onnx import ModelProto, TensorProto

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def floats_at_borders(model: ModelProto) -> ModelProto:
    """A copy of an exported model whose inputs and outputs of half floats are of f32. What it computes is in f32, and
    a Cast stands next to each of them, which has nothing to do then; a value that something else reads stays.
    """
    changed = ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    for value in [each for each in graph.input if each.type.tensor_type.elem_type in _HALVES]:
        readers = [node for node in graph.node if value.name in node.input]
        if all(node.op_type == "Cast" for node in readers):  # one to f32 does nothing then
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for value in [each for each in graph.output if each.type.tensor_type.elem_type in _HALVES]:
        makers = [node for node in graph.node if value.name in node.output]
        read = any(value.name in node.input for node in graph.node)
        if len(makers) == 1 and makers[0].op_type == "Cast" and not read:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            next(item for item in makers[0].attribute if item.name == "to").i = TensorProto.FLOAT
    return changed
