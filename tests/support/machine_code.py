"""What tests of functions of machine code need: their listings, and memory that ends abruptly."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np

from fqfuse.onednn.machine_code import FOLDER, LISTINGS

Lines = list[tuple[int, str, str]]
"""Of each instruction its offset, machine code in hexadecimal, and Intel syntax."""


def listed() -> Iterator[tuple[str, str, Lines]]:
    """Of every function the name of its listing, its own, and its lines."""
    for name in LISTINGS:
        text = (FOLDER / f"{name}.txt").read_text(encoding="ascii")
        for part in text.split("\n\n")[1:]:
            title, *lines = part.splitlines()
            split = [line.split(maxsplit=2) for line in lines]
            yield name, title.split()[0], [(int(at, 16), code, text) for at, code, text in split]


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
