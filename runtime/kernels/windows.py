"""Sliding windows over channels-last tensors: what a tile of outputs reads, and im2col of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...ir.ops.spec import Array
from ...ir.ops.windows import Window
from .base import Layout, Recorder, Tile, nbytes


def _reach(win: Window, axis: int, cut: slice) -> tuple[int, int]:
    """First padded input index that a range of outputs reads, and the index behind the last."""
    step, taps = win.strides[axis], win.kernel[axis]
    return cut.start * step, (cut.stop - 1) * step + (taps - 1) * win.dilations[axis] + 1


def slab_bytes(win: Window, tile: Tile, channels: int, dtype: npt.DTypeLike) -> int:
    """Scratch that `record_slab` takes for a tile of (N, output spatial...)."""
    return nbytes((*_slab_shape(win, tile), channels), dtype)


def _slab_shape(win: Window, tile: Tile) -> tuple[int, ...]:
    """Images and spatial sizes of the padded input that a tile reads."""
    spans = (_reach(win, axis, cut) for axis, cut in enumerate(tile[1:]))
    return (tile[0].stop - tile[0].start, *(stop - start for start, stop in spans))


def record_slab(
    win: Window,
    x: Array,
    tile: Tile,
    dtype: npt.DTypeLike,
    shift: float,
    fill: float,
    record: Recorder,
    *,
    planar: bool = False,
) -> Array:
    """Takes down the part of the padded input that a tile of outputs reads, converted to `dtype`,
    minus `shift`; the padding holds `fill`.

    Args:
        win: the window.
        x: input, channels last: [N, spatial..., C].
        tile: cuts of (N, output spatial...).
        dtype: element type of the result.
        shift: subtracted from the data (a zero point).
        fill: what the padding holds.
        record: takes the calls down, gives scratch.
        planar: keep the channels apart in memory; the result's shape is the same.
    """
    cuts = tile[1:]
    images, *spatial = _slab_shape(win, tile)
    if planar:
        shape = (images, x.shape[-1], *spatial)
        slab = Layout.CHANNELS_LAST.physical(record.take(shape, dtype))
    else:
        slab = record.take((images, *spatial, x.shape[-1]), dtype)
    source: list[slice] = [tile[0]]
    target: list[slice] = [slice(None)]
    for axis, cut in enumerate(cuts):
        start, stop = _reach(win, axis, cut)
        start, stop = start - win.begin[axis], stop - win.begin[axis]
        inside = slice(min(max(start, 0), x.shape[axis + 1]), max(min(stop, x.shape[axis + 1]), 0))
        inside = slice(inside.start, max(inside.start, inside.stop))
        place = slice(inside.start - start, inside.stop - start)
        if place.start > 0 or place.stop < stop - start:
            lead = (slice(None),) * (axis + 1)
            for border in (slice(0, place.start), slice(place.stop, None)):
                part = slab[(*lead, border)]
                if part.size:
                    record(np.copyto, part, np.asarray(fill, slab.dtype))
        source.append(inside)
        target.append(place)
    interior = slab[tuple(target)]
    record.copy(interior, x[tuple(source)])
    if shift:
        record(np.subtract, interior, np.asarray(shift, slab.dtype), interior)
    return slab


def window_view(win: Window, slab: Array, sizes: Sequence[int]) -> Array:
    """All windows of a slab as a view: [N, output sizes..., kernel..., C].

    Args:
        win: the window.
        slab: padded input [N, spatial..., C] that begins at the first output's win.
        sizes: how many outputs along each spatial dimension.
    """
    first, *steps, last = slab.strides
    outer = [s * stride for s, stride in zip(steps, win.strides, strict=True)]
    inner = [s * dilation for s, dilation in zip(steps, win.dilations, strict=True)]
    shape = (slab.shape[0], *sizes, *win.kernel, slab.shape[-1])
    return np.lib.stride_tricks.as_strided(
        slab, shape, (first, *outer, *inner, last), writeable=False
    )
