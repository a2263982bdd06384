"""Sliding windows: what `kernel_shape`, `strides`, `pads`, `dilations`, `auto_pad` and `ceil_mode`
mean, for convolution and pooling.

Empty attributes stand for ONNX's absent ones: strides and dilations of 1, pads of 0, and the kernel
of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..types import Dim, Shape, dimensions
from . import dims
from .rows import A, flag, integers, text
from .spec import Attrs, ShapeError

_LARGEST = (1 << 31) - 1
"""The largest stride, dilation, pad, and window."""

AUTO_PADS = frozenset({"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"})


@dataclass(frozen=True)
class Window:
    """A window over static spatial dimensions, everything resolved; one entry a spatial dimension.

    Attributes:
        kernel, strides, dilations: as in ONNX.
        begin, end: zeros (or lowest values) put before and after.
        out: number of window positions.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def trivial(self) -> bool:
        """True of a 1x1 window that visits every element once: convolution is a matrix product
        then.
        """
        return set(self.kernel + self.strides) == {1} and not any(self.begin + self.end)

    def taps(self, padded: A) -> Iterator[tuple[tuple[int, ...], A]]:
        """For each position in the kernel: its index, and the view [..., *out] of the elements
        under it.

        `padded` must reach as far as the last window does: `reach` elements in each spatial
        dimension.
        """
        for tap in np.ndindex(*self.kernel):
            under = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s) if o > 0 else slice(0, 0)
                for t, d, o, s in zip(tap, self.dilations, self.out, self.strides, strict=True)
            )
            yield tap, at(padded, under)

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements of the padded input the windows cover."""
        return tuple(
            (o - 1) * s + (k - 1) * d + 1
            for o, s, k, d in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )


def window(attrs: Attrs, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window of a convolution or pooling over static spatial dimensions.

    Args:
        attrs: the row's attributes; `ceil_mode` may be missing.
        spatial: sizes of the input's spatial dimensions.
        kernel: sizes of the kernel.

    Raises:
        ShapeError: attributes that do not fit together, or a window larger than the padded input.
    """
    strides, dilations, pads = _resolved(attrs, len(spatial))
    out = tuple(d for d in window_shape(attrs, spatial, kernel) if isinstance(d, int))
    count = len(spatial)
    win = Window(tuple(kernel), strides, dilations, pads[:count], pads[count:], out)
    auto = text(attrs, "auto_pad", AUTO_PADS)
    if auto.startswith("SAME"):
        total = [max(r - n, 0) for r, n in zip(win.reach, spatial, strict=True)]
        begin = tuple(t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total)
        end = tuple(t - h for t, h in zip(total, begin, strict=True))
        return replace(win, begin=begin, end=end)
    return win


