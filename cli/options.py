"""Options that several commands share."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..errors import InvalidInput

__all__ = [
    "Approximate",
    "AsJson",
    "Backend",
    "BackendOption",
    "Color",
    "ColorOption",
    "Dynamic",
    "ModelOrPlan",
    "Target",
    "Threads",
    "UsageError",
    "choice",
    "place",
    "sizes_of",
]

_Choice = TypeVar("_Choice", bound=enum.StrEnum)


class UsageError(InvalidInput):
    """A word of the command line that is wrong whatever the files hold."""


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


def place(option: str) -> str:
    """Where a wrong value of an option stands, for messages."""
    return f"command line, {option}"


def choice(option: str, kind: type[_Choice], help: str, called: str = "") -> Any:
    """An option that takes one of a few words, which `called` are called, or as the option is.

    typer's message for another word depends on its version, and names the libraries inside.
    """
    words = [word.value for word in kind]

    def parse(text: str) -> _Choice:
        if text not in words:
            hint = f"choose one of {', '.join(words)}"
            raise UsageError(
                f"there is no {called or option.removeprefix('--')} {text!r}",
                where=place(option),
                hint=hint,
            )
        return kind(text)

    return typer.Option(option, parser=parse, metavar="|".join(words), help=help)


def _completed(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes a word in the shell by those that are `known`."""
    return lambda incomplete: [word for word in known() if word.startswith(incomplete)]


def _targets() -> Iterable[str]:
    from ..plan.targets import TARGETS

    return TARGETS


def _products() -> Iterable[str]:
    from ..passes.quantize_at_run_time import DYNAMIC

    return DYNAMIC


def _approximations() -> Iterable[str]:
    from ..composer.approximations import APPROXIMATIONS

    return APPROXIMATIONS


def _threads(text: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text):
        raise UsageError(
            f"{text!r} is no number of threads",
            where=place("--threads"),
            hint="give a whole number of 1 or more",
        )
    return int(text)


def sizes_of(texts: Sequence[str] | None) -> dict[str, int]:
    """The values of `--size NAME=N`.

    Raises:
        UsageError: one is no size.
    """
    return dict(map(_size, texts or ()))


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not re.fullmatch("0*[1-9][0-9]{0,8}", number):
        raise UsageError(
            f"{text!r} is no size",
            where=place("--size"),
            hint="give a name and a whole number, such as --size sequence_length=128",
        )
    return name, int(number)


ModelOrPlan = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL_OR_PLAN", help="An ONNX model, or a plan that `fqfuse compile` wrote."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="NAME",
        autocompletion=_completed(_targets),
        help="For which scheme of attributes: onednn-v3 (the default), onednn-v2 or unified.",
    ),
]
Dynamic = Annotated[
    str | None,
    typer.Option(
        "--dynamic",
        metavar="matmul|all",
        autocompletion=_completed(_products),
        help="Quantize by ranges at run time what no quantizer does: sources of matrix products (matmul), or of convolutions, too (all).",
    ),
]
Approximate = Annotated[
    list[str] | None,
    typer.Option(
        "--approximate",
        metavar="NAME",
        autocompletion=_completed(_approximations),
        help="An approximation that may be made: int8-recurrence (LSTM and GRU in int8). Repeat it for others.",
    ),
]
BackendOption = Annotated[
    Backend,
    choice("--backend", Backend, "The runtime; auto takes oneDNN where it is installed and fit."),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        parser=_threads,
        help="How many threads may compute; all processors if not given.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, described in docs/json-schema.md.")
]
ColorOption = Annotated[
    Color, choice("--color", Color, "Colours: on a terminal, always, or never.")
]
