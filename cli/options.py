"""Options that several commands share."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "Backend", "BackendOption", "Color", "ColorOption", "ModelOrPlan", "Target", "Threads"]


class Backend(enum.StrEnum):
    """Which runtime computes."""

    AUTO = "auto"
    NUMPY = "numpy"
    ONEDNN = "onednn"


class Color(enum.StrEnum):
    """When the output is coloured."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


ModelOrPlan = Annotated[Path, typer.Argument(metavar="MODEL_OR_PLAN", help="An ONNX model, or a plan that `fqfuse compile` wrote.")]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="NAME", help="For which scheme of attributes: onednn-v3 (the default), onednn-v2 or unified."),
]
BackendOption = Annotated[Backend, typer.Option("--backend", help="The runtime; auto takes oneDNN where it is installed and fit.")]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="How many threads may compute; all processors if not given.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, described in docs/json-schema.md.")]
ColorOption = Annotated[Color, typer.Option("--color", help="Colours: on a terminal, always, or never.")]
