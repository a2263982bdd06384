"""The two honest numbers: how much of the arithmetic is in int8, how much of what lies between steps in
f32.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.types import Plan
from ..notation import bytes_text
from .view import View
from .work import bytes_of, parts_of


@dataclass(frozen=True)
class Shares:
    """Of a run.

    Attributes:
        macs, int8_macs: multiply-adds, and those of 8-bit codes that are multiplied as such.
        f32_code_macs: those of 8-bit codes that f32 kernels do, because the CPU would saturate.
        between, f32_between: bytes of the values that a step writes and another one reads, in
            bodies trip by trip, and those in floating point.
    """

    macs: int
    int8_macs: int
    f32_code_macs: int
    between: int
    f32_between: int

    @property
    def arithmetic(self) -> str:
        """`4.09 G, 100 % in int8`."""
        if not self.macs:
            return "none"
        codes = ", ".join(f"{share} {how}" for share, how in self.of_codes)
        return f"{_large(self.macs)}, {codes}"

    @property
    def of_codes(self) -> tuple[tuple[str, str], ...]:
        """Shares of the multiply-adds, and how they multiply codes."""
        int8 = (share_text(self.int8_macs, self.macs), "in int8")
        f32 = (share_text(self.f32_code_macs, self.macs), "of codes in f32")
        return (int8, f32) if self.f32_code_macs else (int8,)

    @property
    def handed_on(self) -> str:
        """`10.9 MiB, 0 % in f32`."""
        return f"{bytes_text(self.between)}, {share_text(self.f32_between, self.between)} in f32"


def shares_of(plan: Plan, view: View | None = None) -> Shares:
    """The shares of a plan; `view`: of it, if there is one already."""
    view = view or View(plan)
    between = list(view.between())
    inner = [
        (shares_of(part.plan), part.times)
        for step in plan.steps
        for part in parts_of(plan, step).parts
    ]
    return Shares(
        sum(item.macs for item in view.works),
        sum(item.int8_macs for item in view.works),
        sum(item.f32_code_macs for item in view.works),
        sum(bytes_of(plan, value) for value in between)
        + sum(shares.between * times for shares, times in inner),
        sum(bytes_of(plan, value) for value in between if view.is_float(value))
        + sum(shares.f32_between * times for shares, times in inner),
    )


def share_text(part: float, whole: float) -> str:
    """A share in percent that says `100 %` of all, and `0 %` of nothing, only."""
    percent = 100 * part / whole if whole else 0.0
    if part and percent < 1:
        return "under 1 %"
    if part < whole and percent > 99:
        return "over 99 %"
    return f"{percent:.0f} %"


def _large(count: int) -> str:
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)
