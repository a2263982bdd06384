"""Rows of convolution: Conv, ConvTranspose, ConvInteger.

A convolution is a matrix product of the weights with columns [input channels * taps, positions]
(im2col), computed in blocks so that the columns of a block stay small; depthwise convolution is a
sum over taps instead. Integer convolution runs on float64, which holds every
partial sum exactly: 255 * 255 * 2^37 < 2^53.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .rows import A, Call, integer, integers, row, text
from .spec import Attr, Attrs, OpSpec, Required, ShapeError, Trait
from .windows import (
    AUTO_PADS,
    Window,
    at,
    check_lengths,
    check_positive,
    pad_spatial,
    window,
    window_shape,
)

_BLOCK = (
    1 << 20
    # elements of columns made at once: 4 MB of f32 stay in the cache between being made and being
    # multiplied
)

_WINDOW: dict[str, Attr | Required] = {
    "kernel_shape": (),
    "strides": (),
    "pads": (),
    "dilations": (),
    "group": 1,
    "auto_pad": "NOTSET",
}


def convolve(x: A, weights: A, win: Window, group: int) -> A:
    """x [N, C, *spatial] with weights [OC, C/group, *kernel], both of one float type -> [N, OC,
    *win.out], in that type.

    Padding taps count as zero.
    """
    n, c = x.shape[:2]
    oc, icg = weights.shape[:2]
    if win.trivial:
        product: A = np.matmul(
            weights.reshape(1, group, oc // group, icg),
            x.reshape(n, group, icg, math.prod(win.out)),  # -1 stands for nothing where n is 0
        )
        return product.reshape(n, oc, *win.out)
    padded = pad_spatial(x, win.begin, win.end, 0)
    if icg == 1 and oc == c:
        return _depthwise(padded, weights, win)
    taps = math.prod(win.kernel)
    matrix = weights.reshape(group, oc // group, icg * taps)
    out = np.empty((n, oc, *win.out), x.dtype)
    row_elements = max(c * taps * math.prod(win.out[1:]), 1)
    rows = max(1, min(win.out[0], _BLOCK // row_elements))
    images = max(1, _BLOCK // (row_elements * max(win.out[0], 1)))
    for image in range(0, n, images):
        for top in range(0, win.out[0], rows):
            part = replace(win, out=(min(rows, win.out[0] - top), *win.out[1:]))
            start = top * win.strides[0]
            block = padded[image : image + images, :, start : start + part.reach[0]]
            columns = _columns(block, part, group)
            product = np.matmul(matrix, columns).reshape(len(block), oc, *part.out)
            out[image : image + images, :, top : top + part.out[0]] = product
    return out


def _columns(padded: A, win: Window, group: int) -> A:
    """[N, group, channels of a group * taps, positions]."""
    n, c = padded.shape[:2]
    columns = np.empty((n, c, math.prod(win.kernel), *win.out), padded.dtype)
    for index, (_, view) in enumerate(win.taps(padded)):
        columns[:, :, index] = view
    return columns.reshape(n, group, (c // group) * math.prod(win.kernel), -1)


def _depthwise(padded: A, weights: A, win: Window) -> A:
    factors: A = np.moveaxis(weights[:, 0], 0, -1)  # [*kernel, C]
    out = np.zeros((*padded.shape[:2], *win.out), padded.dtype)
    scratch = np.empty_like(out)
    for tap, view in win.taps(padded):
        np.multiply(view, factors[tap].reshape(-1, *[1] * len(win.out)), out=scratch)
        out += scratch
    return out


def deconvolve(x: A, weights: A, attrs: Attrs) -> A:
    """x [N, IC, *spatial] with weights [IC, OC/group, *kernel], both of one float type -> [N, OC,
    *out] (ConvTranspose).
    """
    group = integer(attrs, "group")
    n, ic = x.shape[:2]
    ocg, kernel, spatial = weights.shape[1], weights.shape[2:], x.shape[2:]
    win = transposed_window(attrs, spatial, kernel)
    matrix = weights.reshape(group, ic // group, -1).transpose(0, 2, 1)
    products = np.matmul(matrix, x.reshape(n, group, ic // group, math.prod(spatial))).reshape(
        n, group * ocg, *kernel, *spatial
    )
    # axes: those of the kernel, N, OC, those of the image
    by_tap: A = np.moveaxis(products, (0, 1), (len(kernel), len(kernel) + 1))
    under = replace(win, out=spatial)
    full = [max(r, b + o) for r, b, o in zip(under.reach, win.begin, win.out, strict=True)]
    result = np.zeros((n, group * ocg, *full), x.dtype)
    for tap, view in under.taps(result):
        np.add(view, by_tap[tap], out=view)
    return at(result, tuple(slice(b, b + o) for b, o in zip(win.begin, win.out, strict=True)))


def transposed_window(attrs: Attrs, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of the convolution that a ConvTranspose over static spatial dimensions transposes:
    `out` is the ConvTranspose's output.

    `end` is negative where the output reaches beyond the last tap: there it is the bias alone.

    Raises:
        ShapeError: attributes that do not fit together.
    """
    strides, dilations, *ends = _transposed(attrs, tuple(spatial), tuple(kernel))
    begin, out = (tuple(d for d in shape if isinstance(d, int)) for shape in ends)
    win = Window(tuple(kernel), strides, dilations, begin, begin, tuple(spatial))
    end = tuple(c - o - b for c, o, b in zip(win.reach, out, begin, strict=True))
    return replace(win, end=end, out=out)


