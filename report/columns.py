"""How much room a text takes on a terminal, in columns, and the beginnings and ends that fit.

Most characters take one column, those of Chinese, Japanese and Korean and emoji two, combining marks
none. rich counts, so that its tables and these texts agree.
"""

from __future__ import annotations

from rich.cells import cell_len


def columns(text: str) -> int:
    """The columns that a printable text takes."""
    return len(text) if text.isascii() else cell_len(text)


def head(text: str, room: int) -> str:
    """The longest beginning that fits; a character keeps its combining marks."""
    if text.isascii():
        return text[: max(room, 0)]
    end = 0
    while end < len(text) and cell_len(text[: end + 1]) <= room:
        end += 1
    return text[:end]


def tail(text: str, room: int) -> str:
    """The longest end that fits and does not begin with the mark of another character."""
    if text.isascii():
        return text[max(len(text) - max(room, 0), 0) :]
    start = len(text)
    while start and cell_len(text[start - 1 :]) <= room:
        start -= 1
    while start < len(text) and not cell_len(text[start]):
        start += 1
    return text[start:]
