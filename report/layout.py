"""How much room a report has, and the look that its parts share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText

from ..errors import printable

T = TypeVar("T")

_WIDE = 110  # columns from which on a step fits on one line

FATE_STYLES = {
    "standalone": "yellow",
    "fallback": "bold red",
    "post_op": "cyan",
    "constant": "dim",
    "redundant": "dim",
}
"""Colours of fates; the others are green: the quantizer costs nothing there."""


class Text(RichText):
    """Text of a report. What it is made of may come from a model, so every piece is made
    printable.
    """

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(printable(text), style, **options)

    def append(self, text: RichText | str, style: str | Style | None = None) -> Self:
        """Adds a piece; of texts that are made already only the style is added."""
        super().append(printable(text) if isinstance(text, str) else text, style)
        return self


def listed(texts: Iterable[str]) -> RichText:
    """Texts with commas between them, each made printable by itself: the list may be long."""
    return Text(", ").join(map(Text, texts))


@dataclass(frozen=True)
class Layout:
    """The room that a report has.

    Attributes:
        width: columns; None for a pipe or file, where every row stays on one line and no name is
            shortened.
        rows: longer tables are folded to about so many rows; None: never.
    """

    width: int | None = None
    rows: int | None = None

    @property
    def is_wide(self) -> bool:
        """True when rows may be long."""
        return self.width is None or self.width >= _WIDE

    @property
    def shortens(self) -> bool:
        """True when names may be shortened."""
        return self.width is not None


PIPE = Layout()
"""No limits: what goes into a pipe or file."""


def heading(text: str, note: str = "") -> RichText:
    """The heading of a part, with a dim note behind it."""
    return Text.assemble((text, "bold"), (f"  {note}" if note else "", "dim"))


def plain_table(*columns: str, header: bool = True) -> Table:
    """A table without lines: columns two blanks apart, indented by two."""
    table = Table(
        box=None,
        show_header=header,
        header_style="dim",
        padding=(0, 2, 0, 0),
        pad_edge=False,
        collapse_padding=False,
    )
    table.add_column("", width=0, no_wrap=True)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def facts(rows: Iterable[tuple[str, RichText]]) -> Table:
    """Labels and what is said of each, without a header."""
    table = plain_table("", "", header=False)
    table.columns[1].style = "dim"
    table.columns[1].no_wrap = True
    for label, text in rows:
        table.add_row("", label, text)
    return table


def folded(items: Sequence[T], layout: Layout) -> tuple[Sequence[T], int, Sequence[T]]:
    """(first items, how many are left out, last items): the last tenth of what fits is kept for the
    end.
    """
    if layout.rows is None or len(items) <= layout.rows:
        return items, 0, ()
    tail = layout.rows // 10
    return items[: layout.rows - tail], len(items) - layout.rows, items[len(items) - tail :]


def more(count: int, noun: str) -> Text:
    """The line that stands for what was folded away."""
    return Text(f"  … {count:,} more {noun}: --all shows them", style="dim")
