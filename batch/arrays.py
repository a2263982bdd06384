"""Folders of .npy and .npz files: streamed, never unpickled.

An array of the input's rank holds rows along its first axis, one of a dimension fewer is one row.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InvalidInput
from ..ir.ops.spec import Array
from .parts import Piece
from .reading import Found, Reading, Wanted, is_damage
from .signature import RowShape, RowType, is_text

_CHUNK = 1 << 20  # bytes of a member that are in memory while its checksum is taken


@dataclass(frozen=True)
class _Stored:
    """An array in a file, in front of its first byte."""

    file: IO[bytes]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool

    @property
    def bytes(self) -> int:
        """Of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def rows(self, rank: int) -> int:
        return self.shape[0] if len(self.shape) == rank and rank else 1

    def row_shape(self, rank: int) -> RowShape:
        return self.shape[1:] if len(self.shape) == rank else self.shape

    def read(self, at: int, start: int, stop: int, size: int, rank: int) -> Iterator[Array]:
        """Rows `start` to `stop`, `size` at a time, where the file stands in front of row `at`."""
        shape = self.row_shape(rank)
        if self.fortran:  # rows lie across the whole array
            whole = self._take(math.prod(self.shape)).reshape(self.shape[::-1]).transpose()
            whole = whole.reshape(-1, *shape)
            yield from (
                whole[first : min(first + size, stop)] for first in range(start, stop, size)
            )
            return
        each = math.prod(shape)
        self.file.seek((start - at) * each * self.dtype.itemsize, 1)
        for first in range(start, stop, size):
            count = min(size, stop - first)
            yield self._take(count * each).reshape(count, *shape)

    def _take(self, count: int) -> Array:
        data = self.file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise EOFError("it is shorter than its header says")
        return np.frombuffer(data, self.dtype)


def count(path: Path, ranks: Mapping[str, int], reading: Reading) -> int:
    """The rows of a file, by the headers of its arrays; the most where they do not agree.

    Raises:
        InvalidInput: an array is missing.
        One of `reading.DAMAGED`: there are fewer bytes than an array with these rows has.
    """
    with ExitStack() as stack:
        stored = _stored(stack, path, tuple(ranks), reading)
        rows = max(array.rows(ranks[name]) for name, array in stored.items())
    if rows > path.stat().st_size:  # what an archive says of its sizes may be wrong
        _check_sums(path, tuple(ranks), reading)
    return rows


def first_shape(path: Path, name: str, rank: int, reading: Reading) -> RowShape | None:
    """The shape of a row."""
    with ExitStack() as stack:
        return _stored(stack, path, (name,), reading)[name].row_shape(rank)


def check(path: Path, wanted: Wanted) -> None:
    """Refuses a file with an array whose numbers would have to be rounded or cut.

    Raises:
        InvalidInput: it has one.
    """
    with ExitStack() as stack:
        stored = _stored(stack, path, tuple(wanted.signature.inputs), wanted.reading)
        for name, row in wanted.signature.inputs.items():
            dtype = stored[name].dtype
            fits = dtype.kind == "U" if is_text(row) else np.can_cast(dtype, row.dtype, "safe")
            if not fits:
                raise InvalidInput(
                    f"the array for {name} has elements of type {dtype}, expected {row.dtype}",
                    where=str(path),
                    hint=f"convert it: array.astype('{row.dtype}')",
                )


