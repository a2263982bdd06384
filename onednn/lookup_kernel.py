"""Lookups of bytes in a table of 256 bytes, 64 at a time: a few instructions of AVX-512 that no
library offers to Python.

Python's `bytes.translate` takes 0.5 ns for a byte and NumPy's indexing more, and both go through
copies. Networks with swish or gelu, as
ONNX Runtime quantizes them, have a lookup behind each convolution: that was 30 to 45 % of their
time. This kernel takes 0.15 ns.

Where the system refuses memory for code (`machine_code.py`), or the CPU lacks the instructions,
there is no kernel, and lookups take the slower way to the same bytes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Final

from .enums import CpuIsa
from .machine_code import Listing, mapped, runs_avx512

__all__ = ["LISTING", "Kernel", "lookup_kernel"]

Kernel = Callable[[int, int, int, int], None]
"""(address of the results, address of the codes, how many, address of the 256 entries); the two may
be the same, not overlap otherwise.

It reads and writes exactly that many bytes, and lets other Python threads run meanwhile.
"""

# rdi: results, rsi: codes, rdx: how many, rcx: table (System V calling convention). All registers
# used are the callee's to change.
LISTING: Final[Listing] = (
    ("f30f1efa", "endbr64"),  # may be called
    # the table as 128 words: entry 2i is the low byte of word i
    (
        "62e1fe486f01",
        "vmovdqu64 zmm16, [rcx]",
    ),
    ("62e1fe486f4901", "vmovdqu64 zmm17, [rcx+64]"),
    ("62e1fe486f5102", "vmovdqu64 zmm18, [rcx+128]"),
    ("62e1fe486f5903", "vmovdqu64 zmm19, [rcx+192]"),
    ("b801000100", "mov eax, 0x10001"),  # masks of words: 1, 0x80, 0x100
    ("62e27d487ce0", "vpbroadcastd zmm20, eax"),
    ("62b1554071f407", "vpsllw zmm21, zmm20, 7"),
    ("62b14d4071f408", "vpsllw zmm22, zmm20, 8"),
    ("48b8aaaaaaaaaaaaaaaa", "mov rax, 0xaaaaaaaaaaaaaaaa"),  # k5: every second byte
    ("c4e1fb92e8", "kmovq k5, rax"),
    ("49c7c0ffffffff", "mov r8, -1"),  # k6: the bytes of this block
    ("c4c1fb92f0", "kmovq k6, r8"),
    ("4885d2", "test rdx, rdx"),  # nothing to do
    ("0f8498000000", "je .+0x9e"),
    ("4883fa40", "cmp rdx, 64"),  # the last block may be a part of one
    ("730a", "jae .+0xc"),
    ("c442e8f5c0", "bzhi r8, r8, rdx"),
    ("c4c1fb92f0", "kmovq k6, r8"),
    # 64 codes: c in the low byte of each word, d in the high one
    (
        "62e17fce6f3e",
        "vmovdqu8 zmm23{k6}{z}, [rsi]",
    ),
    ("62b13d4071d701", "vpsrlw zmm24, zmm23, 1"),  # word of c
    ("62b1354071d709", "vpsrlw zmm25, zmm23, 9"),  # word of d
    ("6201fd486fd0", "vmovdqa64 zmm26, zmm24"),
    ("6201fd486fd9", "vmovdqa64 zmm27, zmm25"),
    ("6222fd4075d1", "vpermi2w zmm26, zmm16, zmm17"),  # as if c < 128
    ("6222ed4075c3", "vpermi2w zmm24, zmm18, zmm19"),  # as if not
    ("6222fd4075d9", "vpermi2w zmm27, zmm16, zmm17"),  # the same for d
    ("6222ed4075cb", "vpermi2w zmm25, zmm18, zmm19"),
    ("62b2c54026cd", "vptestmw k1, zmm23, zmm21"),  # c >= 128
    ("62b2fe4829d7", "vpmovw2m k2, zmm23"),  # d >= 128
    ("62b2c54026dc", "vptestmw k3, zmm23, zmm20"),  # c is odd: its entry is the high byte
    ("62b2c64026e6", "vptestnmw k4, zmm23, zmm22"),  # d is even: its entry is the low byte
    ("6201ff496fd0", "vmovdqu16 zmm26{k1}, zmm24"),
    ("6201ff4a6fd9", "vmovdqu16 zmm27{k2}, zmm25"),
    ("62912d4371d208", "vpsrlw zmm26{k3}, zmm26, 8"),  # the entry of c into the low byte
    ("6291254471f308", "vpsllw zmm27{k4}, zmm27, 8"),  # the entry of d into the high byte
    ("62017f4d6fd3", "vmovdqu8 zmm26{k5}, zmm27"),  # both
    ("62617f4e7f17", "vmovdqu8 [rdi]{k6}, zmm26"),
    ("4883c640", "add rsi, 64"),
    ("4883c740", "add rdi, 64"),
    ("4883ea40", "sub rdx, 64"),
    ("0f8768ffffff", "ja .-0x92"),
    ("c3", "ret"),
)


def lookup_kernel(isa: CpuIsa) -> Kernel | None:
    """The kernel; None where it cannot run.

    Args:
        isa: the instruction sets that may be used.
    """
    return _mapped() if runs_avx512(isa) else None


@functools.cache
def _mapped() -> Kernel | None:
    address = mapped(LISTING)
    if address is None:
        return None
    return ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    )(address)
