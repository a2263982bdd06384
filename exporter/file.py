"""A model on disk: in one file, or beyond 2 GiB with its data in a second one."""

from __future__ import annotations

import os
from os import PathLike

from google.protobuf.message import EncodeError
from onnx import ModelProto
from onnx.external_data_helper import set_external_data

from ..errors import InvalidInput
from ..files import checked_path, write_atomically

_LIMIT = (1 << 31) - (1 << 24)  # protobuf ends at 2 GiB; 16 MiB are left for what is not constants
_SMALL = 1024  # bytes of a constant that stays in the model: shapes must, for shape inference
_ALIGNED = 4096  # where runtimes can map a tensor into memory


def save_model(model: ModelProto, path: str | PathLike[str], limit: int = _LIMIT) -> None:
    """Writes a model, atomically; data beyond `limit` bytes goes to `<path>.data` first.

    Raises:
        InvalidInput: the path cannot be written, or a name cannot be in a file.
    """
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > limit:
        target = checked_path(path)
        beside = target.with_name(f"{target.name}.data")
        write_atomically(beside, memoryview(_moved_out(model, beside.name)))
    try:
        body = bytes(model.SerializeToString(deterministic=True))
    except (ValueError, TypeError, EncodeError) as error:  # UnicodeEncodeError is a ValueError
        raise InvalidInput(
            f"the model cannot be written as ONNX: {error}",
            where=os.fspath(path),
            hint="mend the names in the model",
        ) from error
    write_atomically(path, body)


def _moved_out(model: ModelProto, location: str) -> bytearray:
    """Takes the data of large initializers out of the model, which names the file then."""
    data = bytearray()
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < _SMALL:
            continue
        data.extend(bytes(-len(data) % _ALIGNED))
        set_external_data(tensor, location, len(data), len(tensor.raw_data))
        data.extend(tensor.raw_data)
        tensor.ClearField("raw_data")
    return data
