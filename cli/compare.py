"""Compare a quantized model with the f32 model it was made from, layer by layer.

Says how good the outputs are, which layers add most noise and why, and what to change. Each layer is
measured twice: fed with f32's values (what it adds), and with what the int8 model has computed in
front of it (what has accumulated). Exit code 1 where an output is below --min-sqnr.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInput
from .options import AsJson, Color, ColorOption, UsageError, choice, place, sizes_of

if TYPE_CHECKING:
    from ..accuracy.compare import Comparison, Models
    from ..accuracy.data import Samples
    from ..accuracy.suggest import Suggestion
    from ..ir.ops.spec import Array

__all__ = ["command"]


class Against(enum.StrEnum):
    """Another program that runs the int8 model."""

    ONNXRUNTIME = "onnxruntime"
    OPENVINO = "openvino"


_Model = Annotated[Path, typer.Argument(metavar="F32", help="The f32 ONNX model.")]
_Quantized = Annotated[Path, typer.Argument(metavar="INT8", help="The model quantized from it.")]


def command(
    f32: _Model,
    int8: _Quantized,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR|NPZ",
            help="An .npz file with an array for each input, or a folder of such files; random data if not given.",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="NAME=N",
            help="For random data: a size that the model leaves open; several times for several.",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        choice(
            "--against",
            Against,
            "Run the int8 model there, too: tells a bad quantization from a wrong fqfuse.",
        ),
    ] = None,
    min_sqnr: Annotated[
        float | None,
        typer.Option(
            "--min-sqnr", metavar="DB", help="Exit with 1 where an output has a smaller SQNR."
        ),
    ] = None,
    suggest: Annotated[
        bool, typer.Option("--suggest", help="Try which layers to leave in f32.")
    ] = False,
    all_rows: Annotated[bool, typer.Option("--all", help="List every layer.")] = False,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Compares two models."""
    from ..accuracy.compare import read_models

    sizes = sizes_of(size)
    if sizes and data is not None:
        raise UsageError(
            "--size is for random data, and --data gives data",
            where=place("--size"),
            hint="leave one of them out",
        )
    models = read_models(f32, int8)
    samples = _samples(models, data, sizes)
    found, suggestion = _measured(models, samples, against, suggest=suggest, name=int8.name)
    _report(found, suggestion, f32, int8, all_rows=all_rows, as_json=as_json, color=color)
    if min_sqnr is not None and not found.worst >= min_sqnr:
        raise typer.Exit(1)


def _samples(models: Models, data: Path | None, sizes: Mapping[str, int]) -> Samples:
    from ..accuracy.compare import drawn_for
    from ..accuracy.data import given

    if data is None:
        return drawn_for(models, sizes)
    return given(models.f32, _feeds(data, models.f32.inputs), data.name)


def _feeds(data: Path, inputs: tuple[str, ...]) -> Iterator[dict[str, Array]]:
    from ..files import is_folder
    from .feeds import read_feeds

    files = [data]
    if is_folder(data):
        files = sorted(path for path in data.iterdir() if path.suffix in (".npz", ".npy"))
        if not files:
            raise InvalidInput(
                "the folder holds no .npz and no .npy file",
                where=str(data),
                hint="write one .npz file for each sample, with an array for each input",
            )
    for file in files:
        yield {name: feed.array for name, feed in read_feeds([str(file)], inputs).items()}


def _measured(
    models: Models, samples: Samples, against: Against | None, *, suggest: bool, name: str
) -> tuple[Comparison, Suggestion | None]:
    from ..accuracy.compare import compared
    from ..accuracy.suggest import suggestion_of
    from .progress import Progress

    with Progress(len(models.int8) * len(samples.feeds)) as progress:
        progress.say(f"running {name} beside f32")
        found = compared(models, samples, against and against.value, progress.advance)
        return found, suggestion_of(found, progress.say) if suggest else None


def _report(
    found: Comparison,
    suggestion: Suggestion | None,
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

        print_json({**plain(as_data(found, suggestion)), "f32": str(f32), "int8": str(int8)})
        return
    from ..accuracy.screen import comparison_report
    from ..report.notation import title_text

    title = title_text(f"{int8.name}")
    show(
        comparison_report(
            found, suggestion, layout_of_stdout(all_rows=all_rows), title=title, all_rows=all_rows
        ),
        color,
    )
