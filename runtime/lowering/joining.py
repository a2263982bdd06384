"""Several dimensions of a plan as one dimension of a primitive: kernels broadcast along few
dimensions, in few patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...onednn.memory import MemoryDesc

Groups = tuple[tuple[int, ...], ...]
"""Each dimension of a primitive: the axes of the plan's tensor that it joins, neighbours all; none:
a dimension of length 1.
"""


@dataclass(frozen=True)
class Frame:
    """The destination as the primitive sees it.

    Attributes:
        plan: its shape in the plan.
        dims: its shape in the primitive.
        operand: the shape of a post-op's operand in the primitive, from its shape in the plan (of
            dst's rank); None where it has none.
        like: a descriptor of the destination with the layout that operands should have.
        written_out: operands of binary post-ops that are broadcast beforehand.
    """

    plan: tuple[int, ...]
    dims: tuple[int, ...]
    operand: Callable[[tuple[int, ...]], tuple[int, ...] | None]
    like: MemoryDesc
    written_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Way:
    """One way to see a step.

    Attributes:
        groups: the dimensions of the primitive.
        written_out: constant operands to broadcast beforehand.
    """

    groups: Groups
    written_out: frozenset[str] = frozenset()


def wide(dims: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The shape with ones in front, up to a rank."""
    return (1,) * (rank - len(dims)) + dims


def alike(one: int, other: int, shapes: Sequence[Sequence[int]]) -> bool:
    """True where each of the shapes has length 1 along both axes, or along none of them."""
    return all((shape[one] == 1) == (shape[other] == 1) for shape in shapes)


def join_axes(dims: Sequence[int], shapes: Sequence[Sequence[int]]) -> Groups:
    """Axes joined as far as all arguments vary along both of two neighbours or along none; those of
    length 1 are left out.

    Args:
        dims: the whole shape.
        shapes: the arguments' shapes, of the same rank.
    """
    groups: list[list[int]] = []
    for axis, size in enumerate(dims):
        if size == 1:
            continue
        if groups and alike(groups[-1][-1], axis, shapes):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


def joined(shape: Sequence[int], groups: Groups) -> tuple[int, ...]:
    """Lengths of the joined dimensions."""
    return tuple(math.prod(shape[axis] for axis in group) for group in groups)


def joined_frame(
    dims: tuple[int, ...], groups: Groups, like: MemoryDesc, written_out: frozenset[str]
) -> Frame:
    """The destination as a primitive sees it; operands must run along all axes of a joined
    dimension, or along none.

    Args:
        dims: its shape in the plan.
        groups: the dimensions in the primitive.
        like: the destination there.
        written_out: constant operands of post-ops to broadcast beforehand.
    """
    full = joined(dims, groups)

    def operand(shape: tuple[int, ...]) -> tuple[int, ...] | None:
        found = joined(shape, groups)
        fits = all(size in (1, whole) for size, whole in zip(found, full, strict=True))
        return found if fits else None

    return Frame(dims, full, operand, like, written_out)
