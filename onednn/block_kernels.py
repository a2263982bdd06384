"""Codes of 4 or 8 bits in blocks: decoded as columns of a matrix, or multiplied by rows as they
are, which neither NumPy nor oneDNN 3.2 offers.

A table of the 16 codes of 4 bits in f32 fits into one register of AVX-512. A permutation by 16 codes looks them up
in one instruction, so that decoding (`decode_columns`) costs about as much as writing the result: 0.15 ns a
weight where NumPy takes 2. In the product of one row after the other (`multiply_row`) looked-up
weights are never written, and the scale of a block multiplies its sum: 0.032 ns a weight and row, at
8 bits 0.045. The weights lie in panels of columns for it (`coded_kernels.in_panels`), a column in
each lane. In the product of several rows (`multiply_rows`) the table is decoded, once for each
block; its speed is 0.8 of that of oneDNN's f32 product on the same core, and it waits for other
threads once. So does the product of many rows
(`multiply_columns`), whose speed is that of oneDNN's: a thread decodes 64 columns of some codes,
which stay in its first cache while all rows are multiplied by them.

Codes of 8 bits are converted instead.

The members of a work:

    codes: of the first row; `stride` bytes a row, a multiple of 4. Less than 2 GiB: columns are
        found by offsets of 32 bits. For `multiply_row` words of 32 bits in panels.
    scales, zeros: f32 and u8 of each block, [rows, blocks]; `PADDING` bytes more of zeros. For
        `multiply_row` in panels, without more; zeros may be 0 there, where all are the middle one.
    x: rows that are multiplied, f32 [many, blocks * block]; for `multiply_rows` of each 32 elements
        the even ones in front of the odd ones.
    out: f32: [blocks * block, ld] for columns, [many, ld] for a product.
    stride, blocks, block: bytes and blocks of a row, codes of a block (whole words of 32 bits;
        for `multiply_rows` a multiple of 32).
    rows: rows of codes, which are columns of the result.
    ld: f32 from one row of the result to the next; columns up to the next multiple of 64 are
        written.
    many: rows of x.
    panels: for `multiply_columns`, `PANEL_BYTES` for each thread, on a cache line; they need no
        content. Stacks are the user's to choose, and may have no room for them.
    beyond: 1 behind `multiply_row` where a result is an infinity or NaN: it sums codes before it
        scales them, which may be beyond f32 where decoded weights times the row are not.
"""

from __future__ import annotations

from typing import Final

from .kernels import Kernels, kernels
from .library import Library

PADDING: Final = 3
"""Bytes behind the zero points that may be read: they are fetched four at a time."""
PANEL_BYTES: Final = 64 * 64 * 4
"""What a thread decodes at once of 64 columns, in f32."""


def block_kernels(library: Library, bits: int) -> Kernels | None:
    """The functions for codes of so many bits; None where there are none: of other widths, where
    they were not compiled, or where nothing fuses a multiplication and an addition.
    """
    return kernels(library, f"block_kernels_{bits}") if bits in (4, 8) else None
