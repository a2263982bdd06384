"""Large constants of a model or plan file, read straight into arrays of their own.

A file that is read whole, parsed, and copied out of the parsed message is in memory three times.
Here everything but the `raw_data` of large initializers is read and parsed; those are read once, to
where the plan and its sessions use them.
Encoding: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Lifted = dict[int, npt.NDArray[np.uint8]]
"""Number of an initializer of the graph -> the bytes of its `raw_data`, which is empty there."""

LARGE: Final = 1 << 12
"""Bytes of data from which on a tensor has an array of its own."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # of ModelProto, GraphProto, TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CHUNK = 1 << 16


class _BrokenError(Exception):
    """The bytes are no protobuf message."""


def lifted(file: int, size: int, most: int | None = None) -> tuple[bytes, Lifted] | None:
    """A serialized ModelProto without the data of its large initializers, and that data.

    Args:
        file: a descriptor of the file.
        size: of the file.
        most: how many fields may be looked at.

    Returns:
        None where there is nothing to lift, the file has more fields, or is no ModelProto: who
        parses it as a whole says what is wrong.
    """
    found: Lifted = {}
    try:
        model = _Lifting(file, size, found, most).message(0, size, (_GRAPH, _INITIALIZER))
    except (_BrokenError, OSError):
        return None
    return (model, found) if found else None


class _Lifting:
    """One pass over a file; reads a chunk at a time."""

    def __init__(self, file: int, size: int, found: Lifted, most: int | None) -> None:
        self._file, self._size, self._found = file, size, found
        self._chunk, self._start = b"", 0
        self._initializers, self._fields_left = 0, size if most is None else most

    def message(self, start: int, end: int, path: tuple[int, ...]) -> bytes:
        """A message without the large data inside the messages that a path of fields leads to."""
        parts: list[bytes] = []
        kept = start  # what lies between here and the field is copied as it is
        for field, begin, content, behind in self._fields(start, end):
            if path and field == path[0]:
                inner = self.message(content, behind, path[1:])
            elif not path and field == _RAW_DATA and behind - content >= LARGE:
                self._found[self._initializers] = self._array(content, behind)
                inner = b""
            else:
                continue
            tag = _varint(field << 3 | _BYTES)
            parts += [self._read(kept, begin), tag, _varint(len(inner)), inner]
            kept = behind
        parts.append(self._read(kept, end))
        self._initializers += not path
        return b"".join(parts)

    def _fields(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Number, place, place of the content and end of each field that has bytes."""
        position = start
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise _BrokenError
            begin = position
            tag, position = self._number(position, end)
            kind = tag & 7
            if kind == _BYTES:
                length, position = self._number(position, end)
                behind = position + length
                if behind > end:
                    raise _BrokenError
                yield tag >> 3, begin, position, behind
                position = behind
            elif kind == _VARINT:
                _, position = self._number(position, end)
            elif kind in (_FIXED32, _FIXED64):
                position += 4 if kind == _FIXED32 else 8
            else:
                raise _BrokenError
        if position > end:
            raise _BrokenError

    def _number(self, position: int, end: int) -> tuple[int, int]:
        """A varint, and the place behind it."""
        value = shift = 0
        while position < end and shift < 70:
            byte = self._byte(position)
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, position
            shift += 7
        raise _BrokenError

    def _byte(self, position: int) -> int:
        offset = position - self._start
        if not 0 <= offset < len(self._chunk):
            self._chunk, self._start = os.pread(self._file, _CHUNK, position), position
            offset = 0
            if not self._chunk:
                raise _BrokenError
        return self._chunk[offset]

    def _read(self, start: int, end: int) -> bytes:
        data = os.pread(self._file, end - start, start) if end > start else b""
        if len(data) != end - start:
            raise _BrokenError
        return data

    def _array(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        data = np.empty(end - start, np.uint8)
        done = 0
        while done < data.size:
            count = os.preadv(self._file, [data[done:].data], start + done)
            if not count:
                raise _BrokenError
            done += count
        data.setflags(write=False)
        return data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
