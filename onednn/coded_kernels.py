"""Codes of rows times codes in blocks: products of codes by codes, that
oneDNN 3.2 has no primitive for, since their scales differ from block to block.

`quantize_rows` makes codes of rows in f32, as `ir/ops/blocks.py` has them. Packed weights lie in
panels of columns (`in_panels`), in the order that VNNI reads. `multiply_codes` brings 32 columns and
a part of the depth into the first caches, 4 bits as 8, [K/4, 32, 4], and multiplies all rows by
them: six at a time, whose sums stay in registers. With 64 rows a weight takes 0.45 ns, 140 thousand
million multiply-adds a second on a Zen 4 core at 3.6 GHz, of 230 that it has at best.
`multiply_by_tiles` does the same with AMX where the weights have 4 bits: 0.7 of the time in blocks of
32, 0.46 in blocks of 128. Each sum of 16 rows and columns goes through memory to be scaled, which takes
as long as the sum of 32 products.
`multiply_row` multiplies one row after the other by 64 columns as they lie: 0.008 ns a weight and
row at 4 bits, 0.012 at 8.

These are figures of VNNI. Elsewhere codes are widened to 16 bits, whose products and sums of pairs are
exact in 32: the same numbers.

Codes of 8 bits are u8 there, and those of the row s8; 4 bits are less their zero point first, and
those of the row have 128 added.

The members of a work:

    codes: packed weights in panels, of words of 32 bits.
    scales, zeros: f32 and u8 of each block, in panels; zeros are codes, or 0, where all are the
        middle one.
    x: f32 [many, size], the rows that become codes.
    xcodes: s8 [many, blocks * block]: what they become, in the order of the kernel.
    xscales, xsums: f32 and s32 [many, blocks]: scale and sum of each block of codes.
    out: f32 [many, ld].
    blocks, block: blocks of a row, codes of a block: from `LEAST_BLOCK` to `LARGEST_BLOCK`,
        whole words of 32 bits.
    rows: rows of codes, which are columns of the result.
    ld: f32 from one row of the result to the next.
    many: rows of x.
    size: elements of a row of x.
    panels: for `multiply_codes`, `PANEL_BYTES` for each thread, on a cache line; they need no
        content. Stacks are the user's to choose, and may have no room for them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .kernels import Kernels, kernels
from .library import Library

LEAST_BLOCK: Final = 16
LARGEST_BLOCK: Final = 2048
"""Codes of a block: so many the kernels keep of each column at a time."""


_PANEL, _VECTOR = 64, 16  # columns
_TILE = 64  # codes of a row

PANEL_BYTES: Final = 32 * (LARGEST_BLOCK + 2 * 4 * LARGEST_BLOCK // LEAST_BLOCK) + 2 * 16 * 64
"""What a thread has at hand of 32 columns: codes, and of each block a scale and what sums begin
with, 32 bits each; sums of 16 rows and columns of two blocks.
"""


def in_panels(columns: NDArray[Any]) -> NDArray[Any]:
    """What the kernels read of columns, flat.

    Args:
        columns: of each column its words of codes, scales or zero points, [columns, count].

    Returns:
        Of 64 columns after the other [count, 64]; the last panel has as many whole 16 as it needs,
        filled up with zeros.
    """
    many, count = columns.shape
    whole = -(-many // _VECTOR) * _VECTOR
    found = np.zeros(whole * count, columns.dtype)
    for first in range(0, many, _PANEL):
        end = min(first + _PANEL, whole)
        panel = found[first * count : end * count].reshape(count, end - first)
        part = columns[first:end]
        panel[:, : len(part)] = part.T
    return found


def takes_tiles(kernels: Kernels, block: int) -> bool:
    """Whether `multiply_by_tiles` is there, can run and takes blocks of so many codes."""
    there = "multiply_by_tiles" in kernels.functions
    return there and (block <= _TILE or block % _TILE == 0)


def coded_kernels(library: Library, bits: int) -> Kernels | None:
    """The functions for weights of so many bits; None where there are none: of other widths, or
    where they were not compiled.
    """
    return kernels(library, f"coded_kernels_{bits}") if bits in (4, 8) else None
