"""A sequence that grows at its end and shares its beginning with the sequences that it grew
from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State")
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Linked(Generic[Item, State]):
    """A sequence by its last item: one item more costs the same however many there are, and the
    shorter one stays as it was.

    Attributes:
        before: the sequence without its last item; None where it is empty.
        item: the last item; None where it is empty.
        state: what is known of the sequence as a whole.
    """

    before: Linked[Item, State] | None
    item: Item | None
    state: State

    @staticmethod
    def empty(state: State) -> Linked[Item, State]:
        """The sequence of no items."""
        return Linked(None, None, state)

    def then(self, item: Item, state: State) -> Linked[Item, State]:
        """The sequence with one item more."""
        return Linked(self, item, state)

    def without(self, count: int) -> Linked[Item, State]:
        """The sequence without its last `count` items, which must be there."""
        found = self
        for _ in range(count):
            assert found.before is not None
            found = found.before
        return found

    def last(self, count: int) -> list[Item]:
        """The last items in order, `count` or as many as there are."""
        found: list[Item] = []
        cell = self
        while len(found) < count and cell.before is not None and cell.item is not None:
            found.append(cell.item)
            cell = cell.before
        return found[::-1]

    def items(self) -> Iterator[Item]:
        """All items in order."""
        cells: list[Item] = []
        cell = self
        while cell.before is not None and cell.item is not None:
            cells.append(cell.item)
            cell = cell.before
        return reversed(cells)
