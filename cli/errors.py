"""From exceptions to one message and an exit code.

    0    success
    1    a check or comparison failed; the command itself says so (`typer.Exit(1)`)
    2    the user's input is wrong: a FqfuseError, a wrong command line, or more memory asked for than there is
    3    a bug in fqfuse: InternalError, or any exception that nobody expected
    130  interrupted from the keyboard

The message goes to stderr: what, where, how to fix it, and never a traceback unless
FQFUSE_TRACEBACK=1 asks for one. With `--json` the same goes to stdout as a document
(docs/contributing/json-schema.md), so that there is always exactly one document; the text is printed, too, where
stdout is no terminal, for whoever reads the log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from ..errors import FqfuseError, InternalError, printable
from .out import STDOUT, write_out

USER, BUG, INTERRUPTED = 2, 3, 130

# What a wrong command line raises. typer's public names hold the most special of these classes
# only, and where the others live depends on its version.
_UsageError, _UsageBase = typer.BadParameter.__mro__[1:3]

_REPORT = "this is a bug in fqfuse: run the command again with FQFUSE_TRACEBACK=1, and report what it prints"


@dataclass(frozen=True)
class Failure:
    """What a person or program is told about an exception.

    Attributes:
        kind: `InvalidModel` ... of `fqfuse.errors`, `UsageError`, `MemoryError`, `InternalError`,
            `Interrupted`.
        what, where, hint: what is wrong, the place, how to fix it; the last two may be empty.
        exit_code: of the process.
        saved: file that the graph was saved to for a report, or empty.
        excerpt: lines of a text form around the place, or empty.
    """

    kind: str
    what: str
    where: str
    hint: str
    exit_code: int
    saved: str = ""
    excerpt: str = ""

    def text(self, width: int | None = None) -> str:
        """The message for people: a line for each part, in a terminal of that width as many as it takes."""
        head = _part("internal error: " if self.exit_code == BUG else "error: ", self.what, width)
        where, saved, fix = (
            _part(f"  {label + ':':<6} ", text, width) if text else ""
            for label, text in (("where", self.where), ("saved", self.saved), ("fix", self.hint))
        )
        return "\n".join(filter(None, (head, where, self.excerpt, saved, fix)))

    def document(self) -> str:
        """The message for programs."""
        what, where, hint = map(printable, (self.what, self.where, self.hint))
        where = "\n".join(filter(None, (where, self.excerpt)))
        error = {"kind": self.kind, "what": what, "where": where, "hint": hint, "saved": self.saved}
        return json.dumps(
            {"schema": "fqfuse.error/1", "error": error, "exit_code": self.exit_code}, indent=2
        )


def _part(label: str, text: str, width: int | None) -> str:
    """The text beside its label; paths and names stay whole, so that they can be copied."""
    if width is None:
        return label + printable(text)
    from ..report.lines import wrapped

    lines = wrapped(text, width - len(label), whole_words=True)
    return f"\n{' ' * len(label)}".join([label + lines[0], *lines[1:]])


def exit_code_of(action: Callable[[], object], *, as_json: bool) -> int:
    """Runs a command; what it raises is told to the user.

    Args:
        action: the command; an integer that it returns is the exit code.
        as_json: tell it as a document on stdout.

    Returns:
        The exit code of the process.
    """
    try:
        result = action()
    except BaseException as error:  # the one border behind which no exception may go
        if isinstance(error, SystemExit):
            raise
        failure = _failure(error)
        if os.environ.get("FQFUSE_TRACEBACK") == "1":
            sys.stderr.write(_traceback(error))
        _tell(failure, as_json=as_json)
        return failure.exit_code
    return result if isinstance(result, int) else 0


def _failure(error: BaseException) -> Failure:
    kind = type(error).__name__
    match error:
        case FqfuseError():
            return Failure(kind, error.what, error.where, error.hint, USER, excerpt=error.excerpt)
        case KeyboardInterrupt() | typer.Abort():
            return Failure("Interrupted", "interrupted", "", "", INTERRUPTED)
        case MemoryError():
            return Failure(
                kind,
                f"there is not enough memory: {error}".rstrip(": "),
                "",
                "feed smaller inputs, or use a larger machine",
                USER,
            )
        case InternalError():
            return Failure(kind, error.what, "", _REPORT, BUG, error.saved, error.excerpt)
    if isinstance(error, _UsageBase):
        return _usage_failure(error)
    return Failure(
        "InternalError", f"{kind}: {error}" if str(error) else kind, _place(error), _REPORT, BUG
    )


def _usage_failure(error: BaseException) -> Failure:
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "fqfuse")
    message = getattr(error, "format_message", error.__str__)()
    return Failure(
        "UsageError",
        str(message),
        f"command line of {command}",
        f"`{command} --help` lists arguments and options",
        USER,
    )


def _traceback(error: BaseException) -> str:
    """As the interpreter prints it, but for the messages: they may hold names from the model."""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    first = f"{_traceback(before)}\nwhich led to:\n\n" if before is not None else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    message = "\n".join(
        printable(line.rstrip("\n")) for line in traceback.format_exception_only(error)
    )
    return f"{first}Traceback (most recent call last):\n{frames}{message}\n"


def _place(error: BaseException) -> str:
    """The innermost line of fqfuse that the exception went through, as module and line; this file
    is left out.
    """
    here = Path(__file__).resolve()
    root = here.parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if path.is_relative_to(root) and path != here:
            module = path.relative_to(root).with_suffix("").parts
            return f"{'.'.join(('fqfuse', *module))}, line {frame.lineno}"
    return ""


def _tell(failure: Failure, *, as_json: bool) -> None:
    if as_json and failure.where != STDOUT:
        write_out(failure.document() + "\n")
        if sys.stdout.isatty():
            return
    text = failure.text(_width() if sys.stderr.isatty() else None)
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        head, _, tail = text.partition(": ")
        text = f"\x1b[1;31m{head}:\x1b[0m {tail}"
    sys.stderr.write(text + "\n")


def _width() -> int:
    """Columns of a message: those of the terminal behind stderr, as many as other screens take at most."""
    from rich.console import Console

    from ..report.lines import WIDTH

    return min(Console(file=sys.stderr).width, WIDTH)
