"""Rows of softmax along one axis."""

from __future__ import annotations

import numpy as np

from ..types import Shape
from .rows import FLOATS, A, Call, integer, row
from .spec import Attrs, OpSpec

__all__ = ["SOFTMAX"]


def _shape(call: Call) -> Shape:
    x = call.shape(0)
    call.axis(integer(call.attrs, "axis"), max(len(x), 1))
    return x


def _shifted(x: A, axis: int) -> A:
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    shifted: A = wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)
    return shifted


def _softmax(x: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis")
    with np.errstate(invalid="ignore"):  # a row of -inf gives NaN
        y = np.exp(_shifted(x, axis))
        y /= y.sum(axis=axis, keepdims=True)
    return y.astype(x.dtype, copy=False)


def _log_softmax(x: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis")
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = _shifted(x, axis)
        shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted.astype(x.dtype, copy=False)


SOFTMAX: tuple[OpSpec, ...] = (
    row(
        "Softmax",
        "e^x / sum of e^x along an axis.",
        "x:T",
        attrs={"axis": -1},
        types={"T": FLOATS},
        shape=_shape,
        compute=_softmax,
        primitive="softmax",
    ),
    row(
        "LogSoftmax",
        "Logarithm of the softmax along an axis.",
        "x:T",
        attrs={"axis": -1},
        types={"T": FLOATS},
        shape=_shape,
        compute=_log_softmax,
        primitive="softmax",
    ),
)
