"""Where the steps of a plan run, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.decision import Decision, Outcome
from ..plan.types import Step

__all__ = ["Placement", "split_offs"]


@dataclass(frozen=True)
class Placement:
    """Where a step runs.

    Attributes:
        step: the step.
        runtime: `onednn`, `numpy`, or `view` for a step that moves no data.
        implementation: the library's names for the kernels (`brgconv:avx512_core_vnni`), several
            joined by ` + `; empty on NumPy.
        reason: why it is not on oneDNN; empty where it is.
    """

    step: Step
    runtime: str
    implementation: str = ""
    reason: str = ""


def split_offs(placements: Iterable[Placement]) -> tuple[Decision, ...]:
    """A refusal for each primitive that the oneDNN runtime gave to NumPy (`onnx.<Op>` steps are no
    primitives: nothing was refused).
    """
    return tuple(
        Decision(
            rule="onednn runtime",
            subject=placement.step.origin[0] if placement.step.origin else placement.step.name,
            outcome=Outcome.REFUSED,
            reason=f"{placement.step.primitive} runs on NumPy: {placement.reason}",
            expected="an exact, compiled implementation in oneDNN",
            found=placement.reason,
        )
        for placement in placements
        if placement.runtime == "numpy" and not placement.step.primitive.startswith("onnx.")
    )
