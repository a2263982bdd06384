"""Geometry of sliding windows: resolved padding, and im2col of one tile in channels-last order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import InternalError
from ...ir.ops.spec import Array
from .base import Binding, Layout, Recorder, Tile, nbytes

__all__ = ["Window", "record_slab", "resolve_window", "slab_bytes", "slab_shape", "window_view"]


@dataclass(frozen=True)
class Window:
    """A sliding window over spatial dimensions.

    Attributes:
        input, output: spatial sizes.
        kernel, strides, dilations: one entry for each spatial dimension (dilation 1: no holes).
        begin, end: padding, in elements; negative crops.
    """

    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    @property
    def taps(self) -> int:
        """Positions of the kernel."""
        return math.prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """True when output positions are input positions."""
        return (
            self.taps == 1
            and set(self.strides) <= {1}
            and not any(self.begin)
            and not any(self.end)
        )

    def reach(self, axis: int, cut: slice) -> tuple[int, int]:
        """First padded input index that a range of outputs reads, and the index behind the last."""
        step = self.strides[axis]
        return cut.start * step, (cut.stop - 1) * step + (self.kernel[axis] - 1) * self.dilations[
            axis
        ] + 1


def resolve_window(
    binding: Binding, spatial: Sequence[int], kernel: Sequence[int], output: Sequence[int]
) -> Window:
    """The window of a convolution or pooling step: defaults filled in, auto_pad resolved, the end
    padding as large as the outputs need.
    """
    rank = len(spatial)
    strides = binding.ints("strides", (1,) * rank)
    dilations = binding.ints("dilations", (1,) * rank)
    pads = binding.ints("pads", (0,) * (2 * rank))
    auto = binding.text("auto_pad", "NOTSET")
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    needed = [
        max((o - 1) * s + e - i, 0)
        for o, s, e, i in zip(output, strides, extent, spatial, strict=True)
    ]
    if auto == "SAME_UPPER":
        begin = tuple(n // 2 for n in needed)
    elif auto == "SAME_LOWER":
        begin = tuple(n - n // 2 for n in needed)
    elif auto == "VALID":
        begin = (0,) * rank
    elif auto == "NOTSET":
        begin = pads[:rank]
    else:
        raise InternalError(f"auto_pad {auto}")
    end = tuple(
        (o - 1) * s + e - i - b
        for o, s, e, i, b in zip(output, strides, extent, spatial, begin, strict=True)
    )
    return Window(tuple(spatial), tuple(output), tuple(kernel), strides, dilations, begin, end)


def slab_shape(
    window: Window, images: int, cuts: Sequence[slice], channels: int
) -> tuple[int, ...]:
    """Shape of the padded input that a tile reads."""
    spans = (window.reach(axis, cut) for axis, cut in enumerate(cuts))
    return (images, *(stop - start for start, stop in spans), channels)


def slab_bytes(
    window: Window, images: int, cuts: Sequence[slice], channels: int, dtype: npt.DTypeLike
) -> int:
    """Scratch that `record_slab` takes."""
    return nbytes(slab_shape(window, images, cuts, channels), dtype)


def record_slab(
    window: Window,
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
        window: the window.
        x: input, channels last: [N, spatial..., C].
        tile: cuts of (N, output spatial...).
        dtype: element type of the result.
        shift: subtracted from the data (a zero point).
        fill: what the padding holds.
        record: takes the calls down, gives scratch.
        planar: keep the channels apart in memory; the result's shape is the same.
    """
    cuts = tile[1:]
    shape = slab_shape(window, tile[0].stop - tile[0].start, cuts, x.shape[-1])
    layout = Layout.CHANNELS_LAST if planar else Layout.PLAIN
    slab = layout.physical(
        record.take((shape[0], shape[-1], *shape[1:-1]) if planar else shape, dtype)
    )
    source: list[slice] = [tile[0]]
    target: list[slice] = [slice(None)]
    for axis, cut in enumerate(cuts):
        start, stop = window.reach(axis, cut)
        start, stop = start - window.begin[axis], stop - window.begin[axis]
        inside = slice(
            min(max(start, 0), window.input[axis]), max(min(stop, window.input[axis]), 0)
        )
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


def window_view(window: Window, slab: Array, sizes: Sequence[int]) -> Array:
    """All windows of a slab as a view: [N, output sizes..., kernel..., C].

    Args:
        window: the window.
        slab: padded input [N, spatial..., C] that begins at the first output's window.
        sizes: how many outputs along each spatial dimension.
    """
    first, *steps, last = slab.strides
    outer = [s * stride for s, stride in zip(steps, window.strides, strict=True)]
    inner = [s * dilation for s, dilation in zip(steps, window.dilations, strict=True)]
    shape = (slab.shape[0], *sizes, *window.kernel, slab.shape[-1])
    return np.lib.stride_tricks.as_strided(
        slab, shape, (first, *outer, *inner, last), writeable=False
    )
