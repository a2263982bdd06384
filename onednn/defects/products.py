"""Of inner products and matmuls, and of all products of bf16."""

from __future__ import annotations

import math

from ..attributes import PRelu
from ..enums import DataType
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
