"""Averages of whole maps of codes, as squeeze and excitation takes them.

oneDNN 3.2's pooling of codes stores rounded codes; the other ways to floats copy the map to f32
first, read as many weights of 1 as there are codes, or pack them for a product. This one reads the
codes: an EfficientNet-B0 takes 0.977 of the time that it takes with the product, which was the
fastest of those.

The members of a work:

    codes: u8 or s8 [images, positions, channels].
    means: f32 [images, channels]: the sum of the codes, exact, times the share, and then twice
        times a factor plus a shift, which is one operation.
    numbers: f32 [5]: share, factor, shift, factor, shift.
    images, positions, channels: the shape; at most `MOST_POSITIONS`.
    sign: 128 where the codes are s8, else 0.
"""

from __future__ import annotations

import ctypes
from typing import Final

from .call_loop import CCall
from .kernels import Kernels, kernels
from .library import Library

MOST_POSITIONS: Final = 1 << 23
"""Of so many codes the sum has less than 32 bits."""


def average_kernel(library: Library) -> Kernels | None:
    """The function; None where it was not compiled."""
    return kernels(library, "average_kernel")


def average_call(found: Kernels, held: list[object], **members: int) -> CCall:
    """A call for a work.

    Args:
        found: the function.
        held: gets what must live as long as the call.
        members: of the work.
    """
    address = found.functions["average"].address
    work = found.work("average", **members)
    held.append(work)
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(address)
    return CCall(function, ctypes.c_void_p(ctypes.addressof(work)))
