"""What oneDNN 3.2's compiled code takes where the references compute otherwise.

Source: `init_conf` and `post_ops_ok` of oneDNN 3.2.0's `jit_uni_x8s8s32x_deconvolution` and
`jit_uni_reduction`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..ir.types import DType
from ..plan.attributes import Binary, DepthwiseConv, Prelu, Sum
from ..plan.summation_of_steps import (
    adds_late,
    adds_unlike,
    read_by_reference_only,
)
from .description import HALVES, Description, axes, grouped, has_single_taps

_CODES = (DType.S8, DType.U8)
_LANES = (8, 4)
"""Channels of one register: AVX2, SSE4.1 (and groups that are no multiple of 8)."""

_REGISTERS = 12
_MOST_BLOCKS = 4


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension: sizes, and the padding that is left to the end."""

    source: int
    result: int
    kernel: int
    stride: int
    dilation: int
    begin: int

    @property
    def reach(self) -> int:
        return 1 + (self.kernel - 1) * (self.dilation + 1)

    @property
    def end(self) -> int:
        return (self.source - 1) * self.stride + self.reach - self.result - self.begin


def compiled_deconvolution(description: Description) -> bool:
    """Whether the code for AVX2 and SSE4.1 takes a deconvolution of codes, as the last one before the
    reference, on CPUs with AVX-512 too: a sum's zero point whatever the type, and sums whose later
    types are others. Scales are checked before: it takes those that the reference does.
    """
    if description.dtype("src") not in _CODES or not _post_ops(description):
        return False
    types = [*description.tensors.values(), *description.operands.values()]
    if not HALVES.isdisjoint(type_.dtype for type_ in types):
        return False
    if any(zero.mask for zero in description.attr.zero_points.values()):
        return False
    found = [
        _Axis(source, result, kernel, stride, dilation, begin)
        for source, result, kernel, stride, dilation, begin in zip(
            description.dims("src")[2:],
            description.dims("dst")[2:],
            description.dims("weights")[-len(description.dims("src")) + 2 :],
            *axes(description)[:3],
            strict=True,
        )
    ]
    if any(axis.dilation and axis.stride != 1 for axis in found):
        return False
    if any(axis.reach <= max(axis.begin, axis.end) for axis in found):
        return False
    return any(_rows_fit(found[-1], blocks) for blocks in _blocks(description))


def deconvolution_takes_post_ops(whole: Description, isa: str) -> bool:
    """Whether own code of a deconvolution of codes takes its post-ops: AVX-512's, and that for single taps, what
    convolutions read, and sums that are alike, AVX-512's one in front without a zero point; that for AVX2
    and SSE4.1, on all, what `_post_ops` tells, of rows that fit it.
    """
    post_ops, out, type_of = whole.attr.post_ops, whole.dims("dst"), whole.operands.__getitem__
    unread = read_by_reference_only("convolution", post_ops, out, type_of)
    sums = [op for op in post_ops if isinstance(op, Sum)]
    told = any(op.dtype is not None for op in sums)
    if has_single_taps(whole) and not (unread or adds_unlike(post_ops)):
        return isa == "avx512_core" or not told
    if isa != "avx512_core":
        return _post_ops(whole)
    moved = any(op.zero_point for op in sums)
    return not (unread or told or moved or adds_late(post_ops)) or compiled_deconvolution(whole)


def _post_ops(description: Description) -> bool:
    """Whether that code takes the post-ops: sums are alike, and operands one number, or one for each channel."""
    post_ops = description.attr.post_ops
    sums = [op for op in post_ops if isinstance(op, Sum)]
    if any((op.scale, op.zero_point) != (sums[0].scale, sums[0].zero_point) for op in sums):
        return False
    if (sums and sums[0].dtype is not None) or any(
        isinstance(op, DepthwiseConv) for op in post_ops
    ):
        return False
    return all(_broadcasts(shape, description.dims("dst")) for shape in _operands(description))


def _broadcasts(shape: Sequence[int], dst: Sequence[int]) -> bool:
    others = (size for axis, size in enumerate(shape) if axis != 1)
    return all(size == 1 for size in others) and shape[1] in (1, dst[1])


def _blocks(description: Description) -> Iterator[int]:
    """How many registers the channels of a group fill, by each of the two codes; none where they do
    not fill them.
    """
    weights = description.dims("weights")
    groups = weights[0] if grouped(description) else 1
    inputs, outputs = (description.dims(role)[1] // groups for role in ("src", "dst"))
    if grouped(description) and inputs == outputs == 1:
        if description.dtype("src") is DType.U8 and len(description.dims("src")) < 5:
            yield 1
        return
    for lanes in _LANES:
        if groups == 1 or (inputs % lanes == 0 and outputs % lanes == 0):
            yield -(-outputs // lanes)


def _rows_fit(axis: _Axis, blocks: int) -> bool:
    """Whether as many elements as registers hold sums of cover the edges of a row."""
    at_once = min(_MOST_BLOCKS, blocks)
    while at_once > 1 and (blocks % at_once or axis.begin > _REGISTERS // (at_once + 1)):
        at_once -= 1
    most = _REGISTERS // (at_once + 1)
    if axis.result < most:
        return True
    left = max(0, (axis.reach - 1 - axis.begin) // axis.stride)
    for width in range(most, 0, -1):
        behind = axis.reach - 1 - max(0, axis.end) - axis.result % width
        right = max(0, behind // axis.stride)
        if width % axis.stride == 0 and width >= max(left, right) * axis.stride:
            return True
    return False


def _operands(description: Description) -> Iterator[tuple[int, ...]]:
    """The shapes of what post-ops read, but for sums."""
    for op in description.attr.post_ops:
        if isinstance(op, Binary | Prelu):
            yield description.operands[op.operand].static_shape


def compiled_reduction(description: Description) -> bool:
    """Whether compiled code takes a reduction: it reduces the last dimensions of plain tensors."""
    src, dst = description.dims("src"), description.dims("dst")
    reduced = [axis for axis, (s, d) in enumerate(zip(src, dst, strict=True)) if s != d]
    if len(src) > 5 or reduced != [*range(reduced[0], len(src))]:
        return False
    return not any(
        isinstance(op, DepthwiseConv)
        or (isinstance(op, Sum) and op.zero_point)
        or (isinstance(op, Binary) and description.operands[op.operand].dtype is DType.F16)
        or (isinstance(op, Binary | Prelu) and not _known_broadcast(description, op))
        for op in description.attr.post_ops
    )


def _known_broadcast(description: Description, op: Binary | Prelu) -> bool:
    """An operand that is one number, whole, or varies along the channels."""
    shape, dst = description.operands[op.operand].static_shape, description.dims("dst")
    varies = [axis for axis, size in enumerate(shape) if size != 1]
    if shape == dst:  # slopes lie with the channels last, the destination does not
        return isinstance(op, Binary) or len(dst) < 3 or math.prod(dst[1:]) == 1
    return varies in ([], [1])
