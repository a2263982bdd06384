"""Functions of machine code that the package brings: listings, mapped so that they can be called.

The files in `listings/` are text: each instruction with its bytes. They are made by
tests/onednn/make_listing.py of the sources beside it; tests assemble the text again, compile the
sources again, and compare. A file is read when one of its functions is first needed, and only a
file with the digest that stands here is run.

Code is mapped like that which oneDNN generates: written first, then executable and no longer
writable. Where the system refuses that there is no function, and its callers take the slower way
to the same numbers.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import mmap
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import BackendUnavailable
from .enums import CpuIsa

FOLDER: Final = Path(__file__).resolve().parent / "listings"

LISTINGS: Final[Mapping[str, tuple[CpuIsa, str]]] = {
    "average_kernel": (
        CpuIsa.avx512_core,
        "b52fd720b4535b449ffedfa66a1037b4dc87a3ea1f0b117c8979076e08f14214",
    ),
    "block_kernels_4": (
        CpuIsa.avx512_core,
        "ec3eae2d75738905b18998cf81f91447dcea36d627e54072c614335c7b4998e6",
    ),
    "block_kernels_8": (
        CpuIsa.avx512_core,
        "e54ffac309f41a20e7d950e263cf07c8390def1a82ede42e1d059880d2115cb1",
    ),
    "call_loop": (
        CpuIsa.default,
        "93ea1b63b5be63e5e47588018b507171b378bcb0cc4769033a7f07197656456c",
    ),
    "coded_kernels_4": (
        CpuIsa.avx512_core_vnni,
        "7c56a6c6403daedf20cdbd8ff06df337adb6502c904345faae3dded0abf4dde0",
    ),
    "coded_kernels_8": (
        CpuIsa.avx512_core_vnni,
        "955e1c9c848742895858625126e6a663bfa8b31190b66552a1984ee63bd74880",
    ),
    "lookup_kernel": (
        CpuIsa.avx512_core,
        "483e35294adbb341a116130f09176c2771548388c62504efd426662a7353d55d",
    ),
    "lookup_kernel_vbmi": (  # and AVX-512 VBMI, which oneDNN has no name for
        CpuIsa.avx512_core,
        "dd60f5b118bd8e509d4caa04bb3291df7c4c6fba0a0c1b5504186055316e762e",
    ),
    "lstm_kernel": (
        CpuIsa.avx512_core,
        "8c55c4ba288afb2c8085347619f8a2f233387f8deac1fe592165814d53b001da",
    ),
    "range_kernel": (
        CpuIsa.avx512_core,
        "a91400a9dfa4a9ad6c905874958bca906c3762e53a2067d317d27cd6648f7f73",
    ),
    "recurrent_kernel": (
        CpuIsa.avx512_core_vnni,
        "873c1f9880deb05b759689d8b7a03e5f96de28bbb40e38a9529f4c1c5e9c14ab",
    ),
}
"""Listing -> the instruction sets that it needs (AVX-512 in oneDNN's sense has BW and BMI2), and the
SHA-256 of its file.
"""

Members = tuple[str, ...]
"""What a function's work holds, in the order of memory: see `Kernels.work`."""

_READ_AND_EXECUTE = mmap.PROT_READ | mmap.PROT_EXEC if sys.platform == "linux" else 0


def mapped(name: str, isa: CpuIsa) -> Mapping[str, tuple[int, Members]] | None:
    """Function -> its address, in memory of its own which stays for as long as the process, and the
    members of its work; None where they cannot run, which is elsewhere than on Linux on x86-64, or
    where the system allows no such memory.

    Args:
        name: of `LISTINGS`.
        isa: the instruction sets that may be used.

    Raises:
        BackendUnavailable: the file is missing, or is another one.
    """
    needs, _ = LISTINGS[name]
    here = sys.platform == "linux" and platform.machine() == "x86_64"
    return _mapped(name) if here and isa & needs == needs else None


@functools.cache
def _mapped(name: str) -> Mapping[str, tuple[int, Members]] | None:
    found = {}
    for function, (members, code) in functions(name).items():
        address = _executable(code)
        if address is None:
            return None
        found[function] = address, members
    return found


def functions(name: str) -> dict[str, tuple[Members, bytes]]:
    """Function of a listing -> the members of its work, and its code."""
    found = {}
    for part in _verified(name).split("\n\n")[1:]:
        title, *lines = part.splitlines()
        function, *members = title.split()
        code = b"".join(bytes.fromhex(line.split(maxsplit=2)[1]) for line in lines)
        found[function] = tuple(members), code
    return found


def _verified(name: str) -> str:
    """The text of a listing, which is the one that belongs to this code."""
    path = FOLDER / f"{name}.txt"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _not_ours(path, f"cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != LISTINGS[name][1]:
        raise _not_ours(path, "was changed, so that nothing of it is run")
    return data.decode("ascii")


def _not_ours(path: Path, what: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"a file of machine code that belongs to fqfuse {what}",
        where=str(path),
        hint='install fqfuse again; backend="numpy" does without',
    )


def _executable(code: bytes) -> int | None:
    pages = mmap.mmap(-1, -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE)
    pages.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if ctypes.CDLL(None).mprotect(
        ctypes.c_void_p(address), ctypes.c_size_t(len(pages)), _READ_AND_EXECUTE
    ):
        return None
    _PAGES.append(pages)
    return address


_PAGES: Final[list[mmap.mmap]] = []  # never unmapped: calls hold addresses only
