"""Compile a small trained network, show what was fused, and classify 360 real digits.

The network and the handwritten digits, which it never saw in training, are part of fqfuse. Each
digit is classified three times: by the f32 model, by the quantized model as it was written,
operation by operation, and by the compiled plan. The exit code is 1 when the plan is right in less
than 97 %, or its accuracy differs from the f32 model's by more than half a point.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from .demo_result import Demo, Form, Run
from .options import AsJson, Backend, BackendOption, Color, ColorOption, Target, choice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..inference import InferenceSession

_REPEATS = 3  # the fastest of so many, behind one that warms up


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
