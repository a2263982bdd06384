"""Large constants of a model or plan file, read straight into arrays of their own, and written
straight out of them.

A file that is read whole, parsed, and copied out of the parsed message is in memory three times.
Here everything but the `raw_data` of large initializers is read and parsed; those are read once, to
where the plan and its sessions use them. `restored` goes back.
Encoding: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .constants import Halves
from .ops.spec import Array

Lifted = dict[int, npt.NDArray[np.uint8]]
"""Number of an initializer of the graph -> the bytes of its `raw_data`, which is empty there."""

LARGE: Final = 1 << 12
"""Bytes of data from which on a tensor has an array of its own."""

_OWN_PAGES: Final = 1 << 20

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # of ModelProto, GraphProto, TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CHUNK = 1 << 16
_PIECE = 1 << 24


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

    def lift(number: int, start: int, end: int) -> list[_Piece] | None:
        if end - start < LARGE:
            return None
        found[number] = _array(file, start, end)
        return []

    try:
        parts = _Walk(partial(_read, file), lift, size if most is None else most).file(size)
        model = b"".join(view for part in parts for view in _views(part))
    except (_BrokenError, OSError):
        return None
    return (model, found) if found else None


def restored(model: bytes, data: Mapping[int, Array | Halves]) -> Iterator[memoryview]:
    """A serialized ModelProto with the data of its large initializers in place: what `lifted` took
    apart.

    Args:
        model: with `raw_data` of no bytes in the place of that data.
        data: number of an initializer -> what it holds.

    Yields:
        What the file holds, in order. Nothing is copied but what does not lie in memory as files
        have it, some of it at a time.
    """
    view = memoryview(model)

    def restore(number: int, start: int, end: int) -> list[_Piece] | None:
        return [data[number]] if start == end and number in data else None

    walk = _Walk(lambda start, end: view[start:end], restore, len(model))
    for part in walk.file(len(model)):
        yield from _views(part)


def stored_pieces(data: Array | Halves) -> Iterator[memoryview]:
    """The bytes of an array as files have them, in order: views, or copies of 16 MiB at a time."""
    if isinstance(data, Halves):
        for piece in data.pieces(_PIECE):
            yield from stored_pieces(piece)
        return
    stored = data.dtype.newbyteorder("<")
    as_it_is = data.flags.c_contiguous and stored == data.dtype
    rows = max(1, _PIECE * len(data) // data.nbytes) if data.ndim and data.nbytes else 1
    for start in range(0, len(data), rows) if data.ndim and not as_it_is else (None,):
        part = data if start is None else data[start : start + rows]
        little = np.ascontiguousarray(part).astype(stored, copy=False)
        yield memoryview(little.reshape(-1).view(np.uint8).data)


_Piece = bytes | memoryview | Array | Halves
_Replace = Callable[[int, int, int], list[_Piece] | None]
"""From an initializer's number and the place of its `raw_data` to what stands there instead; None: it
stays."""


class _Walk:
    """One pass over a serialized model, a chunk at a time, that replaces data of initializers.

    Args:
        read: gives the bytes from one place to another.
        replace: see there.
        most: how many fields may be looked at.
    """

    def __init__(
        self, read: Callable[[int, int], bytes | memoryview], replace: _Replace, most: int
    ) -> None:
        self._read, self._replace, self._fields_left = read, replace, most
        self._chunk: bytes | memoryview = b""
        self._start = self._initializers = 0

    def file(self, size: int) -> list[_Piece]:
        """The whole of so many bytes, in pieces."""
        self._size = size
        return self._message(0, size, (_GRAPH, _INITIALIZER))

    def _message(self, start: int, end: int, path: tuple[int, ...]) -> list[_Piece]:
        """A message with its data replaced, inside the messages that a path of fields leads to."""
        parts: list[_Piece] = []
        kept = start  # what lies between here and the field is copied as it is
        for field, begin, content, behind in self._fields(start, end):
            inner: list[_Piece] | None = None
            if path and field == path[0]:
                inner = self._message(content, behind, path[1:])
            elif not path and field == _RAW_DATA:
                inner = self._replace(self._initializers, content, behind)
            if inner is not None:
                tag, size = _varint(field << 3 | _BYTES), sum(map(_size, inner))
                parts += [self._read(kept, begin), tag, _varint(size), *inner]
                kept = behind
        parts.append(self._read(kept, end))
        self._initializers += not path
        return parts

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
            self._start, offset = position, 0
            self._chunk = self._read(position, min(position + _CHUNK, self._size))
            if not self._chunk:
                raise _BrokenError
        return self._chunk[offset]


def _views(piece: _Piece) -> Iterator[memoryview]:
    if isinstance(piece, (np.ndarray, Halves)):
        yield from stored_pieces(piece)
    else:
        yield memoryview(piece)


def _size(piece: _Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.nbytes


def _read(file: int, start: int, end: int) -> bytes:
    data = os.pread(file, end - start, start) if end > start else b""
    if len(data) != end - start:
        raise _BrokenError
    return data


def _array(file: int, start: int, end: int) -> npt.NDArray[np.uint8]:
    data = _memory(end - start)
    done = 0
    while done < data.size:
        count = os.preadv(file, [data[done:].data], start + done)
        if not count:
            raise _BrokenError
        done += count
    data.setflags(write=False)
    return data


def _memory(size: int) -> npt.NDArray[np.uint8]:
    """Memory for data; what is large has pages of its own, which `memory_of` finds again."""
    if size < _OWN_PAGES:
        return np.empty(size, np.uint8)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


def memory_of(data: npt.NDArray[Any]) -> mmap.mmap | None:
    """The memory that was made for the data of this array and nothing else."""
    found: object = data
    while isinstance(found, np.ndarray):
        found = found.base
    memory = found.obj if isinstance(found, memoryview) else None
    return memory if isinstance(memory, mmap.mmap) and len(memory) == data.nbytes else None


def is_free(memory: mmap.mmap) -> bool:
    """True where no array sees this memory any more: what is in it may be written over."""
    try:
        memory.resize(len(memory))  # which nothing but a view that is left can hinder
    except (BufferError, SystemError, OSError, ValueError):
        return False
    return True


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 128:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)
