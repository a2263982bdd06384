"""Where the steps of a plan run, and why."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan.types import Step, short_name


@dataclass(frozen=True)
class Placement:
    """Where a step runs.

    Attributes:
        step: the step.
        runtime: `onednn`, `numpy`, or `view` for a step that does nothing in a run: another shape of
            the same bytes, or what the sizes of the inputs settle.
        implementation: the library's names for the kernels (`brgconv:avx512_core_vnni`), several
            joined by ` + `; empty on NumPy.
        reason: why it is not on oneDNN; empty where it is, and for another shape.
    """

    step: Step
    runtime: str
    implementation: str = ""
    reason: str = ""

    def __repr__(self) -> str:
        """One line, which names the step."""
        told = self.implementation or self.reason
        return f"Placement '{short_name(self.step.name)}': {self.runtime}{f', {short_name(told)}' if told else ''}"