def _transposed(
    attrs: Attrs, spatial: Shape, kernel: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], Shape, Shape]:
    """Strides, dilations, cropping before, and output sizes of a ConvTranspose.

    Without `output_shape`: out = stride*(in-1) + output_padding + span - pads (in * stride for
    SAME). With it, the pads follow from it, the odd one before the data except for SAME_UPPER, as
    ONNX's formula says.
    """
    count = len(spatial)
    strides, dilations = (
        integers(attrs, "strides") or (1,) * count,
        integers(attrs, "dilations") or (1,) * count,
    )
    extra, wanted = (
        integers(attrs, "output_padding") or (0,) * count,
        integers(attrs, "output_shape"),
    )
    auto, pads = text(attrs, "auto_pad", AUTO_PADS), integers(attrs, "pads") or (0,) * (2 * count)
    check_lengths(count, strides=strides, dilations=dilations, output_padding=extra)
    check_lengths(2 * count, pads=pads)
    check_positive(strides, dilations, pads + extra)
    if wanted and len(wanted) < count:
        raise ShapeError(f"output_shape must have {count} entries, found {list(wanted)}")
    full = [
        dims.add(dims.multiply(dims.subtract(i, 1), s), e + (k - 1) * d + 1)
        for i, s, e, k, d in zip(spatial, strides, extra, kernel, dilations, strict=True)
    ]
    if wanted:
        out: Shape = wanted[-count:]
    elif auto.startswith("SAME"):
        out = tuple(dims.multiply(i, s) for i, s in zip(spatial, strides, strict=True))
    else:
        explicit = pads if auto == "NOTSET" else (0,) * (2 * count)
        return (
            strides,
            dilations,
            explicit[:count],
            tuple(dims.subtract(f, explicit[i] + explicit[i + count]) for i, f in enumerate(full)),
        )
    total = [dims.positive(dims.subtract(f, o)) for f, o in zip(full, out, strict=True)]
    begin = tuple(
        dims.floor_div(t, 2) if auto == "SAME_UPPER" else dims.ceil_div(t, 2) for t in total
    )
    return strides, dilations, begin, out


# -- rows ------------------------------------------------------------------------------------------


def _kernel(call: Call) -> tuple[int, ...]:
    """The kernel: from the attribute where it is given, and the weights must agree with it."""
    x, weights = call.at_least(0, 3), call.shape(1)
    if len(weights) != len(x):
        raise ShapeError(
            f"weights must have as many dimensions as {call.name(0)}, {len(x)}, found {call.type(1)}"
        )
    if integer(call.attrs, "group") < 1:
        raise ShapeError(f"group must be positive, found {call.attrs['group']!r}")
    given = integers(call.attrs, "kernel_shape")
    static = tuple(d for d in weights[2:] if isinstance(d, int))
    if given and len(static) == len(weights) - 2 and static != given:
        raise ShapeError(
            f"kernel_shape {list(given)} differs from that of the weights, {call.type(1)}"
        )
    if not given and len(static) != len(weights) - 2:
        raise ShapeError(
            f"the kernel's size must be known: give kernel_shape or static weights, found {call.type(1)}"
        )
    return given or static


def _check_channels(call: Call, expected: Dim, found: Dim, what: str) -> None:
    if dims.differ(expected, found):
        raise ShapeError(
            f"{what}: expected {expected} from {call.type(1)}, found {found} in {call.type(0)}"
        )


