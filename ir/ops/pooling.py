"""Rows of pooling: MaxPool, AveragePool, LpPool and the global ones."""

from __future__ import annotations

import numpy as np

from ..types import Shape
from .carried import where_size_stays
from .rows import A, Call, flag, integer, integers, row
from .spec import REQUIRED, Attr, Attrs, Effort, OpSpec, Required, ShapeError, Trait
from .windows import Window, lowest, pad_spatial, taps_within, window, window_shape

_WINDOW: dict[str, Attr | Required] = {
    "kernel_shape": REQUIRED,
    "strides": (),
    "pads": (),
    "dilations": (),
    "ceil_mode": 0,
    "auto_pad": "NOTSET",
}


def _pool_shape(call: Call) -> Shape:
    x, kernel = call.at_least(0, 3), integers(call.attrs, "kernel_shape")
    return (*x[:2], *window_shape(call.attrs, x[2:], kernel))


def _prepared(x: A, attrs: Attrs, value: float) -> tuple[A, Window]:
    """The input, padded with `value` as far as the windows reach (ceil_mode reaches beyond the
    pads), and the window.
    """
    win = window(attrs, x.shape[2:], integers(attrs, "kernel_shape"))
    end = tuple(
        max(r - b - n, 0) for r, b, n in zip(win.reach, win.begin, x.shape[2:], strict=True)
    )
    return pad_spatial(x, win.begin, end, value), win


def _max_pool(x: A, attrs: Attrs) -> A:
    padded, win = _prepared(x, attrs, lowest(x.dtype))
    best = np.full((*x.shape[:2], *win.out), lowest(x.dtype), x.dtype)
    for _, view in win.taps(padded):
        np.maximum(best, view, out=best)
    return best


def _average_pool(x: A, attrs: Attrs) -> A:
    padded, win = _prepared(x, attrs, 0)
    total = np.zeros((*x.shape[:2], *win.out), padded.dtype)
    for _, view in win.taps(padded):
        total += view
    total /= _counts(win, x.shape[2:], flag(attrs, "count_include_pad")).astype(total.dtype)
    return total


def _counts(win: Window, spatial: tuple[int, ...], include_pad: bool) -> A:
    """How many elements each average divides by, [*win.out]: taps in the input, or also in the
    pads, but never beyond them.
    """
    total: A = np.ones((), np.int64)
    for axis, n in enumerate(spatial):
        low, high = (-win.begin[axis], n + win.end[axis]) if include_pad else (0, n)
        starts = np.arange(win.out[axis]) * win.strides[axis] - win.begin[axis]
        count = taps_within(starts, win.kernel[axis], win.dilations[axis], low, high)
        total = total * count.reshape(-1, *[1] * (len(spatial) - 1 - axis))
    return np.maximum(total, 1)


def _lp_pool(x: A, attrs: Attrs) -> A:
    """In f64, so that no power of an element overflows where the norm does not."""
    norm = integer(attrs, "p")
    padded, win = _prepared(np.abs(x.astype(np.float64)), attrs, 0)
    total = np.zeros((*x.shape[:2], *win.out))
    for _, view in win.taps(padded):
        total += view**norm
    return np.asarray(total ** (1 / norm), x.dtype)


def _lp_shape(call: Call) -> Shape:
    if integer(call.attrs, "p") < 1:
        raise ShapeError(f"p must be 1 or more, found {call.attrs['p']!r}")
    return _pool_shape(call) if "kernel_shape" in call.attrs else _global_shape(call)


def _global_lp(x: A, attrs: Attrs) -> A:
    axes, norm = tuple(range(2, x.ndim)), integer(attrs, "p")
    total = (np.abs(x.astype(np.float64)) ** norm).sum(axes, keepdims=True)
    return np.asarray(total ** (1 / norm), x.dtype)


def _global_shape(call: Call) -> Shape:
    x = call.at_least(0, 3)
    return (*x[:2], *[1] * (len(x) - 2))


def _global_mean(x: A) -> A:
    wide = np.float32 if x.dtype == np.float16 else x.dtype
    y: A = x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=wide)
    return y.astype(x.dtype, copy=False)


def _global_max(x: A) -> A:
    axes = tuple(range(2, x.ndim))
    if x.dtype.kind != "f":  # integers have no infinity, as in ReduceMax
        return np.asarray(x.max(axis=axes, keepdims=True))
    y: A = x.max(axis=axes, keepdims=True, initial=lowest(x.dtype))
    return y


_SELECTS = frozenset({Trait.SELECTS, Trait.SCALE_COMMUTING})
_AVERAGES = frozenset({Trait.AVERAGES, Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO, Trait.READS_CODES})

POOLING: tuple[OpSpec, ...] = (
    row(
        "MaxPool",
        # A node that also wants the indices has more outputs than the row: a foreign op. Finding
        # them would cost every network double.
        "The largest element of each window; padding never wins. `storage_order` is about the indices, which the row does not give.",
        "x:N",
        attrs={**_WINDOW, "storage_order": 0},
        shape=_pool_shape,
        compute=_max_pool,
        carries=lambda call, axis, shape: where_size_stays(call, axis, shape) if axis < 2 else None,
        traits=_SELECTS,
        primitive="pooling",
        effort=Effort.LOOPS,
    ),
    row(
        "AveragePool",
        "The mean of each window; padding counts as zeros with count_include_pad, else not at all.",
        "x:F",
        attrs={**_WINDOW, "count_include_pad": 0},
        wide=1,
        shape=_pool_shape,
        compute=_average_pool,
        traits=_AVERAGES,
        primitive="pooling",
        effort=Effort.LOOPS,
    ),
    row(
        "LpPool",
        "The p-norm of each window: padding counts as zeros.",
        "x:F",
        attrs={**_WINDOW, "p": 2},
        shape=_lp_shape,
        compute=_lp_pool,
        traits={Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO},
        effort=Effort.LOOPS,
    ),
    row(
        "GlobalLpPool",
        "The p-norm of each channel.",
        "x:F",
        attrs={"p": 2},
        shape=_lp_shape,
        compute=_global_lp,
        traits={Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO},
        effort=Effort.LOOPS,
    ),
    row(
        "GlobalAveragePool",
        "The mean of each channel.",
        "x:F",
        shape=_global_shape,
        compute=_global_mean,
        traits=_AVERAGES,
        primitive="pooling",
    ),
    row(
        "GlobalMaxPool",
        "The largest element of each channel.",
        "x:N",
        shape=_global_shape,
        compute=_global_max,
        carries=where_size_stays,
        traits=_SELECTS,
        primitive="pooling",
    ),
)
