"""Memory that starts on a cache line: all that runs compute in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_ALIGN = 64


def aligned(size: int) -> int:
    """The size, rounded up to the cache line that every buffer starts on."""
    return -(-size // _ALIGN) * _ALIGN


def aligned_bytes(count: int, alignment: int = _ALIGN) -> npt.NDArray[np.uint8]:
    """`count` uninitialised bytes whose address is a multiple of `alignment` (a power of two): all
    memory that runs compute in.
    """
    raw = _uninitialised(count + alignment)
    start = -raw.ctypes.data % alignment
    return raw[start : start + count]


def _uninitialised(count: int) -> npt.NDArray[np.uint8]:
    return np.empty(count, np.uint8)
