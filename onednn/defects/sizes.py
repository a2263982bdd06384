"""Of tensors of more than five dimensions, and of empty ones."""

from __future__ import annotations

import math

from ..attributes import PRelu
from ..enums import DataType
from ..primitive_desc import Request
from .defect import BOTH, Defect, operand

_MOST = 5
"""Dimensions by which the references count elements."""


def _more_dimensions(request: Request) -> bool:
    return len(operand(request, "src").dims) > _MOST


def _more_dimensions_with_post_ops(request: Request) -> bool:
    return bool(request.attributes.post_ops) and _more_dimensions(request)


def _more_dimensions_with_slopes(request: Request) -> bool:
    with_slopes = any(isinstance(op, PRelu) for op in request.attributes.post_ops)
    return with_slopes and _more_dimensions(request)


def _scales_of_none(request: Request) -> bool:
    """A dimension is empty that scales run along, or one in front of these."""
    dims = operand(request, "src").dims
    masks = request.attributes.scales.values()
    return any(mask > 0 and 0 in dims[: mask.bit_length()] for mask in masks)


def _no_products(request: Request) -> bool:
    return operand(request, "src").dims[-1] == 0 and math.prod(operand(request, "dst").dims) > 0


def _into_nothing(request: Request) -> bool:
    return 0 in operand(request, "dst").dims


def _codes_without_columns(request: Request) -> bool:
    dst = request.operands["dst"]  # of a concat that chooses it, None: with the type of its sources
    return dst is not None and dst.dtype in (DataType.u8, DataType.s8) and dst.dims[-1] == 0


SIZES: tuple[Defect, ...] = (
    *(
        Defect(
            f"{kind} of more than five dimensions",
            kind,
            r"ref:",
            _more_dimensions,
            "the tensor has six dimensions or more",
            "wrong numbers, and others behind the ends of the tensors: the process may end",
            "NumPy",
            figure,
            versions=BOTH,
        )
        for kind, figure in (
            ("batch_normalization", "f32, bf16 and s8 of 6 and 7 dimensions"),
            ("lrn", "f32 and bf16 of 6 and 7 dimensions"),
        )
    ),
    Defect(
        "eltwise of more than five dimensions with post-ops",
        "eltwise",
        r"ref:",
        _more_dimensions_with_post_ops,
        "the tensor has six dimensions or more, and there are post-ops",
        "wrong numbers, and others behind the ends of the tensors: the process may end",
        "NumPy",
        "with a binary 23 of 26 drawn shapes of 6 and 7 dimensions, with an eltwise bf16[1,5,3,3,2,2]",
        versions=BOTH,
    ),
    Defect(
        "matmul of more than five dimensions with slopes",
        "matmul",
        r"gemm:jit|ref:",
        _more_dimensions_with_slopes,
        "the matrices have six dimensions or more, and there is a prelu post-op",
        "other slopes",
        "NumPy",
        "24 of 27 drawn shapes of 6 and 7 dimensions by gemm, and one by the reference",
        versions=BOTH,
    ),
    Defect(
        "matmul without products",
        "matmul",
        r".*",
        _no_products,
        "the rows of the source are empty, and the destination is not",
        "the destination is not written",
        "NumPy",
        "f32 and u8",
        versions=BOTH,
    ),
    Defect(
        "reorder of none with scales",
        "reorder",
        r"simple:",
        _scales_of_none,
        "scales run along an empty dimension, or along one behind it",
        "the process ends: a division by 0",
        "NumPy",
        "420 of 420 shapes, types and masks",
        mended=(3, 13, 2),
    ),
    *(
        Defect(
            f"{kind} of codes without columns",
            kind,
            implementation,
            _codes_without_columns,
            "f32 becomes u8 or s8, in three or four dimensions, of which the last is empty",
            "the process ends: a division by 0",
            "NumPy",
            figure,
            mended=(3, 13, 2),
        )
        for kind, implementation, figure in (
            (
                "reorder",
                r"rnn_data_reorder",
                "[8, 1, 0] and [2, 2, 2, 0]; with another empty dimension none",
            ),
            ("concat", r"ref:", "[8, 1, 0] and [2, 2, 2, 0]: it consists of such reorders"),
        )
    ),
    Defect(
        "deconvolution into nothing",
        "deconvolution",
        r"jit_deconvolution:",
        _into_nothing,
        "codes become an empty destination",
        "the process ends: a division by 0, in some when the primitive is made",
        "neither engine makes it",
        "110 of 110 without samples",
        versions=BOTH,
    ),
)
