"""A node of the op table as the ONNX node that it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import defs

from ..errors import UnsupportedOp
from ..ir.element_types import ELEMENT_TYPES
from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.ops.spec import Array, Attr
from ..ir.types import DType
from .names import Writer

_NAMES = {DType.U8: "tensor(uint8)", DType.S8: "tensor(int8)"}
"""8-bit codes in the words of ONNX's schemas."""

_NOTHING: Mapping[str, object] = {
    "auto_pad": "NOTSET",
    "block_size": 0,
    "ceil_mode": 0,
    "count_include_pad": 0,
    "dilations": {1},
    "group": 1,
    "pads": {0},
    "saturate": 1,
    "strides": {1},
}
"""What attributes of windows and quantizers say by default; of lists, all elements."""


def says_nothing(name: str, value: object) -> bool:
    """True where an attribute says what its absence says. ONNX Runtime hands all attributes of an
    operator on to the one that it fuses, which does not know some of them.
    """
    if value is None or value == ():
        return True
    held = set(value) if isinstance(value, tuple) else value
    return name in _NOTHING and held == _NOTHING[name]


def is_standard(node: Node) -> bool:
    """True of a node that one ONNX node says."""
    return node.spec.onnx


def refused(node: Node, why: str) -> UnsupportedOp:
    """The refusal to write a node."""
    return UnsupportedOp(
        f"{node.op} cannot be written in standard ONNX: {why}",
        where=", ".join(node.origin) or node.name,
        hint="leave this operation out of quantization, or run the model with fqfuse",
    )


def shaped(graph: Graph, node: Node) -> tuple[Array, Array]:
    """Scales and zero points of a Quantize or Dequantize, shaped to broadcast against what it reads.

    Raises:
        UnsupportedOp: they lie along an axis of a value whose rank is unknown.
    """
    shape = graph.type(node.input).shape
    if shape is None and not node.quant.per_tensor:
        raise refused(node, "the rank of what it reads is unknown")
    return node.quant.shaped(len(shape or ()))


def write_row(writer: Writer, graph: Graph, node: Node) -> None:
    """Writes a node whose op ONNX has.

    Raises:
        UnsupportedOp: no opset of this onnx has it so.
    """
    attributes = _attributes(graph, node)
    _raise_opset(writer, node, attributes)
    schema = defs.get_schema(node.op, writer.opsets[""], "")
    for name in [name for name in attributes if name not in schema.attributes]:
        del attributes[name]  # `_raise_opset` found that it says the default
    held: dict[str, Any] = {
        name: float(str(value)) if _is_float(schema, name) else value
        for name, value in attributes.items()
    }
    if not _takes_codes(graph, node, schema):
        _write_between_casts(writer, graph, node, held)
        return
    writer.node(node.op, list(node.inputs), list(node.outputs), node.name, **held)


def _takes_codes(graph: Graph, node: Node, schema: defs.OpSchema) -> bool:
    """False where the op moves or selects codes of a type that ONNX has it not for."""
    kind = graph.type(node.inputs[0]).dtype if node.inputs and node.inputs[0] else DType.F32
    if kind not in _NAMES:
        return True
    given = schema.inputs[0].type_str
    return all(
        _NAMES[kind] in held.allowed_type_strs
        for held in schema.type_constraints
        if held.type_param_str == given
    )


def _write_between_casts(
    writer: Writer, graph: Graph, node: Node, attributes: Mapping[str, Any]
) -> None:
    """Writes a node that moves or selects codes in f32, which holds each of them."""
    inputs = [
        writer.one("Cast", [value], node.name, to=1)
        if value and graph.type(value).dtype in _NAMES
        else value
        for value in node.inputs
    ]
    codes = {value for value in node.outputs if value and graph.type(value).dtype in _NAMES}
    made = {value: writer.fresh(f"{value}/real") for value in codes}
    outputs = [made.get(value, value) for value in node.outputs]
    writer.node(node.op, inputs, outputs, node.name, **attributes)
    for value, real in made.items():
        to = ELEMENT_TYPES[graph.type(value).dtype]
        writer.node("Cast", [real], [value], f"{node.name}/Cast", to=to)


def _is_float(schema: defs.OpSchema, name: str) -> bool:
    kind = schema.attributes[name].type
    return bool(kind == defs.OpSchema.AttrType.FLOAT)


def _attributes(graph: Graph, node: Node) -> dict[str, Any]:
    """The attributes in ONNX's way; see `ir/ops` for where a row writes one in another."""
    found: dict[str, Any] = {}
    for name, value in node.attrs.items():
        if says_nothing(name, value):
            continue
        found[name] = ELEMENT_TYPES[value] if isinstance(value, DType) else value
        if isinstance(value, bool):
            found[name] = int(value)
    if node.op == "ConstantOfShape":
        from ..plan.nodes import tensor_of

        dtype = node.attr("dtype", DType)
        filled = np.asarray([node.attrs["value"]]).astype(dtype.numpy)
        found = {"value": tensor_of("value", filled)}
    if node.op == "QuantizeLinear" and node.operand(2):
        # the zero point has it; ONNX Runtime's optimizer changes that one, and not the attribute
        found.pop("output_dtype", None)
    if node.op == "Split":
        found.pop("num_outputs", None)
        if not node.operand(1):
            found["num_outputs"] = len(node.outputs)
    if node.op in ("LSTM", "GRU", "RNN") and not found.get("hidden_size"):
        size = (graph.type(node.inputs[2]).shape or (None,))[-1]
        if not isinstance(size, int):
            raise refused(node, "the size of its hidden state is not known")
        found["hidden_size"] = size
    return found


def _raise_opset(writer: Writer, node: Node, attributes: Mapping[str, Any]) -> None:
    """Takes a newer opset where the node needs it: for the op itself, or for an attribute that is
    not at its default.
    """
    for version in range(writer.opsets[""], defs.onnx_opset_version() + 1):
        if defs.has(node.op, version, "") and not _missing(node, attributes, version):
            writer.opsets[""] = version
            return
    raise refused(node, "no opset of the installed onnx has it")


def _missing(node: Node, attributes: Mapping[str, Any], version: int) -> bool:
    known = defs.get_schema(node.op, version, "").attributes
    return any(
        name not in known and value != _default(node, name) for name, value in attributes.items()
    )


def _default(node: Node, name: str) -> Attr:
    default = node.spec.attrs[name]
    return default if isinstance(default, int | float | str) else None
