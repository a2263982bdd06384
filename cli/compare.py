"""Compare a quantized model with the f32 model it was made from, layer by layer.

Says how good the outputs are, which layers add most noise and why, and what to change. Each layer is
measured twice: fed with f32's values (what it adds), and with what the int8 model has computed in
front of it (what has accumulated). Exit code 1 where an output is below --min-sqnr.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInput
from .options import (
    AllLayers,
    Approximate,
    AsJson,
    Color,
    ColorOption,
    Data,
    MinSqnr,
    UsageError,
    check_bound,
    choice,
    option,
    place,
    timeout_option,
)
from .out import refuse_over
from .sizes import InputShape, Size, given_sizes, refuse_with_data

if TYPE_CHECKING:
    from ..accuracy.compare import Comparison, Models
    from ..accuracy.data import Samples
    from ..accuracy.suggest import Suggestion

Cut = tuple[str, Mapping[str, Path]]
"""What --reduce did in a sentence, and the files that it wrote."""


class Against(enum.StrEnum):
    """Another program that runs the int8 model."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


F32 = Annotated[Path, typer.Argument(metavar="F32", help="The f32 ONNX model.")]
Int8 = Annotated[Path, typer.Argument(metavar="INT8", help="The model quantized from it.")]
AgainstOption = Annotated[
    list[Against] | None,
    choice(
        "--against",
        Against,
        "Run the int8 model there, too: tells a bad quantization from a wrong fqfuse.",
    ),
]
Timeout = Annotated[
    float | None,
    timeout_option("How long OpenVINO may take for a first run before it is ended; else 300."),
]
Suggest = Annotated[bool, option("--suggest", "Try which layers to leave in f32.")]
Reduce = Annotated[
    Path | None,
    option(
        "--reduce",
        "Cut out the smallest part that differs: from the other program with --against, else from f32. OUT.npz has its inputs.",
        "OUT.onnx",
    ),
]


