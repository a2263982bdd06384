"""What a CPU can do, from its instruction set, its cores and its clock. Nothing is timed.

Multiply-adds in each cycle of a core: two vectors of f32 (two units that multiply and add). With VNNI
one instruction multiplies four times as many codes; without it three instructions do the work of
one, which leaves twice the rate of f32 on AVX2 and 1.33 times on AVX-512. AMX multiplies tiles of
16x64 by 64x16 codes in 16 cycles. AMD's cores in front of family 26 (Zen 5) take two cycles for 512
bits.

Linux tells the highest clock where it may set it. Elsewhere, as in most virtual machines, it tells
the base clock, which a core exceeds while its package is cool: by 36 to 45 % on EPYC 7003 and 9004 and
on Xeons of the second and third generation (3.69 measured where 2.6 GHz are told). The upper end counts, and
`REACHED` is measured against it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...onednn.enums import CpuIsa
from ...plan.summation import ISAS

_CPUINFO = Path("/proc/cpuinfo")
_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")
_MOST = "ONEDNN_MAX_CPU_ISA"
_EXACT = ISAS[0]


class Reached(NamedTuple):
    """The shares of a CPU's rates that kernels reach in whole networks.

    Attributes:
        int8, f32: of the multiply-adds by codes and in f32.
        depthwise: of those in f32, by depthwise convolutions.
        moved: of the bytes; and calls take as much longer.
    """

    int8: float = 1.0
    f32: float = 1.0
    depthwise: float = 1.0
    moved: float = 1.0


_BOUNDS = Reached()
REACHED: Mapping[str, Reached] = MappingProxyType(
    {
        "AMX": Reached(0.08, 0.3, 0.1, 0.3),
        "AVX-512 VNNI": Reached(0.3, 0.3, 0.1, 0.3),
        "AVX2 VNNI": Reached(0.3, 0.3, 0.1, 0.3),
        "AVX-512 without VNNI": Reached(0.5, 0.4, 0.1),
        "AVX2 without VNNI": Reached(0.3, 0.4, 0.1),
        "SSE4.1": Reached(0.3, 0.4, 0.1),
    }
)
"""Measured in November 2026 with oneDNN 3.2 on one core of a Cascade Lake at 2.5 GHz (estimated: 3.6), processor time
of 15 networks on a busy machine; without VNNI under ONEDNN_MAX_CPU_ISA. The clock, which is lower while vectors of 512
bits multiply, is as much the cause as the kernels: a product of 1024^3 in f32 by OpenBLAS reached 0.44.

With VNNI, int8 convolutions and matmuls reached 0.5 (DenseNet-121) to 0.13 (a RegNet and a YOLO, whose tensors are
small), depthwise convolutions 0.06 to 0.18, products in f32 0.16 to 0.31, and what moves bytes 8 to 11 GB/s. On the
idle machine estimates were 0.50 (EfficientNet) to 1.63 (DenseNet-121) of the time of 14, and 0.41 of an LSTM's.