def window_shape(attrs: Attrs, spatial: Sequence[Dim], kernel: Sequence[int]) -> Shape:
    """Number of window positions in each spatial dimension, symbolic ones included.

    floor((n + pads - span) / stride) + 1 with span = (kernel-1)*dilation + 1; with ceil_mode the
    division rounds up, but no window starts in the padding behind the input; SAME_UPPER and
    SAME_LOWER give ceil(n / stride).

    Raises:
        ShapeError: attributes that do not fit together, or a window larger than the padded input.
    """
    strides, dilations, pads = _resolved(attrs, len(spatial))
    if len(kernel) != len(spatial):
        raise ShapeError(
            f"the kernel must have {dimensions(len(spatial))}, one a spatial dimension of the input, found {list(kernel)}"
        )
    if min(kernel, default=1) < 1:
        raise ShapeError(f"the sizes of the kernel must be positive, found {list(kernel)}")
    same = text(attrs, "auto_pad", AUTO_PADS).startswith("SAME")
    ceil = flag(attrs, "ceil_mode") if "ceil_mode" in attrs else False
    shape: list[Dim] = []
    for axis, (n, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        if same:
            shape.append(dims.ceil_div(n, s))
            continue
        begin, end = pads[axis], pads[axis + len(spatial)]
        span = (k - 1) * d + 1
        if span > _LARGEST:
            raise ShapeError(
                f"a window of {span} elements is too large: primitives count in 32 bits, up to {_LARGEST}"
            )
        room = dims.add(n, begin + end - span)
        if isinstance(room, int) and room < 0:
            raise ShapeError(
                f"a window of {span} elements does not fit into {n} + {begin + end} of padding (spatial dimension {axis})"
            )
        count = dims.add(dims.ceil_div(room, s) if ceil else dims.floor_div(room, s), 1)
        shape.append(dims.minimum(count, dims.ceil_div(dims.add(n, begin), s)) if ceil else count)
    return tuple(shape)


def _resolved(attrs: Attrs, count: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, dilations and pads with absent ones filled in and checked."""
    strides = integers(attrs, "strides") or (1,) * count
    dilations = integers(attrs, "dilations") or (1,) * count
    explicit = text(attrs, "auto_pad", AUTO_PADS) == "NOTSET"
    pads = (integers(attrs, "pads") if explicit else ()) or (0,) * (2 * count)
    check_lengths(count, strides=strides, dilations=dilations)
    check_lengths(2 * count, pads=pads)
    check_positive(strides, dilations, pads)
    return strides, dilations, pads


def pad_spatial(x: A, begin: Sequence[int], end: Sequence[int], value: float) -> A:
    """x [N, C, *spatial] with `value` before and after each spatial dimension; x itself when there
    is nothing to add.
    """
    if not any(begin) and not any(end):
        return x
    padded: A = np.full(
        x.shape[:2] + tuple(b + n + e for b, n, e in zip(begin, x.shape[2:], end, strict=True)),
        value,
        x.dtype,
    )
    at(padded, tuple(slice(b, b + n) for b, n in zip(begin, x.shape[2:], strict=True)))[...] = x
    return padded


def at(x: A, spatial: tuple[slice, ...]) -> A:
    """The view of x [N, C, *spatial] at slices of its spatial dimensions."""
    index: tuple[Any, ...] = (..., *spatial)
    view: A = x[index]
    return view


def taps_within(
    starts: npt.NDArray[np.int64], taps: int, dilation: int, low: int, high: int
) -> npt.NDArray[np.int64]:
    """How many taps of windows that begin at `starts` lie at `low` or behind it, and in front of
    `high`.
    """
    behind = np.clip(-((starts - low) // dilation), 0, taps)
    before: npt.NDArray[np.int64] = np.clip(-((starts - high) // dilation), 0, taps)
    return before - behind


def check_positive(
    strides: tuple[int, ...], dilations: tuple[int, ...], pads: tuple[int, ...]
) -> None:
    """Raises ShapeError unless strides and dilations are positive, pads are not negative, and all
    of them fit in 32 bits.
    """
    largest = max(strides + dilations + pads, default=0)
    if largest > _LARGEST:
        raise ShapeError(
            f"{largest} is too large for a stride, dilation or pad: primitives count in 32 bits, up to {_LARGEST}"
        )
    if min(strides + dilations, default=1) < 1 or min(pads, default=0) < 0:
        found = f"{list(strides)}, {list(dilations)}, {list(pads)}"
        raise ShapeError(
            f"strides and dilations must be positive and pads not negative, found {found}"
        )


def check_lengths(expected: int, **lists: tuple[int, ...]) -> None:
    """Raises ShapeError for the first of the named attributes that has not the expected number of
    entries.
    """
    for name, found in lists.items():
        if len(found) != expected:
            raise ShapeError(f"{name} must have {expected} entries, found {list(found)}")


def lowest(dtype: np.dtype[np.generic]) -> float:
    """The smallest value of a NumPy type, which never wins a maximum: -inf for floats."""
    return (
        float("-inf")
        if dtype.kind == "f"
        else 0
        if dtype.kind == "b"
        else int(np.iinfo(dtype.name).min)
    )
