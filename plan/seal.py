"""The head and the tail of a plan file, read without onnx: is this a plan, and are its bytes what
was written?

Protobuf writes fields in the order of their numbers, so a plan says `domain = "fqfuse"` (field 4)
in front of its graph (field 7). Appending a field to a serialized message is the same as adding it,
so the last entry of `metadata_props` (field 14) can hold the digest of everything in front of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, overload

from ..errors import PlanError
from ..files import open_regular, unreadable
from ..ir.lifting import Lifted, lifted

DOMAIN = "fqfuse"

Source = str | os.PathLike[str] | bytes
"""A path, or what a file holds."""

STRUCTURE_LIMIT = 64 << 20
"""Bytes of a plan file that are not constants. Two bytes of protobuf can take 160 in memory: this
bounds what a hostile file asks for.
"""

_FIELD_LIMIT = 500_000
_TOP_LIMIT = 10_000  # fields of a model itself
_HEAD = 4096
_PIECE = 1 << 18
_KEY = b"fqfuse.digest"


def is_plan(source: Source) -> bool:
    """True when a file (or its content) is a plan, whole or damaged; False for an ordinary model
    and anything else.

    Only the head is read.

    Raises:
        InvalidInput: the file cannot be read.
    """
    if isinstance(source, bytes):
        return _head_says_plan(source[:_HEAD])
    with opened(source) as file:
        return _head_says_plan(file.read(_HEAD))


def entry(path: str | os.PathLike[str], key: str) -> str:
    """What a model's metadata hold under a key; '' where they do not, or the file is no model.

    Of the file little more is read than the metadata's keys.

    Raises:
        InvalidInput: it cannot be read.
    """
    with opened(path) as file:
        view = _View(file)
        for number, start, end in islice(_fields(view, 0, len(view)), _TOP_LIMIT):
            if number != 14:  # metadata_props
                continue
            inner = islice(_fields(view, start, end), 2)
            found = {part: view[at : min(last, at + _HEAD)] for part, at, last in inner}
            if found.get(1) == key.encode():
                return found.get(2, b"").decode(errors="replace")
    return ""


class _View:
    """The bytes of a file, read where they are looked at."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...
    def __getitem__(self, at: int | slice) -> int | bytes:
        if isinstance(at, int):
            return (self[at : at + 1] or b"\0")[0]  # it may have been cut off by now
        self._file.seek(at.start)
        return self._file.read(at.stop - at.start)


def content(source: Source) -> tuple[bytes, Lifted, bool]:
    """What a file holds but for large constants, these, and whether all of it is what was written.

    The constants are read once, to where the plan has them: parsed with the rest, they would be in
    memory twice.

    Raises:
        InvalidInput: the file cannot be read.
        PlanError: it is larger than any plan.
    """
    if isinstance(source, bytes):
        return source, {}, not unsealed(source)
    with opened(source) as file:
        size = os.fstat(file.fileno()).st_size
        if size >= 1 << 31:
            raise PlanError(
                "the file has 2 GiB or more, and a plan has less",
                where=str(source),
                hint="name a file that fqfuse wrote",
            )
        found = lifted(file.fileno(), size, _FIELD_LIMIT) if hasattr(os, "preadv") else None
        if found is None:
            data = file.read()
            return data, {}, not unsealed(data)
        return *found, _is_sealed(file, size)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """The file of a plan or model, to be read within the block.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            yield file
    except OSError as error:
        raise unreadable(path, error, "the .onnx file") from error


def is_at(file: BinaryIO, path: str | os.PathLike[str]) -> bool:
    """True where a path still leads to a file that is open, or to none."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), Path(path).stat())
    except OSError:
        return True


def _head_says_plan(head: bytes) -> bool:
    for number, start, end in _fields(head, 0, len(head)):
        if number in (4, 7):  # the domain stands in front of the graph
            return number == 4 and head[start:end] == DOMAIN.encode()
    return False


def _varint(data: bytes | _View, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return value, at


def check_structure(data: bytes, limit: int = STRUCTURE_LIMIT) -> None:
    """Bounds what a file holds besides the raw data of its constants, before it is parsed.

    Raises:
        PlanError: it is more than `limit` bytes, or has too many fields.
    """
    raw = 0
    for fields, size in enumerate(_raw_sizes(data)):
        raw += size
        if fields >= _FIELD_LIMIT:
            raise PlanError(
                f"the plan file has more than {_FIELD_LIMIT} parts",
                hint="name a file that fqfuse wrote; split a model of so many steps",
            )
    if len(data) - raw > limit:
        what = f"the plan holds {len(data) - raw} bytes besides its constants, and the limit is {limit}"
        raise PlanError(
            what,
            hint="shorten the names, and move weights out of the subgraphs of If, Loop and Scan",
        )


def _raw_sizes(data: bytes) -> Iterator[int]:
    """For each field of the model, its graph and the graph's constants: how much raw data of a
    constant it holds.
    """
    for number, start, end in _fields(data, 0, len(data)):
        yield 0
        # ModelProto.graph
        for inner, first, last in _fields(data, start, end) if number == 7 else ():
            yield 0
            # GraphProto.initializer
            for leaf, begin, stop in _fields(data, first, last) if inner == 5 else ():
                yield stop - begin if leaf == 9 else 0  # TensorProto.raw_data


def _fields(data: bytes | _View, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of a message's fields, 0 for those that hold numbers; ends where it is
    malformed: the parser will say so.
    """
    while at < end:
        key, at = _varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7, -1)
        if key & 7 == 0:
            size, (_, at) = 0, _varint(data, at)
        elif key & 7 == 2:
            size, at = _varint(data, at)
        if size < 0 or at + size > end:
            return
        yield (key >> 3 if key & 7 == 2 else 0), at, at + size
        at += size


def seal(body: bytes | memoryview) -> bytes:
    """The entry that closes a file: with the SHA-256 of the body."""
    return sealing(hashlib.sha256(body).hexdigest())


def sealing(digest: str) -> bytes:
    """The serialized entry `fqfuse.digest` of metadata_props."""
    return _field(14, _field(1, _KEY) + _field(2, digest.encode()))


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field of fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def _is_sealed(file: BinaryIO, size: int) -> bool:
    """True when a file ends with the seal of what is in front of it; read a piece at a time."""
    left, digest = size - len(seal(b"")), hashlib.sha256()
    file.seek(0)
    while left > 0:
        piece = file.read(min(left, _PIECE))
        if not piece:
            return False
        digest.update(piece)
        left -= len(piece)
    return file.read() == sealing(digest.hexdigest())


def unsealed(data: bytes) -> bool:
    """True when the bytes do not end with the seal of what is in front of it: they are cut off or
    were changed.
    """
    size = len(seal(b""))
    view = memoryview(data)
    return len(data) < size or bytes(view[-size:]) != seal(view[:-size])
