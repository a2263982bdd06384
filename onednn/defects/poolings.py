"""Of poolings and resamplings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..attributes import Binary, Sum
from ..enums import AlgKind, DataType
from ..layouts import row_major
from ..memory import MemoryDesc
from ..primitive_desc import Request
from .defect import BOTH, Defect, binary_operands, operand

_COMPARISONS = frozenset(AlgKind[f"binary_{name}"] for name in ("ge", "gt", "le", "lt", "eq", "ne"))


def _row_major(desc: MemoryDesc) -> bool:
    return desc == row_major(desc.library, desc.dims, desc.dtype)


def _transposing_pooling(request: Request) -> bool:
    src = operand(request, "src")
    if src.dtype not in (DataType.f32, DataType.bf16) or not _row_major(src):
        return False
    return any(map(_varies_beyond_channels, binary_operands(request)))


def _pooling_of_blocks(request: Request) -> bool:
    return not operand(request, "src").is_plain and any(
        op.src1.is_plain and _varies_beyond_channels(op.src1.dims)
        for op in request.attributes.post_ops
        if isinstance(op, Binary)
    )


def _varies_beyond_channels(dims: Sequence[int]) -> bool:
    return any(size != 1 for axis, size in enumerate(dims) if axis != 1)


def _averaged_and_compared(request: Request) -> bool:
    dst = operand(request, "dst")
    return (
        request.parameters["alg"] != AlgKind.pooling_max
        and dst.dtype in (DataType.u8, DataType.s8)
        and dst.dims[1] > 16
        and any(
            isinstance(op, Binary) and op.alg in _COMPARISONS for op in request.attributes.post_ops
        )
    )


def _with_sum(request: Request) -> bool:
    return any(isinstance(op, Sum) for op in request.attributes.post_ops)


def _resampled_last(request: Request) -> bool:
    # The destination tells: of a source of length 1 the layout cannot be told.
    dst = operand(request, "dst")
    first = 1 if dst.is_plain else 0  # in blocks, an operand for each sample is read wrongly, too
    return not _row_major(dst) and any(
        size != 1 for dims in binary_operands(request) for size in dims[first:]
    )


def _resampled_vector(request: Request) -> bool:
    dims = operand(request, "dst").dims
    return dims[0] == math.prod(dims[2:]) == 1 and any(
        operand[1] > 1 for operand in binary_operands(request)
    )


def _one_position(request: Request) -> bool:
    dims = operand(request, "src").dims
    return math.prod(dims[2:]) == 1 and dims[1] > 1


POOLINGS: tuple[Defect, ...] = (
    Defect(
        "pooling of blocks with a tensor",
        "pooling",
        r"jit:",
        _pooling_of_blocks,
        "the source lies in blocks of channels, and a post-op has an operand, row-major or channels last, that varies along "
        "another dimension",
        "the operand is read as if it lay in blocks as well, beyond its end",
        "channels last",
        "52 of 60 drawn shapes row-major, 47 of 60 channels last, none in blocks",
    ),
    Defect(
        "row-major pooling with a tensor",
        "pooling",
        r"jit:",
        _transposing_pooling,
        "f32 or bf16 in row-major order, and a post-op has an operand that varies along another dimension than the channels",
        "wrong elements of the operand: it is read as if it had been transposed with the source",
        "channels last",
        "maximum and average, 8 to 20 channels",
        versions=BOTH,
    ),
    Defect(
        "average of codes with a comparison",
        "pooling",
        r"jit_int:avx512",
        _averaged_and_compared,
        "an average of more than 16 channels is stored in 8 bits, and a post-op compares",
        "channels from the 17th on are those of others, or 0",
        "the next implementation",
        "u8 and s8, of 17 to 70 channels; each of gt, ge, lt, le with all of 9 counts of channels, "
        "eq and ne with 6 or 7 of them; maxima, an f32 destination, AVX2 and SSE4.1 are right",
        versions=BOTH,
    ),
    Defect(
        "pooling with a sum",
        "pooling",
        r"",
        _with_sum,
        "a post-op is a sum, which pooling does not have (a reduction, which has it, may run as one)",
        "the sum is left out, without an error",
        "NumPy",
        "row-major, maximum, 48 elements",
    ),
    Defect(
        "resampling with a tensor",
        "resampling",
        r"simple:",
        _resampled_last,
        "the tensors lie channels last, and a post-op has an operand that varies with the channel or within it; or they lie in blocks, "
        "and it varies at all",
        "wrong elements of the operand: they are counted in row-major order",
        "row-major",
        "nearest and linear, 3 to 20 channels",
    ),
    Defect(
        "resampling of one vector",
        "resampling",
        r"jit:",
        _resampled_vector,
        "the result is one sample of one element for each channel, and a post-op has an operand for each channel",
        "all channels get the operand's first element",
        "NumPy",
        "[1, C, 1] and [1, C, 1, 1]",
        versions=BOTH,
    ),
    Defect(
        "resampling of one position",
        "resampling",
        r"jit:",
        _one_position,
        "the source has one element for each of several channels: its order, row-major or channels last, is not to be told",
        "elements behind the source are read, and elements behind the destination overwritten",
        "the next implementation",
        "nearest: all of 93 drawn shapes whose result has one position as well, none of 2,231 others of one order; "
        "row-major to several positions channels last",
        versions=BOTH[1:],
        since=(3, 3, 0),
    ),
)
