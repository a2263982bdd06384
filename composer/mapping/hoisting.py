"""Moving scales and shifts to where they cost nothing: into the front, or to a factor that
multiplies anyway.

A chain is taken in operation by operation. What stays is a list on which each further scale or
shift is moved forward, one place at a time, by the rules of `algebra.COMMUTING`. So each operation
costs one walk over what stayed, at most, and a chain that begins like
the one before it goes on from where they part (`Fold`): growing a chain by one operation looks at
that operation alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ...ir.rule import Refusal
from ..formula.algebra import COMMUTING, does_nothing, merged
from ..formula.formula import BasicOp, ScaleBy, Shift
from .composed import Front
from .cost import Home
from .folding import FOLDING
from .homes import folding

__all__ = ["Fold", "Hoisted", "Hoister", "commute", "join"]

State = TypeVar("State")
Item = TypeVar("Item")


class Fold(Generic[Item, State]):
    """A left fold that remembers the state behind each item, and starts behind those that it was
    called with before.
    """

    def __init__(self, start: State, step: Callable[[State, Item], State]) -> None:
        self._step = step
        self._items: list[Item] = []
        self._states = [start]

    def __call__(self, items: Sequence[Item]) -> State:
        """The state behind the last item."""
        same = 0
        for known, item in zip(self._items, items, strict=False):
            if known is not item and not _alike(known, item):
                break
            same += 1
        del self._items[same:]
        del self._states[same + 1 :]
        for item in items[same:]:
            self._states.append(self._step(self._states[-1], item))
            self._items.append(item)
        return self._states[-1]


def _alike(a: object, b: object) -> bool:
    """True of operations that are written twice but mean the same."""
    if isinstance(a, ScaleBy | Shift) and isinstance(b, ScaleBy | Shift):
        return type(a) is type(b) and np.array_equal(a.values, b.values)
    return a == b


@dataclass(frozen=True, eq=False)
class Hoisted:
    """A chain whose scales and shifts have moved.

    Attributes:
        ops: what stayed.
        reasons: for each of them why it could not move into the front, '' where nothing is to be
            said.
        front: with what was folded into it.
        gap: what stood behind the last operation has moved, so that a simplifying rule may fire
            between it and the next.
        folded: the homes of each scale and shift that went into the front, the front itself first.
    """

    ops: tuple[BasicOp, ...]
    reasons: tuple[str, ...]
    front: Front
    gap: bool = False
    folded: tuple[tuple[Home, ...], ...] = ()


class Hoister:
    """Moves scales and shifts of simplified chains: those that can reach the front into its scale
    and bias, others to where they join.
    """

    def __init__(self, front: Front) -> None:
        self._fold: Fold[BasicOp, Hoisted] = Fold(Hoisted((), (), front), self._behind)

    def __call__(self, ops: Sequence[BasicOp]) -> Hoisted:
        """What becomes of a simplified chain."""
        return self._fold(ops)

    @staticmethod
    def _behind(before: Hoisted, op: BasicOp) -> Hoisted:
        work = _Work(
            list(before.ops), list(before.reasons), before.front, before.gap, before.folded
        )
        work.take(op)
        return Hoisted(tuple(work.ops), tuple(work.reasons), work.front, work.gap, work.folded)


@dataclass
class _Work:
    """A `Hoisted` in the making."""

    ops: list[BasicOp]
    reasons: list[str]
    front: Front
    gap: bool
    folded: tuple[tuple[Home, ...], ...]

    def take(self, op: BasicOp) -> None:
        """Takes an operation in behind the others."""
        pending, gap, self.gap = [op], self.gap, False
        while pending:
            op = pending.pop()
            if (gap or self.gap) and self._merges(op, pending):
                continue
            gap = False
            self._place(op, pending)

    def _merges(self, op: BasicOp, pending: list[BasicOp]) -> bool:
        """True when a simplifying rule fires between the last operation and this one; what they
        become joins the pending ones.
        """
        if not self.ops:
            return does_nothing(op)
        both = merged(self.ops[-1], op)
        if both is None:
            return False
        self.ops.pop()
        self.reasons.pop()
        pending.extend(reversed(both))
        self.gap = True
        return True

    def _place(self, op: BasicOp, pending: list[BasicOp]) -> None:
        """Gives an operation its place; what must be looked at again joins the pending ones."""
        if not isinstance(op, ScaleBy | Shift):
            self._keep(op, "")
            return
        chain = [*self.ops, op]
        moved = commute(chain, len(self.ops))
        if isinstance(moved, list):
            reason = self._into_front(moved[0])
            if reason is None:
                self.ops, self.gap = moved[1:], True
                return
        else:
            reason = _text(moved)
        joined = join(chain, len(self.ops))
        if joined is None:
            self._keep(op, reason)
            return
        found, place = joined
        self.gap = True
        if len(found) == len(chain):  # it stands in front of a shift now
            self.ops = found
            self.reasons.insert(place, reason)
        else:  # the joint one may go where neither could
            self.ops = found[:place]
            del self.reasons[place:]
            pending.extend(reversed(found[place:]))

    def _keep(self, op: BasicOp, reason: str) -> None:
        self.ops.append(op)
        self.reasons.append(reason)

    def _into_front(self, first: BasicOp) -> str | None:
        """None when the cheapest home of the first operation is the front, which has it now; else
        why that may not take it.
        """
        assert isinstance(first, ScaleBy | Shift)
        found = next(
            made for rule in FOLDING if (made := rule.apply(self.front, first)) is not None
        )
        homes = folding(first, _text(found) if isinstance(found, Refusal) else "")
        if isinstance(found, Front) and homes[0].name == "folded":
            self.front, self.folded = found, (*self.folded, homes)
            return None
        return homes[-1].why_not


def _text(refusal: Refusal | None) -> str:
    return "" if refusal is None else f"{refusal.reason}: {refusal.found}"


def commute(ops: Sequence[BasicOp], index: int) -> list[BasicOp] | Refusal | None:
    """The chain with the scale or shift at `index` moved to the front, or why it cannot get there.

    None: an operation in between has no rule for it (nothing that a user could change).
    """
    moved = list(ops)
    for place in range(index, 0, -1):
        swapped = _swapped(moved[place - 1], moved[place])
        if not isinstance(swapped, tuple):
            return swapped
        moved[place - 1 : place + 1] = swapped
    return moved


def join(ops: Sequence[BasicOp], index: int) -> tuple[list[BasicOp], int] | None:
    """The chain with the scale or shift at `index` moved forward to where it costs no post-op, and
    its place; None where none is such.

    A scale joins a scale, or stands in front of a scalar shift, for a linear computes both; a shift
    joins a shift. The farthest such place that it can reach is taken.
    """
    moved, found = list(ops), None
    for place in range(index, 0, -1):
        before, op = moved[place - 1], moved[place]
        if type(before) is type(op):
            both = merged(before, op)
            return (
                found
                if both is None
                else ([*moved[: place - 1], *both, *moved[place + 1 :]], place - 1)
            )
        swapped = _swapped(before, op)
        if not isinstance(swapped, tuple):
            break
        moved[place - 1 : place + 1] = swapped
        passed = moved[place]
        last = place == 1 or not isinstance(moved[place - 2], ScaleBy)
        if (
            isinstance(op, ScaleBy)
            and isinstance(passed, Shift)
            and last
            and op.values.size == passed.values.size == 1
        ):
            found = (list(moved), place - 1)
    return found


def _swapped(a: BasicOp, b: BasicOp) -> tuple[BasicOp, ...] | Refusal | None:
    """Two neighbours with the second, a scale or shift, in front; or why it stays, as far as there
    is a rule for them.
    """
    for rule in COMMUTING:
        found = rule.apply(a, b)
        if isinstance(found, tuple):
            return found if len(found) == 2 and isinstance(found[0], ScaleBy | Shift) else None
        if found is not None:
            return found
    return None
