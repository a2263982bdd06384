"""What the demo finds: the answers of each way of classifying the digits, and how they compare."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..plan.types import Plan

LEAST_ACCURACY = 97.0
LARGEST_LOSS = 0.5
"""Bounds in percent and percentage points: what a user may expect of an int8 network this small."""


class Form(enum.StrEnum):
    """How the committed model is quantized."""

    F32 = "f32"
    FAKEQUANTIZE = "fakequantize"
    QDQ = "qdq"


@dataclass(frozen=True)
class Run:
    """One way of classifying the digits.

    Attributes:
        name: key in the JSON document.
        title: for people.
        answers: int64 [N], the label that each digit was given.
        seconds: for all digits.
    """

    name: str
    title: str
    answers: npt.NDArray[np.int64]
    seconds: float


@dataclass(frozen=True)
class Demo:
    """What the demo found.

    Attributes:
        form: of the model that was compiled.
        plan: what it became.
        backend: the runtime that the plan ran on.
        images, labels: f32 [N, 1, 8, 8] and int64 [N].
        runs: the f32 model, the quantized model unfused (if the form is a quantized one), the plan.
    """

    form: Form
    plan: Plan
    backend: str
    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    runs: tuple[Run, ...]

    def correct(self, run: Run) -> int:
        """How many digits a run got right."""
        return int((run.answers == self.labels).sum())

    def accuracy(self, run: Run) -> float:
        """In percent."""
        return 100.0 * self.correct(run) / len(self.labels)

    def agreement(self, run: Run, other: Run) -> int:
        """How many digits two runs gave the same label."""
        return int((run.answers == other.answers).sum())

    def checks(self) -> list[tuple[str, bool]]:
        """What has to hold, and whether it does."""
        f32, plan = self.runs[0], self.runs[-1]
        loss = abs(self.accuracy(f32) - self.accuracy(plan))
        return [
            (
                f"the plan's accuracy is at least {LEAST_ACCURACY:g} %",
                self.accuracy(plan) >= LEAST_ACCURACY,
            ),
            (
                f"the plan's accuracy is within {LARGEST_LOSS:g} points of the f32 model's",
                loss <= LARGEST_LOSS,
            ),
        ]
