"""Rows of matrix products: MatMul, Gemm, MatMulInteger."""

from __future__ import annotations

import numpy as np

from ..types import Dim, DType, Shape
from . import dims
from .blocks import SOURCE_BITS, coded_product, decoded, decoded_shape, largest_block
from .broadcasting import broadcast_shapes
from .rows import FLOATS, NUMBERS, A, Call, flag, integer, not_covered, number, row
from .spec import REQUIRED, Attrs, OpSpec, ShapeError, Trait


def _check_inner(call: Call, a: Dim, b: Dim) -> None:
    if dims.differ(a, b):
        raise ShapeError(
            f"the inner dimensions must be equal: {a} of {call.type(0)} is not {b} of {call.type(1)}"
        )


def _matmul_shape(call: Call) -> Shape:
    a, b = call.at_least(0, 1), call.at_least(1, 1)
    inner_a, inner_b = a[-1], b[-2] if len(b) > 1 else b[0]
    _check_inner(call, inner_a, inner_b)
    rows: Shape = a[-2:-1]
    columns: Shape = b[-1:] if len(b) > 1 else ()
    return (*broadcast_shapes([a[:-2], b[:-2]], "batch dimensions"), *rows, *columns)


def _product(a: A, b: A) -> A:
    product: A = np.matmul(a, b)
    return product


def _matmul(a: A, b: A) -> A:
    if a.dtype == np.float16:
        return _product(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return _product(a, b)


def _gemm_shape(call: Call) -> Shape:
    dtype, factors = call.type(0).dtype, [number(call.attrs, name) for name in ("alpha", "beta")]
    if dtype.is_integer and not all(
        f.is_integer() and dtype.range[0] <= f <= dtype.range[1] for f in factors
    ):
        raise not_covered(f"Gemm of {dtype.value} with the factors {factors}")
    # what is known has to be a matrix, whether or not the other's rank is known
    for index in (1, 0):
        if call.type(index).shape is not None:
            call.rank(index, 2)
    a, b = call.rank(0, 2), call.rank(1, 2)
    m, k = a[::-1] if flag(call.attrs, "transA") else a
    k2, n = b[::-1] if flag(call.attrs, "transB") else b
    _check_inner(call, k, k2)
    if call.has(2):
        found = broadcast_shapes([(m, n), call.shape(2)], "a*b and c")
        if len(found) > 2 or any(dims.differ(f, d) for f, d in zip(found, (m, n), strict=True)):
            raise ShapeError(f"c must broadcast to [{m},{n}], found {call.type(2)}")
    return (m, n)


def _gemm(a: A, b: A, c: A | None, attrs: Attrs) -> A:
    left, right = a.T if flag(attrs, "transA") else a, b.T if flag(attrs, "transB") else b
    y = _matmul(left, right)
    alpha, beta = (np.asarray(number(attrs, name), y.dtype) for name in ("alpha", "beta"))
    if alpha != 1:
        y = y * alpha
    if c is not None:
        y = y + (c if beta == 1 else c * beta)
    return y


def _matmul_integer(a: A, b: A, a_zero: A | None, b_zero: A | None) -> A:
    # float64 holds every partial sum of 8-bit products exactly, and runs on BLAS.
    left, right = a.astype(np.float64), b.astype(np.float64)
    if a_zero is not None:  # one entry, or one a row of a
        rows = a_zero.astype(np.float64)
        left -= rows[:, None] if rows.ndim == 1 and rows.size > 1 else rows
    if b_zero is not None:  # one entry, or one a column of b
        right -= b_zero.astype(np.float64)
    # int64 first: what exceeds s32 wraps around
    return _product(left, right).astype(np.int64).astype(np.int32)


def _matmul_blocks_shape(call: Call) -> Shape:
    a, weights = call.at_least(0, 2), decoded_shape(call, 1)
    if len(weights) != 2:
        raise ShapeError(f"codes must be a matrix, found {call.type(1)}")
    _check_inner(call, a[-1], weights[1])
    _check_source(call)
    return (*a[:-1], weights[0])


def _check_source(call: Call) -> None:
    """Refuses codes of the source that no exact product has."""
    bits, block, source = (integer(call.attrs, name) for name in ("bits", "block", "source_bits"))
    if source not in SOURCE_BITS:
        raise ShapeError(f"codes of the source have 8 bits, found source_bits={source}")
    if source and block > largest_block(bits):
        raise ShapeError(f"sums of {block} products of codes of 8 and {bits} bits are not exact")
    if source and call.has(3) and call.type(3).dtype is not DType.U8:
        raise ShapeError(
            f"codes are multiplied by codes: zero points must be codes, found {call.type(3)}"
        )


def _matmul_blocks(a: A, codes: A, scales: A, zero_points: A | None, attrs: Attrs) -> A:
    if attrs["source_bits"]:
        return coded_product(a, codes, scales, zero_points, attrs)
    return _product(a, decoded(codes, scales, zero_points, attrs).T)


_CODES = frozenset({DType.U8, DType.S8})

MATMUL: tuple[OpSpec, ...] = (
    row(
        "MatMul",
        "Matrix product over the last two dimensions, the others broadcast; 1-D operands as in numpy.matmul.",
        "a:T b:T",
        types={
            "T": FLOATS | (NUMBERS - {DType.S4, DType.U4, DType.S8, DType.U8, DType.S16, DType.U16})
        },
        shape=_matmul_shape,
        compute=_matmul,
        traits={Trait.PRODUCT, Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO, Trait.READS_CODES},
        primitive="matmul",
    ),
    row(
        "Gemm",
        "alpha * a @ b + beta * c of matrices, a and b transposed on request; the composer takes it as MatMul.",
        "a:T b:T c:T?",
        attrs={"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
        types={"T": FLOATS | {DType.S32, DType.S64, DType.U32, DType.U64}},
        shape=_gemm_shape,
        compute=_gemm,
        traits={Trait.PRODUCT, Trait.KEEPS_ZERO},
    ),
    row(
        "MatMulBlocks",
        "a times the transpose of DequantizeBlocks(codes, scales, zero_points); source_bits=8: of s8 codes of each block of a.",
        "a:T codes:C scales:T zero_points:Z?",
        attrs={"bits": REQUIRED, "block": REQUIRED, "size": REQUIRED, "source_bits": 0},
        types={"T": {DType.F32}, "C": {DType.U8}, "Z": {DType.U8, DType.F32}},
        shape=_matmul_blocks_shape,
        compute=_matmul_blocks,
        traits={Trait.SCALE_COMMUTING, Trait.KEEPS_ZERO},
        onnx=False,
        primitive="matmul",
    ),
    row(
        "MatMulInteger",
        "Matrix product of 8-bit codes minus their zero points, in exact s32.",
        "a:T1 b:T2 a_zero_point:T1? b_zero_point:T2?",
        types={"T1": _CODES, "T2": _CODES},
        shape=_matmul_shape,
        compute=_matmul_integer,
        result=DType.S32,
    ),
)
