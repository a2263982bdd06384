"""Rows on their way from a reader to the session and to a writer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ..ir.ops.spec import Array

_Item = TypeVar("_Item")

_WAIT = 0.1  # seconds between two looks whether the other side is still there


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


class _End:
    """Behind the last item: what the thread raised, or nothing."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterable[_Item], most: int = 2) -> Iterator[_Item]:
    """The same items, made by a thread of its own while the last ones are used.

    Args:
        items: an exception of theirs is raised here.
        most: how many may wait: memory stays bounded.
    """
    waiting: queue.Queue[_Item | _End] = queue.Queue(most)
    gone = threading.Event()

    def put(item: _Item | _End) -> bool:
        while not gone.is_set():
            try:
                waiting.put(item, timeout=_WAIT)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        error: BaseException | None = None
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as raised:  # noqa: BLE001  # raised again where the items are used
            error = raised
        put(_End(error))

    thread = threading.Thread(target=make, name="fqfuse-batch-reader", daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        gone.set()
        thread.join()
