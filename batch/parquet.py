"""Parquet files: read group by group, a batch at a time."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ..errors import InvalidInput
from .columns import check_type, reason_of, row_shape, shape_of_value, values_of
from .libraries import library
from .parts import Piece
from .reading import Found, Reading, Wanted, damage, is_damage
from .signature import RowShape

_BUFFER = 1 << 18  # bytes of a column that are read at once, where files cannot be mapped
_LONG = 1 << 16  # bytes of a read from which on a map costs less than a copy
_BLOCK = 1 << 26  # bytes of a file that are mapped at once; any system's pages divide it
_DECODED = (
    4 << 20
)  # bytes, about, that are decoded at once where a batch has fewer: each call costs


def count(path: Path, ranks: Mapping[str, int], reading: Reading) -> int:
    """The rows of a file, of which the footer alone is read where it can be true.

    Raises:
        InvalidInput: a column is missing.
        ValueError: the file does not hold the rows.
    """
    with _opened(path) as file:
        names = file.schema_arrow.names
        for wanted in (*map(reading.column, ranks), *reading.keep):
            if wanted not in names:
                raise InvalidInput(
                    f"the file has no column {wanted}",
                    where=str(path),
                    hint=f"say which column holds an input: --column INPUT=COLUMN (there are: {', '.join(names)})",
                )
            if names.count(wanted) > 1:
                raise InvalidInput(
                    f"the file has {names.count(wanted)} columns {wanted}",
                    where=str(path),
                    hint="write the file anew, each column under a name of its own",
                )
        rows: int = file.metadata.num_rows
        if rows > path.stat().st_size:  # one value many times, or a footer that is wrong
            columns = [*map(reading.column, ranks)]
            if rows != sum(len(batch) for batch in file.iter_batches(columns=columns)):
                raise ValueError("it holds fewer rows than its footer says")
        return rows


def first_shape(path: Path, name: str, rank: int, reading: Reading) -> RowShape | None:  # noqa: ARG001  (of a table)
    """The shape of the file's first row that is not null."""
    column = reading.column(name)
    with _opened(path) as file:
        told = row_shape(file.schema_arrow.field(column).type)
        if told is not None:
            return told
        for batch in file.iter_batches(1, columns=[column]):
            value = batch.column(0)[0].as_py()
            if value is not None:
                return shape_of_value(value)
    return None


def check(path: Path, wanted: Wanted) -> None:
    """Refuses a file whose columns have types that do not fit.

    Raises:
        InvalidInput: it has one.
    """
    with _opened(path) as file:
        for name, row in wanted.signature.inputs.items():
            column = wanted.reading.column(name)
            check_type(column, file.schema_arrow.field(column).type, row, str(path))