def command(
    f32: F32,
    int8: Int8,
    data: Data = None,
    size: Size = None,
    shape: InputShape = None,
    against: AgainstOption = None,
    min_sqnr: MinSqnr = None,
    suggest: Suggest = False,
    reduce: Reduce = None,
    approximate: Approximate = None,
    timeout: Timeout = None,
    all_rows: AllLayers = False,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Compares two models."""
    from ..accuracy.compare import read_models
    from .load import checked_approximations

    refuse_with_data(data, size, shape)
    if against is not None and len(set(against)) > 1:
        raise UsageError(
            "one other program at a time",
            where=place("--against"),
            hint="run the comparison once for each",
        )
    check_bound(min_sqnr)
    if reduce is not None:
        _check_destination(reduce, f32, int8)
    models = read_models(f32, int8, checked_approximations(approximate))
    (sizes,) = given_sizes([models.f32], size, shape, least=1)
    samples = _samples(models, data, sizes)
    peer = against[0] if against else None
    found, suggestion = _measured(models, samples, peer, timeout, suggest=suggest, name=int8.name)
    cut = None if reduce is None else _reduced(found, reduce, min_sqnr)
    _report(found, suggestion, cut, f32, int8, all_rows=all_rows, as_json=as_json, color=color)
    if min_sqnr is not None and not found.least >= min_sqnr:
        raise typer.Exit(1)


def _samples(models: Models, data: Path | None, sizes: Mapping[str, int]) -> Samples:
    from ..accuracy.compare import drawn_for
    from ..accuracy.data import given
    from .feeds import read_samples

    if data is None:
        return drawn_for(models, sizes)
    return given(models.f32, read_samples(data, models.f32.inputs), data.name)


def _measured(
    models: Models,
    samples: Samples,
    against: Against | None,
    timeout: float | None,
    *,
    suggest: bool,
    name: str,
) -> tuple[Comparison, Suggestion | None]:
    from ..accuracy.compare import compared
    from ..accuracy.peers import TRIAL_SECONDS
    from ..accuracy.suggest import suggestion_of
    from .progress import Progress

    with Progress(len(models.int8) * len(samples.feeds)) as progress:
        progress.say(f"running {name} beside f32")
        found = compared(
            models,
            samples,
            against and against.value,
            progress.advance,
            timeout or TRIAL_SECONDS,
        )
        return found, suggestion_of(found, progress.say) if suggest else None


def _check_destination(out: Path, f32: Path, int8: Path) -> None:
    from ..files import is_folder

    if out.suffix != ".onnx":
        raise UsageError(
            "the part of the model is written as an .onnx file, its inputs as .npz beside it",
            where=place("--reduce"),
            hint=f"name {out.with_suffix('.onnx')}",
        )
    if not is_folder(out.parent):
        raise InvalidInput(
            "the folder does not exist",
            where=str(out),
            hint=f"create {out.parent}, or name another place",
        )
    for model in (f32, int8):
        for file in _files(out):
            refuse_over(file, model, "the part would be written over the model that it is cut from")


def _files(out: Path) -> tuple[Path, Path, Path]:
    """The part of the int8 model, its inputs, and the part of the f32 model."""
    return out, out.with_suffix(".npz"), out.with_suffix(".f32.onnx")


def _reduced(found: Comparison, out: Path, bound: float | None) -> Cut:
    """Cuts and writes; what was done in a sentence, and the files."""
    from ..accuracy.reduce import AGREEING, cut_against, cut_layer
    from ..files import write_atomically
    from .outputs import write_outputs
    from .progress import Progress

    with Progress() as progress:
        progress.say("cutting")
        if found.peer:
            least = AGREEING if bound is None else bound
            part = cut_against(found, least, progress.say)
            if part is None:
                what = f"Nothing to cut out: layer by layer fqfuse and {found.peer} agree to {least:g} dB or better; "
                return f"{what}what the outputs differ in comes from ties of rounding.", {}
        else:
            part = cut_layer(found) if bound is None else cut_layer(found, bound)
            if part is None:
                return f"Nothing to cut out: {_why_whole(found, bound)}.", {}
    model, inputs, original = _files(out)
    files = {"model": model, "inputs": inputs}
    write_atomically(model, part.model)
    write_outputs(part.inputs, inputs)
    if part.f32 is not None:
        write_atomically(original, part.f32)
        files["f32"] = original
    nodes = f"{part.nodes:,} {'node' if part.nodes == 1 else 'nodes'}"
    listed = ", ".join(str(file) for file in files.values())
    return (
        f"Cut out: {nodes} that compute {part.output} with {part.sqnr:.1f} dB SQNR: {listed}.",
        files,
    )


def _why_whole(found: Comparison, bound: float | None) -> str:
    noise = [layer.adds for layer in found.ranking if layer.pair.op != "input"]
    if not noise:
        return "no layer adds noise"
    if bound is not None and min(noise) > bound:
        return f"no layer adds so much noise; the most is {min(noise):.1f} dB"
    return "no layer that adds noise lies between values that the int8 model's file names"


def _report(
    found: Comparison,
    suggestion: Suggestion | None,
    cut: Cut | None,
    f32: Path,
    int8: Path,
    *,
    all_rows: bool,
    as_json: bool,
    color: Color,
) -> None:
    from .console import layout_of_stdout, print_json, show

    if as_json:
        from ..accuracy.document import as_data
        from ..report.json import plain

        written = {} if cut is None else {name: str(file) for name, file in cut[1].items()}
        models = {"f32": str(f32), "int8": str(int8), "reduced": written or None}
        print_json({**plain(as_data(found, suggestion)), **models})
        return
    from ..accuracy.screen import comparison_report
    from ..report.notation import title_text

    title = title_text(int8.name)
    show(
        comparison_report(
            found, suggestion, layout_of_stdout(all_rows=all_rows), title=title, all_rows=all_rows
        ),
        color,
    )
    if cut is not None:
        from ..errors import printable
        from ..report.layout import Text
        from ..report.lines import WIDTH, wrapped

        for line in wrapped(printable(cut[0]), WIDTH - 2, whole_words=True):
            show(Text(f"  {line}"), color)
