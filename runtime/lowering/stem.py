"""The first convolution of an image network, by space to depth.

oneDNN's fast int8 kernels want channels in fours and more; for a 7x7 convolution with stride 2 over
three channels it takes an older kernel. Blocks of 2x2 pixels seen as one pixel of four times the
channels turn it into a 4x4 convolution with stride 1, which takes 0.8 of
the time. The sums are the same integers: taps that the larger window adds have zero weights, and
the input is brought into that order by the same reorder that would have transposed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.windows import Window
from ...onednn import primitives
from ...onednn.enums import Arg, DataType
from ...onednn.layouts import channels_last, row_major
from ...onednn.memory import Memory, MemoryDesc
from ...plan.types import Step
from .binding import Binder, NotLowered, Wanted, first_accepted
from .translation import same_frame, translate

__all__ = ["Stem", "stem", "stem_of"]

_CODES = (DataType.u8, DataType.s8)
_FEW = 4  # channels
_WIDE = 5  # smallest kernel; a 3x3 one gains nothing


@dataclass(frozen=True)
class Stem:
    """A convolution that qualifies, and the convolution over blocks that it becomes.

    Attributes:
        image: [N, C, H, W], H and W even.
        kernel: sizes of the window over blocks.
        before, after: padding in blocks.
        lead: zero taps in front of the first one, in each direction.
    """

    image: tuple[int, ...]
    kernel: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    lead: tuple[int, int]

    @property
    def blocks(self) -> tuple[int, ...]:
        """The image's shape with blocks as pixels; channels in the order (row, column, channel)."""
        n, c, h, w = self.image
        return n, 4 * c, h // 2, w // 2

    def weights(self, data: NDArray[Any]) -> NDArray[Any]:
        """[OC, C, kh, kw] as [OC, 4 * C, *kernel]."""
        oc, c, kh, kw = data.shape
        (rows, columns), (top, left) = self.kernel, self.lead
        wide = np.zeros((oc, c, 2 * rows, 2 * columns), data.dtype)
        wide[:, :, top : top + kh, left : left + kw] = data
        parts = wide.reshape(oc, c, rows, 2, columns, 2).transpose(0, 3, 5, 1, 2, 4)
        return np.ascontiguousarray(parts.reshape(oc, 4 * c, rows, columns))


def stem_of(binder: Binder, step: Step, win: Window) -> Stem | None:
    """What a convolution becomes; None where it does not qualify."""
    src, weights = step.arg("src"), step.arg("weights")
    if src is None or weights is None or not binder.is_constant(weights):
        return None
    image, shape = binder.dims(src), binder.dims(weights)
    wide = (
        len(image) == 4
        and min(win.kernel) >= _WIDE
        and set(win.strides) == {2}
        and set(win.dilations) == {1}
    )
    if (
        not wide
        or image[1] > _FEW
        or shape[1] != image[1]
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
    return Stem(
        image,
        (kernel[0], kernel[1]),
        (before[0], before[1]),
        (after[0], after[1]),
        (lead[0], lead[1]),
    )


def stem(binder: Binder, step: Step, found: Stem) -> None:
    """Runs such a convolution over blocks.

    Raises:
        NotLowered: no fast implementation takes it, or it has more than scales, zero points, a bias
            and post-ops of constants.
    """
    src, name, bias = step.arg("src"), step.arg("weights"), step.arg("bias")
    if src is None or name is None:
        raise NotLowered("no plain convolution")
    library, dims, dtype = binder.library, binder.dims(step.output), binder.dtype(step.output)
    data = found.weights(binder.constants.data(name))
    blocks = channels_last(library, found.blocks, binder.dtype(src))
    bias_desc = None if bias is None else row_major(library, (dims[1],), binder.dtype(bias))
    translated = translate(
        binder,
        step.attr,
        same_frame(dims, channels_last(library, dims, dtype)),
        dtype,
        {"weights": 1},
    )
    if translated.sum_operand is not None:
        raise NotLowered("a sum")
    desc = first_accepted(
        binder,
        [blocks],
        lambda given: primitives.convolution(
            binder.engine,
            given,
            MemoryDesc.any(library, data.shape, DataType.s8),
            bias_desc,
            MemoryDesc.any(library, dims, dtype),
            strides=(1, 1),
            dilations=(0, 0),
            padding_l=found.before,
            padding_r=found.after,
            attributes=translated.attributes,
            origin=binder.origin(step),
        ),
        lambda: data,
    )
    if not desc.impl_info.startswith("brgconv"):
        raise NotLowered("no faster kernel")
    args: dict[int, Wanted | Memory] = {
        **translated.args,
        Arg.SRC: _blocks(binder, src, found, blocks),
        Arg.WEIGHTS: binder.constants.packed(
            name, f"blocks {found.kernel} {found.lead}", data, desc.weights_md()
        ),
    }
    if bias is not None and bias_desc is not None:
        args[Arg.BIAS] = Wanted(bias, bias_desc)
    binder.commit(step, desc, args)


def _blocks(binder: Binder, value: str, found: Stem, seen: MemoryDesc) -> Wanted:
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
