"""Which positions a Slice or a Gather reads along one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ir.graph import Graph
from ..ir.node import Node
from ..ir.types import Dim

_LAST = 2**62
"""An end behind the last position, whatever the size."""


@dataclass(frozen=True)
class Cut:
    """What a slice reads along an axis: positions start, start + step ... in front of end."""

    axis: int
    start: int
    end: int
    step: int = 1

    @property
    def positions(self) -> slice:
        """The positions, as Python writes them."""
        return slice(self.start, self.end, self.step)

    def spares(self, dim: Dim) -> bool:
        """True when half of the positions at least are not read, or all but one of an unknown
        number.
        """
        if isinstance(dim, int):
            return 0 < 2 * len(range(*self.positions.indices(dim))) <= dim
        # exporters write the largest number of 32 or 64 bits for the end
        end = 0 if self.start < 0 and self.end >= np.iinfo(np.int32).max else self.end
        return (end <= 0) == (self.start < 0) and end - self.start == 1


def cut_of(graph: Graph, node: Node) -> Cut | None:
    """The cut of a Slice along one axis, or of a Gather of one position, where it is constant."""
    shape = graph.type(node.input).shape
    given = [graph.constant(value) for value in node.inputs[1:] if value]
    if shape is None or not all(data is not None and data.size == 1 for data in given):
        return None
    if any(data is not None and data.ndim > 1 for data in given):  # a Gather that adds axes
        return None
    numbers = [int(data.item()) for data in given if data is not None]
    if node.op == "Gather":
        return Cut(node.attr("axis", int) % len(shape), numbers[0], numbers[0] + 1 or _LAST)
    if len(numbers) != len(node.inputs) - 1:
        return None
    start, end, axis, step = (*numbers, *(0, 1)[len(numbers) - 2 :])
    return Cut(axis % len(shape), start, end, step) if step > 0 else None
