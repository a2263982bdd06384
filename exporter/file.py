"""A model on disk: in one file, or beyond 2 GiB with its data in a second one."""

from __future__ import annotations

import os
from os import PathLike

import numpy as np
from google.protobuf.message import EncodeError
from onnx import ModelProto
from onnx.external_data_helper import set_external_data

from ..errors import InvalidInput
from ..files import write_atomically
from ..plan.beside import DATA, replacing, write_beside

_LIMIT = (1 << 31) - (1 << 24)  # protobuf ends at 2 GiB; 16 MiB are left for what is not constants
_SMALL = 1024  # bytes of a constant that stays in the model: shapes must, for shape inference


def save_model(model: ModelProto, path: str | PathLike[str], limit: int = _LIMIT) -> None:
    """Writes a model, atomically; data of more than `limit` bytes lies in a second file beside it,
    `<name>.<digest>.data`, as that of a plan does.

    Raises:
        InvalidInput: the path cannot be written, or a name cannot be in a file.
    """
    kept = [entry for entry in model.metadata_props if entry.key != DATA]  # of what it was made of
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    with replacing(path):
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > limit:
            _move_out(model, path)
        try:
            body = bytes(model.SerializeToString(deterministic=True))
        except (ValueError, TypeError, EncodeError) as error:  # UnicodeEncodeError is a ValueError
            raise InvalidInput(
                f"the model cannot be written as ONNX: {error}",
                where=os.fspath(path),
                hint="mend the names in the model",
            ) from error
        write_atomically(path, body)


def _move_out(model: ModelProto, path: str | PathLike[str]) -> None:
    """Moves the data of large initializers into a second file, which the model names then."""
    large = {t.name: t for t in model.graph.initializer if len(t.raw_data) >= _SMALL}
    data = {name: np.frombuffer(tensor.raw_data, np.uint8) for name, tensor in large.items()}
    beside = write_beside(path, data)
    for name, (start, size) in beside.places.items():
        set_external_data(large[name], beside.location, start, size)
        large[name].ClearField("raw_data")
    model.metadata_props.add(key=DATA, value=beside.location)
