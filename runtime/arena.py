"""Which buffers may share memory: values that are never alive at the same time."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from ..aligned import aligned
from ..plan.types import Plan


@dataclass
class Lifetimes:
    """When values live.

    Attributes:
        first: buffer -> index of the step that writes it.
        last: buffer -> index of the last step that may read its memory.
        dead: after each step, the values that nothing will read any more (buffers and arrays of the
            steps' own).
    """

    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    dead: list[list[str]] = field(default_factory=list)


def trace(plan: Plan, buffers: Container[str]) -> Lifetimes:
    """Lifetimes of every value that is no constant.

    An array that a step returns itself may be a view of its inputs, so their memory lives as long
    as that array.

    Args:
        plan: the plan.
        buffers: the values that have memory in the arena: written there by a kernel, or copied
            there.
    """
    lives = Lifetimes(dead=[[] for _ in plan.steps])
    roots = {
        value: frozenset([value]) if value in buffers else frozenset[str]() for value in plan.inputs
    }
    last_read = dict.fromkeys(plan.inputs, 0)
    lives.first |= {value: 0 for value in plan.inputs if value in buffers}
    end = len(plan.steps)
    for index, step in enumerate(plan.steps):
        last_read |= dict.fromkeys(step.inputs, index)
        borrowed = frozenset[str]().union(*(roots.get(value, frozenset()) for value in step.inputs))
        for value in filter(None, step.outputs):
            last_read[value] = index
            roots[value] = frozenset([value]) if value in buffers else borrowed
            if value in buffers:
                lives.first[value] = index
    last_read |= dict.fromkeys(plan.outputs, end)
    for value, index in last_read.items():
        for root in roots.get(value, ()):
            lives.last[root] = max(lives.last.get(root, 0), index)
        if value in roots and index < end:
            lives.dead[index].append(value)
    return lives


def place(lives: Lifetimes, sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """An offset for each buffer, such that buffers that live at the same time do not overlap, and
    the size of the whole.

    The best fitting hole of those that are free when the buffer is born; the search is over holes,
    of which there are few.

    Args:
        lives: from `trace`.
        sizes: bytes of each buffer.
    """
    births: dict[int, list[str]] = {}
    deaths: dict[int, list[str]] = {}
    for value, index in lives.first.items():
        if value in sizes:
            births.setdefault(index, []).append(value)
            deaths.setdefault(lives.last[value], []).append(value)
    offsets: dict[str, int] = {}
    holes = _Holes()
    for index in sorted(set(births) | set(deaths)):
        for value in sorted(births.get(index, ()), key=lambda v: -sizes[v]):
            offsets[value] = holes.take(aligned(sizes[value]))
        for value in deaths.get(index, ()):
            holes.give(offsets[value], aligned(sizes[value]))
    return offsets, holes.top


class _Holes:
    """Free ranges below `top`, sorted, never adjacent to each other."""

    def __init__(self) -> None:
        self.top = 0
        self._free: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """Offset of a range of so many bytes: the smallest hole that fits, or new memory (behind a
        hole at the end, if there is one).
        """
        if size == 0:
            return 0
        fitting = [(length, offset) for offset, length in self._free if length >= size]
        if fitting:
            length, offset = min(fitting)
            place = self._free.index((offset, length))
            self._free[place : place + 1] = (
                [(offset + size, length - size)] if length > size else []
            )
            return offset
        offset = self.top
        if self._free and sum(self._free[-1]) == self.top:
            offset, _ = self._free.pop()
        self.top = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Frees a range."""
        if size == 0:
            return
        before = [(o, n) for o, n in self._free if o < offset]
        after = [(o, n) for o, n in self._free if o > offset]
        if before and sum(before[-1]) == offset:
            previous, length = before.pop()
            offset, size = previous, size + length
        if after and offset + size == after[0][0]:
            size += after.pop(0)[1]
        self._free = [*before, (offset, size), *after]