class Reader:
    """Reads pieces; one that begins where the last one ended costs nothing to find."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        signature = wanted.signature
        bytes_ = signature.batch * sum(row.bytes for row in signature.inputs.values())
        self._at_once = signature.batch * max(1, _DECODED // max(1, bytes_))
        self._path: Path | None = None
        self._file: Any = None
        self._cursor: _Cursor | None = None

    def read(self, path: Path, piece: Piece) -> Iterator[Found]:
        """The rows of a piece."""
        if path != self._path:
            self.close()
            self._file, self._path = _opened(path, mapped=True), path
        first = 0
        for group in range(self._file.num_row_groups):
            stop = first + self._file.metadata.row_group(group).num_rows
            start, end = max(first, piece.start), min(stop, piece.stop)
            if start < end:
                yield from self._group(group, first, start, end)
            first = stop

    def close(self) -> None:
        """Closes the file that is open."""
        if self._file is not None:
            self._file.close(force=True)
        self._file = self._path = self._cursor = None

    def _group(self, group: int, first: int, start: int, end: int) -> Iterator[Found]:
        """Rows `start` to `end` of a row group that begins at `first`; where it is damaged, the rest
        of them is bad.
        """
        if self._cursor is None or self._cursor.group != group or self._cursor.at > start:
            columns = [*map(self._wanted.reading.column, self._wanted.signature.inputs)]
            columns = [*dict.fromkeys([*columns, *self._wanted.reading.keep])]
            batches = self._file.iter_batches(
                self._at_once, row_groups=[group], columns=columns, use_threads=False
            )
            self._cursor = _Cursor(group, first, batches)
        while start < end:
            try:
                batch = self._cursor.take(start, end)
                found = _found(batch, start, self._wanted)
            except Exception as error:
                self._cursor = None
                if not is_damage(error):
                    raise
                bad = tuple((row, damage(error)) for row in range(start, end))
                yield Found(end, np.zeros(0, np.int64), {}, bad)
                return
            yield found
            start = found.stop


class _Cursor:
    """Where a row group is being read.

    Attributes:
        group: its number.
        at: the file's row that the held or next record batch begins with.
    """

    def __init__(self, group: int, first: int, batches: Iterator[Any]) -> None:
        self.group, self.at = group, first
        self._batches = batches
        self._held: Any = None

    def take(self, start: int, stop: int) -> Any:
        """Rows from `start` on, as far as one record batch goes, and not beyond `stop`."""
        while True:
            if self._held is None:
                self._held = next(self._batches, None)
                if self._held is None:
                    raise ValueError("the row group holds fewer rows than the footer says")
            end = self.at + self._held.num_rows
            if end > start:
                return self._held.slice(start - self.at, min(end, stop) - start)
            self.at, self._held = end, None


class _Mapped(io.FileIO):
    """A file whose long reads are maps of it, so that what decodes them copies them once, not twice.

    Reads within a block share its map: each map holds a descriptor, and a row group has a read for
    each column. A map is there as long as what was read of it.

    Where the file is cut short while it is read, or its disk fails, the system ends the process
    (SIGBUS): for processes that may end.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._blocks: WeakValueDictionary[int, mmap.mmap] = WeakValueDictionary()

    def read(self, size: int | None = -1) -> Any:
        """As `FileIO.read`: bytes, or a memoryview of the file.

        Raises:
            ValueError: the file is shorter.
        """
        if size is None or size < _LONG:
            return super().read(-1 if size is None else size)
        start, end = self.tell(), os.fstat(self.fileno()).st_size
        if start + size > end:
            raise ValueError("it is shorter than its footer says")
        number, at = divmod(start, _BLOCK)
        if at + size <= _BLOCK:
            data = self._blocks.get(number) or self._map(start - at, min(_BLOCK, end - start + at))
            self._blocks[number] = data
        else:  # at most one of the columns lies across a block's end
            at = start % mmap.ALLOCATIONGRANULARITY
            data = self._map(start - at, at + size)
        self.seek(start + size)
        return memoryview(data)[at : at + size]

    def _map(self, start: int, size: int) -> mmap.mmap:
        data = mmap.mmap(self.fileno(), size, offset=start, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_SEQUENTIAL"):
            data.madvise(mmap.MADV_SEQUENTIAL)
        return data


def _can_be_mapped(path: Path) -> bool:
    """False of an empty file, and of file systems that map none, such as some of FUSE."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ):
            return True
    except (OSError, ValueError):
        return False


def _opened(path: Path, *, mapped: bool = False) -> Any:
    parquet = library("pyarrow.parquet", "Parquet is read with pyarrow")
    options = {"pre_buffer": False, "page_checksum_verification": True}
    if not mapped or not _can_be_mapped(path):
        return parquet.ParquetFile(path, buffer_size=_BUFFER, **options)
    file = _Mapped(path)
    try:
        source = library("pyarrow", "Parquet is read with pyarrow").PythonFile(file, mode="r")
        return parquet.ParquetFile(source, **options)
    except BaseException:
        file.close()
        raise


def _found(batch: Any, start: int, wanted: Wanted) -> Found:
    """The rows of a record batch that begins with the file's row `start`."""
    inputs = wanted.signature.inputs
    columns = {name: batch.column(wanted.reading.column(name)) for name in inputs}
    pairs = {name: values_of(columns[name], row) for name, row in inputs.items()}
    fits = np.logical_and.reduce([pair[0] for pair in pairs.values()])
    bad = []
    for index in np.flatnonzero(~fits):
        name = next(name for name in inputs if not pairs[name][0][index])
        value = columns[name][int(index)]
        shown = value.as_py() if not hasattr(value, "to_numpy") else _tensor(value)
        reason = reason_of(wanted.reading.column(name), shown, inputs[name])
        bad.append((start + int(index), reason))
    whole = fits.all()
    feeds = {name: values if whole else values[fits[own]] for name, (own, values) in pairs.items()}
    kept = None
    if wanted.reading.keep:
        kept = batch.select(list(wanted.reading.keep))
        if not whole:
            kept = kept.filter(library("pyarrow", "Parquet is read with pyarrow").array(fits))
    numbers = start + np.flatnonzero(fits)
    return Found(start + batch.num_rows, numbers, feeds, tuple(bad), kept)


def _tensor(value: Any) -> object:
    return None if not value.is_valid else value.to_numpy()
