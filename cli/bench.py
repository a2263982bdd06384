"""Measure how fast a model runs, beside other runtimes and step by step.

Engines take turns, each in a process of its own, after runs that wake them up. Then fqfuse times each
step of its plan: what takes longest stands first, with the kernel, and how near that comes to what
the machine can do at best. Inputs are made up unless --data gives them (docs/measuring.md).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import (
    Approximate,
    AsJson,
    Backend,
    BackendOption,
    Color,
    ColorOption,
    Dynamic,
    ModelOrPlan,
    Target,
    Threads,
    UsageError,
    place,
)

if TYPE_CHECKING:
    from ..plan.types import Plan

__all__ = ["command"]


def _rounds(text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,2}", text):
        raise UsageError(
            f"{text!r} is no number of rounds",
            where=place("--rounds"),
            hint="give a whole number from 1 to 999; from 6 on ratios have an interval",
        )
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text) if re.fullmatch(r"[0-9]{1,3}(\.[0-9]+)?|\.[0-9]+", text) else 0.0
    if not 0 < seconds <= 60:
        raise UsageError(
            f"{text!r} is no time of a turn",
            where=place("--time"),
            hint="give seconds, more than 0 and at most 60, such as 0.5",
        )
    return seconds


def command(
    model: ModelOrPlan,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="onnxruntime|openvino",
            help="Another runtime to measure in turns with fqfuse; repeatable.",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=N[,N...]",
            help="A size that the model leaves open, else 1; several are measured one by one. Repeatable.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[NAME=]FILE",
            help="Inputs: .npz with their names, or .npy; as --input of `fqfuse run`. Repeatable.",
        ),
    ] = None,
    threads: Threads = None,
    backend: BackendOption = Backend.AUTO,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", parser=_rounds, help="Turns of each engine; else 7."),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="SECONDS",
            parser=_seconds,
            help="How long a turn is, about; else 0.3.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Write one run as a trace for chrome://tracing or ui.perfetto.dev.",
        ),
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="List every step, not the ten slowest.")
    ] = False,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Measures a model, and reports."""
    from ..measure.bench import Measurement, measured
    from .feeds import read_feeds
    from .load import is_plan_file, plan_of
    from .progress import Progress

    sizes = _sizes(size or ())
    if trace is not None:
        _check_trace(trace, model)
    plan = plan_of(model, target, dynamic, tuple(approximate or ()))
    feeds = read_feeds(data, plan.inputs) if data else {}
    with Progress(still=True) as progress:
        asked = Measurement(
            against=tuple(against or ()),
            sizes=sizes,
            feeds={name: feed.array for name, feed in feeds.items()} if data else None,
            threads=threads,
            backend=backend.value,
            rounds=rounds or 7,
            seconds=time or 0.3,
            say=progress.say,
        )
        original = None if is_plan_file(model) else model
        found = measured(plan, original, str(model), asked)
    if trace is not None:
        from ..files import write_atomically
        from ..measure.trace import trace_bytes

        write_atomically(trace, trace_bytes(model.name, found["cases"]))
    _report(plan, found, model, trace, as_json=as_json, all_rows=all_rows, color=color)


def _sizes(texts: list[str] | tuple[()]) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        if not name or name in sizes or not re.fullmatch("(0*[1-9][0-9]{0,8},?)+(?<!,)", numbers):
            raise UsageError(
                f"{text!r} gives a size for the second time"
                if name in sizes
                else f"{text!r} is no size",
                where=place("--size"),
                hint="give a name and whole numbers, such as --size batch=1,8",
            )
        sizes[name] = [int(number) for number in numbers.split(",")]
    return sizes


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
