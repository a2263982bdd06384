"""Rows about shapes as values: Shape, Size, ConstantOfShape, Range."""

from __future__ import annotations

import math

import numpy as np

from ..types import DType, Shape
from . import dims
from .rows import ANY, A, Call, integer, row, unknown
from .spec import Attrs, Effort, OpSpec, ShapeError


def _part(attrs: Attrs, rank: int) -> slice:
    """Which dimensions Shape returns; bounds are held inside 0..rank, negative ones count from the
    end.
    """
    end = rank if attrs["end"] is None else integer(attrs, "end")
    first, last = (
        min(max(b + rank if b < 0 else b, 0), rank) for b in (integer(attrs, "start"), end)
    )
    return slice(first, max(first, last))


def _shape_shape(call: Call) -> Shape:
    rank = call.type(0).shape
    if rank is None:
        return (dims.UNKNOWN,)
    part = _part(call.attrs, len(rank))
    return (part.stop - part.start,)


def _constant_dtype(call: Call) -> DType:
    dtype, value = call.attrs["dtype"], call.attrs["value"]
    if not isinstance(dtype, DType) or not isinstance(value, int | float):
        raise ShapeError(
            f"dtype must be an element type and value a number, found {dtype!r} and {value!r}"
        )
    return dtype


def _constant_shape(call: Call) -> Shape:
    wanted = call.constant(0, lone=False)
    if wanted is not None:
        if min(wanted, default=0) < 0:
            raise ShapeError(f"sizes must not be negative, found {list(wanted)}")
        return wanted
    (count,) = call.rank(0, 1)
    return unknown(count)


def _constant_of_shape(shape: A, attrs: Attrs) -> A:
    dtype, value = attrs["dtype"], attrs["value"]
    if not isinstance(dtype, DType):
        raise ShapeError(f"dtype must be an element type, found {dtype!r}")
    # One element, repeated without memory: consumers read it, nobody writes into it.
    return np.broadcast_to(np.asarray(value, dtype.numpy), tuple(int(d) for d in shape))


def _range_shape(call: Call) -> Shape:
    for index in range(3):
        shape = call.type(index).shape
        if shape is not None and any(dims.differ(d, 1) for d in shape):
            raise ShapeError(f"{call.name(index)} must be a scalar, found {call.type(index)}")
    bounds = [call.data[i] for i in range(3)]
    if any(b is None for b in bounds):
        return (dims.UNKNOWN,)
    start, limit, delta = (np.asarray(b).reshape(()).item() for b in bounds)
    return (max(math.ceil((limit - start) / _step(delta)), 0),)


def _step(delta: float) -> float:
    if delta == 0:
        raise ShapeError("delta must not be 0")
    return delta


def _range(start: A, limit: A, delta: A, attrs: Attrs) -> A:
    first, last, step = (v.reshape(()).item() for v in (start, limit, delta))
    count = max(math.ceil((last - first) / _step(step)), 0)
    # start + i * delta, in the type itself: numpy.arange would accumulate in another order.
    wide = (
        np.float32
        if start.dtype == np.float16 and integer(attrs, "stash_type") == 1
        else start.dtype
    )
    values: A = start.reshape(()).astype(wide) + np.arange(count).astype(wide) * delta.reshape(
        ()
    ).astype(wide)
    return values.astype(start.dtype, copy=False)


SHAPE: tuple[OpSpec, ...] = (
    row(
        "Shape",
        "The sizes of x's dimensions start..end (end None: to the last one), as s64.",
        "x",
        attrs={"start": 0, "end": None},
        shape=_shape_shape,
        compute=lambda x, attrs: np.asarray(x.shape[_part(attrs, x.ndim)], np.int64),
        result=DType.S64,
        effort=Effort.NONE,
    ),
    row(
        "Size",
        "The number of elements of x, as s64.",
        "x",
        shape=lambda _: (),
        compute=lambda x: np.asarray(x.size, np.int64),
        result=DType.S64,
        effort=Effort.NONE,
    ),
    row(
        "ConstantOfShape",
        "An array of the given shape, filled with `value` in the element type `dtype` (ONNX writes both as one tensor).",
        "shape:L",
        attrs={"value": 0.0, "dtype": DType.F32},
        shape=_constant_shape,
        compute=_constant_of_shape,
        result=_constant_dtype,
    ),
    row(
        "Range",
        "start, start + delta ... before limit.",
        "start:T limit:T delta:T",
        attrs={"stash_type": 1},
        types={"T": ANY - {DType.BOOL, DType.STRING}},
        shape=_range_shape,
        compute=_range,
    ),
)
