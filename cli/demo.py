"""Compile a small trained network, show what was fused, and classify 360 real digits.

The network and the handwritten digits, which it never saw in training, are part of fqfuse. Each
digit is classified three times: by the f32 model, by the quantized model as it was written,
operation by operation, and by the compiled plan. The exit code is 1 when the plan is right in less
than 97 %, or its accuracy differs from the f32 model's by more than half a point.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsJson, Backend, BackendOption, Color, ColorOption, Target, choice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..inference import InferenceSession
    from ..plan.types import Plan

__all__ = ["DEMO_SCHEMA", "Demo", "Form", "Run", "command"]

DEMO_SCHEMA = "fqfuse.demo/1"

LEAST_ACCURACY = 97.0
LARGEST_LOSS = 0.5
"""Bounds in percent and percentage points: what a user may expect of an int8 network this small."""

_REPEATS = 3  # the fastest of so many, behind one that warms up


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


def command(
    form: Annotated[
        Form, choice("--form", Form, "Which form of the model is compiled.")
    ] = Form.FAKEQUANTIZE,
    target: Target = None,
    backend: BackendOption = Backend.AUTO,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Runs the demo."""
    demo = _measured(form, target, backend)
    from .console import layout_of_stdout, print_json, show
    from .demo_report import demo_json, demo_report

    if as_json:
        print_json(demo_json(demo))
    else:
        show(demo_report(demo, layout_of_stdout(all_rows=True)), color)
    if not all(holds for _, holds in demo.checks()):
        raise typer.Exit(1)


def _measured(form: Form, target: str | None, backend: Backend) -> Demo:
    from ..inference import InferenceSession
    from ..models.digits import digits_model_path, digits_test_set
    from .load import compiled
    from .progress import Progress

    plan = compiled(digits_model_path(form.value), target)
    session = InferenceSession(plan, backend.value)
    images, labels = digits_test_set()
    ways = [("f32", "f32, op by op", _reference(Form.F32, images))]
    if form is not Form.F32:
        ways.append(("unfused", f"{form.value}, op by op", _reference(form, images)))
    precision = "f32" if form is Form.F32 else "int8"
    ways.append(("plan", f"{precision} plan on {session.backend}", _compiled(session, images)))
    with Progress(len(ways)) as progress:
        runs = []
        for name, title, classify in ways:
            progress.say(title)
            runs.append(_timed(name, title, classify))
            progress.advance()
    return Demo(form, plan, session.backend, images, labels, tuple(runs))


def _reference(form: Form, images: npt.NDArray[np.float32]) -> Callable[[], npt.NDArray[np.int64]]:
    from ..frontend import graph_from_onnx
    from ..ir.interpret import run_graph
    from ..models.digits import digits_model_path

    graph = graph_from_onnx(digits_model_path(form.value))
    (image,), (logits,) = graph.inputs, graph.outputs
    return lambda: run_graph(graph, {image: images})[logits].argmax(axis=1)


def _compiled(
    session: InferenceSession, images: npt.NDArray[np.float32]
) -> Callable[[], npt.NDArray[np.int64]]:
    (image,) = session.get_inputs()
    return lambda: session.run(None, {image.name: images})[0].argmax(axis=1)


def _timed(name: str, title: str, classify: Callable[[], npt.NDArray[np.int64]]) -> Run:
    answers, seconds = classify(), []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        answers = classify()
        seconds.append(time.perf_counter() - started)
    return Run(name, title, answers, min(seconds))
