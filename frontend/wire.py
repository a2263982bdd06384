"""Counts the fields of a serialized model before the protobuf library parses it.

Parsing turns an empty message, two bytes on the wire, into about 160 bytes of memory: a small file
can exhaust a machine. This walk allocates nothing, skips the data of tensors in one step, and needs
only the descriptors of the ONNX messages.
Encoding: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from typing import Any, Final

from onnx import ModelProto, NodeProto

from ..errors import InvalidModel
from .budgets import Budgets

SMALL: Final = 1 << 20
"""Below this many bytes even the worst file parses into about a hundred megabytes, and the walk is
not worth its time.
"""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_Table = dict[int, "_Table | None"]

_NODE: Final = NodeProto.DESCRIPTOR.full_name


def check_fields(data: bytes, budgets: Budgets) -> None:
    """Counts the fields of a serialized ModelProto, those of nested messages included.

    Raises:
        InvalidModel: more fields than the budget `protobuf_fields`, more nodes than `nodes`, or
            bytes that are no protobuf message.
    """
    tables = _tables()
    pending: list[tuple[int, int, _Table]] = [
        (0, len(data), tables[ModelProto.DESCRIPTOR.full_name])
    ]
    node, nodes, count = tables[_NODE], 0, 0
    while pending:
        position, end, table = pending.pop()
        while position < end:
            count += 1
            if count > budgets.protobuf_fields:
                budgets.check("protobuf_fields", count, "a model with this many protobuf fields")
            tag, position = _varint(data, position, end)
            kind = tag & 7
            if kind == _BYTES:
                size, position = _varint(data, position, end)
                nested = table.get(tag >> 3)
                if nested is node:
                    nodes += 1
                    if nodes > budgets.nodes:
                        budgets.check("nodes", nodes, "a model with this many nodes")
                if nested is not None and size:
                    pending.append((position, min(position + size, end), nested))
                position += size
            elif kind == _VARINT:
                _, position = _varint(data, position, end)
            elif kind == _FIXED32:
                position += 4
            elif kind == _FIXED64:
                position += 8
            else:
                raise _broken()
        if position > end:
            raise _broken()


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise _broken()


def _broken() -> InvalidModel:
    return InvalidModel(
        "the file is no ONNX model: its bytes are no protobuf message, or it was cut short",
        hint="copy or export it again; onnx.load(path) has to read it",
    )


def _tables() -> dict[str, _Table]:
    """The messages of a model by name: field number -> table of the message it holds, None when it
    holds none.

    Messages that contain themselves share one table.
    """
    known: dict[str, _Table] = {}

    def table(descriptor: Any) -> _Table:
        if descriptor.full_name not in known:
            known[descriptor.full_name] = result = {}
            for field in descriptor.fields:
                result[field.number] = table(field.message_type) if field.message_type else None
        return known[descriptor.full_name]

    table(ModelProto.DESCRIPTOR)
    return known
