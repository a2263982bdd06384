"""Rows of normalization: batch, layer, RMS, instance and group normalization, LRN."""

from __future__ import annotations

import math

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .rows import A, Call, flag, integer, not_covered, number, row
from .spec import REQUIRED, Attrs, Effort, OpSpec, ShapeError


def _per_channel(call: Call, channels: Dim, indices: tuple[int, ...]) -> None:
    for index in indices:
        (size,) = call.rank(index, 1)
        if dims.differ(size, channels):
            raise ShapeError(
                f"{call.name(index)} must have {channels} entries, one a channel, found {call.type(index)}"
            )
        if isinstance(size, int):  # a symbol is no more than this from here on
            channels = size


def _along_channels(values: A, rank: int) -> A:
    return values.reshape(-1, *[1] * (rank - 2))


def _affine(x: A, factor: A, shift: A) -> A:
    y: A = x * _along_channels(factor, x.ndim) + _along_channels(shift, x.ndim)
    return y


def _batch_norm_shape(call: Call) -> Shape:
    if flag(call.attrs, "training_mode"):
        raise not_covered("BatchNormalization in training mode")
    known = call.type(0).shape is not None
    _per_channel(call, call.at_least(0, 2)[1] if known else call.rank(1, 1)[0], (1, 2, 3, 4))
    return call.at_least(0, 2)


def _batch_norm(x: A, scale: A, bias: A, mean: A, var: A, attrs: Attrs) -> A:
    factor = scale / np.sqrt(var + np.asarray(number(attrs, "epsilon"), var.dtype))
    return _affine(x - _along_channels(mean, x.ndim), factor, bias)


def _layer_norm_shapes(call: Call) -> list[Shape]:
    x = call.at_least(0, 1)
    axis = call.along(len(x))
    for index in range(1, len(call.params)):
        if call.has(index):
            call.broadcasts(index, x)
    reduced = (*x[:axis], *[1] * (len(x) - axis))
    return [x, reduced, reduced]


def _layer_norm(x: A, scale: A, bias: A | None, attrs: Attrs) -> tuple[A, A, A]:
    axes = tuple(range(integer(attrs, "axis") % x.ndim, x.ndim))
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1 / _deviation(centred, axes, attrs)
    y = centred * inverse * scale
    if bias is not None:
        y += bias
    return y, mean.astype(np.float32, copy=False), inverse.astype(np.float32, copy=False)


def _deviation(centred: A, axes: tuple[int, ...], attrs: Attrs) -> A:
    """The root of the mean square and epsilon."""
    square: A = np.mean(centred * centred, axis=axes, keepdims=True)
    root: A = np.sqrt(square + np.asarray(number(attrs, "epsilon"), centred.dtype))
    return root


def _normalized(x: A, axes: tuple[int, ...], attrs: Attrs) -> A:
    centred = x - x.mean(axis=axes, keepdims=True)
    y: A = centred / _deviation(centred, axes, attrs)
    return y


def _instance_norm_shape(call: Call) -> Shape:
    x = call.at_least(0, 3)
    _per_channel(call, x[1], (1, 2))
    return x


def _instance_norm(x: A, scale: A, bias: A, attrs: Attrs) -> A:
    y = _normalized(x, tuple(range(2, x.ndim)), attrs)
    return _affine(y, scale, bias)


def _group_norm_shape(call: Call) -> Shape:
    x, groups = call.at_least(0, 3), integer(call.attrs, "num_groups")
    _per_channel(call, x[1], (1, 2))
    if groups < 1 or (isinstance(x[1], int) and x[1] % groups):
        raise ShapeError(f"{x[1]} channels cannot be split into {groups} groups")
    return x


def _group_norm(x: A, scale: A, bias: A, attrs: Attrs) -> A:
    n, groups = x.shape[0], integer(attrs, "num_groups")
    rows = x.reshape(n, groups, math.prod(x.shape[1:]) // groups)
    return _affine(_normalized(rows, (2,), attrs).reshape(x.shape), scale, bias)


def _lrn_shape(call: Call) -> Shape:
    if integer(call.attrs, "size") < 1:
        raise ShapeError(f"size must be positive, found {call.attrs['size']!r}")
    return call.at_least(0, 2)


def _lrn(x: A, attrs: Attrs) -> A:
    size, channels = integer(attrs, "size"), x.shape[1]
    most = max(channels - 1, 0)  # a window that reaches further sees no more
    before, after = min((size - 1) // 2, most), min(size // 2, most)
    squares = np.zeros((x.shape[0], before + channels + after, *x.shape[2:]), x.dtype)
    np.multiply(x, x, out=squares[:, before : before + channels])
    total = sum(
        (squares[:, tap : tap + channels] for tap in range(1, before + after + 1)),
        squares[:, :channels],
    )
    alpha, beta, bias = (
        np.asarray(number(attrs, name), x.dtype) for name in ("alpha", "beta", "bias")
    )
    y: A = x / (bias + alpha / size * total) ** beta
    return y


NORMALIZATION: tuple[OpSpec, ...] = (
    row(
        "BatchNormalization",
        "(x - mean) / sqrt(var + epsilon) * scale + bias, channel by channel (inference only).",
        "x:F scale bias mean var",
        attrs={"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0},
        wide=1,
        shape=_batch_norm_shape,
        compute=_batch_norm,
        primitive="batch_normalization",
    ),
    row(
        "LayerNormalization",
        "(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on; also gives the mean and 1/deviation.",
        "x:F scale:F bias:F?",
        attrs={"axis": -1, "epsilon": 1e-5, "stash_type": 1},
        wide=1,
        shape=_layer_norm_shapes,
        compute=_layer_norm,
        result=lambda call: (call.type(0).dtype, DType.F32, DType.F32),
        outputs=("y", "mean", "inv_std_dev"),
        primitive="layer_normalization",
        effort=Effort.LOOPS,
    ),
    row(
        "InstanceNormalization",
        "(x - mean) / sqrt(variance + epsilon) * scale + bias, each channel of each image by itself.",
        "x:F scale:F bias:F",
        attrs={"epsilon": 1e-5},
        wide=1,
        shape=_instance_norm_shape,
        compute=_instance_norm,
        effort=Effort.LOOPS,
    ),
    row(
        "GroupNormalization",
        "(x - mean) / sqrt(variance + epsilon) * scale + bias, each group of channels of each image by itself.",
        "x:F scale:F bias:F",
        attrs={"num_groups": REQUIRED, "epsilon": 1e-5, "stash_type": 1},
        wide=1,
        shape=_group_norm_shape,
        compute=_group_norm,
        effort=Effort.LOOPS,
    ),
    row(
        "LRN",
        "x / (bias + alpha/size * sum of squares over `size` neighbouring channels) ** beta.",
        "x:F",
        attrs={"size": REQUIRED, "alpha": 0.0001, "beta": 0.75, "bias": 1.0},
        wide=1,
        shape=_lrn_shape,
        compute=_lrn,
        primitive="lrn",
        effort=Effort.LOOPS,
    ),
)
