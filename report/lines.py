"""Paragraphs and labelled lines of a report that is as wide as a page, in a pipe, too. Texts are made
printable here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from rich.text import Text as RichText

from ..errors import printable
from .layout import Text

__all__ = ["WIDTH", "labelled", "paragraph"]

WIDTH = 80

_TIED = "\u00a0"  # a blank at which no line ends
_UNITS = re.compile(r"(?<=\d )(ms|%|GHz|GiB|MiB|KiB|bytes|cores?)(?![\w])")


def labelled(
    label: str, text: str, width: int, indent: int, room: int, style: str = ""
) -> Iterator[RichText]:
    """A label, dim and `room` wide, and the text beside it, wrapped to the width."""
    lines = _wrapped(text, width - indent - room)
    for number, line in enumerate(lines):
        word = label if not number else ""
        yield Text.assemble((f"{' ' * indent}{word:<{room}}", "dim"), (line, style))


def paragraph(text: str, width: int, indent: int, style: str = "") -> list[RichText]:
    """The text, wrapped to the width and indented."""
    return [
        Text(f"{' ' * indent}{line}", style=style)
        for line in _wrapped(text.strip(), width - indent)
    ]


def _wrapped(text: str, width: int) -> list[str]:
    tied = _UNITS.sub(f"{_TIED}\\g<0>", printable(text)).replace(f" {_TIED}", _TIED)
    lines = textwrap.wrap(tied, max(width, 20), break_on_hyphens=False) or [""]
    return [line.replace(_TIED, " ") for line in lines]
