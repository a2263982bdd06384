"""What a CPU can do at best, from its instruction set, its cores and its clock. Nothing is timed.

Multiply-adds in each cycle of a core: two vectors of f32 (two units that multiply and add). With VNNI
one instruction multiplies four times as many codes; without it three instructions do the work of
one, which leaves twice the rate of f32 on AVX2 and 1.33 times on AVX-512. AMX multiplies tiles of
16x64 by 64x16 codes in 16 cycles. AMD's cores in front of family 26 (Zen 5) take two cycles for 512
bits.

Linux tells the highest clock where it may set it. Elsewhere, as in most virtual machines, it tells
the base clock, which a core exceeds while its package is cool: by 36 to 45 % on EPYC 7003 and 9004 and
on Xeons of the second and third generation (3.69 measured where 2.6 GHz are told). An estimate is a
lower bound, so the upper end counts.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
_ZEN5 = 26  # family
_BOOST = 1.45  # of the base clock
_USUAL_CLOCK = 4.0


@dataclass(frozen=True)
class Machine:
    """A CPU, as far as it bounds a network.

    Attributes:
        name: its instruction set, for people.
        cores: how many work.
        clock: cycles of a nanosecond, at most.
        int8, f32: multiply-adds in a cycle of one core.
        exact_int8: it adds products of codes without saturating pairs (VNNI, AMX, or no x86).
        moved: bytes that one core reads or writes in a cycle, from a cache that the cores share.
        call: milliseconds to call a primitive, at least: arguments, and a barrier of the threads.
        numpy_call: milliseconds to call a step on NumPy.
    """

    name: str
    cores: int
    clock: float
    int8: float
    f32: float
    exact_int8: bool
    moved: float = 8.0
    call: float = 0.002
    numpy_call: float = 0.02

    @property
    def isa(self) -> str:
        """How it adds products of codes: a name of `plan.summation.ISAS`."""
        if self.exact_int8:
            return "vnni"
        return "avx512_core" if "512" in self.name else "avx2"

    @property
    def description(self) -> str:
        """`2 cores at up to 3.8 GHz with AVX-512 VNNI`."""
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{cores} at up to {self.clock:.1f} GHz with {self.name}"

    def macs_per_ms(self, *, int8: bool, cores: int | None = None) -> float:
        """Multiply-adds in a millisecond."""
        rate = self.int8 if int8 else self.f32
        return rate * self.clock * 1e6 * (cores or self.cores)

    def bytes_per_ms(self, cores: int | None = None) -> float:
        """Bytes in a millisecond."""
        return self.moved * self.clock * 1e6 * (cores or self.cores)


# name, flags of /proc/cpuinfo that it needs, multiply-adds in a cycle (int8, f32), exact
_SETS: tuple[tuple[str, frozenset[str], float, float, bool], ...] = (
    ("AMX", frozenset({"amx_int8"}), 1024.0, 32.0, True),
    ("AVX-512 VNNI", frozenset({"avx512_vnni"}), 128.0, 32.0, True),
    ("AVX2 VNNI", frozenset({"avx_vnni"}), 64.0, 16.0, True),
    ("AVX-512 without VNNI", frozenset({"avx512bw"}), 42.7, 32.0, False),
    ("AVX2 without VNNI", frozenset({"avx2"}), 32.0, 16.0, False),
)
_OTHER = ("an instruction set that is not known here (taken for 128-bit vectors)", 16.0, 8.0)


def machine_from(text: str, cores: int, clock: float | None = None) -> Machine:
    """A machine from what Linux says of its first processor.

    Args:
        text: as /proc/cpuinfo has it; empty where the system tells nothing.
        cores: how many may work.
        clock: GHz at most; None: above what the text says by what cores boost, or 4.
    """
    told = dict(
        re.findall(
            r"^([^\t:\n]+?)\s*: (.*)$", text.split("\n\n", maxsplit=1)[0], flags=re.MULTILINE
        )
    )
    clock = round(clock or _clock(told), 1)
    flags = frozenset(told.get("flags", "").split())
    for name, needed, int8, f32, exact in _SETS:
        if needed <= flags:
            halved = "512" in name and _halves(told)
            share = 0.5 if halved else 1.0
            return Machine(name, cores, clock, int8 * share, f32 * share, exact)
    name, int8, f32 = _OTHER
    return Machine(name, cores, clock, int8, f32, exact_int8=True)


def _clock(told: Mapping[str, str]) -> float:
    named = re.search(r"@ ([\d.]+)GHz", told.get("model name", ""))
    if named:
        return float(named[1]) * _BOOST
    shown = told.get("cpu MHz", "")
    return float(shown) / 1000 * _BOOST if re.fullmatch(r"\d+(\.\d+)?", shown) else _USUAL_CLOCK


def _halves(told: Mapping[str, str]) -> bool:
    family = told.get("cpu family", "")
    return told.get("vendor_id") == "AuthenticAMD" and family.isdigit() and int(family) < _ZEN5


@functools.cache
def this_machine() -> Machine:
    """The machine that this process runs on, with the processors that it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    listed = _CLOCK.read_text(encoding="ascii").strip() if _CLOCK.exists() else ""
    return machine_from(text, cores or 1, int(listed) / 1e6 if listed.isdigit() else None)
