"""Rows that pick elements or put some around: Slice, Pad, Gather, GatherElements, GatherND
and Trilu.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..types import Dim, Shape, dimensions
from . import dims
from .carried import beside_axis, where_size_stays
from .rows import LAYOUT, A, Call, UnknownRankError, integer, row, text, unknown
from .spec import REQUIRED, Attrs, Effort, OpSpec, ShapeError, Trait

# exporters write INT_MAX or INT64_MAX for "to the end"; no dimension is as long
_NO_END = 2**31 - 1


# -- Slice -----------------------------------------------------------------------------------------


def _slice_axes(axes: tuple[int, ...] | None, count: int, call: Call) -> tuple[int, ...]:
    rank = len(call.shape(0))
    found = tuple(call.axis(a, rank) for a in (axes if axes is not None else range(count)))
    if len(found) != count or len(set(found)) != count:
        raise ShapeError(
            f"axes must name {count} different dimensions, found {list(axes or found)}"
        )
    return found


def _computes_axes(call: Call) -> bool:
    return call.has(3) and call.constant(3) is None


def _slice_shape(call: Call) -> Shape:
    x, starts, ends = call.shape(0), call.constant(1), call.constant(2)
    if _computes_axes(call):
        return unknown(len(x))
    (count,) = call.rank(1, 1)
    for index in (2, 3, 4):
        if call.has(index) and call.type(index).shape is not None:
            call.rank(index, 1)
    if not isinstance(count, int):
        return unknown(len(x))
    axes = _slice_axes(call.constant(3), count, call)
    steps = call.constant(4) if call.has(4) else (1,) * count
    for index, found in ((2, ends), (4, steps)):
        if found is not None and len(found) != count:
            raise ShapeError(
                f"{call.name(index)} must hold {count} numbers as starts does, found {list(found)}"
            )
    result = list(x)
    for i, axis in enumerate(axes):
        if starts is None or ends is None or steps is None:
            result[axis] = dims.UNKNOWN
        else:
            result[axis] = _length(x[axis], starts[i], ends[i], steps[i])
    return tuple(result)


def _length(size: Dim, start: int, end: int, step: int) -> Dim:
    """How many elements a slice of a dimension takes; bounds count from the end when negative and
    are held inside the dimension.
    """
    if step == 0:
        raise ShapeError("steps must not be 0")
    if step > 0:
        # A start behind the end of the dimension and an end before its start give less than
        # nothing: no need to hold them inside it.
        first = dims.positive(dims.add(size, start)) if start < 0 else start
        last = (
            dims.add(size, end) if end < 0 else size if end >= _NO_END else dims.minimum(end, size)
        )
        length = dims.ceil_div(dims.subtract(last, first), step)
        return length if start == 0 and end >= 0 else dims.positive(length)
    first, last = (dims.add(size, bound) if bound < 0 else bound for bound in (start, end))
    # Backwards from an element that exists down to, and without, one that may lie before the first
    # (-1).
    first, last = (
        dims.clamp(first, 0, dims.subtract(size, 1)),
        dims.clamp(last, -1, dims.subtract(size, 1)),
    )
    return dims.minimum(dims.positive(dims.ceil_div(dims.subtract(first, last), -step)), size)


def _slice(x: A, starts: A, ends: A, axes: A | None, steps: A | None) -> A:
    box = [slice(None)] * x.ndim
    where = range(len(starts)) if axes is None else [int(a) for a in axes]
    for i, axis in enumerate(where):
        box[axis] = cut(
            x.shape[axis], int(starts[i]), int(ends[i]), 1 if steps is None else int(steps[i])
        )
    return x[tuple(box)]


def cut(size: int, start: int, end: int, step: int) -> slice:
    """What ONNX's Slice takes of a dimension, with bounds inside of it.

    Like NumPy's slice, but one that goes backwards from before the first element starts at the
    first.
    """
    first, last = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return slice(min(max(first, 0), size), min(max(last, 0), size), step)
    first, last = min(max(first, 0), size - 1), min(max(last, -1), size - 1)
    return slice(first, None if last < 0 else last, step)


def _slice_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    (count,) = call.shape(1)
    if not isinstance(count, int) or (_computes_axes(call)):
        return None
    moved = axis in _slice_axes(call.constant(3), count, call)
    return None if moved else where_size_stays(call, axis, shape)


def _slice_like_shape(call: Call) -> Shape:
    x, like = call.at_least(0, 1), call.shape(1)
    axis = call.along(len(x))
    size = like[call.axis(integer(call.attrs, "size_axis"), len(like))]
    return (*x[:axis], dims.minimum(size, x[axis]), *x[axis + 1 :])


def _slice_like(x: A, like: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis") % x.ndim
    return x[(slice(None),) * axis + (slice(like.shape[integer(attrs, "size_axis")]),)]


# -- Pad -------------------------------------------------------------------------------------------


def _pad_shape(call: Call) -> Shape:
    x, pads = call.shape(0), call.constant(1, lone=False)
    text(call.attrs, "mode", _PAD_MODES)
    if pads is None or (_computes_axes(call)):
        return unknown(len(x))
    axes = call.constant(3, lone=False) if call.has(3) else None
    where = _slice_axes(axes, len(x) if axes is None else len(axes), call)
    if len(pads) != 2 * len(where):
        raise ShapeError(f"pads must hold {2 * len(where)} numbers, found {list(pads)}")
    result = list(x)
    for i, axis in enumerate(where):
        begin, end = pads[i], pads[i + len(where)]
        result[axis], kept = (
            dims.add(x[axis], begin + end),
            dims.add(x[axis], min(begin, 0) + min(end, 0)),
        )
        if isinstance(kept, int) and kept < 0:
            raise ShapeError(f"pads {list(pads)} crop more than there is in {call.type(0)}")
    return tuple(result)


def _pad_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    """Codes stay codes, and the constant is a code as well; but along an axis that is padded or
    cropped the entries no longer fit.
    """
    pads = call.constant(1)
    if shape is None or pads is None or (_computes_axes(call)):
        return None
    axes = call.constant(3) if call.has(3) else None
    where = _slice_axes(axes, len(shape) if axes is None else len(axes), call)
    moved = any(pads[i] or pads[i + len(where)] for i, a in enumerate(where) if a == axis)
    return None if moved else where_size_stays(call, axis, shape)


_PadMode = Literal["constant", "reflect", "edge", "wrap"]
_PAD_MODES: tuple[_PadMode, ...] = ("constant", "reflect", "edge", "wrap")


def pad_widths(pads: A, axes: A | None, rank: int) -> list[tuple[int, int]]:
    """How many elements a Pad puts before and after each axis; negative: takes away."""
    where = range(rank) if axes is None else [int(axis) % rank for axis in axes.reshape(-1)]
    widths = [(0, 0)] * rank
    for i, axis in enumerate(where):
        widths[axis] = int(pads[i]), int(pads[i + len(where)])
    return widths


def _pad(x: A, pads: A, value: A | None, axes: A | None, attrs: Attrs) -> A:
    widths = pad_widths(pads, axes, x.ndim)
    # Negative pads crop, before anything is added.
    kept = [slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x.shape, strict=True)]
    x = x[tuple(kept)]
    widths = [(max(b, 0), max(a, 0)) for b, a in widths]
    if not any(b or a for b, a in widths):
        return x
    mode = next(m for m in _PAD_MODES if m == text(attrs, "mode", _PAD_MODES))
    if mode != "constant":
        return np.pad(x, widths, mode)
    padded = np.full(
        [b + n + a for (b, a), n in zip(widths, x.shape, strict=True)],
        0 if value is None else value.reshape(()),
        x.dtype,
    )
    padded[tuple(slice(b, b + n) for (b, _), n in zip(widths, x.shape, strict=True))] = x
    return padded


# -- Gather ----------------------------------------------------------------------------------------


def _gather_shape(call: Call) -> Shape:
    x = call.at_least(0, 1)
    axis = call.along(len(x))
    return (*x[:axis], *call.shape(1), *x[axis + 1 :])


def _gather_carries(call: Call, axis: int, shape: Shape | None) -> int | None:  # noqa: ARG001
    # Dimensions behind the gathered one move by the rank of the indices, less the one they replace.
    gathered = call.along(len(call.shape(0)))
    if axis == gathered:
        return None
    return axis if axis < gathered else axis + len(call.shape(1)) - 1


def _gather(x: A, indices: A, attrs: Attrs) -> A:
    return np.take(x, indices, axis=integer(attrs, "axis"))


def _gather_elements_shape(call: Call) -> Shape:
    x, indices = call.at_least(0, 1), call.shape(1)
    axis = call.along(len(x))
    if len(indices) != len(x):
        raise ShapeError(f"indices must have {dimensions(len(x))} as x, found {call.type(1)}")
    if any(
        a != axis and isinstance(i, int) and isinstance(n, int) and i > n
        for a, (i, n) in enumerate(zip(indices, x, strict=True))
    ):
        raise ShapeError(
            f"indices must not be larger than x, {call.type(0)}, outside of dimension {axis}, found {call.type(1)}"
        )
    return indices


def _gather_elements(x: A, indices: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis") % x.ndim
    inside = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(indices.shape))]
    return np.take_along_axis(inside, np.where(indices < 0, indices + x.shape[axis], indices), axis)


def _gather_nd_shape(call: Call) -> Shape:
    x, indices = call.at_least(0, 1), call.at_least(1, 1)
    batch, depth = integer(call.attrs, "batch_dims"), indices[-1]
    if not 0 <= batch < min(len(x), len(indices)):
        raise ShapeError(
            f"batch_dims {batch} is out of range for {call.type(0)} and {call.type(1)}"
        )
    if any(map(dims.differ, x[:batch], indices[:batch])):
        raise ShapeError(
            f"{call.type(0)} and {call.type(1)} differ in the first {batch} dimensions"
        )
    if not isinstance(depth, int):
        raise UnknownRankError
    if not 1 <= depth <= len(x) - batch:
        raise ShapeError(f"indices of {depth} dimensions do not fit {call.type(0)}")
    return (*indices[:-1], *x[batch + depth :])


def _gather_nd_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    # Dimensions behind those that an index picks in move as far as the index's own are more.
    batch, indices = integer(call.attrs, "batch_dims"), call.shape(1)
    behind = batch + indices[-1] if isinstance(indices[-1], int) else len(call.shape(0))
    if axis < batch:
        return axis if shape is not None else None
    return axis - behind + len(indices) - 1 if axis >= behind else None


def _gather_nd(x: A, indices: A, attrs: Attrs) -> A:
    batch, depth = integer(attrs, "batch_dims"), indices.shape[-1]
    grid = np.ix_(*(np.arange(n) for n in x.shape[:batch]))
    more = (1,) * (indices.ndim - 1 - batch)
    outside = tuple(place.reshape(*place.shape, *more) for place in grid)
    picked: A = x[(*outside, *(indices[..., i] for i in range(depth)))]
    return picked


# -- Trilu -----------------------------------------------------------------------------------------


def _trilu_shape(call: Call) -> Shape:
    return call.at_least(0, 2)


def _trilu(x: A, k: A | None, attrs: Attrs) -> A:
    diagonal = 0 if k is None else int(k.reshape(()))
    return np.triu(x, diagonal) if integer(attrs, "upper") else np.tril(x, diagonal)


SLICING: tuple[OpSpec, ...] = (
    row(
        "Slice",
        "Elements starts[i], starts[i] + steps[i] ... before ends[i] of dimension axes[i]; negative bounds count from the end.",
        "x starts:I ends:I axes:I? steps:I?",
        shape=_slice_shape,
        compute=_slice,
        carries=_slice_carries,
        traits=LAYOUT,
    ),
    row(
        "SliceLike",
        "The first elements of x along an axis, as many as `like` has along `size_axis`, or all that there are.",
        "x like",
        attrs={"axis": REQUIRED, "size_axis": REQUIRED},
        shape=_slice_like_shape,
        compute=_slice_like,
        carries=beside_axis,
        traits=LAYOUT,
        onnx=False,
    ),
    row(
        "Pad",
        "x with elements put before and after each of the axes (all without `axes`): a constant, or copies by mode; negative pads crop.",
        "x:T pads:L constant_value:T? axes:I?",
        attrs={"mode": "constant"},
        shape=_pad_shape,
        compute=_pad,
        carries=_pad_carries,
        traits={Trait.KEEPS_ZERO},  # a constant other than 0 is neither scaled nor an element of x
    ),
    row(
        "Gather",
        "Slices of x along an axis, picked by indices of any shape (negative ones count from the end).",
        "x indices:I",
        attrs={"axis": 0},
        shape=_gather_shape,
        compute=_gather,
        carries=_gather_carries,
        traits=LAYOUT,
    ),
    row(
        "GatherElements",
        "Elements of x along an axis, one for each index.",
        "x indices:I",
        attrs={"axis": 0},
        shape=_gather_elements_shape,
        compute=_gather_elements,
        carries=beside_axis,
        traits=LAYOUT,
        effort=Effort.LOOPS,
    ),
    row(
        "GatherND",
        "Elements or slices of x, one for each vector of indices along the last axis of `indices`; the first `batch_dims` are shared.",
        "x indices:L",
        attrs={"batch_dims": 0},
        shape=_gather_nd_shape,
        compute=_gather_nd,
        carries=_gather_nd_carries,
        traits=LAYOUT,
    ),
    row(
        "Trilu",
        "The upper (or lower) triangle of the matrices in x, from the k-th diagonal on; zeros elsewhere.",
        "x k:L?",
        attrs={"upper": 1},
        shape=_trilu_shape,
        compute=_trilu,
        traits={Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO},
    ),
)
