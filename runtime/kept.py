"""The programs that an executor keeps, one for each set of input shapes, bounded by the memory they take."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from ..locks import ProcessLock
from ..plan.shapes import StaticShape

KEPT_BYTES = 512 << 20
"""The memory that all programs of a session may take."""

KEPT_BYTES_OF_BODY = 64 << 20
"""The same for the body of an If, Loop or Scan: a state that grows has another shape in each trip."""

Shapes = tuple[StaticShape, ...]
P = TypeVar("P")


class KeptPrograms(Generic[P]):
    """Programs by the shapes of the plan's inputs. What was not used for longest goes first; the program that was
    used last stays, whatever it takes.

    Runs of shapes that are known do not wait while another thread binds. Two threads that bind do so one after the
    other, because programs share the constants.

    Args:
        limit: bytes of all programs together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Shapes, tuple[P, int]] = OrderedDict()
        self._look, self.binding = ProcessLock(), ProcessLock()

    def __iter__(self) -> Iterator[P]:
        return iter([program for program, _ in self._kept.values()])

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def latest(self) -> P | None:
        """The program that was used last."""
        return next(reversed(self._kept.values()))[0] if self._kept else None

    def get(self, key: Shapes, bind: Callable[[], tuple[P, int]]) -> P:
        """The program for these shapes.

        Args:
            key: the shapes.
            bind: makes it; returns it with the bytes that it takes.
        """
        found = self._find(key)
        if found is not None:
            return found
        with self.binding:
            found = self._find(key)  # another thread was faster
            return self._add(key, *bind()) if found is None else found

    def _find(self, key: Shapes) -> P | None:
        with self._look:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def _add(self, key: Shapes, program: P, needed: int) -> P:
        with self._look:
            self._kept[key] = program, needed
            total = sum(each for _, each in self._kept.values())
            while total > self._limit and len(self._kept) > 1:
                _, (_, freed) = self._kept.popitem(last=False)
                total -= freed
        return program
