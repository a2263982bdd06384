"""Of inner products and matmuls, and of all products of bf16."""

from __future__ import annotations

import math

from ..attributes import PRelu
from ..enums import DataType
from ..primitive_desc import Request
from ..strides import row_major_strides
from .defect import Defect, binary_operands, operand


def _slopes_of_bf16(request: Request) -> bool:
    """Of an inner product into f32 all, of a convolution those that not only the channels have."""
    apart = ~2 if request.kind == "convolution" else -1
    into_f32 = operand(request, "dst").dtype == DataType.f32
    return operand(request, "src").dtype == DataType.bf16 and any(
        isinstance(op, PRelu) and (into_f32 if apart == -1 else op.mask & apart)
        for op in request.attributes.post_ops
    )


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
        )
        for kind, when, figure in (
            ("inner_product", "is stored as f32", "8 by 16 outputs"),
            ("convolution", "has slopes that vary with more than the channel", "8 channels of 3x3"),
        )
    ),
)
