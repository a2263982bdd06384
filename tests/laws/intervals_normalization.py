"""Intervals of normalizations, softmax and resizing: what combines many elements and has no
direction, or weights that add up to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from laws.boxes import F64, Box, exactly, hull

if TYPE_CHECKING:
    from laws.intervals import Run

    from fqfuse.ir.node import Node


def batch_norm(run: Run, node: Node) -> Box:
    x = run.operand(node, 0)
    shape = (1, -1, *[1] * (x.low.ndim - 2))
    scale, bias, mean, variance = (run.operand(node, i).low.reshape(shape) for i in range(1, 5))
    factor = scale / np.sqrt(variance + node.attr("epsilon", float))
    box = hull((x.low - mean) * factor + bias, (x.high - mean) * factor + bias)
    size = np.maximum(np.maximum(x.magnitude, np.abs(mean)) * np.abs(factor), np.abs(bias))
    return box.widened(4 * run.eps * size)


def softmax(run: Run, node: Node) -> Box:
    x, axis = run.operand(node, 0), node.attr("axis", int)
    top = x.high.max(axis, keepdims=True)
    low, high = x.low - top, x.high - top
    least, most = _share(low, _others(high, axis)), _share(high, _others(low, axis))
    # the distance from the largest is rounded, too, in front of the exponential
    error = run.eps * (16 + np.minimum(-low, 100)) * most
    return Box(least, most).widened(error + run.unseen / 2 + _FLUSHED)


_FLUSHED = 2.0**-126
"""What oneDNN's softmax may have 0 for, next to the smallest normal number."""


def _share(own: F64, others: F64) -> F64:
    """exp(own) of the sum with the others, whose logarithm is given; 0 of minus infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(own == -np.inf, 0.0, 1 / (1 + np.exp(others - own)))


def _others(array: F64, axis: int) -> F64:
    """For each element the logarithm of the sum of all others' exponentials along an axis, without
    a difference that would lose what is small, and without what is 0 beside the largest: a wide
    interval's upper end may be far below it, and far above the others' lower ends.
    """
    line = np.moveaxis(array, axis, -1)
    before, behind = np.full_like(line, -np.inf), np.full_like(line, -np.inf)
    before[..., 1:] = np.logaddexp.accumulate(line[..., :-1], -1)
    behind[..., :-1] = np.logaddexp.accumulate(line[..., :0:-1], -1)[..., ::-1]
    return np.moveaxis(np.logaddexp(before, behind), -1, axis)


def layer_norm(run: Run, node: Node) -> Box:
    """Over the axes from `axis` on."""
    x = run.operand(node, 0)
    axes = tuple(range(node.attr("axis", int) % x.low.ndim, x.low.ndim))
    gain = run.operand(node, 1).low
    offset = run.operand(node, 2).low if len(node.inputs) > 2 and node.inputs[2] else np.zeros(1)
    return _normalized(run, x, axes, gain, offset, node.attr("epsilon", float))


def _normalized(
    run: Run, x: Box, axes: tuple[int, ...], gain: F64, offset: F64, epsilon: float
) -> Box:
    """To first order in the radius: d xhat = (dx - mean(dx) - xhat * mean(dx * xhat)) / std,
    doubled.
    """
    middle = x.middle
    mean = middle.mean(axes, keepdims=True)
    deviation = np.sqrt(((middle - mean) ** 2).mean(axes, keepdims=True) + epsilon)
    hat = (middle - mean) / deviation
    largest = np.maximum(
        x.radius.max(axes, keepdims=True), 4 * run.eps * x.magnitude.max(axes, keepdims=True)
    )
    error = np.abs(gain) * 2 * largest * (2 + np.abs(hat)) / deviation
    result = hat * gain + offset
    return exactly(result).widened(error + 8 * run.eps * (np.abs(hat * gain) + np.abs(offset)))


def group_norm(run: Run, node: Node) -> Box:
    """A layer normalization of each group, or channel, with a gain and an offset for each channel."""
    x = run.operand(node, 0)
    channels = x.low.shape[1]
    groups = node.attr("num_groups", int) if node.op == "GroupNormalization" else channels
    each = (-1, groups, channels // groups, *x.low.shape[2:])
    low, high = x.low.reshape(each), x.high.reshape(each)
    shape = (1, groups, channels // groups, *[1] * (x.low.ndim - 2))
    gain, offset = (run.operand(node, i).low.reshape(shape) for i in (1, 2))
    box = _normalized(
        run, Box(low, high), tuple(range(2, low.ndim)), gain, offset, node.attr("epsilon", float)
    )
    return Box(box.low.reshape(x.low.shape), box.high.reshape(x.low.shape))


def lrn(run: Run, node: Node) -> Box:
    """x / (bias + alpha / size * sum of squares over neighbouring channels)^beta, with each
    occurrence of x on its own: wide, but right.
    """
    x = run.operand(node, 0)
    size, alpha, beta, bias = (
        node.attr("size", int),
        *(node.attr(name, float) for name in ("alpha", "beta", "bias")),
    )
    ends = x.absolute()
    before = (size - 1) // 2
    padding = ((0, 0), (before, size - 1 - before), *[(0, 0)] * (x.low.ndim - 2))
    sums = [
        np.lib.stride_tricks.sliding_window_view(np.pad(end**2, padding), size, 1).sum(-1)
        for end in (ends.low, ends.high)
    ]
    least, most = ((bias + alpha / size * total) ** beta for total in sums)
    box = hull(x.low / least, x.low / most, x.high / least, x.high / most)
    return box.widened(16 * run.eps * box.magnitude)


def resize(run: Run, node: Node) -> Box:
    """A weighted mean, non-decreasing in each value; nearest copies."""
    box = run.increasing(node)[0]
    error = (
        0.0
        if node.attr("mode", str) == "nearest"
        else 8 * run.eps * run.operand(node, 0).magnitude.max(initial=0)
    )
    return box.widened(error)
