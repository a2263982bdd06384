"""Convolution and deconvolution as oneDNN primitives: weights packed once, layouts left to the
library; parts of it serve matmul, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.ops import OPS
from ...ir.ops.convolution import transposed_window
from ...ir.ops.windows import Window, window
from ...onednn import primitives
from ...onednn.attributes import Attributes
from ...onednn.capi import OneDnnError
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import channels_last, relaid, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.attributes import Binary
from ...plan.types import Step
from .binding import REFUSED, Binder, NotLowered, Wanted, first_accepted
from .joining import wide
from .pointwise import need
from .stem import stem, stem_of
from .translation import Translated, same_frame, translate

__all__ = ["Weights", "commit_summed", "convolution", "convolution_window", "deconvolution"]

_LARGE_MAP = 28 * 28


@dataclass(frozen=True)
class Weights:
    """The weights argument: its shape in the primitive, and how the plan's array becomes it."""

    name: str
    dims: tuple[int, ...]
    dtype: DataType
    view: Callable[[NDArray[Any]], NDArray[Any]]

    def data(self, binder: Binder) -> NDArray[Any] | None:
        """The weights in the primitive's shape; None where they are computed at run time."""
        return (
            self.view(binder.constants.data(self.name)) if binder.is_constant(self.name) else None
        )

    def argument(self, binder: Binder, desc: MemoryDesc) -> Wanted | Memory:
        """The weights in the layout `desc`: packed once when constant."""
        if binder.is_constant(self.name):
            array = self.view(binder.constants.data(self.name))
            return binder.constants.packed(self.name, f"weights {list(self.dims)}", array, desc)
        return Wanted(self.name, desc)


def convolution(binder: Binder, step: Step) -> None:
    """A convolution, 1-D to 3-D, grouped or not."""
    name = need(step, "weights")
    shape, groups = binder.dims(name), _integer(step, "group", 1)
    dims = shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])
    weights = Weights(name, dims, binder.dtype(name), lambda array: array.reshape(dims))
    win = convolution_window(binder, step)
    blocks = stem_of(binder, step, win)
    if blocks is not None:
        try:
            stem(binder, step, blocks)
        except NotLowered:
            pass  # as any other convolution, then
        else:
            return
    _windowed(binder, step, weights, primitives.convolution, win, shape[0])


def deconvolution(binder: Binder, step: Step) -> None:
    """A transposed convolution: with its own kernel, or with one that has zero taps behind it,
    which changes no sum.
    """
    name = need(step, "weights")
    if not binder.is_constant(name):
        raise NotLowered("weights of a deconvolution that are computed at run time")
    win = transposed_window(
        OPS["ConvTranspose"].known(step.params),
        binder.dims(need(step, "src"))[2:],
        binder.dims(name)[2:],
    )
    try:
        _transposed(binder, step, win)
    except NotLowered as refusal:
        wider = _with_zero_taps(win)
        if wider is None:
            raise
        try:
            _transposed(binder, step, wider)
        except NotLowered as second:
            raise NotLowered(f"{refusal}; {second}") from second


def _transposed(binder: Binder, step: Step, win: Window) -> None:
    """A transposed convolution; ONNX's weights are [IC, OC/g, k...], oneDNN's [g, OC/g, IC/g,
    k...]. The window's kernel may be larger.
    """
    name = need(step, "weights")
    shape, groups = binder.dims(name), _integer(step, "group", 1)
    inputs, outputs, kernel = shape[0] // groups, shape[1], shape[2:]
    dims = (outputs, inputs, *win.kernel) if groups == 1 else (groups, outputs, inputs, *win.kernel)

    def view(array: NDArray[Any]) -> NDArray[Any]:
        turned = array.reshape(groups, inputs, outputs, *kernel).swapaxes(1, 2)
        more = [(0, 0)] * 3 + [(0, k - own) for k, own in zip(win.kernel, kernel, strict=True)]
        return (np.pad(turned, more) if win.kernel != kernel else turned).reshape(dims)

    weights = Weights(name, dims, binder.dtype(name), view)
    _windowed(binder, step, weights, primitives.deconvolution, win, outputs * groups)


def convolution_window(binder: Binder, step: Step) -> Window:
    """The window of a convolution, its padding resolved."""
    kernel = binder.dims(need(step, "weights"))[2:]
    return window(OPS["Conv"].known(step.params), binder.dims(need(step, "src"))[2:], kernel)


