"""What tests of functions of machine code need: an assembler, and memory that ends abruptly."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fqfuse.onednn.machine_code import Listing


def check_listing(listing: Listing, folder: Path) -> None:
    """Assembles the text of a listing again, and holds the bytes to be the same."""
    tools = [shutil.which(tool) for tool in ("as", "objcopy")]
    if None in tools:
        pytest.skip("no assembler: binutils are not installed")
    source, made, code = folder / "f.s", folder / "f.o", folder / "f.bin"
    source.write_text(".intel_syntax noprefix\n" + "".join(f"{text}\n" for _, text in listing))
    subprocess.run([str(tools[0]), "--64", source, "-o", made], check=True)
    subprocess.run([str(tools[1]), "-O", "binary", "-j", ".text", made, code], check=True)
    assert code.read_bytes().hex() == "".join(machine for machine, _ in listing)


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
