"""Tell what a quantized model answers on CPUs without VNNI, and give its layers 7 bits.

Such CPUs add products of codes in 16 bits, where sums saturate. Says which layers give other
numbers there, how many, and what that costs in SQNR and labels. `--fix OUT` writes the model with 7
bits for the layers that need it, and for no others: then such a CPU sums codes exactly. Exit code 1
where an output is below --min-sqnr, or nobody knows.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import (
    AllLayers,
    AsJson,
    Color,
    ColorOption,
    Data,
    MinSqnr,
    Model,
    check_bound,
    choice,
    option,
)
from .sizes import InputShape, Size, given_sizes, refuse_with_data

if TYPE_CHECKING:
    from ..accuracy.data import Samples
    from ..accuracy.remedy import Outcome
    from ..accuracy.simulation import Simulation, Subject


class Isa(enum.StrEnum):
    """The newest instruction set of the CPU."""

    AVX2 = "avx2"
    AVX512_CORE = "avx512_core"
    SSE41 = "sse41"


IsaOption = Annotated[
    Isa, choice("--isa", Isa, "The newest instruction set of the CPU.", "instruction set")
]
F32 = Annotated[
    Path | None,
    option(
        "--f32", "The f32 model that it was made from; itself without rounding if not given.", "F32"
    ),
]
Fix = Annotated[
    Path | None,
    option("--fix", "Write the model with 7 bits for the layers that need it.", "OUT"),
]


def command(
    model: Model,
    isa: IsaOption = Isa.AVX2,
    data: Data = None,
    size: Size = None,
    shape: InputShape = None,
    f32: F32 = None,
    fix: Fix = None,
    min_sqnr: MinSqnr = None,
    all_rows: AllLayers = False,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Simulates a CPU."""
    from ..accuracy.simulation import subject_of
    from ..exporter.file import save_model
    from ..exporting import refuse_over

    refuse_with_data(data, size, shape)
    check_bound(min_sqnr)
    if fix is not None:
        refuse_over(fix, model, f32)
    subject = subject_of(model, isa.value, f32)
    (sizes,) = given_sizes([subject.graph], size, shape, least=1)
    samples = samples_of(subject, data, sizes)
    found, outcome = _measured(subject, samples, model.name, fixing=fix is not None)
    if fix is not None and outcome is not None:
        save_model(outcome.fixed.model, fix)
    _report(found, outcome, model, fix, all_rows=all_rows, as_json=as_json, color=color)
    if min_sqnr is not None and (found.void or not found.worst >= min_sqnr):
        raise typer.Exit(1)


def samples_of(subject: Subject, data: Path | None, sizes: Mapping[str, int]) -> Samples:
    """What `--data` gives, or a sample of random data."""
    from ..accuracy.data import given
    from ..accuracy.simulation import samples_for
    from .feeds import read_samples

    if data is None:
        return samples_for(subject, sizes)
    return given(subject.graph, read_samples(data, subject.graph.inputs), data.name)


def _measured(
    subject: Subject, samples: Samples, name: str, *, fixing: bool
) -> tuple[Simulation, Outcome | None]:
    from ..accuracy.remedy import fixed, outcome_of
    from ..accuracy.simulation import simulated
    from .progress import Progress

    with Progress(len(subject.at_risk) * len(samples.feeds)) as progress:
        progress.say(f"running {name} as {subject.isa} would")
        found = simulated(subject, samples, progress.advance)
        if not fixing:
            return found, None
        progress.say("giving layers 7 bits")
        return found, outcome_of(subject, fixed(subject), samples)


def _report(
    found: Simulation,
    outcome: Outcome | None,
    model: Path,
    fix: Path | None,
    *,
    all_rows: bool,
    as_json: bool,
    color: Color,
) -> None:
    from .console import layout_of_stdout, print_json, show

    if as_json:
        from ..accuracy.simulate import as_data
        from ..report.json import plain

        places = {"model": str(model), "output": None if fix is None else str(fix)}
        print_json({**plain(as_data(found, outcome)), **places})
        return
    from ..accuracy.simulation_screen import simulation_report
    from ..report.notation import title_text

    layout = layout_of_stdout(all_rows=all_rows)
    written = "" if fix is None else str(fix)
    title = title_text(model.name)
    show(
        simulation_report(found, outcome, layout, title=title, written=written, all_rows=all_rows),
        color,
    )
