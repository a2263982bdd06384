"""Constants for the inputs that say a shape: where what they hold is known at import, the output
gets a shape.

The arithmetic that computed them stays in the graph; where nothing reads it any more, it is dead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..ir.ops import dims
from ..ir.ops.spec import Attr
from ..ir.types import Dim, Shape

Emission = tuple[str, list[str], dict[str, Attr]]
"""Op, inputs and attributes of a node that is about to be added."""

_REDUCE: Final = (
    "L1",
    "L2",
    "LogSum",
    "LogSumExp",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Sum",
    "SumSquare",
)

SHAPE_INPUTS: Final[Mapping[str, tuple[int, ...]]] = {
    **{f"Reduce{kind}": (1,) for kind in _REDUCE},
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
}
"""op -> the inputs that its output's shape depends on."""

_NO_END: Final = int(np.iinfo(np.int64).max)


def reshape_target(
    shape: Shape, target: Sequence[Dim], attrs: Mapping[str, Attr]
) -> list[int] | None:
    """A constant target of Reshape, without allowzero, that means the same as one with symbolic entries, None
    when there is none.

    An entry that equals the input's dimension at its place becomes 0 (copy), and one that is left
    becomes -1 (infer). With allowzero a size may be 0 in a run: a 0 in the target has no such form then, nor has
    an entry that is left beside another one that may be 0, since nothing is inferred from no elements.
    """
    may_be_none = bool(attrs.get("allowzero", 0))
    if may_be_none and 0 in target:
        return None
    result: list[int] = []
    for place, size in enumerate(target):
        if isinstance(size, int):
            result.append(size)
        elif place < len(shape) and dims.same(size, shape[place]):
            result.append(0)
        elif (
            -1 in target
            or -1 in result
            or (
                may_be_none
                and any(not isinstance(t, int) for t in (*target[:place], *target[place + 1 :]))
            )
        ):
            return None
        else:
            result.append(-1)
    return result


def expand_is_identity(shape: Shape, target: Sequence[Dim]) -> bool:
    """True when Expand to `target` surely changes nothing."""
    short = len(shape) - len(target)
    return short >= 0 and all(
        t == 1 or dims.same(s, t) for s, t in zip(shape[short:], target, strict=True)
    )


def expand_target(shape: Shape, target: Sequence[Dim]) -> list[int] | None:
    """A constant target of Expand that means the same as one with symbolic entries, None when there is
    none: a size that the input has already is as good as 1.
    """
    result: list[int] = []
    for place, size in enumerate(target, len(shape) - len(target)):
        if isinstance(size, int):
            result.append(size)
        elif place >= 0 and dims.same(size, shape[place]):
            result.append(1)
        else:
            return None
    return result


def resize_axes(shape: Shape, sizes: Sequence[Dim]) -> tuple[list[int], list[int]] | None:
    """(axes, sizes) of a Resize whose other dimensions keep their size; None when a changed size is
    not a number.
    """
    if len(sizes) != len(shape):
        return None
    changed = [
        axis
        for axis, (before, after) in enumerate(zip(shape, sizes, strict=True))
        if not dims.same(before, after)
    ]
    new = [size for axis in changed for size in (sizes[axis],) if isinstance(size, int)]
    return (changed, new) if changed and len(new) == len(changed) else None


def slice_ends(shape: Shape, ends: Sequence[Dim], axes: Sequence[int] | None) -> list[int] | None:
    """Ends of a Slice as numbers: one that equals its dimension means no end. None when one is not
    known.
    """
    places = list(range(len(ends))) if axes is None else list(axes)
    if len(places) != len(ends) or any(not -len(shape) <= place < len(shape) for place in places):
        return None
    result = [
        end if isinstance(end, int) else _NO_END if dims.same(shape[place], end) else None
        for place, end in zip(places, ends, strict=True)
    ]
    found = [end for end in result if end is not None]
    return found if len(found) == len(result) else None
