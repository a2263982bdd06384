"""The convolutions of a plan: as they are, or with what their kernels do not take done beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.ops import OPS
from ...ir.ops.rows import integer
from ...ir.ops.windows import Window
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import row_major
from ...onednn.memory import MemoryDesc
from ...plan.attributes import Binary, PrimitiveAttr
from ...plan.types import Step
from ..padding import has_fraction
from .binding import Binder, first_lowered, need
from .convolving import (
    bias_as_operand,
    by_position,
    convolution_window,
    offered,
    space_to_depth,
    space_to_depth_of,
)
from .in_f32 import Factors, commit_in_f32, operand_in_f32, product_in_f32
from .joining import Frame, joined_frame, wide
from .translation import Added, Scaled, bias_of, same_frame
from .values import NotLowered, Offer, Wanted, Weights


def convolution(binder: Binder, step: Step) -> None:
    """A convolution, 1-D to 3-D, grouped or not."""
    name = need(step, "weights")
    shape, groups = binder.dims(name), integer(OPS["Conv"].known(step.params), "group")
    dims = shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])
    win = convolution_window(binder, step)
    blocks = space_to_depth_of(binder, step, win)
    if blocks is not None:
        try:
            space_to_depth(binder, step, blocks)
        except NotLowered:
            pass  # as any other convolution, then
        else:
            return
    _windowed(binder, step, Weights.of(binder, name, dims), win, shape[0])


def deconvolution(binder: Binder, step: Step) -> None:
    """A transposed convolution: with its own kernel, or with one that has zero taps behind it,
    which changes no sum.
    """
    if not binder.is_constant(need(step, "weights")):
        raise NotLowered("weights of a deconvolution that are computed at run time")
    first_lowered(
        _with_zero_taps(convolution_window(binder, step)),
        lambda win: _transposed(binder, step, win),
    )


def _transposed(binder: Binder, step: Step, win: Window) -> None:
    """A transposed convolution; ONNX's weights are [IC, OC/g, k...], oneDNN's [g, OC/g, IC/g,
    k...]. The window's kernel may be larger.
    """
    name = need(step, "weights")
    shape, groups = binder.dims(name), integer(OPS["ConvTranspose"].known(step.params), "group")
    inputs, outputs, kernel = shape[0] // groups, shape[1], shape[2:]
    dims = (outputs, inputs, *win.kernel) if groups == 1 else (groups, outputs, inputs, *win.kernel)

    def view(array: NDArray[Any]) -> NDArray[Any]:
        turned = array.reshape(groups, inputs, outputs, *kernel).swapaxes(1, 2)
        more = [(0, 0)] * 3 + [(0, k - own) for k, own in zip(win.kernel, kernel, strict=True)]
        return (np.pad(turned, more) if win.kernel != kernel else turned).reshape(dims)

    _windowed(binder, step, Weights.of(binder, name, dims, view), win, outputs * groups)


def _with_zero_taps(win: Window) -> Iterator[Window]:
    """A transposed window, and the same with zero taps behind the kernel's: none of the output lies
    behind the last tap, and at most one row between the taps of two neighbours.
    """
    yield win
    behind = [-(end // d) for end, d in zip(win.end, win.dilations, strict=True)]
    between = [
        -(((k - 1) * d + 2 - s) // d)
        for k, d, s in zip(win.kernel, win.dilations, win.strides, strict=True)
    ]
    between[-1] = 0  # within a row
    more = [max(taps, 0) for taps in map(max, behind, between)]
    kernel = tuple(k + taps for k, taps in zip(win.kernel, more, strict=True))
    end = tuple(e + taps * d for e, taps, d in zip(win.end, more, win.dilations, strict=True))
    yield replace(win, kernel=kernel, end=end)


def _windowed(binder: Binder, step: Step, weights: Weights, win: Window, channels: int) -> None:
    """The step as it is, or with the operands of its post-ops broadcast beforehand: kernels
    broadcast in a few patterns only. Where kernels of codes would saturate, in f32.
    """
    spread = (frozenset[str](), _broadcast_operands(binder, step))
    # a depthwise kernel waits for memory: in f32 it is as fast as by codes, and codes need not be converted
    depthwise = weights.dims[1:3] == (1, 1) and len(weights.dims) > len(binder.dims(step.output))
    first = depthwise and binder.in_lanes(need(step, "src"))
    first = first or step.name in binder.constants.in_f32
    ways = [(written_out, in_f32) for in_f32 in (first, not first) for written_out in spread]

    def lower(way: tuple[frozenset[str], bool]) -> None:
        written_out, in_f32 = way
        if in_f32:
            _in_f32(binder, step, weights, win, channels, written_out)
            return
        src = need(step, "src")
        given = MemoryDesc.any(binder.library, binder.dims(src), binder.dtype(src))
        fraction = has_fraction(step)
        bias = None if fraction else bias_of(binder, step, (channels,))
        added = bias_as_operand(binder, step) if fraction else None
        offer = offered(
            binder, step, step.attr, given, weights, bias, win, step.primitive, written_out, added
        )
        binder.commit(step, offer.reading({Arg.SRC: Wanted(src, offer.desc.src_md())}))

    first_lowered(ways, lower)


def _in_f32(
    binder: Binder,
    step: Step,
    weights: Weights,
    win: Window,
    channels: int,
    written_out: frozenset[str],
) -> None:
    grouped = len(weights.dims) > len(binder.dims(step.output))
    along = (1, channels, *(1 for _ in win.kernel))
    product = product_in_f32(
        binder, step, weights, range(2 if grouped else 1, len(weights.dims)), along
    )
    if has_fraction(step):
        added: Added | None = bias_as_operand(binder, step)
    else:
        added = operand_in_f32(binder, step.arg("bias"), along)

    def offer(attr: PrimitiveAttr, part: Factors, added: Added | None, scaled: Scaled) -> Offer:
        source = MemoryDesc.any(binder.library, binder.dims(part.source), DataType.f32)
        found = offered(
            binder,
            step,
            attr,
            source,
            part.weights,
            None,
            win,
            step.primitive,
            written_out,
            added,
            scaled=scaled,
        )
        return found.reading({Arg.SRC: Wanted(part.source, found.desc.src_md())})

    def frames(like: MemoryDesc) -> Iterator[Frame]:
        dims = binder.dims(step.output)
        yield same_frame(dims, like, written_out)
        if math.prod(dims[2:]) == 1:
            flat = row_major(binder.library, dims[:2], DataType.f32)
            yield joined_frame(dims, ((0,), tuple(range(1, len(dims)))), flat, written_out)

    commit_in_f32(binder, step, product, added, offer, frames)


def _broadcast_operands(binder: Binder, step: Step) -> frozenset[str]:
    """Operands of binary post-ops that are smaller than the destination, but for single numbers and
    those along the channels.
    """
    rank = len(binder.dims(step.output))

    def is_small(name: str) -> bool:
        dims = wide(binder.dims(name), rank)
        return dims != binder.dims(step.output) and any(
            size != 1 for axis, size in enumerate(dims) if axis != 1
        )

    small = filter(is_small, (op.operand for op in step.attr.post_ops if isinstance(op, Binary)))
    return frozenset((*small, by_position(step)) if has_fraction(step) else small)
