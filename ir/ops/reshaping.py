"""Rows that give the same elements in the same order another shape: Reshape, Flatten, Squeeze,
Unsqueeze.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from ..types import Dim, Shape, dimensions
from . import dims
from .carried import reshaped
from .rows import LAYOUT, A, Call, UnknownRankError, flag, integer, row, unknown
from .spec import Attrs, Effort, OpSpec, ShapeError, Trait


def _reshape_shape(call: Call) -> Shape:
    wanted = call.constant(1, lone=False)
    (count,) = call.rank(1, 1)
    if wanted is None:
        return unknown(count)
    if call.type(0).shape is None:
        return tuple(d if d > 0 else dims.UNKNOWN for d in wanted)
    x, keep_zero = call.shape(0), flag(call.attrs, "allowzero")
    result: list[Dim] = []
    for axis, dim in enumerate(wanted):
        if dim == 0 and not keep_zero:
            if axis >= len(x):
                raise ShapeError(
                    f"shape {list(wanted)} copies dimension {axis}, which {call.type(0)} has not"
                )
            result.append(x[axis])
        elif dim < -1:
            raise ShapeError(f"shape must hold sizes, 0 or -1, found {list(wanted)}")
        else:
            result.append(dim)
    if wanted.count(-1) > 1:
        raise ShapeError(f"shape may hold -1 once, found {list(wanted)}")
    copied = (
        frozenset() if keep_zero else frozenset(axis for axis, dim in enumerate(wanted) if dim == 0)
    )
    return _with_inferred(call, tuple(result), wanted.index(-1) if -1 in wanted else None, copied)


def _with_inferred(
    call: Call, shape: Shape, inferred: int | None, copied: Collection[int]
) -> Shape:
    """The shape with its -1 (at index `inferred`) replaced by what is left of the elements.

    Dimensions that are copied say nothing about it: they are left out on both sides, so that one of
    size 0 leaves an answer.
    """
    if inferred is None:
        total = dims.product(call.shape(0))
        if dims.differ(dims.product(shape), total):
            raise ShapeError(
                f"{call.type(0)} has {total} elements, the new shape {list(shape)} has {dims.product(shape)}"
            )
        return shape
    total = dims.product(d for axis, d in enumerate(call.shape(0)) if axis not in copied)
    rest = dims.product(
        d for axis, d in enumerate(shape) if axis != inferred and axis not in copied
    )
    if rest == 0:
        raise ShapeError(f"-1 in a shape with no elements says nothing: {list(shape)}")
    size = dims.floor_div(total, rest)
    if isinstance(size, int) and dims.differ(dims.multiply(size, rest), total):
        raise ShapeError(
            f"{dims.product(call.shape(0))} elements of {call.type(0)} cannot be split into {list(shape)}"
        )
    return (*shape[:inferred], size, *shape[inferred + 1 :])


def _reshape(x: A, shape: A, attrs: Attrs) -> A:
    wanted = [int(d) for d in shape]
    copied = (
        () if flag(attrs, "allowzero") else tuple(axis for axis, d in enumerate(wanted) if d == 0)
    )
    for axis in copied:
        wanted[axis] = x.shape[axis]
    if copied and -1 in wanted:  # NumPy infers nothing where a copied dimension is 0
        rest = math.prod(d for axis, d in enumerate(wanted) if d != -1 and axis not in copied)
        if rest:
            wanted[wanted.index(-1)] = (
                math.prod(d for axis, d in enumerate(x.shape) if axis not in copied) // rest
            )
    return x.reshape(wanted)


def _flatten_axis(axis: int, rank: int) -> int:
    if not -rank <= axis <= rank:
        raise ShapeError(f"axis {axis} is out of range for {dimensions(rank)}")
    return axis + rank if axis < 0 else axis


def _flatten_shape(call: Call) -> Shape:
    x = call.shape(0)
    axis = _flatten_axis(integer(call.attrs, "axis"), len(x))
    return (dims.product(x[:axis]), dims.product(x[axis:]))


def _flatten(x: A, attrs: Attrs) -> A:
    axis = _flatten_axis(integer(attrs, "axis"), x.ndim)
    return x.reshape(
        int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64))
    )


def _axes(call: Call, rank: int) -> tuple[int, ...] | None:
    found = call.constant(1)
    return None if found is None else call.axes(found, rank)


def _squeeze_shape(call: Call) -> Shape:
    x, axes = call.shape(0), None
    if call.has(1):
        (count,) = call.rank(1, 1)
        if isinstance(count, int) and count > len(x):
            raise ShapeError(
                f"{count} axes cannot be squeezed, {call.type(0)} has {dimensions(len(x))}"
            )
        axes = _axes(call, len(x))
        if axes is None:
            return unknown(dims.subtract(len(x), count))
    elif any(not isinstance(d, int) for d in x):
        raise UnknownRankError  # which of the symbolic dimensions are 1 is not known
    chosen = axes if axes is not None else tuple(a for a, d in enumerate(x) if d == 1)
    for axis in chosen:
        if dims.differ(x[axis], 1):
            raise ShapeError(
                f"only dimensions of size 1 can be squeezed, dimension {axis} of {call.type(0)} is not"
            )
    return tuple(d for a, d in enumerate(x) if a not in chosen)


def _squeeze(x: A, axes: A | None) -> A:
    return np.squeeze(x, None if axes is None else tuple(int(a) for a in axes.ravel()))


def _unsqueeze_shape(call: Call) -> Shape:
    # ONNX wants a list; the bodies of its own functions give a lone number too, and ONNX Runtime
    # takes it.
    x, (count,) = call.shape(0), call.rank(1, (0, 1)) or (1,)
    if not isinstance(count, int):
        raise UnknownRankError
    axes = _axes(call, len(x) + count)
    if axes is None:
        return unknown(len(x) + count)
    rest = iter(x)
    return tuple(1 if axis in axes else next(rest) for axis in range(len(x) + count))


def _unsqueeze(x: A, axes: A) -> A:
    return np.expand_dims(x, tuple(int(a) for a in axes.ravel()))


_RESHAPES = LAYOUT | {Trait.RESHAPES}

RESHAPING: tuple[OpSpec, ...] = (
    row(
        "Reshape",
        "The elements in order, in another shape; 0 copies a dimension (not with allowzero), -1 takes what is left.",
        "x shape:L",
        attrs={"allowzero": 0},
        shape=_reshape_shape,
        compute=_reshape,
        carries=reshaped,
        traits=_RESHAPES,
        effort=Effort.NONE,
    ),
    row(
        "Flatten",
        "A matrix: the dimensions before `axis` as rows, the others as columns.",
        "x",
        attrs={"axis": 1},
        shape=_flatten_shape,
        compute=_flatten,
        carries=reshaped,
        traits=_RESHAPES,
        effort=Effort.NONE,
    ),
    row(
        "Squeeze",
        "x without the given dimensions of size 1 (without all of them when no axes are given).",
        "x axes:I?",
        shape=_squeeze_shape,
        compute=_squeeze,
        carries=reshaped,
        traits=_RESHAPES,
        effort=Effort.NONE,
    ),
    row(
        "Unsqueeze",
        "x with dimensions of size 1 put in at the given axes of the result.",
        "x axes:I",
        shape=_unsqueeze_shape,
        compute=_unsqueeze,
        carries=reshaped,
        traits=_RESHAPES,
        effort=Effort.NONE,
    ),
)
