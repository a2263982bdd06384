"""Rows that reduce dimensions, and what runs along one: Reduce*, ArgMax, ArgMin, CumSum, TopK."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .carried import beside_axis
from .rows import FLOATS, A, Call, UnknownRankError, flag, integer, row, unknown
from .spec import Attr, Attrs, Effort, OpSpec, ShapeError, Trait

_Axes = tuple[int, ...]
_WIDE = FLOATS | {DType.S32, DType.S64, DType.U32, DType.U64}


def _reduced_axes(call: Call) -> _Axes | None:
    """The axes that are reduced, or None when they are known at run time only."""
    rank, constant = len(call.shape(0)), call.constant(1, lone=False)
    if call.has(1) and constant is None:
        return None
    if not constant:
        return () if flag(call.attrs, "noop_with_empty_axes") else tuple(range(rank))
    return call.axes(constant, rank)


def _reduced_shape(call: Call) -> Shape:
    x, axes, keep = call.shape(0), _reduced_axes(call), flag(call.attrs, "keepdims")
    if axes is None:
        (count,) = call.rank(1, 1)
        if keep:
            return unknown(len(x))
        if not isinstance(count, int) or count == 0:
            raise UnknownRankError
        return unknown(len(x) - count)
    return tuple(1 if a in axes else d for a, d in enumerate(x) if keep or a not in axes)


def _reduced_carries(call: Call, axis: int, shape: Shape | None) -> int | None:
    # Of an op that selects: an axis that is kept moves by the dimensions that went before it.
    axes = _reduced_axes(call)
    if shape is None or axes is None or axis in axes:
        return None
    return axis if flag(call.attrs, "keepdims") else axis - sum(a < axis for a in axes)


Reduce = Callable[[A, _Axes, bool], Any]


def _reduction(
    name: str,
    doc: str,
    function: Reduce,
    *,
    letter: str = "F",
    traits: Collection[Trait] = (),
    primitive: str | None = "reduction",
    effort: Effort = Effort.PASSES,
) -> OpSpec:
    """A row of x and optional axes."""

    def compute(x: A, axes: A | None, attrs: Attrs) -> A:
        if axes is None or axes.size == 0:
            chosen = () if flag(attrs, "noop_with_empty_axes") else tuple(range(x.ndim))
        else:
            chosen = tuple(int(a) % x.ndim for a in axes)
        y: A = function(x, chosen, flag(attrs, "keepdims"))
        return y

    return row(
        name,
        doc,
        f"x:{letter} axes:L?",
        attrs={"keepdims": 1, "noop_with_empty_axes": 0},
        types={"W": _WIDE},
        shape=_reduced_shape,
        compute=compute,
        wide=1,
        carries=_reduced_carries if Trait.SELECTS in traits else None,
        traits=traits,
        primitive=primitive,
        effort=effort,
    )


def _log_sum_exp(x: A, axes: _Axes, keep: bool) -> A:
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, np.asarray(0, x.dtype))
    y: A = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=True)) + top
    return y if keep else np.squeeze(y, axes)


def _extreme(pick: Callable[..., Any], of_none: float) -> Reduce:
    """The largest or smallest element; `of_none` is that of no floats. Integers have no infinity,
    and codes none that decodes into one.
    """

    def reduce(x: A, axes: _Axes, keep: bool) -> Any:
        return pick(
            x, axis=axes, keepdims=keep, **({"initial": of_none} if x.dtype.kind == "f" else {})
        )

    return reduce


def _mean(x: A, axes: _Axes, keep: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keep) / np.asarray(
        math.prod(x.shape[a] for a in axes), x.dtype
    )


# -- along one axis --------------------------------------------------------------------------------


def _arg_shape(call: Call) -> Shape:
    x = call.at_least(0, 1)
    axis, keep = call.along(len(x)), flag(call.attrs, "keepdims")
    flag(call.attrs, "select_last_index")
    if x[axis] == 0:
        raise ShapeError(f"axis {axis} has no elements, so none of them is the largest or smallest")
    return tuple(1 if a == axis else d for a, d in enumerate(x) if keep or a != axis)


def _arg(pick: Callable[..., Any]) -> Callable[[A, Attrs], A]:
    def compute(x: A, attrs: Attrs) -> A:
        axis, keep = integer(attrs, "axis"), flag(attrs, "keepdims")
        if flag(attrs, "select_last_index"):
            found = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis, keepdims=keep)
        else:
            found = pick(x, axis=axis, keepdims=keep)
        return np.asarray(found, np.int64)

    return compute


def _cum_shape(call: Call) -> Shape:
    flag(call.attrs, "exclusive")
    flag(call.attrs, "reverse")
    if any(isinstance(size, int) and size != 1 for size in call.type(1).shape or ()):
        raise ShapeError(f"the axis is one number, found {call.type(1)}")
    x, axis = call.at_least(0, 1), call.constant(1)
    if axis is not None:
        call.axis(axis[0], len(x))
    return x


def _cum_sum(x: A, axis: A, attrs: Attrs) -> A:
    along, backwards = int(axis.reshape(())), flag(attrs, "reverse")
    ordered = np.flip(x, along) if backwards else x
    total = np.cumsum(ordered, axis=along, dtype=x.dtype)
    if flag(attrs, "exclusive"):
        total = np.roll(total, 1, axis=along)
        first: list[slice | int] = [slice(None)] * x.ndim
        first[along] = slice(0, 1)
        total[tuple(first)] = 0
    return np.flip(total, along) if backwards else total


def _top_k_shapes(call: Call) -> list[Shape]:
    x, k = call.at_least(0, 1), call.constant(1)
    axis = call.along(len(x))
    if k is not None and len(k) != 1:
        raise ShapeError(f"k must be one number, found {list(k)}")
    size: Dim = dims.UNKNOWN if k is None else k[0]
    if isinstance(size, int) and isinstance(x[axis], int) and not 0 <= size <= int(x[axis]):
        raise ShapeError(f"k must lie between 0 and {x[axis]}, found {size}")
    shape = (*x[:axis], size, *x[axis + 1 :])
    return [shape, shape]


def _top_k(x: A, k: A, attrs: Attrs) -> tuple[A, A]:
    axis, count = integer(attrs, "axis") % x.ndim, int(k.reshape(()))
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k must lie between 0 and {x.shape[axis]}, found {count}")
    if flag(attrs, "largest"):
        # A stable sort of the reversed data, reversed: among equals the lower index comes first,
        # and no value needs negation.
        order = (
            x.shape[axis]
            - 1
            - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
        )
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    indices = np.take(order, np.arange(count), axis=axis).astype(np.int64)
    return np.take_along_axis(x, indices, axis), indices


_ARG_ATTRS: dict[str, Attr] = {"axis": 0, "keepdims": 1, "select_last_index": 0}
_KEEPS = frozenset({Trait.KEEPS_ZERO})
_SCALE = frozenset({Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO})
_SELECTS = frozenset({Trait.SELECTS, Trait.SCALE_COMMUTING})

REDUCTION: tuple[OpSpec, ...] = (
    # Of integers the mean is truncated, so the row takes floats only: that is what makes it commute
    # with scales.
    _reduction("ReduceMean", "The mean over the axes.", _mean, traits=_SCALE),
    _reduction(
        "ReduceSum",
        "The sum over the axes.",
        lambda x, a, k: np.sum(x, axis=a, keepdims=k, dtype=x.dtype),
        letter="W",
        traits=_SCALE,
    ),
    _reduction(
        "ReduceMax",
        "The largest element over the axes.",
        _extreme(np.max, -math.inf),
        letter="N",
        traits=_SELECTS,
    ),
    _reduction(
        "ReduceMin",
        "The smallest element over the axes.",
        _extreme(np.min, math.inf),
        letter="N",
        traits=_SELECTS,
    ),
    _reduction(
        "ReduceProd",
        "The product over the axes.",
        lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype),
        letter="W",
        traits=_KEEPS,
    ),
    _reduction(
        "ReduceL1",
        "The sum of |x| over the axes.",
        lambda x, a, k: np.sum(np.abs(x), axis=a, keepdims=k, dtype=x.dtype),
        traits=_SCALE,
    ),
    _reduction(
        "ReduceL2",
        "The root of the sum of x^2 over the axes.",
        lambda x, a, k: np.sqrt(np.sum(x * x, axis=a, keepdims=k)),
        traits=_SCALE,
    ),
    _reduction(
        "ReduceSumSquare",
        "The sum of x^2 over the axes.",
        lambda x, a, k: np.sum(x * x, axis=a, keepdims=k, dtype=x.dtype),
        letter="W",
        traits=_KEEPS,
    ),
    _reduction(
        "ReduceLogSumExp",
        "The logarithm of the sum of e^x over the axes.",
        _log_sum_exp,
        primitive=None,
        effort=Effort.LOOPS,
    ),
    row(
        "ArgMax",
        "Index of the largest element along an axis: the first of equals, or the last on request.",
        "x:N",
        attrs=_ARG_ATTRS,
        shape=_arg_shape,
        compute=_arg(np.argmax),
        traits={Trait.TELLS_ZERO, Trait.JUMPS},
        result=DType.S64,
        effort=Effort.LOOPS,
    ),
    row(
        "ArgMin",
        "Index of the smallest element along an axis: the first of equals, or the last on request.",
        "x:N",
        attrs=_ARG_ATTRS,
        shape=_arg_shape,
        compute=_arg(np.argmin),
        traits={Trait.TELLS_ZERO, Trait.JUMPS},
        result=DType.S64,
        effort=Effort.LOOPS,
    ),
    row(
        "CumSum",
        "The sum of the elements up to each one along an axis (without itself: exclusive; from the end: reverse).",
        "x:W axis:I",
        attrs={"exclusive": 0, "reverse": 0},
        types={"W": _WIDE},
        shape=_cum_shape,
        compute=_cum_sum,
        traits=_SCALE,
        effort=Effort.LOOPS,
    ),
    row(
        "TopK",
        "The k largest (or smallest) elements along an axis in order, and their indices; the lower index first among equals.",
        "x:N k:L",
        attrs={"axis": -1, "largest": 1, "sorted": 1},
        shape=_top_k_shapes,
        compute=_top_k,
        result=lambda call: (call.type(0).dtype, DType.S64),
        carries=beside_axis,
        outputs=("values", "indices"),
        traits=_SELECTS | {Trait.TELLS_ZERO, Trait.JUMPS},  # its indices, as those of ArgMax
        effort=Effort.SERIES,
    ),
)
