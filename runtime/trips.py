"""Runs of a plan one after the other, as a Loop and a Scan want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.ops.spec import Array


@dataclass(frozen=True)
class Trips:
    """What the body of a Loop or a Scan is run for; what it takes and gives in which order, `Bodies`
    says.

    Attributes:
        front: of a Loop the number of the first trip, 0, and the condition in front of it; else none.
        states: what the first trip is given.
        sources: each trip is given a row of each.
        same: what all trips are given.
        most: how many trips at most.
        taken: is told in front of so many trips; may refuse them.
        where: the step, for messages.
    """

    front: Sequence[Array]
    states: Sequence[Array]
    sources: Sequence[Array]
    same: Sequence[Array]
    most: int
    taken: Callable[[int], None]
    where: str

    @property
    def has_condition(self) -> bool:
        """Whether a trip gives a condition in front of what it hands on."""
        return bool(self.front)

    def given(self, number: int, states: Sequence[Array]) -> list[Array]:
        """What a trip is given, in the order of the body's inputs; the condition holds."""
        front = [
            np.full_like(array, number if k == 0 else True) for k, array in enumerate(self.front)
        ]
        return [*front, *states, *(source[number, ...] for source in self.sources), *self.same]


@dataclass(frozen=True)
class TripsDone:
    """What is left behind the trips: the caller's own arrays.

    Attributes:
        states: of the last one.
        rows: of all, stacked.
    """

    states: list[Array]
    rows: list[Array]
