"""The range of a tensor, as dynamic quantization takes it, in C: NumPy takes 8 us for the
256 floats of a recurrent state, of which one is the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .enums import CpuIsa
from .native import functions

RangeKernel = Callable[[int, int, int, int], int]
"""(address of f32 numbers, how many, addresses of an f32 scale and of a u8 zero point): both for codes
of 0 to 255 over the range of the numbers, widened to 0, each operation in f32. It gives 0; or 1 and
writes nothing where there is a NaN, an infinity, or a range beyond f32.
"""


def range_kernel(isa: CpuIsa) -> RangeKernel | None:
    """The kernel; None where it was not compiled.

    Args:
        isa: the instruction sets that may be used.
    """
    found = functions("range_kernel", isa)
    if not found:
        return None
    kinds = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    return ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(found["range"].address)
