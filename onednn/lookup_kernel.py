"""Bytes looked up in a table of 256 bytes, 64 at a time: a few instructions of AVX-512 that no
library offers to C calls of a run.

Networks with swish or gelu, as ONNX Runtime quantizes them, have a lookup behind each convolution.
Python's `bytes.translate` takes 0.5 ns for a byte and NumPy's indexing more, and both go through
copies. Here a byte takes 0.040 ns, and with VBMI, whose permutations are of bytes and not of words,
0.024 (Zen 4): 0.985 of the time of an EfficientNet-B0. The library stringzilla takes 0.015 in place
of 0.024, and made that network no faster (0.988); its Python function holds the lock of the
interpreter, and is a call of its own between the primitives.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .enums import CpuIsa
from .machine_code import mapped

_CPUINFO: Final = Path("/proc/cpuinfo")

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
    found = mapped("lookup_kernel_vbmi" if _has_vbmi() else "lookup_kernel", isa)
    if found is None:
        return None
    address, _ = found["lookup"]
    kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(address)


@functools.cache
def _has_vbmi() -> bool:
    """Whether the CPU has AVX-512 VBMI: oneDNN does not tell."""
    try:
        return "avx512vbmi" in _CPUINFO.read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return False
