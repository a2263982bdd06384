"""Measure how fast a model runs, beside other runtimes and step by step.

Engines take turns, each in a process of its own, after runs that wake them up. Then fqfuse times each
step of its plan: what takes longest stands first, with the kernel, and how near that comes to what
the machine can do at best. Inputs are made up unless --data gives them (docs/run.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .options import (
    Approximate,
    AsJson,
    Backend,
    BackendOption,
    Cache,
    Color,
    ColorOption,
    Dynamic,
    ModelOrPlan,
    Target,
    Threads,
    listed_sizes_of,
    number,
    option,
    timeout_option,
)
from .sizes import InputShape, Size, given_sizes, refuse_with_data

if TYPE_CHECKING:
    from ..plan.types import Plan

Against = Annotated[
    list[str] | None,
    option(
        "--against",
        "Another runtime to measure in turns with fqfuse; repeatable.",
        "onnxruntime|openvino",
    ),
]
Data = Annotated[
    list[str] | None,
    option(
        "--data",
        "Inputs: .npz with their names, or .npy; as --input of `fqfuse run`. Repeatable.",
        "[NAME=]FILE",
    ),
]
Rounds = Annotated[
    int | None,
    number(
        "--rounds",
        "Turns of each engine; else 7.",
        "N",
        most=999,
        what="number of rounds",
        hint="give a whole number from 1 to 999; from 6 on ratios have an interval",
    ),
]
Seconds = Annotated[
    float | None,
    number(
        "--time",
        "How long a turn is, about; else 0.3.",
        "SECONDS",
        most=60,
        what="time of a turn",
        hint="give seconds, more than 0 and at most 60, such as 0.5",
        whole=False,
    ),
]
Timeout = Annotated[
    float | None,
    timeout_option(
        "How long an engine may take to load the model, or for a turn, before it is ended; else 600."
    ),
]
Trace = Annotated[
    Path | None,
    option("--trace", "Write one run as a trace for chrome://tracing or ui.perfetto.dev.", "FILE"),
]
AllRows = Annotated[bool, option("--all", "List every step, not the ten slowest.")]


def command(
    model: ModelOrPlan,
    against: Against = None,
    size: Size = None,
    shape: InputShape = None,
    data: Data = None,
    threads: Threads = None,
    backend: BackendOption = Backend.AUTO,
    rounds: Rounds = None,
    time: Seconds = None,
    timeout: Timeout = None,
    trace: Trace = None,
    all_rows: AllRows = False,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    cache: Cache = None,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Measures a model, and reports."""
    from ..measure.bench import Measurement, measured
    from .feeds import read_feeds
    from .load import is_plan_file, plan_of
    from .progress import Progress

    sizes = listed_sizes_of(size)
    refuse_with_data(data, size, shape)
    if trace is not None:
        _check_trace(trace, model)
    plan = plan_of(model, target, dynamic, approximate, cache)
    feeds = read_feeds(data, plan.inputs) if data else {}
    (shaped,) = given_sizes([plan], None, shape, least=1)
    with Progress(still=True) as progress:
        asked = Measurement(
            against=tuple(against or ()),
            sizes={**shaped, **sizes},
            feeds={name: feed.array for name, feed in feeds.items()} if data else None,
            threads=threads,
            backend=backend.value,
            rounds=rounds or 7,
            seconds=time or 0.3,
            timeout=timeout or 600.0,
            say=progress.say,
        )
        original = None if is_plan_file(model) else model
        found = measured(plan, original, str(model), asked)
    if trace is not None:
        from ..files import write_atomically
        from ..measure.trace import trace_bytes

        write_atomically(trace, trace_bytes(model.name, found["cases"]))
    _report(plan, found, model, trace, as_json=as_json, all_rows=all_rows, color=color)


def _check_trace(trace: Path, model: Path) -> None:
    """Before anything is measured: the folder is there, and the model is not written over."""
    from ..errors import InvalidInput
    from ..files import is_folder
    from .out import refuse_over

    if not is_folder(trace.parent) or is_folder(trace):
        raise InvalidInput(
            "the trace cannot be written there: "
            + ("it is a folder" if is_folder(trace) else "there is no such folder"),
            where=str(trace),
            hint="name a file in a folder that exists, such as trace.json",
        )
    refuse_over(trace, model, "the trace would be written over the model")


def _report(
    plan: Plan,
    found: dict[str, Any],
    model: Path,
    trace: Path | None,
    *,
    as_json: bool,
    all_rows: bool,
    color: Color,
) -> None:
    from .console import layout_of_stdout, print_json, show

    if as_json:
        print_json({**found, "trace": None if trace is None else str(trace)})
        return
    from ..report.notation import title_text
    from .bench_report import bench_report

    layout = layout_of_stdout(all_rows=all_rows)
    title = title_text(model.name)
    show(bench_report(found, layout, title=title, steps=len(plan.steps), all_rows=all_rows), color)
    if trace is not None:
        from rich.console import Group

        from ..report.layout import Text

        note = f"  trace: {trace}, for chrome://tracing or ui.perfetto.dev"
        show(Group(Text(), Text(note, style="dim")), color)
