"""Parts of an output that are of another size than the rest, or constant: what one figure for the whole hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from .measures import Floats, Measure, unmasked

_MOST = 4096  # channels: an axis of more is one of positions
_GROUPS = 8  # parts: more tell no story
_APART = 10.0  # between the largest numbers of two parts
_ENOUGH = 8  # entries of a channel, below which a constant says nothing
_DEAD = 10.0  # dB: a constant that is as close to f32 as this stands for it


@dataclass(frozen=True)
class Part:
    """Channels of an output next to each other.

    Attributes:
        axis: 1, or the last one: -1.
        first, last: its first and its last channel.
        measure: of these alone.
        constant: what all entries are where f32's differ and are far from it; None where they are not.
        low, high: between which f32's entries lie.
    """

    axis: int
    first: int
    last: int
    measure: Measure
    constant: float | None
    low: float
    high: float

    @property
    def name(self) -> str:
        """As people call it."""
        one, many = ("channel", "channels") if self.axis == 1 else ("column", "columns")
        if self.first == self.last:
            return f"{one} {self.first:,}"
        return f"{many} {self.first:,} to {self.last:,}"


class Whole(Measure):
    """The sums of a whole output, and those of its channels along axis 1 and the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self._along: dict[int, _Channels | None] = {}

    def add(self, f32: Floats, found: Floats) -> None:
        """Takes one sample more: arrays of one shape."""
        super().add(f32, found)
        keep = unmasked(f32)
        for axis in {1: 1, f32.ndim - 1: -1}.values() if f32.ndim > 1 and f32.size else ():
            size = f32.shape[axis]
            fits = 1 < size <= _MOST
            known = self._along.setdefault(axis, _Channels(size) if fits else None)
            if known is None or known.size != size:
                self._along[axis] = None
                continue
            wanted, other = (np.moveaxis(each, axis, 0).reshape(size, -1) for each in (f32, found))
            kept = None if keep is None else np.moveaxis(keep, axis, 0).reshape(size, -1)
            known.add(wanted, other, kept)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Those of the axis with fewer of them; none where all channels are alike."""
        every = (
            channels.parts(axis) for axis, channels in self._along.items() if channels is not None
        )
        return min((found for found in every if len(found) > 1), key=len, default=())

    @property
    def dead(self) -> list[Part]:
        """The parts that are constant and not what f32 has."""
        return [part for part in self.parts if part.constant is not None]

    @property
    def least(self) -> float:
        """The smallest SQNR of the whole or a part, in dB."""
        return min(self.sqnr, *(part.measure.sqnr for part in self.parts), math.inf)


class _Channels:
    """Sums of each channel, as those of a `Measure`, and its smallest and largest entry in f32 and in the other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._sums = np.zeros((6, size))
        self._largest = np.zeros(size)
        self._ends = np.tile([[np.inf], [-np.inf]] * 2, size)

    def add(self, f32: Floats, found: Floats, kept: Floats | None) -> None:
        """Takes one sample more: [channels, entries]."""
        finite = np.isfinite(f32) & np.isfinite(found)
        fine = finite if kept is None else finite & kept
        same = finite | (f32 == found) | (np.isnan(f32) & np.isnan(found))
        broken = ~same if kept is None else ~same & kept
        a, b = (np.where(fine, each, 0).astype(np.float64) for each in (f32, found))
        sums = (a * a, (a - b) ** 2, a * b, b * b, fine, broken)
        self._sums += [each.sum(axis=1) for each in sums]
        self._largest = np.maximum(self._largest, np.abs(a - b).max(axis=1, initial=0))
        for place, each in enumerate((f32, found)):
            for end, pick in enumerate((np.minimum, np.maximum)):
                edge = self._ends[2 * place + end]
                pick(
                    edge, pick.reduce(each, 1, where=fine, initial=(np.inf, -np.inf)[end]), out=edge
                )

    def parts(self, axis: int) -> tuple[Part, ...]:
        """Channels next to each other whose largest numbers are alike; those that are constant apart."""
        sizes = _groups_of(np.abs(self._ends[:2]).max(axis=0).tolist())
        keys = [(size, self._constant(index)) for index, size in enumerate(sizes)]
        groups = [[index for index, _ in each] for _, each in groupby(enumerate(keys), _second)]
        return tuple(self._part(axis, group) for group in groups) if len(groups) <= _GROUPS else ()

    def _constant(self, index: int) -> float | None:
        low, high, least, most = self._ends[:, index]
        measure = self._measure([index])
        if measure.entries < _ENOUGH or least != most or low == high or measure.sqnr > _DEAD:
            return None
        return float(least)

    def _measure(self, group: Sequence[int]) -> Measure:
        signal, noise, product, other, entries, broken = self._sums[:, group].sum(axis=1).tolist()
        largest = float(self._largest[group].max())
        return Measure(signal, noise, product, other, largest, int(entries), broken=int(broken))

    def _part(self, axis: int, group: Sequence[int]) -> Part:
        low, high = float(self._ends[0, group].min()), float(self._ends[1, group].max())
        constant = self._constant(group[0])
        return Part(axis, group[0], group[-1], self._measure(group), constant, low, high)


def _second(pair: tuple[int, object]) -> object:
    return pair[1]


def _groups_of(largest: Sequence[float]) -> list[int]:
    """The number of each channel's group; one of zeros is like any other."""
    found, anchor, group = [], 0.0, 0
    for size in largest:
        if anchor and size and not anchor / _APART <= size <= anchor * _APART:
            group, anchor = group + 1, size
        anchor = anchor or size
        found.append(group)
    return found if group < _GROUPS else [0] * len(found)
