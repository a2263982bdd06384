"""Paragraphs and labelled lines of a report that is as wide as a page, in a pipe, too. Texts are made
printable here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rich.text import Text as RichText

from ..errors import printable
from .columns import columns, head
from .layout import Text

WIDTH = 80

_TIED = "\u00a0"  # a blank at which no line ends
_UNITS = re.compile(r"(?<=\d )(ms|%|GHz|GiB|MiB|KiB|bytes|cores?)(?![\w])")
_WORDS = re.compile(r"( *)([^ ]+)")
_SIZES = 56  # columns of guessed sizes
_NARROW = 20  # columns, below which lines are not made shorter


def labelled(
    label: str,
    text: str,
    width: int,
    indent: int,
    room: int,
    style: str = "",
    *,
    whole_words: bool = False,
) -> Iterator[RichText]:
    """A label, dim and `room` wide, and the text beside it, wrapped to the width."""
    lines = wrapped(text, width - indent - room, whole_words=whole_words)
    for number, line in enumerate(lines):
        word = label if not number else ""
        yield Text.assemble((f"{' ' * indent}{word:<{room}}", "dim"), (line, style))


def paragraph(text: str, width: int, indent: int, style: str = "") -> list[RichText]:
    """The text, wrapped to the width and indented."""
    return [
        Text(f"{' ' * indent}{line}", style=style) for line in wrapped(text.strip(), width - indent)
    ]


def guess_lines(
    guessed: Mapping[str, int], width: int, *, by: str = "--size, --data", timed: bool = True
) -> list[RichText]:
    """Which open sizes the figures behind it are for; nothing where all are given.

    Args:
        guessed: sizes that nobody gave.
        width: in columns.
        by: the options that give them.
        timed: False: the guess is too small for bytes and shares to mean something.
    """
    if not guessed:
        return []
    each = ", ".join(f"{printable(name)}={size:,}" for name, size in guessed.items() if name != "?")
    names = each or "a shape that is not known"
    names = names if columns(names) <= _SIZES else f"{head(names, _SIZES)}..."
    options = f" ({by})" if by else ""
    doubt = "" if timed else ", where bytes and shares mean little"
    return paragraph(f"For open sizes, guessed: {names}{options}{doubt}:", width, 2, "yellow")


def wrapped(text: str, width: int, *, whole_words: bool = False) -> list[str]:
    """The text in lines of so many columns; numbers stay with their units.

    Args:
        text: what it says; made printable.
        width: in columns, at least 20.
        whole_words: a word that is longer than a line is not broken.
    """
    tied = _UNITS.sub(f"{_TIED}\\g<0>", printable(text)).replace(f" {_TIED}", _TIED)
    width = max(width, _NARROW)
    lines, line = list[str](), ""
    for gap, word in _WORDS.findall(tied):
        used, size = columns(line) + len(gap), columns(word)
        too_long = used + size > width
        if line and (used >= width or (too_long and (whole_words or size <= width))):
            lines.append(line)
            line = ""
        line, rest = f"{line}{gap}" if line else "", word
        while not whole_words and columns(line) + columns(rest) > width:
            part = head(rest, width - columns(line))  # as much of a long word as fits
            lines.append(f"{line}{part}".rstrip())
            line, rest = "", rest[len(part) :]
        line += rest
    return [each.replace(_TIED, " ") for each in (*lines, line)]
