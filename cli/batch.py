"""Run a data set through a model or plan, in batches.

The data are a folder of Parquet, of .npy and .npz, or of image files (or one file). The output is a
folder with a file for each part of the rows; rows that cannot be run go to _bad_rows.jsonl with
their reason. A run that was ended in any way goes on where it was when the same command is given
again: no row is lost, and none comes twice (docs/run.md).

Exit code 1 where more rows are bad than --max-bad.
"""

from __future__ import annotations

import enum
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    UsageError,
    choice,
    number,
    option,
    place,
    sizes_of,
)

if TYPE_CHECKING:
    from ..batch.parts import Part
    from ..batch.reading import Reading
    from ..batch.run import Outcome
    from .progress import Progress


class Engine(enum.StrEnum):
    """What runs the workers."""

    LOCAL = "local"
    RAY = "ray"


class Fit(enum.StrEnum):
    """How an image gets the size that the model takes."""

    COVER = "cover"
    STRETCH = "stretch"
    EXACT = "exact"


Input = Annotated[
    Path, option("--input -i", "A folder of .parquet, .npy and .npz, or image files.", "DATA")
]
Output = Annotated[
    Path, option("--output -o", "A folder, new or of an earlier run of the same job.", "OUT")
]
Batch = Annotated[
    int | None,
    number(
        "--batch",
        "Rows of a batch; else as many as the model demands, or 32.",
        "N",
        most=999_999,
        what="number of rows",
        hint="give a whole number from 1 to 999999",
    ),
]
Workers = Annotated[
    int | None,
    number(
        "--workers",
        "Processes (or actors of Ray), each with a session of its own; else 1.",
        "N",
        most=9999,
        what="number of workers",
        hint="give a whole number from 1 to 9999",
    ),
]
WorkerThreads = Annotated[
    int | None,
    number(
        "--threads",
        "Batches that a worker runs at once, each on a thread; the processors shared among them if not given.",
        "N",
        most=999_999_999,
        what="number of threads",
        hint="give a whole number of 1 or more",
    ),
]
Columns = Annotated[
    list[str] | None,
    option(
        "--column",
        "The column or array for an input, where it is called otherwise; repeatable.",
        "INPUT=COLUMN",
    ),
]
Keep = Annotated[
    list[str] | None,
    option("--keep", "A column of Parquet that is passed on to the output; repeatable.", "COLUMN"),
]
Size = Annotated[
    list[str] | None,
    option(
        "--size",
        "A size that the model leaves open, else that of the first row; repeatable.",
        "NAME=N",
    ),
]
FitOption = Annotated[
    Fit,
    choice(
        "--fit",
        Fit,
        "Images: resized and their middle cut out, stretched, or of the model's size alone.",
        "fit",
    ),
]
Mean = Annotated[
    str | None,
    option("--mean", "Images: (pixel / 255 - mean) / std, for each channel; else 0.", "X[,X...]"),
]
Std = Annotated[str | None, option("--std", "Images: the same; else 1.", "X[,X...]")]
EngineOption = Annotated[
    Engine, choice("--engine", Engine, "Processes of this machine, or Ray Data.", "engine")
]
MaxBad = Annotated[
    int, typer.Option("--max-bad", help="Exit with 1 where more rows are bad.", metavar="N", min=0)
]


