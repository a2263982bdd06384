"""Large buffers on huge pages, where the system gives them.

NumPy asks Linux for huge pages for arrays of 4 MiB and more. Packed weights and the arena of a run
are smaller one by one, but read in
full in every run: on pages of 4 KiB the address translation alone costs one to two percent of a
network's time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..aligned import aligned, aligned_bytes

_HUGE = 4 << 20  # from here on NumPy asks for huge pages
_LARGEST = 64 << 20
_WORTH = 1 << 20


class Slabs:
    """Hands out buffers that stay for good, cut from large ones.

    Args:
        expected: bytes that will be asked for in all, about; little gets buffers of its own.
    """

    def __init__(self, expected: int) -> None:
        self._size = (
            min(max(expected + expected // 8, _HUGE), _LARGEST) if expected >= _WORTH else 0
        )
        self._rest = np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """`size` uninitialised bytes on a cache line of their own."""
        room = aligned(size)
        if room > self._size:
            return aligned_bytes(size)
        if room > self._rest.size:
            self._rest = aligned_bytes(self._size)
        taken, self._rest = self._rest[:size], self._rest[room:]
        return taken


def arena_bytes(size: int) -> NDArray[np.uint8]:
    """`size` uninitialised, aligned bytes, in an allocation large enough for huge pages if they are
    worth it; the rest is never touched.
    """
    return aligned_bytes(max(size, _HUGE))[:size] if size >= _WORTH else aligned_bytes(size)
