"""Markdown whose prose is wrapped; tables, code and headings stay as they are."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

_WIDTH: Final = 118
_ITEM: Final = re.compile(r"(\s*)((?:[-*]|\d+\.)\s+)(.*)")


def wrapped(text: str) -> str:
    """The same document with lines of at most 118 characters, but for words that are longer."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    fenced = False
    for line in lines:
        fence = line.lstrip().startswith("```")
        code = line.startswith("    ") and not paragraph
        if fence or fenced or code or not line.strip() or line.startswith(("|", "#", "<!--", "![")):
            yield from _flow(paragraph)
            paragraph = []
            fenced ^= fence
            yield line
        elif _ITEM.fullmatch(line) and (not paragraph or _ITEM.fullmatch(paragraph[0])):
            yield from _flow(paragraph)
            paragraph = [line]
        else:
            paragraph.append(line)
    yield from _flow(paragraph)


def _flow(lines: list[str]) -> list[str]:
    if not lines:
        return []
    match = _ITEM.fullmatch(lines[0])
    first, rest = (match[1] + match[2], [match[3]]) if match else ("", lines[:1])
    text = " ".join(line.strip() for line in [*rest, *lines[1:]])
    indent = " " * len(first)
    found = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*found[:1], *(re.sub(r"^(\s*)([-+*] )", r"\1\\\2", line) for line in found[1:])]
