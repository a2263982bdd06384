"""Codes in blocks: how they lie in bytes, and what they decode to.

A row of `size` codes is cut into blocks of `block`; the last one is filled up. Each code takes
`bits` bits, the first one of a byte the lowest, so that a row of codes is `ceil(size/block) * block
* bits / 8` bytes. This is how com.microsoft's MatMulNBits keeps weights. Codes are unsigned, and
decode by a scale and a zero point for each block::

    x = (code - zero_point) * scale         in f32; without zero points 2^(bits-1)
"""

from __future__ import annotations

import math

import numpy as np

from ..types import Shape
from . import dims
from .rows import A, Call, integer
from .spec import Attrs, ShapeError

__all__ = ["WIDTHS", "decoded", "decoded_shape", "middle", "packed", "row_bytes", "unpacked"]

WIDTHS = (2, 4, 8)
"""Bits of a code that there may be."""


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
