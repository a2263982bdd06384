"""What a zero point that is no integer adds to the bias of a (de)convolution, at each position.

With k the integer nearest to the zero point z::

    sum of (q - z)*w = sum of (q - k)*w - (z - k) * sum of w

over the taps of a window that read something. Padding is the real 0, which no code stands for, and has
no part in either sum; so the second one is smaller at the borders. It depends on the shapes and not
on the data, and is computed when a step is bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..ir.ops import OPS
from ..ir.ops.rows import integer
from ..ir.ops.spec import Array
from ..ir.ops.windows import Window
from ..plan.types import Plan, Step
from .numerics import F32Array
from .windows import window_of

_AT_ONCE = 1 << 20  # elements in f64


def has_fraction(step: Step) -> bool:
    """True of a (de)convolution whose source has a zero point that is no integer."""
    zero = step.attr.zero_points.get("src")
    return zero is not None and bool(zero.values) and zero.fraction != 0


def bytes_by_position(plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Bytes of all that `bias_by_position` makes for a plan, of the shapes that are known."""
    return sum(
        math.prod(shapes[step.output][1:]) * np.dtype(np.float32).itemsize
        for step in plan.steps
        if has_fraction(step) and step.output in shapes
    )


def bias_by_position(
    step: Step, weights: Array, bias: Array | None, spatial: Sequence[int]
) -> F32Array:
    """The bias [1, OC, *output] with what the fraction takes off it: formed in f64, rounded once.

    It has the units of the step's bias: behind the scales of the arguments, in front of an output
    scale.

    Args:
        step: a convolution or deconvolution of codes.
        weights: in ONNX's layout.
        bias: of the step, for each output channel.
        spatial: sizes of the source's spatial dimensions.
    """
    zero, win = step.attr.zero_points["src"], window_of(step, spatial, weights.shape[2:])
    taps, transposed = _by_tap(step, weights), step.op == "ConvTranspose"
    factor = np.full(taps.shape[0], -zero.fraction)
    for role in ("src", "weights"):
        if role in step.attr.scales:
            factor = factor * step.attr.scales[role].array.astype(np.float64)
    added = np.zeros(taps.shape[0]) if bias is None else np.ravel(bias).astype(np.float64)
    found = np.empty((1, taps.shape[0], *win.out), np.float32)
    column = (-1, *(1 for _ in spatial))
    # first the axes that become shorter, so that nothing between is larger than both ends
    axes = sorted(range(len(spatial)), key=lambda axis: win.out[axis] / max(1, win.kernel[axis]))
    count = max(1, _AT_ONCE // max(1, math.prod(win.out), math.prod(win.kernel)))
    for start in range(0, taps.shape[0], count):
        part = slice(start, start + count)
        sums = taps[part]
        for axis in axes:
            sums = _at_positions(sums, win, axis, spatial[axis], transposed=transposed)
        found[0, part] = sums * factor[part].reshape(column) + added[part].reshape(column)
    return found


def _at_positions(
    sums: npt.NDArray[np.float64], win: Window, axis: int, size: int, *, transposed: bool
) -> npt.NDArray[np.float64]:
    """Sums over the taps of one axis, which becomes the axis of positions."""
    width = max(1, _AT_ONCE // max(1, win.kernel[axis]))
    starts = range(0, max(1, win.out[axis]), width)
    parts = [
        np.tensordot(
            sums,
            _inside(
                win,
                axis,
                size,
                np.arange(start, min(start + width, win.out[axis])),
                transposed=transposed,
            ),
            axes=([1 + axis], [0]),
        )
        for start in starts
    ]
    return np.moveaxis(np.concatenate(parts, -1), -1, 1 + axis)


def _by_tap(step: Step, weights: Array) -> npt.NDArray[np.float64]:
    """[OC, *kernel]: the sum of the weights that an output channel has at each tap: integers."""
    sums: npt.NDArray[np.float64]
    if step.op != "ConvTranspose":
        sums = weights.sum(1, dtype=np.float64)
        return sums
    groups, kernel = integer(OPS[step.op].known(step.params), "group"), weights.shape[2:]
    parts = weights.reshape(groups, -1, weights.shape[1], *kernel)
    sums = parts.sum(1, dtype=np.float64).reshape(-1, *kernel)
    return sums


def _inside(
    win: Window, axis: int, size: int, places: npt.NDArray[np.int64], *, transposed: bool
) -> npt.NDArray[np.float64]:
    """[taps, positions] along one axis: 1 where the tap of a window at a position reads one of the
    `size` elements, else 0.
    """
    taps = np.arange(win.kernel[axis])[:, None] * win.dilations[axis]
    if transposed:  # output o reads element i by the tap t where o + begin = i * stride + t
        reads = places + win.begin[axis] - taps
        within = (reads % win.strides[axis] == 0) & (reads // win.strides[axis] < size)
    else:
        reads = places * win.strides[axis] + taps - win.begin[axis]
        within = reads < size
    found: npt.NDArray[np.float64] = (within & (reads >= 0)).astype(np.float64)
    return found
