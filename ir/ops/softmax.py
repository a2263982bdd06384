"""Rows of softmax along one axis."""

from __future__ import annotations

import numpy as np

from ..types import Shape
from .rows import A, Call, integer, row
from .spec import Attrs, Effort, OpSpec


def _shape(call: Call) -> Shape:
    x = call.shape(0)
    call.along(max(len(x), 1))
    return x


def _shifted(x: A, axis: int) -> A:
    shifted: A = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return shifted


def _softmax(x: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis")
    y = np.exp(_shifted(x, axis))
    y /= y.sum(axis=axis, keepdims=True)  # a row of -inf gives NaN
    return y


def _log_softmax(x: A, attrs: Attrs) -> A:
    axis = integer(attrs, "axis")
    shifted = _shifted(x, axis)
    shifted -= np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return shifted


SOFTMAX: tuple[OpSpec, ...] = (
    row(
        "Softmax",
        "e^x / sum of e^x along an axis.",
        "x:F",
        attrs={"axis": -1},
        wide=1,
        shape=_shape,
        compute=_softmax,
        primitive="softmax",
        effort=Effort.LOOPS,
    ),
    row(
        "LogSoftmax",
        "Logarithm of the softmax along an axis.",
        "x:F",
        attrs={"axis": -1},
        wide=1,
        shape=_shape,
        compute=_log_softmax,
        primitive="softmax",
        effort=Effort.LOOPS,
    ),
)
