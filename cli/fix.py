"""Repair a quantized model: from what `inspect` and `compare` find to a file without it.

Tries the remedies that need no training, one by one: quantizers taken out, scales of their own for what
a concatenation joins, weights by channel from the f32 model, ranges by data, fixed sizes, inputs in f32,
7 bits where sums saturate, and quantizers where another runtime fuses them. Each is measured (SQNR,
time, size) and kept only if it helps. The file is standard ONNX, loaded by the runtime that it is for
before it is written; where nothing helps, none is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .options import AsJson, Color, ColorOption, Data, Model, UsageError, choice, option, place
from .out import sizes_of
from .simulate import F32, samples_of
from .sizes import InputShape, Size, given_sizes, refuse_with_data

if TYPE_CHECKING:
    from ..accuracy.data import Samples
    from ..accuracy.repair import Repair
    from ..accuracy.simulation import Subject


class For(enum.StrEnum):
    """The runtime that runs the file."""

    HERE = "here"
    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


Only = Annotated[
    list[str] | None,
    option(
        "--only",
        "A remedy by the code of its finding (docs/findings.md), or range, suggest, layout; repeatable.",
        "CODE",
    ),
]


def command(
    model: Model,
    output: Annotated[Path | None, option("--output -o", "The file to write.", "OUT")] = None,
    data: Data = None,
    size: Size = None,
    shape: InputShape = None,
    f32: F32 = None,
    runtime: Annotated[
        For, choice("--for", For, "The runtime that the file is for.", "runtime")
    ] = For.HERE,
    only: Only = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Say what would be done, and write nothing.")
    ] = False,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Repairs a model, and says what that gained."""
    from ..accuracy.fixing import subject_to_repair
    from ..exporter.file import save_model
    from ..exporting import refuse_over

    refuse_with_data(data, size, shape)
    if output is None and not dry_run:
        raise UsageError(
            "a repaired file needs a name",
            where=place("--output"),
            hint="give -o OUT, or --dry-run",
        )
    if output is not None:
        refuse_over(output, model, f32)
    subject = subject_to_repair(model, f32)
    (sizes,) = given_sizes([subject.graph], size, shape, least=1)
    samples = samples_of(subject, data, sizes)
    found = _repaired(subject, samples, sizes, f32, runtime, only or [], model.name)
    made = found.model is not None and not dry_run
    if made and output is not None:
        save_model(found.model, output)
    _report(found, model, output if made else None, as_json=as_json, color=color)


def _repaired(
    subject: Subject,
    samples: Samples,
    sizes: Mapping[str, int],
    f32: Path | None,
    runtime: For,
    only: list[str],
    name: str,
) -> Repair:
    from ..accuracy.fixing import repaired, sizes_to_fix
    from .progress import Progress

    with Progress() as progress:
        progress.say(f"measuring {name}")
        fixed = sizes_to_fix(subject, samples, sizes)
        return repaired(
            subject,
            samples,
            f32=f32,
            sizes=fixed,
            target=runtime.value,
            only=only,
            say=progress.say,
        )


def _report(
    found: Repair, model: Path, output: Path | None, *, as_json: bool, color: Color
) -> None:
    from .console import layout_of_stdout, print_json, show

    if as_json:
        from ..accuracy.repair import as_data
        from ..report.json import plain

        places = {"model": str(model), "output": None if output is None else str(output)}
        print_json({**plain(as_data(found)), **places})
        return
    from ..accuracy.fix_screen import fix_report
    from ..report.notation import title_text

    written = "" if output is None else sizes_of(output)[1]
    show(
        fix_report(found, layout_of_stdout(), title=title_text(model.name), written=written), color
    )
