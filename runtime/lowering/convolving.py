"""Convolutions as oneDNN primitives, weights packed once, and what runs as a convolution of another
form because that is faster: the first one of an image network, and a step that scales and shifts
codes channel by channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.windows import Window
from ...onednn.attributes import Attributes
from ...onednn.capi import OneDnnError
from ...onednn.enums import AlgKind, Arg, DataType, arg_scales
from ...onednn.layouts import channels_last, relaid, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...onednn.primitive_desc import PrimitiveDesc
from ...plan.accumulator import EXACT_IN_F32, sums_of
from ...plan.attributes import Binary, Eltwise, PostOp, PrimitiveAttr, Scale, Sum
from ...plan.types import Step
from ..padding import bias_by_position
from ..windows import window_of
from .binding import Binder, first_accepted, need
from .faster import faster_convolution
from .joining import Frame
from .translation import Added, Scaled, bias_of, numbers, same_frame, translate
from .values import Args, NotLowered, Offer, Wanted, Weights

_CODES = (DataType.u8, DataType.s8)
_LARGE_MAP = 28 * 28


def check_sums(binder: Binder, step: Step) -> None:
    """Raises NotLowered for sums in s32 that may be none of f32: oneDNN 3.2 converts them to f32 and
    back, in all kernels but one.
    """
    if binder.dtype(step.output) != DataType.s32:
        return
    dtype, weights = binder.plan.type(need(step, "src")).dtype, need(step, "weights")
    data = binder.constants.data(weights) if binder.is_constant(weights) else None
    bound = sums_of(step, dtype, binder.dims(weights), data, EXACT_IN_F32)
    if bound > EXACT_IN_F32:
        raise NotLowered(
            f"oneDNN stores s32 by way of f32, which does not hold every sum up to {bound:.0f}"
        )


def offered(
    binder: Binder,
    step: Step,
    attr: PrimitiveAttr,
    source: MemoryDesc,
    weights: Weights,
    bias: Wanted | Memory | None,
    win: Window,
    kind: str = "convolution",
    written_out: frozenset[str] = frozenset(),
    added: Added | None = None,
    *,
    guessed: bool = False,
    scaled: Scaled | None = None,
) -> Offer:
    """A (de)convolution for a step, but for its source, whose post-op operands have the
    destination's layout: channels last, else as the library chose it.

    Args:
        binder: the binder.
        step: the step.
        attr: the attributes.
        source: how the source is given.
        weights, bias, win: the other arguments, and the window.
        kind: `deconvolution`, too.
        written_out: operands of post-ops that are broadcast beforehand.
        added: gives what the first post-op adds.
        guessed: channels last only.
        scaled: it computes in f32.
    """
    check_sums(binder, step)
    dims, library = binder.dims(step.output), binder.library
    dtype = binder.dtype(step.output) if scaled is None else DataType.f32
    mask = 1 if len(weights.dims) == len(dims) else 3
    bias_desc = None if bias is None else bias.desc

    make = partial(_described, binder, step, kind, source, weights, bias_desc, win, dtype)

    def attempt(candidate: tuple[MemoryDesc, MemoryDesc | None]) -> Offer:
        like, target = candidate
        frame = same_frame(dims, like, written_out)
        leading = () if added is None else ((AlgKind.binary_add, added(frame)),)
        translated = translate(binder, attr, frame, dtype, mask, step, leading, scaled)
        return translated.offer(make(translated.attributes, target), {})

    last = channels_last(library, dims, dtype)
    layouts = ((like, None) for like in _layouts(last, make, guessed=guessed))
    # an f32 kernel may choose blocks, in which operands as large as the destination do not lie
    candidates = chain(layouts, [] if scaled is None else [(last, last)])
    offer = first_accepted(binder, candidates, attempt, weights, step.arg("src"))
    if kind == "convolution":
        offer = replace(offer, desc=faster_convolution(binder, offer.desc, win))
    args: dict[int, Wanted | Memory] = {}
    args[Arg.WEIGHTS] = weights.argument(binder, offer.desc.weights_md())
    if bias is not None:
        args[Arg.BIAS] = bias
    return offer.reading(args)


def _described(
    binder: Binder,
    step: Step,
    kind: str,
    source: MemoryDesc,
    weights: Weights,
    bias: MemoryDesc | None,
    win: Window,
    dtype: DataType,
    attributes: Attributes,
    target: MemoryDesc | None = None,
) -> PrimitiveDesc:
    library = binder.library
    return binder.describe(
        step,
        kind,
        source,
        MemoryDesc.any(library, weights.dims, weights.dtype),
        bias,
        target or MemoryDesc.any(library, binder.dims(step.output), dtype),
        strides=win.strides,
        dilations=tuple(d - 1 for d in win.dilations),
        padding_l=win.begin,
        padding_r=win.end,
        attributes=attributes,
    )


def _layouts(
    guess: MemoryDesc, make: Callable[[Attributes], PrimitiveDesc], *, guessed: bool
) -> Iterator[MemoryDesc]:
    """How the destination may lie: as guessed, or as the library would have it without operands."""
    yield guess
    if guessed:
        return
    try:
        bare = make(Attributes()).dst_md()
    except OneDnnError as error:
        if not error.is_refusal:
            raise
        return
    if bare != guess:
        yield bare


def by_position(step: Step) -> str:
    """The name of a step's bias where it varies with the position, among `written_out` names."""
    return f"{step.name}/bias by position"


