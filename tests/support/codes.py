"""What oneDNN's own products of codes are on this CPU, and codes of which they lose no bit."""

from __future__ import annotations

from functools import cache

import numpy as np

from fqfuse.errors import BackendUnavailable
from fqfuse.onednn.enums import CpuIsa
from fqfuse.onednn.loading import load
from fqfuse.plan.summation import ISAS


@cache
def emulated() -> str:
    """What to call this CPU for NumPy to lose the bits that oneDNN's products lose here: `vnni`, of which it
    loses none, without oneDNN.
    """
    try:
        isa = load().effective_isa()
    except BackendUnavailable:
        return "vnni"
    older = (name for name in ISAS if name != "vnni" and isa & CpuIsa[name] == CpuIsa[name])
    return "vnni" if isa.has_vnni else next(older)


def has_vnni() -> bool:
    """Whether oneDNN adds products of codes in 32 bits here."""
    return emulated() == "vnni"


def has_avx512() -> bool:
    """Whether oneDNN makes code for AVX-512 here; also where there is no oneDNN."""
    try:
        isa = load().effective_isa()
    except BackendUnavailable:
        return True
    return isa & CpuIsa.avx512_core == CpuIsa.avx512_core


def s8_codes(rng: np.random.Generator, shape: tuple[int, ...], most: int = 128) -> np.ndarray:
    """Random codes of s8 up to a magnitude. Without VNNI they are even and of 7 bits, of which no product of
    the library's own loses a bit: it adds two products with u8 in 16 bits, and halves weights behind s8.
    """
    step = 1 if has_vnni() else 2
    most = most if has_vnni() else min(most, 64)
    return (step * rng.integers(-(most // step), min(most, 127) // step + 1, shape)).astype(np.int8)
