"""How oneDNN 3.2 sums the products of a primitive, where that is no matter of a plan's step."""

from __future__ import annotations

import math

from ..ir.types import DType
from ..plan.attributes import Sum
from ..plan.summation import EXACT, Summation, summation_of_inner_product
from ..plan.summation_of_steps import adds_late, compared_without_code, read_by_reference_only
from .description import Description


def sums_of_inner_product(description: Description, isa: str) -> Summation:
    """Exact of floats, and by the reference; of codes as compiled code sums on an instruction set."""
    src, out = description.dtype("src"), description.dims("dst")
    if isa == "vnni" or src not in (DType.U8, DType.S8):
        return EXACT
    post_ops, type_of = description.attr.post_ops, description.operands.__getitem__
    spatial = math.prod(description.dims("src")[2:]) > 1
    moved = any(isinstance(op, Sum) and op.zero_point for op in post_ops)
    by_gemm = isa != "avx512_core" or spatial or moved
    if by_gemm and adds_late(post_ops):
        return EXACT
    if read_by_reference_only("matmul", post_ops, out, type_of):
        return EXACT
    columns = 0 if by_gemm else out[1]
    if isa == "avx512_core" and compared_without_code(post_ops, out, type_of, columns):
        return EXACT
    return summation_of_inner_product(
        isa, signed=src is DType.S8, rows=out[0], columns=out[1], by_gemm=by_gemm
    )
