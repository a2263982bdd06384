"""Data sets: which files there are, how many rows they hold, and the rows of a part."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import InvalidInput
from ..files import is_folder, is_there, unreadable
from ..ir.ops.spec import Array
from . import arrays, images, parquet
from .parts import DataFile, Part, Piece
from .reading import Found, Reading, Wanted, damage, is_damage
from .rows import BadRow, Rows
from .signature import RowShape


class Reader(Protocol):
    """Reads pieces of files of one format."""

    def read(self, path: Path, piece: Piece) -> Iterator[Found]:
        """The rows of a piece."""
        ...

    def close(self) -> None:
        """Closes what is held open."""
        ...


@dataclass(frozen=True)
class Format:
    """How files of a format are read: see the functions of that name in each format's module."""

    suffixes: tuple[str, ...]
    count: Callable[[Path, Mapping[str, int], Reading], int]
    first_shape: Callable[[Path, str, int, Reading], RowShape | None]
    check: Callable[[Path, Wanted], None]
    reader: Callable[[Wanted], Reader]


_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")

FORMATS: Mapping[str, Format] = {
    "parquet": Format(
        (".parquet", ".pq"), parquet.count, parquet.first_shape, parquet.check, parquet.Reader
    ),
    "arrays": Format(
        (".npy", ".npz"), arrays.count, arrays.first_shape, arrays.check, arrays.Reader
    ),
    "images": Format(_IMAGES, images.count, images.first_shape, images.check, images.Reader),
}


@dataclass(frozen=True)
class DataSet:
    """The files of one format below a folder, or one file.

    Attributes:
        root: the folder that names are relative to.
        format: a name of `FORMATS`.
        files: in the order of their names, which is the order of the rows.
    """

    root: Path
    format: str
    files: tuple[DataFile, ...]

    @property
    def damaged(self) -> frozenset[str]:
        """Names of files whose header cannot be read, or is not true; each is one bad row."""
        return frozenset(file.name for file in self.files if file.damage)

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)

    def digest(self) -> str:
        """Stands for names, sizes and times of all files: another one means other data."""
        text = "\n".join(repr(astuple(file)[:4]) for file in self.files)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def first_shape(self, name: str, rank: int, reading: Reading) -> RowShape | None:
        """The shape of the first row for an input, where the data tell it."""
        for file in self._sound():
            return FORMATS[self.format].first_shape(self.root / file, name, rank, reading)
        return None

    def check(self, wanted: Wanted) -> None:
        """Refuses, before anything is computed, data whose types do not fit.

        Raises:
            InvalidInput: those of a file; the message names it.
        """
        checked = FORMATS[self.format].check
        for file in self._sound():
            checked(self.root / file, wanted)
            if self.format == "images":  # of the files nothing is looked at
                return

    def _sound(self) -> Iterator[str]:
        return (file.name for file in self.files if not file.damage)


def data_set(path: Path, ranks: Mapping[str, int], reading: Reading) -> DataSet:
    """What a folder, or one file, holds.

    Args:
        path: files whose name, or a folder's on the way, begins with `.` or `_` are left out.
        ranks: of the plan's inputs, by name.
        reading: which columns.

    Raises:
        InvalidInput: there is nothing, files of several formats, or one lacks an input.
    """
    if not is_there(path):
        raise InvalidInput(
            "there is no such file or folder", where=str(path), hint="check the path"
        )
    root = path if is_folder(path) else path.parent
    names = _names(path) if is_folder(path) else [path.name]
    kinds = {
        kind: [name for name in names if name.lower().endswith(format_.suffixes)]
        for kind, format_ in FORMATS.items()
    }
    held = {kind: found for kind, found in kinds.items() if found}
    if len(held) != 1:
        what = " and ".join(f"{len(found)} of {kind} ({found[0]})" for kind, found in held.items())
        raise InvalidInput(
            f"the data are files of several formats: {what}" if held else "there are no data",
            where=str(path),
            hint="give a folder of .parquet, of .npy and .npz, or of image files",
        )
    ((kind, chosen),) = held.items()
    if reading.keep and kind != "parquet":
        raise InvalidInput(
            "columns are kept of Parquet alone", where=str(path), hint="leave --keep out"
        )
    files = [_counted(root, name, kind, ranks, reading) for name in chosen]
    return DataSet(root, kind, tuple(files))


def _names(folder: Path) -> list[str]:
    """The files of a folder and of those below it, which may be links.

    Raises:
        InvalidInput: a folder cannot be read: its rows would be missing, in silence; or a link leads
            back to a folder that it lies in.
    """

    def told(error: OSError) -> None:
        raise unreadable(error.filename, error, "the folder") from error

    found = []
    for place, folders, files in os.walk(folder, onerror=told, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        for name in folders:
            _check_link(Path(place, name))
        below = Path(place).relative_to(folder)
        found += [(below / name).as_posix() for name in files if not name.startswith((".", "_"))]
    return sorted(found)


def _check_link(path: Path) -> None:
    """Refuses a folder that is one of those on the way to it."""
    if os.path.realpath(path) in map(os.path.realpath, path.parents):
        raise InvalidInput(
            "the link leads back to a folder that it lies in",
            where=str(path),
            hint="remove it, or let its name begin with _",
        )


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):  # opening a pipe waits for ever
        raise InvalidInput(
            "it is not a regular file", where=str(path), hint="take it out of the data"
        )


def _counted(
    root: Path, name: str, kind: str, ranks: Mapping[str, int], reading: Reading
) -> DataFile:
    path, reason = root / name, ""
    try:
        status = path.stat()
        _check_regular(path, status)
        rows = FORMATS[kind].count(path, ranks, reading)
    except Exception as error:
        if not is_damage(error):
            if isinstance(error, OSError):
                raise unreadable(path, error, "the file") from error
            raise
        rows, reason = 1, _named(damage(error), root)
    return DataFile(name, rows, status.st_size, status.st_mtime_ns, reason)


def _named(reason: str, root: Path) -> str:
    """A reason that names files as the listing does, wherever the data lie."""
    for place in (f"{root}{os.sep}", repr(f"{root}{os.sep}")[1:-1]):
        reason = reason.replace(place, "")
    return reason


def rows_of(part: Part, root: Path, reader: Reader, bad: list[BadRow]) -> Iterator[Rows]:
    """The rows of a part that can be fed; the others are added to `bad` before what follows them
    comes.

    Raises:
        InvalidInput: a file cannot be read now (a damaged one is bad rows).
    """
    for piece in part.pieces:
        at, reason = piece.start, piece.damage
        try:
            for found in reader.read(root / piece.file, piece) if not reason else ():
                bad += _bad(piece, found.bad, root)
                at = found.stop
                if len(found.numbers):
                    yield _rows(found, piece)
        except Exception as error:
            if not is_damage(error):
                if isinstance(error, OSError):
                    raise unreadable(root / piece.file, error, "the file") from error
                raise
            reason = damage(error)
        if reason:
            bad += _bad(piece, ((row, reason) for row in range(at, piece.stop)), root)


def _bad(piece: Piece, rows: Iterable[tuple[int, str]], root: Path) -> Iterator[BadRow]:
    for row, reason in rows:
        yield BadRow(piece.first + row, piece.file, row, _named(reason, root))


def _rows(found: Found, piece: Piece) -> Rows:
    numbers: Array = piece.first + np.asarray(found.numbers, np.int64)
    place = (piece.file, piece.first, len(numbers))
    return Rows(found.feeds, numbers, (place,), found.kept)
