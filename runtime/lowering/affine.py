"""A binary step that only scales and shifts codes channel by channel, as a depthwise 1x1
convolution.

oneDNN's binary finds the channel of each vector by a division; its depthwise convolution knows it,
and is four times as fast. The
arithmetic is the same: the codes times weights of 2 are exact, then come half the factor (a weights
scale), the shift (the bias) and the post-ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...onednn import primitives
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import channels_last, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...plan.attributes import Binary, PrimitiveAttr, Scale
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .translation import same_frame, translate

__all__ = ["affine"]

_CODES = (DataType.u8, DataType.s8)


def affine(binder: Binder, step: Step) -> None:
    """src_0 * factor[c] + shift[c] with post-ops, for codes [N, C, spatial...].

    Raises:
        NotLowered: the step is something else.
    """
    src, factor = step.arg("src_0"), step.arg("src_1")
    if (
        step.params.get("algorithm") != "mul"
        or src is None
        or factor is None
        or step.attr.zero_points
    ):
        raise NotLowered("no product")
    dims, dtype = binder.dims(step.output), binder.dtype(step.output)
    if (
        binder.is_constant(src)
        or binder.dtype(src) not in _CODES
        or len(dims) not in (3, 4)
        or binder.dims(src) != dims
    ):
        raise NotLowered("no codes of feature maps")
    if binder.desc(src) != channels_last(binder.library, dims, binder.dtype(src)):
        raise NotLowered("not channels last")
    if any(scale.values != (1.0,) for scale in step.attr.scales.values()):
        raise NotLowered("a further scale, which would be rounded into the factors")
    factors = _per_channel(binder, factor, dims)
    attr, shift = _split_shift(binder, step.attr, dims)
    channels, spatial = dims[1], len(dims) - 2
    library = binder.library
    given, target = (MemoryDesc.any(library, dims, kind) for kind in (binder.dtype(src), dtype))
    kernel = MemoryDesc.any(library, (channels, 1, 1, *[1] * spatial), DataType.s8)
    bias = None if shift is None else row_major(library, (channels,), DataType.f32)
    # Weights of 2, not of 1: without VNNI, kernels halve the weights of a signed source and round
    # them.
    scales = {"weights": Scale(tuple((factors / 2).tolist()), 3)}
    translated = translate(
        binder,
        PrimitiveAttr(scales, {}, attr.post_ops),
        same_frame(dims, channels_last(library, dims, dtype)),
        dtype,
    )
    if translated.sum_operand is not None:
        raise NotLowered("a sum")
    ones, zeros = (1,) * spatial, (0,) * spatial
    twos = np.full((channels, 1, 1, *ones), 2, np.int8)
    found = first_accepted(
        binder,
        [given],
        lambda desc: primitives.convolution(
            binder.engine,
            desc,
            kernel,
            bias,
            target,
            strides=ones,
            dilations=zeros,
            padding_l=zeros,
            padding_r=zeros,
            attributes=translated.attributes,
            origin=binder.origin(step),
        ),
        lambda: twos,
    )
    args: dict[int, Wanted | Memory] = {
        **translated.args,
        Arg.SRC: Wanted(src, found.src_md()),
        Arg.WEIGHTS: binder.constants.packed(
            "twos", f"{channels} depthwise", twos, found.weights_md()
        ),
    }
    if shift is not None:
        args[Arg.BIAS] = binder.constants.vector(shift)
    binder.commit(step, found, args)


def _per_channel(
    binder: Binder, name: str, dims: Sequence[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The values of a constant along the channels.

    Raises:
        NotLowered: it is computed at run time, is not f32, or varies along another axis.
    """
    if not binder.is_constant(name):
        raise NotLowered(f"{name} is computed at run time")
    data = binder.constants.data(name)
    wide = data.reshape((1,) * (len(dims) - data.ndim) + data.shape)
    if (
        data.dtype != np.float32
        or wide.size not in (1, dims[1])
        or (wide.size > 1 and wide.shape[1] != wide.size)
    ):
        raise NotLowered(f"{name} {list(data.shape)} does not run along the channels")
    return np.ascontiguousarray(np.broadcast_to(wide.reshape(-1), (dims[1],)))


def _split_shift(
    binder: Binder, attr: PrimitiveAttr, dims: Sequence[int]
) -> tuple[PrimitiveAttr, np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None]:
    """The attributes without a leading `binary(add)` along the channels, and that operand, which
    becomes the bias.
    """
    if not attr.post_ops:
        return attr, None
    first = attr.post_ops[0]
    if not isinstance(first, Binary) or first.algorithm != "add" or first.scale is not None:
        return attr, None
    return replace(attr, post_ops=attr.post_ops[1:]), _per_channel(binder, first.operand, dims)
