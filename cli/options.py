"""Options that several commands share."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ..errors import InvalidInput

_Choice = TypeVar("_Choice", bound=enum.StrEnum)

_WHOLE = "0*[0-9]{1,9}"
_DECIMAL = r"[0-9]{1,3}(\.[0-9]+)?|\.[0-9]+"


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


def place(name: str) -> str:
    """Where a wrong value of an option stands, for messages."""
    return f"command line, {name}"


def option(
    names: str,
    help: str,
    metavar: str | None = None,
    parse: Callable[[str], Any] | None = None,
    known: Callable[[], Iterable[str]] | None = None,
) -> Any:
    """An option of a command.

    Args:
        names: such as `--output -o`.
        help: what it does.
        metavar: what its value is called; a flag has none.
        parse: reads the value.
        known: the words that a shell may complete it by.
    """
    complete = known and _completed(known)
    return typer.Option(
        *names.split(), help=help, metavar=metavar, parser=parse, autocompletion=complete
    )


def choice(name: str, kind: type[_Choice], help: str, called: str = "") -> Any:
    """An option that takes one of a few words, which `called` are called, or as the option is.

    typer's message for another word depends on its version, and names the libraries inside.
    """
    words = [word.value for word in kind]

    def parse(text: str) -> _Choice:
        if text not in words:
            raise UsageError(
                f"there is no {called or name.removeprefix('--')} {text!r}",
                where=place(name),
                hint=f"choose one of {', '.join(words)}",
            )
        return kind(text)

    return option(name, help, "|".join(words), parse)


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
    from ..ir.approximations import APPROXIMATIONS

    return APPROXIMATIONS


def number(
    name: str, help: str, metavar: str, most: float, what: str, hint: str, *, whole: bool = True
) -> Any:
    """An option that takes a number above 0 and at most `most`: else the text is no `what`."""

    def parse(text: str) -> float:
        value = float(text) if re.fullmatch(_WHOLE if whole else _DECIMAL, text) else 0
        if not 0 < value <= most:
            raise UsageError(f"{text!r} is no {what}", where=place(name), hint=hint)
        return int(value) if whole else value

    return option(name, help, metavar, parse)


def timeout_option(help: str) -> Any:
    """An option that says how long an engine may take, up to a day."""
    return number(
        "--timeout",
        help,
        "SECONDS",
        most=86_400,
        what="time that an engine may take",
        hint="give seconds, more than 0 and at most 86400, such as 60",
        whole=False,
    )


def sizes_of(texts: Sequence[str] | None, least: int = 0) -> dict[str, int]:
    """The values of `--size NAME=N`, from `least` on; the last one counts.

    Raises:
        UsageError: one is no size, or too small.
    """
    hint = "give a name and a whole number, such as --size sequence_length=128"
    found = {_name(text): _sizes(text, hint, several=False)[0] for text in texts or ()}
    for name, size in found.items():
        if size < least:
            what = f"'{name}={size}' leaves no data: a size is {least} or more here"
            raise UsageError(what, where=place("--size"), hint=hint)
    return found


def listed_sizes_of(texts: Sequence[str] | None) -> dict[str, list[int]]:
    """The values of `--size NAME=N[,N...]`.

    Raises:
        UsageError: one is no size, or of a name that another one has.
    """
    hint = "give a name and whole numbers, such as --size batch=1,8"
    found: dict[str, list[int]] = {}
    for text in texts or ():
        if _name(text) in found:
            what = f"{text!r} gives a size for the second time"
            raise UsageError(what, where=place("--size"), hint=hint)
        found[_name(text)] = _sizes(text, hint, several=True)
    return found


def check_bound(min_sqnr: float | None) -> None:
    """Refuses what is no bound in dB.

    Raises:
        UsageError: it is NaN.
    """
    if min_sqnr is not None and math.isnan(min_sqnr):
        raise UsageError(
            "nan is no bound", where=place("--min-sqnr"), hint="give a number of dB, such as 20"
        )


def _name(text: str) -> str:
    return text.rpartition("=")[0]


def _sizes(text: str, hint: str, *, several: bool) -> list[int]:
    listed = text.rpartition("=")[2].split(",")
    whole = all(re.fullmatch(_WHOLE, size) for size in listed)
    if not _name(text) or not whole or (len(listed) > 1 and not several):
        raise UsageError(f"{text!r} is no size", where=place("--size"), hint=hint)
    return [int(size) for size in listed]


ModelOrPlan = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL_OR_PLAN", help="An ONNX model, or a plan that `fqfuse compile` wrote."
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.")]
Target = Annotated[
    str | None,
    option(
        "--target",
        "For which scheme of attributes: onednn-v3 (the default), onednn-v2 or unified.",
        "NAME",
        known=_targets,
    ),
]
Dynamic = Annotated[
    str | None,
    option(
        "--dynamic",
        "Quantize by ranges at run time what no quantizer does: sources of matrix products (matmul), or of convolutions, too (all).",
        "matmul|all",
        known=_products,
    ),
]
Approximate = Annotated[
    list[str] | None,
    option(
        "--approximate",
        "An approximation that may be made, of docs/numerics.md, such as residual-rounding. Repeat it for others.",
        "NAME",
        known=_approximations,
    ),
]
Data = Annotated[
    Path | None,
    option(
        "--data",
        "An .npz file with an array for each input, or a folder of such files; random data if not given.",
        "DIR|NPZ",
    ),
]
MinSqnr = Annotated[
    float | None, option("--min-sqnr", "Exit with 1 where an output has a smaller SQNR.", "DB")
]
AllLayers = Annotated[bool, option("--all", "List every layer.")]
BackendOption = Annotated[
    Backend,
    choice("--backend", Backend, "The runtime; auto takes oneDNN where it is installed and fit."),
]
Inexact = Annotated[
    bool,
    option(
        "--inexact",
        "On a CPU without VNNI, take oneDNN's own int8 kernels: faster, but their sums saturate, as in other runtimes.",
    ),
]
Threads = Annotated[
    int | None,
    number(
        "--threads",
        "How many threads may compute; all processors if not given.",
        "N",
        most=999_999_999,
        what="number of threads",
        hint="give a whole number of 1 or more",
    ),
]
Cache = Annotated[
    Path | None,
    option(
        "--cache",
        "Keep the plans of models in this folder of your own; else in FQFUSE_CACHE.",
        "DIR",
    ),
]
AsJson = Annotated[
    bool,
    option("--json", "Print one JSON document, described in docs/contributing/json-schema.md."),
]
ColorOption = Annotated[
    Color, choice("--color", Color, "Colours: on a terminal, always, or never.")
]
