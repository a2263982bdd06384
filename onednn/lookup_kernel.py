"""Bytes looked up in a table of 256 bytes, 32 or 64 at a time.

Networks with swish or gelu, as ONNX Runtime quantizes them, have a lookup behind each convolution.
Python's `bytes.translate` takes 0.5 ns for a byte and NumPy's indexing more, and both go through
copies. Here a byte takes 0.040 ns with AVX-512, and with VBMI, whose permutations are of bytes and
not of words, 0.024 (Zen 4): 0.985 of the time of an EfficientNet-B0. The library stringzilla takes
0.015 in place of 0.024, and made that network no faster (0.988); its Python function holds the lock
of the interpreter, and is a call of its own between the primitives.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .enums import CpuIsa
from .native import functions

Kernel = Callable[[int, int, int, int], int]
"""(address of the results, address of the codes, how many, address of the 256 entries), which gives the
status 0; the results may lie where the codes do, not overlap them otherwise.

It reads and writes exactly that many bytes, and lets other Python threads run meanwhile.
"""


def lookup_kernel(isa: CpuIsa) -> Kernel | None:
    """The kernel; None where it was not compiled: lookups take the slower way to the same bytes.

    Args:
        isa: the instruction sets that may be used.
    """
    found = functions("lookup_kernel", isa)
    if not found:
        return None
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(found["lookup"].address)