def bias_as_operand(binder: Binder, step: Step) -> Added:
    """The bias of a step whose source has a zero point that is no integer, in the destination's layout; for each
    image of a batch where it is to be written out.
    """
    bias = step.arg("bias")
    positions = bias_by_position(
        step,
        binder.constants.data(need(step, "weights")),
        None if bias is None else binder.constants.data(bias),
        binder.dims(need(step, "src"))[2:],
    )

    def operand(frame: Frame) -> Memory:
        shape = frame.operand(positions.shape)
        if shape is None:
            raise NotLowered(f"a bias {list(positions.shape)} for {list(frame.dims)}")
        dims = frame.dims if by_position(step) in frame.written_out else shape
        library = binder.library
        desc = relaid(frame.like, dims, DataType.f32) or row_major(library, dims, DataType.f32)
        return binder.written_out(by_position(step), dims, desc, positions.reshape(shape))

    return operand


def convolution_window(binder: Binder, step: Step) -> Window:
    """The window of a (de)convolution, its padding resolved."""
    spatial, kernel = (binder.dims(need(step, role))[2:] for role in ("src", "weights"))
    return window_of(step, spatial, kernel)


# -- the first convolution of an image network -----------------------------------------------------

_FEW = 4  # channels
_WIDE = 5  # smallest kernel; a 3x3 one gains nothing


@dataclass(frozen=True)
class SpaceToDepth:
    """A convolution by space to depth: one that qualifies, and the one over blocks that it becomes.

    oneDNN's fast int8 kernels want channels in fours and more; for a 7x7 convolution with stride 2
    over three channels it takes an older kernel. Blocks of 2x2 pixels seen as one pixel of four
    times the channels turn it into a 4x4 convolution with stride 1, which takes 0.8 of the time.
    The sums are the same integers: taps that the larger window adds have zero weights, and the
    input is brought into that order by the same reorder that would have transposed it.

    Attributes:
        image: [N, C, H, W], H and W even.
        window: over blocks.
        lead: zero taps in front of the first one, in each direction.
    """

    image: tuple[int, ...]
    window: Window
    lead: tuple[int, ...]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The image's shape with blocks as pixels; channels in the order (row, column, channel)."""
        n, c, h, w = self.image
        return n, 4 * c, h // 2, w // 2

    def weights(self, data: NDArray[Any]) -> NDArray[Any]:
        """[OC, C, kh, kw] as [OC, 4 * C, *kernel]."""
        oc, c, kh, kw = data.shape
        (rows, columns), (top, left) = self.window.kernel, self.lead
        wide = np.zeros((oc, c, 2 * rows, 2 * columns), data.dtype)
        wide[:, :, top : top + kh, left : left + kw] = data
        parts = wide.reshape(oc, c, rows, 2, columns, 2).transpose(0, 3, 5, 1, 2, 4)
        return np.ascontiguousarray(parts.reshape(oc, 4 * c, rows, columns))


