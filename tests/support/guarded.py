"""Memory that ends abruptly, for functions that trust addresses."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np


class Guarded:
    """An array that ends where memory that nobody may touch begins."""

    def __init__(self, data: np.ndarray) -> None:
        pages = max(1, -(-data.nbytes // mmap.PAGESIZE))
        self._map = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        whole = np.frombuffer(self._map, np.uint8)
        address = whole.ctypes.data + pages * mmap.PAGESIZE
        status = ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 0
        )
        assert status == 0
        start = pages * mmap.PAGESIZE - data.nbytes
        self.array = whole[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
        self.array[...] = data
