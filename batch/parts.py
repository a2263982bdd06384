"""Which rows make which part of the output: by the files' numbers of rows and the batch, and by
nothing else. So a run that goes on cuts as the one before did, and no row is lost or comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

_LEAST_BATCHES = 64  # of a part: enough that opening and closing files is nothing beside them
_MOST_PARTS = 1000  # of a job: a kill costs each worker one of them, or two


@dataclass(frozen=True)
class DataFile:
    """A file of the data.

    Attributes:
        name: relative to the data, with `/`.
        rows: how many it holds.
        bytes: its size.
        modified: when it was last written, nanoseconds since 1970.
        damage: the reason why none of its rows can be read, which stands for one row; or ''.
    """

    name: str
    rows: int
    bytes: int
    modified: int
    damage: str = ""


@dataclass(frozen=True)
class Piece:
    """Rows of one file.

    Attributes:
        file: its name.
        start, stop: numbers of rows in the file.
        first: the number that the file's row 0 has in the data set.
        damage: of the file.
    """

    file: str
    start: int
    stop: int
    first: int
    damage: str = ""


@dataclass(frozen=True)
class Part:
    """One part of the output: its number, the number of its first row, and where its rows are."""

    index: int
    first: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """How many rows of the data it covers."""
        return sum(piece.stop - piece.start for piece in self.pieces)


def rows_of_part(rows: int, batch: int) -> int:
    """Rows of each part but the last, whole batches: 64, or more where a job would have more than
    1,000 parts.
    """
    batches = -(-rows // batch)
    return batch * max(_LEAST_BATCHES, -(-batches // _MOST_PARTS))


def parts_of(files: Sequence[DataFile], batch: int) -> list[Part]:
    """All parts, in the order of the rows."""
    size = rows_of_part(sum(file.rows for file in files), batch)
    parts: list[Part] = []
    held: list[Piece] = []
    room = size
    for piece in _pieces(files):
        start = piece.start
        while start < piece.stop:
            stop = min(piece.stop, start + room)
            held.append(replace(piece, start=start, stop=stop))
            room -= stop - start
            start = stop
            if not room:
                parts.append(Part(len(parts), len(parts) * size, tuple(held)))
                held, room = [], size
    if held:
        parts.append(Part(len(parts), len(parts) * size, tuple(held)))
    return parts


def _pieces(files: Sequence[DataFile]) -> Iterator[Piece]:
    first = 0
    for file in files:
        yield Piece(file.name, 0, file.rows, first, file.damage)
        first += file.rows
