"""Rows that permute, join, copy and repeat: Transpose, Concat, Split, Expand, Tile, DepthToSpace,
SpaceToDepth, Shuffle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import Dim, Quantization, Shape
from . import dims
from .broadcasting import broadcast_shapes
from .carried import beside_axis, where_size_stays
from .rows import LAYOUT, A, Call, UnknownRankError, integer, integers, row, text, unknown
from .spec import REQUIRED, Attrs, Effort, OpSpec, ShapeError, Trait


def permutation(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """The axis of x that each axis of a Transpose's result is: in reverse order without `perm`.

    Raises:
        ShapeError: `perm` does not name each axis once.
    """
    perm = integers(attrs, "perm") or tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise ShapeError(f"perm must order the {rank} dimensions, found {list(perm)}")
    return perm


def _transpose_shape(call: Call) -> Shape:
    x = call.shape(0)
    return tuple(x[axis] for axis in permutation(call.attrs, len(x)))


def _transpose_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    known = shape is not None
    perm = permutation(call.attrs, len(shape or ())) if known else integers(call.attrs, "perm")
    return perm.index(axis) if axis in perm else None


def _concat_shape(call: Call) -> Shape:
    first = call.at_least(0, 1)
    axis = call.along(len(first))
    result = list(first)
    for index in range(1, len(call.types)):
        shape = call.rank(index, len(first))
        for a, dim in enumerate(shape):
            if a == axis:
                result[a] = dims.add(result[a], dim)
            elif dims.differ(result[a], dim):
                raise ShapeError(
                    f"all inputs must agree outside of dimension {axis}: {call.type(0)}, {call.type(index)}"
                )
            elif isinstance(dim, int):
                result[a] = dim
    return tuple(result)


def _concat(*arrays: Any) -> A:
    *values, attrs = arrays
    return np.concatenate(values, axis=integer(attrs, "axis"))


def _concat_quant(call: Call, shape: Shape | None) -> Quantization | None:
    # What all inputs have in common, unless it runs along the axis that they are joined along.
    quants = {t.quant for t in call.types if t is not None}
    quant = quants.pop() if len(quants) == 1 else None
    axis = integer(call.attrs, "axis") % max(len(shape or ()), 1)
    return None if quant is not None and quant.axis == axis else quant


# -- Split -----------------------------------------------------------------------------------------


def _pieces(size: Dim, count: int) -> list[Dim]:
    """Sizes of `count` pieces: equal ones, rounded up, and what is left in the last."""
    piece = dims.ceil_div(size, count)
    return [piece] * (count - 1) + [dims.subtract(size, dims.multiply(piece, count - 1))]


def _split_shapes(call: Call) -> list[Shape]:
    count = integer(call.attrs, "num_outputs")
    if call.has(1) == (count > 0):
        raise ShapeError(
            f"either the input split or the attribute num_outputs must be given, found {'both' if count else 'none'}"
        )
    if call.has(1) and call.constant(1) is None:
        (length,) = call.rank(1, 1) if call.type(1).shape is not None else (dims.UNKNOWN,)
        if not isinstance(length, int):
            raise ShapeError(f"the number of pieces must be known, found split {call.type(1)}")
        count = length
    x = call.type(0).shape
    if x is None:
        if not count:
            count = len(call.constant(1) or ())
        raise UnknownRankError(count)
    axis = call.along(len(x))
    constant = call.constant(1) if call.has(1) else None
    if constant is not None:
        sizes: list[Dim] = list(constant)
        if min(constant, default=0) < 0 or dims.differ(sum(constant), x[axis]):
            raise ShapeError(
                f"the pieces {sizes} do not add up to {x[axis]}, dimension {axis} of {call.type(0)}"
            )
    else:
        sizes = [dims.UNKNOWN] * count if call.has(1) else _pieces(x[axis], count)
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise ShapeError(
                f"dimension {axis} of {call.type(0)} cannot be split into {count} pieces"
            )
    return [(*x[:axis], size, *x[axis + 1 :]) for size in sizes]


def _split(x: A, split: A | None, attrs: Attrs) -> tuple[A, ...]:
    axis = integer(attrs, "axis")
    if split is not None:
        sizes = [int(s) for s in split]
        if sum(sizes) != x.shape[axis]:
            raise ValueError(f"the pieces {sizes} do not add up to {x.shape[axis]}")
    else:
        sizes = [int(s) for s in _pieces(x.shape[axis], integer(attrs, "num_outputs"))]
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


# -- copies ----------------------------------------------------------------------------------------


def _expand_shape(call: Call) -> Shape:
    wanted = call.constant(1, lone=False)
    if wanted is not None:
        if min(wanted, default=0) < 0:
            raise ShapeError(f"shape must hold sizes >= 0, found {list(wanted)}")
        return broadcast_shapes([call.shape(0), wanted], "x and shape")
    (count,) = call.rank(1, 1)
    return unknown(max(len(unknown(count)), len(call.shape(0))))


def _expand(x: A, shape: A) -> A:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in shape)))


def _tile_shape(call: Call) -> Shape:
    x, repeats = call.shape(0), call.constant(1, lone=False)
    if repeats is None:
        return unknown(len(x))
    if len(repeats) != len(x) or min(repeats, default=0) < 0:
        raise ShapeError(f"repeats must hold {len(x)} numbers >= 0, found {list(repeats)}")
    return tuple(dims.multiply(d, r) for d, r in zip(x, repeats, strict=True))


def tiled(x: A, repeats: A) -> A:
    """x repeated along each axis.

    Raises:
        ValueError: repeats do not fit x, or one is negative: NumPy gives back memory that nobody
            wrote for some of them.
    """
    if repeats.shape != (x.ndim,) or (repeats < 0).any():
        raise ValueError(f"repeats must hold {x.ndim} numbers >= 0, found {repeats.tolist()}")
    return np.tile(x, tuple(int(r) for r in repeats))


# -- blocks of pixels as channels ------------------------------------------------------------------


def _block(call: Call) -> int:
    size = integer(call.attrs, "blocksize")
    if size < 1:
        raise ShapeError(f"blocksize must be positive, found {size}")
    return size


def _divided(call: Call, axis: int, by: int) -> Dim:
    dim = call.shape(0)[axis]
    if isinstance(dim, int) and dim % by:
        raise ShapeError(f"dimension {axis} of {call.type(0)} cannot be divided by {by}")
    return dims.floor_div(dim, by)


def _depth_to_space_shape(call: Call) -> Shape:
    n, _, h, w = call.rank(0, 4)
    block = _block(call)
    text(call.attrs, "mode", ("CRD", "DCR"))
    return (n, _divided(call, 1, block * block), dims.multiply(h, block), dims.multiply(w, block))


def _depth_to_space(x: A, attrs: Attrs) -> A:
    n, c, h, w = x.shape
    b = integer(attrs, "blocksize")
    rest = c // (b * b)
    if text(attrs, "mode") == "DCR":
        blocks, order = (b, b, rest), (0, 3, 4, 1, 5, 2)
    else:
        blocks, order = (rest, b, b), (0, 1, 4, 2, 5, 3)
    return x.reshape(n, *blocks, h, w).transpose(order).reshape(n, rest, h * b, w * b)


def _space_to_depth_shape(call: Call) -> Shape:
    n, c, _, _ = call.rank(0, 4)
    block = _block(call)
    text(call.attrs, "mode", ("CRD", "DCR"))
    return (n, dims.multiply(c, block * block), _divided(call, 2, block), _divided(call, 3, block))


def _space_to_depth(x: A, attrs: Attrs) -> A:
    n, c, h, w = x.shape
    b = integer(attrs, "blocksize")
    order = (0, 3, 5, 1, 2, 4) if text(attrs, "mode") == "DCR" else (0, 1, 3, 5, 2, 4)
    return (
        x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)
    )


def _expand_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    # Dimensions may come in front; a dimension that grows from 1 has one scale, which is per
    # tensor.
    x = call.shape(0)
    if shape is None:
        return None
    behind = axis + len(shape) - len(x)
    return behind if dims.same(x[axis], shape[behind]) else None


# -- shuffling channels ----------------------------------------------------------------------------


def _shuffle_shape(call: Call) -> Shape:
    x, size = call.shape(0), integer(call.attrs, "group_size")
    length = x[call.along(len(x))]
    if size < 1 or (isinstance(length, int) and length % size):
        raise ShapeError(f"groups of {size} do not fill {call.type(0)}")
    return x


def _shuffle(x: A, attrs: Attrs) -> A:
    axis, size = integer(attrs, "axis") % x.ndim, integer(attrs, "group_size")
    groups = x.reshape(*x.shape[:axis], x.shape[axis] // size, size, *x.shape[axis + 1 :])
    return groups.swapaxes(axis, axis + 1).reshape(x.shape)


MOVEMENT: tuple[OpSpec, ...] = (
    row(
        "Transpose",
        "Dimension i of the result is dimension perm[i] of x; without perm, in reverse order.",
        "x",
        attrs={"perm": ()},
        shape=_transpose_shape,
        compute=lambda x, attrs: x.transpose(permutation(attrs, x.ndim)),
        carries=_transpose_carries,
        traits=LAYOUT,
    ),
    row(
        "Concat",
        "The inputs one after another along an axis.",
        "x:T*",
        attrs={"axis": REQUIRED},
        shape=_concat_shape,
        compute=_concat,
        quant=_concat_quant,
        traits={Trait.JOINS, Trait.KEEPS_ZERO, Trait.READS_CODES},
        primitive="concat",
    ),
    row(
        "Split",
        "x cut along an axis into pieces of the given sizes, or into num_outputs equal ones (the last may be smaller).",
        "x split:L?",
        attrs={"axis": 0, "num_outputs": 0},
        shape=_split_shapes,
        compute=_split,
        carries=beside_axis,
        traits=LAYOUT,
    ),
    row(
        "Expand",
        "x broadcast with a shape.",
        "x shape:L",
        shape=_expand_shape,
        compute=_expand,
        carries=_expand_carries,
        traits=LAYOUT,
    ),
    row(
        "Tile",
        "x repeated along each axis.",
        "x repeats:L",
        shape=_tile_shape,
        compute=tiled,
        carries=where_size_stays,
        traits=LAYOUT,
    ),
    row(
        "DepthToSpace",
        "Channels as blocks of pixels; mode DCR or CRD.",
        "x",
        attrs={"blocksize": REQUIRED, "mode": "DCR"},
        shape=_depth_to_space_shape,
        compute=_depth_to_space,
        carries=where_size_stays,
        traits=LAYOUT,
        effort=Effort.LOOPS,
    ),
    row(
        "SpaceToDepth",
        "Blocks of pixels as channels; mode DCR or CRD.",
        "x",
        attrs={"blocksize": REQUIRED, "mode": "DCR"},
        shape=_space_to_depth_shape,
        compute=_space_to_depth,
        carries=where_size_stays,
        traits=LAYOUT,
    ),
    row(
        "Shuffle",
        "The groups of `group_size` along an axis side by side: element i of group j comes to place i * (number of groups) + j.",
        "x",
        attrs={"axis": REQUIRED, "group_size": REQUIRED},
        shape=_shuffle_shape,
        compute=_shuffle,
        carries=beside_axis,
        traits=LAYOUT,
        onnx=False,
        primitive="shuffle",
    ),
)
