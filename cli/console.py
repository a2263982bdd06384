"""Printing to stdout: wrapped and coloured on a terminal, one line a row and whole names in a pipe
or file.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from ..report.json import Json
from ..report.layout import PIPE, Layout
from .encoding import exact
from .options import Color
from .out import json_safe, write_out

if TYPE_CHECKING:
    from ..plan.types import Plan

_UNLIMITED = 1 << 20  # columns; rich has no word for it
_FOLDED_ROWS = 200


def layout_of_stdout(*, all_rows: bool = False) -> Layout:
    """The room for a report: a terminal has a width, and long tables are folded there unless
    `all_rows`.
    """
    if not sys.stdout.isatty():
        return PIPE
    return Layout(Console(file=sys.stdout).width, None if all_rows else _FOLDED_ROWS)


def show(content: RenderableType, color: Color) -> None:
    """Prints a renderable to stdout."""
    if sys.stdout.isatty():
        _console(color, None).print(content)
        return
    buffer = io.StringIO()
    _console(color, buffer).print(content, crop=False, soft_wrap=False)
    write_out("".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines()))


def _console(color: Color, buffer: io.StringIO | None) -> Console:
    forced = {Color.AUTO: None, Color.ALWAYS: True, Color.NEVER: None}[color]
    no_color = True if color is Color.NEVER else False if color is Color.ALWAYS else None
    return Console(
        file=buffer,
        width=None if buffer is None else _UNLIMITED,
        force_terminal=forced,
        no_color=no_color,
        color_system=None if color is Color.NEVER else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_json(document: Json) -> None:
    """Prints a document: indented, keys in their order, no NaN, readable Unicode as it is."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_out(exact(json_safe(text)) + "\n")


def print_csv(plan: Plan, table: str, sizes: Mapping[str, int]) -> None:
    """Prints a table of a plan, one of `report.tables.TABLES`, as CSV."""
    from ..report.tables import TABLES, csv_text

    rows = {
        "findings": lambda: plan.findings(sizes=sizes),
        "steps": lambda: plan.steps_table(sizes=sizes),
        "fates": plan.fates,
        "decisions": plan.decisions,
    }[table]()
    write_out(csv_text(TABLES[table], rows))