def _with_zero_taps(win: Window) -> Window | None:
    """The same transposed window with zero taps behind the kernel's: none of the output lies behind
    the last tap, and at most one row between the taps of two neighbours. None where that is so
    already."""
    behind = [-(end // d) for end, d in zip(win.end, win.dilations, strict=True)]
    between = [
        -(((k - 1) * d + 2 - s) // d)
        for k, d, s in zip(win.kernel, win.dilations, win.strides, strict=True)
    ]
    between[-1] = 0  # within a row
    more = [max(taps, 0) for taps in map(max, behind, between)]
    if not any(more):
        return None
    kernel = tuple(k + taps for k, taps in zip(win.kernel, more, strict=True))
    end = tuple(e + taps * d for e, taps, d in zip(win.end, more, win.dilations, strict=True))
    return replace(win, kernel=kernel, end=end)


def _windowed(
    binder: Binder,
    step: Step,
    weights: Weights,
    create: Callable[..., PrimitiveDesc],
    win: Window,
    channels: int,
) -> None:
    """The step as it is, or with the operands of its post-ops broadcast beforehand: kernels
    broadcast in a few patterns only.
    """
    try:
        _primitive(binder, step, weights, create, win, channels, frozenset())
    except NotLowered as refusal:
        broadcast = _broadcast_operands(binder, step)
        if not broadcast:
            raise
        try:
            _primitive(binder, step, weights, create, win, channels, broadcast)
        except NotLowered as second:
            raise NotLowered(f"{refusal}; {second}") from second


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

    return frozenset(
        filter(is_small, (op.operand for op in step.attr.post_ops if isinstance(op, Binary)))
    )


def _primitive(
    binder: Binder,
    step: Step,
    weights: Weights,
    create: Callable[..., PrimitiveDesc],
    win: Window,
    channels: int,
    written_out: frozenset[str],
) -> None:
    src, bias = need(step, "src"), step.arg("bias")
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    mask = 1 if len(weights.dims) == len(dims) else 3
    library = binder.library
    spatial = {
        "strides": win.strides,
        "dilations": tuple(d - 1 for d in win.dilations),
        "padding_l": win.begin,
        "padding_r": win.end,
    }
    bias_desc = None if bias is None else row_major(library, (channels,), binder.dtype(bias))
    source = MemoryDesc.any(library, binder.dims(src), binder.dtype(src))
    kernel = MemoryDesc.any(library, weights.dims, weights.dtype)
    target = MemoryDesc.any(library, dims, dtype)

    def make(given: MemoryDesc, attributes: Attributes) -> PrimitiveDesc:
        return create(
            binder.engine,
            given,
            kernel,
            bias_desc,
            target,
            **spatial,
            attributes=attributes,
            origin=binder.origin(step),
        )

    def frame(like: MemoryDesc) -> Translated:
        return translate(
            binder, step.attr, same_frame(dims, like, written_out), dtype, {"weights": mask}
        )

    guess = channels_last(library, dims, dtype)
    found, translated = _settled(binder, source, frame, make, guess, lambda: weights.data(binder))
    if step.primitive == "convolution":
        found = _faster_depthwise(binder, found, win) or make(source, translated.attributes)
    args: dict[int, Wanted | Memory] = {
        **translated.args,
        Arg.SRC: Wanted(src, found.src_md()),
        Arg.WEIGHTS: weights.argument(binder, found.weights_md()),
    }
    if bias is not None and bias_desc is not None:
        args[Arg.BIAS] = Wanted(bias, bias_desc)
    commit_summed(binder, step, found, args, translated)


def _faster_depthwise(binder: Binder, desc: PrimitiveDesc, win: Window) -> PrimitiveDesc | None:
    """The same descriptor, on another implementation where that is faster; None where looking for
    one has lost the first.
    """
    if (
        not desc.impl_info.startswith("brdgmm_dw")
        or max(win.strides) > 1
        or math.prod(win.out) < _LARGE_MAP
        or math.prod(win.kernel) == 1
    ):
        return desc
    # Measured on AVX-512: for 3x3 windows over maps of 28x28 and more the older kernel takes 0.75
    # to 0.9 of the time.
    if desc.next_impl() and desc.impl_info.startswith("jit_int8") and not binder.objection(desc):
        return desc
    return None


def _settled(
    binder: Binder,
    source: MemoryDesc,
    attributes: Callable[[MemoryDesc], Translated],
    make: Callable[[MemoryDesc, Attributes], PrimitiveDesc],
    guess: MemoryDesc,
    weights: Callable[[], NDArray[Any] | None],
) -> tuple[PrimitiveDesc, Translated]:
    """A descriptor whose post-op operands have the destination's layout: guessed first, then as the
    library chose it.
    """
    made: list[tuple[PrimitiveDesc, Translated]] = []

    def attempt(like: MemoryDesc) -> PrimitiveDesc:
        translated = attributes(like)
        made.append((make(source, translated.attributes), translated))
        return made[-1][0]

    def layouts() -> Iterator[MemoryDesc]:
        yield guess
        try:
            bare = make(
                source, Attributes()
            ).dst_md()  # what the library would take without operands
        except OneDnnError as error:
            if error.status not in REFUSED:
                raise
            return
        if bare != guess:
            yield bare

    found = first_accepted(binder, layouts(), attempt, weights)
    return next(pair for pair in made if pair[0] is found)


def commit_summed(
    binder: Binder,
    step: Step,
    desc: PrimitiveDesc,
    args: dict[int, Wanted | Memory],
    translated: Translated,
) -> None:
    """Runs a primitive as the step, with the operand of its `sum`, if there is one, in the
    destination.
    """
    if translated.sum_operand is None:
        binder.commit(step, desc, args)
        return
    name, dst = translated.sum_operand.value, desc.dst_md()
    kind = binder.dtype(name)
    like = dst if kind == dst.dtype else relaid(dst, dst.dims, kind)
    if like is None:
        raise NotLowered(f"the operand of sum cannot lie as {dst}")
    binder.commit(step, desc, args, Wanted(name, like))


def _integer(step: Step, param: str, default: int) -> int:
    value = step.params.get(param, default)
    return value if isinstance(value, int) else default
