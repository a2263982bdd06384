"""Layouts by what is wanted: row-major, channels last, as another tensor lies, the same bytes under
another shape, a box of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .capi import OneDnnError
from .enums import DataType
from .library import Library
from .memory import MemoryDesc
from .strides import agree, channels_last_strides, row_major_strides


def row_major(library: Library, dims: Sequence[int], dtype: DataType) -> MemoryDesc:
    """The dense row-major layout (a 0-d shape becomes [1])."""
    shape = tuple(dims) or (1,)
    return MemoryDesc.with_strides(library, shape, dtype, row_major_strides(shape))


def channels_last(library: Library, dims: Sequence[int], dtype: DataType) -> MemoryDesc:
    """The dense layout whose innermost dimension is 1: nwc, nhwc, ndhwc."""
    return MemoryDesc.with_strides(library, dims, dtype, channels_last_strides(tuple(dims)))


def innermost(library: Library, dims: Sequence[int], dtype: DataType, axis: int) -> MemoryDesc:
    """The dense layout whose innermost dimension is `axis`, the others in their order around it."""
    order = [*(at for at in range(len(dims)) if at != axis), axis]
    strides = row_major_strides(tuple(dims[at] for at in order))
    placed = dict(zip(order, strides, strict=True))
    return MemoryDesc.with_strides(library, dims, dtype, [placed[at] for at in range(len(dims))])


def relaid(desc: MemoryDesc, dims: Sequence[int], dtype: DataType) -> MemoryDesc | None:
    """Shape and type given, dense, with the order of dimensions that a plain layout of the same
    rank has; None where it has none.
    """
    if not desc.is_plain or len(dims) != len(desc.dims):
        return None
    if tuple(dims) == desc.dims:
        # Implementations read meaning into the strides of dimensions of length 1, too.
        return (
            MemoryDesc.with_strides(desc.library, dims, dtype, desc.strides)
            if _is_dense(desc)
            else None
        )
    steps = [0] * len(dims)
    step = 1
    for axis in reversed(_order(desc)):
        steps[axis] = step
        step *= max(dims[axis], 1)
    return MemoryDesc.with_strides(desc.library, dims, dtype, steps)


def _is_dense(desc: MemoryDesc) -> bool:
    """True where the elements lie without gaps."""
    sizes = sorted(
        (step, length) for length, step in zip(desc.dims, desc.strides, strict=True) if length > 1
    )
    return all(
        step == math.prod(length for _, length in sizes[:index])
        for index, (step, _) in enumerate(sizes)
    )


def dense_order(desc: MemoryDesc) -> list[int] | None:
    """Axes from the outermost to the innermost; None where elements lie in blocks or with gaps."""
    return _order(desc) if desc.is_plain and _is_dense(desc) else None


def _order(desc: MemoryDesc) -> list[int]:
    """Axes from the outermost to the innermost. Strides of dimensions of length 1 mean nothing:
    such a layout counts as channels last where it can, else as row-major where it can."""
    axes, dims, strides = list(range(len(desc.dims))), desc.dims, desc.strides
    if 1 in dims and len(axes) >= 3:
        for order, known in (
            ([0, *axes[2:], 1], channels_last_strides(dims)),
            (axes, row_major_strides(dims)),
        ):
            if agree(dims, strides, known):
                return order
    return sorted(axes, key=lambda axis: (-strides[axis], axis))


def viewed(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc | None:
    """The same bytes under another shape of as many elements; None where the layout does not allow
    it.
    """
    shape = tuple(dims) or (1,)
    if shape == desc.dims:
        return desc
    if math.prod(shape) != math.prod(desc.dims):
        return None
    try:
        if desc.is_plain and not desc.offset and desc.strides == row_major_strides(desc.dims):
            return row_major(desc.library, shape, desc.dtype)
        if any(desc.dims[axis] == 1 for axis, _ in desc.inner_blocks):
            # oneDNN 3.2 joins such a dimension with its neighbours as if the padding of the block
            # were not there
            return None
        view = desc.reshape(shape)
    except OneDnnError:
        return None
    if 1 in shape and view.is_plain and not view.offset:
        # settles the strides of length 1
        return MemoryDesc.with_strides(desc.library, shape, desc.dtype, view.strides)
    return view


def spaced(
    desc: MemoryDesc, dims: Sequence[int], offsets: Sequence[int], strides: Sequence[int]
) -> MemoryDesc:
    """A box whose elements lie `strides` apart in a plain layout: every other row of an image, say.

    The library describes boxes without gaps only. A dimension cut into pieces of `stride` elements
    is two, though, and the box takes one element of each piece. (The last piece may be incomplete,
    but not where another dimension lies around it: the library then says that the two overlap.)

    Args:
        desc: the layout.
        dims, offsets: shape of the box, and its first element.
        strides: for each dimension, from 1.

    Raises:
        OneDnnError: the library cannot describe it.
    """
    if all(stride == 1 for stride in strides):
        return desc.submemory(dims, offsets)
    pieces, steps, size, start = list[int](), list[int](), list[int](), list[int]()
    for step, count, offset, stride in zip(desc.strides, dims, offsets, strides, strict=True):
        apart = stride if count > 1 else 1
        pieces += [offset // apart + count, offset % apart + 1]
        steps += [step * apart, step]
        size += [count, 1]
        start += [offset // apart, offset % apart]
    whole = MemoryDesc.with_strides(desc.library, pieces, desc.dtype, steps)
    return whole.submemory(size, start).reshape(dims)