class Reader:
    """Reads pieces; one that begins behind the last one goes on there: what is compressed would have to
    be unpacked from its beginning.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._stack = ExitStack()
        self._stored: Mapping[str, _Stored] = {}
        self._path: Path | None = None
        self._at = 0  # the row that the arrays stand in front of
        self._checked: Path | None = None  # of the file whose checksums were looked at last
        self._damage = ""  # what is wrong with them

    def read(self, path: Path, piece: Piece) -> Iterator[Found]:
        """The rows of a piece."""
        inputs = self._wanted.signature.inputs
        if path != self._path or piece.start < self._at:
            self.close()
            self._check(path)
            self._stored = _stored(self._stack, path, tuple(inputs), self._wanted.reading)
        reason = _misfit(self._stored, inputs)
        if reason:
            bad = tuple((row, reason) for row in range(piece.start, piece.stop))
            yield Found(piece.stop, np.zeros(0, np.int64), {}, bad)
            return
        self._path = None  # where it ends in between, nobody knows where the arrays stand
        yield from self._rows(piece)
        if not any(array.fortran for array in self._stored.values()):
            self._path, self._at = path, piece.stop

    def _check(self, path: Path) -> None:
        """Refuses a file whose content is not what its checksums say, once for all pieces of it.

        Raises:
            BadZipFile: it is not.
        """
        if path != self._checked:
            self._checked, self._damage = None, ""
            try:
                _check_sums(path, tuple(self._wanted.signature.inputs), self._wanted.reading)
            except Exception as error:
                if not is_damage(error):
                    raise
                self._damage = str(error) or type(error).__name__
            self._checked = path
        if self._damage:
            raise zipfile.BadZipFile(self._damage)

    def _rows(self, piece: Piece) -> Iterator[Found]:
        inputs = self._wanted.signature.inputs
        size, start = self._wanted.signature.batch, piece.start
        streams = [
            self._stored[name].read(self._at, start, piece.stop, size, 1 + len(row.shape))
            for name, row in inputs.items()
        ]
        for arrays in zip(*streams, strict=True):
            numbers = np.arange(start, start + len(arrays[0]))
            feeds = {
                name: array.astype(object if is_text(row) else row.dtype, copy=False)
                for (name, row), array in zip(inputs.items(), arrays, strict=True)
            }
            start += len(numbers)
            yield Found(start, numbers, feeds)

    def close(self) -> None:
        """Closes the file that is open."""
        self._stack.close()
        self._stored, self._path, self._at = {}, None, 0


def _misfit(stored: Mapping[str, _Stored], inputs: Mapping[str, RowType]) -> str:
    """What is wrong with the shapes of a file's arrays, or nothing."""
    for name, row in inputs.items():
        found = stored[name].row_shape(1 + len(row.shape))
        if found != row.shape:
            return (
                f"the array for {name} has rows of shape {list(found)}, expected {list(row.shape)}"
            )
    counts = {name: stored[name].rows(1 + len(row.shape)) for name, row in inputs.items()}
    if len(set(counts.values())) > 1:
        return "the arrays have different numbers of rows: " + ", ".join(
            f"{name} {rows}" for name, rows in counts.items()
        )
    return ""


def _stored(
    stack: ExitStack, path: Path, inputs: tuple[str, ...], reading: Reading
) -> dict[str, _Stored]:
    """The arrays of a file for the inputs; the stack closes them."""
    file = stack.enter_context(path.open("rb"))
    begins = file.read(len(np.lib.format.MAGIC_PREFIX))
    if begins[:2] != b"PK":
        file.seek(0)
        if begins != np.lib.format.MAGIC_PREFIX:
            raise ValueError("it begins neither as an .npy nor as an .npz file does")
        if len(inputs) != 1:
            raise InvalidInput(
                f"the model has {len(inputs)} inputs, and an .npy file holds one array",
                where=str(path),
                hint="write .npz files with an array for each input",
            )
        return {inputs[0]: _header(file, path.stat().st_size)}
    archive = stack.enter_context(zipfile.ZipFile(file))
    return {
        name: _header(stack.enter_context(archive.open(member)), archive.getinfo(member).file_size)
        for name, member in _members(archive, path, inputs, reading).items()
    }


def _check_sums(path: Path, inputs: tuple[str, ...], reading: Reading) -> None:
    """Reads the arrays for the inputs of an .npz file to their ends, where their CRC is compared: before
    that nobody knows whether a number in them is right. An .npy file has no checksum.

    Raises:
        One of `reading.DAMAGED`: an array is not what was written.
    """
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return
        with zipfile.ZipFile(file) as archive:
            for member in _members(archive, path, inputs, reading).values():
                left = archive.getinfo(member).file_size
                with archive.open(member) as content:
                    while piece := content.read(_CHUNK):
                        left -= len(piece)
                if left:
                    raise EOFError(f"{member} is shorter than the archive says")


def _members(
    archive: zipfile.ZipFile, path: Path, inputs: tuple[str, ...], reading: Reading
) -> dict[str, str]:
    """The archive's member for each input."""
    names = {name.removesuffix(".npy"): name for name in archive.namelist()}
    found = {}
    for name in inputs:
        wanted = reading.column(name)
        if wanted not in names:
            raise InvalidInput(
                f"the file has no array {wanted}",
                where=str(path),
                hint=f"say which array holds an input: --column INPUT=ARRAY (there are: {', '.join(names)})",
            )
        found[name] = names[wanted]
    return found


def _header(file: IO[bytes], size: int) -> _Stored:
    """Reads the header of an array in a file of so many bytes.

    Raises:
        ValueError: it is none, or tells rows for which the file is far too short. Of a file that is
            cut off the first rows are good, if they do not lie across the whole array.
    """
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError("it holds records, not plain numbers")
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, and fqfuse never unpickles anything")
    stored = _Stored(file, dtype, shape, fortran and len(shape) > 1)
    there = size - file.tell()
    if any(dim > size for dim in shape[:1]) or (stored.fortran and stored.bytes > there):
        raise ValueError(
            f"its header tells {stored.bytes:,} bytes of shape {shape}, and {there:,} follow"
        )
    return stored
