"""Of binaries, softmaxes and reorders."""

from __future__ import annotations

import math

from ..attributes import Binary, PRelu
from ..enums import DataType
from ..layouts import channels_last, row_major
from ..primitive_desc import Request
from .defect import BOTH, Defect, binary_operands, operand


def _softmax_of_channels(request: Request) -> bool:
    return request.parameters["axis"] != 1 and any(
        size != 1 for dims in binary_operands(request) for size in dims
    )


def _channels_elsewhere(request: Request) -> bool:
    return _vector_elsewhere(request) or _channels_between(request)


def _vector_elsewhere(request: Request) -> bool:
    dst = operand(request, "dst")
    for_channels = any(
        dims[1] > 1 and math.prod(dims) == dims[1]
        for dims in binary_operands(request)
        if len(dims) > 1
    )
    if not for_channels and not any(
        isinstance(op, PRelu) and op.mask == 2 for op in request.attributes.post_ops
    ):
        return False
    maps = len(dst.dims) > 2 and (math.prod(dst.dims[2:]) > 1 or dst.dims[0] == 1)
    read_right = [channels_last, row_major] if maps else [channels_last]
    return not dst.is_plain or all(
        dst.strides != like(dst.library, dst.dims, dst.dtype).strides for like in read_right
    )


def _channels_between(request: Request) -> bool:
    src = operand(request, "src0")
    if not src.is_plain or not any(
        dims[0] == 1 and dims[1] > 1 for dims in binary_operands(request) if len(dims) > 1
    ):
        return False
    samples, channels, *spatial = src.strides
    return channels != 1 and not samples >= channels >= max(spatial, default=1)


def _vector_of_the_last(request: Request) -> bool:
    """An operand varies along the last dimension alone, in another order than row-major; or two do, behind
    another post-op.
    """
    dst = operand(request, "dst")
    vectors = [
        dims
        for dims in binary_operands(request)
        if len(dims) > 2 and dims[-1] > 1 and math.prod(dims) == dims[-1]
    ]
    if len(vectors) > 1 and not isinstance(request.attributes.post_ops[0], Binary):
        return True
    return bool(vectors) and dst != row_major(dst.library, dst.dims, dst.dtype)


def _codes_of_part_filled_blocks(request: Request) -> bool:
    src = operand(request, "src0")
    return (
        operand(request, "dst").dtype in (DataType.u8, DataType.s8) and src.padded_dims != src.dims
    )


def _inner_blocks(request: Request) -> bool:
    """True where blocks of channels lie within a spatial dimension."""
    src = operand(request, "src0")
    if src.is_plain or not request.attributes.post_ops:
        return False
    around = [step for step, size in zip(src.strides[2:], src.dims[2:], strict=True) if size > 1]
    return max(around, default=0) > src.strides[1]


def _scales_of_dimensions_apart(request: Request) -> bool:
    """The dimensions that a mask of scales selects are not next to each other."""
    masks = [mask // (mask & -mask) for mask in request.attributes.scales.values() if mask > 0]
    return any(mask & (mask + 1) for mask in masks)


POINTWISE: tuple[Defect, ...] = (
    Defect(
        "softmax with an operand",
        "softmax",
        r"jit:",
        _softmax_of_channels,
        "a post-op has an operand for each channel, and the softmax runs along another axis",
        "the operand is read as if the channels were the axis of the softmax, beyond its end: errors up to 1e36",
        "NumPy",
        "3 to 16 channels, ranks 3 to 5",
    ),
    Defect(
        "binary of another order",
        "binary",
        r"jit:",
        _channels_elsewhere,
        "a post-op has an operand for each channel, and the tensors lie neither channels last nor row-major with spatial dimensions; "
        "or one that samples share, and the channels lie between other dimensions",
        "wrong elements of the operand",
        "channels last, or as a matrix [N, C]",
        "632 of 804 drawn orders in ranks 2 to 5",
        versions=BOTH,
    ),
    Defect(
        "binary with an operand for the last dimension",
        "binary",
        r"jit:",
        _vector_of_the_last,
        "a post-op has an operand that varies along the last dimension of three or more alone, in another order than row-major; "
        "or two have, with another post-op in front",
        "wrong elements of the operand",
        "row-major, or NumPy",
        "28 of 44 drawn shapes channels last or in another order, row-major none of 500; of two behind linear all of 16",
        versions=BOTH[1:],
        since=(3, 3, 0),
    ),
    Defect(
        "binary of blocks into codes",
        "binary",
        r"jit:",
        _codes_of_part_filled_blocks,
        "the source lies in blocks that its channels do not fill (an f32 convolution of 2 or 3 channels), and the destination has 8 bits",
        "the process ends: the kernel for the last block is not made, and called",
        "a plain layout, or NumPy",
        "2 and 3 channels in blocks of 8 and 16",
    ),
    Defect(
        "binary of inner blocks",
        "binary",
        r"jit:",
        _inner_blocks,
        "the blocks of channels lie further inside than a spatial dimension (aeBcd16b, which a concat along the last dimension takes), "
        "and a post-op follows",
        "where the channels do not fill their last block and a post-op is not 0 at 0, elements are overwritten with zeros; "
        "an operand for each channel is read at wrong places",
        "a plain layout, in which concat is made beforehand",
        "clipped 26 of 300 drawn shapes, with an operand for each channel 72 of 288",
    ),
    Defect(
        "reorder with scales of dimensions apart",
        "reorder",
        r"jit:uni",
        _scales_of_dimensions_apart,
        "scales run along several dimensions that are not next to each other, such as the first and the third",
        "other scales, and numbers behind the last one: they are counted as if the dimensions were next to each other",
        "NumPy",
        "[2, 3, 4, 5], row-major and channels last: all five such masks of a destination, one of a source",
        versions=BOTH,
    ),
)
