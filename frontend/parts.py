"""ONNX models made of one: the same with more outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import ValueInfoProto

from ..errors import InvalidInput

__all__ = ["model_bytes", "onnx_outputs", "onnx_values"]

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
    return proto.SerializeToString()


def onnx_outputs(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> list[str]:
    """The names of a model's outputs, in order."""
    return [value.name for value in _loaded(model).graph.output]


def onnx_values(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> set[str]:
    """The names of all values that nodes of a model compute."""
    return {name for node in _loaded(model).graph.node for name in node.output if name}


def _loaded(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    if isinstance(model, bytes):
        return onnx.ModelProto.FromString(model)
    return onnx.load(Path(model))
