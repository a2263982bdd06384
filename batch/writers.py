"""One part of the output as one file: there whole, or not at all.

The bytes follow from the rows alone: neither times nor the way the rows came are in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ..errors import InvalidInput
from ..files import archive_member
from ..ir.ops.spec import Array
from .columns import arrow, column_of
from .libraries import library
from .rows import Rows, joined

ROW = "__row__"
"""The column or array with the rows' numbers in the data set."""
FILE = "__file__"
"""The array with the names of the files that rows come from, of images."""

_ROW_GROUP = 32 << 20  # bytes, about: what is held until it is written
_COPIED = 1 << 20

_Shapes = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Type and shape of a row of each output."""


class Writer(Protocol):
    """Takes the rows of a part in order.

    Attributes:
        digest: of the file when it has its place, its SHA-256; '' where there is none, for lack of rows.
    """

    digest: str

    def add(self, rows: Rows, outputs: Mapping[str, Array]) -> None:
        """Adds the outputs of a batch."""
        ...

    def finish(self) -> None:
        """Completes the file."""
        ...


@contextmanager
def written(target: Path, *, files: bool) -> Iterator[Writer]:
    """A writer for a file that gets its place when the block ends well.

    Args:
        target: *.parquet or *.npz.
        files: add the names of the files (.npz).

    Raises:
        InvalidInput: it cannot be written.
    """
    beside = target.with_name(temporary(target.name))
    try:  # files are closed inside: on a full disk that fails, too
        with ExitStack() as stack:
            stack.callback(_removed, beside)
            writer: Writer = (
                ParquetWriter(beside, stack)
                if target.suffix == ".parquet"
                else ArchiveWriter(beside, stack, files=files)
            )
            yield writer
            writer.finish()
            if beside.exists():
                writer.digest = _synced(beside)
                beside.replace(target)
    except OSError as error:
        raise InvalidInput(
            f"the output cannot be written: {error.strerror or error}",
            where=str(target),
            hint="free some space or mend the permissions, and run the command again: it goes on",
        ) from error


def temporary(name: str) -> str:
    """A name beside a file of the output, for as long as it is not complete."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


class ParquetWriter:
    """Columns that are kept, the row's number, and a column for each output."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self.digest = ""
        self._held: list[tuple[Rows, Mapping[str, Array]]] = []
        self._bytes = 0
        self._shapes: _Shapes = {}
        self._writer: Any = None

    def add(self, rows: Rows, outputs: Mapping[str, Array]) -> None:
        """Adds the outputs of a batch."""
        _check_shapes(self._shapes, outputs)
        self._held.append((replace(rows, feeds={}), outputs))
        self._bytes += sum(array.nbytes for array in outputs.values())
        self._bytes += 0 if rows.kept is None else rows.kept.nbytes
        if self._bytes >= _ROW_GROUP:
            self._flush()

    def finish(self) -> None:
        """Completes the file."""
        if self._held:
            self._flush()
        if self._writer is not None:
            self._writer.close()

    def _flush(self) -> None:
        pa = arrow()
        rows = joined([rows for rows, _ in self._held])
        columns: dict[str, Any] = {}
        if rows.kept is not None:
            columns.update(zip(rows.kept.schema.names, rows.kept.columns, strict=True))
        columns[ROW] = pa.array(rows.numbers)
        for name in self._shapes:
            columns[name] = column_of(np.concatenate([outputs[name] for _, outputs in self._held]))
        table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
        if self._writer is None:
            parquet = library("pyarrow.parquet", "Parquet is written with pyarrow")
            self._writer = self._stack.enter_context(
                parquet.ParquetWriter(self._path, table.schema)
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._held, self._bytes = [], 0


class ArchiveWriter:
    """An .npz archive with the rows' numbers and an array for each output, which may be larger than
    memory: each waits in a file of its own until it is whole.
    """

    def __init__(self, path: Path, stack: ExitStack, *, files: bool) -> None:
        self._path, self._stack, self._files = path, stack, files
        self.digest = ""
        self._spools: dict[str, IO[bytes]] = {}
        self._shapes: _Shapes = {}
        self._names: list[str] = []
        self._count = 0

    def add(self, rows: Rows, outputs: Mapping[str, Array]) -> None:
        """Adds the outputs of a batch."""
        arrays = {ROW: rows.numbers, **outputs}
        _check_shapes(self._shapes, arrays)
        for name, array in arrays.items():
            if array.dtype.kind not in "biufc":
                raise InvalidInput(
                    f"the output {name} is of type {array.dtype.name}, which .npy files do not have",
                    hint="add a Cast to float32 at the end of the model; texts can be written where the data are Parquet",
                )
            if name not in self._spools:
                spool = self._path.with_name(f"{self._path.name[:-4]}.{len(self._spools)}.tmp")
                self._stack.callback(_removed, spool)
                self._spools[name] = self._stack.enter_context(spool.open("w+b"))
            self._spools[name].write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        if self._files:
            self._names += (file for file, _, count in rows.places for _ in range(count))
        self._count += len(rows)

    def finish(self) -> None:
        """Completes the archive."""
        if not self._count:
            return
        with zipfile.ZipFile(self._path, "w") as archive:
            for name, spool in self._spools.items():
                dtype, shape = self._shapes[name]
                spool.seek(0)
                with _member(archive, name) as member:
                    _write_header(member, dtype, (self._count, *shape))
                    shutil.copyfileobj(spool, member, _COPIED)
            if self._files:
                with _member(archive, FILE) as member:
                    np.lib.format.write_array(member, np.array(self._names), allow_pickle=False)


def _check_shapes(shapes: _Shapes, arrays: Mapping[str, Array]) -> None:
    """Refuses arrays whose rows are not like those before them, and learns what the first are."""
    for name, array in arrays.items():
        dtype, shape = shapes.setdefault(name, (array.dtype, array.shape[1:]))
        if (dtype, shape) != (array.dtype, array.shape[1:]):
            raise InvalidInput(
                f"the rows of the output {name} have different shapes: {list(array.shape[1:])} and {list(shape)}",
                hint="pad it to one shape in the model",
            )


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(archive_member(name), "w", force_zip64=True)


def _write_header(member: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(member, header)


def _synced(path: Path) -> str:
    """Waits until a file is on the disk, and gives its digest."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _removed(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def check_names(outputs: Iterable[str], keep: Iterable[str]) -> None:
    """Refuses two columns of one name.

    Raises:
        InvalidInput: there are such.
    """
    seen = {ROW, FILE}
    for name in (*keep, *outputs):
        if name in seen:
            raise InvalidInput(
                f"the output would have two columns called {name}",
                hint="rename the model's output, or leave --keep out",
            )
        seen.add(name)
