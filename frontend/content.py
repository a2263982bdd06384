"""What a model holds as pieces of bytes, all of which decides what the compiler makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx
from google.protobuf.message import Message

from ..files import open_regular
from .source import Source, serialized

_PIECE: Final = 1 << 24


def content_of(source: Source) -> Iterator[bytes | memoryview]:
    """The model, and the sizes that it is read with; the import takes what is `lifted` out of the source.

    Raises:
        InvalidInput: it is larger than a message may be.
    """
    sizes = sorted(source.named.items()), sorted(source.denoted.items()), source.apart
    yield repr((onnx.__version__, *sizes)).encode()
    yield serialized(source.model)
    for number, data in sorted(source.lifted.items()):
        yield str(number).encode()
        yield data.data


def external_content_of(source: Source) -> Iterator[bytes]:
    """The files with external data that the model names.

    Raises:
        InvalidInput: no file can have such a name.
        OSError: one cannot be read.
    """
    if source.folder is None:
        return
    for location in sorted(set(_locations(source.model))):
        yield location.encode()
        with open_regular(source.folder / location) as file:
            while piece := file.read(_PIECE):
                yield piece


def _locations(message: Message) -> Iterator[str]:
    """The files that tensors anywhere in a message name."""
    if isinstance(message, onnx.TensorProto):
        yield from (entry.value for entry in message.external_data if entry.key == "location")
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else (value,):
                yield from _locations(each)
