"""Lookups of bytes in a table of 256 bytes, 64 at a time: a few instructions of AVX-512 that no
library offers to Python.

Python's `bytes.translate` takes 0.5 ns for a byte and NumPy's indexing more, and both go through
copies. Networks with swish or gelu, as ONNX Runtime quantizes them, have a lookup behind each
convolution: that was 30 to 45 % of their time. This kernel takes 0.15 ns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .enums import CpuIsa
from .machine_code import mapped

Kernel = Callable[[int, int, int, int], int]
"""(address of the results, address of the codes, how many, address of the 256 entries), which gives the
status 0; the results may lie where the codes do, not overlap them otherwise.

It reads and writes exactly that many bytes, and lets other Python threads run meanwhile.
"""


def lookup_kernel(isa: CpuIsa) -> Kernel | None:
    """The kernel; None where it cannot run: lookups take the slower way to the same bytes.

    Args:
        isa: the instruction sets that may be used.
    """
    found = mapped("lookup_kernel", isa)
    if found is None:
        return None
    address, _ = found["lookup"]
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)