def _conv_shape(call: Call) -> Shape:
    kernel, x, weights = _kernel(call), call.shape(0), call.shape(1)
    group = integer(call.attrs, "group")
    _check_channels(call, dims.multiply(weights[1], group), x[1], "channels of the input")
    if isinstance(weights[0], int) and weights[0] % group:
        raise ShapeError(f"{weights[0]} output channels cannot be split into {group} groups")
    if len(call.params) == 3 and call.params[2].name == "bias" and call.has(2):
        _check_bias(call, weights[0])
    return (x[0], weights[0], *window_shape(call.attrs, x[2:], kernel))


def _check_bias(call: Call, channels: Dim) -> None:
    (size,) = call.rank(2, 1)
    if dims.differ(size, channels):
        raise ShapeError(
            f"bias must have {channels} entries, one an output channel, found {call.type(2)}"
        )


def _with_bias(y: A, bias: A | None) -> A:
    if bias is not None:
        y += bias.astype(y.dtype, copy=False).reshape(-1, *[1] * (y.ndim - 2))
    return y


def _conv(x: A, weights: A, bias: A | None, attrs: Attrs) -> A:
    win = window(attrs, x.shape[2:], weights.shape[2:])
    return _with_bias(convolve(x, weights, win, integer(attrs, "group")), bias)


def _conv_transpose_shape(call: Call) -> Shape:
    kernel, x, weights = _kernel(call), call.shape(0), call.shape(1)
    group = integer(call.attrs, "group")
    _check_channels(call, weights[0], x[1], "channels of the input")
    if isinstance(weights[0], int) and weights[0] % group:
        raise ShapeError(f"{weights[0]} input channels cannot be split into {group} groups")
    channels = dims.multiply(weights[1], group)
    if call.has(2):
        _check_bias(call, channels)
    out = _transposed(call.attrs, x[2:], kernel)[3]
    if any(isinstance(d, int) and d < 0 for d in out):
        raise ShapeError(f"the pads crop more than there is: output {list(out)}")
    return (x[0], channels, *out)


def _conv_transpose(x: A, weights: A, bias: A | None, attrs: Attrs) -> A:
    return _with_bias(deconvolve(x, weights, attrs), bias)


def _conv_integer(x: A, weights: A, x_zero: A | None, w_zero: A | None, attrs: Attrs) -> A:
    codes, kernel = x.astype(np.float64), weights.astype(np.float64)
    if x_zero is not None:
        codes -= x_zero.astype(np.float64).reshape(())
    if w_zero is not None:
        kernel -= w_zero.astype(np.float64).reshape(-1, *[1] * (kernel.ndim - 1))
    y = convolve(
        codes, kernel, window(attrs, x.shape[2:], weights.shape[2:]), integer(attrs, "group")
    )
    return y.astype(np.int64).astype(np.int32)  # int64 first: what exceeds s32 wraps around


_CODES = frozenset({DType.U8, DType.S8})

_PRODUCT = frozenset({Trait.PRODUCT, Trait.KEEPS_ZERO, Trait.READS_CODES})

CONVOLUTION: tuple[OpSpec, ...] = (
    row(
        "Conv",
        "Convolution in 1, 2 or 3 spatial dimensions, weights [OC, IC/group, *kernel].",
        "x:F weights:F bias:F?",
        attrs=_WINDOW,
        wide=2,
        shape=_conv_shape,
        compute=_conv,
        traits=_PRODUCT,
        primitive="convolution",
    ),
    row(
        "ConvTranspose",
        "Transposed convolution (deconvolution), weights [IC, OC/group, *kernel].",
        "x:F weights:F bias:F?",
        attrs={**_WINDOW, "output_padding": (), "output_shape": ()},
        wide=2,
        shape=_conv_transpose_shape,
        compute=_conv_transpose,
        traits=_PRODUCT,
        primitive="deconvolution",
    ),
    row(
        "ConvInteger",
        "Convolution of 8-bit codes minus their zero points, in exact s32; padding counts as the zero point.",
        "x:T1 weights:T2 x_zero_point:T1? w_zero_point:T2?",
        attrs=_WINDOW,
        types={"T1": _CODES, "T2": _CODES},
        shape=_conv_shape,
        compute=_conv_integer,
        result=DType.S32,
    ),
)
