"""How the axis of a quantization survives ops that only move elements: `carries` of a row.

Per-tensor parameters always do. Those along an axis follow the axis; where an op leaves no axis
that the entries run along in their order, the quantization is dropped from the type (no error: the
codes stay right, only the type no longer says what they mean).
"""

from __future__ import annotations

from ..types import Shape
from . import dims
from .rows import Call, integer


def axis_stays(call: Call, axis: int, shape: Shape | None) -> int:  # noqa: ARG001
    """The same axis."""
    return axis


def where_size_stays(call: Call, axis: int, shape: Shape | None) -> int | None:
    """The same axis, if it keeps its size: for ops that leave an axis alone or change its size."""
    before = call.shape(0)
    if shape is None or len(shape) != len(before):
        return None
    return axis if dims.same(before[axis], shape[axis]) else None


def beside_axis(call: Call, axis: int, shape: Shape | None) -> int | None:
    """The same axis, unless the op moves or drops elements along it: it is the attribute `axis`."""
    moved = integer(call.attrs, "axis") % max(len(call.shape(0)), 1)
    return None if axis == moved else where_size_stays(call, axis, shape)


def reshaped(call: Call, axis: int, shape: Shape | None) -> int | None:
    """After a reshape (same elements, same order): the axis that has the old one's size and as many
    elements before it.
    """
    before = call.shape(0)
    outer, size = dims.product(before[:axis]), before[axis]
    for place, dim in enumerate(shape or ()):
        if dims.same(dim, size) and dims.same(dims.product((shape or ())[:place]), outer):
            return place
    return None
