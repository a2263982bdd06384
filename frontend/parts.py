"""ONNX models made of one: the same with more outputs, a part of it, and one of codes with floats around it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import onnx
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper

from ..errors import InvalidInput
from ..ir.ops.spec import Array

_MOST_BYTES = (1 << 31) - 1  # of a serialized message


def model_bytes(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, extra: Sequence[str] = ()
) -> bytes:
    """A model as bytes, its external data inside.

    Args:
        model: one that was imported before.
        extra: values that become outputs, too, behind those that there are.

    Raises:
        InvalidInput: it has more than 2 GiB.
    """
    proto = _loaded(model)
    if extra:
        if proto is model:
            copied = onnx.ModelProto()
            copied.CopyFrom(proto)
            proto = copied
        there = {value.name for value in proto.graph.output}
        proto.graph.output.extend(ValueInfoProto(name=name) for name in extra if name not in there)
    if proto.ByteSize() > _MOST_BYTES:
        raise InvalidInput(
            "the model has more than 2 GiB, and cannot be handed on in one piece",
            hint="compare a part of it",
        )
    data: bytes = proto.SerializeToString()
    return data


def onnx_outputs(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> list[str]:
    """The names of a model's outputs, in order."""
    return [value.name for value in _loaded(model).graph.output]


def onnx_values(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> set[str]:
    """The names of all values that nodes of a model compute."""
    return {name for node in _loaded(model).graph.node for name in node.output if name}


def node_count(model: bytes) -> int:
    """How many nodes a model has."""
    return len(_loaded(model).graph.node)


def part_of(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    renamed: Mapping[str, str],
) -> bytes:
    """What computes some values of a model from others, as a model by itself.

    Args:
        model: one that was imported before.
        inputs: values that become inputs, with arrays that have their types and ranks; inputs of the model need not be among them.
        outputs: values that become outputs, likewise.
        renamed: value -> another name for it in the part.

    Raises:
        InvalidInput: it has more than 2 GiB.
    """
    proto = _loaded(model)
    makers = {name: node for node in proto.graph.node for name in node.output if name}
    needed: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        if name in makers and name not in inputs:
            waiting.extend(_reads(makers[name]))
    nodes = [
        node
        for node in proto.graph.node
        if any(name in needed and name not in inputs for name in node.output if name)
    ]
    constants = [tensor for tensor in proto.graph.initializer if tensor.name in needed]
    taken = {tensor.name for tensor in constants}
    given = [value for value in proto.graph.input if value.name in needed - taken]
    there = {value.name for value in given}
    graph = helper.make_graph(
        [_renamed(node, renamed) for node in nodes],
        "part",
        [*given, *(_info(name, array) for name, array in inputs.items() if name in needed - there)],
        [_info(renamed.get(name, name), array) for name, array in outputs.items()],
        constants,
        sparse_initializer=[
            tensor for tensor in proto.graph.sparse_initializer if tensor.values.name in needed
        ],
    )
    part = helper.make_model(
        graph,
        opset_imports=list(proto.opset_import),
        functions=list(proto.functions),
        ir_version=proto.ir_version,
    )
    return model_bytes(part)


def in_floats(model: bytes, codes: Mapping[str, tuple[str, Array, Array]]) -> bytes:
    """The same model with floats for codes: such inputs are quantized first, such outputs decoded last.

    Args:
        model: one that has no values of the floats' names.
        codes: an input or output -> the name of its floats, its scale, and its zero point, in the type of the codes.

    Raises:
        InvalidInput: it has more than 2 GiB.
    """
    graph = (proto := _loaded(model)).graph
    first: list[NodeProto] = []
    last: list[NodeProto] = []
    for values, nodes, op in (
        (graph.input, first, "QuantizeLinear"),
        (graph.output, last, "DequantizeLinear"),
    ):
        for value in values:
            if value.name not in codes:
                continue
            code, (name, *numbers) = value.name, codes[value.name]
            parameters = [f"{name}_{op}_scale", f"{name}_{op}_zero_point"]
            graph.initializer.extend(map(numpy_helper.from_array, numbers, parameters))
            ends = (name, code) if op == "QuantizeLinear" else (code, name)
            nodes.append(helper.make_node(op, [ends[0], *parameters], [ends[1]], f"{name}_{op}"))
            value.name = name
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)
    return model_bytes(proto)


def _info(name: str, array: Array) -> ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def _reads(node: NodeProto) -> Iterator[str]:
    """The values that a node reads, those that its subgraphs take from outside among them."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (name for inner in graph.node for name in _reads(inner))
            yield from (value.name for value in graph.output)


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    copied.input[:] = [names.get(name, name) for name in node.input]
    copied.output[:] = [names.get(name, name) for name in node.output]
    return copied


def _loaded(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    proto: onnx.ModelProto = (
        onnx.ModelProto.FromString(model) if isinstance(model, bytes) else onnx.load(Path(model))
    )
    return proto