def space_to_depth_of(binder: Binder, step: Step, win: Window) -> SpaceToDepth | None:
    """What a convolution becomes; None where it does not qualify."""
    src, weights = need(step, "src"), need(step, "weights")
    image = binder.dims(src)
    if (
        len(image) != 4
        or not binder.is_constant(weights)
        or min(win.kernel) < _WIDE
        or set(win.strides) != {2}
        or set(win.dilations) != {1}
        or image[1] > _FEW
        or binder.dims(weights)[1] != image[1]
        or image[2] % 2
        or image[3] % 2
        or binder.dtype(src) not in _CODES
    ):
        return None
    before = tuple((pad + 1) // 2 for pad in win.begin)
    lead = tuple(2 * blocks - pad for blocks, pad in zip(before, win.begin, strict=True))
    kernel = tuple(
        (size - 1 + extra) // 2 + 1 for size, extra in zip(win.kernel, lead, strict=True)
    )
    after = tuple(
        o + k - 1 - b - size // 2
        for o, k, b, size in zip(win.out, kernel, before, image[2:], strict=True)
    )
    if min(after) < 0:
        return None
    ones = (1, 1)
    return SpaceToDepth(image, Window(kernel, ones, ones, before, after, win.out), lead)


def space_to_depth(binder: Binder, step: Step, found: SpaceToDepth) -> None:
    """Runs such a convolution over blocks.

    Raises:
        NotLowered: no fast implementation takes it, or it has a sum.
    """
    if any(isinstance(op, Sum) for op in step.attr.post_ops):
        raise NotLowered("a sum")
    src, name = need(step, "src"), need(step, "weights")
    blocks = channels_last(binder.library, found.blocks, binder.dtype(src))
    channels = binder.dims(name)[0]
    dims = (channels, found.blocks[1], *found.window.kernel)
    weights = Weights.of(binder, name, dims, found.weights, f"blocks {found.lead}")
    bias = bias_of(binder, step, (channels,))
    offer = offered(binder, step, step.attr, blocks, weights, bias, found.window, guessed=True)
    if not offer.desc.impl_info.startswith("brgconv"):
        raise NotLowered("no faster kernel")
    binder.commit(step, offer.reading({Arg.SRC: _blocks(binder, src, found, blocks)}))


def _blocks(binder: Binder, value: str, found: SpaceToDepth, seen: MemoryDesc) -> Wanted:
    """The image in blocks: [N, C, H/2, 2, W/2, 2] written in the order (N, H/2, W/2, row, column,
    C).
    """
    (n, c, h, w), kind, library = found.image, binder.dtype(value), binder.library
    split = (n, c, h // 2, 2, w // 2, 2)
    row = 4 * c * (w // 2)
    order = MemoryDesc.with_strides(library, split, kind, (row * (h // 2), 1, row, 2 * c, 4 * c, c))
    return binder.rearranged(
        value, f"{value} in blocks", row_major(library, split, kind), order, seen
    )


# -- codes scaled and shifted channel by channel ---------------------------------------------------


def affine(binder: Binder, step: Step) -> None:
    """src_0 * factor[c] + shift[c] with post-ops, for codes [N, C, spatial...], as a depthwise 1x1
    convolution; likewise where the codes are src_1.

    oneDNN's binary finds the channel of each vector by a division; its depthwise convolution knows
    it, and is four times as fast. The arithmetic is the same: the codes times weights of 2 are
    exact, then come half the factor (a weights scale), the shift (the bias) and the post-ops.
    Weights of 2, not of 1: without VNNI, kernels halve the weights of a signed source and round
    them. Factors that are codes computed at run time, as in squeeze and excitation, are weights
    scales as they are: twice the product is exact, too, and the first post-op halves it.

    Raises:
        NotLowered: the step is something else.
    """
    dims, attr = binder.dims(step.output), step.attr
    src, factor = need(step, "src_0"), need(step, "src_1")
    if binder.dims(src) != dims:
        src, factor = factor, src
    kind = binder.dtype(src)
    if step.params["algorithm"] != "mul" or attr.zero_points:
        raise NotLowered("no product")
    maps = len(dims) in (3, 4) and binder.dims(src) == dims
    if binder.is_constant(src) or kind not in _CODES or not maps:
        raise NotLowered("no codes of feature maps")
    if binder.desc(src) != channels_last(binder.library, dims, kind):
        raise NotLowered("not channels last")
    if any(scale.values != (1.0,) for scale in attr.scales.values()):
        raise NotLowered("a further scale, which would be rounded into the factors")
    if any(isinstance(op, Sum) for op in attr.post_ops):
        raise NotLowered("a sum")
    computed: Args = {}
    if binder.is_constant(factor):
        factors, post_ops = _per_channel(binder, factor, dims) * np.float32(0.5), attr.post_ops
    else:
        computed = {arg_scales(Arg.WEIGHTS): _codes_per_channel(binder, factor, dims)}
        factors, post_ops = np.ones(dims[1], np.float32), _halved(attr.post_ops)
    bias = None
    match post_ops:
        case (Binary("add", operand, None, None), *_):  # a leading shift along the channels
            bias = binder.constants.vector(_per_channel(binder, operand, dims))
            post_ops = post_ops[1:]
    offer = _depthwise(binder, step, src, factors, bias, post_ops)
    binder.commit(step, offer.reading({Arg.SRC: Wanted(src, offer.desc.src_md()), **computed}))


def _depthwise(
    binder: Binder,
    step: Step,
    src: str,
    factors: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    bias: Memory | None,
    post_ops: tuple[PostOp, ...],
) -> Offer:
    """The depthwise 1x1 convolution by weights of 2, scaled by a factor for each channel."""
    dims = binder.dims(step.output)
    channels, ones = dims[1], (1,) * (len(dims) - 2)
    zeros = (0,) * len(ones)
    twos = np.full((channels, 1, 1, *ones), 2, np.int8)
    return offered(
        binder,
        step,
        PrimitiveAttr({"weights": Scale(tuple(factors.tolist()), 3)}, {}, post_ops),
        MemoryDesc.any(binder.library, dims, binder.dtype(src)),
        Weights("twos", twos.shape, DataType.s8, f"{channels} depthwise", lambda: twos),
        bias,
        Window(ones, ones, ones, zeros, zeros, dims[2:]),
        guessed=True,
    )


def _halved(post_ops: tuple[PostOp, ...]) -> tuple[PostOp, ...]:
    """The post-ops behind a product, for twice the product."""
    match post_ops:
        case (Eltwise("linear", alpha, beta, 1), *behind):
            return (Eltwise("linear", alpha / 2, beta), *behind)
    return (Eltwise("linear", 0.5, 0.0), *post_ops)


def _codes_per_channel(binder: Binder, name: str, dims: Sequence[int]) -> Wanted | Memory:
    """Codes along the channels that are computed at run time, as f32 [C].

    The conversion costs a call, and binary is slow where a row of channels is a few vectors: from
    28x28 positions on the convolution was as fast or up to four times as fast (32 to 240 channels),
    at 14x14 and 7x7 half as fast (480 to 1152).

    Raises:
        NotLowered: they are no codes, or vary along another axis; or the map is small.
    """
    if math.prod(dims[2:]) < _LARGE_MAP:
        raise NotLowered("a small map, where binary is faster")
    if binder.dtype(name) not in _CODES or binder.dims(name) != (
        1,
        dims[1],
        *(1 for _ in dims[2:]),
    ):
        raise NotLowered(f"{name} are no codes along the channels")
    return numbers(binder, name, dims[1], DataType.f32)


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
