"""Diagnostics of the verifiers: what is wrong, with the text form around it and the offender
underlined.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import printable
from .text_print import Rendered

_AROUND = 5
_WIDTH = 160
_NAME_CHARACTER = re.compile(r"[A-Za-z0-9_./:$-]")


@dataclass(frozen=True)
class Finding:
    """What a row of a verifier's table found.

    Attributes:
        message: one sentence: what is wrong.
        node: name of the node or step it is about, or ''.
        value: name of the value it is about, or ''.
        token: the part of the line to underline (`%x`, `Relu`); '' for the whole line.
    """

    message: str
    node: str = ""
    value: str = ""
    token: str = ""


@dataclass(frozen=True)
class Diagnostic:
    """A broken rule.

    Attributes:
        rule: name of the row.
        message: one sentence: what is wrong.
        subject: name of the node, step or value that it is about.
        hint: how to mend it.
        excerpt: the text form around it, the offender underlined; empty where no line shows it.
    """

    rule: str
    message: str
    subject: str
    hint: str
    excerpt: str

    def __str__(self) -> str:
        parts = [
            printable(f"{self.rule}: {self.message}"),
            self.excerpt,
            f"  fix: {self.hint}" if self.hint else "",
        ]
        return "\n".join(part for part in parts if part)


def diagnose(rule: str, hint: str, finding: Finding, text: Rendered) -> Diagnostic:
    """The diagnostic of a finding, with its place in the text."""
    line = text.nodes.get(finding.node) if finding.node else text.values.get(finding.value)
    shown = "" if line is None else _excerpt(text.lines, line, finding.token)
    return Diagnostic(rule, finding.message, finding.node or finding.value, hint, shown)


def _excerpt(lines: Sequence[str], index: int, token: str) -> str:
    """Up to five lines on both sides, the offender marked with `>` and its token underlined."""
    first, last = max(0, index - _AROUND), min(len(lines), index + _AROUND + 1)
    start, length = _span(lines[index], token)
    left = max(0, start - _WIDTH // 2) if start + length > _WIDTH else 0
    shown = []
    for number in range(first, last):
        line = lines[number]
        cut = left if number == index else 0
        body = (
            ("…" if cut else "")
            + line[cut : cut + _WIDTH]
            + ("…" if len(line) > cut + _WIDTH else "")
        )
        shown.append(f"  {'>' if number == index else ' '}{number + 1:4} | {body}")
        if number == index:
            shown.append(
                f"        | {' ' * (start - cut + (1 if cut else 0))}{'^' * min(length, _WIDTH)}"
            )
    return "\n".join(shown)


def _span(line: str, token: str) -> tuple[int, int]:
    """Where a token stands in a line as a whole word; the line without its indentation when it does
    not.
    """
    at = line.find(token) if token else -1
    while at >= 0:
        end = at + len(token)
        if end == len(line) or not _NAME_CHARACTER.match(line[end]):
            return at, len(token)
        at = line.find(token, end)
    indent = len(line) - len(line.lstrip())
    return indent, len(line) - indent


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """The first message, and how many more there are."""
    more = len(diagnostics) - 1
    return diagnostics[0].message + (f" (and {more} more)" if more else "")


def save_text(text: str, kind: str) -> str:
    """Saves a text form for a bug report in the folder for temporary files, readable by the user
    alone.

    Returns:
        The file's path, or '' when it cannot be written: the report is worth less then, the error
        itself is not.
    """
    with contextlib.suppress(OSError):
        handle, path = tempfile.mkstemp(prefix=f"fqfuse-{kind}-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        return path
    return ""