def command(
    model: ModelOrPlan,
    input: Input,
    output: Output,
    batch: Batch = None,
    workers: Workers = None,
    threads: WorkerThreads = None,
    column: Columns = None,
    keep: Keep = None,
    size: Size = None,
    fit: FitOption = Fit.COVER,
    mean: Mean = None,
    std: Std = None,
    engine: EngineOption = Engine.LOCAL,
    max_bad: MaxBad = 0,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    backend: BackendOption = Backend.AUTO,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Runs a data set, and says what became of its rows."""
    from ..batch.run import Asked, run_batch
    from .load import plan_of
    from .progress import Progress

    asked = Asked(
        data=input,
        output=output,
        reading=_reading(column, keep, fit, mean, std),
        batch=batch,
        sizes=sizes_of(size, least=1),
        workers=workers or 1,
        threads=threads,
        backend=backend.value,
        engine=engine.value,
    )
    plan = plan_of(model, target, dynamic, approximate)
    with Progress() as progress:
        progress.say(f"looking through {input.name}")
        outcome = run_batch(plan, asked, _Told(progress))
    _report(outcome, model, asked.output, engine.value, as_json=as_json, color=color)
    if outcome.bad > max_bad:
        raise typer.Exit(1)


def _reading(
    column: list[str] | None, keep: list[str] | None, fit: Fit, mean: str | None, std: str | None
) -> Reading:
    from ..batch.reading import Pixels, Reading

    columns = {}
    for text in column or ():
        name, _, held = text.rpartition("=")
        if not name or not held:
            raise UsageError(
                f"{text!r} names no column for an input",
                where=place("--column"),
                hint="give both names, such as --column image=pixels",
            )
        columns[name] = held
    pixels = Pixels(fit.value, _numbers("--mean", mean, (0.0,)), _numbers("--std", std, (1.0,)))
    return Reading(columns, tuple(keep or ()), pixels)


def _numbers(name: str, text: str | None, default: tuple[float, ...]) -> tuple[float, ...]:
    if text is None:
        return default
    words = text.split(",")
    numbers = [float(word) for word in words if re.fullmatch(r"\d{1,4}(\.\d+)?|\.\d+", word)]
    if len(numbers) != len(words) or (name == "--std" and 0 in numbers):
        raise UsageError(
            f"{text!r} gives no numbers for the channels",
            where=place(name),
            hint=f"give one number, or one for each channel, such as {name} 0.485,0.456,0.406",
        )
    return tuple(numbers)


class _Told:
    """Turns what is done into words: rows, and rows a second of this run."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._rows, self._first = progress, 0, 0
        self._started: float | None = None

    def __call__(self, part: Part | None, count: int) -> None:
        if part is None:
            self._progress.expect(count)
            return
        self._progress.advance()
        self._rows += count
        now = time.perf_counter()
        if self._started is None:
            self._started, self._first = now, self._rows
        passed = now - self._started
        rate = f", {(self._rows - self._first) / passed:,.0f} a second" if passed > 1 else ""
        self._progress.say(f"{self._rows:,} rows{rate}")


def _report(
    outcome: Outcome, model: Path, output: Path, engine: str, *, as_json: bool, color: Color
) -> None:
    from ..batch.folder import BAD_ROWS
    from .console import print_json, show

    if as_json:
        print_json(
            {
                "schema": "fqfuse.batch/1",
                "model": str(model),
                "output": str(output),
                "format": outcome.data.format,
                "engine": engine,
                "threads": outcome.threads,
                "files": len(outcome.data.files),
                "rows": outcome.data.rows,
                "written": outcome.written,
                "bad": outcome.bad,
                "bad_rows": str(output / BAD_ROWS),
                "batch": outcome.signature.batch,
                "parts": outcome.parts,
                "parts_resumed": outcome.resumed,
                "seconds": outcome.seconds,
            }
        )
        return
    from rich.console import Group, RenderableType

    from ..report.layout import Text, heading
    from ..report.notation import count_text, title_text

    note = f"{outcome.seconds:,.1f} s, batches of {outcome.signature.batch:,}"
    lines: list[RenderableType] = [
        heading(title_text(model.name), note),
        Text(f"  {count_text(outcome.data.rows, 'row')} in, {outcome.written:,} out: {output}"),
    ]
    if outcome.resumed:
        told = f"  {outcome.resumed:,} of {outcome.parts:,} parts were done before"
        lines.append(Text(told, style="dim"))
    if outcome.bad:
        first = next(bad for record in outcome.records for bad in record.bad)
        reason = f"{first.file}, row {first.file_row}: {first.reason}"
        lines += [
            Text(
                f"  {count_text(outcome.bad, 'bad row')}, listed in {output / BAD_ROWS}; the first:",
                style="yellow",
            ),
            Text(f"  {reason}"),
        ]
    show(Group(*lines), color)
