"""Functions of our own in C: what the extension module `_native` holds, by kernel and instruction
set.

Its sources lie in `native/`. It is optional: where it was not compiled there is no function, and
callers take the slower way to the same numbers. Of each kernel it has several levels, of the same
bytes, from plain C to the instruction sets of x86-64; which one is called is decided here.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from .enums import CpuIsa

LEVELS: Final[Mapping[str, CpuIsa]] = {
    "plain C": CpuIsa.default,
    "avx2": CpuIsa.avx2,
    "avx512_core": CpuIsa.avx512_core,
    "avx512_core_vnni": CpuIsa.avx512_core_vnni,
    "avx512_core_amx": CpuIsa.avx512_core_amx,
}
"""Level -> the instruction sets that it needs; others are not called."""

_MEMBER = re.compile(r"(\w+)\)?(?:\[[^\]]*\])*$")


class Function(NamedTuple):
    """A function in C.

    Attributes:
        address: where it is.
        members: what its work holds, words of 64 bits, in the order of memory: see `Kernels.work`.
        level: of `LEVELS`.
    """

    address: int
    members: tuple[str, ...]
    level: str


def functions(kernel: str, isa: CpuIsa) -> Mapping[str, Function]:
    """The functions of a kernel by name, each of the largest level; none where the extension was not
    compiled.

    Args:
        kernel: as `native/kernels.h` names it.
        isa: the instruction sets that may be used.
    """
    found: dict[str, Function] = {}
    for level, each in _compiled().get(kernel, {}).items():
        needs = LEVELS.get(level)
        if needs is not None and isa & needs == needs:
            found |= each
    return found


def missing() -> str:
    """Why there are no functions in C; empty where there are."""
    try:
        importlib.import_module("._native", __package__)
    except ImportError as error:
        return str(error)
    return ""


@functools.cache
def _compiled() -> Mapping[str, Mapping[str, Mapping[str, Function]]]:
    """Kernel -> level, from the least to the largest -> function."""
    if missing():
        return {}
    found: dict[str, dict[str, dict[str, Function]]] = {}
    module = importlib.import_module("._native", __package__)
    for level, kernel, name, address, text in module.FUNCTIONS:
        levels = found.setdefault(kernel, {})
        levels.setdefault(level, {})[name] = Function(address, _members(text), level)
    return found


def _members(text: str) -> tuple[str, ...]:
    """The names in the declarations of a structure."""
    found = []
    for declared in filter(None, map(str.strip, text.split(";"))):
        for member in declared.split(","):
            named = _MEMBER.search(member.strip())
            assert named is not None, text
            found.append(named[1])
    return tuple(found)
