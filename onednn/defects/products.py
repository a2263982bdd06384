"""Of inner products and matmuls, and of all products of bf16."""

from __future__ import annotations

import math

from ..attributes import PRelu
from ..enums import Arg, DataType, FormatKind
from ..primitive_desc import Request
from ..strides import row_major_strides
from .defect import BOTH, Defect, binary_operands, operand

_CHANNELS = 1 << 1
"""The mask of an operand with one number for each channel."""


def _slopes_of_bf16(request: Request) -> bool:
    """True of a product of bf16 with a prelu post-op: of a convolution where the slopes vary with more than
    the channel, of an inner product where the result is f32.
    """
    if operand(request, "src").dtype != DataType.bf16:
        return False
    masks = [op.mask for op in request.attributes.post_ops if isinstance(op, PRelu)]
    if request.kind == "convolution":
        return any(mask & ~_CHANNELS for mask in masks)
    return bool(masks) and operand(request, "dst").dtype == DataType.f32


def _matrices_with_gaps(request: Request) -> bool:
    dst = operand(request, "dst")
    gaps = len(dst.dims) > 2 and dst.is_plain and dst.strides != row_major_strides(dst.dims)
    return gaps and any(
        dims != dst.dims and math.prod(dims) > 1 for dims in binary_operands(request)
    )


def _shared_by_samples(request: Request) -> bool:
    """A post-op's operand varies along rows and columns, and samples share it."""
    dims = operand(request, "dst").dims
    return any(
        min(given[-2:]) > 1 and given[:-2] != dims[:-2] for given in binary_operands(request)
    )


def _of_codes(request: Request) -> bool:
    return operand(request, "src").dtype in (DataType.u8, DataType.s8)


def _zero_points_of_rows(request: Request) -> bool:
    """u8 times weights with a zero point, in 14 rows or more, whose last columns of 64 are fewer than 16."""
    src, dst = operand(request, "src"), operand(request, "dst")
    zero_points = request.attributes.zero_points
    if src.dtype != DataType.u8 or Arg.WEIGHTS not in zero_points or Arg.SRC in zero_points:
        return False
    rows, columns = dst.dims[-2:]
    return rows >= 14 and 1 <= columns % 64 <= 15


def _copied_in_pieces(request: Request) -> bool:
    """Codes times row-major matrices, whose kernel copies 64 rows and 32 columns of them at a time, and reads
    that more than once: for several blocks of 16 rows of the source, or for samples that share a matrix.

    Up to three dimensions the library chooses blocks instead, where it is left to choose.
    """
    src, weights = operand(request, "src"), operand(request, "weights")
    if not _of_codes(request) or Arg.SRC in request.attributes.zero_points:
        return False
    chosen = weights.format_kind == FormatKind.any and len(weights.dims) > 3
    row_major = chosen or (weights.is_plain and weights.strides[-1] == 1)
    depth, columns = weights.dims[-2:]
    again = src.dims[-2] > 16 or weights.dims[:-2] != src.dims[:-2]
    return row_major and again and depth > 64 and depth % 64 > 0 and columns > 32


PRODUCTS: tuple[Defect, ...] = (
    Defect(
        "product of matrices with gaps",
        "matmul",
        r"gemm:jit",
        _matrices_with_gaps,
        "a destination of three dimensions or more has gaps between its rows, and a post-op has an operand for each column, or each row",
        "from the second matrix on, other elements of the operand: they are counted as if there were no gaps",
        "the next implementation, or a primitive behind the product",
        "two matrices of one row, 64 and 256 columns",
        versions=BOTH,
    ),
    Defect(
        "product of codes with an operand that samples share",
        "matmul",
        r"brg_matmul:.*amx",
        _shared_by_samples,
        "on a CPU with AMX, a post-op has an operand that varies along rows and columns, and not along each dimension in front of them",
        "other elements of the operand, or none: an attention's mask is left out",
        "the next implementation, or a primitive behind the product",
        "9 of 37 drawn shapes, none of 770 with other operands",
        versions=("3.11.4", BOTH[1]),
        since=(3, 3, 0),
    ),
    Defect(
        "product of codes with row-major matrices",
        "matmul",
        r"brg_matmul:.*amx",
        _copied_in_pieces,
        "on a CPU with AMX, row-major matrices of more than 64 rows, no multiple of 64, and more than 32 columns, "
        "with more than 16 rows of the source or shared by samples, and no zero point of the source",
        "columns from the 33rd or 65th on are those of other products",
        "the next implementation",
        "122 of 419 drawn shapes; none of 2,581 others, of which 189 have a zero point and 227 matrices whose columns lie in one piece",
        versions=BOTH[1:],
        since=(3, 3, 0),
    ),
    Defect(
        "product by weights with a zero point",
        "matmul",
        r"brg:avx2_vnni",
        _zero_points_of_rows,
        "on a CPU with AVX2 and VNNI, the source is u8, the weights have a zero point and the source has none, 14 rows or more, "
        "and the columns are one to 15 more than a multiple of 64",
        "where the rows are cut by 14, the last of each 14 has in its last columns twice what the zero point takes off, and no product",
        "the next implementation",
        "683 of 1,486 drawn shapes; none of 5,514 others",
        versions=BOTH[:1],
        mended=(3, 13, 2),
    ),
    Defect(
        "product of codes between the versions",
        "matmul",
        r"brg:.*amx|brg_matmul:.*amx",
        _of_codes,
        "on a CPU with AMX, the source is u8 or s8; versions after 3.2 and before 3.11, in which no narrower condition was measured",
        "wrong numbers, or the process ends",
        "the next implementation, or NumPy",
        "of 5 shapes 2 end the process: 33 and 64 rows of 16 elements",
        versions=("3.4.0", "3.7.3", "3.9.1"),
        since=(3, 3, 0),
        mended=(3, 11, 0),
    ),
    *(
        Defect(
            f"{kind} of bf16 with slopes",
            kind,
            r"x64:gemm:jit",
            _slopes_of_bf16,
            f"source and weights are bf16, and a prelu post-op {when}",
            "other slopes",
            "the next implementation, or NumPy",
            figure,
            versions=versions,
        )
        for kind, when, figure, versions in (
            ("inner_product", "is stored as f32", "8 by 16 outputs", BOTH),
            (
                "convolution",
                "has slopes that vary with more than the channel",
                "8 channels of 3x3",
                BOTH[:1],
            ),
        )
    ),
)
