"""Codes in blocks: how they lie in bytes, and what they decode to.

A row of `size` codes is cut into blocks of `block`; the last one is filled up. Each code takes
`bits` bits, the first one of a byte the lowest, so that a row of codes is `ceil(size/block) * block
* bits / 8` bytes. This is how com.microsoft's MatMulNBits keeps weights. Codes are unsigned, and
decode by a scale and a zero point for each block::

    x = (code - zero_point) * scale         in f32; without zero points 2^(bits-1)

Rows that are multiplied by them may be codes, too, made at run time (`source_codes`): s8 codes of
each block, symmetric, and a scale for each, as ONNX Runtime's MatMulNBits makes them for
accuracy_level=4. Such a product (`coded_product`) is exact within a block.
"""

from __future__ import annotations

import math

import numpy as np

from ..types import Shape
from . import dims
from .rows import A, Call, integer
from .spec import Attrs, ShapeError

WIDTHS = (2, 4, 8)
"""Bits of a code that there may be."""

SOURCE_BITS = (0, 8)
"""Bits of the codes that the source of a product may be made of at run time; 0: it stays f32."""

_LARGEST = 127
"""Codes of the source go from -127 to 127."""

_EXACT = 1 << 24
"""Up to here f32 holds every integer."""


def middle(bits: int) -> int:
    """The zero point of codes that have none of their own."""
    return 1 << (bits - 1)


def row_bytes(bits: int, block: int, size: int) -> tuple[int, int]:
    """How many blocks and how many bytes a row of `size` codes takes.

    Raises:
        ShapeError: there are no such rows.
    """
    if bits not in WIDTHS or block < 1 or size < 1 or block * bits % 8:
        raise ShapeError(
            f"codes of {bits} bits in blocks of {block}, {size} of them: bits must be one of {WIDTHS}, and a block whole bytes"
        )
    blocks = -(-size // block)
    return blocks, blocks * (block * bits // 8)


def decoded_shape(call: Call, first: int) -> Shape:
    """The shape of decoded codes; input `first` holds them, the next two scales and zero points."""
    bits, block, size = (integer(call.attrs, name) for name in ("bits", "block", "size"))
    blocks, stored = row_bytes(bits, block, size)
    codes = call.at_least(first, 1)
    if dims.differ(codes[-1], stored):
        raise ShapeError(
            f"{size} codes of {bits} bits in blocks of {block} are {stored} bytes a row, found {call.type(first)}"
        )
    for index in (first + 1, first + 2):
        if not call.has(index):
            continue
        given = call.shape(index)
        if len(given) != len(codes) or any(
            dims.differ(a, b) for a, b in zip(given, (*codes[:-1], blocks), strict=True)
        ):
            raise ShapeError(
                f"{call.name(index)} must be one for each of {blocks} blocks of {call.type(first)}, found {call.type(index)}"
            )
    return (*codes[:-1], size)


def unpacked(codes: A, bits: int) -> A:
    """One byte for each code: [..., bytes] as [..., bytes * 8 / bits]."""
    if bits == 8:
        return codes
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    apart = codes[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return apart.reshape(*codes.shape[:-1], codes.shape[-1] * shifts.size)


def packed(codes: A, bits: int) -> A:
    """The reverse: u8 codes below 2^bits, as many in a row as fill whole bytes."""
    if bits == 8:
        return codes
    several = 8 // bits
    apart = codes.reshape(*codes.shape[:-1], codes.shape[-1] // several, several)
    found = apart[..., 0].copy()
    for place in range(1, several):
        found |= apart[..., place] << np.uint8(place * bits)
    return found


def decoded(codes: A, scales: A, zero_points: A | None, attrs: Attrs) -> A:
    """The numbers that codes stand for, [..., size]."""
    bits, block, size = (integer(attrs, name) for name in ("bits", "block", "size"))
    real = unpacked(codes, bits).astype(np.float32)
    apart = real.reshape(*scales.shape, block)
    zero = np.float32(middle(bits))
    apart -= zero if zero_points is None else zero_points.astype(np.float32)[..., None]
    apart *= scales[..., None]
    return apart.reshape(*codes.shape[:-1], math.prod(scales.shape[-1:]) * block)[..., :size]


# -- sources that are codes, too -------------------------------------------------------------------


def largest_block(bits: int) -> int:
    """The longest block whose sum of products is an integer that f32 holds, whatever the codes."""
    return _EXACT // (_LARGEST * ((1 << bits) - 1))


def source_codes(x: A, block: int) -> tuple[A, A]:
    """f32 rows as codes of their blocks; the last block is filled up with zeros.

    All in f32, each operation rounded; a block without a finite scale that is a normal number has
    codes of 0::

        scale = max|x| / 127        0 below 2^-126; NaN where x holds an infinity or NaN
        code  = round(x * (1 / scale))        ties to even

    Args:
        x: [..., size].
        block: elements of a block.

    Returns:
        The codes, integers in f32, [..., blocks, block], and the scales, f32 [..., blocks].
    """
    blocks = -(-x.shape[-1] // block)
    filled = np.zeros((*x.shape[:-1], blocks * block), np.float32)
    filled[..., : x.shape[-1]] = x
    codes = filled.reshape(*x.shape[:-1], blocks, block)
    scales = np.abs(codes).max(-1) / np.float32(_LARGEST)
    finite = np.isfinite(scales)
    normal = finite & (scales >= np.finfo(np.float32).tiny)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=normal)
    codes[~normal] = 0
    codes *= inverse[..., None]
    np.rint(codes, out=codes)
    scales[finite & ~normal] = 0
    scales[~finite] = np.nan
    return codes, scales


def coded_product(x: A, codes: A, scales: A, zero_points: A | None, attrs: Attrs) -> A:
    """Rows of codes times the transpose of packed weights, [..., N].

    Block after block, from the first one on, the exact sum of products is scaled and added in f32,
    each operation rounded::

        y = 0;  y = y + f32(sum of code * (weight code - zero point)) * (scale of x * scale of the weights)

    Args:
        x: f32 [..., size].
        codes, scales, zero_points, attrs: of the weights, as for `decoded`; zero points are codes.
    """
    bits, block = (integer(attrs, name) for name in ("bits", "block"))
    rows, blocks = scales.shape
    real = unpacked(codes, bits).reshape(rows, blocks, block).astype(np.float32)
    real -= (
        np.float32(middle(bits))
        if zero_points is None
        else zero_points.astype(np.float32)[..., None]
    )
    source, factors = source_codes(x, block)
    y = np.zeros((*x.shape[:-1], rows), np.float32)
    for index in range(blocks):
        exact = np.matmul(source[..., index, :], real[:, index].T)
        y += exact * (factors[..., index, None] * scales[:, index])
    return y