Without VNNI a ResNet-50 reached 0.50 by int8 kernels and 0.35 by f32 ones, with AVX2 0.32 and 0.33. AMX is known from
one ResNet-50 alone. SSE4.1 and AVX2 with VNNI were not measured.
"""
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
        int8, f32: multiply-adds in a cycle of one core, at most.
        isa: how it adds products of codes: a name of `plan.summation.ISAS`.
        reached: the shares of these rates that kernels reach; 1 where estimates are bounds.
        moved: bytes that one core reads or writes in a cycle, from a cache that the cores share.
        call: milliseconds to call a primitive, at least: arguments, and a barrier of the threads.
        numpy_call: milliseconds to call a step on NumPy. Measured on the same CPU in chains of 45 steps of 8 numbers:
            Floor 0.038, Sin 0.042, CumSum 0.057.
    """

    name: str
    cores: int
    clock: float
    int8: float
    f32: float
    isa: str
    reached: Reached = _BOUNDS
    moved: float = 8.0
    call: float = 0.002
    numpy_call: float = 0.04

    @property
    def exact_int8(self) -> bool:
        """It adds products of codes without saturating pairs (VNNI, AMX, or no x86)."""
        return self.isa == _EXACT

    @property
    def description(self) -> str:
        """`2 cores at up to 3.8 GHz with AVX-512 VNNI`."""
        cores = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        return f"{cores} at up to {self.clock:.1f} GHz with {self.name}"

    def macs_per_ms(self, *, int8: bool, cores: int | None = None) -> float:
        """Multiply-adds in a millisecond, at most."""
        rate = self.int8 if int8 else self.f32
        return rate * self.clock * 1e6 * (cores or self.cores)

    def ms_of(self, macs: float, *, int8: bool, depthwise: bool = False) -> float:
        """Milliseconds that kernels take for multiply-adds; depthwise ones are no faster by codes."""
        int8 = int8 and not depthwise
        reached = self.reached
        share = reached.depthwise if depthwise else reached.int8 if int8 else reached.f32
        return macs / self.macs_per_ms(int8=int8) / share

    @property
    def at_peak(self) -> Machine:
        """The same with kernels that reach its peak."""
        return replace(self, reached=_BOUNDS, call=Machine.call)

    def bytes_per_ms(self, cores: int | None = None) -> float:
        """Bytes in a millisecond."""
        return self.moved * self.reached.moved * self.clock * 1e6 * (cores or self.cores)


# name, the flag of /proc/cpuinfo and oneDNN's set that it needs, multiply-adds in a cycle (int8, f32), isa
_SETS: tuple[tuple[str, str, CpuIsa, float, float, str], ...] = (
    ("AMX", "amx_int8", CpuIsa.avx512_core_amx, 1024.0, 32.0, _EXACT),
    ("AVX-512 VNNI", "avx512_vnni", CpuIsa.avx512_core_vnni, 128.0, 32.0, _EXACT),
    ("AVX2 VNNI", "avx_vnni", CpuIsa.avx2_vnni, 64.0, 16.0, _EXACT),
    ("AVX-512 without VNNI", "avx512bw", CpuIsa.avx512_core, 42.7, 32.0, "avx512_core"),
    ("AVX2 without VNNI", "avx2", CpuIsa.avx2, 32.0, 16.0, "avx2"),
    ("SSE4.1", "sse4_1", CpuIsa.sse41, 8.0, 4.0, "sse41"),
)
_OTHER = ("an instruction set that is not known here (taken for 128-bit vectors)", 16.0, 8.0)


def machine_from(
    text: str, cores: int, clock: float | None = None, most: CpuIsa = CpuIsa.default
) -> Machine:
    """A machine from what Linux says of its first processor.

    Args:
        text: as /proc/cpuinfo has it; empty where the system tells nothing.
        cores: how many may work.
        clock: GHz at most; None: above what the text says by what cores boost, or 4.
        most: the newest instruction set that oneDNN may use; the default: any.
    """
    told = dict(
        re.findall(
            r"^([^\t:\n]+?)\s*: (.*)$", text.split("\n\n", maxsplit=1)[0], flags=re.MULTILINE
        )
    )
    clock = round(clock or _clock(told), 1)
    flags = frozenset(told.get("flags", "").split())
    for name, flag, needed, int8, f32, isa in _SETS:
        if flag in flags and (not most or needed & most == needed):
            halved = "512" in name and _halves(told)
            share = 0.5 if halved else 1.0
            reached = REACHED[name]
            call = Machine.call / reached.moved
            return Machine(name, cores, clock, int8 * share, f32 * share, isa, reached, call=call)
    name, int8, f32 = _OTHER
    return Machine(name, cores, clock, int8, f32, _EXACT)


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
    """The machine that this process runs on, with the processors that it may use, and the instruction sets that
    oneDNN may (`ONEDNN_MAX_CPU_ISA`).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.exists() else ""
    listed = _CLOCK.read_text(encoding="ascii").strip() if _CLOCK.exists() else ""
    most = CpuIsa.__members__.get(os.environ.get(_MOST, "").lower(), CpuIsa.default)
    return machine_from(text, cores or 1, int(listed) / 1e6 if listed.isdigit() else None, most)
