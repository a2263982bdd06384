"""Functions of machine code that the package brings: a listing, mapped so that it can be called.

A function is kept as a listing, each instruction with its bytes; a test assembles the text again
and compares. It is mapped like the code that oneDNN generates: written first, then executable and
no longer writable. Where the system refuses that there is no function, and its callers take the
slower way to the same numbers.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Sequence
from typing import Final

from .enums import CpuIsa

__all__ = ["Listing", "mapped", "runs_avx512"]

Listing = Sequence[tuple[str, str]]
"""Machine code in hexadecimal, and the same in assembly language (Intel syntax; a dot is the
address of the instruction).
"""

_READ_AND_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC if sys.platform == "linux" else 0


def runs_avx512(isa: CpuIsa) -> bool:
    """True where the listings can run: they are for Linux on x86-64 with AVX-512.

    Args:
        isa: the instruction sets that may be used. AVX-512 in oneDNN's sense has BW and BMI2.
    """
    return (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and isa & CpuIsa.avx512_core == CpuIsa.avx512_core
    )


def mapped(listing: Listing) -> int | None:
    """The address of the code, in memory of its own which stays for as long as the process; None
    where the system allows no such memory.
    """
    code = b"".join(bytes.fromhex(machine) for machine, _ in listing)
    pages = mmap.mmap(-1, -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE)
    pages.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(address), ctypes.c_size_t(len(pages)), _READ_AND_EXECUTE
    ):
        return None
    _PAGES.append(pages)
    return address


_PAGES: Final[list[mmap.mmap]] = []  # never unmapped: calls hold addresses only
