"""Codes of rows times codes in blocks: products of codes by codes, with AVX-512 and VNNI, that
oneDNN 3.2 has no primitive for, since their scales differ from block to block.

`quantize_rows` makes codes of rows in f32, as `ir/ops/blocks.py` has them. `multiply_codes` brings
32 rows of packed weights, columns of the result, into the order that VNNI reads, [K/4, 32, 4], and
multiplies all rows by them: six at a time, whose sums stay in registers. With 64 rows a weight takes
0.4 ns, 160 thousand million multiply-adds a second on a Zen 4 core at 3.6 GHz, of 230 that it has
at best. A single row would wait for that order, 0.04 ns a weight: `multiply_row` leaves the weights
in theirs and turns the sums, 0.02.

Codes of 8 bits are u8 there, and those of the row s8; 4 bits are less their zero point first, and
those of the row have 128 added.

The members of a work:

    codes: packed weights, `stride` bytes a row.
    scales, zeros: f32 and u8 of each block, [rows, blocks]; zeros are codes, or 0, where all are
        the middle one.
    x: f32 [many, size], the rows that become codes.
    xcodes: s8 [many, blocks * block]: what they become, in the order of the kernel.
    xscales, xsums: f32 and s32 [many, blocks]: scale and sum of each block of codes.
    out: f32 [many, ld].
    stride: bytes of a row.
    blocks, block: blocks of a row, codes of a block: from `LEAST_BLOCK` to `LARGEST_BLOCK`,
        whole words of 32 bits; for `multiply_row` of 128.
    rows: rows of codes, which are columns of the result.
    ld: f32 from one row of the result to the next.
    many: rows of x.
    size: elements of a row of x.
    panels: `panel_bytes` for each thread that multiplies, on a cache line; they need no content.
        Stacks are the user's to choose, and may have no room for them.
"""

from __future__ import annotations

from typing import Final

from .kernels import Kernels, kernels
from .library import Library

LEAST_BLOCK: Final = 16
LARGEST_BLOCK: Final = 2048
"""Codes of a block: so many the kernels keep of each column at a time."""


def panel_bytes(bits: int) -> int:
    """What a thread has at hand of 32 columns: codes, at 4 bits also as they are stored, and of each
    block a scale and what sums begin with, 32 bits each.
    """
    stored = LARGEST_BLOCK // 2 if bits == 4 else 0
    return 32 * (LARGEST_BLOCK + stored + 2 * 4 * LARGEST_BLOCK // LEAST_BLOCK)


def coded_kernels(library: Library, bits: int) -> Kernels | None:
    """The functions for weights of so many bits; None where there are none, or they cannot run:
    other systems, CPUs without AVX-512 and VNNI.
    """
    return kernels(library, f"coded_kernels_{bits}") if bits in (4, 8) else None
