"""Rows on their way from a reader to the session and to a writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..ir.ops.spec import Array

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class BadRow:
    """A row that has no result.

    Attributes:
        row: its number in the data set.
        file: the file that holds it, as the listing names it.
        file_row: its number in the file.
        reason: one sentence.
    """

    row: int
    file: str
    file_row: int
    reason: str


@dataclass(frozen=True)
class Rows:
    """Some rows of the data, in order.

    Attributes:
        feeds: an array for each input, a row for each row.
        numbers: of the rows in the data set, i64.
        places: of each file that rows come from: its name, the number of its first row in the data
            set, and how many of these rows it holds.
        kept: a pyarrow.RecordBatch with the columns that are passed on; None: there are none.
    """

    feeds: Mapping[str, Array]
    numbers: Array
    places: tuple[tuple[str, int, int], ...]
    kept: Any = None

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, start: int, stop: int) -> Rows:
        """Rows from `start` to in front of `stop`, without a copy."""
        feeds = {name: array[start:stop] for name, array in self.feeds.items()}
        kept = None if self.kept is None else self.kept.slice(start, stop - start)
        places, at = [], 0
        for file, first, count in self.places:
            overlap = min(stop, at + count) - max(start, at)
            if overlap > 0:
                places.append((file, first, overlap))
            at += count
        return Rows(feeds, self.numbers[start:stop], tuple(places), kept)

    def place(self, index: int) -> tuple[str, int]:
        """File and number in the file of the row at an index."""
        number, at = int(self.numbers[index]), 0
        for file, first, count in self.places:
            at += count
            if index < at:
                return file, number - first
        raise IndexError(index)


def joined(rows: Sequence[Rows]) -> Rows:
    """These rows as one; at least one is given."""
    if len(rows) == 1:
        return rows[0]
    feeds = {name: np.concatenate([some.feeds[name] for some in rows]) for name in rows[0].feeds}
    kept = None
    if rows[0].kept is not None:
        from .columns import concatenated

        kept = concatenated([some.kept for some in rows])
    places = tuple(place for some in rows for place in some.places)
    return Rows(feeds, np.concatenate([some.numbers for some in rows]), places, kept)


def filled(rows: Iterable[Rows], size: int) -> Iterator[Rows]:
    """The same rows in batches of `size`; only the last may be smaller. Batches that lie across two
    of those that come are copied, the others are not.
    """
    held: list[Rows] = []
    count = 0
    for some in rows:
        at = min(size - count, len(some)) if count else 0
        if at:
            held.append(some.part(0, at))
            count += at
            if count < size:
                continue
            yield joined(held)
            held, count = [], 0
        while len(some) - at >= size:
            yield some.part(at, at + size)
            at += size
        if at < len(some):
            held, count = [some.part(at, len(some))], len(some) - at
    if held:
        yield joined(held)


def in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: Executor, most: int
) -> Iterator[_Result]:
    """`work(item)` for each item, in the order of the items, on the threads of an executor. The
    calling thread makes items meanwhile.

    Args:
        work: an exception of it is raised here.
        items: as they are made.
        threads: run the work.
        most: how many items may be made whose results have not been taken: memory stays bounded.
    """
    begun: deque[Future[_Result]] = deque()
    try:
        for item in items:
            begun.append(threads.submit(work, item))
            if len(begun) == most:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
